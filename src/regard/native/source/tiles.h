/* Register tiles: ROWS rows times up to WIDE vectors of columns, as many as the registers hold. */
#pragma once

#include "vectors.h"

#ifdef __AVX512F__
constexpr int ROWS = 12, WIDE = 2;
#elif defined(__AVX2__)
constexpr int ROWS = 6, WIDE = 2;
#elif defined(__aarch64__)
constexpr int ROWS = 6, WIDE = 1;
#else
constexpr int ROWS = 3, WIDE = 1;
#endif
constexpr int PANEL = WIDE * LANES;

static inline int64_t round_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

/* y = keep[r] * y + the product of a tile of a with a panel of b; overwrites y where keep is NULL.
 * The product is the sums over k < depth of a[r * ROW + k * STEP] * b[k * LANES * W + c * LANES ...];
 * y has a row every `row` floats.
 */
template <int R, int W, int64_t ROW, int64_t STEP>
static void multiply_panel(
    const float *a, const float *b, int64_t depth, const float *keep, float *y, int64_t row)
{
    Vector sums[R][W] = {};
    for (int64_t k = 0; k < depth; k++, a += STEP, b += W * LANES) {
        Vector columns[W];
#pragma GCC unroll 2
        for (int c = 0; c < W; c++)
            columns[c] = load(b + c * LANES);
#pragma GCC unroll 12
        for (int r = 0; r < R; r++)
#pragma GCC unroll 2
            for (int c = 0; c < W; c++)
                sums[r][c] += all(a[r * ROW]) * columns[c];
    }
#pragma GCC unroll 12
    for (int r = 0; r < R; r++)
#pragma GCC unroll 2
        for (int c = 0; c < W; c++) {
            float *to = y + r * row + c * LANES;
            store(to, keep ? load(to) * keep[r] + sums[r][c] : sums[r][c]);
        }
}

/* The same for any number of rows up to ROWS, rounded up to a third of it: a and y have room. */
template <int64_t ROW, int64_t STEP>
static inline void multiply_panel(
    int64_t rows, int wide, const float *a, const float *b, int64_t depth, const float *keep,
    float *y, int64_t row)
{
#define CASE(R)                                                                   \
    (WIDE == 2 && wide == 2                                                       \
         ? multiply_panel<R, WIDE, ROW, STEP>(a, b, depth, keep, y, row)          \
         : multiply_panel<R, 1, ROW, STEP>(a, b, depth, keep, y, row))
    if (rows > 2 * ROWS / 3)
        CASE(ROWS);
    else if (rows > ROWS / 3)
        CASE(2 * ROWS / 3);
    else
        CASE(ROWS / 3);
#undef CASE
}

/* How many vectors wide the panel is that begins at this column. */
static inline int panel_width(int64_t column, int64_t columns)
{
    return column + LANES < columns && WIDE == 2 ? 2 : 1;
}

/* Packs the rows of x (rows, width) into panels of columns: a panel holds up to PANEL columns of
 * every row, and zeros beyond the width. y holds rows * round_up(width, LANES).
 */
template <typename T>
static void pack(const T *x, int64_t row, int64_t rows, int64_t width, float *y)
{
    int64_t columns = round_up(width, LANES);
    for (int64_t j = 0; j < columns; j += PANEL) {
        int wide = panel_width(j, columns);
        float *to = y + j * rows;
        for (int64_t i = 0; i < rows; i++)
            for (int c = 0; c < wide; c++, to += LANES)
                store(to, load(x + i * row + j + c * LANES, width - j - c * LANES));
    }
}

/* Packs the transpose of x (rows, width): a panel holds up to PANEL rows of x, zeros beyond the
 * last one, for each of the width elements. y holds round_up(rows, LANES) * width.
 */
template <typename T>
static void pack_transposed(const T *x, int64_t row, int64_t rows, int64_t width, float *y)
{
    int64_t columns = round_up(rows, LANES);
    for (int64_t j = 0; j < columns; j += PANEL) {
        int wide = panel_width(j, columns);
        float *panel = y + j * width;
        for (int c = 0; c < wide; c++)
            for (int64_t k = 0; k < width; k += LANES) {
                Vector part[LANES];
                int64_t first = j + c * LANES;
                for (int64_t i = 0; i < LANES; i++)
                    part[i] = first + i < rows ? load(x + (first + i) * row + k, width - k) : all(0);
                transpose(part);
                for (int64_t i = 0; i < LANES && k + i < width; i++)
                    store(panel + ((k + i) * wide + c) * LANES, part[i]);
            }
    }
}
