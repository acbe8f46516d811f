/* Dropout whose random numbers need not be kept: they follow from a seed and the place. */

typedef uint32_t Naturals __attribute__((vector_size(LANES * 4)));

/* Thirty-two bits for each of sixteen places: the mixing of MurmurHash3 (Appleby), with half of the
 * seed at its start and half in its middle.
 */
static inline Naturals random_bits(uint32_t place, uint64_t seed)
{
    Naturals x = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    x = (x + place) * 0x9E3779B9u + (uint32_t)seed;
    x ^= x >> 16;
    x *= 0x85EBCA6Bu;
    x ^= (x >> 13) ^ (uint32_t)(seed >> 32);
    x *= 0xC2B2AE35u;
    return x ^ x >> 16;
}

/* y = x times factor, or 0 where the bits are below a number; added to `onto`, if that is given. */
extern "C" void drop(
    int threads, int64_t count, uint64_t seed, uint32_t below, float factor, const float *x,
    const float *onto, float *y)
{
    int64_t whole = count / LANES * LANES;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < whole; i += LANES) {
        Vector kept = random_bits((uint32_t)i, seed) < below ? all(0.0f) : load(x + i) * factor;
        store(y + i, onto ? load(onto + i) + kept : kept);
    }
    Naturals last = random_bits((uint32_t)whole, seed);
    for (int64_t i = whole; i < count; i++) {
        float kept = last[i - whole] < below ? 0.0f : x[i] * factor;
        y[i] = onto ? onto[i] + kept : kept;
    }
}
