/* See role.h.
 *
 * Left out: whether that role exists and lets this user in, which PostgreSQL decides. */
#include "ctl/role.h"

#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

bool role_is_ours(char ret_role[ROLE_SIZE])
{
    const struct passwd *entry = getpwuid(geteuid());
    return entry && role_of_user(entry->pw_name, ret_role);
}

const char *role_hint(const char *sqlstate, bool is_ours)
{
    if (strcmp(sqlstate, "42501") == 0)
        return "GRANT CONNECT ON DATABASE ... TO this role";
    if (!is_ours)
        return "operators run `sudo -u issuing-operator issuing-ctl ...`; else name the role, its password and the "
               "database by database.url or PGUSER, PGPASSFILE and PGDATABASE";
    if (strcmp(sqlstate, "28P01") == 0)
        return "give this user the role's password: .pgpass in its home, or PGPASSFILE (docs/install.md)";
    return "let this role in by pg_hba.conf and pg_ident.conf (docs/install.md), then reload PostgreSQL";
}
