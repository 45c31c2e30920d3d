/* What replay, cancel and resolve share: one action on events, by ids or by filter. */
#ifndef ISSUING_CTL_BULK_H
#define ISSUING_CTL_BULK_H

#include "common/base.h"
#include "common/err.h"
#include "common/pg_sync.h"
#include "common/uuid7.h"
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
    enum action_result done, would;           /* how a result is said */
    const struct sql_statement *count, *page; /* of events that match a filter */
    const struct sql_statement *hint;         /* who looks sooner for it; losing it costs nothing but time */
    /* Asks for one event: no row = there is no such event, else the columns of ctl/event.h and `refused`. seen_us 0 = any state. */
    bool (*ask)(struct bulk *bulk, const struct uuid *id, int64_t seen_us, struct pg_rows **ret_rows, struct err *err);
    /* For a dry run: the code that it would be refused with, or NULL and what would follow in ret_text ("" = nothing to say). */
    const char *(*look)(const struct bulk *bulk, const struct event *event, char *ret_text, size_t size);
    /* A code of `ask` or `look`, in words. Codes that it does not know are left to bulk.c: *ret_text stays "". */
    void (*why_refused)(const struct event *event, const char *code, char *ret_text, size_t size);
};

struct bulk {
    struct ctl *ctl;
    const struct bulk_verb *verb;
    struct filter filter;
    struct action action;
    bool dry_run;
    bool confirms_no_card; /* resolve */
    int64_t rate;          /* per second; 0 = as fast as it goes */
    int64_t limit;         /* events acted on at most; 0 = all */
    const char *reason;
    /* progress */
    int64_t total; /* matched at the start */
    int64_t horizon_us;
    int64_t done, refused, skipped;
    int64_t started_us, hinted_us; /* monotonic */
    bool shows_progress;
};

/* The rows for a list of option_spec; FILTER_OPTIONS beside them. */
#define BULK_RATE_MAX 100000
#define BULK_LIMIT_MAX INT64_C(1000000000)
#define BULK_OPTIONS(bulk)                                                            \
    FILTER_OPTIONS(&(bulk)->filter), {.name = "dry-run", .flag = &(bulk)->dry_run},   \
        {.name = "rate", .number = &(bulk)->rate, .min = 1, .max = BULK_RATE_MAX},    \
        {.name = "limit", .number = &(bulk)->limit, .min = 1, .max = BULK_LIMIT_MAX}, \
    {                                                                                 \
        .name = "reason", .text = &(bulk)->reason                                     \
    }

#define BULK_HELP                                               \
    "  --dry-run      say what would be done, change nothing\n" \
    "  --rate N       at most N events a second\n"              \
    "  --limit N      at most N events, the oldest\n"           \
    "  --reason TEXT  why; required, kept in operator_actions with who and when\n"

#define BULK_STORY                                                                                               \
    "\nEach matching event is acted on once, also with two operators at once; what comes to that status after\n" \
    "the command was started is left alone. Ctrl-C stops after the current event (exit 1); the same command\n"   \
    "goes on with the rest.\n"

/* Reads the arguments by `specs` (BULK_OPTIONS among them), connects and acts. Returns the exit code. */
int bulk_run(struct bulk *bulk, const struct option_spec *specs, char **arguments, int count);

#endif
