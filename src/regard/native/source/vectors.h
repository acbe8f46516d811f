/* Vectors in GCC's and Clang's portable notation, of as many floats as a register holds, and the
 * element-wise functions that the kernels need. Of wider ones GCC makes element by element code.
 */
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>
#ifdef __AVX2__
#include <immintrin.h>
#endif

#ifdef __AVX512F__
constexpr int LANES = 16;
#define EACH 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
#define EVEN 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define ODD 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
#define LOWER 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define UPPER 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#else
constexpr int LANES = 8;
#define EACH 0, 1, 2, 3, 4, 5, 6, 7
#define EVEN 0, 2, 4, 6, 8, 10, 12, 14
#define ODD 1, 3, 5, 7, 9, 11, 13, 15
#define LOWER 0, 8, 1, 9, 2, 10, 3, 11
#define UPPER 4, 12, 5, 13, 6, 14, 7, 15
#endif
/* Both vectors' elements at these places; their lower or upper halves, interleaved. */
#define shuffle(x, y, places) __builtin_shufflevector(x, y, places)

typedef float Vector __attribute__((vector_size(LANES * 4)));
typedef float AnyVector __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t Integers __attribute__((vector_size(LANES * 4)));
typedef uint32_t Naturals __attribute__((vector_size(LANES * 4)));
typedef uint32_t AnyNaturals __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef uint16_t Shorts __attribute__((vector_size(LANES * 2)));
typedef uint8_t Bytes __attribute__((vector_size(LANES)));

/* The bits of a bfloat16. */
struct BFloat16 {
    uint16_t bits;
};

static inline Vector load(const float *x) { return *(const AnyVector *)x; }
static inline Vector load(const BFloat16 *x)
{
    Shorts bits;
    memcpy(&bits, x, sizeof bits);
    return (Vector)(__builtin_convertvector(bits, Naturals) << 16);
}
static inline void store(float *x, Vector y) { *(AnyVector *)x = y; }
static inline Vector all(float x) { return x - (Vector){0}; }

/* The bits of a float rounded to the nearest bfloat16, ties to even; NaN stays NaN. */
static inline Naturals rounded(Vector x)
{
    Naturals bits = (Naturals)x;
    Naturals near = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (Naturals)(x == x) != 0 ? near : (Naturals){0} + 0x7fc0;
}
static inline void store(BFloat16 *x, Vector y)
{
    Shorts bits = __builtin_convertvector(rounded(y), Shorts);
    memcpy(x, &bits, sizeof bits);
}

/* The first `count` elements, then zeros; and the reverse. */
template <typename T> static inline Vector load(const T *x, int64_t count)
{
    if (count >= LANES)
        return load(x);
    T some[LANES] = {};
    if (count > 0)
        memcpy(some, x, count * sizeof(T));
    return load(some);
}
template <typename T> static inline void store(T *x, Vector y, int64_t count)
{
    if (count >= LANES) {
        store(x, y);
        return;
    }
    T some[LANES];
    store(some, y);
    if (count > 0)
        memcpy(x, some, count * sizeof(T));
}

static inline Integers indices()
{
    return (Integers){EACH};
}

/* A pair of bfloat16, the first in the lower half, and a vector of such pairs. */
typedef uint32_t Pair;
typedef Naturals Pairs;

static inline Pairs load(const Pair *x) { return *(const AnyNaturals *)x; }

/* sum + x y, for floats, and for both elements of each pair. Without AVX-512, GCC multiplies a float
 * and a vector element by element, and two vectors at once: hence all(x), here and in other loops.
 */
static inline Vector add_product(Vector sum, float x, Vector y) { return sum + all(x) * y; }
static inline Vector add_product(Vector sum, Pair x, Pairs y)
{
#ifdef __AVX512BF16__
    return (Vector)_mm512_dpbf16_ps((__m512)sum, (__m512bh)(x - (Pairs){0}), (__m512bh)y);
#else
    Pairs both = x - (Pairs){0};
    sum += (Vector)(both << 16) * (Vector)(y << 16);
    return sum + (Vector)(both & 0xffff0000u) * (Vector)(y & 0xffff0000u);
#endif
}

/* max(x, y), which is y where one of them is NaN. */
static inline Vector larger(Vector x, Vector y) { return x > y ? x : y; }

/* exp(x) for x <= 0 within 2 units in the last place; 0 below -87, NaN for NaN.
 * x = n ln 2 + r (Cody & Waite 1980), with the polynomial of Cephes' expf for exp(r).
 */
