/* Which events: the filters that list, replay, cancel, resolve and reconcile share. */
#ifndef ISSUING_CTL_FILTER_H
#define ISSUING_CTL_FILTER_H

#include "common/base/base.h"
#include "common/base/err.h"
#include "common/pg/pg_param.h"
#include "ctl/options.h"

/* Borrowed texts; NULL = any. */
struct filter {
    const char *status; /* as given, then a name of outbox.h */
    const char *type;
    const char *code;
    const char *user;
    const char *since; /* as given */
    int64_t since_us;  /* 0 = any */
};

/* The rows for a list of option_spec, in the order in which help shows them. */
#define FILTER_OPTIONS(filter)                                                                \
    {.name = "status", .text = &(filter)->status}, {.name = "type", .text = &(filter)->type}, \
        {.name = "code", .text = &(filter)->code}, {.name = "user", .text = &(filter)->user}, \
    {                                                                                         \
        .name = "since", .text = &(filter)->since                                             \
    }

/* For the help of a command, behind a line of its own for --status. */
#define FILTER_HELP                                                                         \
    "  --type T       event type; workers take CARD_ISSUE only\n"                           \
    "  --code C       reason code of a REJECTED or FAILED event, e.g. attempts_exhausted\n" \
    "  --user U       user id, exactly\n"                                                   \
    "  --since D      created within the last D: 90s, 15m, 12h, 7d\n"

#define FILTER_PARAMS 5

/* Checks what options_read left there; a status may be written in any case. ERR_USAGE. */
must_check bool filter_check(struct filter *filter, struct err *err);
bool filter_is_empty(const struct filter *filter);
/* Fills params[0..4]: status, type, code, user, age in microseconds. The texts of the filter must outlive them. */
void filter_params(const struct filter *filter, struct pg_param params[FILTER_PARAMS]);

#endif
