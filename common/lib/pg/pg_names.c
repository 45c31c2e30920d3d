/* See pg_names.h. */
#include "common/lib/pg/pg_names.h"

#include <stdio.h>
#include <string.h>

static uint64_t hash_of(const char *text)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 1099511628211u;
    return hash;
}

/* NULL: there is no space for one more. */
static struct pg_name *name_of(struct pg_names *names, const struct sql_statement *statement)
{
    for (int i = 0; i < names->count; i++)
        if (names->names[i].statement == statement)
            return &names->names[i];
    if (names->count == PG_NAMES_MAX)
        return NULL;
    struct pg_name *name = &names->names[names->count++];
    *name = (struct pg_name){.statement = statement};
    snprintf(name->text, sizeof(name->text), "%.20s_%016llx", statement->name,
             (unsigned long long)hash_of(statement->text));
    return name;
}

struct pg_name *pg_names_find(struct pg_names *names, const struct sql_statement *statement)
{
    struct pg_name *name = names->is_off || !statement->by_name ? NULL : name_of(names, statement);
    bool is_unconfirmed = name && name->is_sent && !name->is_prepared;
    return name && !name->is_off && !is_unconfirmed ? name : NULL;
}

void pg_names_prepared(struct pg_names *names, const struct sql_statement *statement)
{
    name_of(names, statement)->is_prepared = true;
}

bool pg_names_refused(struct pg_names *names, const struct sql_statement *statement, const char sqlstate[6])
{
    struct pg_name *name = name_of(names, statement);
    /* No such name, or the name exists already: this is not the session that was used before. */
    bool is_other_session = strcmp(sqlstate, "26000") == 0 || strcmp(sqlstate, "42P05") == 0;
    /* "cached plan must not change result type". If the statement itself raises this code, the text raises it again. */
    bool is_outdated = strcmp(sqlstate, "0A000") == 0;
    /* guard: a statement whose name is gone is sent by its text */
    names->is_off |= is_other_session;
    name->is_off |= is_outdated;
    name->is_sent = name->is_prepared; /* after a refused Parse the next query tries again */
    return is_other_session || is_outdated;
}
