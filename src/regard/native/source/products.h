/* Products with weights: rows times a matrix in panels, whose rows never depend on each other. */
#pragma once

#include <memory>
#include <type_traits>

#include "tiles.h"

/* What follows a product: a bias, ReLU, and numbers that all of it is added to, if given. */
struct Then {
    const float *bias;
    bool relu;
    const float *onto;
};

/* A matrix whose rows are `row` numbers apart. */
template <typename Number> struct Matrix {
    Number *start;
    int64_t row;
};

/* The number of products summed at a time: the longer a sum, the more of its last digits are lost. */
#define AT_ONCE 128

/* Applies what follows to a vector of sums, in row r and vector c of a tile, and stores them in y. */
static inline __attribute__((always_inline)) void finish(
    Vector z, const Then &then, int r, int c, Matrix<float> y)
{
    if (then.bias)
        z += load(then.bias + c * LANES);
    if (then.relu)
        z = z < 0.0f ? all(0.0f) : z; /* NaN stays NaN */
    if (then.onto)
        z += load(then.onto + r * y.row + c * LANES);
    store(y.start + r * y.row + c * LANES, z);
}

/* ROWS rows of x (…, depth) times WIDE vectors of columns of w (depth, …), of floats or of pairs. */
template <int ROWS, int WIDE, typename Unit>
static inline __attribute__((always_inline)) void tile(
    Matrix<const Unit> x, int64_t depth, Matrix<const Unit> w, const Then &then, Matrix<float> y)
{
    Vector sums[ROWS][WIDE] = {};
    for (int64_t k = 0; k < depth;) {
        int64_t end = depth - k < AT_ONCE ? depth : k + AT_ONCE;
        Vector some[ROWS][WIDE] = {};
        for (; k < end; k++) {
            decltype(load(w.start)) columns[WIDE];
#pragma GCC unroll 2
            for (int c = 0; c < WIDE; c++)
                columns[c] = load(w.start + k * w.row + c * LANES);
#pragma GCC unroll 12
            for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 2
                for (int c = 0; c < WIDE; c++)
                    some[r][c] = add_product(some[r][c], x.start[r * x.row + k], columns[c]);
        }
#pragma GCC unroll 12
        for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 2
            for (int c = 0; c < WIDE; c++)
                sums[r][c] += some[r][c];
    }
#pragma GCC unroll 12
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 2
        for (int c = 0; c < WIDE; c++)
            finish(sums[r][c], then, r, c, y);
}

constexpr int TALL = ROWS; /* the most rows of a tile */

/* Calls run with the number of rows, at most ROWS, as a constant; not at all for none. */
template <int ROWS = TALL - 1, typename Run> static inline void with_rows(int64_t rows, const Run &run)
{
    if (rows == ROWS)
        run(std::integral_constant<int, ROWS>());
    else if constexpr (ROWS > 1)
        with_rows<ROWS - 1>(rows, run);
}

/* All rows of x times WIDE vectors of columns of w; the last rows are one tile, however few. */
template <int WIDE, typename Unit>
static inline void multiply_by_columns(
    Matrix<const Unit> x, int64_t rows, int64_t depth, Matrix<const Unit> w, Then then,
    Matrix<float> y)
{
    for (; rows >= TALL; rows -= TALL, x.start += TALL * x.row, y.start += TALL * y.row) {
        tile<TALL, WIDE>(x, depth, w, then, y);
        then.onto = then.onto ? then.onto + TALL * y.row : then.onto;
    }
    with_rows(rows, [&](auto last) { tile<last, WIDE>(x, depth, w, then, y); });
}

/* All rows of x times one vector of columns of w, or two. */
template <typename Unit>
static inline void multiply_by_panel(
    int wide, Matrix<const Unit> x, int64_t rows, int64_t depth, Matrix<const Unit> w,
    const Then &then, Matrix<float> y)
{
    if (wide == 2)
        multiply_by_columns<2>(x, rows, depth, w, then, y);
    else
        multiply_by_columns<1>(x, rows, depth, w, then, y);
}

/* Columns `first` and following of a matrix (depth, columns) that lies in panels: 32 columns of all
 * rows, then the next 32; columns are a multiple of 16.
 */
template <typename Unit>
static inline Matrix<const Unit> part_of_panel(
    const Unit *panels, int64_t depth, int64_t columns, int64_t first)
{
    int64_t panel = first / 32 * 32;
    return {panels + panel * depth + first - panel, columns - panel < 32 ? columns - panel : 32};
}

/* x (rows, depth) times w (depth, columns) in panels, and what follows, into y, all contiguous. */
template <typename Unit>
static void multiply_by_panels(
    const Unit *x, int64_t rows, int64_t depth, const Unit *panels, int64_t columns,
    const Then &then, float *y)
{
    for (int64_t j = 0; j < columns; j += 2 * LANES) {
        int wide = j + LANES < columns ? 2 : 1;
        Then here = {then.bias ? then.bias + j : NULL, then.relu, then.onto ? then.onto + j : NULL};
        multiply_by_panel<Unit>(wide, {x, depth}, rows, depth,
                                part_of_panel(panels, depth, columns, j), here, {y + j, columns});
    }
}

/* A matrix in panels: of floats, or of pairs, each of which holds two rows of a column. */
struct Panels {
    const void *start;
    int64_t in_pairs;
};

/* The same of such a matrix, whose depth is even if it is in pairs: then x is rounded to bfloat16 too. */
static void multiply_by_panels(
    const float *x, int64_t rows, int64_t depth, const Panels &panels, int64_t columns,
    const Then &then, float *y)
{
    if (!panels.in_pairs) {
        multiply_by_panels(x, rows, depth, (const float *)panels.start, columns, then, y);
        return;
    }
    std::unique_ptr<Pair[]> pairs(new Pair[rows * depth / 2 + LANES]);
    for (int64_t i = 0; i < rows * depth; i += LANES)
        store((BFloat16 *)pairs.get() + i, load(x + i, rows * depth - i));
    multiply_by_panels(pairs.get(), rows, depth / 2, (const Pair *)panels.start, columns, then, y);
}

/* The same of w (depth, columns) as it is; its columns are put side by side first where that pays. */
static void multiply(
    const float *x, int64_t rows, int64_t depth, const float *w, int64_t columns, const Then &then,
    float *y)
{
    std::unique_ptr<float[]> panel(rows > 24 ? new float[depth * 2 * LANES] : NULL);
    for (int64_t j = 0; j < columns; j += 2 * LANES) {
        int wide = j + LANES < columns ? 2 : 1;
        Matrix<const float> part = {w + j, columns};
        if (panel) {
            for (int64_t k = 0; k < depth; k++)
                for (int c = 0; c < wide; c++)
                    store(panel.get() + (k * wide + c) * LANES, load(w + k * columns + j + c * LANES));
            part = {panel.get(), wide * LANES};
        }
        multiply_by_panel<float>(wide, {x, depth}, rows, depth, part,
                                 {then.bias ? then.bias + j : NULL, then.relu, NULL}, {y + j, columns});
    }
}
