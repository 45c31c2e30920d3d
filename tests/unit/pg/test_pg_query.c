/* The story: after a deadlock or a failover the same transaction may succeed; after a constraint it never will. A
 * program that confuses them repeats for ever, or gives a client up too early. */
#include <check.h>
#include <stdlib.h>

#include "common/lib/pg/pg_query.h"
#include "tests/support/suite.h"

TEST(only_what_may_pass_is_transient)
{
    static const char *const transient[] = {"40001", "40P01", "25006", "53300", "57P01", "57P03", "08006"};
    static const char *const lasting[] = {"", "23505", "22012", "42P01", "57014", "40002", "P0001"};
    for (size_t i = 0; i < ARRAY_SIZE(transient); i++)
        ck_assert_msg(pg_sqlstate_is_transient(transient[i]), "%s", transient[i]);
    for (size_t i = 0; i < ARRAY_SIZE(lasting); i++)
        ck_assert_msg(!pg_sqlstate_is_transient(lasting[i]), "%s", lasting[i]);
}

TEST(a_queue_keeps_the_order_and_its_count)
{
    struct pg_query queries[3];
    struct pg_queries queue = {0};
    ck_assert_ptr_null(pg_queries_take(&queue));
    pg_queries_append(&queue, &queries[1]);
    pg_queries_append(&queue, &queries[2]);
    pg_queries_prepend(&queue, &queries[0]);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(queue.count, 3 - i);
        ck_assert_ptr_eq(pg_queries_take(&queue), &queries[i]);
    }
    ck_assert_ptr_null(queue.last);
    pg_queries_prepend(&queue, &queries[0]);
    pg_queries_append(&queue, &queries[1]);
    ck_assert_ptr_eq(queue.first->next, &queries[1]);
    ck_assert_ptr_eq(queue.last, &queries[1]);
}

TESTS(pg_query)
