/* Attention of few queries, as in decoding: keys and values are read in place, once for each query,
 * and those that it does not see are not read at all.
 */
#pragma once

#include "attention.h"

constexpr int64_t FEW = 8, FEW_KEYS = 512; /* the most queries, and keys, for which this pays */

static inline bool is_few(const Problem &of)
{
    const Sizes &size = of.size;
    return size.n <= FEW && size.m <= FEW_KEYS && size.d % LANES == 0 && size.e % LANES == 0
        && !of.cap && !of.bias.start && !of.relative && !of.below;
}

/* The scaled products of one query with the keys that `seen` lists, -inf up to a whole vector. */
static inline __attribute__((always_inline)) void compare(
    const float *q, const float *keys, int64_t key_row, const int32_t *seen, int64_t count,
    int64_t d, float scale, float *scores)
{
    for (int64_t j = 0; j < count; j += LANES) {
        Vector parts[LANES];
        for (int64_t t = 0; t < LANES; t++) {
            const float *key = keys + seen[j + t] * key_row;
            parts[t] = load(q) * load(key);
            for (int64_t i = LANES; i < d; i += LANES)
                parts[t] += load(q + i) * load(key + i);
        }
        store(scores + j, scale * sums(parts));
    }
    for (int64_t j = count; j % LANES; j++)
        scores[j] = -INFINITY;
}

/* The average of the values by their scores; the largest score and the sum of exponentials. */
static inline __attribute__((always_inline)) void weigh(
    const float *values, int64_t value_row, const int32_t *seen, int64_t count, int64_t e,
    float *scores, float *output, float *highest, float *total)
{
    Vector most = all(-INFINITY), exps = all(0.0f);
    for (int64_t j = 0; j < count; j += LANES)
        most = larger(load(scores + j), most);
    *highest = largest(most);
    float shift = *highest == -INFINITY ? 0.0f : *highest;
    for (int64_t j = 0; j < count; j += LANES) {
        Vector one = exponential(load(scores + j) - shift);
        store(scores + j, one);
        exps += one;
    }
    *total = sum(exps);
    float share = *total == 0.0f ? 0.0f : 1.0f / *total;
    for (int64_t i = 0; i < e; i += 2 * LANES) {
        Vector one = all(0.0f), two = all(0.0f);
        int64_t next = i + LANES < e ? i + LANES : i;
        for (int64_t j = 0; j < count; j++) {
            const float *value = values + seen[j] * value_row;
            one += all(scores[j]) * load(value + i);
            two += all(scores[j]) * load(value + next);
        }
        store(output + i, one * share);
        store(output + next, (next == i ? one : two) * share);
    }
}

/* The keys that query i sees, then 0 up to a whole vector; how many they are. */
static inline int64_t list_keys(const Problem &of, int64_t b, int64_t h, int64_t i, int32_t *seen)
{
    Range range = of.visible(b, i);
    const uint8_t *mask = of.mask.start ? of.mask.at(b, h, i) : NULL;
    int64_t count = 0;
    for (int64_t j = range.begin; j < range.end; j++) {
        seen[count] = (int32_t)j;
        count += mask ? mask[j] != 0 : 1;
    }
    for (int64_t j = count; j % LANES; j++)
        seen[j] = 0; /* read, but not used */
    return count;
}

static void attend_few(const Problem &of, const Tensors<float> &x, int64_t threads)
{
    const Sizes &size = of.size;
    int64_t room = round_up(size.m, LANES) + LANES, heads = size.h / size.groups;
    threads = threads_for(of, threads);
    Buffer memory(threads * (size.n + 1) * room);
    share_out(size.b, threads, [&](int64_t b, int64_t thread) {
        float *scores = memory.start() + thread * (size.n + 1) * room;
        int32_t *lists = (int32_t *)(scores + room);
        int64_t counts[FEW];
        for (int64_t h = 0; h < size.h; h++) {
            const float *keys = x.k.at(b, h / heads, 0), *values = x.v.at(b, h / heads, 0);
            for (int64_t i = 0; i < size.n; i++) {
                int32_t *seen = lists + i * room;
                if (h == 0 || (of.mask.start && of.mask.head))
                    counts[i] = list_keys(of, b, h, i, seen);
                int64_t place = (b * size.h + h) * size.n + i, count = counts[i];
                float nowhere[2], *highest = x.highest ? x.highest + place : nowhere;
                float *total = x.total ? x.total + place : nowhere + 1;
                const float *query = x.q.at(b, h, i);
                float *output = x.output.at(b, h, i);
                if (size.d == 32 && size.e == 32) { /* known to the compiler, so unrolled */
                    compare(query, keys, x.k.row, seen, count, 32, of.scale, scores);
                    weigh(values, x.v.row, seen, count, 32, scores, output, highest, total);
                } else {
                    compare(query, keys, x.k.row, seen, count, size.d, of.scale, scores);
                    weigh(values, x.v.row, seen, count, size.e, scores, output, highest, total);
                }
            }
        }
    });
}

/* Attention by the one of the two methods that is meant for its sizes. */
template <typename T>
static void attend_any(const Problem &of, const Tensors<T> &x, int64_t threads)
{
    attend_all(of, x, threads, NULL);
}
template <> void attend_any<float>(const Problem &of, const Tensors<float> &x, int64_t threads)
{
    is_few(of) ? attend_few(of, x, threads) : attend_all(of, x, threads, NULL);
}
