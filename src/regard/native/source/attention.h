/* Attention block by block with an online softmax (Milakov & Gimelshein 2018; Dao et al. 2022).
 *
 * A block of queries passes over blocks of keys; a tile of ROWS queries keeps its scores with a block
 * of keys in the nearest cache between the product with the keys, the softmax and the product with
 * the values. Keys and values are packed into panels first. Each row is computed in the same order
 * whatever the other rows are.
 */
#pragma once

#include <atomic>
#include <memory>
#include <new>
#include <string>

#include "problem.h"

/* Raised in Python as a MemoryError. */
class NoMemory : public std::bad_alloc {
    std::string message;

public:
    explicit NoMemory(int64_t bytes)
        : message("attend: no memory for " + std::to_string(bytes) + " bytes of packed keys and values")
    {
    }
    const char *what() const noexcept override { return message.c_str(); }
};

/* Cache-aligned memory for floats. */
class Buffer {
    struct Free {
        void operator()(float *x) const { ::operator delete[](x, std::align_val_t(64)); }
    };
    std::unique_ptr<float[], Free> memory;

public:
    explicit Buffer(int64_t count)
    {
        int64_t bytes = round_up(count, LANES) * 4;
        memory.reset((float *)::operator new[](bytes, std::align_val_t(64), std::nothrow));
        if (!memory)
            throw NoMemory(bytes);
    }
    float *start() const { return memory.get(); }
};

/* Keys and values [range.begin, range.end) of a batch entry and key head, in panels. */
struct Packed {
    Range range;
    float *keys, *values;

    int64_t count() const { return range.end - range.begin; }
    static int64_t room(const Sizes &size)
    {
        return round_up(size.m, PANEL) * (size.d + round_up(size.e, LANES));
    }
};

template <typename T> struct Tensors {
    Rows<const T> q, k, v;
    Rows<T> output; /* not used for statistics and gradients */
    float *highest, *total; /* (b, h, n): largest score, sum of exp(score - largest); or NULL */
};

/* What `statistics` returns: entropy (b, h, n) and the `count` largest scores of each row with their
 * keys (b, h, n, count), in falling order.
 */
struct Statistics {
    float *entropy;
    int64_t count;
    float *scores;
    int64_t *keys;
};

/* A block of queries, and the running maxima and sums of its rows. */
struct QueryBlock {
    int64_t b, h, first, rows;
    float *queries; /* (QUERIES, STRIDE), scaled */
    float *scores;  /* (ROWS, STRIDE) */
    float *sums;    /* (QUERIES, round_up(e, LANES)): of exp(score - highest) * value */
    float highest[QUERIES + LANES], total[QUERIES + LANES], moment[QUERIES + LANES];

    static int64_t room(const Sizes &size)
    {
        return (QUERIES + ROWS) * STRIDE + QUERIES * round_up(size.e, LANES);
    }
    QueryBlock(float *memory) : queries(memory), scores(queries + QUERIES * STRIDE)
    {
        sums = scores + ROWS * STRIDE;
    }
};

/* Packs those keys, and values if wanted, that some query of the batch entry sees. */
template <typename T>
static Packed pack_unit(
    const Problem &of, const Tensors<T> &x, int64_t unit, float *memory, bool values)
{
    const Sizes &size = of.size;
    int64_t b = unit / size.groups, g = unit % size.groups;
    Packed packed = {of.visible(b, 0, size.n), memory, memory + round_up(size.m, PANEL) * size.d};
    if (packed.range.begin >= packed.range.end)
        return packed;
    packed.range.begin = packed.range.begin / KEYS * KEYS;
    pack_transposed(x.k.at(b, g, packed.range.begin), x.k.row, packed.count(), size.d, packed.keys);
    if (values)
        pack(x.v.at(b, g, packed.range.begin), x.v.row, packed.count(), size.e, packed.values);
    return packed;
}

/* Copies the queries of a block, scaled, with zeros up to a whole tile. */
template <typename T>
static void start(const Problem &of, const Tensors<T> &x, QueryBlock &block)
{
    const Sizes &size = of.size;
    for (int64_t r = 0; r < round_up(block.rows, ROWS); r++) {
        float *to = block.queries + r * STRIDE;
        for (int64_t j = 0; j < size.d; j += LANES) {
            Vector q = all(0.0f);
            if (r < block.rows)
                q = load(x.q.at(block.b, block.h, block.first + r) + j, size.d - j) * of.scale;
            store(to + j, q);
        }
    }
    for (int64_t r = 0; r < QUERIES; r += LANES) {
        store(block.highest + r, all(-INFINITY));
        store(block.total + r, all(0.0f)), store(block.moment + r, all(0.0f));
    }
}

