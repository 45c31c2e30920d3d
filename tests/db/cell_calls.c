/* See cell_calls.h. */
#include "tests/db/cell_calls.h"

#include "common/base/uuid7.h"

struct pg_sync *one, *two, *api, *worker;

struct pg_sync *cell_open(const char *cell, const char *role)
{
    struct pg_sync *db = NULL;
    struct err err = {.kind = ERR_NONE};
    char conninfo[512];
    snprintf(conninfo, sizeof(conninfo), "%s dbname=issuing_cell_%s", database_conninfo(), cell);
    ck_assert_msg(pg_sync_open(conninfo, "test", &db, &err), "%s", err.message);
    database_run(db, "SET client_min_messages = warning; SET search_path = pg_catalog, issuing, pg_temp; "
                     "SET lock_timeout = '20s'");
    if (role)
        database_exec(db, "SET ROLE %s", role);
    return db;
}

/* Copies of the test's own database, which nobody is connected to at this moment. */
void cells_make(void)
{
    struct pg_sync *db = database_open(NULL);
    struct err err = {.kind = ERR_NONE};
    char *own = database_text(db, "SELECT current_database()"), conninfo[512];
    pg_sync_close(db);
    snprintf(conninfo, sizeof(conninfo), "%s dbname=postgres", database_conninfo());
    ck_assert_msg(pg_sync_open(conninfo, "test", &db, &err), "%s", err.message);
    database_run(db, "SET client_min_messages = warning");
    for (int i = 0; i < 2; i++) {
        const char *name = i == 0 ? "one" : "two";
        database_exec(db, "DROP DATABASE IF EXISTS issuing_cell_%s WITH (FORCE)", name);
        database_exec(db, "CREATE DATABASE issuing_cell_%s TEMPLATE %s", name, own);
        struct pg_sync *cell = cell_open(name, NULL);
        database_exec(cell, "SELECT issuing.cell_init('%s', %s)", name, i == 0 ? "NULL" : "'{}'");
        pg_sync_close(cell);
    }
    pg_sync_close(db);
    free(own);
}

static void empty_cell(struct pg_sync *cell, const char *state)
{
    database_exec(cell,
                  "TRUNCATE outbox_events, outbox_attempts, idempotency_keys, rate_limit_log, cards, card_reissues, "
                  "event_reissues, number_reveals, lost_events, peer_checks, operator_actions, cell_users, routes, "
                  "outbox_statistics, statistics_changes; "
                  "UPDATE cell_buckets SET state = '%s', other = NULL, move_id = NULL",
                  state);
}

void cells_set_up(void)
{
    one = cell_open("one", NULL);
    two = cell_open("two", NULL);
    api = cell_open("one", "issuing_api");
    worker = cell_open("one", "issuing_worker");
    empty_cell(one, "here");
    empty_cell(two, "away");
}

void cells_tear_down(void)
{
    pg_sync_closep(&worker);
    pg_sync_closep(&api);
    pg_sync_closep(&two);
    pg_sync_closep(&one);
}

int bucket_of(const char *user)
{
    return (int)database_int(one, "SELECT issuing.bucket_of($u$%s$u$)", user);
}

void set_state(const char *user, const char *state)
{
    database_exec(one, "UPDATE cell_buckets SET state = '%s', other = 'two', move_id = '" MOVE "' WHERE bucket = %d",
                  state, bucket_of(user));
}

void expect_side(struct pg_sync *cell, const char *user, const char *state)
{
    char text[128];
    snprintf(text, sizeof(text), "SELECT state FROM cell_buckets WHERE bucket = %d", bucket_of(user));
    char *found = database_text(cell, text);
    ck_assert_str_eq(found, state);
    free(found);
}

const char *accept_one(struct pg_sync *db, const char *user, const char *key)
{
    static char verdict[24];
    char text[512];
    struct uuid id = uuid7_make();
    char id_text[UUID_TEXT_SIZE];
    uuid_format(&id, id_text);
    snprintf(text, sizeof(text),
             "SELECT verdict FROM issuing.accept('{%s}', ARRAY[$u$%s$u$], '{%s}', '{\"\\\\x00\"}', "
             "ARRAY['{\"kind\":\"new\"}'], ARRAY[NULL], 3, '1 h', true, '1 day')",
             id_text, user, key);
    char *found = database_text(db, text);
    snprintf(verdict, sizeof(verdict), "%s", found);
    free(found);
    return verdict;
}

void expect_verdict(struct pg_sync *db, const char *user, const char *key, const char *verdict)
{
    ck_assert_str_eq(accept_one(db, user, key), verdict);
}

