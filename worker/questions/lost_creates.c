/* See lost_creates.h. */
#include "worker/questions/lost_creates.h"

#include <assert.h>

#include "common/lib/base/log.h"
#include "common/lib/pg/pg_place.h"
#include "statements.h"

#define QUERY_TIMEOUT_MS 5000
#define IDS_MAX (64 * 1024) /* bytes */

void lost_creates_init(struct lost_creates *lost, struct pg_pool *pool)
{
    *lost = (struct lost_creates){.pool = pool};
    buf_init(&lost->ids, IDS_MAX);
}

static void send_from(struct lost_creates *lost, int place);

static void on_reported(struct pg_query *query, const struct pg_query_result *result)
{
    struct lost_creates *lost = container_of(query, struct lost_creates, query);
    bool is_reported = result->kind == PG_DONE; /* else they are sent once more */
    int left = 0;
    for (int i = 0; i < lost->count; i++) {
        struct lost_create event = lost->events[i];
        if (event.is_sent && is_reported)
            continue;
        event.is_sent = false;
        lost->events[left++] = event;
    }
    lost->count = left;
    lost->is_sending = false;
    send_from(lost, query->place + 1);
    /* guard: what came while a report was under way does not wait for the next poll */
    if (is_reported)
        lost_creates_send(lost);
}

/* False: none lies in the place, or out of memory. */
static bool fill_ids(struct lost_creates *lost, int place)
{
    struct pg_array ids;
    int count = 0;
    pg_array_start(&ids, &lost->ids, PG_UUID);
    for (int i = 0; i < lost->count; i++)
        if (lost->events[i].place == place) {
            pg_array_add_uuid(&ids, &lost->events[i].event_id);
            count++;
        }
    lost->query.params[0] = pg_array_param(&ids);
    return count > 0 && !lost->ids.failed;
}

/* Those of the first place, from this one on, that has some. */
static void send_from(struct lost_creates *lost, int place)
{
    static const char why[] = "a create was sent by an attempt that had lost its lease";
    while (place < PG_PLACES_MAX && !fill_ids(lost, place))
        place++;
    if (place == PG_PLACES_MAX)
        return;
    for (int i = 0; i < lost->count; i++)
        lost->events[i].is_sent = lost->events[i].place == place;
    lost->is_sending = true;
    lost->query.statement = &sql_reconcile_ask;
    lost->query.place = place;
    lost->query.params[1] = pg_param_text(why, sizeof(why) - 1);
    lost->query.timeout_ms = QUERY_TIMEOUT_MS;
    lost->query.on_result = on_reported;
    pg_pool_submit(lost->pool, &lost->query);
}

void lost_creates_send(struct lost_creates *lost)
{
    if (!lost->is_sending && lost->count > 0)
        send_from(lost, 0);
}

static void log_not_reported(const struct uuid *event_id)
{
    char text[UUID_TEXT_SIZE];
    uuid_format(event_id, text);
    log_error("an event that should be looked up could not be noted: use issuing-ctl reconcile",
              LOG_TEXT("event_id", text));
}

void lost_creates_add(struct lost_creates *lost, int place, const struct uuid *event_id)
{
    if (lost->count == LOST_CREATES_MAX) {
        log_not_reported(event_id);
        return;
    }
    lost->events[lost->count++] = (struct lost_create){.event_id = *event_id, .place = place};
    lost_creates_send(lost);
}

bool lost_creates_is_idle(const struct lost_creates *lost)
{
    return !lost->is_sending;
}

void lost_creates_done(struct lost_creates *lost)
{
    assert(lost_creates_is_idle(lost));
    for (int i = 0; i < lost->count; i++)
        log_not_reported(&lost->events[i].event_id);
    buf_done(&lost->ids);
}
