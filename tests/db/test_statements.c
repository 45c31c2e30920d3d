/* The story: a statement that does not fit the schema, or that its role may not run, is found here and not at the first
 * request of a deployment; and an attacker who controls a program can do no more than its statements need. Every
 * statement is prepared, and then executed in its own role, with values of its types, in a transaction that is rolled
 * back. */
#include "tests/db/database.h"

#include "statements.h"
#include "migrations.h"
#include "tests/support/suite.h"

static struct pg_sync *db;

static void set_up(void)
{
    db = database_open(NULL);
}

static void tear_down(void)
{
    pg_sync_closep(&db);
}

static bool starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

/* Who runs it; the first match counts. schema_version is everybody's. */
static const struct {
    const char *prefix;
    const char *roles[4];
} users[] = {
    {"accept_batch", {"issuing_api"}},
    {"accept_check", {"issuing_api"}},
    {"accept_probe", {"issuing_api"}},
    {"request_", {"issuing_api"}},
    {"requests_", {"issuing_api"}},
    {"card_", {"issuing_api"}},
    {"owner_", {"issuing_owner"}},
    {"notify_wake", {"issuing_api"}},
    {"promise_retentions", {"issuing_api"}},
    {"note_issuer_event", {"issuing_api"}},
    {"notify_final", {"issuing_worker"}},
    {"outbox_gauges", {"issuing_api", "issuing_worker"}},
    {"worker_gauges", {"issuing_api", "issuing_worker"}},
    {"server_gauges", {"issuing_api", "issuing_worker"}},
    {"outbox_", {"issuing_worker"}},
    {"keep_rows", {"issuing_worker"}},
    {"run_housekeeping", {"issuing_worker"}},
    {"heartbeat", {"issuing_worker"}},
    {"reconcile_", {"issuing_worker"}},
    {"issuer_check_", {"issuing_worker"}},
    {"issuer_listing_", {"issuing_worker"}},
    {"statistics_fold", {"issuing_worker"}},
    {"what_waits", {"issuing_worker"}},
    {"check_default_partitions", {"issuing_worker"}},
    {"erase_numbers", {"issuing_worker"}},
    {"forget_keys", {"issuing_worker"}},
    {"console_", {"issuing_operator", "issuing_viewer"}},
    {"operator_migrate_", {"issuing_owner"}},
    {"operator_", {"issuing_operator"}},
    {"session_", {"issuing_api", "issuing_worker"}},
    {"schema_version", {"issuing_api", "issuing_worker", "issuing_operator", "issuing_owner"}},
};

static const char *const *roles_of(const struct sql_statement *statement)
{
    for (size_t i = 0; i < ARRAY_SIZE(users); i++)
        if (starts_with(statement->name, users[i].prefix))
            return users[i].roles;
    ck_abort_msg("nobody is known to use %s", statement->name);
    return NULL;
}

/* BEGIN, CREATE TABLE and their like cannot be prepared by name. */
static bool is_command(const struct sql_statement *statement)
{
    return !starts_with(statement->text, "SELECT") && !starts_with(statement->text, "WITH") &&
           !starts_with(statement->text, "INSERT") && !starts_with(statement->text, "UPDATE") &&
           !starts_with(statement->text, "DELETE");
}

/* "bigint,uuid[]" as the server has understood them; the caller frees it. */
static char *types_of(const struct sql_statement *statement)
{
    database_exec(db, "PREPARE tried AS %s", statement->text);
    char *types = database_text(
        db, "SELECT array_to_string(parameter_types::text[], ',') FROM pg_prepared_statements WHERE name = 'tried'");
    database_run(db, "DEALLOCATE tried");
    return types;
}

static int count_types(const char *types)
{
    int count = *types ? 1 : 0;
    for (; *types; types++)
        count += *types == ',';
    return count;
}

TEST(every_statement_is_prepared_with_its_number_of_parameters)
{
    ck_assert_uint_gt(sql_statements_count, 20);
    for (size_t i = 0; i < sql_statements_count; i++) {
        const struct sql_statement *statement = sql_statements[i];
        if (is_command(statement)) {
            ck_assert_int_eq(statement->parameters, 0);
            continue;
        }
        char *types = types_of(statement);
        ck_assert_msg(count_types(types) == statement->parameters, "%s: %d parameters, the server knows %s",
                      statement->name, statement->parameters, types);
        free(types);
    }
}

