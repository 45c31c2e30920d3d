"""The database of the release before the schema `issuing` (migrations 0001 to 0004, as that release's issuing-ctl left
it) is migrated: nothing is lost, and the programs bring every open event to its right end.

Old       a session of a program of that release: one psql process that stays connected, names no schema, and repeats a
          call that failed.
old_database  a cluster of its own with migrations 0001 to 0004 and the roles and grants of that release
          (tests/support/release-0004).
"""
import hashlib
import json
import re
import subprocess
import threading
import time
import uuid

import client
import harness
from harness import assert_equal, assert_true, slow, test, wait_until
from operators import lines

SUPPORT = harness.ROOT / "tests" / "support" / "release-0004"
MIGRATIONS = harness.ROOT / "migrations"
OLD_FILES = ("0001_outbox.sql", "0002_accept.sql", "0003_attempts.sql", "0004_housekeeping.sql")
MOVED = ("outbox_events", "idempotency_keys", "rate_limit_log", "cards", "card_reissues", "outbox_attempts",
         "operator_actions")
# What a call may end with while tables are locked and moved; it did nothing then, and a repeat succeeds.
PASSING = {"55P03", "40P01"}


def quoted(value):
    if value is None:
        return "NULL"
    if isinstance(value, (list, tuple)):
        return "ARRAY[%s]" % ", ".join(quoted(item) for item in value)
    return str(value) if isinstance(value, (int, bool)) else "'%s'" % str(value).replace("'", "''")


def uuid7():
    number = int(time.time() * 1000) << 80 | uuid.uuid4().int & ((1 << 80) - 1)
    return str(uuid.UUID(int=number & ~(0xf << 76) & ~(0x3 << 62) | 0x7 << 76 | 0x2 << 62))


class Old:
    def __init__(self, world, role, become=None):
        self.codes = set()
        self.psql = subprocess.Popen([harness.psql_program(), "-XAtq", "-d", world.conninfo(role)], text=True,
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                     env=harness.ENVIRONMENT, start_new_session=True)
        world.sessions.append(self.psql)
        self.once("\\set VERBOSITY sqlstate")
        if become:
            assert_equal(self.once("SET SESSION AUTHORIZATION %s;" % become), ([], None), become)

    def once(self, text):
        """Rows, and the SQLSTATE where it failed."""
        self.psql.stdin.write(text + "\n\\echo .done\n")
        self.psql.stdin.flush()
        rows, code = [], None
        for line in self.psql.stdout:
            line = line.rstrip("\n")
            if line == ".done":
                return rows, code
            found = re.match(r"(?:ERROR|FATAL):\s+(\S+)", line)
            if found:
                code = found[1]
            elif line:
                rows.append(line.split("|"))
        raise harness.Failed("a session of the old release ended: %s" % rows)

    def run(self, text, tries=100):
        for _ in range(tries):
            rows, code = self.once(text)
            if code is None:
                return rows
            self.codes.add(code)
            if code not in PASSING:
                raise harness.Failed("%s: %s: %s" % (code, text[:200], rows))
            time.sleep(0.02)
        raise harness.Failed("still refused after %d tries: %s" % (tries, text[:200]))

    def accept(self, event, user, key):
        return self.run("SELECT verdict, event_id FROM issuing_accept(%s::uuid[], %s::text[], %s::text[],"
                        " ARRAY[sha256(%s::bytea)], ARRAY['{\"kind\": \"new\"}'], ARRAY[NULL]::text[], 1000,"
                        " '10 s', false, '1 day');"
                        % (quoted([event]), quoted([user]), quoted([key]), quoted(user + key)))[0]


def create(world, event, user):
    body = {"reference": event, "user_id": user, "kind": "new", "replaces": None, "program": None, "memo": None}
    answer = client.call(world.sandbox.issuer, "POST", "/v1/cards", {"Idempotency-Key": event,
                                                                     "Content-Type": "application/json"}, body)
    assert_true(answer.status in (200, 201), "create: %r" % answer)
    return answer.json()


