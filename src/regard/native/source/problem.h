/* One call of attention: its sizes, which keys a query sees, and how scores are made of products. */
#pragma once

#include <algorithm>

#include "rows.h"
#include "tiles.h"

constexpr int64_t KEYS = 256;          /* keys of a block; its scores stay in the nearest cache */
constexpr int64_t STRIDE = KEYS + LANES; /* floats from row to row of a tile; also the widest head */
constexpr int64_t QUERIES = 8 * ROWS;  /* queries of a block, which pass over the keys together */

struct Range {
    int64_t begin, end;

    Range with(Range other) const { return {std::min(begin, other.begin), std::max(end, other.end)}; }
};

/* The key j is visible to the query i if low <= j - i <= high, first[i] <= j < last[i] and mask[i, j].
 * score = cap tanh(scale q.k / cap) + bias[i, j] + relative[j - i + n - 1]; no cap if that is 0.
 */
struct Problem {
    Sizes size;
    float scale, cap;
    int64_t low, high;
    Rows<const int64_t> first, last;
    Rows<const uint8_t> mask;
    Rows<const float> bias;
    const float *relative; /* (h, n + m - 1) */
    uint64_t seed;
    uint32_t below; /* weights whose random bits are below this are dropped, ... */
    float raise;    /* ... the others multiplied by this */

    bool plain() const { return !cap && !mask.start && !bias.start && !relative; }

    Range visible(int64_t b, int64_t i) const
    {
        int64_t begin = std::max<int64_t>(0, i + low), end = std::min(size.m, i + high + 1);
        if (first.start)
            begin = std::max(begin, *first.at(b, 0, i));
        if (last.start)
            end = std::min(end, *last.at(b, 0, i));
        return begin < end ? Range{begin, end} : Range{size.m, 0};
    }

    /* The keys that any of these queries sees; {m, 0} if none does. */
    Range visible(int64_t b, int64_t i, int64_t rows) const
    {
        Range all = {size.m, 0};
        if (!first.start && !last.start) { /* a band, both of whose edges rise */
            Range band = {std::max<int64_t>(0, i + low), std::min(size.m, i + rows + high)};
            return band.begin < band.end ? band : all;
        }
        for (int64_t r = 0; r < rows; r++)
            all = all.with(visible(b, i + r));
        return all;
    }

    uint64_t row_seed(int64_t b, int64_t h, int64_t i) const
    {
        return seed + 0x9E3779B97F4A7C15u * (uint64_t)(((b * size.h + h) * size.n + i) + 1);
    }
};

static inline Vector where_seen(const uint8_t *mask, int64_t count, Vector x)
{
    Bytes bytes = {};
    memcpy(&bytes, mask, std::min<int64_t>(count, LANES));
    return __builtin_convertvector(bytes, Integers) != 0 ? x : all(-INFINITY);
}

/* Makes scores of the scaled products of query i with the keys [from, to), which lie at x[j - base],
 * -inf where it does not see the key, and returns the largest of each lane. slope, if given, becomes
 * the derivative of the score by the scaled product.
 */
template <bool plain>
static inline __attribute__((always_inline)) Vector make_scores(
    const Problem &of, int64_t b, int64_t h, int64_t i, Range seen, float *x, int64_t from,
    int64_t to, float *slope)
{
    const uint8_t *mask = of.mask.start ? of.mask.at(b, h, i) : NULL;
    const float *bias = of.bias.start ? of.bias.at(b, h, i) : NULL, *relative = NULL;
    if (of.relative)
        relative = of.relative + h * (of.size.n + of.size.m - 1) + of.size.n - 1 - i;
    Vector highest = all(-INFINITY);
    for (int64_t j = from; j < to; j += LANES, x += LANES) {
        Vector s = load(x);
        if (!plain) {
            int64_t left = of.size.m - j;
            if (of.cap) {
                Vector bent = hyperbolic_tangent(s / of.cap);
                s = of.cap * bent;
                if (slope)
                    store(slope, 1.0f - bent * bent), slope += LANES;
            }
            s = bias ? s + load(bias + j, left) : s;
            s = relative ? s + load(relative + j, left) : s;
            s = mask ? where_seen(mask + j, left, s) : s;
        }
        if (j < seen.begin || j + LANES > seen.end) {
            Integers key = indices() + (int32_t)(j - from);
            int32_t begin = (int32_t)(std::max(seen.begin, from) - from);
            int32_t end = (int32_t)(std::min(seen.end, to) - from);
            s = ((key >= begin) & (key < end)) != 0 ? s : all(-INFINITY);
        }
        store(x, s);
        highest = larger(s, highest);
    }
    return highest;
}

/* Sets dropped weights to 0 and raises the others. */
static inline Vector drop(const Problem &of, uint64_t row_seed, int64_t j, Vector x)
{
    return random_bits((uint32_t)j, row_seed) < of.below ? all(0.0f) : x * of.raise;
}
