/* The loops of which no fast form can be put together from PyTorch's operations.
 *
 * C for one thread, compiled for the machine it runs on (building.py), with the vectors that GCC
 * and Clang know: sixteen floats, which the compiler maps to whatever the machine has.
 */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LANES 16
typedef float Vector __attribute__((vector_size(LANES * 4)));
typedef float AnyVector __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t Integers __attribute__((vector_size(LANES * 4)));

static inline Vector load(const float *x) { return *(const AnyVector *)x; }
static inline void store(float *x, Vector y) { *(AnyVector *)x = y; }
static inline Vector all(float x) { return x - (Vector){0}; }

static inline Vector larger(Vector x, Vector y) { return x > y ? x : y; }

/* e to the power of x, for x <= 0, within 2 units in the last place; 0 below -87, NaN of NaN.
 * Cody & Waite, 1980: x = n ln 2 + r, and a polynomial for r (coefficients of Cephes' expf).
 */
static inline Vector exponential(Vector x)
{
    Vector near = x < -87.0f ? all(-87.0f) : x;
    Vector n = (near * 1.44269504f + 12582912.0f) - 12582912.0f; /* rounds to whole numbers */
    Vector r = (near - n * 0.693359375f) + n * 2.12194440e-4f;
    Vector p = 1.9875691500e-4f * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    Vector power = (Vector)((__builtin_convertvector(n, Integers) + 127) << 23);
    return x < -87.0f ? all(0.0f) : p * power;
}

