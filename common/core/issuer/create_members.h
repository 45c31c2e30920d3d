/* Further members of the create, by configuration (issuer.create.PATH = value or {parameter}): a profile is made from a
 * compiled-in one, with a row and a parameter for each of them. Everything that holds for parameters holds for them:
 * what was sent is kept with an event whose outcome is unknown, and wins over a configuration that has changed since.
 * Left out: which members the issuer accepts. */
#ifndef ISSUING_ISSUER_CREATE_MEMBERS_H
#define ISSUING_ISSUER_CREATE_MEMBERS_H

#include "common/core/config/config.h"
#include "common/core/issuer/parameters.h"
#include "common/lib/base/err.h"

struct create_members;

/* *ret_members: NULL where the configuration has none. The configuration must outlive it. ERR_CONFIG: a path that the
 * profile owns, or that is part of another one; an array in a JSON body; a parameter without a usable name. */
must_check bool create_members_open(const struct issuer_profile *profile, const struct config *config,
                                    struct create_members **ret_members, struct err *err);
void create_members_close(struct create_members *members); /* NULL is accepted */
/* The profile with the further members; `profile` where there are none. */
const struct issuer_profile *create_members_profile(const struct create_members *members,
                                                    const struct issuer_profile *profile);
/* Sets the values that are the same for everybody, where *parameters has none. */
void create_members_fill(const struct create_members *members, struct issuer_parameters *parameters);

#endif
