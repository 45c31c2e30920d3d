/* See role.h.
 *
 * Left out: whether that role exists and lets this user in, which PostgreSQL decides. */
#include "ctl/role.h"

#include <stdio.h>
#include <string.h>

static const char prefix[] = "issuing-";

bool role_of_user(const char *os_user, char ret_role[ROLE_SIZE])
{
    const char *rest = os_user + sizeof(prefix) - 1;
    if (strncmp(os_user, prefix, sizeof(prefix) - 1) != 0 || rest[0] == '\0')
        return false;
    if (rest[strspn(rest, "abcdefghijklmnopqrstuvwxyz")] != '\0' || strlen(os_user) >= ROLE_SIZE)
        return false;
    snprintf(ret_role, ROLE_SIZE, "issuing_%s", rest);
    return true;
}
