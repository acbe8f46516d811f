/* Attention of short texts, and its gradient: whole texts at a time, all of it near. */

/* Memory for one text and head: m and n rounded up to whole vectors. */
struct Near {
    int64_t m, n;
    float *memory, *keys, *values, *weights, *turned, *slopes, *slopes_turned;
    uint8_t *seen;        /* the mask of a text and head, row by row, with zeros up to whole vectors */
    int64_t seen_apart;   /* 0 if all rows are the same */
    const uint8_t *known; /* what was copied last */

    Near(const Sizes &size)
    {
        m = (size.m + LANES - 1) / LANES * LANES, n = (size.n + LANES - 1) / LANES * LANES;
        int64_t block = m * n;
        memory = (float *)malloc((m * (size.d + size.e) + 4 * block) * sizeof *memory + block);
        keys = memory, values = keys + m * size.d, weights = values + m * size.e;
        turned = weights + block, slopes = turned + block, slopes_turned = slopes + block;
        seen = (uint8_t *)(slopes_turned + block);
        seen_apart = 0, known = NULL;
        if (memory) {
            memset(seen, 0, block);
            memset(seen, 1, size.m);
        }
    }
    ~Near() { free(memory); }

    void copy(const Rows<const uint8_t> &mask, const Sizes &size, int64_t b, int64_t h)
    {
        if (!mask.start || mask.at(b, h, 0) == known)
            return;
        known = mask.at(b, h, 0), seen_apart = mask.row ? m : 0;
        for (int64_t i = 0; i < (mask.row ? size.n : 1); i++)
            memcpy(seen + i * m, mask.at(b, h, i), size.m);
    }
};

