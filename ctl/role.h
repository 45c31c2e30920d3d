/* The role of the database where nobody names one. Pure. */
#ifndef ISSUING_CTL_ROLE_H
#define ISSUING_CTL_ROLE_H

#include "common/base/base.h"

#define ROLE_SIZE 64

/* The users of an installation have a role each: issuing-operator is issuing_operator (systemd/issuing.sysusers). False:
 * a user of another name, and *ret_role is untouched. */
must_check bool role_of_user(const char *os_user, char ret_role[ROLE_SIZE]);

#endif
