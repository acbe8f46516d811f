/* The gradients of attention, with the weights computed again: from each row's maximum and sum, or, where
 * its keys are all in one block, from its scores, so that they sum to 1 as exactly as possible.
 *
 *     weights = exp(scores - highest) / total      towards = grad v'
 *     slopes = weights * (towards - level)         level = weights . towards - grad_total * total
 *     dq = scale slopes k      dk = scale slopes' q      dv = weights' grad
 *
 * where ' transposes, and weights . towards is grad . output. Weights and slopes are held for one block
 * of queries and one block of keys at a time.
 */
#pragma once

#include "attention.h"

constexpr int64_t HELD = 4 * ROWS; /* queries of which weights and slopes are held together */

template <typename T> struct Gradients {
    Rows<const T> grad, output;
    const float *grad_total; /* (b, h, n), or NULL */
    Rows<T> q, k, v;
    Rows<float> bias;     /* (b, h, n, m), if wanted */
    float *relative;      /* (chunks, b, h, n + m - 1), if wanted */
};

/* Keys and values of a batch entry and key head, in panels, and the sums of their gradients. */
struct Unit {
    int64_t b, group;
    float *keys, *keys_transposed, *values_transposed, *sums_k, *sums_v;

    static int64_t room(const Sizes &size)
    {
        int64_t m = round_up(size.m, PANEL) + ROWS, d = round_up(size.d, LANES);
        return m * (3 * d + 2 * round_up(size.e, LANES));
    }
    Unit(const Sizes &size, float *memory)
    {
        int64_t m = round_up(size.m, PANEL) + ROWS, d = round_up(size.d, LANES);
        keys = memory, keys_transposed = keys + m * d;
        values_transposed = keys_transposed + m * d, sums_k = values_transposed + m * round_up(size.e, LANES);
        sums_v = sums_k + m * d;
    }
};

/* A block of queries, and the gradient of its output. */
struct GradientBlock {
    int64_t h, first, rows;
    float *queries, *grads;             /* (HELD, STRIDE); the queries are scaled */
    float *packed_queries, *packed_grads; /* the same in panels of columns */
    float *weights, *slopes, *bends;    /* (HELD, STRIDE), and (ROWS, STRIDE) */
    float *sums_q;                      /* (HELD, round_up(d, LANES)) */
    float highest[HELD], share[HELD], level[HELD], less[HELD];

    static int64_t room(const Sizes &size)
    {
        return (4 * HELD + ROWS) * STRIDE
             + HELD * (2 * round_up(size.d, LANES) + round_up(size.e, LANES));
    }
    GradientBlock(const Sizes &size, float *memory)
    {
        queries = memory, grads = queries + HELD * STRIDE, weights = grads + HELD * STRIDE;
        slopes = weights + HELD * STRIDE, bends = slopes + HELD * STRIDE;
        packed_queries = bends + ROWS * STRIDE;
        packed_grads = packed_queries + HELD * round_up(size.d, LANES);
        sums_q = packed_grads + HELD * round_up(size.e, LANES);
    }
};

template <typename T>
static void start(
    const Problem &of, const Tensors<T> &x, const Gradients<T> &y, int64_t b, GradientBlock &block)
{
    const Sizes &size = of.size;
    int64_t whole = round_up(block.rows, ROWS), place = (b * size.h + block.h) * size.n + block.first;
    for (int64_t r = 0; r < whole; r++) {
        bool there = r < block.rows;
        int64_t i = block.first + r;
        for (int64_t j = 0; j < size.d; j += LANES)
            store(block.queries + r * STRIDE + j,
                  there ? load(x.q.at(b, block.h, i) + j, size.d - j) * of.scale : all(0.0f));
        Vector level = all(0.0f);
        for (int64_t j = 0; j < size.e; j += LANES) {
            Vector grad = there ? load(y.grad.at(b, block.h, i) + j, size.e - j) : all(0.0f);
            store(block.grads + r * STRIDE + j, grad);
            if (there)
                level += grad * load(y.output.at(b, block.h, i) + j, size.e - j);
        }
        float total = there ? x.total[place + r] : 0.0f, highest = there ? x.highest[place + r] : 0.0f;
        block.highest[r] = highest == -INFINITY ? 0.0f : highest;
        block.share[r] = total == 0.0f ? 0.0f : 1.0f / total;
        block.level[r] = sum(level);
        block.less[r] = y.grad_total && there ? y.grad_total[place + r] * total : 0.0f;
    }
    pack(x.q.at(b, block.h, block.first), x.q.row, block.rows, size.d, block.packed_queries);
    pack(y.grad.at(b, block.h, block.first), y.grad.row, block.rows, size.e, block.packed_grads);
    memset(block.sums_q, 0, whole * round_up(size.d, LANES) * sizeof(float));
}

/* Weights and slopes of a tile of queries with the keys [from, to), from products with keys and values.
 * The slopes are those of scale q.k, so of the product before softcap and bias.
 */
