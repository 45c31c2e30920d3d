/* Append-only memory of the ledger: texts, rows of one size, and an index from a hash to rows. Nothing is ever moved,
 * so pointers stay valid until done, and growing never costs more than one row (linear hashing: Litwin, "Linear
 * hashing: a new tool for file and table addressing", 1980): a sandbox that stops to rehash a million cards would add
 * to the latencies that a bench measures. */
#ifndef ISSUING_SANDBOX_STORE_H
#define ISSUING_SANDBOX_STORE_H

#include "common/lib/base/base.h"

#define STORE_NONE UINT32_MAX

struct store_texts {
    struct store_block *blocks;
    size_t used; /* of the newest block */
};

/* NUL-terminated copy; NULL when memory is out. */
const char *store_texts_put(struct store_texts *texts, struct slice text);
void store_texts_done(struct store_texts *texts);

struct store_rows {
    char **chunks;
    size_t row_size;
    uint32_t count;
};

must_check bool store_rows_init(struct store_rows *rows, size_t row_size);
void store_rows_done(struct store_rows *rows);
/* A new row of zeros at the end; NULL when memory is out. */
void *store_rows_add(struct store_rows *rows);
void store_rows_drop_last(struct store_rows *rows);
void *store_rows_at(const struct store_rows *rows, uint32_t row);

/* Row numbers by hash. The owner's rows and the index grow together: the n-th add belongs to row n. */
struct store_index {
    struct store_rows buckets; /* uint32_t: first row */
    struct store_rows nodes;   /* {next row, hash} */
    uint32_t size;             /* buckets before the current doubling; a power of two */
};

must_check bool store_index_init(struct store_index *index);
void store_index_done(struct store_index *index);
must_check bool store_index_add(struct store_index *index, uint32_t hash);
void store_index_drop_last(struct store_index *index); /* undoes the last add, for an owner whose next step failed */
/* Walks the rows of a hash, in no order: STORE_NONE at the end. The caller compares what was hashed. */
uint32_t store_index_first(const struct store_index *index, uint32_t hash);
uint32_t store_index_next(const struct store_index *index, uint32_t row);

uint64_t store_hash(uint64_t seed, struct slice text);

#endif
