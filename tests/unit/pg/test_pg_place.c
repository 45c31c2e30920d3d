/* The story: the api and the database must find the same place for a user, and a statement must reach that place. A
 * row in another place is a second card. */
#include <check.h>
#include <string.h>

#include "common/lib/pg/pg_place.h"
#include "common/lib/pg/pg_query.h"
#include "tests/support/suite.h"

static const struct sql_statement of_place = {
    .name = "one",
    .text = "SELECT FROM issuing.cards, issuing.routes",
    .marked_text = "SELECT FROM issuing\1.cards, issuing.routes",
    .is_of_place = true,
};
static const struct sql_statement shared = {
    .name = "two",
    .text = "SELECT FROM issuing.cards, issuing.routes",
    .marked_text = "SELECT FROM issuing\1.cards, issuing.routes",
};

/* SHA-256("user-1") begins with c6c2: bucket 50882 % 1024 = 706. */
TEST(a_place_is_the_bucket_times_the_number_of_places)
{
    ck_assert_int_eq(pg_place_of("user-1", 6, 1), 0);
    ck_assert_int_eq(pg_place_of("user-1", 6, 2), 1);
    ck_assert_int_eq(pg_place_of("user-1", 6, 4), 2);
    ck_assert_int_eq(pg_place_of("user-1", 6, 64), 44);
}

TEST(a_statement_names_the_schema_of_its_place)
{
    const struct sql_statement *sent = pg_place_statement(&of_place, 63, 64);
    ck_assert_str_eq(sent->text, "SELECT FROM issuing_p63.cards, issuing.routes");
    ck_assert_str_eq(sent->name, "one");
    ck_assert_ptr_eq(pg_place_statement(&of_place, 63, 64), sent);
    ck_assert_str_eq(pg_place_statement(&of_place, 0, 64)->text, "SELECT FROM issuing_p0.cards, issuing.routes");
}

TEST(one_place_and_shared_statements_are_as_written)
{
    ck_assert_ptr_eq(pg_place_statement(&of_place, 0, 1), &of_place);
    ck_assert_ptr_eq(pg_place_statement(&of_place, 0, 0), &of_place);
    ck_assert_ptr_eq(pg_place_statement(&of_place, PG_PLACE_UNKNOWN, 1), &of_place);
    ck_assert_ptr_eq(pg_place_statement(&shared, 3, 4), &shared);
    ck_assert_str_eq(pg_place_narrowed(&shared, 3, 4)->text, "SELECT FROM issuing_p3.cards, issuing.routes");
    ck_assert_str_eq(pg_place_narrowed(&shared, 0, 1)->text, shared.text);
}

TESTS(pg_place)
