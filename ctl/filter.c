/* See filter.h.
 *
 * Invariants: a filter that can match nothing by its form (an unknown status, a malformed code, COMPLETED and overdue)
 * is refused; an event matches when all filters hold.
 * Left out: the statements (operator_pick_* of operator_events.sql) and how they are paged (pick.h). */
#include "ctl/filter.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "statements.h"

static bool check_status(struct filter *filter, struct err *err)
{
#define X(name)                                   \
    if (strcasecmp(filter->status, #name) == 0) { \
        filter->status = #name;                   \
        filter->wanted = OUTBOX_##name;           \
        return true;                              \
    }
    OUTBOX_STATUSES(X)
#undef X
    return err_set(err, ERR_USAGE, "--status must be PENDING, PROCESSING, COMPLETED, REJECTED or FAILED");
}

static bool check_moment(const char *name, const char *text, struct moment *ret_moment, struct err *err)
{
    if (!text || (moment_parse(text, ret_moment) && !(ret_moment->is_ago && ret_moment->us == 0)))
        return true;
    return err_set(err, ERR_USAGE, "--%s needs " MOMENT_FORMS, name);
}

/* Without knowing what time it is, two times of one kind can be compared. */
static bool check_times(struct filter *filter, struct err *err)
{
    if (!check_moment("since", filter->since, &filter->from_time, err) ||
        !check_moment("until", filter->until, &filter->to_time, err) ||
        !check_moment("failed-since", filter->failed_since, &filter->failed_from, err))
        return false;
    const struct moment *from = &filter->from_time, *to = &filter->to_time;
    if (filter->since && filter->until && from->is_ago == to->is_ago && moment_us(from, 0) >= moment_us(to, 0))
        return err_set(err, ERR_USAGE, "--until is not after --since, so no event can match");
    return true;
}

static bool is_digits(const char *text, size_t length)
{
    return strlen(text) == length && strspn(text, "0123456789") == length;
}

/* The 32 hex digits, alone or in a traceparent: 00-<trace id>-<span id>-<flags>. */
static bool read_trace(const char *text, char ret_id[FILTER_TRACE_SIZE])
{
    size_t length = strlen(text);
    if (length == 55 && text[2] == '-' && text[35] == '-' && text[52] == '-')
        text += 3;
    else if (length != 32)
        return false;
    for (int i = 0; i < 32; i++) {
        if (!isxdigit((unsigned char)text[i]))
            return false;
        ret_id[i] = (char)tolower((unsigned char)text[i]);
    }
    ret_id[32] = '\0';
    return true;
}

static bool check_forms(struct filter *filter, struct err *err)
{
    const struct {
        const char *name, *text;
    } needed[] = {{"type", filter->type}, {"user", filter->user}, {"key", filter->key}, {"card", filter->card}};
    for (size_t i = 0; i < ARRAY_SIZE(needed); i++)
        if (needed[i].text && needed[i].text[0] == '\0')
            return err_set(err, ERR_USAGE, "--%s needs a value", needed[i].name);
    if (filter->code && !outbox_reason_code_is_valid(filter->code, strlen(filter->code)))
        return err_set(err, ERR_USAGE, "--code needs a reason code: a-z, 0-9 and _, at most 64 characters");
    if (filter->last4 && !is_digits(filter->last4, 4))
        return err_set(err, ERR_USAGE, "--last4 needs four digits");
    if (filter->trace && !read_trace(filter->trace, filter->trace_id))
        return err_set(err, ERR_USAGE, "--trace needs a trace id, 32 hex digits, or a traceparent");
    return true;
}

static bool check_together(const struct filter *filter, struct err *err)
{
    bool is_open = filter->wanted == OUTBOX_PENDING || filter->wanted == OUTBOX_PROCESSING;
    if (filter->overdue && (filter->failed_since || (filter->status && !is_open)))
        return err_set(err, ERR_USAGE, "only PENDING and PROCESSING events can be overdue");
    if (filter->unknown && filter->status && filter->wanted != OUTBOX_PENDING && filter->wanted != OUTBOX_FAILED)
        return err_set(err, ERR_USAGE, "the outcome of %s events is not unknown; PENDING and FAILED ones may be",
                       filter->status);
    if (filter->failed_since && filter->status && filter->wanted != OUTBOX_FAILED)
        return err_set(err, ERR_USAGE, "--failed-since takes FAILED events, not %s ones", filter->status);
    return true;
}

bool filter_check(struct filter *filter, struct err *err)
{
    return (!filter->status || check_status(filter, err)) && check_forms(filter, err) && check_times(filter, err) &&
           check_together(filter, err);
}

bool filter_set(struct filter *filter, const char *name, const char *value, struct err *err)
{
    const struct option_spec specs[] = {FILTER_OPTIONS(filter), FILTER_ORDER_OPTION(filter), {.name = NULL}};
    return options_set(specs, name + strspn(name, "-"), value, err);
}

void filter_describe(const struct filter *filter, int64_t matched, char *ret_text, size_t size)
{
    struct filter copy = *filter;
    const struct option_spec specs[] = {FILTER_OPTIONS(&copy), {.name = NULL}};
    size_t used = (size_t)snprintf(ret_text, size, "%" PRId64 " event%s:", matched, matched == 1 ? "" : "s");
    for (const struct option_spec *spec = specs; spec->name && used < size; spec++) {
        char *at = ret_text + used;
        int length = 0;
        if (spec->text && *spec->text)
            length = snprintf(at, size - used, " --%s %s", spec->name, *spec->text);
        else if (spec->number && *spec->number != 0)
            length = snprintf(at, size - used, " --%s %" PRId64, spec->name, *spec->number);
        else if (spec->flag && *spec->flag)
            length = snprintf(at, size - used, " --%s", spec->name);
        used += (size_t)length;
    }
}

bool filter_is_empty(const struct filter *filter)
{
    return !filter->status && !filter->type && !filter->code && !filter->user && !filter->since && !filter->until &&
           !filter->failed_since && !filter->key && !filter->card && !filter->last4 && !filter->trace &&
           !filter->unknown && !filter->overdue;
}

enum filter_source filter_source(const struct filter *filter)
{
    if (filter->user)
        return FILTER_USER;
    if (filter->failed_since || (filter->status && filter->wanted == OUTBOX_FAILED))
        return FILTER_FAILED;
    if (filter->unknown && !filter->overdue)
        return FILTER_UNKNOWN;
    if (filter->overdue ||
        (filter->status && (filter->wanted == OUTBOX_PENDING || filter->wanted == OUTBOX_PROCESSING)))
        return FILTER_OPEN;
    return FILTER_ALL;
}

const struct sql_statement *filter_statement(const struct filter *filter)
{
    switch (filter_source(filter)) {
    case FILTER_ALL:
        return &sql_operator_pick_all;
    case FILTER_USER:
        return &sql_operator_pick_user;
    case FILTER_FAILED:
        return &sql_operator_pick_failed;
    case FILTER_OPEN:
        return &sql_operator_pick_open;
    case FILTER_UNKNOWN:
        return &sql_operator_pick_unknown;
    }
    return NULL;
}

static struct pg_param moment_or_null(const char *given, const struct moment *moment, int64_t now_us)
{
    return given ? pg_param_int8(moment_us(moment, now_us)) : pg_param_null();
}

void filter_params(const struct filter *filter, int64_t now_us, struct pg_param params[FILTER_PARAMS])
{
    params[0] = pg_param_string(filter->status);
    params[1] = pg_param_string(filter->type);
    params[2] = pg_param_string(filter->code);
    params[3] = pg_param_string(filter->user);
    params[4] = moment_or_null(filter->since, &filter->from_time, now_us);
    params[5] = moment_or_null(filter->until, &filter->to_time, now_us);
    params[6] = moment_or_null(filter->failed_since, &filter->failed_from, now_us);
    params[7] = pg_param_string(filter->key);
    params[8] = pg_param_string(filter->card);
    params[9] = pg_param_string(filter->last4);
    params[10] = pg_param_string(filter->trace ? filter->trace_id : NULL);
    params[11] = pg_param_bool(filter->unknown);
    params[12] = pg_param_bool(filter->overdue);
    params[13] = pg_param_string(filter->unsent ? "unsent" : filter->leaves_duplicates ? "no duplicates" : NULL);
}
