/* Values that an issuer needs of a user or of the installation, beside the request itself: a holder, a product, a
 * currency. Names are the profile's (profile.h). Values come from three sources, and the later one wins:
 * issuer.parameters (the same for everybody), core-api's `issuer` object (this user), and what the event keeps from
 * before its first create, or from the first attempt that left an outcome unknown, since a repeat must be the same. */
#ifndef ISSUING_ISSUER_PARAMETERS_H
#define ISSUING_ISSUER_PARAMETERS_H

#include "common/lib/base/base.h"
#include "common/lib/base/buf.h"
#include "common/lib/base/err.h"
#include "common/lib/json/json_value.h"
#include "common/core/issuer/profile.h"

#define ISSUER_PARAMETER_NAME_MAX 40
#define ISSUER_PARAMETER_VALUE_MAX 128
#define ISSUER_PARAMETERS_GIVEN_MAX 16 /* members of core-api's object */

/* By the index of the name in profile->parameters; "" = not given. */
struct issuer_parameters {
    char values[ISSUER_PARAMETERS_MAX][ISSUER_PARAMETER_VALUE_MAX + 1];
};

/* `name=value name="value with blanks"`, white space between them. ERR_CONFIG: a name that the profile does not know
 * (the nearest one is suggested), a name twice, a value that is empty, too long, not UTF-8, or has control characters,
 * double quotes that are not around a whole value. NULL = none. */
must_check bool issuer_parameters_parse(const struct issuer_profile *profile, const char *text,
                                        struct issuer_parameters *ret_parameters, struct err *err);
/* Reads a JSON object, strictly checked before. Returns what is wrong with it, NULL = nothing: at most 16 members,
 * names [A-Za-z_]{1,40}, values 1-128 bytes of UTF-8 without control characters. Names that the profile does not know
 * are ignored. JSON_MISSING is an object without members. */
const char *issuer_parameters_read(const struct issuer_profile *profile, struct json_value object,
                                   struct issuer_parameters *ret_parameters);
/* Every value that `stronger` has replaces that of `into`. */
void issuer_parameters_merge(struct issuer_parameters *into, const struct issuer_parameters *stronger);
/* Fills the parameter that defaults to the user id (profile->parameter_from_user), if it has no value. */
void issuer_parameters_default(const struct issuer_profile *profile, const char *user_id,
                               struct issuer_parameters *parameters);
/* The name of the first required parameter without a value; NULL = none. */
const char *issuer_parameters_missing(const struct issuer_profile *profile, const struct issuer_parameters *parameters);
/* The same for one call: a look-up needs fewer parameters than a create. */
const char *issuer_parameters_missing_for(const struct issuer_profile *profile,
                                          const struct issuer_parameters *parameters, enum issuer_call call);
/* The call is built from parameters, optional ones included: in its path, query, body, or in the headers of all calls.
 * False for a call that the issuer does not have. */
bool issuer_call_has_parameters(const struct issuer_profile *profile, enum issuer_call call);
const char *issuer_parameters_value(const struct issuer_profile *profile, const struct issuer_parameters *parameters,
                                    const char *name);
/* {"name":"value",...} of those that have a value; nothing is appended where none has. False: out of memory. */
must_check bool issuer_parameters_write(const struct issuer_profile *profile,
                                        const struct issuer_parameters *parameters, struct buf *out);

#endif
