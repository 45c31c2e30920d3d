/* Memory of the ledger. Invariants: rows and texts never move; a bucket's rows all have its low hash bits; buckets
 * never exceed rows by more than the first chunk. Left out: removing single rows (a reset frees everything). */
#include "sandbox/store.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_SIZE (1024 * 1024)
#define CHUNK_BITS 14
#define CHUNK_ROWS (1u << CHUNK_BITS)
#define CHUNKS_MAX (1u << (31 - CHUNK_BITS))

struct store_block {
    struct store_block *older;
    char bytes[BLOCK_SIZE];
};

struct node {
    uint32_t next;
    uint32_t hash;
};

const char *store_texts_put(struct store_texts *texts, struct slice text)
{
    if (text.length >= BLOCK_SIZE)
        return NULL;
    if (!texts->blocks || BLOCK_SIZE - texts->used <= text.length) {
        struct store_block *block = malloc(sizeof(*block));
        if (!block)
            return NULL;
        block->older = texts->blocks;
        texts->blocks = block;
        texts->used = 0;
    }
    char *copy = texts->blocks->bytes + texts->used;
    if (text.length)
        memcpy(copy, text.bytes, text.length);
    copy[text.length] = '\0';
    texts->used += text.length + 1;
    return copy;
}

void store_texts_done(struct store_texts *texts)
{
    while (texts->blocks) {
        struct store_block *older = texts->blocks->older;
        free(texts->blocks);
        texts->blocks = older;
    }
    texts->used = 0;
}

bool store_rows_init(struct store_rows *rows, size_t row_size)
{
    /* 1 MiB of address space; only the pages in use are ever touched */
    *rows = (struct store_rows){.chunks = calloc(CHUNKS_MAX, sizeof(char *)), .row_size = row_size};
    return rows->chunks != NULL;
}

void store_rows_done(struct store_rows *rows)
{
    for (uint32_t chunk = 0; rows->chunks && chunk < CHUNKS_MAX && rows->chunks[chunk]; chunk++)
        free(rows->chunks[chunk]);
    free(rows->chunks);
    *rows = (struct store_rows){0};
}

void *store_rows_add(struct store_rows *rows)
{
    uint32_t chunk = rows->count >> CHUNK_BITS;
    if (chunk >= CHUNKS_MAX)
        return NULL;
    if (!rows->chunks[chunk]) {
        rows->chunks[chunk] = malloc(CHUNK_ROWS * rows->row_size);
        if (!rows->chunks[chunk])
            return NULL;
    }
    void *row = store_rows_at(rows, rows->count++);
    memset(row, 0, rows->row_size);
    return row;
}

void store_rows_drop_last(struct store_rows *rows)
{
    assert(rows->count > 0);
    rows->count--;
}

void *store_rows_at(const struct store_rows *rows, uint32_t row)
{
    return rows->chunks[row >> CHUNK_BITS] + (row & (CHUNK_ROWS - 1)) * rows->row_size;
}

bool store_index_init(struct store_index *index)
{
    *index = (struct store_index){.size = CHUNK_ROWS};
    if (!store_rows_init(&index->buckets, sizeof(uint32_t)))
        return false;
    if (!store_rows_init(&index->nodes, sizeof(struct node))) {
        store_rows_done(&index->buckets);
        return false;
    }
    for (uint32_t bucket = 0; bucket < CHUNK_ROWS; bucket++) {
        uint32_t *first = store_rows_add(&index->buckets);
        if (!first) {
            store_index_done(index);
            return false;
        }
        *first = STORE_NONE;
    }
    return true;
}

void store_index_done(struct store_index *index)
{
    store_rows_done(&index->buckets);
    store_rows_done(&index->nodes);
}

static uint32_t *bucket_of(const struct store_index *index, uint32_t hash)
{
    uint32_t bucket = hash & (2 * index->size - 1);
    if (bucket >= index->buckets.count)
        bucket = hash & (index->size - 1);
    return store_rows_at(&index->buckets, bucket);
}

/* Adds one bucket and moves into it what belongs there from its elder half. A failure only leaves the chains longer. */
static void split_one(struct store_index *index)
{
    uint32_t *added = store_rows_add(&index->buckets);
    if (!added)
        return;
    uint32_t bucket = index->buckets.count - 1;
    if (bucket == 2 * index->size)
        index->size *= 2;
    *added = STORE_NONE;
    uint32_t *link = store_rows_at(&index->buckets, bucket - index->size);
    while (*link != STORE_NONE) {
        uint32_t row = *link;
        struct node *node = store_rows_at(&index->nodes, row);
        if ((node->hash & (2 * index->size - 1)) == bucket) {
            *link = node->next;
            node->next = *added;
            *added = row;
        } else {
            link = &node->next;
        }
    }
}

bool store_index_add(struct store_index *index, uint32_t hash)
{
    struct node *node = store_rows_add(&index->nodes);
    if (!node)
        return false;
    if (index->nodes.count > index->buckets.count)
        split_one(index);
    uint32_t *first = bucket_of(index, hash);
    *node = (struct node){.next = *first, .hash = hash};
    *first = index->nodes.count - 1;
    return true;
}

void store_index_drop_last(struct store_index *index)
{
    uint32_t row = index->nodes.count - 1;
    const struct node *node = store_rows_at(&index->nodes, row);
    uint32_t *first = bucket_of(index, node->hash);
    assert(*first == row);
    *first = node->next;
    store_rows_drop_last(&index->nodes);
}

static uint32_t skip_to(const struct store_index *index, uint32_t row, uint32_t hash)
{
    while (row != STORE_NONE) {
        const struct node *node = store_rows_at(&index->nodes, row);
        if (node->hash == hash)
            break;
        row = node->next;
    }
    return row;
}

uint32_t store_index_first(const struct store_index *index, uint32_t hash)
{
    return skip_to(index, *bucket_of(index, hash), hash);
}

uint32_t store_index_next(const struct store_index *index, uint32_t row)
{
    const struct node *node = store_rows_at(&index->nodes, row);
    return skip_to(index, node->next, node->hash);
}

uint64_t store_hash(uint64_t seed, struct slice text)
{
    uint64_t hash = seed ^ (text.length * UINT64_C(0x9e3779b97f4a7c15));
    const char *at = text.bytes;
    size_t left = text.length;
    while (left > 0) {
        uint64_t word = 0;
        size_t taken = left < sizeof(word) ? left : sizeof(word);
        memcpy(&word, at, taken);
        hash = (hash ^ word) * UINT64_C(0xff51afd7ed558ccd);
        hash ^= hash >> 32;
        at += taken;
        left -= taken;
    }
    hash *= UINT64_C(0xc4ceb9fe1a85ec53);
    return hash ^ (hash >> 29);
}
