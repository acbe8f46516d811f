/* The last part of a step of beam search. */
#pragma once

#include <algorithm>
#include <memory>

#include "vectors.h"

#define BLOCK (4 * LANES)

/* The `count` likeliest words after k beginnings of each of s sentences, in falling order: their
 * log-probability together with the beginning's, which beginning, and which word. Where fewer have
 * a probability, it is -inf for the rest; NaN for all of a sentence if one of its logits is NaN.
 */
static void best_words(
    int64_t s, int64_t k, int64_t vocabulary, int64_t count, const float *logits,
    const float *log_p, float *found, int64_t *beginnings, int64_t *words)
{
    int64_t blocks = vocabulary / BLOCK;
    std::unique_ptr<float[]> maxima(new float[blocks + 1]);
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
                std::fill(found, found + count, NAN);
                logits += (k - ki) * vocabulary;
                break;
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
}
