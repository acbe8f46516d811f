/* All blocks of a decoder in one call, for a step of decoding. */
#pragma once

#include "few_queries.h"
#include "int8.h"

/* Layer norm of rows of a width that is a multiple of 16; Ba et al., 2016. */
static void normalize(
    int64_t rows, int64_t width, float eps, const float *x, const float *weight,
    const float *bias, float *y)
{
    for (int64_t r = 0; r < rows; r++, x += width, y += width) {
        Vector total = all(0.0f), squares = all(0.0f);
        for (int64_t i = 0; i < width; i += LANES)
            total += load(x + i);
        float mean = sum(total) / width;
        for (int64_t i = 0; i < width; i += LANES) {
            Vector off = load(x + i) - mean;
            squares += off * off;
        }
        float scale = 1.0f / sqrtf(sum(squares) / width + eps);
        for (int64_t i = 0; i < width; i += LANES)
            store(y + i, (load(x + i) - mean) * scale * load(weight + i) + load(bias + i));
    }
}

/* The weight of a norm, or that of a product in panels, see `multiply_by_panels`. */
struct Affine {
    const void *weight;
    const float *bias;
    const float *scales; /* of columns in int8, else NULL */
};

/* A block of a decoder, and its cached keys and values. */
struct Block {
    Affine attention_norm, projections, combination;
    Affine cross_norm, queries, cross_combination;
    Affine feed_forward_norm, in, out;
    Rows<float> k, v;                    /* of the words so far, with room for those of this step */
    Rows<const float> memory_k, memory_v;
};

struct Decoder {
    int64_t depth, width, heads, groups, head_width, inner;
    int64_t norm_first, in_pairs;
    float eps, factor;
    const Block *blocks;
};

/* One step of a decoder: x (b, n, width) becomes the output of its blocks, which attend to `length`
 * cached words and a memory of m sentences of s words. The keys and values of x are written behind
 * those words. scratch holds rows * (2 * width + the wider of projections and inner).
 */
static void decode(
    const Decoder *of, int64_t b, int64_t n, int64_t length, int64_t m, int64_t s,
    const Rows<const uint8_t> &mask, const Rows<const uint8_t> &memory_mask, float *x,
    float *scratch)
{
    int64_t rows = b * n, width = of->width, d = of->head_width, narrow = of->groups * d;
    int64_t packed = width + 2 * narrow, each = rows / m;
    float *normed = scratch, *joined = normed + rows * width, *wide = joined + rows * width;
    Rows<float> own_out = {joined, n * width, d, width}, cross_out = {joined, each * width, d, width};
    Problem own = {}, cross = {};
    own.size = {b, of->heads, of->groups, n, length + n, d, d}, own.mask = mask;
    cross.size = {m, of->heads, of->groups, each, s, d, d}, cross.mask = memory_mask;
    for (Problem *one : {&own, &cross})
        one->scale = of->factor, one->low = -one->size.n, one->high = one->size.m;
    bool before = of->norm_first;

    for (int64_t i = 0; i < of->depth; i++) {
        const Block &block = of->blocks[i];
        auto norm = [&](Affine by, float *to) {
            normalize(rows, width, of->eps, x, (const float *)by.weight, by.bias, to);
            return to;
        };
        auto product = [&](const float *y, int64_t from, Affine by, int64_t to, bool relu,
                           const float *onto, float *into) {
            Then then = {by.bias, relu, onto};
            if (by.scales)
                multiply_by_panels(
                    y, rows, from, Int8Panels{(const Quad *)by.weight, by.scales}, to, then, into);
            else
                multiply_by_panels(y, rows, from, Panels{by.weight, of->in_pairs}, to, then, into);
        };
        const float *y = before ? norm(block.attention_norm, normed) : x;
        product(y, width, block.projections, packed, false, NULL, wide);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t g = 0; g < of->groups; g++) {
                const float *made = wide + r * packed + width + g * d;
                memcpy(block.k.at(r / n, g, length + r % n), made, d * sizeof *made);
                memcpy(block.v.at(r / n, g, length + r % n), made + narrow, d * sizeof *made);
            }
        Rows<const float> q = {wide, n * packed, d, packed};
        Rows<const float> k = {block.k.start, block.k.batch, block.k.head, block.k.row};
        Rows<const float> v = {block.v.start, block.v.batch, block.v.head, block.v.row};
        attend_any<float>(own, {q, k, v, own_out, NULL, NULL}, 1);
        product(joined, width, block.combination, width, false, x, x);
        if (!before)
            norm(block.attention_norm, x);

        y = before ? norm(block.cross_norm, normed) : x;
        q = {wide, each * width, d, width};
        product(y, width, block.queries, width, false, NULL, wide);
        attend_any<float>(cross, {q, block.memory_k, block.memory_v, cross_out, NULL, NULL}, 1);
        product(joined, width, block.cross_combination, width, false, x, x);
        if (!before)
            norm(block.cross_norm, x);

        y = before ? norm(block.feed_forward_norm, normed) : x;
        product(y, width, block.in, of->inner, true, NULL, wide);
        product(wide, of->inner, block.out, width, false, x, x);
        if (!before)
            norm(block.feed_forward_norm, x);
    }
}
