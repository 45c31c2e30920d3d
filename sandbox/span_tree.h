/* The spans of one trace as the rows of a drawing: each below its parent, brothers in the order of their starts. Pure.
 *
 * Each span is a row once, in any case: one whose parent is not here is at the top, and so is one span of those that
 * are each other's parents. */
#ifndef ISSUING_SANDBOX_SPAN_TREE_H
#define ISSUING_SANDBOX_SPAN_TREE_H

#include "common/lib/base/base.h"
#include "sandbox/spans.h"

struct span_row {
    const struct span *span;
    int depth;           /* 0 = at the top */
    bool is_orphan;      /* it names a parent that is not here */
    const char *service; /* the span's, where it is not that of the row's parent; else "" */
    uint64_t waited_ns;  /* of a consumer: since the one before it under its parent ended, else since its parent did */
};

struct span_tree {
    struct span_row *rows; /* owned */
    size_t count;
    uint64_t from_ns, to_ns; /* of all spans whose times are known; both 0 = of none */
};

/* Borrows the spans. False: no memory. */
must_check bool span_tree_make(const struct span *const *spans, size_t count, struct span_tree *ret_tree);
void span_tree_done(struct span_tree *tree);
/* 0 where an end is not known, or before the start. */
uint64_t span_took_ns(const struct span *span);

#endif