/* Sixteen rows turned into columns: four times, those of the two halves are put in turn. */
static inline void turn(Vector rows[LANES])
{
    Vector mixed[LANES];
#pragma GCC unroll 4
    for (int stage = 0; stage < 4; stage++) {
#pragma GCC unroll 8
        for (int i = 0; i < LANES / 2; i++) {
            Vector x = rows[i], y = rows[i + LANES / 2];
            mixed[2 * i] = __builtin_shufflevector(
                x, y, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            mixed[2 * i + 1] = __builtin_shufflevector(
                x, y, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
        }
        memcpy(rows, mixed, sizeof mixed);
    }
}

/* x (rows, d) turned into y (d, apart), with zeros up to whole vectors; d is a multiple of 16. */
static void turn(Matrix<const float> x, int64_t rows, int64_t d, float *y, int64_t apart)
{
    for (int64_t i = 0; i < d; i += LANES)
        for (int64_t j = 0; j < rows; j += LANES) {
            Vector part[LANES];
            for (int64_t r = 0; r < LANES; r++)
                part[r] = j + r < rows ? load(x.start + (j + r) * x.row + i) : all(0.0f);
            turn(part);
            for (int64_t r = 0; r < LANES; r++)
                store(y + (i + r) * apart + j, part[r]);
        }
}

/* Scores times the factor, -inf wherever there is nothing to see. */
static inline Vector shown(const float *scores, float factor, const uint8_t *seen)
{
    typedef uint8_t Bytes __attribute__((vector_size(LANES)));
    Bytes bytes;
    memcpy(&bytes, seen, LANES);
    Integers where = __builtin_convertvector(bytes, Integers);
    return where != 0 ? factor * load(scores) : all(-INFINITY);
}

/* A row of products becomes its weights, 0 wherever there is nothing to see; its log-sum-exp. */
static inline float soften(float *row, int64_t m, float factor, const uint8_t *seen)
{
    Vector highest = all(-INFINITY), exps = all(0.0f);
    for (int64_t j = 0; j < m; j += LANES) {
        Vector scores = shown(row + j, factor, seen + j);
        store(row + j, scores);
        highest = larger(scores, highest);
    }
    float most = largest(highest), least = most == -INFINITY ? 0.0f : most;
    for (int64_t j = 0; j < m; j += LANES) {
        store(row + j, exponential(load(row + j) - least));
        exps += load(row + j);
    }
    float total = sum(exps), share = total == 0.0f ? 0.0f : 1.0f / total;
    for (int64_t j = 0; j < m; j += LANES)
        store(row + j, load(row + j) * share);
    return log_sum(most, total);
}

/* d and e are multiples of 16. The mask is a byte for each key, 0 for hidden, or NULL. sums become the
 * log-sum-exp of the rows (b, h, n). 0, or 1 if there was no memory.
 */
extern "C" int attend_short(
    int threads, const Sizes *of, float factor, const Rows<const float> *q,
    const Rows<const float> *k, const Rows<const float> *v, const Rows<const uint8_t> *mask,
    const Rows<float> *output, float *sums)
{
    const Sizes &size = *of;
    int failed = 0;
#pragma omp parallel num_threads(threads) reduction(| : failed)
    {
        Near near(size);
        failed |= !near.memory;
#pragma omp for schedule(static)
        for (int64_t task = 0; task < size.b * size.groups; task++) {
            if (failed)
                continue;
            int64_t b = task / size.groups, group = task % size.groups, m = near.m;
            turn({k->at(b, group, 0), k->row}, size.m, size.d, near.keys, m);
            for (int64_t h = group * size.h / size.groups;
                 h < (group + 1) * size.h / size.groups; h++) {
                near.copy(*mask, size, b, h);
                multiply({q->at(b, h, 0), q->row}, size.n, size.d, {near.keys, m}, m, {},
                         {near.weights, m}, NULL);
                for (int64_t i = 0; i < size.n; i++) {
                    const uint8_t *seen = near.seen + i * near.seen_apart;
                    sums[(b * size.h + h) * size.n + i] =
                        soften(near.weights + i * m, m, factor, seen);
                }
                multiply({near.weights, m}, size.n, size.m, {v->at(b, group, 0), v->row}, size.e,
                         {}, {output->at(b, h, 0), output->row}, NULL);
            }
        }
    }
    return failed;
}

/* The gradients of queries, keys and values, given that of the output.
 *
 *     weights = softmax(scores)        slopes = weights * (grad v' - mean of grad v') * factor
 *     dq = slopes k                    dk = slopes' q                  dv = weights' grad
 *
 * where ' turns, and the mean of a row is by its weights. They are computed anew, since the log-sum-exp
 * of large scores, as float32 has it, says too little of them.
 */
extern "C" int attend_short_backwards(
    int threads, const Sizes *of, float factor, const Rows<const float> *q,
    const Rows<const float> *k, const Rows<const float> *v, const Rows<const uint8_t> *mask,
    const Rows<const float> *grad, const Rows<float> *dq, const Rows<float> *dk,
    const Rows<float> *dv)
{
    const Sizes &size = *of;
    int failed = 0;
#pragma omp parallel num_threads(threads) reduction(| : failed)
    {
        Near near(size);
        failed |= !near.memory;
#pragma omp for schedule(static)
        for (int64_t task = 0; task < size.b * size.groups; task++) {
            if (failed)
                continue;
            int64_t b = task / size.groups, group = task % size.groups, m = near.m, n = near.n;
            Matrix<const float> keys = {k->at(b, group, 0), k->row};
            turn(keys, size.m, size.d, near.keys, m);
            turn({v->at(b, group, 0), v->row}, size.m, size.e, near.values, m);
            int64_t first = group * size.h / size.groups;
            for (int64_t h = first; h < (group + 1) * size.h / size.groups; h++) {
                Matrix<const float> queries = {q->at(b, h, 0), q->row};
                Matrix<const float> above = {grad->at(b, h, 0), grad->row};
                near.copy(*mask, size, b, h);
                multiply(queries, size.n, size.d, {near.keys, m}, m, {}, {near.weights, m}, NULL);
                multiply(above, size.n, size.e, {near.values, m}, m, {}, {near.slopes, m}, NULL);
                for (int64_t i = 0; i < size.n; i++) {
                    float *row = near.weights + i * m, *slope = near.slopes + i * m;
                    const uint8_t *seen = near.seen + i * near.seen_apart;
                    soften(row, m, factor, seen);
                    Vector product = all(0.0f);
                    for (int64_t j = 0; j < m; j += LANES)
                        product += load(row + j) * load(slope + j);
                    float mean = sum(product);
                    for (int64_t j = 0; j < m; j += LANES)
                        store(slope + j, load(row + j) * (load(slope + j) - mean) * factor);
                }
                turn({near.weights, m}, size.n, m, near.turned, n);
                turn({near.slopes, m}, size.n, m, near.slopes_turned, n);
                Matrix<float> of_k = {dk->at(b, group, 0), dk->row};
                Matrix<float> of_v = {dv->at(b, group, 0), dv->row};
                multiply({near.slopes, m}, size.n, size.m, keys, size.d, {},
                         {dq->at(b, h, 0), dq->row}, NULL);
                multiply({near.slopes_turned, n}, size.m, size.n, queries, size.d,
                         {NULL, false, h == first ? NULL : of_k.start}, of_k, NULL);
                multiply({near.turned, n}, size.m, size.n, above, size.e,
                         {NULL, false, h == first ? NULL : of_v.start}, of_v, NULL);
            }
        }
    }
    return failed;
}