def psql_file(world, text, role="postgres"):
    done = harness.run([harness.psql_program(), "-XAtq", "-v", "ON_ERROR_STOP=1", "-d", world.conninfo(role)], 120,
                       text)
    assert_true(done.returncode == 0, done.stderr)


def own_cluster(world):
    """An empty database in a cluster of its own: roles, and what is set for them, belong to a whole cluster."""
    started = harness.run([harness.CLUSTER, "start", world.dir / "pg"], 180)
    assert_true(started.returncode == 0, started.stderr)
    world.base = started.stdout.strip()


def old_database(world):
    own_cluster(world)
    old_tables(world, "issuing_owner")


def old_tables(world, owner):
    psql_file(world, (SUPPORT / "roles.sql").read_text())
    as_owner = "SET client_min_messages = warning; SET ROLE %s;\n" % owner
    psql_file(world,
              as_owner + "CREATE TABLE schema_migration (version int PRIMARY KEY, name text NOT NULL, sha256 text"
              " NOT NULL, applied_at timestamptz NOT NULL DEFAULT clock_timestamp(), applied_by text NOT NULL DEFAULT"
              " session_user, ms int NOT NULL);")
    for number, name in enumerate(OLD_FILES, 1):
        text = (MIGRATIONS / name).read_bytes()
        psql_file(world,
                  "%sBEGIN;\n%s\nINSERT INTO schema_migration (version, name, sha256, ms) VALUES (%d, '%s', '%s',"
                  " 1);\nCOMMIT;" % (as_owner, text.decode(), number, name[5:-4], hashlib.sha256(text).hexdigest()))
    psql_file(world, as_owner + (SUPPORT / "grants.sql").read_text())


def exported(world):
    return {table: world.rows("SELECT * FROM issuing.%s" % table) for table in MOVED}


def copied(world, tables):
    """Into the old tables, the columns that they have."""
    for table, rows in tables.items():
        columns = world.sql("SELECT string_agg(quote_ident(attname), ', ') FROM pg_attribute WHERE attrelid ="
                            " '%s'::regclass AND attnum > 0 AND attgenerated = '' AND attidentity = ''" % table)
        psql_file(world, "SET session_replication_role = replica; INSERT INTO %s (%s) SELECT %s FROM"
                  " json_populate_recordset(NULL::%s, %s);" %
                  (table, columns, columns, table, quoted(json.dumps(rows))))


def insert(world, user, **values):
    """One event of the old release; later() ones are not due while the load runs."""
    row = {"id": uuid7(), "user_id": user, "payload": '{"kind": "new"}', **values}
    expressions = {"created_at", "updated_at", "completed_at", "next_attempt_at", "first_sent_at", "lease_until",
                   "payload"}
    texts = [value if name in expressions and not str(value).startswith("{") else quoted(value)
             for name, value in row.items()]
    psql_file(world, "INSERT INTO outbox_events (%s) VALUES (%s);" % (", ".join(row), ", ".join(texts)))
    return row["id"]


LATER = "now() + interval '1 hour'"
LARGE = "jsonb_build_object('kind', 'new', 'memo', repeat('x', 70000))"


def ids(world, table="issuing.outbox_events", column="id"):
    return set(world.sql("SELECT %s FROM %s" % (column, table)).split())


def rows_of(world, schema):
    """What the migration may not change: every row, by the columns of the old release."""
    return {table: sorted(json.dumps(row, sort_keys=True) for row in
                          world.rows("SELECT %s FROM %s.%s" % ("*" if table != "operator_actions" else
                                                               "id, at, event_id, actor, action, reason, before, after",
                                                               schema, table)))
            for table in ("idempotency_keys", "cards", "card_reissues", "operator_actions")}


def schema_dump(world):
    pg_dump = harness.psql_program().replace("psql", "pg_dump")
    done = harness.run([pg_dump, "--schema-only", "-d", world.conninfo("postgres")], 120)
    assert_equal(done.returncode, 0, done.stderr)
    return re.sub(r"(?m)^\\(un)?restrict .*$", "", done.stdout)


