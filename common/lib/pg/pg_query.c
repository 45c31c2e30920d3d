/* See pg_query.h. */
#include "common/lib/pg/pg_query.h"

#include <string.h>

void pg_queries_append(struct pg_queries *queries, struct pg_query *query)
{
    query->next = NULL;
    if (queries->last)
        queries->last->next = query;
    else
        queries->first = query;
    queries->last = query;
    queries->count++;
}

void pg_queries_prepend(struct pg_queries *queries, struct pg_query *query)
{
    query->next = queries->first;
    queries->first = query;
    if (!queries->last)
        queries->last = query;
    queries->count++;
}

struct pg_query *pg_queries_take(struct pg_queries *queries)
{
    struct pg_query *query = queries->first;
    if (!query)
        return NULL;
    queries->first = query->next;
    if (!queries->first)
        queries->last = NULL;
    queries->count--;
    query->next = NULL;
    return query;
}

bool pg_sqlstate_is_transient(const char sqlstate[6])
{
    static const char *const prefixes[] = {"40001", "40P01", "25006", "53", "57P0", "08"};
    for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++)
        if (strncmp(sqlstate, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

bool pg_sqlstate_is_moved(const char sqlstate[6])
{
    return strcmp(sqlstate, "ISPLC") == 0;
}
