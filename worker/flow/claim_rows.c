/* See claim_rows.h. */
#include "worker/flow/claim_rows.h"

#include <assert.h>

#include "common/lib/base/slice.h"
#include "common/lib/base/trace.h"

/* Columns of outbox_claim: of an event, and from COL_BOOKMARK on of the claim, the same in each row. */
enum {
    COL_ID,
    COL_USER,
    COL_PAYLOAD,
    COL_TRACEPARENT,
    COL_TRACESTATE,
    COL_ATTEMPT,
    COL_SENT_AGE,
    COL_DEFERRED_AGE,
    COL_CARD,
    COL_CARD_ISSUER_ID,
    COL_CARD_LAST4,
    COL_CARD_MONTH,
    COL_CARD_YEAR,
    COL_REPLACES_ISSUER_ID,
    COL_CANCEL_CODE,
    COL_SETTLE_AGE,
    COL_LOST,
    COL_DEFERRAL_COUNT,
    COL_DEFERRAL_CODE,
    COL_CHANGED_AGE,
    COL_HELD_END,
    COL_HELD_END_CODE,
    COL_PARAMETERS,
    COL_MADE,
    COL_ELSEWHERE,
    COL_REPLACES_REQUEST,
    COL_RESENT,
    COL_ACCEPTED,
    COL_BOOKMARK,
    COL_HAS_LOST,
    COL_NOW,
    COL_FILLED,
};

static void read_card(struct flow *flow, const struct pg_rows *rows, int row)
{
    flow->attempt.is_saved = !pg_is_null(rows, row, COL_CARD);
    flow->save = (struct write_save){0};
    if (!flow->attempt.is_saved)
        return;
    flow->save.card_id = pg_uuid(rows, row, COL_CARD);
    slice_copy(pg_bytes(rows, row, COL_CARD_ISSUER_ID), flow->card.id, sizeof(flow->card.id));
    slice_copy(pg_bytes(rows, row, COL_CARD_LAST4), flow->save.last4, sizeof(flow->save.last4));
    flow->save.exp_month = (int)pg_int8(rows, row, COL_CARD_MONTH);
    flow->save.exp_year = (int)pg_int8(rows, row, COL_CARD_YEAR);
}

/* May a later release have none of the faults? Not when there may be more than were noted. */
static bool may_be_newer(const struct outbox_fault *faults, int count)
{
    bool may = count > 0 && count < OUTBOX_FAULTS_MAX;
    for (int i = 0; i < count; i++)
        may = may && faults[i].may_be_newer;
    return may;
}

/* Another service may have written anything: false = payload_invalid, or what an api of a later release accepted. */
static bool read_request(struct flow *flow, const struct pg_rows *rows, int row)
{
    struct slice user = pg_bytes(rows, row, COL_USER), payload = pg_bytes(rows, row, COL_PAYLOAD);
    struct outbox_fault faults[OUTBOX_FAULTS_MAX];
    slice_copy(user, flow->user_id, sizeof(flow->user_id));
    slice_copy(pg_bytes(rows, row, COL_REPLACES_ISSUER_ID), flow->replaces_issuer_id, sizeof(flow->replaces_issuer_id));
    if (!pg_is_null(rows, row, COL_REPLACES_REQUEST))
        flow->replaces_request_id = pg_uuid(rows, row, COL_REPLACES_REQUEST);
    int fault_count = outbox_payload_read(payload.bytes, payload.length, &flow->payload, faults);
    flow->attempt.is_newer = pg_bool(rows, row, COL_ACCEPTED) && may_be_newer(faults, fault_count);
    if (!outbox_user_id_is_valid(user.bytes, user.length) || fault_count != 0)
        return false;
    return !flow->payload.is_reissue || flow->replaces_issuer_id[0] != '\0';
}

static int64_t age_of(const struct pg_rows *rows, int row, int column)
{
    return pg_is_null(rows, row, column) ? -1 : pg_int8(rows, row, column);
}

static void read_attempts(struct flow *flow, const struct pg_rows *rows, int row)
{
    flow->attempt.number = (int)pg_int8(rows, row, COL_ATTEMPT);
    flow->attempt.sent_age_ms = age_of(rows, row, COL_SENT_AGE);
    flow->attempt.deferred_age_ms = age_of(rows, row, COL_DEFERRED_AGE);
    flow->attempt.settle_age_ms = age_of(rows, row, COL_SETTLE_AGE);
    flow->attempt.lost_count = (int)pg_int8(rows, row, COL_LOST);
    flow->attempt.deferral_count = (int)pg_int8(rows, row, COL_DEFERRAL_COUNT);
    slice_copy(pg_bytes(rows, row, COL_DEFERRAL_CODE), flow->attempt.deferral_code,
               sizeof(flow->attempt.deferral_code));
    flow->attempt.changed_age_ms = pg_int8(rows, row, COL_CHANGED_AGE);
    flow->made_ms = pg_int8(rows, row, COL_MADE);
    int64_t db_ms = pg_int8(rows, 0, COL_NOW) / 1000;
    flow->attempt.accepted_age_ms = db_ms > flow->made_ms ? db_ms - flow->made_ms : 0;
    flow->attempt.is_resent = pg_bool(rows, row, COL_RESENT);
    attempt_set_end(&flow->attempt, pg_text(rows, row, COL_HELD_END), pg_text(rows, row, COL_HELD_END_CODE),
                    pg_text(rows, row, COL_CANCEL_CODE));
}

bool claim_rows_read(const struct pg_rows *rows, int row, struct route *route, struct flow *flow)
{
    flow->route = route;
    flow->attempt.event_id = pg_uuid(rows, row, COL_ID);
    uuid_format(&flow->attempt.event_id, flow->event_text);
    trace_of_event(pg_bytes(rows, row, COL_TRACEPARENT), pg_bytes(rows, row, COL_TRACESTATE), &flow->attempt.event_id,
                   &flow->trace);
    read_attempts(flow, rows, row);
    flow->attempt.is_newer = false;
    if (route)
        return flow_take_delivery(flow, route, pg_bytes(rows, row, COL_USER), pg_bytes(rows, row, COL_PAYLOAD));
    flow->attempt.is_of_other_issuer = pg_bool(rows, row, COL_ELSEWHERE);
    read_card(flow, rows, row);
    bool is_readable = read_request(flow, rows, row);
    event_parameters_start(&flow->parameters, flow->env->worker->parameters, flow->user_id,
                           pg_bytes(rows, row, COL_PARAMETERS));
    return is_readable;
}

struct claim_answer claim_rows_answer(const struct pg_rows *rows)
{
    assert(pg_rows_count(rows) > 0);
    return (struct claim_answer){
        .count = pg_is_null(rows, 0, COL_ID) ? 0 : pg_rows_count(rows),
        .bookmark_us = pg_int8(rows, 0, COL_BOOKMARK),
        .has_lost = pg_bool(rows, 0, COL_HAS_LOST),
        .is_filled = pg_bool(rows, 0, COL_FILLED),
        .now_us = pg_int8(rows, 0, COL_NOW),
    };
}
