/* core-api's HTTP API (docs/peers.md), mapped to our types: may this user have a card, and which card does the user
 * have, without its number. The only module that knows its paths and members. */
#ifndef ISSUING_CORE_API_H
#define ISSUING_CORE_API_H

#include "common/lib/base/base.h"
#include "common/lib/base/uuid7.h"
#include "common/core/card.h"
#include "common/core/decide/steps.h"
#include "common/core/issuer/parameters.h"
#include "common/core/decide/outcome.h"

/* The data of a card that core-api gets: these members and nothing else. */
struct core_link {
    struct uuid event_id, card_id;
    char last4[CARD_LAST4_SIZE];
    int exp_month, exp_year;
    bool is_reissue;
    const char *replaces; /* our card id as text; NULL or "" = none */
};

/* core_build_*: as issuer_build() (common/core/issuer/issuer.h). */
must_check bool core_build_check(struct http_call *call, const char *base, const char *user_id, bool is_reissue);

/* The path of the step's call, with names instead of ids; NULL = it calls another peer. */
const char *core_path_template(enum flow_step step);

/* What core-api's answer contains in addition, also if the user is not eligible. */
struct core_eligibility {
    bool has_parameters; /* the answer has an `issuer` object */
    struct issuer_parameters parameters;
};
/* EXECUTED: eligible. REFUSED with ADVICE_REJECT: not eligible; the code is the reason. In both cases *ret_answer is
 * set. An `issuer` object that breaks its limits makes the answer unreadable, but for a profile without parameters,
 * which ignores it. */
void core_read_check(const struct http_call *call, const struct issuer_profile *profile,
                     struct core_eligibility *ret_answer, struct outcome *ret_outcome);

must_check bool core_build_link(struct http_call *call, const char *base, const char *user_id,
                                const struct core_link *link);

/* The card was cancelled, and a link call for it may have arrived or may still arrive: core-api takes the link back. */
must_check bool core_build_unlink(struct http_call *call, const char *base, const char *user_id,
                                  const struct uuid *event_id, const struct uuid *card_id);

#endif
