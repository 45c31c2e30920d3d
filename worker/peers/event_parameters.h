/* The issuer parameters of one event (common/core/issuer/parameters.h): where an attempt, or a mark, gets them from,
 * and whether the event may keep them.
 *
 * A repeat of a create must be the same request as the first, so what the event keeps wins. It keeps what core-api
 * gave with an answer of its own, whole, and nothing that was only guessed from the configuration. A call that could
 * be built from parameters of core-api is not made before core-api was asked, since a look-up at another holder, or
 * in another account, would find nothing and prove nothing. For the same reason the event keeps them before a create
 * leaves where the look-up is built from any: core-api may name another holder once the worker is dead. Pure. */
#ifndef ISSUING_EVENT_PARAMETERS_H
#define ISSUING_EVENT_PARAMETERS_H

#include "common/lib/base/base.h"
#include "common/lib/base/buf.h"
#include "worker/peers/core_api.h"
#include "common/core/issuer/parameters.h"

/* Shared by all events of a worker; lives longer than any of them. */
struct parameters_env {
    const struct issuer_profile *profile;
    struct issuer_parameters fixed; /* issuer.parameters */
};

struct event_parameters {
    struct issuer_parameters values;
    bool is_kept;     /* the event keeps them */
    bool was_asked;   /* this attempt or mark has asked core-api */
    bool is_answered; /* core-api has answered, and no parameter that a create needs is missing */
};

/* kept: outbox_events.issuer_parameters; without bytes = none. Text that cannot be read counts as none. */
void event_parameters_start(struct event_parameters *parameters, const struct parameters_env *env, const char *user_id,
                            struct slice kept);
/* core-api has answered whether the user is eligible. */
void event_parameters_take(struct event_parameters *parameters, const struct parameters_env *env, const char *user_id,
                           bool is_eligible, const struct core_eligibility *answer);
/* core-api must be asked before this call can be made. */
bool event_parameters_must_ask(const struct event_parameters *parameters, const struct parameters_env *env,
                               enum issuer_call call);
/* The event must keep them before a create leaves: a look-up is built from them, and one with other values would not
 * see the card. */
bool event_parameters_must_keep(const struct event_parameters *parameters, const struct parameters_env *env);
/* Writes the parameters that the event should keep, as JSON; nothing if it keeps them already, or must not. False: out
 * of memory. */
must_check bool event_parameters_write(const struct event_parameters *parameters, const struct parameters_env *env,
                                       struct buf *out);
/* Overwrites what `text` repeats of the values with '*', also the beginning of a value where the text was cut: a peer's
 * words are written to logs and to attempts, which leave the team that may know the user's holder. */
void event_parameters_hide(const struct event_parameters *parameters, char *text);
/* Sets the outcome for a call that needs a parameter of this name when core-api does not give it. */
void event_parameters_missing(const char *name, struct outcome *ret_outcome);

#endif