template <typename T>
static void make_slopes(
    const Problem &of, const Gradients<T> &y, int64_t b, GradientBlock &block, int64_t t, int64_t from,
    int64_t to, int64_t base, float *relative)
{
    int64_t rows = std::min<int64_t>(ROWS, block.rows - t), m = of.size.m;
    for (int64_t r = t; r < t + rows; r++) {
        int64_t i = block.first + r;
        float *weight = block.weights + r * STRIDE + from - base;
        float *slope = block.slopes + r * STRIDE + from - base, *bend = block.bends;
        Range seen = of.visible(b, i);
        Vector lanes = of.plain()
            ? make_scores<true>(of, b, block.h, i, seen, weight, from, to, NULL)
            : make_scores<false>(of, b, block.h, i, seen, weight, from, to, bend);
        bool alone = seen.begin >= base && seen.end <= base + KEYS; /* all of the row is here */
        float highest = alone ? largest(lanes) : block.highest[r];
        highest = highest == -INFINITY ? 0.0f : highest;
        uint64_t seed = of.below ? of.row_seed(b, block.h, i) : 0;
        float *into = y.bias.start ? y.bias.at(b, block.h, i) : NULL;
        float *along = relative ? relative + of.size.n - 1 - i : NULL;
        Vector exps = all(0.0f), mean = all(0.0f);
        for (int64_t j = from; j < to; j += LANES) {
            Vector e = exponential(load(weight + j - from) - highest), towards = load(slope + j - from);
            towards = of.below ? drop(of, seed, j, towards) : towards;
            exps += e, mean += e == 0.0f ? e : e * towards;
            store(weight + j - from, e), store(slope + j - from, towards);
        }
        float total = alone ? sum(exps) : 0.0f;
        float share = !alone ? block.share[r] : total == 0.0f ? 0.0f : 1.0f / total;
        float level = (alone ? sum(mean) * share : block.level[r]) - block.less[r];
        for (int64_t j = from; j < to; j += LANES, weight += LANES, slope += LANES, bend += LANES) {
            Vector w = load(weight) * share, towards = load(slope);
            store(weight, of.below ? drop(of, seed, j, w) : w);
            Vector s = w == 0.0f ? all(0.0f) : w * (towards - level);
            if (into)
                store(into + j, s, m - j);
            if (along)
                store(along + j, load(along + j, m - j) + s, m - j);
            store(slope, of.cap ? s * load(bend) : s);
        }
    }
}

/* Adds a' b, over `depth` rows of a, to the rows of y: the keys [from, end) at a[j - base]. */
static inline void add_transposed(
    const float *a, const float *packed, int64_t packed_rows, int64_t skip, int64_t depth, int64_t from,
    int64_t end, int64_t width, float *y)
{
    static const Vector ones = all(1.0f);
    for (int64_t j = from; j < end; j += ROWS)
        for (int64_t c = 0; c < width; c += PANEL) {
            int wide = panel_width(c, width);
            multiply_panel<1, STRIDE>(
                std::min<int64_t>(ROWS, end - j), wide, a + j - from,
                packed + c * packed_rows + skip * wide * LANES, depth, (const float *)&ones,
                y + j * width + c, width);
        }
}

/* Sets weights and slopes of a tile to 0 at the keys of `part` outside [seen.begin, seen.end). */
static inline void clear(
    float *weights, float *slopes, int64_t rows, Range part, Range seen, int64_t base)
{
    int64_t end = round_up(part.end, LANES);
    for (int64_t r = 0; r < rows; r++)
        for (float *x : {weights + r * STRIDE - base, slopes + r * STRIDE - base}) {
            memset(x + part.begin, 0, (seen.begin - part.begin) * sizeof *x);
            memset(x + seen.end, 0, std::max<int64_t>(0, end - seen.end) * sizeof *x);
        }
}

