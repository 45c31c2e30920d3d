/* What replay, cancel and resolve share: one action on events, by ids or by filter. */
#ifndef ISSUING_CTL_BULK_H
#define ISSUING_CTL_BULK_H

#include "common/base/base.h"
#include "common/base/err.h"
#include "common/base/uuid7.h"
#include "common/pg/pg_sync.h"
#include "ctl/action.h"
#include "ctl/ctl.h"
#include "ctl/event.h"
#include "ctl/filter.h"
#include "ctl/options.h"

struct bulk;

/* A verb. Texts and statements are static. */
struct bulk_verb {
    const char *word;                         /* "replay" */
    const char *past;                         /* "replayed" */
    const char *status;                       /* the one status that it takes: "FAILED" */
    enum action_result done, would;           /* the result of a run, of a dry run */
    const struct sql_statement *count, *page; /* of events that match a filter */
    const struct sql_statement *wakeup;       /* NOTIFY for the daemons; when it is lost they poll */
    /* Changes one event. No row: there is no such event; else the columns of ctl/event.h and `refused`. seen_us: acts
     * only if updated_at is still that; 0 = any state. */
    bool (*act)(struct bulk *bulk, const struct uuid *id, int64_t seen_us, struct pg_rows **ret_rows, struct err *err);
    /* For a dry run: *ret_code, static, is the code with which `act` would refuse the event as it is now. NULL: it
     * would not, and ret_text, which is "" before, describes what would follow. */
    bool (*preview)(struct bulk *bulk, const struct event *event, const char **ret_code, char *ret_text, size_t size,
                    struct err *err);
    /* A code of `act` or `preview` in words. Leaves "" in ret_text for codes that all verbs share (bulk.c). */
    void (*why_refused)(const struct event *event, const char *code, char *ret_text, size_t size);
};

struct bulk {
    struct ctl *ctl;
    const struct bulk_verb *verb;
    struct filter filter;
    struct action action;
    bool dry_run;
    bool confirms_no_card; /* resolve */
    int64_t rate;          /* per second; 0 = no limit */
    int64_t limit;         /* events acted on at most; 0 = all */
    const char *reason;
    /* progress */
    int64_t total;      /* matched at the start */
    int64_t horizon_us; /* what changes after it is left alone */
    int64_t done, refused, skipped;
    int64_t started_us, notified_us; /* monotonic */
    bool shows_progress;
};

/* Rows of a list of option_spec, with FILTER_OPTIONS. */
#define BULK_RATE_MAX 100000
#define BULK_LIMIT_MAX INT64_C(1000000000)
#define BULK_OPTIONS(bulk)                                                            \
    FILTER_OPTIONS(&(bulk)->filter), {.name = "dry-run", .flag = &(bulk)->dry_run},   \
        {.name = "rate", .number = &(bulk)->rate, .min = 1, .max = BULK_RATE_MAX},    \
        {.name = "limit", .number = &(bulk)->limit, .min = 1, .max = BULK_LIMIT_MAX}, \
    {                                                                                 \
        .name = "reason", .text = &(bulk)->reason                                     \
    }

#define BULK_HELP                                                \
    "  --dry-run      show what would be done, change nothing\n" \
    "  --rate N       at most N events a second\n"               \
    "  --limit N      at most N events, the oldest\n"            \
    "  --reason TEXT  why; required, stored in operator_actions with who and when\n"

#define BULK_NOTE                                                                                              \
    "\nEach matching event is changed once, also when two operators run the command; events that reach that\n" \
    "status after the start are left alone. Ctrl-C stops after the current event (exit 1); run the same\n"     \
    "command again for the rest.\n"

/* Reads the arguments by `specs` (BULK_OPTIONS among them), connects and acts. Returns the exit code. */
int bulk_run(struct bulk *bulk, const struct option_spec *specs, char **arguments, int count);

#endif