struct values {
    struct pg_param params[PG_PARAMS_MAX];
    struct buf bufs[PG_PARAMS_MAX];
    struct uuid uuid;
};

/* A text that is also JSON, a number and a lock_timeout. */
static const char text_value[] = "77";

static struct pg_param value_of(const char *type, struct values *values, int n)
{
    if (strcmp(type, "text") == 0 || strcmp(type, "bytea") == 0)
        return pg_param_string(text_value);
    if (strcmp(type, "bigint") == 0)
        return pg_param_int8(77);
    if (strcmp(type, "boolean") == 0)
        return pg_param_bool(true);
    if (strcmp(type, "uuid") == 0)
        return pg_param_uuid(&values->uuid);
    struct pg_array array;
    struct buf *buf = &values->bufs[n];
    if (strcmp(type, "text[]") == 0 || strcmp(type, "bytea[]") == 0) {
        pg_array_start(&array, buf, type[0] == 't' ? PG_TEXT : PG_BYTEA);
        pg_array_add_string(&array, text_value);
    } else if (strcmp(type, "bigint[]") == 0) {
        pg_array_start(&array, buf, PG_INT8);
        pg_array_add_int8(&array, 77);
    } else if (strcmp(type, "boolean[]") == 0) {
        pg_array_start(&array, buf, PG_BOOL);
        pg_array_add_bool(&array, true);
    } else {
        ck_assert_msg(strcmp(type, "uuid[]") == 0, "no value of type %s", type);
        pg_array_start(&array, buf, PG_UUID);
        pg_array_add_uuid(&array, &values->uuid);
    }
    return pg_array_param(&array);
}

/* types is cut into pieces. */
static void fill(struct values *values, const struct sql_statement *statement, char *types)
{
    char *rest = NULL;
    int n = 0;
    values->uuid = uuid7_make();
    for (int i = 0; i < PG_PARAMS_MAX; i++)
        buf_init(&values->bufs[i], 4096);
    for (char *type = strtok_r(types, ",", &rest); type; type = strtok_r(NULL, ",", &rest), n++)
        values->params[n] = value_of(type, values, n);
    if (strcmp(statement->name, "operator_migrate_as") == 0)
        values->params[0] = pg_param_text("none", 4);
    if (strcmp(statement->name, "heartbeat_routes") == 0)
        for (int i = 1; i < n; i++)
            values->params[i] = pg_param_null(); /* no route: the text is not the name of a type */
    if (strcmp(statement->name, "operator_rights") == 0)
        values->params[0] = pg_param_string(schema_rights);
}

static void execute(const struct sql_statement *statement, const char *role)
{
    struct values values;
    struct pg_rows *rows = NULL;
    struct err err = {.kind = ERR_NONE};
    char *types = is_command(statement) ? strdup("") : types_of(statement);
    ck_assert_ptr_nonnull(types);
    fill(&values, statement, types);
    database_exec(db, "BEGIN; SET LOCAL ROLE %s", role);
    ck_assert_msg(pg_sync_query(db, statement, values.params, &rows, &err), "%s as %s: %s", statement->name, role,
                  err.message);
    int count = pg_rows_count(rows);
    switch (statement->shape) {
    case SQL_NONE:
        ck_assert_msg(count == 0, "%s: %d rows", statement->name, count);
        break;
    case SQL_ONE:
        ck_assert_msg(count == 1, "%s: %d rows", statement->name, count);
        break;
    case SQL_MANY:
        ck_assert_msg(count <= 77, "%s: %d rows, more than its limit", statement->name, count);
        break;
    }
    pg_rows_free(rows);
    database_run(db, "ROLLBACK; RESET ROLE");
    for (int i = 0; i < PG_PARAMS_MAX; i++)
        buf_done(&values.bufs[i]);
    free(types);
}

