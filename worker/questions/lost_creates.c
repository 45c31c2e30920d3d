/* See lost_creates.h. */
#include "worker/questions/lost_creates.h"

#include <assert.h>
#include <string.h>

#include "common/lib/base/log.h"
#include "statements.h"

#define QUERY_TIMEOUT_MS 5000
#define IDS_MAX (64 * 1024) /* bytes */

void lost_creates_init(struct lost_creates *lost, struct pg_pool *pool)
{
    *lost = (struct lost_creates){.pool = pool};
    buf_init(&lost->ids, IDS_MAX);
}

static void on_reported(struct pg_query *query, const struct pg_query_result *result)
{
    struct lost_creates *lost = container_of(query, struct lost_creates, query);
    int sent_count = lost->sent_count;
    lost->sent_count = 0;
    if (result->kind != PG_DONE)
        return; /* they are sent once more */
    lost->count -= sent_count;
    memmove(lost->event_ids, lost->event_ids + sent_count, (size_t)lost->count * sizeof(lost->event_ids[0]));
    /* guard: what came while a report was under way does not wait for the next poll */
    lost_creates_send(lost);
}

void lost_creates_send(struct lost_creates *lost)
{
    static const char why[] = "a create was sent by an attempt that had lost its lease";
    struct pg_array ids;
    if (lost->sent_count > 0 || lost->count == 0)
        return;
    pg_array_start(&ids, &lost->ids, PG_UUID);
    for (int i = 0; i < lost->count; i++)
        pg_array_add_uuid(&ids, &lost->event_ids[i]);
    if (lost->ids.failed)
        return;
    lost->sent_count = lost->count;
    lost->query.statement = &sql_reconcile_ask;
    lost->query.params[0] = pg_array_param(&ids);
    lost->query.params[1] = pg_param_text(why, sizeof(why) - 1);
    lost->query.timeout_ms = QUERY_TIMEOUT_MS;
    lost->query.on_result = on_reported;
    pg_pool_submit(lost->pool, &lost->query);
}

static void log_not_reported(const struct uuid *event_id)
{
    char text[UUID_TEXT_SIZE];
    uuid_format(event_id, text);
    log_error("an event that should be looked up could not be noted: use issuing-ctl reconcile",
              LOG_TEXT("event_id", text));
}

void lost_creates_add(struct lost_creates *lost, const struct uuid *event_id)
{
    if (lost->count == LOST_CREATES_MAX) {
        log_not_reported(event_id);
        return;
    }
    lost->event_ids[lost->count++] = *event_id;
    lost_creates_send(lost);
}

bool lost_creates_is_idle(const struct lost_creates *lost)
{
    return lost->sent_count == 0;
}

void lost_creates_done(struct lost_creates *lost)
{
    assert(lost_creates_is_idle(lost));
    for (int i = 0; i < lost->count; i++)
        log_not_reported(&lost->event_ids[i]);
    buf_done(&lost->ids);
}
