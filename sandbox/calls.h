/* The newest calls: a ring of fixed-size notes, so that noting a call allocates nothing. */
#ifndef ISSUING_SANDBOX_CALLS_H
#define ISSUING_SANDBOX_CALLS_H

#include "common/lib/base/base.h"
#include "common/lib/base/buf.h"

enum call_target { TARGET_ISSUER, TARGET_CORE, TARGET_ROUTE };

/* kind, its name in rules and in GET /calls, the target */
#define CALL_KINDS(X)                                                                                      \
    X(CREATE, "create", ISSUER)                                                                            \
    X(LOOKUP, "lookup", ISSUER)                                                                            \
    X(LIST, "list", ISSUER) /* all cards that were made since a time */                                    \
    X(CANCEL, "cancel", ISSUER)                                                                            \
    X(ACTIVATE, "activate", ISSUER) /* makes an inactive card active */                                    \
    X(REVEAL, "reveal", ISSUER)     /* the card's number */                                                \
    X(RETRIEVE, "retrieve", ISSUER) /* one card by its id */                                               \
    X(ACCOUNT, "account", ISSUER)   /* whose credential it is */                                           \
    X(CHECK, "check", CORE)                                                                                \
    X(LINK, "link", CORE)                                                                                  \
    X(UNLINK, "unlink", CORE)                                                                              \
    X(STRAY_ISSUER, "stray", ISSUER) /* a path that does not exist, such as one that follows a redirect */ \
    X(STRAY_CORE, "stray", CORE)                                                                           \
    X(CHARGE, "charge", ROUTE)                                                                             \
    X(CHARGE_LOOKUP, "charge_lookup", ROUTE)                                                               \
    X(HOOK, "hook", ROUTE)                                                                                 \
    X(HOOK_LOOKUP, "hook_lookup", ROUTE)                                                                   \
    X(STRAY_ROUTE, "stray", ROUTE)

enum call_kind {
#define X(kind, name, target) CALL_##kind,
    CALL_KINDS(X)
#undef X
};

const char *call_kind_name(enum call_kind kind);
enum call_target call_kind_target(enum call_kind kind);
const char *call_target_name(enum call_target target);
/* False: there is no target of that name. */
must_check bool call_target_of_name(const char *name, enum call_target *ret_target);

#define CALLS_MAX 10000

struct calls;

/* The members of a call; empty slices if it has none. Longer texts are cut in the notes. */
struct call_words {
    struct slice user, key, reference, traceparent, tracestate;
};

must_check struct calls *calls_new(void);
void calls_free(struct calls *calls);
void calls_clear(struct calls *calls);
/* Returns the call's number, which counts from 1 since calls_new(). fault: a static name or NULL. */
uint64_t calls_note(struct calls *calls, enum call_kind kind, const struct call_words *words, const char *fault,
                    int64_t wall_us);
/* The user of the newest call that named both this reference and a user; empty when the ring knows none. Borrowed until
 * the next calls_note(). */
struct slice calls_user_of(const struct calls *calls, struct slice reference);
/* The status the call was answered with (0 = never answered); nothing happens if its note is gone already. */
void calls_answered(struct calls *calls, uint64_t call, int status);
/* {"calls":[...]}, newest first. */
bool calls_write(const struct calls *calls, size_t limit, struct buf *out);

#endif
