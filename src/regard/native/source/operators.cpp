/* The operators torch.ops.regard.*, registered through PyTorch's stable interface. */

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/Exception.h>

#include <optional>
#include <tuple>
#include <vector>

#include "backward.h"
#include "beam.h"
#include "decoder.h"
#include "dropout.h"

using torch::headeronly::ScalarType;
using torch::stable::Tensor;
using Maybe = std::optional<Tensor>;

template <typename Task> void share_out(int64_t tasks, int64_t threads, const Task &task)
{
    if (threads == 1 || tasks == 1) {
        for (int64_t i = 0; i < tasks; i++)
            task(i, 0);
        return;
    }
    /* Whichever thread is free takes the next few, which lie side by side in memory. */
    int64_t few = std::max<int64_t>(1, tasks / (threads * 16));
    std::atomic<int64_t> next(0);
    torch::stable::parallel_for(0, threads, 1, [&](int64_t begin, int64_t end) {
        for (int64_t thread = begin; thread < end; thread++)
            for (int64_t first; (first = next.fetch_add(few)) < tasks;)
                for (int64_t i = first; i < std::min(first + few, tasks); i++)
                    task(i, thread);
    });
}

static Tensor empty(const std::vector<int64_t> &shape, ScalarType dtype)
{
    return torch::stable::empty(
        torch::headeronly::IntHeaderOnlyArrayRef(shape.data(), shape.size()), dtype);
}

static Tensor zeros(const std::vector<int64_t> &shape)
{
    Tensor x = empty(shape, ScalarType::Float);
    return torch::stable::zero_(x);
}

/* The rows of a tensor (b, h, n, width), whose axes of length 1 are broadcast. */
template <typename T> static Rows<T> rows(const Tensor &x)
{
    auto step = [&](int64_t axis) { return x.size(axis) == 1 ? 0 : x.stride(axis); };
    return {(T *)x.data_ptr(), step(0), step(1), step(2)};
}
template <typename T> static Rows<T> rows(const Maybe &x)
{
    return x ? rows<T>(*x) : Rows<T>{NULL, 0, 0, 0};
}

/* The tensor itself if the elements of its rows are contiguous, else a copy. */
static Tensor by_rows(const Tensor &x)
{
    return x.dim() != 4 || x.size(3) <= 1 || x.stride(3) == 1 ? x : torch::stable::contiguous(x);
}
static Maybe by_rows(const Maybe &x) { return x ? Maybe(by_rows(*x)) : x; }

static void check_rows(const char *name, const Tensor &x, ScalarType dtype)
{
    STD_TORCH_CHECK(x.dim() == 4, name, " has ", x.dim(), " axes, expected 4");
    STD_TORCH_CHECK(x.is_cpu(), name, " is not on the CPU");
    STD_TORCH_CHECK(x.scalar_type() == dtype, name, " has the wrong dtype");
}

static void check_term(
    const char *name, const Maybe &x, ScalarType dtype, const Sizes &size, int64_t columns)
{
    if (!x)
        return;
    check_rows(name, *x, dtype);
    int64_t wanted[] = {size.b, size.h, size.n};
    for (int64_t axis = 0; axis < 3; axis++)
        STD_TORCH_CHECK(x->size(axis) == 1 || x->size(axis) == wanted[axis], name, " has the wrong shape");
    STD_TORCH_CHECK(x->size(3) == columns, name, " has the wrong shape");
}

static void check_exactly(
    const char *name, const Tensor &x, ScalarType dtype, std::initializer_list<int64_t> shape)
{
    check_rows(name, x, dtype);
    int64_t axis = 0;
    for (int64_t wanted : shape)
        STD_TORCH_CHECK(x.size(axis++) == wanted, name, " has the wrong shape");
}

/* The data of a tensor; raises unless it is `count` contiguous float32 on the CPU. */
static const float *floats(const char *name, const Tensor &x, int64_t count)
{
    STD_TORCH_CHECK(
        x.is_cpu() && x.scalar_type() == ScalarType::Float && x.is_contiguous() && x.numel() == count,
        name, " must be ", count, " contiguous float32 on the CPU");
    return (const float *)x.data_ptr();
}
static const float *floats(const char *name, const Maybe &x, int64_t count)
{
    return x ? floats(name, *x, count) : NULL;
}

