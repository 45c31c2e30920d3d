/* The story: behind a transaction pooler a session may belong to another program a moment later. A name that is trusted
 * there runs another program's statement; a name that is given up too easily costs a fifth of the throughput. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/pg/pg_names.h"
#include "tests/support/suite.h"

static const struct sql_statement one = {.name = "one", .by_name = true, .text = "SELECT 1"};
static const struct sql_statement other = {.name = "one", .by_name = true, .text = "SELECT 2"};
static const struct sql_statement by_text = {.name = "by_text", .text = "SELECT 3"};
static struct pg_names names;

static void set_up(void)
{
    names = (struct pg_names){0};
}

static void prepare(const struct sql_statement *statement)
{
    struct pg_name *name = pg_names_find(&names, statement);
    ck_assert_ptr_nonnull(name);
    name->is_sent = true;
    pg_names_prepared(&names, statement);
}

TEST(a_name_means_one_text)
{
    ck_assert_str_ne(pg_names_find(&names, &one)->text, pg_names_find(&names, &other)->text);
    ck_assert_ptr_null(pg_names_find(&names, &by_text));
}

TEST(while_a_parse_is_unconfirmed_others_go_by_text)
{
    pg_names_find(&names, &one)->is_sent = true;
    ck_assert_ptr_null(pg_names_find(&names, &one));
    pg_names_prepared(&names, &one);
    ck_assert(pg_names_find(&names, &one)->is_sent);
}

START_TEST(a_name_that_is_gone_or_taken_ends_all_names_of_the_session)
{
    prepare(&one);
    prepare(&other);
    ck_assert(pg_names_refused(&names, &one, _i ? "26000" : "42P05"));
    ck_assert_ptr_null(pg_names_find(&names, &one));
    ck_assert_ptr_null(pg_names_find(&names, &other));
}

TEST(an_outdated_plan_ends_one_name)
{
    prepare(&one);
    prepare(&other);
    ck_assert(pg_names_refused(&names, &one, "0A000"));
    ck_assert_ptr_null(pg_names_find(&names, &one));
    ck_assert_ptr_nonnull(pg_names_find(&names, &other));
}

TEST(a_statement_that_is_refused_itself_keeps_its_name)
{
    prepare(&one);
    ck_assert(!pg_names_refused(&names, &one, "23505"));
    ck_assert(pg_names_find(&names, &one)->is_sent);
    pg_names_find(&names, &other)->is_sent = true; /* a Parse that is refused is tried again */
    ck_assert(!pg_names_refused(&names, &other, "42P01"));
    ck_assert(!pg_names_find(&names, &other)->is_sent);
}

SUITE(pg_names)
{
    TCase *tcase = tcase_create("pg_names");
    tcase_add_checked_fixture(tcase, set_up, NULL);
    ADD_TESTS(tcase);
    tcase_add_loop_test(tcase, a_name_that_is_gone_or_taken_ends_all_names_of_the_session, 0, 2);
    suite_add_tcase(suite, tcase);
}
