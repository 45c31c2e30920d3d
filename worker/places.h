/* The places of the database (common/lib/pg/pg_place.h), as the worker goes through them. Before a connection has told
 * how many there are, only the first one is known, and no statement is sent. */
#ifndef ISSUING_PLACES_H
#define ISSUING_PLACES_H

#include "common/lib/pg/pg_place.h"
#include "common/lib/pg/pg_pool.h"

/* 1 to PG_PLACES_MAX. It grows at most once, with the first connection. */
static inline int places_count(const struct pg_pool *pool)
{
    int places = pg_pool_places(pool);
    return places > 0 ? places : 1;
}

#endif
