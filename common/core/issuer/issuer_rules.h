/* What an issuer's answer means: by the rules of its profile, else by the table in outcome.c. For the engine only; the
 * flow calls the readers of issuer.h. */
#ifndef ISSUING_ISSUER_RULES_H
#define ISSUING_ISSUER_RULES_H

#include "common/lib/base/base.h"
#include "common/lib/http_client/http_call.h"
#include "common/core/issuer/profile.h"
#include "common/core/decide/outcome.h"

/* Codes and detail of an error answer, checked and made harmless. */
struct issuer_words {
    char codes[ISSUER_CODES_MAX][OUTBOX_REASON_CODE_SIZE]; /* by the index in profile->error_codes; "" = none */
    char detail[200];                                      /* as in struct outcome */
};

/* Empty texts where the answer is not JSON, or a code cannot be used. */
void issuer_words_read(const struct issuer_profile *profile, const struct http_call *call,
                       struct issuer_words *ret_words);
/* The first usable code; "" = none. */
const char *issuer_words_code(const struct issuer_words *words);

/* False: the call was executed, and the caller reads the answer: a 200, a 201 to a create, and what a rule calls
 * executed. *ret_outcome is then untouched. */
bool issuer_outcome_of_call(const struct issuer_profile *profile, enum issuer_call which, const struct http_call *call,
                            struct outcome *ret_outcome);

#endif
