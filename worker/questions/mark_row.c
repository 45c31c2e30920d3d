/* The row of a mark (mark.h). */
#include "worker/questions/mark.h"

#include <string.h>

#include "common/lib/base/clock.h"
#include "worker/flow/flow.h"

/* Columns of reconcile_take. */
enum {
    COL_ID,
    COL_EVENT,
    COL_ACTION,
    COL_ATTEMPTS,
    COL_HAS_ORPHAN,
    COL_STATUS,
    COL_USER,
    COL_SEEN,
    COL_SENT_AGE,
    COL_CARD,
    COL_CARD_ISSUER_ID,
    COL_CARD_STATUS,
    COL_PARAMETERS,
    COL_MADE,
    COL_TYPE,
    COL_ELSEWHERE,
    COL_TRACEPARENT,
    COL_TRACESTATE,
};

static void copy_text(char *to, size_t size, struct slice from)
{
    size_t length = from.bytes && from.length < size ? from.length : 0;
    if (length)
        memcpy(to, from.bytes, length);
    to[length] = '\0';
}

static bool text_is(struct slice text, const char *expected)
{
    return text.bytes && text.length == strlen(expected) && memcmp(text.bytes, expected, text.length) == 0;
}

static void read_facts(struct mark *mark, const struct pg_rows *rows, int row)
{
    struct slice status = pg_bytes(rows, row, COL_STATUS);
    int64_t steady_ms = db_clock_steady_ms(mark->env->db_clock, clock_mono_us());
    bool clock_stepped = !pg_is_null(rows, row, COL_SENT_AGE) && mark->age_ms < 0;
    mark->facts = (struct mark_facts){
        .is_reissue = text_is(pg_bytes(rows, row, COL_ACTION), "reissue"),
        /* guard: nothing found decides nothing before it is settled */
        .is_settled = !clock_stepped && attempt_settle_left_ms(mark->age_ms, steady_ms, mark_settle_ms(mark),
                                                               mark->env->config->worker.lease_ms) == 0,
        .has_card = !pg_is_null(rows, row, COL_CARD),
        .card_is_active = text_is(pg_bytes(rows, row, COL_CARD_STATUS), "active") ||
                          text_is(pg_bytes(rows, row, COL_CARD_STATUS), "frozen"),
        .has_orphan = pg_bool(rows, row, COL_HAS_ORPHAN),
        .is_elsewhere = pg_bool(rows, row, COL_ELSEWHERE),
        .tries = mark->attempts,
    };
    mark->facts.is_there = status.bytes && outbox_status_parse(status.bytes, status.length, &mark->facts.status);
}

/* NULL: the event is a card request, or gone. */
static struct route *route_of(const struct mark *mark, const struct pg_rows *rows, int row)
{
    char type[CONFIG_ROUTE_TYPE_SIZE];
    copy_text(type, sizeof(type), pg_bytes(rows, row, COL_TYPE));
    return routes_find(mark->env->routes, type);
}

void mark_row_read(const struct pg_rows *rows, int row, struct mark *mark)
{
    mark->id = pg_uuid(rows, row, COL_ID);
    mark->event_id = pg_uuid(rows, row, COL_EVENT);
    uuid_format(&mark->event_id, mark->event_text);
    trace_of_event(pg_bytes(rows, row, COL_TRACEPARENT), pg_bytes(rows, row, COL_TRACESTATE), &mark->event_id,
                   &mark->trace);
    mark->is_traced = mark->env->exporter && exporter_wants(mark->env->exporter, &mark->trace, mark->span_parent);
    mark->route = route_of(mark, rows, row);
    mark->attempts = (int)pg_int8(rows, row, COL_ATTEMPTS);
    mark->seen_us = pg_is_null(rows, row, COL_SEEN) ? 0 : pg_int8(rows, row, COL_SEEN);
    mark->age_ms = pg_is_null(rows, row, COL_SENT_AGE) ? -1 : pg_int8(rows, row, COL_SENT_AGE);
    copy_text(mark->user_id, sizeof(mark->user_id), pg_bytes(rows, row, COL_USER));
    copy_text(mark->stored_issuer_id, sizeof(mark->stored_issuer_id), pg_bytes(rows, row, COL_CARD_ISSUER_ID));
    mark->made_ms = pg_int8(rows, row, COL_MADE);
    event_parameters_start(&mark->parameters, mark->env->parameters, mark->user_id,
                           pg_bytes(rows, row, COL_PARAMETERS));
    read_facts(mark, rows, row);
    if (mark->facts.has_card)
        mark->card_id = pg_uuid(rows, row, COL_CARD);
}
