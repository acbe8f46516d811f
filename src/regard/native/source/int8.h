/* Products in 8 bits: rows are quantised on the fly by their largest element, weights beforehand by
 * column; sums are exact in 32 bits, and integer sums do not depend on their order, so every path gives
 * the same bits.
 */
#pragma once

#include <memory>

#include "products.h"

/* Four bytes of neighbouring rows of a column of weights, each 128 more than the weight, or of a row of x. */
typedef uint32_t Quad;

/* A matrix of quads in panels, see `multiply_by_panels`, and the scale of every column. */
struct Int8Panels {
    const Quad *start;
    const float *scales;
};

/* sum + the four products of bytes, those of x signed, those of w not. */
static inline Integers add_quads(Integers sum, Quad x, Naturals w)
{
#ifdef __AVX512VNNI__
    return (Integers)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)w, (__m512i)(x - (Naturals){0}));
#elif defined(__AVX2__) && !defined(__AVX512F__)
    __m256i row = _mm256_set1_epi32(x), columns = (__m256i)w;
    __m256i even = _mm256_madd_epi16(
        _mm256_srai_epi16(_mm256_slli_epi16(row, 8), 8), _mm256_and_si256(columns, _mm256_set1_epi16(255)));
    __m256i odd = _mm256_madd_epi16(_mm256_srai_epi16(row, 8), _mm256_srli_epi16(columns, 8));
    return sum + (Integers)even + (Integers)odd;
#else
    Integers row = (Integers)(x - (Naturals){0});
#pragma GCC unroll 4
    for (int byte = 0; byte < 32; byte += 8)
        sum += (row << (24 - byte) >> 24) * (Integers)(w >> byte & 255);
    return sum;
#endif
}

/* ROWS rows of quads times WIDE vectors of columns. `offset` is 128 times the sum of each row. */
template <int ROWS, int WIDE>
static inline __attribute__((always_inline)) void tile_of_quads(
    const Quad *x, int64_t depth, Matrix<const Quad> w, const float *of_rows,
    const int32_t *offsets, const float *of_columns, const Then &then, Matrix<float> y)
{
    Integers sums[ROWS][WIDE] = {};
    for (int64_t k = 0; k < depth; k++) {
        Naturals columns[WIDE];
#pragma GCC unroll 2
        for (int c = 0; c < WIDE; c++)
            columns[c] = load(w.start + k * w.row + c * LANES);
#pragma GCC unroll 12
        for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 2
            for (int c = 0; c < WIDE; c++)
                sums[r][c] = add_quads(sums[r][c], x[r * depth + k], columns[c]);
    }
#pragma GCC unroll 12
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 2
        for (int c = 0; c < WIDE; c++) {
            Vector z = __builtin_convertvector(sums[r][c] - offsets[r], Vector);
            z = z * (of_rows[r] * load(of_columns + c * LANES));
            finish(z, then, r, c, y);
        }
}

template <int WIDE>
static inline void multiply_quads(
    const Quad *x, int64_t rows, int64_t depth, Matrix<const Quad> w, const float *of_rows,
    const int32_t *offsets, const float *of_columns, Then then, Matrix<float> y)
{
#define QUAD_TILES(ROWS)                                                                     \
    for (; rows >= ROWS; rows -= ROWS, x += ROWS * depth, y.start += ROWS * y.row) {         \
        tile_of_quads<ROWS, WIDE>(x, depth, w, of_rows, offsets, of_columns, then, y);       \
        of_rows += ROWS, offsets += ROWS;                                                    \
        then.onto = then.onto ? then.onto + ROWS * y.row : then.onto;                        \
    }
    QUAD_TILES(TALL)
    QUAD_TILES(4)
    QUAD_TILES(1)
}

/* A row in 8 bits: its scale, its bytes and 128 times their sum. depth is a multiple of 4. */
static inline float quantise(const float *x, int64_t depth, int8_t *y, int32_t *offset)
{
    Vector highest = all(0.0f), poison = all(0.0f);
    for (int64_t i = 0; i < depth; i += LANES) {
        Vector part = load(x + i, depth - i);
        highest = larger(part < 0.0f ? -part : part, highest);
        poison += part * 0.0f; /* NaN if the row is not finite, which must not get lost */
    }
    float most = largest(highest) + sum(poison);
    if (!(most > 1e-36f)) { /* practically zero, or not finite: the scale alone says so */
        memset(y, 0, depth);
        *offset = 0;
        return most;
    }
    float by = 127.0f / most;
    Integers sum = {};
    for (int64_t i = 0; i < depth; i += LANES) {
        Vector near = (load(x + i, depth - i) * by + 12582912.0f) - 12582912.0f; /* rounds to even */
        Integers whole = __builtin_convertvector(near, Integers);
        sum += whole;
        typedef int8_t Small __attribute__((vector_size(LANES)));
        Small bytes = __builtin_convertvector(whole, Small);
        memcpy(y + i, &bytes, depth - i < LANES ? depth - i : LANES);
    }
    int32_t total = 0;
    for (int i = 0; i < LANES; i++)
        total += sum[i];
    *offset = 128 * total;
    return most / 127.0f;
}

/* x (rows, depth) times w (depth, columns) in 8 bits, and what follows, into y. */
static void multiply_by_panels(
    const float *x, int64_t rows, int64_t depth, const Int8Panels &panels, int64_t columns,
    const Then &then, float *y)
{
    std::unique_ptr<Quad[]> quads(new Quad[rows * depth / 4 + LANES]);
    std::unique_ptr<float[]> scales(new float[rows]);
    std::unique_ptr<int32_t[]> offsets(new int32_t[rows]);
    for (int64_t r = 0; r < rows; r++)
        scales[r] = quantise(x + r * depth, depth, (int8_t *)quads.get() + r * depth, &offsets[r]);
    for (int64_t j = 0; j < columns; j += 2 * LANES) {
        Then here = {then.bias ? then.bias + j : NULL, then.relu, then.onto ? then.onto + j : NULL};
        Matrix<const Quad> w = part_of_panel(panels.start, depth / 4, columns, j);
        auto by = j + LANES < columns ? multiply_quads<2> : multiply_quads<1>;
        by(quads.get(), rows, depth / 4, w, scales.get(), offsets.get(), panels.scales + j, here,
           {y + j, columns});
    }
}
