/* Products of matrices that are near: rows of numbers times rows of numbers. */

/* What follows on a product: a bias, rectification, and all of it added to something, if given. */
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

/* So many products are added up at a time: the longer a sum, the more of its last digits are lost. */
#define AT_ONCE 128

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
        for (int c = 0; c < WIDE; c++) {
            Vector z = sums[r][c];
            if (then.bias)
                z += load(then.bias + c * LANES);
            if (then.relu)
                z = z < 0.0f ? all(0.0f) : z; /* NaN stays NaN */
            if (then.onto)
                z += load(then.onto + r * y.row + c * LANES);
            store(y.start + r * y.row + c * LANES, z);
        }
}

/* All rows of x times WIDE vectors of columns of w. */
template <int WIDE, typename Unit>
static inline void multiply_by_columns(
    Matrix<const Unit> x, int64_t rows, int64_t depth, Matrix<const Unit> w, Then then,
    Matrix<float> y)
{
#define TILES(ROWS)                                                                          \
    for (; rows >= ROWS; rows -= ROWS, x.start += ROWS * x.row, y.start += ROWS * y.row) {   \
        tile<ROWS, WIDE>(x, depth, w, then, y);                                              \
        then.onto = then.onto ? then.onto + ROWS * y.row : then.onto;                        \
    }
    TILES(12)
    TILES(4)
    TILES(1)
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

/* x (rows, depth) times w (depth, columns), and what follows on it, into y (rows, columns), of which
 * `onto` has the shape; columns are a multiple of 16. Each number is the same sum in the same order,
 * whatever the other rows. `panel`, if given, has room for depth * 32: there columns of w are put
 * side by side first, which pays if they are far apart and read often.
 */
static void multiply(
    Matrix<const float> x, int64_t rows, int64_t depth, Matrix<const float> w, int64_t columns,
    const Then &then, Matrix<float> y, float *panel)
{
    for (int64_t j = 0; j < columns; j += 2 * LANES) {
        int wide = j + LANES < columns ? 2 : 1;
        Then here = {then.bias ? then.bias + j : NULL, then.relu, then.onto ? then.onto + j : NULL};
        Matrix<const float> part = {w.start + j, w.row};
        if (panel && rows > 24) {
            for (int64_t k = 0; k < depth; k++)
                for (int c = 0; c < wide; c++)
                    store(panel + (k * wide + c) * LANES, load(part.start + k * w.row + c * LANES));
            part = {panel, wide * LANES};
        }
        multiply_by_panel<float>(wide, x, rows, depth, part, here, {y.start + j, y.row});
    }
}

/* The same of w whose columns lie side by side already: 32 of them, row by row, then the next 32;
 * x and y in one piece.
 */
template <typename Unit>
static void multiply_by_panels(
    const Unit *x, int64_t rows, int64_t depth, const Unit *panels, int64_t columns,
    const Then &then, float *y)
{
    for (int64_t j = 0; j < columns; j += 2 * LANES) {
        int wide = j + LANES < columns ? 2 : 1;
        Then here = {then.bias ? then.bias + j : NULL, then.relu, then.onto ? then.onto + j : NULL};
        multiply_by_panel<Unit>(wide, {x, depth}, rows, depth, {panels + j * depth, wide * LANES},
                                here, {y + j, columns});
    }
}

/* A matrix in panels: of floats, or of pairs, each of which holds two rows of a column. */
struct Panels {
    const void *start;
    int64_t in_pairs;
};

/* The same of such a matrix, whose depth is even if it is in pairs: then x is rounded to bfloat16
 * as well. False if there is no memory.
 */
static bool multiply_by_panels(
    const float *x, int64_t rows, int64_t depth, const Panels &panels, int64_t columns,
    const Then &then, float *y)
{
    if (!panels.in_pairs) {
        multiply_by_panels(x, rows, depth, (const float *)panels.start, columns, then, y);
        return true;
    }
    Pair *pairs = (Pair *)malloc(rows * depth * sizeof(uint16_t));
    if (!pairs)
        return false;
    for (int64_t i = 0; i < rows * depth / 2; i++)
        pairs[i] = halved(x[2 * i]) | (Pair)halved(x[2 * i + 1]) << 16;
    multiply_by_panels(pairs, rows, depth / 2, (const Pair *)panels.start, columns, then, y);
    free(pairs);
    return true;
}

extern "C" int affine_by_panels(
    int64_t rows, int64_t d, int64_t n, const float *x, const Panels *panels, const float *bias,
    float *y)
{
    return !multiply_by_panels(x, rows, d, *panels, n, {bias, false, NULL}, y);
}

extern "C" int affine(
    int64_t rows, int64_t d, int64_t n, const float *x, const float *w, const float *bias, float *y)
{
    float *panel = (float *)malloc(d * 2 * LANES * sizeof *panel);
    if (!panel)
        return 1;
    multiply({x, d}, rows, d, {w, n}, n, {bias, false, NULL}, {y, n}, panel);
    free(panel);
    return 0;
}