TEST(every_statement_runs_in_the_role_that_uses_it_and_gives_its_shape)
{
    for (size_t i = 0; i < sql_statements_count; i++) {
        const char *const *roles = roles_of(sql_statements[i]);
        for (int r = 0; r < 4 && roles[r]; r++)
            execute(sql_statements[i], roles[r]);
    }
}

TEST(every_name_is_there_once)
{
    for (size_t i = 0; i < sql_statements_count; i++)
        for (size_t other = 0; other < i; other++)
            ck_assert_str_ne(sql_statements[i]->name, sql_statements[other]->name);
}

static const char *const programs[] = {"issuing_api", "issuing_worker", "issuing_operator"};

/* What each role must not be able to do, even when an attacker controls its program. */
static const struct {
    const char *role;
    const char *text;
} forbidden[] = {
    {"issuing_operator", "SELECT number_record FROM cards"},
    {"issuing_operator", "SELECT * FROM cards"},
    {"issuing_operator", "SELECT cards FROM cards"},
    {"issuing_operator", "COPY cards TO STDOUT"},
    {"issuing_operator", "UPDATE cards SET status = 'active'"},
    {"issuing_operator", "INSERT INTO cards (id, request_id, exp_month, exp_year, user_id, issuer_card_id, last4) "
                         "VALUES (gen_random_uuid(), gen_random_uuid(), 1, 2030, 'u', 'i', '1111')"},
    {"issuing_operator", "UPDATE outbox_events SET payload = '{}'"},
    {"issuing_operator", "UPDATE outbox_events SET user_id = 'mallory'"},
    {"issuing_operator", "UPDATE outbox_events SET lease_token = NULL"},
    {"issuing_operator", "UPDATE outbox_events SET status = 'PENDING'"},
    {"issuing_operator", "INSERT INTO marks (event_id, deadline_at, action, actor) "
                         "VALUES (gen_random_uuid(), now(), 'reconcile', 'a')"},
    {"issuing_operator", "UPDATE marks SET actor = 'nobody'"},
    {"issuing_operator", "DELETE FROM marks"},
    {"issuing_operator", "INSERT INTO issuer_checks (deadline_at, actor) VALUES (now(), 'a')"},
    {"issuing_operator", "UPDATE issuer_checks SET actor = 'nobody'"},
    {"issuing_operator", "SELECT * FROM issuing.take_issuer_check(gen_random_uuid(), 1, 'w', '{}')"},
    {"issuing_operator", "SELECT issuing.end_issuer_check(gen_random_uuid(), gen_random_uuid(), 'ok', '[]')"},
    {"issuing_operator", "UPDATE issuer_listings SET counts = '{}'"},
    {"issuing_operator", "DELETE FROM listed_cards"},
    {"issuing_operator", "SELECT issuing.leave_listing(gen_random_uuid(), gen_random_uuid(), 'x', true)"},
    {"issuing_operator", "UPDATE outbox_statistics SET count = 0"},
    {"issuing_operator", "DELETE FROM statistics_changes"},
    {"issuing_operator", "SELECT issuing.fold_statistics(1)"},
    {"issuing_worker", "UPDATE outbox_statistics SET count = 0"},
    {"issuing_worker", "DELETE FROM statistics_changes"},
    {"issuing_worker", "SELECT issuing.rebuild_statistics(NULL, 'a', NULL, NULL, 'b')"},
    {"issuing_api", "INSERT INTO statistics_changes DEFAULT VALUES"},
    {"issuing_operator", "INSERT INTO event_reissues (old_id, new_id) VALUES (gen_random_uuid(), gen_random_uuid())"},
    {"issuing_operator", "DELETE FROM event_reissues"},
    {"issuing_operator", "SELECT issuing.end_mark(gen_random_uuid(), gen_random_uuid(), 1, 'found', '')"},
    {"issuing_operator", "SELECT issuing.reject(e, 'cancelled', '') FROM outbox_events e"},
    {"issuing_operator", "SELECT issuing.reopen(e, false) FROM outbox_events e"},
    {"issuing_operator", "SELECT issuing.note_action('replay', NULL, NULL, 'a', NULL, NULL, 'b', NULL)"},
    {"issuing_operator", "UPDATE idempotency_keys SET key = 'k'"},
    {"issuing_operator", "DELETE FROM idempotency_keys"},
    {"issuing_operator", "DELETE FROM rate_limit_log"},
    {"issuing_operator",
     "INSERT INTO operator_actions (at, actor, action) VALUES ('2000-01-01', 'a', 'b')"}, /* no forged times */
    {"issuing_operator", "SELECT * FROM issuing.ask_reveal(gen_random_uuid(), 'u', '{1}', 1)"},
    {"issuing_operator", "SELECT * FROM issuing.take_number(gen_random_uuid())"},
    {"issuing_worker", "SELECT * FROM issuing.take_number(gen_random_uuid())"},
    {"issuing_api", "SELECT number_record FROM cards"},
    {"issuing_api", "SELECT count(number_record) FROM cards"},
    {"issuing_api", "SELECT * FROM cards"},
    {"issuing_api", "SELECT cards FROM cards"},
    {"issuing_api", "COPY cards TO STDOUT"},
    {"issuing_api", "SELECT * FROM issuing.number_keys()"},
    {"issuing_api", "INSERT INTO operator_actions (actor, action) VALUES ('a', 'b')"},
    {"issuing_worker", "SELECT number_record FROM cards"},
    {"issuing_worker", "SELECT count(*) FROM cards WHERE number_record IS NULL"},
    {"issuing_worker", "SELECT * FROM cards"},
    {"issuing_worker", "SELECT cards FROM cards"},
    {"issuing_worker", "COPY cards TO STDOUT"},
    {"issuing_worker",
     "INSERT INTO cards (id, request_id, exp_month, exp_year, user_id, issuer_card_id, last4) "
     "VALUES (gen_random_uuid(), gen_random_uuid(), 1, 2030, 'u', 'i', '1111') RETURNING number_record"},
    {"issuing_worker", "UPDATE cards SET status = 'active' RETURNING number_record"},
    {"issuing_worker", "SELECT * FROM issuing.ask_reveal(gen_random_uuid(), 'u', '{1}', 1)"},
    {"issuing_operator", "INSERT INTO operator_actions (actor, action) VALUES ('a', 'b')"},
    {"issuing_api", "INSERT INTO operator_actions (actor, action, db_role) VALUES ('a', 'b', 'postgres')"},
    {"issuing_api", "SELECT issuing.replay(gen_random_uuid(), NULL, 'a', NULL, NULL, 'b')"},
    {"issuing_api", "SELECT actor FROM marks"},
    {"issuing_worker", "SELECT issuing.replay(gen_random_uuid(), NULL, 'a', NULL, NULL, 'b')"},
    {"issuing_worker", "SELECT actor FROM marks"},
    {"issuing_worker", "UPDATE marks SET actor = 'nobody'"},
    {"issuing_worker", "SELECT actor FROM issuer_checks"},
    {"issuing_worker", "UPDATE issuer_checks SET actor = 'nobody'"},
    {"issuing_worker", "SELECT * FROM issuing.ask_issuer_check('issuer', 'u', false, 1, 'a', NULL, NULL, 'b')"},
    {"issuing_worker", "SELECT since FROM issuer_listings"},
    {"issuing_worker", "SELECT * FROM issuing.ask_listing(1, 1, 'a', NULL, NULL, 'b')"},
    {"issuing_api", "UPDATE outbox_events SET status = 'COMPLETED'"},
    {"issuing_api", "UPDATE outbox_events SET next_attempt_at = now()"},
    {"issuing_api", "SELECT 1 FROM outbox_events FOR UPDATE"},
    {"issuing_api", "INSERT INTO outbox_events (user_id, payload, status) VALUES ('u', '{}', 'COMPLETED')"},
    {"issuing_api", "INSERT INTO outbox_events (user_id, payload, retry_count) VALUES ('u', '{}', 1)"},
    {"issuing_api", "INSERT INTO cards (id, request_id, exp_month, exp_year, user_id, issuer_card_id, last4) "
                    "VALUES (gen_random_uuid(), gen_random_uuid(), 1, 2030, 'u', 'i', '1111')"},
    {"issuing_api", "UPDATE cards SET status = 'active'"},
    {"issuing_api", "UPDATE idempotency_keys SET fingerprint = ''"},
    {"issuing_api", "DELETE FROM idempotency_keys"},
    {"issuing_api", "UPDATE rate_limit_log SET at = now()"},
    {"issuing_api", "DELETE FROM rate_limit_log"},
    {"issuing_api", "SELECT 1 FROM outbox_attempts"},
    {"issuing_api", "SELECT actor FROM operator_actions"},
    {"issuing_worker", "INSERT INTO outbox_events (user_id, payload) VALUES ('u', '{}')"},
    {"issuing_worker", "UPDATE outbox_events SET payload = '{}'"},
    {"issuing_worker", "UPDATE outbox_events SET user_id = 'mallory'"},
    {"issuing_worker", "UPDATE cards SET number_record = NULL"},
    {"issuing_worker", "UPDATE cards SET user_id = 'mallory'"},
    {"issuing_worker", "UPDATE cards SET last4 = '0000'"},
    {"issuing_worker", "UPDATE outbox_attempts SET outcome = 'completed'"},
    {"issuing_worker", "INSERT INTO idempotency_keys (event_id, created_at, user_id, key, fingerprint) "
                       "VALUES (gen_random_uuid(), now(), 'u', 'k', '')"},
    {"issuing_worker", "UPDATE idempotency_keys SET key = 'k'"},
    {"issuing_worker", "SELECT actor FROM operator_actions"},
    {"issuing_worker", "INSERT INTO operator_actions (actor, action) VALUES ('a', 'b')"},
};

