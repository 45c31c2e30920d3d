/* See backlog.h. */
#include "ctl/backlog.h"

#include <string.h>

#include "common/core/outbox.h"
#include "statements.h"

/* Of operator_open. */
enum {
    TYPE,
    CAUSE,
    CODE,
    IS_LIVE,
    NOW,
    PENDING,
    PROCESSING,
    HELD,
    DUE,
    OVERDUE,
    SCHEDULED,
    UNKNOWN,
    ENDS,
    PENDING_AT,
    OLDEST_AT,
    OVERDUE_AT,
    FIRST_SENT_AT,
    NEXT_AT
};

void backlog_params(int64_t most, int64_t key_lifetime_ms, struct pg_param params[BACKLOG_PARAMS])
{
    params[0] = pg_param_int8(most);
    params[1] = pg_param_int8(key_lifetime_ms);
}

bool backlog_read(struct pg_sync *db, struct pg_rows **ret_rows, struct err *err)
{
    struct pg_param params[BACKLOG_PARAMS];
    backlog_params(BACKLOG_MAX, 0, params); /* no key's end is asked for */
    return pg_sync_query(db, &sql_operator_open, params, ret_rows, err);
}

void backlog_take_earlier(int64_t *us, int64_t other_us)
{
    if (other_us != 0 && (*us == 0 || other_us < *us))
        *us = other_us;
}

const char *backlog_type_of(const char *target)
{
    return strcmp(target, "issuer") == 0 || strcmp(target, "core") == 0 ? OUTBOX_EVENT_TYPE : target;
}

bool backlog_next(const struct pg_rows *open, int *row, struct backlog_type *ret_type)
{
    if (*row >= pg_rows_count(open))
        return false;
    struct backlog_type type = {.name = pg_text(open, *row, TYPE), .is_delivered = !pg_is_null(open, *row, IS_LIVE)};
    type.is_live = type.is_delivered && pg_bool(open, *row, IS_LIVE);
    for (; *row < pg_rows_count(open) && strcmp(pg_text(open, *row, TYPE), type.name) == 0; ++*row) {
        type.pending += pg_int8(open, *row, PENDING);
        type.processing += pg_int8(open, *row, PROCESSING);
        type.held += pg_int8(open, *row, HELD);
        type.due += pg_int8(open, *row, DUE);
        type.overdue += pg_int8(open, *row, OVERDUE);
        type.scheduled += pg_int8(open, *row, SCHEDULED);
        type.unknown += pg_int8(open, *row, UNKNOWN);
        type.ends += pg_int8(open, *row, ENDS);
        backlog_take_earlier(pg_int8(open, *row, ENDS) > 0 ? &type.ends_us : &type.pending_us,
                             pg_time_us(open, *row, PENDING_AT));
        backlog_take_earlier(&type.oldest_us, pg_time_us(open, *row, OLDEST_AT));
        backlog_take_earlier(&type.overdue_us, pg_time_us(open, *row, OVERDUE_AT));
        backlog_take_earlier(&type.first_sent_us, pg_time_us(open, *row, FIRST_SENT_AT));
    }
    *ret_type = type;
    return true;
}

bool backlog_has_types(const struct pg_rows *open)
{
    return pg_rows_count(open) > 0 && strcmp(pg_text(open, 0, TYPE), pg_text(open, pg_rows_count(open) - 1, TYPE)) != 0;
}

static bool is_before(const struct backlog_cause *cause, const struct backlog_cause *other)
{
    int order = strcmp(cause->name, other->name);
    if (cause->events != other->events)
        return cause->events > other->events;
    return order < 0 || (order == 0 && strcmp(cause->type, other->type) < 0);
}

static bool is_of(const struct pg_rows *open, int row, const struct backlog_cause *cause)
{
    return !pg_is_null(open, row, CAUSE) && strcmp(pg_text(open, row, CAUSE), cause->name) == 0 &&
           strcmp(pg_text(open, row, TYPE), cause->type) == 0;
}

