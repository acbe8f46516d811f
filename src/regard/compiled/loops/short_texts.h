/* Attention of short texts, and its gradient: whole texts at a time, all of it near. */

/* Memory for one text and head: m and n rounded up to whole vectors. */
struct Near {
    int64_t m, n;
    float *memory, *keys, *values, *weights, *turned, *slopes, *slopes_turned;

    Near(const Sizes &size)
    {
        m = (size.m + LANES - 1) / LANES * LANES, n = (size.n + LANES - 1) / LANES * LANES;
        int64_t block = m * n;
        memory = (float *)malloc((m * (size.d + size.e) + 4 * block) * sizeof *memory);
        keys = memory, values = keys + m * size.d, weights = values + m * size.e;
        turned = weights + block, slopes = turned + block, slopes_turned = slopes + block;
    }
    ~Near() { free(memory); }
};

/* Rows turned into columns (d, apart), with zeros up to whole vectors. */
static void turn(Matrix<const float> x, int64_t rows, int64_t d, float *y, int64_t apart)
{
    for (int64_t i = 0; i < d; i++) {
        for (int64_t j = 0; j < rows; j++)
            y[i * apart + j] = x.start[j * x.row + i];
        for (int64_t j = rows; j < apart; j++)
            y[i * apart + j] = 0.0f;
    }
}

/* Scores with -inf wherever there is nothing to see, or no key at all. */
static void hide(float *scores, int64_t m, int64_t whole, float factor, const uint8_t *seen)
{
    for (int64_t j = 0; j < m; j++)
        scores[j] = !seen || seen[j] ? factor * scores[j] : -INFINITY;
    for (int64_t j = m; j < whole; j++)
        scores[j] = -INFINITY;
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
                multiply({q->at(b, h, 0), q->row}, size.n, size.d, {near.keys, m}, m, {},
                         {near.weights, m}, NULL);
                for (int64_t i = 0; i < size.n; i++) {
                    float *row = near.weights + i * m;
                    hide(row, size.m, m, factor, mask->start ? mask->at(b, h, i) : NULL);
                    Vector highest = load(row), exps = all(0.0f);
                    for (int64_t j = LANES; j < m; j += LANES)
                        highest = larger(load(row + j), highest);
                    float most = largest(highest);
                    float least = most == -INFINITY ? 0.0f : most;
                    for (int64_t j = 0; j < m; j += LANES) {
                        store(row + j, exponential(load(row + j) - least));
                        exps += load(row + j);
                    }
                    float total = sum(exps), share = total == 0.0f ? 0.0f : 1.0f / total;
                    for (int64_t j = 0; j < m; j += LANES)
                        store(row + j, load(row + j) * share);
                    sums[(b * size.h + h) * size.n + i] = log_sum(most, total);
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
 *     weights = exp(scores - sums)         slopes = weights * (grad v' - grad output') * factor
 *     dq = slopes k      dk = slopes' q    dv = weights' grad
 *
 * where ' turns, and of grad output' only the diagonal is meant.
 */
extern "C" int attend_short_backwards(
    int threads, const Sizes *of, float factor, const Rows<const float> *q,
    const Rows<const float> *k, const Rows<const float> *v, const Rows<const uint8_t> *mask,
    const Rows<const float> *output, const float *sums, const Rows<const float> *grad,
    const Rows<float> *dq, const Rows<float> *dk, const Rows<float> *dv)
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
                multiply(queries, size.n, size.d, {near.keys, m}, m, {}, {near.weights, m}, NULL);
                multiply(above, size.n, size.e, {near.values, m}, m, {}, {near.slopes, m}, NULL);
                for (int64_t i = 0; i < size.n; i++) {
                    float *row = near.weights + i * m, *slope = near.slopes + i * m;
                    hide(row, size.m, m, factor, mask->start ? mask->at(b, h, i) : NULL);
                    float total = sums[(b * size.h + h) * size.n + i];
                    float known = total == -INFINITY ? 0.0f : total;
                    Vector product = all(0.0f);
                    for (int64_t j = 0; j < size.e; j += LANES)
                        product += load(output->at(b, h, i) + j) * load(above.start + i * above.row + j);
                    float mean = sum(product);
                    for (int64_t j = 0; j < m; j += LANES) {
                        Vector weight = exponential(load(row + j) - known);
                        store(row + j, weight);
                        store(slope + j, weight * (load(slope + j) - mean) * factor);
                    }
                }
                turn({near.weights, m}, size.n, size.m, near.turned, n);
                turn({near.slopes, m}, size.n, size.m, near.slopes_turned, n);
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
