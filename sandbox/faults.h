/* Scripted faults: rules in a list. For every call the first rule that fits and has calls left fires. */
#ifndef ISSUING_SANDBOX_FAULTS_H
#define ISSUING_SANDBOX_FAULTS_H

#include "common/lib/base/base.h"
#include "common/lib/base/buf.h"
#include "common/lib/base/err.h"
#include "sandbox/calls.h"

#define FAULTS_MAX 10000
#define ANSWER_HEADERS_MAX 6 /* besides Retry-After and Location */

/* One header of an answer of the stand-ins. An empty name ends a list. */
struct answer_header {
    char name[40], value[72];
};

#define FAULT_DELAY_MAX_MS (60 * 60 * 1000)

/* kind, whether the call still takes effect, what the caller sees */
#define FAULT_KINDS(X)                                                                                                \
    X(create_then_drop, true, "executes, then resets the connection without an answer")                               \
    X(create_then_hang, true, "executes, never answers")                                                              \
    X(drop, false, "resets the connection before executing")                                                          \
    X(hang, false, "never answers, does not execute")                                                                 \
    X(delay, true, "executes, answers after delay_ms (default 1000)")                                                 \
    X(status, false, "answers status, code, detail, retry_after without executing")                                   \
    X(execute_then_status, true, "executes, then answers that status")                                                \
    X(garbage, true, "executes, answers with broken JSON")                                                            \
    X(truncated, true, "executes, announces more bytes than it sends, closes")                                        \
    X(drop_then_execute, true, "resets the connection, executes late_ms after that (default 1000)")                   \
    X(hang_then_execute, true,                                                                                        \
      "never answers, executes late_ms after the call (late_from gone: after the caller left)")                       \
    X(status_then_execute, true, "answers that status (default 504), executes late_ms after that")                    \
    X(execute_twice, true, "executes and answers, and executes the same once more late_ms after that")                \
    X(slow_body, true, "executes, sends half of the body, the rest after delay_ms (default 1000)")                    \
    X(huge, true, "executes, answers with 1 MiB")                                                                     \
    X(wrong_reference, true, "executes, answers with another reference")                                              \
    X(contradictory, true, "executes, answers with a last4 that is not the pan's")                                    \
    X(limited, false, "answers status (default 429) to what exceeds per_second; the rest goes on to the next rule")   \
    X(stale, true, "lookup, charge_lookup: answers what was true stale_ms ago")                                       \
    X(skip_row, true, "lookup: a list by offset begins one row later, as when rows moved in between (adyen)")         \
    X(answer, true, "executes, answers with the members of card put over the true ones (null removes), or with body") \
    X(redirect, false, "answers 302 to /redirected")                                                                  \
    X(ineligible, false, "check: eligible is false, the reason is code (default user_blocked)")                       \
    X(user_not_found, false, "answers 404")                                                                           \
    X(link_refused, false, "link: answers 409 with code (default card_limit_reached)")

enum fault_kind {
#define X(kind, executes, help) FAULT_##kind,
    FAULT_KINDS(X)
#undef X
};

struct fault {
    enum fault_kind kind;
    enum call_target target;
    bool any_call;
    enum call_kind call; /* if not any_call */
    bool any_user;
    char user[256];
    char path[256]; /* of the request, without its query; "" = any */
    int64_t count;  /* calls it fires on; -1 = without end */
    int64_t skip;   /* calls that fit and pass first */
    double rate;    /* chance to fire, 1 = always */
    int status;     /* 0 = none given */
    char code[65], detail[256], retry_after[64];
    int64_t delay_ms;    /* -1 = none given */
    int64_t late_ms;     /* how long a late execution waits; -1 = none given */
    bool late_from_gone; /* late_ms runs from when the caller left, otherwise from the call */
    char late_code[65];  /* the late execution is a refusal with this code, stored under the key; "" = it is not */
    bool is_stored;      /* the answer is kept under the call's key */
    bool is_at_work;     /* until its late execution the key is in use */
    struct answer_header headers[ANSWER_HEADERS_MAX];
    int64_t stale_ms;
    double per_second;  /* calls that `limited` lets pass; 0 = none given */
    double granted;     /* of it: calls that may pass now */
    int64_t granted_ms; /* when that was computed; 0 = never */
    char *card;         /* owned JSON object text: members put over the answer's; NULL = none */
    char *body;         /* owned: the bytes of the answer; NULL = none */
    int64_t fits, fired;
};

struct faults {
    struct fault *rules; /* owned */
    size_t count, capacity;
};

const char *fault_kind_name(enum fault_kind kind);
must_check bool fault_kind_of_name(const char *name, enum fault_kind *ret_kind);
bool fault_kind_executes(enum fault_kind kind);
/* Whether the call takes effect before it is answered, and whether it does (or does once more) after that. */
bool fault_executes_now(const struct fault *fault);
bool fault_executes_late(const struct fault *fault);

void faults_init(struct faults *faults);
void faults_done(struct faults *faults);
void faults_clear(struct faults *faults);
/* One rule or an array of them, all or none. ERR_MALFORMED names the rule and the member. */
must_check bool faults_add(struct faults *faults, const char *text, size_t length, struct err *err);
/* The rule that fires on this call, or NULL; counts the call. now_ms: monotonic, above 0; `limited` counts by it. Valid
 * until the rules change. */
const struct fault *faults_match(struct faults *faults, enum call_kind call, struct slice user, struct slice path,
                                 int64_t now_ms);
/* {"rules":[...]}, with fired and left (null = without end). */
bool faults_write(const struct faults *faults, struct buf *out);

#endif