/* Neighbours of x added, then those of y: half of the sums that are still to be made. */
static inline Vector halve(Vector x, Vector y)
{
    return __builtin_shufflevector(x, y, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30)
         + __builtin_shufflevector(x, y, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
}

static inline float sum(Vector x)
{
    x = halve(x, x), x = halve(x, x), x = halve(x, x), x = halve(x, x);
    return x[0];
}

static inline float largest(Vector x)
{
    x = larger(x, __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
    x = larger(x, __builtin_shufflevector(x, x, 4, 5, 6, 7, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3));
    x = larger(x, __builtin_shufflevector(x, x, 2, 3, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1));
    return x[0] > x[1] ? x[0] : x[1];
}

/* One query: factor * its products with the keys that `seen` lists, -inf up to a whole vector. */
static inline __attribute__((always_inline)) void compare(
    const float *q, const float *keys, int64_t key_row, const int32_t *seen, int64_t count,
    int64_t d, float factor, float *scores)
{
    for (int64_t j = 0; j < count; j += LANES) {
        Vector parts[LANES];
        for (int64_t t = 0; t < LANES; t++) {
            const float *key = keys + seen[j + t] * key_row;
            parts[t] = load(q) * load(key);
            for (int64_t i = LANES; i < d; i += LANES)
                parts[t] += load(q + i) * load(key + i);
        }
        for (int64_t left = LANES / 2; left; left /= 2)
            for (int64_t t = 0; t < left; t++)
                parts[t] = halve(parts[2 * t], parts[2 * t + 1]);
        store(scores + j, factor * parts[0]);
    }
    for (int64_t j = count; j % LANES; j++)
        scores[j] = -INFINITY;
}

/* Its weighted sum of the values, and the log-sum-exp of the scores if it is wanted. */
static inline __attribute__((always_inline)) float weigh(
    const float *values, int64_t value_row, const int32_t *seen, int64_t count, int64_t e,
    float *scores, float *output, bool wanted)
{
    Vector highest = all(-INFINITY), exps = all(0.0f);
    for (int64_t j = 0; j < count; j += LANES)
        highest = larger(load(scores + j), highest);
    float most = largest(highest);
    /* Nothing to see, or NaN, which is larger than nothing: then the exponentials are NaN too. */
    float least = most == -INFINITY ? 0.0f : most;
    for (int64_t j = 0; j < count; j += LANES) {
        Vector one = exponential(load(scores + j) - least);
        store(scores + j, one);
        exps += one;
    }
    float total = sum(exps), share = total == 0.0f ? 0.0f : 1.0f / total;
    for (int64_t i = 0; i < e; i += 2 * LANES) {
        Vector one = all(0.0f), two = all(0.0f);
        int64_t next = i + LANES < e ? i + LANES : i;
        for (int64_t j = 0; j < count; j++) {
            const float *value = values + seen[j] * value_row;
            one += scores[j] * load(value + i);
            two += scores[j] * load(value + next);
        }
        store(output + i, one * share);
        store(output + next, (next == i ? one : two) * share);
    }
    return !wanted ? 0.0f : total == 0.0f ? -INFINITY : most + logf(total);
}

/* Rows of numbers: where they begin, and how far apart batch entries, heads and rows are. The
 * numbers of a row lie side by side.
 */
template <typename Number> struct Rows {
    Number *start;
    int64_t batch, head, row;

    Number *at(int64_t b, int64_t h, int64_t i) const
    {
        return start + b * batch + h * head + i * row;
    }
};

struct Sizes {
    int64_t b, h, groups, n, m, d, e;
};

/* Attention of few queries; d and e are multiples of 16. The mask is a byte for each key, 0 or 1,
 * or NULL. sums, or NULL, become the log-sum-exp of the rows. false if there was no memory.
 */
static bool attend(
    const Sizes &size, float factor, Rows<const float> q, Rows<const float> k, Rows<const float> v,
    Rows<const uint8_t> mask, Rows<float> output, float *sums)
{
    int64_t n = size.n, room = (size.m + LANES) / LANES * LANES;
    int64_t *counts = (int64_t *)malloc(n * sizeof *counts + (n + 1) * room * 4);
    if (!counts)
        return false;
    float *scores = (float *)(counts + n);
    int32_t *lists = (int32_t *)(scores + room);
    for (int64_t b = 0; b < size.b; b++)
        for (int64_t h = 0; h < size.h; h++) {
            int64_t group = h / (size.h / size.groups);
            const float *keys = k.at(b, group, 0), *values = v.at(b, group, 0);
            for (int64_t i = 0; i < n; i++) {
                int32_t *seen = lists + i * room;
                if (mask.start ? h == 0 || mask.head : b == 0 && h == 0) {
                    const uint8_t *may = mask.at(b, h, i);
                    int64_t count = 0;
                    for (int64_t j = 0; j < size.m; j++) {
                        seen[count] = (int32_t)j;
                        count += mask.start ? may[j] : 1;
                    }
                    counts[i] = count;
                    for (; count % LANES; count++)
                        seen[count] = 0; /* read, and then forgotten */
                }
                const float *query = q.at(b, h, i);
                float *out = output.at(b, h, i), total;
                if (size.d == 32 && size.e == 32) { /* what the compiler knows, it can unroll */
                    compare(query, keys, k.row, seen, counts[i], 32, factor, scores);
                    total = weigh(values, v.row, seen, counts[i], 32, scores, out, sums);
                } else {
                    compare(query, keys, k.row, seen, counts[i], size.d, factor, scores);
                    total = weigh(values, v.row, seen, counts[i], size.e, scores, out, sums);
                }
                if (sums)
                    sums[(b * size.h + h) * n + i] = total;
            }
        }
    free(counts);
    return true;
}

extern "C" int attend_few(
    const Sizes *size, float factor, const Rows<const float> *q, const Rows<const float> *k,
    const Rows<const float> *v, const Rows<const uint8_t> *mask, const Rows<float> *output,
    float *sums)
{
    return attend(*size, factor, *q, *k, *v, *mask, *output, sums) ? 0 : 1;
}

#define BLOCK (4 * LANES)

/* The `count` likeliest words after k beginnings of each of s sentences, in falling order: their
 * log-probability together with the beginning's, which beginning, and which word. Where fewer have
 * a probability, it is -inf for the rest. 0; 1 if there was no memory, 2 if a number is NaN.
 */
extern "C" int best_words(
    int64_t s, int64_t k, int64_t vocabulary, int64_t count, const float *logits,
    const float *log_p, float *found, int64_t *beginnings, int64_t *words)
{
    int64_t blocks = vocabulary / BLOCK;
    float *maxima = (float *)malloc((blocks + 1) * sizeof *maxima);
    if (!maxima)
        return 1;
    for (int64_t si = 0; si < s; si++, found += count, beginnings += count, words += count) {
        for (int64_t c = 0; c < count; c++) {
            found[c] = -INFINITY;
            beginnings[c] = c / vocabulary;
            words[c] = c % vocabulary;
        }
        for (int64_t ki = 0; ki < k; ki++, logits += vocabulary) {
            float most = -INFINITY;
            maxima[blocks] = -INFINITY;
            for (int64_t block = 0; block < blocks; block++) {
                const float *x = logits + block * BLOCK;
                maxima[block] = largest(larger(larger(load(x), load(x + LANES)),
                                               larger(load(x + 2 * LANES), load(x + 3 * LANES))));
            }
            for (int64_t i = blocks * BLOCK; i < vocabulary; i++)
                maxima[blocks] = logits[i] > maxima[blocks] ? logits[i] : maxima[blocks];
            for (int64_t block = 0; block <= blocks; block++)
                most = maxima[block] > most ? maxima[block] : most;
            Vector exps = all(0.0f);
            int64_t i = 0;
            for (; i + LANES <= vocabulary; i += LANES)
                exps += exponential(load(logits + i) - most);
            float last[LANES];
            for (int64_t j = 0; j < LANES; j++)
                last[j] = i + j < vocabulary ? logits[i + j] : -INFINITY;
            exps += exponential(load(last) - most);
            float before = log_p[si * k + ki] - logf(sum(exps));
            if (before != before) {
                free(maxima);
                return 2;
            }
            for (int64_t block = 0; block <= blocks; block++) {
                if (!(maxima[block] - most + before > found[count - 1]))
                    continue;
                int64_t end = block < blocks ? (block + 1) * BLOCK : vocabulary;
                for (i = block * BLOCK; i < end; i++) {
                    float score = logits[i] - most + before;
                    if (!(score > found[count - 1]))
                        continue;
                    int64_t c = count - 1;
                    for (; c > 0 && score > found[c - 1]; c--) {
                        found[c] = found[c - 1];
                        beginnings[c] = beginnings[c - 1];
                        words[c] = words[c - 1];
                    }
                    found[c] = score;
                    beginnings[c] = ki;
                    words[c] = i;
                }
            }
        }
    }
    free(maxima);
    return 0;
}

/* What follows on a product: a bias, rectification, and all of it added to something, if given. */
struct Then {
    const float *bias;
    bool relu;
    const float *onto;
};

/* ROWS rows of x times WIDE vectors of columns of w, whose rows are `apart`. */
template <int ROWS, int WIDE>
static inline __attribute__((always_inline)) void tile(
    const float *x, int64_t d, const float *w, int64_t apart, const Then &then, float *y, int64_t n)
{
    Vector sums[ROWS][WIDE];
#pragma GCC unroll 12
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 2
        for (int c = 0; c < WIDE; c++)
            sums[r][c] = all(0.0f);
    for (int64_t k = 0; k < d; k++) {
        Vector columns[WIDE];
#pragma GCC unroll 2
        for (int c = 0; c < WIDE; c++)
            columns[c] = load(w + k * apart + c * LANES);
#pragma GCC unroll 12
        for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 2
            for (int c = 0; c < WIDE; c++)
                sums[r][c] += x[r * d + k] * columns[c];
    }
#pragma GCC unroll 12
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 2
        for (int c = 0; c < WIDE; c++) {
            Vector z = sums[r][c];
            if (then.bias)
                z += load(then.bias + c * LANES);
            if (then.relu)
                z = larger(z, all(0.0f));
            if (then.onto)
                z += load(then.onto + r * n + c * LANES);
            store(y + r * n + c * LANES, z);
        }
}

/* All rows of x times WIDE vectors of columns of w (d, n). */
template <int WIDE>
static void multiply_by_columns(
    const float *x, int64_t rows, int64_t d, const float *w, int64_t n, Then then, float *y,
    float *panel)
{
    int64_t apart = n;
    if (rows > 24) { /* read often enough to be put side by side first */
        for (int64_t k = 0; k < d; k++)
            for (int c = 0; c < WIDE; c++)
                store(panel + (k * WIDE + c) * LANES, load(w + k * n + c * LANES));
        w = panel, apart = LANES * WIDE;
    }
#define TILES(ROWS)                                                   \
    for (; rows >= ROWS; rows -= ROWS, x += ROWS * d, y += ROWS * n) { \
        tile<ROWS, WIDE>(x, d, w, apart, then, y, n);                 \
        then.onto = then.onto ? then.onto + ROWS * n : then.onto;     \
    }
    TILES(12)
    TILES(4)
    TILES(1)
}

/* x (rows, d) times w (d, n), and what follows on it, into y (rows, n); n is a multiple of 16. Each
 * number is the sum in the order of d, whatever the other rows. false if there was no memory.
 */
static bool multiply(
    const float *x, int64_t rows, int64_t d, const float *w, int64_t n, const Then &then, float *y)
{
    float *panel = (float *)malloc(d * 2 * LANES * sizeof *panel);
    if (!panel)
        return false;
    for (int64_t j = 0; j < n; j += 2 * LANES) {
        Then here = {then.bias ? then.bias + j : NULL, then.relu, then.onto ? then.onto + j : NULL};
        if (j + LANES < n)
            multiply_by_columns<2>(x, rows, d, w + j, n, here, y + j, panel);
        else
            multiply_by_columns<1>(x, rows, d, w + j, n, here, y + j, panel);
    }
    free(panel);
    return true;
}

extern "C" int affine(
    int64_t rows, int64_t d, int64_t n, const float *x, const float *w, const float *bias, float *y)
{
    return multiply(x, rows, d, w, n, {bias, false, NULL}, y) ? 0 : 1;
}

/* Layer norm of rows of a width that is a multiple of 16; Ba et al., 2016. */
extern "C" void normalize(
    int64_t rows, int64_t width, float eps, const float *x, const float *weight,
    const float *bias, float *y)
{
    for (int64_t r = 0; r < rows; r++, x += width, y += width) {
        Vector total = all(0.0f), squares = all(0.0f);
        for (int64_t i = 0; i < width; i += LANES)
            total += load(x + i);
        float mean = sum(total) / width;
        for (int64_t i = 0; i < width; i += LANES) {
            Vector off = load(x + i) - mean;
            squares += off * off;
        }
        float scale = 1.0f / sqrtf(sum(squares) / width + eps);
        for (int64_t i = 0; i < width; i += LANES)
            store(y + i, (load(x + i) - mean) * scale * load(weight + i) + load(bias + i));
    }
}

struct Affine {
    const float *weight, *bias;
};

/* A block of a decoder, and what it has read. */
struct Block {
    Affine attention_norm, projections, combination;
    Affine cross_norm, queries, cross_combination;
    Affine feed_forward_norm, in, out;
    Rows<float> k, v;                    /* of the words so far, with room for those of this step */
    Rows<const float> memory_k, memory_v;
};

struct Decoder {
    int64_t depth, width, heads, groups, head_width, inner;
    int64_t norm_first;
    float eps, factor;
    const Block *blocks;
};

/* One step of a decoder: x (b, n, width) becomes what its blocks make of it, beside `length` words
 * that they have read and a memory of m sentences of s words. The keys and values of x are written
 * behind those words. scratch holds rows * (2 * width + the wider of projections and inner).
 */
extern "C" int decode(
    const Decoder *of, int64_t b, int64_t n, int64_t length, int64_t m, int64_t s,
    const Rows<const uint8_t> *mask, const Rows<const uint8_t> *memory_mask, float *x,
    float *scratch)
{
    int64_t rows = b * n, width = of->width, d = of->head_width, narrow = of->groups * d;
    int64_t packed = width + 2 * narrow, each = rows / m;
    float *normed = scratch, *joined = normed + rows * width, *wide = joined + rows * width;
    Rows<float> own_out = {joined, n * width, d, width}, cross_out = {joined, each * width, d, width};
    Sizes own = {b, of->heads, of->groups, n, length + n, d, d};
    Sizes cross = {m, of->heads, of->groups, each, s, d, d};
    bool before = of->norm_first;

    for (int64_t i = 0; i < of->depth; i++) {
        const Block &block = of->blocks[i];
        auto norm = [&](Affine by, float *to) {
            normalize(rows, width, of->eps, x, by.weight, by.bias, to);
            return to;
        };
        auto product = [&](const float *y, int64_t from, Affine by, int64_t to, bool relu,
                           const float *onto, float *into) {
            return multiply(y, rows, from, by.weight, to, {by.bias, relu, onto}, into);
        };
        const float *y = before ? norm(block.attention_norm, normed) : x;
        if (!product(y, width, block.projections, packed, false, NULL, wide))
            return 1;
        for (int64_t r = 0; r < rows; r++)
            for (int64_t g = 0; g < of->groups; g++) {
                const float *made = wide + r * packed + width + g * d;
                memcpy(block.k.at(r / n, g, length + r % n), made, d * sizeof *made);
                memcpy(block.v.at(r / n, g, length + r % n), made + narrow, d * sizeof *made);
            }
        Rows<const float> q = {wide, n * packed, d, packed};
        Rows<const float> k = {block.k.start, block.k.batch, block.k.head, block.k.row};
        Rows<const float> v = {block.v.start, block.v.batch, block.v.head, block.v.row};
        if (!attend(own, of->factor, q, k, v, *mask, own_out, NULL) ||
            !product(joined, width, block.combination, width, false, x, x))
            return 1;
        if (!before)
            norm(block.attention_norm, x);

        y = before ? norm(block.cross_norm, normed) : x;
        if (!product(y, width, block.queries, width, false, NULL, wide))
            return 1;
        q = {wide, each * width, d, width};
        if (!attend(cross, of->factor, q, block.memory_k, block.memory_v, *memory_mask, cross_out,
                    NULL) ||
            !product(joined, width, block.cross_combination, width, false, x, x))
            return 1;
        if (!before)
            norm(block.cross_norm, x);

        y = before ? norm(block.feed_forward_norm, normed) : x;
        if (!product(y, width, block.in, of->inner, true, NULL, wide) ||
            !product(wide, of->inner, block.out, width, false, x, x))
            return 1;
        if (!before)
            norm(block.feed_forward_norm, x);
    }
    return 0;
}