/* What none of the roles may do. */
static const char *const forbidden_to_all[] = {
    "UPDATE operator_actions SET actor = 'nobody'",
    "UPDATE operator_actions SET reason = ''",
    "DELETE FROM operator_actions",
    "DELETE FROM operator_actions_default",
    "SELECT * FROM number_reveals",
    "UPDATE ceilings SET most = 1000",
    "SELECT issuing.set_ceiling('reveals', 1000)",
    "SELECT issuing.set_retention('audit', '365 days')",
    "TRUNCATE operator_actions",
    "DELETE FROM outbox_events",
    "TRUNCATE outbox_events",
    "DELETE FROM cards",
    "TRUNCATE cards",
    "DELETE FROM outbox_attempts",
    "UPDATE outbox_attempts SET detail = ''",
    "TRUNCATE idempotency_keys",
    "UPDATE schema_migration SET sha256 = ''",
    "DELETE FROM schema_migration",
    "INSERT INTO schema_migration (version, name, sha256, ms) VALUES (99, 'x', 'x', 0)",
    "DROP TABLE operator_actions",
    "ALTER TABLE outbox_events DISABLE TRIGGER ALL",
    "CREATE TABLE of_mine (i int)",
    "SELECT * FROM issuing.rewrap_take(NULL, NULL, 1, 10)",
    "SELECT issuing.rewrap_put('{}', '{}', '{}', '{}', 'x')",
    ("CREATE TEMP TABLE mine (id uuid, user_id text, payload jsonb); "
     "CREATE TRIGGER mine AFTER INSERT ON mine FOR EACH ROW EXECUTE FUNCTION issuing.reissue_once()"),
    "CREATE OR REPLACE FUNCTION issuing.uuid7() RETURNS uuid LANGUAGE sql AS 'SELECT gen_random_uuid()'",
};