void expect_sqlstate(struct pg_sync *db, const char *wanted, const char *format, ...)
{
    struct err err = {.kind = ERR_NONE};
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    ck_assert_int_ge(vasprintf(&text, format, arguments), 0);
    va_end(arguments);
    bool done = pg_sync_exec(db, text, &err);
    const char *sqlstate = done ? "" : err.sqlstate;
    ck_assert_msg(strcmp(sqlstate, wanted) == 0, "%s: %s and not %s: %s", text, sqlstate, wanted, err.message);
    free(text);
}

void add_foreign(struct pg_sync *db, const char *type, const char *user)
{
    database_exec(db, "INSERT INTO outbox_events (event_type, user_id, payload) VALUES ('%s', $u$%s$u$, '{}')", type,
                  user);
}

char *claim_users(struct pg_sync *db, const char *type, int most)
{
    char text[320];
    snprintf(text, sizeof(text),
             "SELECT coalesce(string_agg(user_id, ',' ORDER BY user_id), '') FROM issuing.claim(gen_random_uuid(), %d, "
             "60000, 'w', NULL, 100, false, '%s', (SELECT count(*) > 0 FROM routes WHERE event_type = '%s' AND "
             "is_ordered)), unnest(events)",
             most, type, type);
    return database_text(db, text);
}

int64_t step(struct pg_sync *cell, const char *name, const char *user)
{
    return database_int(cell, "SELECT issuing.cell_%s(%d, '" MOVE "')", name, bucket_of(user));
}

void list_bucket(const char *user)
{
    int bucket = bucket_of(user);
    ck_assert_int_eq(database_int(one, "SELECT count(*) FROM issuing.cell_list('{%d}', 'two', '" MOVE "')", bucket), 1);
    database_exec(one, "SELECT issuing.cell_list_users('{%d}')", bucket);
}

static bool compare(int bucket)
{
    char text[128];
    snprintf(text, sizeof(text), "SELECT string_agg(f::text, ' ') FROM issuing.cell_fingerprint(%d) f", bucket);
    char *here = database_text(one, text), *there = database_text(two, text);
    bool is_equal = strcmp(here, there) == 0;
    free(here);
    free(there);
    return is_equal;
}

/* The server writes and reads one file, which both databases share. */
static void copy_table(const char *copy_out, const char *copy_in, const char *file)
{
    char *text = NULL;
    const char *out = strstr(copy_out, "STDOUT"), *in = strstr(copy_in, "STDIN");
    ck_assert(out && in);
    ck_assert_int_ge(asprintf(&text, "%.*s'%s'%s", (int)(out - copy_out), copy_out, file, out + 6), 0);
    database_run(one, text);
    free(text);
    ck_assert_int_ge(asprintf(&text, "%.*s'%s'%s", (int)(in - copy_in), copy_in, file, in + 5), 0);
    database_run(two, text);
    free(text);
}

bool copy_bucket(const char *user)
{
    int bucket = bucket_of(user);
    char text[80];
    char *file = database_text(one, "SELECT current_setting('data_directory') || '/cell.copy'");
    snprintf(text, sizeof(text), "SELECT copy_out, copy_in FROM issuing.cell_copy(%d)", bucket);
    struct pg_rows *rows = database_rows(one, text);
    ck_assert_int_eq(pg_rows_count(rows), 12);
    database_run(two, "BEGIN");
    for (int i = 0; i < pg_rows_count(rows); i++)
        copy_table(pg_bytes(rows, i, 0).bytes, pg_bytes(rows, i, 1).bytes, file);
    bool is_equal = compare(bucket);
    database_run(two, "COMMIT");
    pg_rows_free(rows);
    free(file);
    return is_equal;
}

void close_bucket(const char *user)
{
    list_bucket(user);
    ck_assert_int_eq(database_int(two, "SELECT issuing.cell_expect(%d, 'one', '" MOVE "')", bucket_of(user)), 1);
    ck_assert_int_eq(step(one, "drain", user), 1);
    ck_assert_int_eq(step(one, "close", user), 1);
}

void move_bucket(const char *user)
{
    close_bucket(user);
    ck_assert(copy_bucket(user));
    ck_assert_int_eq(step(one, "leave", user), 1);
    ck_assert_int_eq(step(two, "arrive", user), 1);
}

void empty_bucket(const char *user)
{
    while (database_int(one, "SELECT issuing.cell_empty(%d, 3)", bucket_of(user)) > 0)
        ;
    expect_side(one, user, "away");
}
