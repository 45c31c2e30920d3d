/* The default role at the database, and what to do when the database refuses it. */
#ifndef ISSUING_CTL_ROLE_H
#define ISSUING_CTL_ROLE_H

#include "common/lib/base/base.h"

#define ROLE_SIZE 64

/* The users of an installation have a role each: issuing-operator is issuing_operator (systemd/issuing.sysusers).
 * False: a user of another name, and *ret_role is untouched. */
must_check bool role_of_user(const char *os_user, char ret_role[ROLE_SIZE]);
/* The same for the user who runs this program. */
must_check bool role_is_ours(char ret_role[ROLE_SIZE]);
/* What to do when the database refused the connection; is_ours: a user of the installation runs this. Pure. */
const char *role_hint(const char *sqlstate, bool is_ours);

#endif