static void expect_forbidden(const char *role, const char *text)
{
    struct err err = {.kind = ERR_NONE};
    database_exec(db, "BEGIN; SET LOCAL ROLE %s", role);
    bool done = pg_sync_exec(db, text, &err);
    database_run(db, "ROLLBACK");
    ck_assert_msg(!done, "%s could: %s", role, text);
    ck_assert_msg(strcmp(err.sqlstate, "42501") == 0, "%s: %s: %s", role, text, err.message);
}

TEST(no_role_can_do_what_it_must_not)
{
    for (size_t i = 0; i < ARRAY_SIZE(forbidden); i++)
        expect_forbidden(forbidden[i].role, forbidden[i].text);
}

TEST(history_and_audit_are_append_only_for_everybody)
{
    for (size_t r = 0; r < ARRAY_SIZE(programs); r++)
        for (size_t i = 0; i < ARRAY_SIZE(forbidden_to_all); i++)
            expect_forbidden(programs[r], forbidden_to_all[i]);
}

TEST(nothing_is_granted_to_everybody)
{
    ck_assert_int_eq(database_int(db,
                                  "SELECT count(*) FROM information_schema.table_privileges WHERE grantee = 'PUBLIC' "
                                  "AND table_schema IN ('issuing', 'public')"),
                     0);
    ck_assert_int_eq(database_int(db,
                                  "SELECT count(*) FROM information_schema.column_privileges WHERE grantee = 'PUBLIC' "
                                  "AND table_schema IN ('issuing', 'public')"),
                     0);
}