static Sizes sizes(const Tensor &q, const Tensor &k, const Tensor &v)
{
    for (auto [name, x] : {std::pair{"q", &q}, {"k", &k}, {"v", &v}})
        check_rows(name, *x, q.scalar_type());
    Sizes size = {q.size(0), q.size(1), k.size(1), q.size(2), k.size(2), q.size(3), v.size(3)};
    STD_TORCH_CHECK(
        q.scalar_type() == ScalarType::Float || q.scalar_type() == ScalarType::BFloat16,
        "q must be float32 or bfloat16");
    STD_TORCH_CHECK(
        k.size(0) == size.b && v.size(0) == size.b && v.size(1) == size.groups
            && v.size(2) == size.m && k.size(3) == size.d,
        "q, k and v do not fit together");
    STD_TORCH_CHECK(size.groups > 0 && size.h % size.groups == 0, "heads must share key heads evenly");
    STD_TORCH_CHECK(size.d <= STRIDE && size.e <= STRIDE, "heads are wider than ", STRIDE);
    return size;
}

static Problem problem(
    const Tensor &q, const Tensor &k, const Tensor &v, double scale, double softcap, int64_t low,
    int64_t high, const Maybe &first, const Maybe &last, const Maybe &mask, const Maybe &bias,
    const Maybe &relative, double dropout, const Maybe &seed)
{
    Sizes size = sizes(q, k, v);
    check_term("first", first, ScalarType::Long, {size.b, 1, 1, size.n, 0, 0, 0}, 1);
    check_term("last", last, ScalarType::Long, {size.b, 1, 1, size.n, 0, 0, 0}, 1);
    check_term("mask", mask, ScalarType::Bool, size, size.m);
    check_term("bias", bias, ScalarType::Float, size, size.m);
    STD_TORCH_CHECK(dropout >= 0 && dropout < 1, "dropout must be at least 0 and less than 1");
    STD_TORCH_CHECK(
        dropout == 0 || (seed && seed->numel() == 1 && seed->scalar_type() == ScalarType::Long),
        "dropout needs a seed of one int64");
    uint64_t number = dropout > 0 ? *(const uint64_t *)seed->data_ptr() : 0;
    int64_t far = INT64_C(1) << 40; /* so that no sum overflows */
    return {
        size, (float)scale, (float)softcap, std::max(low, -far), std::min(high, far),
        rows<const int64_t>(first), rows<const int64_t>(last), rows<const uint8_t>(mask),
        rows<const float>(bias), floats("relative", relative, size.h * (size.n + size.m - 1)),
        number, (uint32_t)(dropout * 4294967296.0), (float)(1 / (1 - dropout))};
}

/* Calls run with a null pointer to the type of a dtype. */
template <typename Run> static void with_type(ScalarType dtype, const Run &run)
{
    dtype == ScalarType::Float ? run((float *)NULL) : run((BFloat16 *)NULL);
}

/* A new tensor (b, h, n, width) of which the heads of a row are contiguous. */
static Tensor side_by_side(int64_t b, int64_t h, int64_t n, int64_t width, ScalarType dtype)
{
    return torch::stable::transpose(empty({b, n, h, width}, dtype), 1, 2);
}

std::tuple<Tensor, Tensor, Tensor> attend(
    Tensor q, Tensor k, Tensor v, double scale, double softcap, int64_t low, int64_t high,
    Maybe first, Maybe last, Maybe mask, Maybe bias, Maybe relative, double dropout, Maybe seed)
{
    q = by_rows(q), k = by_rows(k), v = by_rows(v), mask = by_rows(mask), bias = by_rows(bias);
    Problem of = problem(q, k, v, scale, softcap, low, high, first, last, mask, bias, relative, dropout, seed);
    const Sizes &size = of.size;
    Tensor output = side_by_side(size.b, size.h, size.n, size.e, q.scalar_type());
    Tensor highest = empty({size.b, size.h, size.n}, ScalarType::Float);
    Tensor total = empty({size.b, size.h, size.n}, ScalarType::Float);
    with_type(q.scalar_type(), [&](auto *typed) {
        typedef std::remove_pointer_t<decltype(typed)> T;
        Tensors<T> x = {
            rows<const T>(q), rows<const T>(k), rows<const T>(v), rows<T>(output),
            (float *)highest.data_ptr(), (float *)total.data_ptr()};
        attend_any<T>(of, x, torch::stable::get_num_threads());
    });
    return {output, highest, total};
}