int backlog_causes(const struct pg_rows *open, struct backlog_cause ret_causes[BACKLOG_CAUSES_MAX])
{
    int count = 0;
    for (int row = 0; row < pg_rows_count(open);) {
        if (pg_is_null(open, row, CAUSE)) { /* none of them is PENDING */
            row++;
            continue;
        }
        struct backlog_cause cause = {.name = pg_text(open, row, CAUSE), .type = pg_text(open, row, TYPE)};
        for (; row < pg_rows_count(open) && is_of(open, row, &cause); row++) {
            cause.events += pg_int8(open, row, PENDING);
            backlog_take_earlier(&cause.since_us, pg_time_us(open, row, PENDING_AT));
            backlog_take_earlier(&cause.next_us, pg_time_us(open, row, NEXT_AT));
        }
        int at = count;
        for (; at > 0 && is_before(&cause, &ret_causes[at - 1]); at--)
            if (at < BACKLOG_CAUSES_MAX)
                ret_causes[at] = ret_causes[at - 1];
        if (at < BACKLOG_CAUSES_MAX)
            ret_causes[at] = cause;
        count += count < BACKLOG_CAUSES_MAX;
    }
    return count;
}

int64_t backlog_caused_by(const struct pg_rows *open, const char *cause)
{
    int64_t events = 0;
    for (int row = 0; row < pg_rows_count(open); row++)
        if (!pg_is_null(open, row, CAUSE) && strcmp(pg_text(open, row, CAUSE), cause) == 0)
            events += pg_int8(open, row, PENDING);
    return events;
}

bool backlog_is_cut(const struct pg_rows *open, const char *type)
{
    int64_t events = 0;
    for (int row = 0; row < pg_rows_count(open); row++)
        if (strcmp(pg_text(open, row, TYPE), type) == 0)
            events += pg_int8(open, row, PENDING) + pg_int8(open, row, PROCESSING);
    return events >= BACKLOG_MAX;
}

int64_t backlog_waiting(const struct backlog_type *type)
{
    return type->pending + type->ends;
}

int64_t backlog_age_us(const struct backlog_type *type, int64_t now_us)
{
    int64_t since_us = type->ends_us != 0 && (type->pending_us == 0 || type->ends_us < type->pending_us)
                           ? type->ends_us
                           : type->pending_us;
    return since_us != 0 && since_us < now_us ? now_us - since_us : 0;
}

const char *backlog_delivered_by(const struct backlog_type *type)
{
    return !type->is_delivered ? "by nobody: no worker has a route for it" : type->is_live ? "yes" : "no living worker";
}

int64_t backlog_now_us(const struct pg_rows *open)
{
    return pg_time_us(open, 0, NOW); /* card requests are always there */
}

static bool begins_with(const char *code, const char *target)
{
    size_t length = strlen(target);
    return strncmp(code, target, length) == 0 && code[length] == '_';
}

int64_t backlog_behind(const struct pg_rows *open, const char *target, bool is_shut, bool some_shut)
{
    const char *type = backlog_type_of(target);
    bool is_of_cards = strcmp(type, OUTBOX_EVENT_TYPE) == 0;
    int64_t behind = 0;
    for (int row = 0; row < pg_rows_count(open); row++) {
        const char *code = pg_is_null(open, row, CODE) ? "" : pg_text(open, row, CODE);
        if (strcmp(pg_text(open, row, TYPE), type) != 0)
            continue;
        bool is_named = begins_with(code, target) || (!is_of_cards && begins_with(code, "route"));
        bool is_any = strcmp(code, "breaker_open") == 0 || strcmp(code, "target_resting") == 0 ||
                      strcmp(code, "target_paused") == 0;
        if (is_named || (is_any && (is_shut || some_shut)))
            behind += pg_int8(open, row, PENDING);
        /* guard: what is due waits only behind a target to which no worker sends */
        else if (is_shut)
            behind += pg_int8(open, row, DUE);
        behind += is_shut ? pg_int8(open, row, ENDS) : 0;
    }
    return behind;
}

int64_t backlog_failed(const struct pg_rows *failed)
{
    return pg_rows_count(failed) > 0 ? pg_int8(failed, 0, FAILED_ALL) : 0;
}
