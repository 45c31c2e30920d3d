/* The story: an administrator changes what our tables rest on: the host sorts texts in another order, or the whole
 * database is replicated. This file checks what each table needs so that it works as before; tests/e2e/databases.py has
 * stories of such changes. */
#include "database.h"
#include "tests/support/suite.h"

/* The names that the query finds: there are none. */
static void expect_none(const char *query)
{
    struct pg_sync *db = database_open(NULL);
    char *found = database_text(db, query);
    ck_assert_msg(!found, "%.4000s", found);
    free(found);
    pg_sync_close(db);
}

TEST(no_text_of_a_table_depends_on_how_the_host_sorts)
{
    expect_none("SELECT string_agg(format('%s.%s', a.attrelid::regclass, a.attname), ', ')"
                " FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid"
                " WHERE c.relnamespace = 'issuing'::regnamespace AND c.relkind IN ('r', 'p', 'm', 'i', 'I')"
                " AND a.attcollation NOT IN (0, 'pg_catalog.\"C\"'::regcollation)");
    expect_none("SELECT string_agg(i.indexrelid::regclass::text, ', ')"
                " FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid CROSS JOIN unnest(i.indcollation) AS n (oid)"
                " WHERE c.relnamespace = 'issuing'::regnamespace"
                " AND n.oid NOT IN (0, 'pg_catalog.\"C\"'::regcollation)");
}

TEST(every_table_and_every_partition_to_come_can_be_replicated_by_rows)
{
    struct pg_sync *db = database_open(NULL);
    database_run(db, "SELECT issuing.partition_add(c.relname, '2100-01-01', '2100-02-01')"
                     " FROM pg_class c WHERE c.relnamespace = 'issuing'::regnamespace AND c.relkind = 'p'"
                     " AND c.relname <> 'outbox_attempts'"); /* it comes with that of the events */
    pg_sync_close(db);
    expect_none("SELECT string_agg(c.oid::regclass::text, ', ')"
                " FROM pg_class c WHERE c.relnamespace = 'issuing'::regnamespace AND c.relkind = 'r'"
                " AND c.relreplident <> 'f' AND NOT (c.relreplident = 'd' AND EXISTS"
                " (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary))");
}

TESTS(tables)