/* The gradients of q, k and v; of the bias (b, h, n, m) and the relative bias (h, n + m - 1) if they are
 * wanted, else tensors without elements.
 */
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> attend_backward(
    Tensor grad, Maybe grad_total, Tensor q, Tensor k, Tensor v, Tensor output, Tensor highest,
    Tensor total, double scale, double softcap, int64_t low, int64_t high, Maybe first, Maybe last,
    Maybe mask, Maybe bias, Maybe relative, double dropout, Maybe seed, bool bias_wanted,
    bool relative_wanted)
{
    q = by_rows(q), k = by_rows(k), v = by_rows(v), mask = by_rows(mask), bias = by_rows(bias);
    grad = by_rows(grad), output = by_rows(output);
    Problem of = problem(q, k, v, scale, softcap, low, high, first, last, mask, bias, relative, dropout, seed);
    const Sizes &size = of.size;
    ScalarType dtype = q.scalar_type();
    check_exactly("grad", grad, dtype, {size.b, size.h, size.n, size.e});
    check_exactly("output", output, dtype, {size.b, size.h, size.n, size.e});
    int64_t queries = size.b * size.h * size.n;
    floats("highest", highest, queries), floats("total", total, queries);
    Tensor dq = side_by_side(size.b, size.h, size.n, size.d, dtype);
    Tensor dk = side_by_side(size.b, size.groups, size.m, size.d, dtype);
    Tensor dv = side_by_side(size.b, size.groups, size.m, size.e, dtype);
    int64_t threads = torch::stable::get_num_threads(), units = size.b * size.groups;
    int64_t chunks = units < threads && units ? std::min((threads + units - 1) / units, size.n) : 1;
    Tensor to_bias = zeros(bias_wanted ? std::vector{size.b, size.h, size.n, size.m} : std::vector<int64_t>{0});
    Tensor along = zeros(relative_wanted
        ? std::vector{chunks * size.b, size.h, size.n + size.m - 1} : std::vector<int64_t>{0});
    with_type(dtype, [&](auto *typed) {
        typedef std::remove_pointer_t<decltype(typed)> T;
        Tensors<T> x = {rows<const T>(q), rows<const T>(k), rows<const T>(v), {NULL, 0, 0, 0},
                        (float *)highest.data_ptr(), (float *)total.data_ptr()};
        Gradients<T> y = {
            rows<const T>(grad), rows<const T>(output),
            floats("grad_total", grad_total, queries), rows<T>(dq), rows<T>(dk),
            rows<T>(dv), bias_wanted ? rows<float>(to_bias) : Rows<float>{NULL, 0, 0, 0},
            relative_wanted ? (float *)along.data_ptr() : NULL};
        backward_all(of, x, y, threads, chunks);
    });
    if (relative_wanted) {
        std::vector<int64_t> axis = {0};
        along = torch::stable::sum(along, torch::headeronly::IntHeaderOnlyArrayRef(axis.data(), 1));
    }
    return {dq, dk, dv, to_bias, along};
}

/* Of every row: the largest score, the sum of exp(score - largest), the entropy of the weights, and the
 * `count` largest scores with their keys, -inf and -1 where there are fewer.
 */
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> statistics(
    Tensor q, Tensor k, double scale, double softcap, int64_t low, int64_t high, Maybe first, Maybe last,
    Maybe mask, Maybe bias, Maybe relative, int64_t count)
{
    q = by_rows(q), k = by_rows(k), mask = by_rows(mask), bias = by_rows(bias);
    Problem of = problem(q, k, k, scale, softcap, low, high, first, last, mask, bias, relative, 0, {});
    const Sizes &size = of.size;
    STD_TORCH_CHECK(count >= 0, "count must not be negative");
    Tensor highest = empty({size.b, size.h, size.n}, ScalarType::Float);
    Tensor total = empty({size.b, size.h, size.n}, ScalarType::Float);
    Tensor entropy = empty({size.b, size.h, size.n}, ScalarType::Float);
    Tensor scores = empty({size.b, size.h, size.n, count}, ScalarType::Float);
    Tensor keys = empty({size.b, size.h, size.n, count}, ScalarType::Long);
    Statistics into = {(float *)entropy.data_ptr(), count, (float *)scores.data_ptr(),
                       (int64_t *)keys.data_ptr()};
    std::fill(into.scores, into.scores + scores.numel(), -INFINITY);
    std::fill(into.keys, into.keys + keys.numel(), -1);
    with_type(q.scalar_type(), [&](auto *typed) {
        typedef std::remove_pointer_t<decltype(typed)> T;
        Tensors<T> x = {rows<const T>(q), rows<const T>(k), rows<const T>(k), {NULL, 0, 0, 0},
                        (float *)highest.data_ptr(), (float *)total.data_ptr()};
        attend_all(of, x, torch::stable::get_num_threads(), &into);
    });
    return {highest, total, entropy, scores, keys};
}

