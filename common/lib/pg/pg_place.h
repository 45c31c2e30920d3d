/* Places: a database whose users are divided over several schemas, issuing_p0, issuing_p1, ..., each with all tables of
 * its users. A user's place is arithmetic, so there is no map: bucket * places / 1024, where the bucket is the first two
 * bytes of SHA-256(user id) modulo 1024. What all places share is in the schema `issuing`; a database with one place
 * has everything there. */
#ifndef ISSUING_PG_PLACE_H
#define ISSUING_PG_PLACE_H

#include "common/lib/base/base.h"
#include "common/lib/pg/pg_statement.h"

#define PG_PLACES_MAX 64

/* What a text about a place has where it names the place (migrations/places.py makes them). */
#define PG_MARK_PLACE '\1'  /* "" where there is one place, else "_p3" */
#define PG_MARK_PATH '\2'   /* "" or "_p3, issuing" */
#define PG_MARK_NUMBER '\3' /* "0" or "3" */
#define PG_MARK_PLACES '\4' /* "1" or "8" */

/* The text for one of `places` places, to be freed; NULL: out of memory. */
char *pg_place_text(const char *marked, int place, int places);
/* 0 to places - 1. places: >= 1. */
int pg_place_of(const char *user_id, size_t length, int places);
/* Whether the statement is sent to one of several places. places 0: not known. */
bool pg_place_matters(const struct sql_statement *statement, int places);
/* The statement as it is sent about one place: itself where there is one place, or where it is about what the places
 * share. NULL: out of memory. It lives as long as the program. */
const struct sql_statement *pg_place_statement(const struct sql_statement *statement, int place, int places);
/* The same of any statement: one that is about all places is about this one. */
const struct sql_statement *pg_place_narrowed(const struct sql_statement *statement, int place, int places);

#endif
