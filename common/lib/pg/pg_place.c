/* See pg_place.h. */
#include "common/lib/pg/pg_place.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/base/digest.h"

#define BUCKETS 1024
#define TEXT_SIZE 40

/* One statement, as each place gets it. They are few, and made once. */
struct placed {
    struct placed *next;
    const struct sql_statement *statement;
    struct sql_statement made[PG_PLACES_MAX]; /* text NULL = not yet */
};

static struct placed *all_placed;

int pg_place_of(const char *user_id, size_t length, int places)
{
    unsigned char digest[DIGEST_SIZE];
    if (places == 1)
        return 0;
    digest_sha256(user_id, length, digest);
    int bucket = (digest[0] * 256 + digest[1]) % BUCKETS;
    return bucket * places / BUCKETS;
}

static struct placed *placed_of(const struct sql_statement *statement)
{
    struct placed *placed = all_placed;
    while (placed && placed->statement != statement)
        placed = placed->next;
    if (placed)
        return placed;
    placed = calloc(1, sizeof(*placed));
    if (!placed)
        return NULL;
    placed->statement = statement;
    placed->next = all_placed;
    all_placed = placed;
    return placed;
}

static size_t expand(char mark, int place, int places, char ret_text[TEXT_SIZE])
{
    bool is_one = places == 1;
    ret_text[0] = '\0';
    switch (mark) {
    case PG_MARK_PLACE:
        return is_one ? 0 : (size_t)snprintf(ret_text, TEXT_SIZE, "_p%d", place);
    case PG_MARK_PATH:
        return is_one ? 0 : (size_t)snprintf(ret_text, TEXT_SIZE, "_p%d, issuing", place);
    case PG_MARK_NUMBER:
        return (size_t)snprintf(ret_text, TEXT_SIZE, "%d", place);
    case PG_MARK_PLACES:
        return (size_t)snprintf(ret_text, TEXT_SIZE, "%d", places);
    default:
        ret_text[0] = mark;
        return 1;
    }
}

char *pg_place_text(const char *marked, int place, int places)
{
    char piece[TEXT_SIZE];
    size_t length = 1;
    for (const char *at = marked; *at; at++)
        length += expand(*at, place, places, piece);
    char *text = malloc(length), *end = text;
    for (const char *at = marked; text && *at; at++) {
        size_t size = expand(*at, place, places, piece);
        memcpy(end, piece, size);
        end += size;
    }
    if (text)
        *end = '\0';
    return text;
}

bool pg_place_matters(const struct sql_statement *statement, int places)
{
    return places > 1 && statement->is_of_place;
}

const struct sql_statement *pg_place_statement(const struct sql_statement *statement, int place, int places)
{
    return pg_place_matters(statement, places) ? pg_place_narrowed(statement, place, places) : statement;
}

const struct sql_statement *pg_place_narrowed(const struct sql_statement *statement, int place, int places)
{
    assert(place >= 0 && place < places && places <= PG_PLACES_MAX);
    struct placed *placed = placed_of(statement);
    if (!placed)
        return NULL;
    struct sql_statement *made = &placed->made[place];
    char *text = made->text ? NULL : pg_place_text(statement->marked_text, place, places);
    if (text) {
        *made = *statement;
        made->text = text;
    }
    return made->text ? made : NULL;
}
