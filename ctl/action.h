/* What all actions share: who acts, why, on which ids, and how each result is reported. */
#ifndef ISSUING_CTL_ACTION_H
#define ISSUING_CTL_ACTION_H

#include "common/lib/base/base.h"
#include "common/lib/base/err.h"
#include "common/lib/base/uuid7.h"
#include "common/lib/pg/pg_param.h"
#include "ctl/ctl.h"
#include "ctl/event.h"

#define ACTION_ACTOR_SIZE 128
#define ACTION_REASON_SIZE 1025
#define ACTION_SCOPE_SIZE 1001

#define ACTION_RESULTS(X)                                   \
    X(REPLAYED, "replayed", "replayed")                     \
    X(WOULD_REPLAY, "would_replay", "would be replayed")    \
    X(RESENT, "resent", "to be sent again")                 \
    X(WOULD_RESEND, "would_resend", "would be sent again")  \
    X(CANCELLED, "cancelled", "cancelled")                  \
    X(WOULD_CANCEL, "would_cancel", "would be cancelled")   \
    X(RESOLVED, "resolved", "resolved")                     \
    X(WOULD_RESOLVE, "would_resolve", "would be resolved")  \
    X(ADOPTED, "adopted", "adopted")                        \
    X(WOULD_ADOPT, "would_adopt", "would be adopted")       \
    X(WOULD_LOOK_UP, "would_look_up", "would be looked up") \
    X(REFUSED, "refused", "refused")

/* The result for one id: for programs, for people. */
enum action_result {
#define X(name, word, text) ACTION_##name,
    ACTION_RESULTS(X)
#undef X
};

struct action {
    char actor[ACTION_ACTOR_SIZE];     /* for people: $SUDO_USER, else the name of the caller's user */
    char os_user[ACTION_ACTOR_SIZE];   /* of the operating system, by the process's real uid */
    char sudo_user[ACTION_ACTOR_SIZE]; /* $SUDO_USER as it is; "" = not set, or not usable */
    char reason[ACTION_REASON_SIZE];   /* card numbers in it are overwritten */
    /* Of a bulk action: its id, a blank, and what it has selected; "" = the action is not a part of one. */
    char batch[UUID_TEXT_SIZE + ACTION_SCOPE_SIZE];
};

#define ACTION_PARAMS 4

/* reason: NULL when it was not given. ERR_USAGE when it is missing, empty, too long, or not UTF-8. */
must_check bool action_init(struct action *action, const char *reason, struct err *err);
/* Fills params[0..3]: actor, user of the operating system, SUDO_USER, reason. The action must outlive them. */
void action_params(const struct action *action, struct pg_param params[ACTION_PARAMS]);
/* From here on the actions are those of one bulk action with a new id. scope: what was selected, for people; card
 * numbers in it are overwritten. */
void action_begin_batch(struct action *action, const char *scope);
/* The id; "" = the action is not a part of a bulk action. */
const char *action_batch_id(const struct action *action, char ret_text[UUID_TEXT_SIZE]);
struct pg_param action_batch(const struct action *action);
/* ERR_USAGE: "... is not an event id". */
must_check bool action_parse_id(const char *text, struct uuid *ret_id, struct err *err);
/* Prints one result on standard output; with --json the event with "result" and "why". event NULL: there is none. why
 * may be NULL. */
must_check bool action_report(const struct ctl *ctl, const char *id_text, enum action_result result,
                              const struct event *event, const char *why, struct err *err);

#endif