Tensor drop(Tensor x, Maybe onto, Tensor seed, int64_t share, int64_t of)
{
    int64_t count = x.numel();
    STD_TORCH_CHECK(0 <= share && share < of && of <= (INT64_C(1) << 32), "drop: share must be less than of");
    STD_TORCH_CHECK(seed.numel() == 1 && seed.scalar_type() == ScalarType::Long, "seed must be one int64");
    Tensor y = torch::stable::empty_like(x);
    drop(torch::stable::get_num_threads(), count, *(const uint64_t *)seed.data_ptr(),
         (uint32_t)(share * ((INT64_C(1) << 32) / of)), (float)of / (of - share), floats("x", x, count),
         floats("onto", onto, count), (float *)y.data_ptr());
    return y;
}

std::tuple<Tensor, Tensor, Tensor> best_words(Tensor logits, Tensor log_p, int64_t count)
{
    STD_TORCH_CHECK(
        logits.dim() == 2 && log_p.dim() == 2 && logits.size(0) == log_p.numel() && count > 0
            && logits.size(1) > 0,
        "best_words: logits (s k, vocabulary) and log_p (s, k) do not fit together");
    int64_t s = log_p.size(0);
    Tensor found = empty({s, count}, ScalarType::Float);
    Tensor beginnings = empty({s, count}, ScalarType::Long), words = empty({s, count}, ScalarType::Long);
    best_words(s, log_p.size(1), logits.size(1), count, floats("logits", logits, logits.numel()),
               floats("log_p", log_p, log_p.numel()), (float *)found.data_ptr(),
               (int64_t *)beginnings.data_ptr(), (int64_t *)words.data_ptr());
    return {found, beginnings, words};
}

/* x (rows, d) W + b, with W (d, n), where n is a multiple of 16. */
Tensor affine(Tensor x, Tensor weight, Maybe bias)
{
    STD_TORCH_CHECK(x.dim() == 2 && weight.dim() == 2 && x.size(1) == weight.size(0), "affine: x and weight");
    int64_t rows = x.size(0), d = x.size(1), n = weight.size(1);
    STD_TORCH_CHECK(n % LANES == 0, "affine: columns must be a multiple of ", LANES);
    Tensor y = empty({rows, n}, ScalarType::Float);
    multiply(floats("x", x, rows * d), rows, d, floats("weight", weight, d * n), n,
             {floats("bias", bias, n), false, NULL}, (float *)y.data_ptr());
    return y;
}

/* The same with W in panels, of float32 or in pairs of bfloat16. */
Tensor affine_panels(Tensor x, Tensor panels, Maybe bias, int64_t n)
{
    int64_t d = x.size(1), rows = x.size(0);
    bool in_pairs = panels.scalar_type() == ScalarType::BFloat16;
    STD_TORCH_CHECK(
        x.dim() == 2 && n % LANES == 0 && panels.numel() == d * n && panels.is_contiguous()
            && panels.is_cpu() && (in_pairs ? d % 2 == 0 : panels.scalar_type() == ScalarType::Float),
        "affine_panels: x and panels do not fit together");
    Tensor y = empty({rows, n}, ScalarType::Float);
    multiply_by_panels(floats("x", x, rows * d), rows, d, {panels.data_ptr(), in_pairs}, n,
                       {floats("bias", bias, n), false, NULL}, (float *)y.data_ptr());
    return y;
}

