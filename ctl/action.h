/* What replay and cancel share: who acts, why, on which ids, and how each result is said. */
#ifndef ISSUING_CTL_ACTION_H
#define ISSUING_CTL_ACTION_H

#include "common/base.h"
#include "common/err.h"
#include "common/uuid7.h"
#include "ctl/ctl.h"
#include "ctl/event.h"

#define ACTION_ACTOR_SIZE 128
#define ACTION_REASON_SIZE 1025

#define ACTION_RESULTS(X)                                \
    X(REPLAYED, "replayed", "replayed")                  \
    X(WOULD_REPLAY, "would_replay", "would be replayed") \
    X(CANCELLED, "cancelled", "cancelled")               \
    X(REFUSED, "refused", "refused")

/* what came of one id: for programs, for people */
enum action_result {
#define X(name, word, text) ACTION_##name,
    ACTION_RESULTS(X)
#undef X
};

struct action {
    char actor[ACTION_ACTOR_SIZE];   /* $SUDO_USER, else the login name of the caller */
    char reason[ACTION_REASON_SIZE]; /* card numbers in it are overwritten */
};

/* reason: NULL when it was not given. ERR_USAGE when it is missing, empty, too long, or no UTF-8. */
must_check bool action_init(struct action *action, const char *reason, struct err *err);
/* ERR_USAGE: "... is no event id". */
must_check bool action_parse_id(const char *text, struct uuid *ret_id, struct err *err);
/* Says one result on standard output; for --json the event with "result" and "why". event NULL: there is none. why may
 * be NULL. */
must_check bool action_report(const struct ctl *ctl, const char *id_text, enum action_result result,
                              const struct event *event, const char *why, struct err *err);

#endif
