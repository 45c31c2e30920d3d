/* Which events: the filters that list, replay, cancel, resolve, reconcile and the console share. Pure.
 *
 * A filter is filled by options_read() with FILTER_OPTIONS, or name by name by filter_set(); filter_check() reads what
 * was given; pick.h finds the events. */
#ifndef ISSUING_CTL_FILTER_H
#define ISSUING_CTL_FILTER_H

#include "common/core/outbox.h"
#include "common/lib/base/base.h"
#include "common/lib/base/err.h"
#include "common/lib/pg/pg_param.h"
#include "common/lib/pg/pg_statement.h"
#include "ctl/moment.h"
#include "ctl/options.h"

#define FILTER_LIMIT_MAX INT64_C(1000000000)
#define FILTER_TRACE_SIZE 33

struct filter {
    /* As given, borrowed; NULL = any. */
    const char *status, *type, *code, *user, *since, *until, *failed_since, *key, *card, *last4, *trace;
    bool unknown, overdue;
    bool oldest_first;
    int64_t limit; /* 0 = not given */
    /* Set by a command, not by an operator: only events of which certainly nothing was sent. */
    bool unsent;
    bool leaves_duplicates; /* no FAILED issuer_duplicate */
    /* What filter_check() read. */
    enum outbox_status wanted;                     /* where status is given */
    struct moment from_time, to_time, failed_from; /* where since, until, failed_since are given */
    char trace_id[FILTER_TRACE_SIZE];
};

/* The rows for a list of option_spec. */
#define FILTER_OPTIONS(filter)                                                                              \
    {.name = "status", .text = &(filter)->status}, {.name = "type", .text = &(filter)->type},               \
        {.name = "code", .text = &(filter)->code}, {.name = "user", .text = &(filter)->user},               \
        {.name = "since", .text = &(filter)->since}, {.name = "until", .text = &(filter)->until},           \
        {.name = "failed-since", .text = &(filter)->failed_since}, {.name = "key", .text = &(filter)->key}, \
        {.name = "card", .text = &(filter)->card}, {.name = "last4", .text = &(filter)->last4},             \
        {.name = "trace", .text = &(filter)->trace}, {.name = "unknown", .flag = &(filter)->unknown},       \
        {.name = "overdue", .flag = &(filter)->overdue},                                                    \
    {                                                                                                       \
        .name = "limit", .number = &(filter)->limit, .min = 1, .max = FILTER_LIMIT_MAX                      \
    }

/* The row of those that show events in one order or the other; bulk actions take the oldest first. */
#define FILTER_ORDER_OPTION(filter)                             \
    {                                                           \
        .name = "oldest-first", .flag = &(filter)->oldest_first \
    }

/* For the help of a command, behind a line of its own for --status. */
#define FILTER_HELP                                                                                    \
    "  --type T       event type, e.g. CARD_ISSUE\n"                                                   \
    "  --code C       reason code of a REJECTED or FAILED event, e.g. attempts_exhausted\n"            \
    "  --user U       user id, exactly\n"                                                              \
    "  --since D      created since D: a duration back from now (90s, 15m, 12h, 7d, 4w) or a time\n"   \
    "                 (2026-11-20, 2026-11-20T10:39:57Z; UTC without an offset)\n"                     \
    "  --until D      created before D\n"                                                              \
    "  --failed-since D  became FAILED since D\n"                                                      \
    "  --key K        the client's Idempotency-Key\n"                                                  \
    "  --card ID      our id or the issuer's id of the card that it made; and reissues of that card\n" \
    "  --last4 N      the last four digits of its card\n"                                              \
    "  --trace ID     trace id, or a whole traceparent\n"                                              \
    "  --unknown      the issuer may have made a card, and none is stored here\n"                      \
    "  --overdue      PENDING and due, or held by a worker beyond its lease, for more than a minute\n"

/* Which filters cost what, for the help of `list` and docs/run.md. */
#define FILTER_COSTS                                                                                                \
    "\nThese filters are fast with any number of events: --user, --status FAILED, PENDING or PROCESSING,\n"         \
    "--failed-since, --unknown, --overdue. --since with --until takes longer the longer that time is. All others\n" \
    "look at every event: add --user or --since. --since and --until go by the time in an event's id, and miss\n"   \
    "an event whose id was made by a clock that was more than an hour off.\n"

/* Where the events of a filter are looked for. All but the open ones are walked in the order of ids, in pages of
 * bounded size; those are sorted at each page, unless they are frequent enough to be walked by the primary key. */
enum filter_source {
    FILTER_ALL,     /* primary key: every event */
    FILTER_USER,    /* outbox_events_user: every event of one user */
    FILTER_FAILED,  /* outbox_events_failed */
    FILTER_UNKNOWN, /* outbox_events_tried and outbox_events_failed */
    FILTER_OPEN     /* outbox_events_due: PENDING and PROCESSING */
};

#define FILTER_PARAMS 14

/* One filter by its name, with or without dashes in front, as in a URL's query; value borrowed. A flag takes "", "1" or
 * "true". ERR_USAGE: no such filter, or no such value. A second one of the same name replaces the first. */
must_check bool filter_set(struct filter *filter, const char *name, const char *value, struct err *err);
/* Reads what was given; a status may be written in any case. ERR_USAGE: a filter whose form matches nothing. */
must_check bool filter_check(struct filter *filter, struct err *err);
/* "12 events: --status FAILED --code issuer_http_422": what a bulk action has selected. Cut at the size. */
void filter_describe(const struct filter *filter, int64_t matched, char *ret_text, size_t size);
/* Whether every event matches; the limit and the order are not filters. */
bool filter_is_empty(const struct filter *filter);
enum filter_source filter_source(const struct filter *filter);
/* operator_pick_*: the events of that source. Its parameters behind FILTER_PARAMS are in pick.h. */
const struct sql_statement *filter_statement(const struct filter *filter);
/* Fills params[0..13]. now_us: of the database, what "ago" counts from. The texts of the filter must outlive them. */
void filter_params(const struct filter *filter, int64_t now_us, struct pg_param params[FILTER_PARAMS]);

#endif