/* Inserts a vector of scores into the largest ones of its row. */
static inline void insert(const Statistics &of, int64_t row, int64_t j, Vector s)
{
    float *scores = of.scores + row * of.count;
    int64_t *keys = of.keys + row * of.count, last = of.count - 1;
    if (!any_above(s, scores[last]))
        return;
    for (int64_t c = 0; c < LANES; c++) {
        float score = s[c];
        if (!(score > scores[last]))
            continue;
        int64_t place = last;
        for (; place > 0 && score > scores[place - 1]; place--)
            scores[place] = scores[place - 1], keys[place] = keys[place - 1];
        scores[place] = score, keys[place] = j + c;
    }
}

/* Turns the scores at x of a tile with the keys [from, to) into exp(score - highest), and updates the
 * maxima and sums of its rows. keep receives the factors by which earlier sums are to be multiplied.
 */
template <bool plain, bool counted>
static void soften(
    const Problem &of, QueryBlock &block, int64_t t, int64_t from, int64_t to, float *x, float *keep,
    const Statistics *statistics)
{
    int64_t rows = std::min<int64_t>(ROWS, block.rows - t);
    float shift[LANES], *highest = block.highest + t, *known = block.total + t;
    Vector lanes[LANES], moments[LANES], before = load(highest);
    for (int64_t r = 0; r < LANES; r++)
        lanes[r] = all(-INFINITY);
    for (int64_t r = 0; r < rows; r++) {
        int64_t i = block.first + t + r;
        Range seen = of.visible(block.b, i);
        lanes[r] = make_scores<plain>(of, block.b, block.h, i, seen, x + r * STRIDE, from, to, NULL);
    }
    Vector most = larger(maxima(lanes), before);
    Vector least = most == -INFINITY ? all(0.0f) : most; /* no key visible: all exponentials are 0 */
    store(shift, least), store(highest, most);
    store(keep, exponential(before - least));
    for (int64_t r = 0; r < LANES; r++)
        lanes[r] = moments[r] = all(0.0f);
    for (int64_t r = 0; r < rows; r++) {
        float *row = x + r * STRIDE;
        int64_t i = block.first + t + r, place = (block.b * of.size.h + block.h) * of.size.n + i;
        uint64_t seed = of.below ? of.row_seed(block.b, block.h, i) : 0;
        Vector total = all(0.0f), moment = all(0.0f), high = all(shift[r]);
        for (int64_t j = from; j < to; j += LANES, row += LANES) {
            Vector s = load(row), distance = s - high, e = exponential(distance);
            total += e;
            if (counted) {
                moment += e == 0.0f ? e : e * distance;
                if (statistics->count)
                    insert(*statistics, place, j, s);
            }
            store(row, !plain && of.below ? drop(of, seed, j, e) : e);
        }
        lanes[r] = total, moments[r] = moment;
    }
    if (counted) {
        Vector spread = load(block.moment + t) + (before - least) * load(known);
        spread = load(known) == 0.0f ? all(0.0f) : spread * load(keep);
        store(block.moment + t, spread + sums(moments));
    }
    store(known, load(known) * load(keep) + sums(lanes));
}

/* Attention of a block of queries to all keys that it sees; without values, statistics alone. */
static void attend_block(
    const Problem &of, const Packed &packed, QueryBlock &block, const Statistics *statistics)
{
    const Sizes &size = of.size;
    int64_t wide = round_up(size.e, LANES), columns = round_up(packed.count(), LANES);
    Range all = of.visible(block.b, block.first, block.rows);
    for (int64_t base = all.begin / KEYS * KEYS; base < all.end; base += KEYS)
        for (int64_t t = 0; t < block.rows; t += ROWS) {
            int64_t rows = std::min<int64_t>(ROWS, block.rows - t);
            Range seen = of.visible(block.b, block.first + t, rows);
            int64_t from = std::max(base, seen.begin / LANES * LANES);
            int64_t end = std::min(base + KEYS, seen.end), to = round_up(end, LANES);
            if (from >= end)
                continue;
            for (int64_t j = from / PANEL * PANEL; j < end; j += PANEL) {
                int64_t column = j - packed.range.begin;
                multiply_panel<STRIDE, 1>(
                    rows, panel_width(column, columns), block.queries + t * STRIDE,
                    packed.keys + column * size.d, size.d, NULL, block.scores + j - base, STRIDE);
            }
            float keep[LANES], *scores = block.scores + from - base;
            bool fresh = base <= seen.begin; /* nothing is summed up yet */
            bool plain = of.plain() && !of.below;
            (statistics ? plain ? soften<true, true> : soften<false, true>
             : plain    ? soften<true, false>
                        : soften<false, false>)(
                of, block, t, from, to, scores, keep, statistics);
            if (statistics)
                continue;
            for (int64_t j = 0; j < wide; j += PANEL) {
                int panels = panel_width(j, wide);
                multiply_panel<STRIDE, 1>(
                    rows, panels, scores,
                    packed.values + j * packed.count() + (from - packed.range.begin) * panels * LANES,
                    end - from, fresh ? NULL : keep, block.sums + t * wide + j, wide);
            }
        }
}