/* grants.sql and the REVOKEs name functions without their parameters, so a second function of a name that a later file
 * makes would keep its right for PUBLIC. */
TEST(no_two_functions_have_one_name_and_what_runs_as_the_owner_is_not_public)
{
    char *found =
        database_text(db, "SELECT string_agg(t.name, ' ') FROM (SELECT p.proname AS name FROM pg_proc p WHERE "
                          "p.pronamespace = 'issuing'::regnamespace GROUP BY 1 HAVING count(*) > 1) t");
    ck_assert_msg(!found, "%.4000s", found);
    free(found);
    found = database_text(db, "SELECT string_agg(p.proname, ' ') FROM pg_proc p CROSS JOIN LATERAL "
                              "aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a WHERE p.pronamespace = "
                              "'issuing'::regnamespace AND p.prosecdef AND a.grantee = 0");
    ck_assert_msg(!found, "%.4000s", found);
    free(found);
}

static int count_rights(void)
{
    const struct pg_param params[] = {pg_param_string(schema_rights)};
    struct pg_rows *rows = database_query(db, &sql_operator_rights, params);
    int count = pg_rows_count(rows);
    pg_rows_free(rows);
    return count;
}

/* Each change of a right, missing or too many, is one line of doctor. */
static const char *const changed_rights[] = {
    "GRANT SELECT ON cards TO issuing_operator",
    "GRANT SELECT (number_record) ON cards TO issuing_worker",
    "GRANT UPDATE (payload) ON outbox_events TO issuing_operator",
    "GRANT INSERT (id) ON operator_actions TO issuing_api",
    "GRANT DELETE ON outbox_attempts TO issuing_worker",
    "GRANT TRUNCATE ON cards TO issuing_api",
    "GRANT SELECT ON idempotency_keys_default TO issuing_worker",
    "GRANT SELECT ON schema_migration TO PUBLIC",
    "GRANT USAGE ON SCHEMA issuing TO PUBLIC",
    "GRANT CREATE ON SCHEMA issuing TO issuing_worker",
    "GRANT EXECUTE ON FUNCTION issuing.rewrap_take(text, uuid, int8, int8) TO issuing_operator",
    "REVOKE INSERT ON outbox_attempts FROM issuing_worker",
    "REVOKE SELECT (last4) ON cards FROM issuing_api",
    "REVOKE USAGE ON SCHEMA issuing FROM issuing_api",
    "REVOKE EXECUTE ON FUNCTION issuing.take_number(uuid) FROM issuing_api",
    "GRANT SELECT ON number_reveals TO issuing_operator",
    "GRANT EXECUTE ON FUNCTION issuing.set_ceiling(text, int8) TO issuing_api",
};

TEST(doctors_list_of_rights_is_satisfied_and_notices_every_change)
{
    ck_assert_int_eq(count_rights(), 0);
    for (size_t i = 0; i < ARRAY_SIZE(changed_rights); i++) {
        database_exec(db, "BEGIN; %s", changed_rights[i]);
        int count = count_rights();
        database_run(db, "ROLLBACK");
        ck_assert_msg(count == 1, "%s: %d lines", changed_rights[i], count);
    }
}