def states(world):
    """The sandbox's world with an end of each kind, made by the programs; {user: event}."""
    world.up()
    for user, call, fault, members in (("rejected", "check", "ineligible", {}),
                                       ("failed", "create", "status", {"status": 418}),
                                       ("exhausted", "create", "status", {"status": 408})):
        world.sandbox.fault(call, fault, user=user, **members)
    found = {user: world.accept(user) for user in ("done", "reissuer", "rejected", "failed", "exhausted")}
    world.settle()
    card = world.get("reissuer", "/v1/card-requests/" + found["reissuer"]).json()["card"]["id"]
    found["reissued"] = world.accept("reissuer", "again", {"kind": "reissue", "replaces": card})
    assert_equal(world.accept("done"), found["done"], "a replayed key")
    assert_equal(world.ctl("replay", found["failed"], "--reason", "again").returncode, 0, "replay")
    world.settle()
    world.sandbox.clear()
    assert_equal([world.status(found[user]) for user in ("done", "reissued", "rejected", "failed", "exhausted")],
                 ["COMPLETED", "COMPLETED", "REJECTED", "FAILED", "FAILED"], "states")
    for daemon in [*world.apis(), *world.workers()]:
        assert_equal(daemon.stop(), 0, daemon.name)
    return found


def number_of(world, user):
    card = world.get(user, "/v1/cards").json()["items"][0]["id"]
    return world.get(user, "/v1/cards/%s/number" % card).json().get("number")