/* The same in int8: W in panels of four rows at a time, 128 added to each element, and a scale per column. */
Tensor affine_int8(Tensor x, Tensor panels, Tensor scales, Maybe bias)
{
    int64_t rows = x.size(0), d = x.size(1), n = scales.numel();
    STD_TORCH_CHECK(
        x.dim() == 2 && n % LANES == 0 && d % 4 == 0 && panels.numel() == d * n && panels.is_contiguous()
            && panels.is_cpu() && panels.scalar_type() == ScalarType::Byte,
        "affine_int8: x and panels do not fit together");
    Tensor y = empty({rows, n}, ScalarType::Float);
    multiply_by_panels(floats("x", x, rows * d), rows, d,
                       Int8Panels{(const Quad *)panels.data_ptr(), floats("scales", scales, n)}, n,
                       {floats("bias", bias, n), false, NULL}, (float *)y.data_ptr());
    return y;
}

Tensor layer_norm(Tensor x, Tensor weight, Tensor bias, double eps)
{
    int64_t width = weight.numel();
    STD_TORCH_CHECK(
        x.dim() > 0 && x.size(-1) == width && width % LANES == 0,
        "layer_norm: the width of x must be that of weight, a multiple of ", LANES);
    Tensor y = torch::stable::empty_like(x);
    normalize(x.numel() / (width ? width : 1), width, (float)eps, floats("x", x, x.numel()),
              floats("weight", weight, width), floats("bias", bias, width), (float *)y.data_ptr());
    return y;
}

/* One step of a decoder, see `decode`. own are keys and values (b, g, room, d) of every block in turn,
 * memory those of the source (m, g, s, d); panels and vectors are the weights, block after block.
 */
Tensor decoder_step(
    Tensor x, Tensor panels, Maybe scales, Tensor vectors, std::vector<Tensor> own,
    std::vector<Tensor> memory, Tensor mask, Maybe memory_mask, int64_t length, int64_t heads, int64_t inner, bool norm_first,
    double eps)
{
    STD_TORCH_CHECK(x.dim() == 3 && own.size() == memory.size() && own.size() >= 2, "decoder_step: x, own, memory");
    int64_t b = x.size(0), n = x.size(1), width = x.size(2), depth = own.size() / 2;
    int64_t groups = own[0].size(1), d = own[0].size(3), m = memory[0].size(0), s = memory[0].size(2);
    int64_t packed = width + 2 * groups * d, rows_ = b * n;
    STD_TORCH_CHECK(
        heads * d == width && m > 0 && rows_ % m == 0 && width % LANES == 0 && inner % LANES == 0
            && d % LANES == 0 && groups > 0 && heads % groups == 0 && length >= 0,
        "decoder_step: the sizes do not fit together");
    for (size_t i = 0; i < own.size(); i++) {
        check_rows("own", own[i], ScalarType::Float);
        check_exactly("memory", memory[i], ScalarType::Float, {m, groups, s, d});
        STD_TORCH_CHECK(
            own[i].size(0) == b && own[i].size(1) == groups && own[i].size(2) >= length + n
                && own[i].size(3) == d && own[i].stride(3) == 1 && memory[i].stride(3) == 1,
            "decoder_step: keys and values have the wrong shape");
    }
    mask = by_rows(mask), memory_mask = by_rows(memory_mask);
    check_term("mask", mask, ScalarType::Bool, {b, heads, groups, n, 0, 0, 0}, length + n);
    check_term("memory_mask", memory_mask, ScalarType::Bool, {m, heads, groups, rows_ / m, 0, 0, 0}, s);
    bool in_pairs = panels.scalar_type() == ScalarType::BFloat16;
    int64_t products[] = {width * packed, width * width, width * width, width * width, width * inner, inner * width};
    int64_t lengths[] = {2 * width, packed, width, 2 * width, width, width, 2 * width, inner, width};
    int64_t columns[] = {packed, width, width, width, inner, width};
    int64_t each = 0, vector = 0;
    for (int64_t count : products)
        each += count;
    for (int64_t count : lengths)
        vector += count;
    STD_TORCH_CHECK(
        panels.numel() == depth * each && panels.is_contiguous() && panels.is_cpu()
            && (in_pairs || panels.scalar_type() == (scales ? ScalarType::Byte : ScalarType::Float)),
        "decoder_step: panels have the wrong size");
    const float *scale = floats("scales", scales, depth * (packed + 4 * width + inner));
    const char *weight = (const char *)panels.data_ptr();
    const float *known = floats("vectors", vectors, depth * vector);
    std::vector<Block> blocks(depth);
    for (int64_t i = 0; i < depth; i++) {
        int product = 0, place = 0;
        auto norm = [&] {
            Affine made = {known, known + width, NULL};
            known += lengths[place++];
            return made;
        };
        auto affine = [&] {
            Affine made = {weight, known, scale};
            scale = scale ? scale + columns[product] : NULL;
            known += lengths[place++], weight += products[product++] * panels.element_size();
            return made;
        };
        Block &y = blocks[i];
        y.attention_norm = norm(), y.projections = affine(), y.combination = affine();
        y.cross_norm = norm(), y.queries = affine(), y.cross_combination = affine();
        y.feed_forward_norm = norm(), y.in = affine(), y.out = affine();
        y.k = rows<float>(own[2 * i]), y.v = rows<float>(own[2 * i + 1]);
        y.memory_k = rows<const float>(memory[2 * i]), y.memory_v = rows<const float>(memory[2 * i + 1]);
    }
    Tensor y = torch::stable::clone(torch::stable::contiguous(x));
    floats("x", y, rows_ * width);
    Buffer scratch(rows_ * (2 * width + std::max(packed, inner)));
    Decoder of = {depth, width, heads, groups, d, inner, norm_first, in_pairs,
                  (float)eps, (float)(1 / sqrt((double)d)), blocks.data()};
    decode(&of, b, n, length, m, s, rows<const uint8_t>(mask), rows<const uint8_t>(memory_mask),
           (float *)y.data_ptr(), scratch.start());
    return y;
}