/* What a superuser has done by hand, and how doctor's words begin. */
static const struct {
    const char *text, *told;
} weaknesses[] = {
    {"CREATE FUNCTION issuing.now() RETURNS timestamptz LANGUAGE sql AS 'SELECT NULL::timestamptz'; "
     "ALTER FUNCTION issuing.now() OWNER TO issuing_owner",
     "issuing.now() has no fixed search_path"},
    {"CREATE OPERATOR issuing.<~> (FUNCTION = pg_catalog.int4pl, LEFTARG = int4, RIGHTARG = int4)", "issuing.<~>"},
    {"ALTER TABLE cards OWNER TO issuing_worker", "issuing.cards belongs to issuing_worker"},
    {"ALTER SCHEMA issuing OWNER TO issuing_operator", "the schema issuing belongs to issuing_operator"},
    {"GRANT CREATE ON SCHEMA issuing TO issuing_worker", "issuing_worker may create"},
    {"GRANT CREATE ON SCHEMA issuing TO PUBLIC", "PUBLIC may create in the schema issuing"},
    {"ALTER FUNCTION issuing.number_keys() SET search_path = public, issuing", "issuing.number_keys() has no fixed"},
    {"ALTER FUNCTION issuing.card_of(uuid) RESET search_path", "issuing.card_of(uuid) has no fixed"},
    {"GRANT EXECUTE ON FUNCTION issuing.number_keys() TO PUBLIC", "everybody may call issuing.number_keys()"},
    {"GRANT issuing_owner TO issuing_api", "issuing_api is a member of issuing_owner"},
    {"GRANT issuing_viewer TO issuing_api", "issuing_api is a member of issuing_viewer"},
    {"GRANT pg_read_all_data TO issuing_worker", "issuing_worker is a member of pg_read_all_data"},
    {"CREATE ROLE between NOLOGIN; GRANT pg_write_all_data TO between; GRANT between TO issuing_operator",
     "issuing_operator is a member of pg_write_all_data"},
    {"ALTER ROLE issuing_api REPLICATION", "issuing_api may read all data as a replica"},
    {"GRANT SELECT ON issuing.cards TO issuing_operator", "issuing_operator can read encrypted card numbers"},
    {"ALTER TABLE outbox_events DISABLE TRIGGER outbox_events_reissue", "the trigger outbox_events_reissue"},
    {"ALTER TABLE cards DROP CONSTRAINT cards_one_per_request", "issuing.cards has lost cards_one_per_request"},
    {"ALTER ROLE issuing_worker SET search_path = public", "issuing_worker: search_path=public"},
    {"ALTER ROLE issuing_api SET default_transaction_isolation = 'serializable'",
     "issuing_api has a setting that migrate has not given it: default_transaction_isolation"},
    {"DO $$BEGIN EXECUTE format('ALTER ROLE issuing_operator IN DATABASE %I SET statement_timeout = 1', "
     "current_database()); END$$",
     "issuing_operator has a setting that migrate has not given it: statement_timeout=1"},
    {"ALTER ROLE issuing_worker RESET search_path", "issuing_worker: no search_path is set"},
    {"GRANT CREATE ON SCHEMA public TO PUBLIC", "everybody may create in the schema public"},
    {"DO $$BEGIN EXECUTE format('GRANT CONNECT ON DATABASE %I TO PUBLIC', current_database()); END$$",
     "everybody may connect to this database"},
    {"DO $$BEGIN EXECUTE format('GRANT TEMPORARY ON DATABASE %I TO PUBLIC', current_database()); END$$",
     "everybody may make temporary tables"},
    {"DO $$BEGIN EXECUTE format('REVOKE CONNECT ON DATABASE %I FROM issuing_worker', current_database()); END$$",
     "issuing_worker may not connect to this database"},
    {"DO $$BEGIN EXECUTE format('REVOKE CONNECT ON DATABASE %I FROM issuing_viewer', current_database()); END$$",
     "issuing_viewer may not connect to this database"},
};

/* As docs/install.md describes: only our roles may connect to the database. */
static const char closed[] =
    "DO $$BEGIN EXECUTE format('REVOKE CONNECT, TEMPORARY ON DATABASE %I FROM PUBLIC', current_database()); EXECUTE "
    "format('GRANT CONNECT ON DATABASE %I TO issuing_owner, issuing_api, issuing_worker, issuing_operator, "
    "issuing_viewer', current_database()); END$$";