/* Writes the results of a block. */
template <typename T>
static void finish(
    const Problem &of, const Tensors<T> &x, const QueryBlock &block, const Statistics *statistics)
{
    const Sizes &size = of.size;
    int64_t wide = round_up(size.e, LANES);
    for (int64_t r = 0; r < block.rows; r++) {
        int64_t place = (block.b * size.h + block.h) * size.n + block.first + r;
        float total = block.total[r], share = 1.0f / total;
        if (x.highest)
            x.highest[place] = block.highest[r], x.total[place] = total;
        if (statistics) {
            float entropy = total == 0.0f ? 0.0f : logf(total) - block.moment[r] / total;
            statistics->entropy[place] = entropy < 0.0f ? 0.0f : entropy;
            continue;
        }
        T *output = x.output.at(block.b, block.h, block.first + r);
        for (int64_t j = 0; j < size.e; j += LANES)
            store(output + j, total == 0.0f ? all(0.0f) : load(block.sums + r * wide + j) * share,
                  size.e - j);
    }
}

/* Runs task(index, thread) for every index below `tasks`, on up to `threads` threads. */
template <typename Task> void share_out(int64_t tasks, int64_t threads, const Task &task);

constexpr int64_t ALONE = 1 << 20; /* multiplications below which one thread is the fastest */

/* The number of threads to use: one where there is little to compute. */
static int64_t threads_for(const Problem &of, int64_t threads)
{
    const Sizes &size = of.size;
    double pairs = (double)size.b * size.h * size.n * size.m * (size.d + size.e);
    return pairs < ALONE ? 1 : threads;
}

/* Attention of all queries. Threads share the key heads or, where these are few, blocks of queries. */
template <typename T>
static void attend_all(
    const Problem &of, const Tensors<T> &x, int64_t threads, const Statistics *statistics)
{
    const Sizes &size = of.size;
    threads = threads_for(of, threads);
    int64_t units = size.b * size.groups, heads = size.h / size.groups;
    int64_t blocks = (size.n + QUERIES - 1) / QUERIES, room = Packed::room(size);
    bool apart = units < 4 * threads && threads > 1 && blocks * heads > 1;
    auto run = [&](int64_t unit, int64_t head, int64_t index, const Packed &packed, float *memory) {
        QueryBlock block(memory);
        block.b = unit / size.groups, block.h = unit % size.groups * heads + head;
        block.first = index * QUERIES, block.rows = std::min(QUERIES, size.n - block.first);
        start(of, x, block);
        attend_block(of, packed, block, statistics);
        finish(of, x, block, statistics);
    };
    Buffer work(threads * QueryBlock::room(size)), panels((apart ? units : threads) * room);
    auto own = [&](int64_t thread) { return work.start() + thread * QueryBlock::room(size); };
    if (apart) {
        std::unique_ptr<Packed[]> packed(new Packed[units]);
        share_out(units, threads, [&](int64_t unit, int64_t) {
            packed[unit] = pack_unit(of, x, unit, panels.start() + unit * room, !statistics);
        });
        share_out(units * heads * blocks, threads, [&](int64_t task, int64_t thread) {
            int64_t index = blocks - 1 - task % blocks, unit = task / blocks / heads;
            run(unit, task / blocks % heads, index, packed[unit], own(thread));
        });
        return;
    }
    share_out(units, threads, [&](int64_t unit, int64_t thread) {
        Packed packed = pack_unit(of, x, unit, panels.start() + thread * room, !statistics);
        for (int64_t head = 0; head < heads; head++)
            for (int64_t index = 0; index < blocks; index++)
                run(unit, head, index, packed, own(thread));
    });
}
