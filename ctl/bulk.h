/* What replay, resend, cancel, resolve and adopt share: one action on events, by ids or by filter. */
#ifndef ISSUING_CTL_BULK_H
#define ISSUING_CTL_BULK_H

#include "common/lib/base/base.h"
#include "common/lib/base/err.h"
#include "common/lib/base/uuid7.h"
#include "common/lib/pg/pg_sync.h"
#include "ctl/action.h"
#include "ctl/ctl.h"
#include "ctl/event.h"
#include "ctl/filter.h"
#include "ctl/options.h"

struct bulk;

#define BULK_PARAMS (2 + ACTION_PARAMS + 1) /* event, updated_at, the action, its batch */

struct bulk_params {
    struct pg_param list[PG_PARAMS_MAX], *more; /* more: behind the first BULK_PARAMS */
    struct buf arrays[2];                       /* for two arrays of `more` */
};

/* A verb. Texts and statements are static. */
struct bulk_verb {
    const char *word;                      /* "replay" */
    const char *past;                      /* "replayed" */
    const char *question;                  /* "Replay" */
    const char *status;                    /* the status that it takes: "FAILED" */
    const char *route_status;              /* of events of routes it takes this one, too; NULL = no other */
    enum action_result done, would;        /* the result of a run, of a dry run */
    const struct sql_statement *wakeup;    /* NOTIFY for the daemons; when it is lost they poll */
    const struct sql_statement *statement; /* bulk_act() */
    /* Fills the parameters of the statement behind those that all have. NULL: there are none. */
    void (*more_params)(const struct bulk *bulk, struct bulk_params *params);
    /* For a dry run: *ret_code, static, is the code with which the statement would refuse the event as it is now. NULL:
     * it would not, and ret_text, which is "" before, describes what would follow. */
    bool (*preview)(struct bulk *bulk, const struct event *event, const char **ret_code, char *ret_text, size_t size,
                    struct err *err);
    /* A code of the statement or of `preview` in words. Leaves "" in ret_text for codes that all verbs share
     * (bulk.c). */
    void (*why_refused)(const struct event *event, const char *code, char *ret_text, size_t size);
};

struct bulk {
    struct ctl *ctl;
    const struct bulk_verb *verb;
    struct filter filter;
    struct action action;
    bool dry_run;
    /* resolve: of card requests, of events of routes */
    bool confirms_no_card, confirms_not_executed;
    const char *issuer;  /* adopt: an address; NULL = the present one */
    const char *rate;    /* as given; NULL = as fast as possible */
    int64_t interval_us; /* between two events, by the rate */
    int64_t limit;       /* events acted on at most; 0 = all */
    const char *reason;
    /* progress */
    int64_t total;      /* matched at the start, or the limit */
    int64_t horizon_us; /* what changes after it is left alone */
    int64_t done, refused, skipped;
    int64_t started_us, notified_us; /* monotonic */
    bool shows_progress;
    bool is_declined; /* the person at the terminal said no */
};

extern const struct bulk_verb bulk_replay, bulk_cancel, bulk_resolve;

/* Sets what a filter of this verb always leaves out: an event that was sent cannot be cancelled, and FAILED
 * issuer_duplicate is only replayed by its id. */
void bulk_narrow(const struct bulk_verb *verb, struct filter *filter);
/* From here on what is done is one bulk action in the audit. */
void bulk_begin(struct bulk *bulk, bool by_filter);
/* Changes one event. No row: there is no such event; else the columns of ctl/event.h and `refused`. seen_us: acts only
 * if updated_at is still that; 0 = any state. */
must_check bool bulk_act(struct bulk *bulk, const struct uuid *id, int64_t seen_us, struct pg_rows **ret_rows,
                         struct err *err);
/* Why an event was or would be refused, in words. */
void bulk_why_refused(const struct bulk_verb *verb, const struct event *event, const char *code, char *ret_text,
                      size_t size);

/* Rows of a list of option_spec, with FILTER_OPTIONS. */
#define BULK_OPTIONS(bulk)                                                          \
    FILTER_OPTIONS(&(bulk)->filter), {.name = "dry-run", .flag = &(bulk)->dry_run}, \
        {.name = "rate", .text = &(bulk)->rate},                                    \
    {                                                                               \
        .name = "reason", .text = &(bulk)->reason                                   \
    }

#define BULK_HELP                                                                                          \
    "  --dry-run      change nothing: show how many there are, and what would be done with the first 20\n" \
    "                 (with --limit N the first N, with --json all)\n"                                     \
    "  --rate N       at most N events a second; also 0.2, 10/m, 100/h\n"                                  \
    "  --limit N      at most N events, the oldest; without it a terminal is asked once\n"                 \
    "  --reason TEXT  why; required, stored in operator_actions with who and when\n"

#define BULK_NOTE                                                                                              \
    "\nEach matching event is changed once, also when two operators run the command; events that reach that\n" \
    "status after the start are left alone. Ctrl-C stops after the current event (exit 1); run the same\n"     \
    "command again for the rest.\n" FILTER_COSTS

/* Reads the arguments by `specs` (BULK_OPTIONS among them), connects and acts. */
must_check bool bulk_run(struct bulk *bulk, const struct option_spec *specs, char **arguments, int count,
                         struct err *err);

#endif
