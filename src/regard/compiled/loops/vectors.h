/* Sixteen floats at once: the vectors that GCC and Clang know, which they map to whatever the machine
 * has, and what is computed with one of them.
 */

#define LANES 16
typedef float Vector __attribute__((vector_size(LANES * 4)));
typedef float AnyVector __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t Integers __attribute__((vector_size(LANES * 4)));

static inline Vector load(const float *x) { return *(const AnyVector *)x; }
static inline void store(float *x, Vector y) { *(AnyVector *)x = y; }
static inline Vector all(float x) { return x - (Vector){0}; }

/* Two numbers of half the bits, bfloat16, the first in the lower half; and sixteen such pairs. */
typedef uint32_t Pair;
typedef Pair Pairs __attribute__((vector_size(LANES * 4)));
typedef Pair AnyPairs __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

static inline Pairs load(const Pair *x) { return *(const AnyPairs *)x; }

/* The sum, and x times each of y added to it. */
static inline Vector add_product(Vector sum, float x, Vector y) { return sum + x * y; }

/* The same of pairs: both products of each. */
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

/* A number in bfloat16, rounded to the nearest; NaN stays NaN. */
static inline uint16_t halved(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return x == x ? rounded : 0x7fc0;
}

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

/* The log-sum-exp, given the largest number and the sum of exp(number - largest). */
static inline float log_sum(float most, float total)
{
    return total == 0.0f ? -INFINITY : most == INFINITY ? INFINITY : most + logf(total);
}

static inline float largest(Vector x)
{
    x = larger(x, __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
    x = larger(x, __builtin_shufflevector(x, x, 4, 5, 6, 7, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3));
    x = larger(x, __builtin_shufflevector(x, x, 2, 3, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1));
    return x[0] > x[1] ? x[0] : x[1];
}