@slow
@test(retry__max_attempts="3", issuer__key_lifetime="1h")
def a_database_of_the_release_before_is_migrated_and_nothing_is_lost(world):
    made = states(world)
    tables = exported(world)
    old_database(world)
    copied(world, tables)
    # Housekeeping: a settled partition with FAILED events, whose retention is over, and one that was not judged yet.
    world.sql("SET ROLE issuing_owner; SELECT issuing_partition_add('outbox_events', '2025-01-01', '2025-01-15'),"
              " issuing_partition_add('outbox_events', '2025-02-01', '2025-02-15'),"
              " issuing_partition_add('idempotency_keys', '2025-01-01', '2025-01-02')")
    year = "01941f29-7c00-7%03d-8000-000000000001"  # 2025-01-01
    ended = {"updated_at": "'2025-01-02'", "completed_at": "'2025-01-02'", "created_at": "'2025-01-01'",
             "status": "FAILED"}
    failed = insert(world, "of-last-year", id=year % 1, reason_code="attempts_exhausted", **ended)
    large_failed = insert(world, "large-failed", id=year % 2, reason_code="payload_invalid", payload=LARGE, **ended)
    world.sql("UPDATE partitions SET settled_at = '2025-01-20', still_open = '{%s, %s}' WHERE name LIKE"
              " 'outbox_events_20250101%%'" % (failed, large_failed))
    # Open ones, each of which the new worker is to bring to its end.
    fresh = insert(world, "fresh", next_attempt_at=LATER)
    rest = insert(world, "rest", id=str(uuid.uuid4()), next_attempt_at=LATER)
    unknown = insert(world, "unknown", next_attempt_at=LATER, first_sent_at="now() - interval '1 min'", retry_count=1)
    lost = insert(world, "lost", status="PROCESSING", first_sent_at="now() - interval '1 min'", retry_count=1,
                  lease_token=uuid7(), lease_until="now() - interval '50 s'", lease_owner="old",
                  next_attempt_at="now() - interval '1 min'", updated_at="now() - interval '1 min'")
    for event, user in ((unknown, "unknown"), (lost, "lost")):
        create(world, event, user)
    other = insert(world, "other", event_type="OTHER")
    # Open ones beyond what the table takes from now on.
    large = insert(world, "large", payload=LARGE, next_attempt_at=LATER)
    large_held = insert(world, "large-held", payload=LARGE, status="PROCESSING", first_sent_at="now()", retry_count=1,
                        lease_token=uuid7(), lease_until="now() + interval '10 min'", lease_owner="old")
    long_user = insert(world, "u" * 200, next_attempt_at=LATER)
    never = insert(world, "never", next_attempt_at="'infinity'")
    # The audit trail: a right of another role on it, a row whose retention is over and one whose retention is not.
    world.sql("CREATE ROLE auditor; GRANT SELECT (at, actor) ON operator_actions TO auditor; INSERT INTO"
              " operator_actions (at,"
              " actor, action) VALUES (now() - interval '500 days', 'olga', 'over'), (now() - interval '300 days',"
              " 'olga',"
              " 'kept')")
    actions = int(world.sql("SELECT max(id) FROM operator_actions"))
    before_ids, before_rows = ids(world, "outbox_events"), rows_of(world, "public")
    attempts = ids(world, "outbox_attempts", "lease_token")
    assert_equal(world.ctl("migrate", "--plan", role="postgres").stdout.split(),
                 ["roles.sql", "0005_schema.sql", "0006_accept.sql", "0007_attempts.sql", "0008_housekeeping.sql",
                  "0009_operators.sql", "0010_card_numbers.sql", "0011_limits.sql",
                  "0012_refused_tries.sql", "0013_workers.sql", "0014_issuer_parameters.sql",
                  "0015_issuer_checks.sql", "0016_routes.sql", "0017_ends.sql", "0018_cells.sql",
                  "0019_claims.sql", "0020_ends.sql", "0021_enqueue.sql", "0022_housekeeping.sql",
                  "0023_operators.sql", "grants.sql"], "--plan")
    assert_equal([row["state"] for row in lines(world.ctl("migrate", "--status", "--json", role="postgres"))],
                 ["applied"] * 4 + ["pending"] * 19, "--status")

    done = world.ctl("migrate", role="postgres")
    assert_equal(done.returncode, 0, done.stdout + done.stderr)

    # Nothing is lost, and nothing was made up.
    assert_equal(ids(world), before_ids, "events")
    for table, rows in rows_of(world, "issuing").items():
        after = [json.loads(row) for row in rows]  # with columns that are new
        missing = [row for row in before_rows[table] if not any(json.loads(row).items() <= each.items() for each in after)]
        assert_equal(missing, [], "rows of " + table)
    assert_true(attempts <= ids(world, "issuing.outbox_attempts", "lease_token"), "attempts")
    assert_equal({event: world.sql("SELECT status || ' ' || coalesce(reason_code, '-') FROM issuing.outbox_events"
                                   " WHERE id = '%s'" % event)
                  for event in (large, large_held, long_user, never, large_failed, other)},
                 {large: "FAILED payload_invalid", large_held: "FAILED payload_invalid",
                  long_user: "FAILED payload_invalid",
                  never: "FAILED payload_invalid", large_failed: "FAILED payload_invalid", other: "PENDING -"},
                 "out of range")

    # The audit trail has partitions now, what was there is in one of them, and its numbers go on.
    assert_equal(world.sql("SELECT count(*) FROM issuing.operator_actions_rest"),
                 world.sql("SELECT count(*) FROM public.operator_actions"),
                 "the audit trail as older programs see it")
    assert_equal(world.sql("SELECT has_column_privilege('auditor', 'issuing.operator_actions', 'actor', 'SELECT'),"
                           " has_table_privilege('auditor', 'issuing.operator_actions', 'SELECT')"), "t|f",
                 "the auditor's rights")
    assert_equal(world.sql("INSERT INTO issuing.operator_actions (actor, action) VALUES ('olga', 'next') RETURNING id"),
                 str(actions + 1), "the next number")

    # A second one changes nothing.
    dump = schema_dump(world)
    done = world.ctl("migrate", role="postgres")
    assert_equal((done.returncode, "was at version 23 already" in done.stdout), (0, True), done.stdout + done.stderr)
    assert_equal(schema_dump(world), dump, "the schema after a second migrate")
    rows = lines(world.ctl("migrate", "--status", "--json", role="postgres"))
    assert_equal([row["state"] for row in rows], ["applied"] * 23, "--status")
    assert_equal([row["sha256"] for row in rows[:4]],
                 [hashlib.sha256((MIGRATIONS / name).read_bytes()).hexdigest() for name in OLD_FILES], "sha256")

    for daemon in [*world.apis(), *world.workers()]:
        world.programs.remove(daemon)
    world.start_api()
    worker = world.start_worker()
    world.sql("UPDATE issuing.outbox_events SET next_attempt_at = now(), updated_at = clock_timestamp() WHERE due_at >"
              " now() AND event_type = 'CARD_ISSUE'")
    world.settle(60)
    assert_equal({event: world.status(event) for event in (fresh, rest, unknown, lost)},
                 dict.fromkeys((fresh, rest, unknown, lost), "COMPLETED"), "ends")
    assert_equal(len(world.sandbox.cards(user="unknown")), 1, "one card, although no answer of it arrived")
    assert_true(number_of(world, "done") in world.sandbox.numbers(), "a number that was stored before")
    assert_equal(world.accept("done"), made["done"], "a key from before")
    # The partition whose retention is over goes; its FAILED events stay, the large one too.
    wait_until(lambda: world.sql("SELECT count(*) FROM partitions WHERE name LIKE 'outbox_events_20250101%'") == "0",
               "the old partition is dropped", 90, 0.5)
    assert_equal(world.sql("SELECT string_agg(user_id, ' ' ORDER BY id) FROM outbox_events_rest WHERE id < '%s'" %
                           (year % 9)),
                 "of-last-year large-failed", "moved")
    wait_until(lambda: world.sql("SELECT count(*) FROM partitions WHERE parent = 'operator_actions'") != "0",
               "the audit trail gets a partition", 90, 0.5)
    wait_until(lambda: world.sql("SELECT string_agg(action, ' ' ORDER BY id) FROM operator_actions WHERE actor ="
                                 " 'olga'") ==
               "kept next", "what is over leaves the audit trail", 90, 0.5)
    assert_true(worker.alive(), "the worker")
    # Operators: a clear answer to each, and what can be done is done.
    beyond = [large, large_failed, long_user]
    rows = lines(world.ctl("replay", *beyond, never, "--reason", "x", "--json"), 1)
    assert_equal([row["result"] for row in rows], ["refused"] * 3 + ["replayed"], "replay by ids")
    assert_true("larger than 64 KiB" in rows[0]["why"], rows[0])
    world.wait_status(never, "COMPLETED")
    rows = lines(world.ctl("replay", "--code", "payload_invalid", "--reason", "x", "--json"), 1)
    assert_equal([row["result"] for row in rows], ["refused"] * 4, "replay by filter")
    assert_equal(world.ctl("explain", large_held).returncode, 0, "explain")
    assert_equal([row["result"] for row in lines(world.ctl("resolve", *beyond, "--reason", "x", "--json"))],
                 ["resolved"] * 3, "resolve")
    for words in (("doctor", "--json"), ("doctor", "--data", "--json")):
        found = lines(world.ctl(*words))
        assert_equal([row for row in found if not row["ok"]], [], " ".join(words))


