/* The list of profiles. See profile.h. */
#include <string.h>

#include "worker/issuer/profile.h"

const struct issuer_profile *const issuer_profiles[] = {
    &issuer_generic, &issuer_stripe, &issuer_lithic, &issuer_marqeta, &issuer_adyen, NULL,
};

const struct issuer_profile *issuer_profile_find(const char *name)
{
    for (const struct issuer_profile *const *profile = issuer_profiles; *profile; profile++)
        if (strcmp((*profile)->name, name) == 0)
            return *profile;
    return NULL;
}
