/* The row of a mark (mark.h). */
#include "worker/questions/mark.h"

#include "common/lib/base/clock.h"
#include "common/lib/base/slice.h"

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

static void read_facts(const struct pg_rows *rows, int row, struct mark *mark)
{
    struct slice status = pg_bytes(rows, row, COL_STATUS);
    const struct flow *flow = &mark->flow;
    int64_t steady_ms = db_clock_steady_ms(flow->env->worker->db_clock, clock_mono_us());
    int64_t age_ms = pg_is_null(rows, row, COL_SENT_AGE) ? -1 : pg_int8(rows, row, COL_SENT_AGE);
    bool clock_stepped = !pg_is_null(rows, row, COL_SENT_AGE) && age_ms < 0;
    mark->facts = (struct mark_facts){
        .is_reissue = slice_is(pg_bytes(rows, row, COL_ACTION), "reissue"),
        .is_delivery = flow->route,
        /* guard: nothing found decides nothing before it is settled */
        .settle_left_ms = clock_stepped ? -1
                                        : attempt_settle_left_ms(age_ms, steady_ms, flow_rules(flow).settle_time_ms,
                                                                 flow->env->worker->config->worker.lease_ms),
        .has_card = !pg_is_null(rows, row, COL_CARD),
        .card_is_active = slice_is(pg_bytes(rows, row, COL_CARD_STATUS), "active") ||
                          slice_is(pg_bytes(rows, row, COL_CARD_STATUS), "frozen"),
        .has_orphan = pg_bool(rows, row, COL_HAS_ORPHAN),
        .is_of_other_issuer = pg_bool(rows, row, COL_ELSEWHERE),
        .verifies = issuer_profile_has(flow->env->worker->parameters->profile, ISSUER_RETRIEVE),
        .tries = (int)pg_int8(rows, row, COL_ATTEMPTS),
    };
    mark->facts.is_there = status.bytes && outbox_status_parse(status.bytes, status.length, &mark->facts.status);
}

/* NULL: the event is a card request, or gone. */
static struct route *route_of(const struct flow *flow, const struct pg_rows *rows, int row)
{
    char type[CONFIG_ROUTE_TYPE_SIZE];
    slice_copy(pg_bytes(rows, row, COL_TYPE), type, sizeof(type));
    return routes_find(flow->env->worker->routes, type);
}

static void read_event(const struct pg_rows *rows, int row, struct flow *flow)
{
    flow->route = route_of(flow, rows, row);
    flow->attempt = (struct attempt){
        .event_id = pg_uuid(rows, row, COL_EVENT),
        .number = (int)pg_int8(rows, row, COL_ATTEMPTS),
        .asks_for = STEP_COUNT,
        .verifies = STEP_CANCEL,
    };
    uuid_format(&flow->attempt.event_id, flow->event_text);
    trace_of_event(pg_bytes(rows, row, COL_TRACEPARENT), pg_bytes(rows, row, COL_TRACESTATE), &flow->attempt.event_id,
                   &flow->trace);
    slice_copy(pg_bytes(rows, row, COL_USER), flow->user_id, sizeof(flow->user_id));
    slice_copy(pg_bytes(rows, row, COL_CARD_ISSUER_ID), flow->card.id, sizeof(flow->card.id));
    flow->made_ms = pg_int8(rows, row, COL_MADE);
    event_parameters_start(&flow->parameters, flow->env->worker->parameters, flow->user_id,
                           pg_bytes(rows, row, COL_PARAMETERS));
    if (!pg_is_null(rows, row, COL_CARD))
        flow->save.card_id = pg_uuid(rows, row, COL_CARD);
}

void mark_row_read(const struct pg_rows *rows, int row, struct mark *mark)
{
    mark->question.id = pg_uuid(rows, row, COL_ID);
    mark->seen_us = pg_is_null(rows, row, COL_SEEN) ? 0 : pg_int8(rows, row, COL_SEEN);
    read_event(rows, row, &mark->flow);
    read_facts(rows, row, mark);
}