@slow
@test
def migrate_refuses_a_schema_that_is_not_ours_and_changes_nothing(world):
    """Also not what programs of the release before find on a new connection."""
    old_database(world)
    for statements, words in (
            ("CREATE SCHEMA issuing; CREATE TABLE issuing.theirs ()", 'the schema "issuing" belongs to postgres'),
            ("ALTER SCHEMA issuing OWNER TO issuing_owner", 'the schema "issuing" is not empty'),
            ("DROP TABLE issuing.theirs; CREATE FUNCTION issuing.now() RETURNS int LANGUAGE sql AS 'SELECT 1'",
             'the schema "issuing" is not empty')):
        world.sql(statements)
        dump = schema_dump(world)
        done = world.ctl("migrate", role="postgres")
        assert_true(done.returncode != 0 and words in done.stderr, done.stderr)
        assert_equal(schema_dump(world), dump, "the schema after " + words)
        assert_equal([row["state"] for row in lines(world.ctl("migrate", "--status", "--json", role="postgres"))],
                     ["applied"] * 4 + ["pending"] * 19, "--status")
        event = uuid7()
        assert_equal(Old(world, "issuing_api").accept(event, "alice", event), ["accepted", event],
                     "the old release goes on")
    world.sql("DROP SCHEMA issuing CASCADE")
    done = world.ctl("migrate", role="postgres")
    assert_equal(done.returncode, 0, done.stderr)
    assert_equal(len(ids(world)), 3, "events")
    # Of no use to older programs from now on, and they say so.
    assert_equal(Old(world, "issuing_api").once("SELECT max(version) FROM schema_migration;"), ([["23"]], None),
                 "the version")


