/* The issuer parameters of one event (issuer/parameters.h): where an attempt, or a mark, gets them from, and whether
 * the event may keep them.
 *
 * A repeat of a create must be the same request as the first, so the parameters that the event keeps win. The event
 * keeps all parameters together, and only after core-api has answered for this user: the configuration alone may lack
 * what core-api would have said. A call that uses parameters is not made before core-api was asked, since a look-up for
 * another holder, or in another account, would find nothing and prove nothing. Pure. */
#ifndef ISSUING_EVENT_PARAMETERS_H
#define ISSUING_EVENT_PARAMETERS_H

#include "common/base/base.h"
#include "common/base/buf.h"
#include "worker/core_api.h"
#include "worker/issuer/parameters.h"

/* Shared by all events of a worker; lives longer than any of them. */
struct parameters_env {
    const struct issuer_profile *profile;
    struct issuer_parameters fixed; /* issuer.parameters */
};

struct event_parameters {
    struct issuer_parameters values;
    bool is_kept;   /* the event keeps them */
    bool was_asked; /* this attempt or mark has asked core-api */
    bool is_told;   /* core-api has answered, and no parameter that a create needs is missing */
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
/* The parameters that the event should keep, as JSON; nothing is written if the event keeps some already or may not
 * keep these. False: out of memory. */
must_check bool event_parameters_write(const struct event_parameters *parameters, const struct parameters_env *env,
                                       struct buf *out);
/* Overwrites each value that occurs in `text` with '*'. A peer's text is written to logs and to attempts, which are
 * also read by people who may not know a user's holder. */
void event_parameters_hide(const struct event_parameters *parameters, char *text);
/* Sets the outcome for a call that needs a parameter of this name when core-api does not give it. */
void event_parameters_missing(const char *name, struct outcome *ret_outcome);

#endif
