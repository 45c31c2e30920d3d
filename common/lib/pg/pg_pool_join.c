/* Several databases behind one pool: which of them a query goes to. See pg_pool.h. */
#include <assert.h>
#include <string.h>

#include "common/lib/pg/pg_place.h"
#include "common/lib/pg/pg_pool_internal.h"

void pg_pool_join(struct pg_pool *first, struct pg_pool *const databases[], int count, const int database_of[],
                  int places)
{
    assert(databases[0] == first && count >= 1 && count <= PG_PLACES_MAX && places <= PG_PLACES_MAX);
    for (int i = 0; i < count; i++) {
        assert(databases[i]->in_flight_count == 0);
        first->databases[i] = databases[i];
        databases[i]->first = first;
        databases[i]->places = places;
    }
    for (int place = 0; place < places; place++)
        first->database_of[place] = database_of[place];
    first->database_count = count;
}

int pg_pool_databases(const struct pg_pool *pool)
{
    return pool->database_count > 0 ? pool->database_count : 1;
}

const struct pg_pool *pg_pool_database(const struct pg_pool *pool, int database)
{
    return pool->database_count > 0 ? pool->databases[database] : pool;
}

int pg_pool_database_of(const struct pg_pool *pool, int place)
{
    if (pool->database_count == 0 || place < 0)
        return 0;
    int database = pool->database_of[place];
    /* guard: a place that no database has served yet is looked for in those that are there */
    for (int i = 0; i < pool->database_count && !pool->is_known[place]; i++) {
        int next = (database + i) % pool->database_count;
        if (pg_pool_ready(pool->databases[next]))
            return next;
    }
    return database;
}

bool pg_pool_ready_for(const struct pg_pool *pool, int place)
{
    return pg_pool_ready(pg_pool_database(pool, pg_pool_database_of(pool, place)));
}

struct pg_pool *pg_pool_of_query(struct pg_pool *pool, const struct pg_query *query)
{
    if (pool->database_count == 0)
        return pool;
    return pool->databases[query->statement->is_of_place ? pg_pool_database_of(pool, query->place) : query->database];
}

bool pg_pool_is_left_out(const struct pg_pool *pool)
{
    return pool->first && pool->first->database_count > 1 && !pg_pool_ready(pool);
}

bool pg_sqlstate_is_moved(const char sqlstate[6])
{
    return strcmp(sqlstate, "ISPLC") == 0;
}

/* A place has left a database that answers ISPLC, or that it is dropped from. */
void pg_pool_note_result(const struct pg_pool *pool, const struct pg_query *query, const struct pg_query_result *result)
{
    struct pg_pool *first = pool->first;
    int place = query->place;
    if (!first || !query->statement->is_of_place || place < 0)
        return;
    int asked = 0;
    while (first->databases[asked] != pool)
        asked++;
    if (result->kind == PG_DONE) {
        first->database_of[place] = asked;
        first->is_known[place] = true;
    } else if (result->kind == PG_REFUSED &&
               (pg_sqlstate_is_moved(result->sqlstate) || strcmp(result->sqlstate, "3F000") == 0) &&
               (!first->is_known[place] || first->database_of[place] == asked)) { /* else another answer was first */
        /* guard: a place that has left is looked for in the next database */
        first->database_of[place] = (asked + 1) % first->database_count;
        first->is_known[place] = false;
    }
}
