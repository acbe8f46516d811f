/* Dropout that keeps no random numbers: they follow from a seed and the place. */
#pragma once

#include "attention.h"

/* y = x times factor, or 0 where the bits are below a number; added to `onto`, if that is given. */
static void drop(
    int64_t threads, int64_t count, uint64_t seed, uint32_t below, float factor, const float *x,
    const float *onto, float *y)
{
    constexpr int64_t PART = 1 << 14;
    share_out((count + PART - 1) / PART, count < 4 * PART ? 1 : threads, [&](int64_t part, int64_t) {
        for (int64_t i = part * PART; i < std::min(count, (part + 1) * PART); i += LANES) {
            int64_t left = count - i;
            Vector kept = random_bits((uint32_t)i, seed) < below ? all(0.0f) : load(x + i, left) * factor;
            store(y + i, onto ? load(onto + i, left) + kept : kept, left);
        }
    });
}