static inline Vector exponential(Vector x)
{
#ifdef __AVX512F__
    Vector n = (Vector)_mm512_roundscale_ps((__m512)(x * 1.44269504f), 8);
#else
    Vector near = x < -87.0f ? all(-87.0f) : x;
    Vector n = (near * 1.44269504f + 12582912.0f) - 12582912.0f; /* rounds to whole numbers */
#endif
    Vector r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    Vector p = 1.9875691500e-4f * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + (r + 1.0f);
#ifdef __AVX512F__
    __mmask16 seen = _mm512_cmp_ps_mask((__m512)x, (__m512)all(-87.0f), _CMP_NLT_UQ);
    return (Vector)_mm512_maskz_scalef_ps(seen, (__m512)p, (__m512)n);
#else
    Vector power = (Vector)((__builtin_convertvector(n, Integers) + 127) << 23);
    return x < -87.0f ? all(0.0f) : p * power;
#endif
}

/* tanh(x) = sign(x) (1 - t) / (1 + t) with t = exp(-2 |x|); its series near 0, where that cancels. */
static inline Vector hyperbolic_tangent(Vector x)
{
    Vector size = x < 0.0f ? -x : x, square = x * x;
    Vector t = exponential(-2.0f * size), far = (1.0f - t) / (1.0f + t);
    Vector series = -5.70498872745e-3f * square + 2.06390887954e-2f; /* Cephes' tanhf */
    series = series * square - 5.37397155531e-2f;
    series = series * square + 1.33314422036e-1f;
    series = series * square - 3.33332819422e-1f;
    return size < 0.625f ? x + x * square * series : x < 0.0f ? -far : far;
}

/* Sums of neighbours in x, then of neighbours in y. */
static inline Vector halve(Vector x, Vector y)
{
    return shuffle(x, y, EVEN) + shuffle(x, y, ODD);
}

static inline float sum(Vector x)
{
    for (int left = LANES; left > 1; left /= 2)
        x = halve(x, x);
    return x[0];
}

/* The sum, and the maximum, of each of as many vectors as one has elements. */
static inline Vector sums(Vector x[LANES])
{
#pragma GCC unroll 4
    for (int left = LANES / 2; left; left /= 2)
#pragma GCC unroll 8
        for (int i = 0; i < left; i++)
            x[i] = halve(x[2 * i], x[2 * i + 1]);
    return x[0];
}
static inline Vector maxima(Vector x[LANES])
{
#pragma GCC unroll 4
    for (int left = LANES / 2; left; left /= 2)
#pragma GCC unroll 8
        for (int i = 0; i < left; i++)
            x[i] = larger(
                shuffle(x[2 * i], x[2 * i + 1], EVEN), shuffle(x[2 * i], x[2 * i + 1], ODD));
    return x[0];
}

static inline float largest(Vector x)
{
    for (int left = LANES; left > 1; left /= 2)
        x = larger(shuffle(x, x, EVEN), shuffle(x, x, ODD));
    return x[0];
}

/* Whether any element is greater than a number. */
static inline bool any_above(Vector x, float than)
{
#ifdef __AVX512F__
    return _mm512_cmp_ps_mask((__m512)x, (__m512)all(than), _CMP_GT_OQ);
#else
    return largest(x) > than;
#endif
}

/* Transposes a square tile, in rounds of interleaving its halves. */
static inline void transpose(Vector rows[LANES])
{
    Vector mixed[LANES];
#pragma GCC unroll 4
    for (int left = LANES; left > 1; left /= 2) {
#pragma GCC unroll 8
        for (int i = 0; i < LANES / 2; i++) {
            Vector x = rows[i], y = rows[i + LANES / 2];
            mixed[2 * i] = shuffle(x, y, LOWER);
            mixed[2 * i + 1] = shuffle(x, y, UPPER);
        }
        memcpy(rows, mixed, sizeof mixed);
    }
}

/* Thirty-two random bits for each place of a vector: the mixing of MurmurHash3 (Appleby), with one
 * half of the seed at its start and the other in its middle.
 */
static inline Naturals random_bits(uint32_t place, uint64_t seed)
{
    Naturals x = ((Naturals)indices() + place) * 0x9E3779B9u + (uint32_t)seed;
    x ^= x >> 16;
    x *= 0x85EBCA6Bu;
    x ^= (x >> 13) ^ (uint32_t)(seed >> 32);
    x *= 0xC2B2AE35u;
    return x ^ x >> 16;
}
