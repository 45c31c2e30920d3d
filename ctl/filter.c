/* See filter.h.
 *
 * Invariants: a filter that can match nothing by its form (an unknown status, a malformed code) is refused; an event
 * matches when all filters hold.
 * Left out: the statements, which take the filters as their first five parameters (operator.sql). */
#include "ctl/filter.h"

#include <string.h>
#include <strings.h>

#include "common/outbox.h"

static bool check_status(struct filter *filter, struct err *err)
{
#define X(name)                                   \
    if (strcasecmp(filter->status, #name) == 0) { \
        filter->status = #name;                   \
        return true;                              \
    }
    OUTBOX_STATUSES(X)
#undef X
    return err_set(err, ERR_USAGE, "--status must be PENDING, PROCESSING, COMPLETED, REJECTED or FAILED");
}

bool filter_check(struct filter *filter, struct err *err)
{
    if (filter->status && !check_status(filter, err))
        return false;
    if (filter->type && filter->type[0] == '\0')
        return err_set(err, ERR_USAGE, "--type needs an event type");
    if (filter->code && !outbox_reason_code_is_valid(filter->code, strlen(filter->code)))
        return err_set(err, ERR_USAGE, "--code needs a reason code: a-z, 0-9 and _, at most 64 characters");
    if (filter->user && filter->user[0] == '\0')
        return err_set(err, ERR_USAGE, "--user needs a user id");
    if (filter->since && (!options_duration(filter->since, &filter->since_us) || filter->since_us == 0))
        return err_set(err, ERR_USAGE, "--since needs a duration with a unit: 90s, 15m, 12h, 7d");
    return true;
}

bool filter_is_empty(const struct filter *filter)
{
    return !filter->status && !filter->type && !filter->code && !filter->user && !filter->since;
}

static struct pg_param text_or_null(const char *text)
{
    return pg_param_text(text, text ? strlen(text) : 0);
}

void filter_params(const struct filter *filter, struct pg_param params[FILTER_PARAMS])
{
    params[0] = text_or_null(filter->status);
    params[1] = text_or_null(filter->type);
    params[2] = text_or_null(filter->code);
    params[3] = text_or_null(filter->user);
    params[4] = filter->since ? pg_param_int8(filter->since_us) : pg_param_null();
}
