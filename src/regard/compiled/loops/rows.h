/* Rows of numbers: where they begin, and how far apart batch entries, heads and rows are. The
 * numbers of a row lie side by side.
 */
template <typename Number> struct Rows {
    Number *start;
    int64_t batch, head, row;

    Number *at(int64_t b, int64_t h, int64_t i) const
    {
        return start + b * batch + h * head + i * row;
    }
};

struct Sizes {
    int64_t b, h, groups, n, m, d, e;
};