/* Adds the contribution of a block of queries to its gradients and those of the keys and values it sees. */
template <typename T>
static void backward_block(
    const Problem &of, const Gradients<T> &y, const Unit &unit, GradientBlock &block, float *relative)
{
    const Sizes &size = of.size;
    int64_t d = round_up(size.d, LANES), e = round_up(size.e, LANES), b = unit.b;
    int64_t columns = round_up(size.m, LANES);
    static const Vector ones = all(1.0f);
    Range all_rows = of.visible(b, block.first, block.rows);
    for (int64_t base = all_rows.begin / KEYS * KEYS; base < all_rows.end; base += KEYS) {
        Range part = {std::max(base, all_rows.begin / LANES * LANES), std::min(base + KEYS, all_rows.end)};
        int64_t first_row = block.rows, last_row = 0;
        for (int64_t t = 0; t < block.rows; t += ROWS) {
            int64_t rows = std::min<int64_t>(ROWS, block.rows - t);
            Range seen = of.visible(b, block.first + t, rows);
            int64_t from = std::max(base, seen.begin / LANES * LANES);
            int64_t end = std::min(base + KEYS, seen.end), to = round_up(end, LANES);
            float *weights = block.weights + t * STRIDE, *slopes = block.slopes + t * STRIDE;
            if (from >= end) {
                clear(weights, slopes, rows, part, {part.begin, part.begin}, base);
                continue;
            }
            first_row = std::min(first_row, t), last_row = t + rows;
            for (int64_t j = from / PANEL * PANEL; j < end; j += PANEL) {
                int wide = panel_width(j, columns);
                multiply_panel<STRIDE, 1>(rows, wide, block.queries + t * STRIDE,
                                          unit.keys_transposed + j * size.d, size.d, NULL,
                                          weights + j - base, STRIDE);
                multiply_panel<STRIDE, 1>(rows, wide, block.grads + t * STRIDE,
                                          unit.values_transposed + j * size.e, size.e, NULL,
                                          slopes + j - base, STRIDE);
            }
            make_slopes(of, y, b, block, t, from, to, base, relative);
            clear(weights, slopes, rows, part, {from, to}, base);
            for (int64_t c = 0; c < d; c += PANEL) {
                int wide = panel_width(c, d);
                multiply_panel<STRIDE, 1>(rows, wide, slopes + from - base,
                                          unit.keys + c * size.m + from * wide * LANES, end - from,
                                          (const float *)&ones, block.sums_q + t * d + c, d);
            }
        }
        if (first_row >= last_row)
            continue;
        int64_t depth = last_row - first_row, place = first_row * STRIDE + part.begin - base;
        add_transposed(block.slopes + place, block.packed_queries, block.rows, first_row, depth,
                       part.begin, part.end, d, unit.sums_k);
        add_transposed(block.weights + place, block.packed_grads, block.rows, first_row, depth,
                       part.begin, part.end, e, unit.sums_v);
    }
}

template <typename T>
static void write(const float *sums, int64_t wide, int64_t rows, int64_t width, float scale, T *y, int64_t row)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < width; j += LANES)
            store(y + i * row + j, load(sums + i * wide + j) * scale, width - j);
}

/* All gradients. Threads share the key heads; where these are fewer than threads, each is cut into chunks of
 * queries, whose sums for keys and values are then added up in order.
 */
template <typename T>
static void backward_all(
    const Problem &of, const Tensors<T> &x, const Gradients<T> &y, int64_t threads, int64_t chunks)
{
    const Sizes &size = of.size;
    threads = threads_for(of, threads);
    int64_t units = size.b * size.groups, heads = size.h / size.groups;
    int64_t blocks = (size.n + HELD - 1) / HELD, room = Unit::room(size);
    int64_t m = round_up(size.m, PANEL) + ROWS, d = round_up(size.d, LANES), e = round_up(size.e, LANES);
    Buffer work(threads * GradientBlock::room(size)), panels((chunks > 1 ? units * chunks : threads) * room);
    auto finish = [&](const Unit &unit) {
        write(unit.sums_k, d, size.m, size.d, of.scale, y.k.at(unit.b, unit.group, 0), y.k.row);
        write(unit.sums_v, e, size.m, size.e, 1.0f, y.v.at(unit.b, unit.group, 0), y.v.row);
    };
    share_out(units * chunks, threads, [&](int64_t task, int64_t thread) {
        int64_t index = task / chunks, chunk = task % chunks;
        Unit unit(size, panels.start() + (chunks > 1 ? task : thread) * room);
        unit.b = index / size.groups, unit.group = index % size.groups;
        const T *k = x.k.at(unit.b, unit.group, 0), *v = x.v.at(unit.b, unit.group, 0);
        pack(k, x.k.row, size.m, size.d, unit.keys);
        pack_transposed(k, x.k.row, size.m, size.d, unit.keys_transposed);
        pack_transposed(v, x.v.row, size.m, size.e, unit.values_transposed);
        memset(unit.sums_k, 0, m * (d + e) * sizeof(float));
        GradientBlock block(size, work.start() + thread * GradientBlock::room(size));
        for (int64_t turn = chunk; turn < heads * blocks; turn += chunks) {
            block.h = unit.group * heads + turn / blocks, block.first = turn % blocks * HELD;
            block.rows = std::min(HELD, size.n - block.first);
            start(of, x, y, unit.b, block);
            int64_t place = (chunk * size.b + unit.b) * size.h + block.h;
            backward_block(of, y, unit, block,
                           y.relative ? y.relative + place * (size.n + size.m - 1) : NULL);
            write(block.sums_q, d, block.rows, size.d, of.scale, y.q.at(unit.b, block.h, block.first),
                  y.q.row);
        }
        if (chunks == 1)
            finish(unit);
    });
    for (int64_t index = 0; chunks > 1 && index < units; index++) {
        Unit unit(size, panels.start() + index * chunks * room);
        unit.b = index / size.groups, unit.group = index % size.groups;
        for (int64_t chunk = 1; chunk < chunks; chunk++) {
            const float *other = unit.sums_k + chunk * room;
            for (int64_t j = 0; j < m * (d + e); j++)
                unit.sums_k[j] += other[j];
        }
        finish(unit);
    }
}
