/* See holders.h. Invariant: rows are only appended, so that a holder outlives POST /reset as it would at an issuer. */
#include "sandbox/holders.h"

#include <stdlib.h>

#include "sandbox/store.h"

struct holder {
    const char *id, *user_id;
};

struct holders {
    struct store_texts texts;
    struct store_rows rows;
    struct store_index by_id;
};

struct holders *holders_new(void)
{
    struct holders *holders = calloc(1, sizeof(*holders));
    if (!holders)
        return NULL;
    if (!store_rows_init(&holders->rows, sizeof(struct holder)) || !store_index_init(&holders->by_id)) {
        store_rows_done(&holders->rows);
        free(holders);
        return NULL;
    }
    return holders;
}

void holders_free(struct holders *holders)
{
    if (!holders)
        return;
    store_texts_done(&holders->texts);
    store_rows_done(&holders->rows);
    store_index_done(&holders->by_id);
    free(holders);
}

const char *holders_user(const struct holders *holders, struct slice id)
{
    uint32_t at = store_index_first(&holders->by_id, (uint32_t)store_hash(0, id));
    for (; at != STORE_NONE; at = store_index_next(&holders->by_id, at)) {
        const struct holder *holder = store_rows_at(&holders->rows, at);
        if (slice_is(id, holder->id))
            return holder->user_id;
    }
    return NULL;
}

bool holders_put(struct holders *holders, struct slice id, struct slice user_id)
{
    if (holders_user(holders, id))
        return true;
    struct holder *holder = store_rows_add(&holders->rows);
    if (!holder)
        return false;
    holder->id = store_texts_put(&holders->texts, id);
    holder->user_id = store_texts_put(&holders->texts, user_id);
    if (holder->id && holder->user_id && store_index_add(&holders->by_id, (uint32_t)store_hash(0, id)))
        return true;
    store_rows_drop_last(&holders->rows);
    return false;
}