@test
def a_database_that_is_not_utf8_is_refused(world):
    world.sql("CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'")
    try:
        url = world.conninfo("postgres").replace("dbname=%s" % world.database, "dbname=latin")
        done = world.ctl("migrate", role="postgres", database__url=url)
        assert_equal(done.returncode, 78, "exit status")
        assert_true("LATIN1" in done.stderr and "UTF8" in done.stderr, done.stderr)
    finally:
        world.sql("DROP DATABASE latin")


@slow
@test
def the_owner_of_the_database_and_the_tables_migrates_without_being_a_superuser(world):
    own_cluster(world)
    world.sql("CREATE ROLE app LOGIN; ALTER DATABASE issuing OWNER TO app")
    (world.dir / "pg" / "data" / "pg_ident.conf").open("a").write("issuing root app\nissuing postgres app\n")
    world.sql("SELECT pg_reload_conf()")
    wait_until(lambda: harness.run([harness.psql_program(), "-XAtqd", world.conninfo("app"), "-c",
                                    "SELECT 1"]).returncode == 0,
               "app may log in")
    migrated_from_old(world, "app", "app")
    assert_equal(world.sql("SELECT DISTINCT relowner::regrole FROM pg_class WHERE relnamespace ="
                           " 'issuing'::regnamespace"), "app",
                 "who owns the tables")


@slow
@test
def tables_of_another_owner_than_issuing_owner_stay_with_their_owner(world):
    """The first migrate was by a role that owned the database; this one is by a superuser."""
    own_cluster(world)
    world.sql("CREATE ROLE app LOGIN; ALTER DATABASE issuing OWNER TO app")
    migrated_from_old(world, "app", "postgres")
    assert_equal(world.sql("SELECT DISTINCT relowner::regrole FROM pg_class WHERE relnamespace ="
                           " 'issuing'::regnamespace"), "app",
                 "who owns the tables")


def migrated_from_old(world, owner, role):
    old_tables(world, owner)
    event = uuid7()
    assert_equal(Old(world, "issuing_api").accept(event, "alice", "k"), ["accepted", event], "accept")
    done = world.ctl("migrate", role=role)
    assert_equal(done.returncode, 0, done.stdout + done.stderr)
    assert_equal(ids(world), {event}, "events")
    assert_equal([row["state"] for row in lines(world.ctl("migrate", "--status", "--json", role=role))],
                 ["applied"] * 23,
                 "--status")


@slow
@test
def a_migration_that_meets_a_long_reader_waits_in_pieces_and_leaves_nothing_half_done(world):
    old_database(world)
    reader = Old(world, "postgres")
    reader.run("BEGIN; SELECT count(*) FROM cards;")
    api = Old(world, "issuing_api")
    result = []
    thread = threading.Thread(target=lambda: result.append(world.ctl("migrate", role="postgres", seconds=120)))
    thread.start()
    # While it waits, others wait for it; each time it gives up they go on.
    event = uuid7()
    wait_until(lambda: world.blocked() > 0, "migrate waits for the reader")
    assert_equal(api.accept(event, "alice", "k"), ["accepted", event], "an acceptance meanwhile")
    assert_equal(world.sql("SELECT max(version) FROM public.schema_migration"), "4", "nothing is half done")
    assert_equal(world.sql("SELECT count(*) FROM pg_class WHERE relnamespace = 'issuing'::regnamespace"), "0",
                 "nothing is moved")
    reader.run("COMMIT;")
    thread.join(120)
    assert_equal(result[0].returncode, 0, result[0].stdout + result[0].stderr)
    assert_true("waits for a lock that another session holds (55P03); retrying" in result[0].stderr, result[0].stderr)
    assert_equal(ids(world), {event}, "events")
