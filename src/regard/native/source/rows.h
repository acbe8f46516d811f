/* Where the rows of a tensor (b, h, n, width) lie; the elements of a row are contiguous. */
#pragma once

#include <stdint.h>

template <typename T> struct Rows {
    T *start;
    int64_t batch, head, row; /* strides, 0 along broadcast axes */

    T *at(int64_t b, int64_t h, int64_t i) const
    {
        return start + b * batch + h * head + i * row;
    }
};

/* Batch, query heads, key heads, queries, keys, width of queries and keys, width of values. */
struct Sizes {
    int64_t b, h, groups, n, m, d, e;
};