#define PAIRS                                                                             \
    "float scale, float softcap, int low, int high, Tensor? first, Tensor? last, "        \
    "Tensor? mask, Tensor? bias, Tensor? relative"
#define TERMS PAIRS ", float dropout, Tensor? seed"

STABLE_TORCH_LIBRARY(regard, m)
{
    m.def("attend(Tensor q, Tensor k, Tensor v, " TERMS ") -> (Tensor, Tensor, Tensor)");
    m.def("attend_backward(Tensor grad, Tensor? grad_total, Tensor q, Tensor k, Tensor v, "
          "Tensor output, Tensor highest, Tensor total, " TERMS ", bool bias_wanted, "
          "bool relative_wanted) -> (Tensor, Tensor, Tensor, Tensor, Tensor)");
    m.def("statistics(Tensor q, Tensor k, " PAIRS ", int count) -> "
          "(Tensor, Tensor, Tensor, Tensor, Tensor)");
    m.def("drop(Tensor x, Tensor? onto, Tensor seed, int share, int of) -> Tensor");
    m.def("best_words(Tensor logits, Tensor log_p, int count) -> (Tensor, Tensor, Tensor)");
    m.def("affine(Tensor x, Tensor weight, Tensor? bias) -> Tensor");
    m.def("affine_panels(Tensor x, Tensor panels, Tensor? bias, int n) -> Tensor");
    m.def("affine_int8(Tensor x, Tensor panels, Tensor scales, Tensor? bias) -> Tensor");
    m.def("layer_norm(Tensor x, Tensor weight, Tensor bias, float eps) -> Tensor");
    m.def("decoder_step(Tensor x, Tensor panels, Tensor? scales, Tensor vectors, Tensor(a!)[] own, Tensor[] memory, "
          "Tensor mask, Tensor? memory_mask, int length, int heads, int inner, bool norm_first, "
          "float eps) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(regard, CPU, m)
{
    m.impl("attend", TORCH_BOX(&attend));
    m.impl("attend_backward", TORCH_BOX(&attend_backward));
    m.impl("statistics", TORCH_BOX(&statistics));
    m.impl("drop", TORCH_BOX(static_cast<Tensor (&)(Tensor, Maybe, Tensor, int64_t, int64_t)>(drop)));
    m.impl("best_words", TORCH_BOX((static_cast<std::tuple<Tensor, Tensor, Tensor> (&)(Tensor, Tensor, int64_t)>(best_words))));
    m.impl("affine", TORCH_BOX(&affine));
    m.impl("affine_panels", TORCH_BOX(&affine_panels));
    m.impl("affine_int8", TORCH_BOX(&affine_int8));
    m.impl("layer_norm", TORCH_BOX(&layer_norm));
    m.impl("decoder_step", TORCH_BOX(&decoder_step));
}