TEST(doctor_sees_each_way_to_run_code_in_our_name)
{
    /* A database that migrate found in use is open to everybody, which is a warning and no more. */
    database_run(db, "BEGIN; DO $$BEGIN EXECUTE format('GRANT CONNECT, TEMPORARY ON DATABASE %I TO PUBLIC', "
                     "current_database()); END$$");
    struct pg_rows *rows = database_query(db, &sql_operator_access, NULL);
    ck_assert_int_eq(pg_rows_count(rows), 2);
    ck_assert(pg_bool(rows, 0, 0) && pg_bool(rows, 1, 0));
    pg_rows_free(rows);
    database_run(db, "ROLLBACK");
    database_exec(db, "BEGIN; %s", closed);
    rows = database_query(db, &sql_operator_access, NULL);
    ck_assert_msg(pg_rows_count(rows) == 0, "%s", pg_rows_count(rows) ? pg_bytes(rows, 0, 1).bytes : "");
    pg_rows_free(rows);
    database_run(db, "ROLLBACK");
    for (size_t i = 0; i < ARRAY_SIZE(weaknesses); i++) {
        bool found = false;
        database_exec(db, "BEGIN; %s; %s; SET LOCAL search_path = pg_catalog", closed, weaknesses[i].text);
        rows = database_query(db, &sql_operator_access, NULL);
        for (int row = 0; row < pg_rows_count(rows); row++)
            found |= starts_with(pg_bytes(rows, row, 1).bytes, weaknesses[i].told);
        pg_rows_free(rows);
        database_run(db, "ROLLBACK");
        ck_assert_msg(found, "nothing is said of: %s", weaknesses[i].text);
    }
}

/* The role's name for which something is said; "" = for none. */
static const char *logged(void)
{
    static char role[64];
    struct pg_rows *rows = database_query(db, &sql_operator_doctor_logged, NULL);
    snprintf(role, sizeof(role), "%s", pg_rows_count(rows) > 0 ? pg_bytes(rows, 0, 0).bytes : "");
    ck_assert_int_le(pg_rows_count(rows), 1);
    pg_rows_free(rows);
    return role;
}

/* Sealed numbers were found in the server's log, where no retention, no rewrap and no right reaches. */
TEST(no_log_of_the_server_has_what_our_statements_are_given)
{
    static const char *const reasons[] = {"log_statement = 'all'",
                                          "log_statement = 'mod'",
                                          "log_min_duration_statement = '250ms'",
                                          "log_min_duration_sample = 0",
                                          "log_transaction_sample_rate = 0.01",
                                          "auto_explain.log_min_duration = 0"};
    bool has_auto_explain = database_int(db, "SELECT current_setting('server_version_num')") >= 160000;
    ck_assert_str_eq(logged(), "");
    for (size_t i = 0; i < ARRAY_SIZE(reasons) - !has_auto_explain; i++) {
        database_exec(db,
                      "BEGIN; DO $$BEGIN EXECUTE format($_$ALTER DATABASE %%I SET %s$_$, current_database()); END$$",
                      reasons[i]);
        ck_assert_str_eq(logged(), ""); /* whatever is logged: migrate has set it for our roles */
        database_run(db, "ALTER ROLE issuing_worker RESET ALL");
        ck_assert_msg(strcmp(logged(), "issuing_worker") == 0, "%s: %s", reasons[i], logged());
        database_run(db, "ALTER ROLE issuing_worker SET log_statement = 'none'; "
                         "ALTER ROLE issuing_worker SET log_min_duration_statement = -1; "
                         "ALTER ROLE issuing_worker SET log_min_duration_sample = -1; "
                         "ALTER ROLE issuing_worker SET log_transaction_sample_rate = 0; "
                         "ALTER ROLE issuing_worker SET auto_explain.log_min_duration = -1");
        ck_assert_str_eq(logged(), "");
        database_run(db, "ROLLBACK");
    }
    database_run(db, "BEGIN; ALTER ROLE issuing_api SET log_parameter_max_length_on_error = -1");
    ck_assert_str_eq(logged(), "issuing_api");
    database_run(db, "ROLLBACK");
}

TESTS_BETWEEN(statements, set_up, tear_down)
