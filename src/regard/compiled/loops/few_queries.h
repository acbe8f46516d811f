/* Attention of few queries, as when a text is written word by word. */

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
    return !wanted ? 0.0f : log_sum(most, total);
}


/* Attention of few queries; d and e are multiples of 16. The mask is a byte for each key, 0 for
 * hidden, or NULL. sums, or NULL, become the log-sum-exp of the rows. false if there was no memory.
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
                        count += mask.start ? may[j] != 0 : 1;
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
