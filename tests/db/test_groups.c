/* The story: a user's group decides for ever in which place the user's rows are. If a later release computed another
 * group, the rows of that user would not be found any more. Needs a database: its conninfo (keyword=value) in
 * ISSUING_TEST_DATABASE. */
#include <check.h>
#include <string.h>

#include "database.h"
#include "tests/support/suite.h"

static struct pg_sync *db;

static void set_up(void)
{
    db = database_open("issuing_owner");
}

static void tear_down(void)
{
    pg_sync_close(db);
}

/* As sha2(256),bytes(0,2),hex,hex2i,mod(1024) of HAProxy and hashlib of Python have them. */
TEST(the_group_of_a_user_is_a_part_of_the_sha256_of_its_bytes)
{
    static const struct {
        const char *user;
        int group;
    } known[] = {{"alice", 984}, {"bob", 438}, {"a b'c", 107}, {"\\\\x", 286}, {"\xc3\xbc", 116}, {"", 944}};
    for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
        int64_t group = database_int(db, "SELECT issuing.group_of($u$%s$u$)", known[i].user);
        ck_assert_msg(group == known[i].group, "%s: %d", known[i].user, (int)group);
    }
}

TEST(the_function_of_the_group_is_a_part_of_the_statement)
{
    struct pg_rows *rows =
        database_rows(db, "EXPLAIN (VERBOSE) SELECT FROM outbox_events e WHERE issuing.group_of(e.user_id) = 3");
    for (int i = 0; i < pg_rows_count(rows); i++)
        ck_assert_msg(!strstr(pg_bytes(rows, i, 0).bytes, "group_of"), "the function is not inlined");
    pg_rows_free(rows);
}

TESTS_BETWEEN(groups, set_up, tear_down)
