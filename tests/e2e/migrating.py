"""issuing-ctl migrate: a new database, upgrades of an old one, and what it refuses. `UPGRADED` is issuing-ctl as a
later release would have it, with one upgrade that adds a column to issuing.cards (tests/upgrades)."""
import re
import subprocess
import threading

import harness
from harness import assert_equal, assert_true, BUILD, core, psql, slow, test, wait_until
from operators import lines
from orders import refused

UPGRADED = BUILD / "tests" / "upgrades" / "issuing-ctl-upgraded"
COLUMN = "SELECT count(*) FROM pg_attribute WHERE attrelid = 'issuing.cards'::regclass AND attname = 'colour'"


def own_cluster(world):
    """An empty database in a cluster of its own: roles, and what is set for them, belong to a whole cluster."""
    started = harness.run([harness.CLUSTER, "start", world.dir / "pg"], 900)
    assert_true(started.returncode == 0, started.stderr)
    world.base = started.stdout.strip()


def schema_dump(world):
    pg_dump = harness.psql_program().replace("psql", "pg_dump")
    done = harness.run([pg_dump, "--schema-only", "-d", world.conninfo("postgres")])
    assert_equal(done.returncode, 0, done.stderr)
    return re.sub(r"(?m)^\\(un)?restrict .*$", "", done.stdout)


def migrate(world, *words, status=0, role="postgres", **more):
    done = world.ctl("migrate", *words, role=role, **more)
    assert_equal(done.returncode, status, done.stdout + done.stderr)
    return done


def versions(world):
    return world.sql("SELECT string_agg(version || ' ' || name, ', ' ORDER BY version) FROM issuing.schema_migration")


def owner(world):
    return world.sql("SELECT DISTINCT relowner::regrole FROM pg_class WHERE relnamespace = 'issuing'::regnamespace")


class Session:
    """A psql that stays connected."""

    def __init__(self, world, text):
        self.psql = subprocess.Popen([harness.psql_program(), "-XAtq", "-d", world.conninfo("postgres")], text=True,
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=harness.ENVIRONMENT,
                                     start_new_session=True)
        world.sessions.append(self.psql)
        self.run(text)

    def run(self, text):
        self.psql.stdin.write(text + "\n\\echo .done\n")
        self.psql.stdin.flush()
        for line in self.psql.stdout:
            if line == ".done\n":
                return
        raise harness.Failed("a session ended")


@test
def an_upgrade_is_applied_once_and_the_functions_are_replaced(world):
    event = world.sql("INSERT INTO issuing.outbox_events (user_id, payload) VALUES ('alice', '{}') RETURNING id")
    world.sql("CREATE OR REPLACE FUNCTION issuing.has_card(event uuid) RETURNS bool LANGUAGE sql AS 'SELECT true'")
    plan = migrate(world, "--plan", program=UPGRADED).stdout.split()
    assert_equal((plan[:3], plan[-1]), (["roles.sql", "upgrades/0002_adds_a_column.sql", "schema/01_base.sql"],
                                        "grants.sql"), "--plan")
    assert_true("schema/02_tables.sql" not in plan, plan)
    assert_equal([(row["name"], row["state"]) for row in lines(migrate(world, "--status", "--json", program=UPGRADED))],
                 [("schema", "applied"), ("adds_a_column", "pending")], "--status before")
    for expected in ("is at version 2", "was at version 2 already"):
        assert_true(expected in migrate(world, program=UPGRADED).stdout, expected)
        assert_equal((versions(world), world.sql(COLUMN)), ("1 schema, 2 adds_a_column", "1"), "versions, column")
    assert_equal(world.sql("SELECT issuing.has_card('%s')" % event), "f", "a function that somebody had changed")
    assert_true("newer than this program" in migrate(world, status=1).stderr, "the program of the release before")
    world.sql("UPDATE issuing.schema_migration SET sha256 = repeat('0', 64) WHERE version = 2")
    for words in ((), ("--status",)):
        assert_true("edited after it was applied" in migrate(world, *words, status=1, program=UPGRADED).stderr, words)
    assert_equal(world.sql("SELECT count(*) FROM issuing.outbox_events WHERE id = '%s'" % event), "1", "the rows")


@core
@slow
@test
def a_new_database_has_every_version_and_a_second_migrate_changes_nothing(world):
    own_cluster(world)
    results = []
    threads = [threading.Thread(target=lambda: results.append(world.ctl("migrate", role="postgres")))
               for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * harness.STUCK_AFTER_S)
    assert_equal([done.returncode for done in results], [0, 0], "two at once")
    assert_equal(versions(world), "1 schema", "versions")
    assert_equal((owner(world), world.sql("SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace")),
                 ("issuing_owner", "0"), "owner, objects in public")
    dump = schema_dump(world)
    migrate(world)
    assert_equal(schema_dump(world), dump, "the schema after another migrate")


@slow
@test
def databases_of_one_cluster_are_migrated_at_the_same_time(world):
    """Roles, and what is set for them, belong to the cluster, and the lock of a migrate to its database."""
    own_cluster(world)
    names = ["issuing_%d" % number for number in range(6)]
    for turn in range(3):
        for name in names:
            world.sql("DROP DATABASE IF EXISTS %s" % name)
            world.sql("CREATE DATABASE %s" % name)
        if turn > 0:
            for role in ("owner", "api", "worker", "operator", "viewer"):
                world.sql("ALTER ROLE issuing_%s RESET ALL" % role)
        base = world.conninfo("postgres")
        results = []
        urls = [base.replace("dbname=issuing", "dbname=" + name) for name in names]
        threads = [threading.Thread(target=lambda url: results.append(world.ctl("migrate", role="postgres",
                                                                                database__url=url)), args=(url,))
                   for url in urls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(2 * harness.STUCK_AFTER_S)
        assert_equal([(done.returncode, done.stderr) for done in results], [(0, "")] * len(names), "turn %d" % turn)
        assert_equal(world.sql("SELECT count(*) FROM pg_db_role_setting s CROSS JOIN unnest(s.setconfig) AS o (setting) WHERE"
                               " s.setrole::regrole::text LIKE 'issuing_%' AND o.setting !~ '^auto_explain'"),
                 "24", "settings")
    migrate(world)


@slow
@test
def migrate_refuses_a_schema_that_is_not_ours_and_changes_nothing(world):
    own_cluster(world)
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
    world.sql("DROP SCHEMA issuing CASCADE")
    migrate(world)


@test
def a_database_that_an_unreleased_version_made_is_refused_and_stays_as_it_is(world):
    """With the tables of such a version the functions of this one would lose sight of users who are elsewhere."""
    for statement, words in (("CREATE TABLE issuing.cell_buckets ()", "divides users by buckets or over schemas"),
                             ("DROP TABLE issuing.cell_buckets; CREATE TABLE issuing.places ()", "over schemas"),
                             ("DROP TABLE issuing.places; UPDATE issuing.schema_migration SET name = 'outbox'",
                              "an unreleased version made this database (outbox)")):
        world.sql(statement)
        dump = schema_dump(world)
        for option in ((), ("--status",), ("--plan",)):
            assert_true(words in migrate(world, *option, status=78).stderr, "%s: %s" % (option, words))
        assert_equal(schema_dump(world), dump, "the schema after " + words)


def acl(world, name):
    return world.sql("SELECT datacl FROM pg_database WHERE datname = '%s'" % name)


@test
def a_new_database_is_closed_to_everybody_else_and_one_of_others_is_left_alone(world):
    """A role that may only connect holds locks and fills the lock table: the page of the installation closed the
    database, and who did not read it had it open."""
    world.sql("CREATE ROLE passing LOGIN")
    names = ["%s_%s" % (world.database, kind) for kind in ("fresh", "shared", "granted")]
    try:
        for name in names:
            world.sql("CREATE DATABASE %s TEMPLATE template0 ENCODING 'UTF8'" % name)
        urls = {name: world.conninfo("postgres").replace("dbname=%s" % world.database, "dbname=%s" % name)
                for name in names}
        fresh, shared, granted = names
        psql("CREATE TABLE public.orders (id int)", urls[shared])
        world.sql("GRANT CONNECT ON DATABASE %s TO passing" % granted)
        before = acl(world, granted)
        for name in names:
            migrate(world, database__url=urls[name])
        assert_equal((acl(world, shared), acl(world, granted)), ("", before), "what others use")
        may = "SELECT has_database_privilege('passing', '%s', 'CONNECT, TEMPORARY')" % fresh
        assert_equal(world.sql(may), "f", "everybody else")
        own = dict(database__url=urls[fresh].replace("user=postgres", "user=issuing_operator"))
        found = lines(world.ctl("doctor", "--json", **own), code=1)
        assert_equal([row["found"] for row in found if row["check"] == "access" and row["warning"]], [], "doctor")
        added = world.ctl("sender", "add", "passing", "PAYMENT_CHARGE", "--reason", "t", **own)
        assert_true(added.returncode == 0 and "may not connect to this database" in added.stdout, added.stdout)
        assert_true("passing may send PAYMENT_CHARGE, and may not connect" in world.ctl("doctor", **own).stdout, "doctor")
        world.sql("GRANT CONNECT ON DATABASE %s TO passing" % fresh)
        psql("SET ROLE passing; SELECT issuing.enqueue('PAYMENT_CHARGE', 'alice', '{}')", urls[fresh])
        assert_true("may not connect" not in world.ctl("sender", "list", **own).stdout, "sender list")
        world.sql("REVOKE CONNECT ON DATABASE {0} FROM passing; GRANT CONNECT ON DATABASE {0} TO PUBLIC".format(fresh))
        migrate(world, database__url=urls[fresh])
        assert_equal(world.sql(may), "t", "what was granted since")
    finally:
        for name in names:
            world.sql("DROP DATABASE IF EXISTS %s WITH (FORCE)" % name)
        world.sql("DROP ROLE passing")


@test
def a_role_that_was_made_anew_has_no_right_of_the_old_one(world):
    send = "SET ROLE again; SELECT issuing.enqueue('PAYMENT_CHARGE', 'alice', '{}')"
    world.sql("CREATE ROLE again")
    try:
        world.may_send("again", "PAYMENT_CHARGE")
        world.sql("DROP OWNED BY again; DROP ROLE again")
        assert_true("there is no role again, which may send PAYMENT_CHARGE" in world.ctl("doctor").stdout, "doctor")
        world.sql("CREATE ROLE again")
        migrate(world)
        refused(send, world.conninfo("postgres"), "permission denied")
        row, = lines(world.ctl("sender", "list", "--json"))
        assert_equal((row["role_exists"], row["may_send"]), (True, False), "sender list")
        assert_true("role again is another one than was added for PAYMENT_CHARGE" in world.ctl("doctor").stdout, "doctor")
        world.may_send("again", "PAYMENT_CHARGE")
        world.sql(send)
        row, = lines(world.ctl("sender", "list", "--json"))
        assert_equal(row["may_send"], True, "sender list, when it was added again")
    finally:
        world.sql("DROP OWNED BY again; DROP ROLE again")


@test
def a_database_that_is_not_utf8_is_refused(world):
    world.sql("CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'")
    try:
        url = world.conninfo("postgres").replace("dbname=%s" % world.database, "dbname=latin")
        done = migrate(world, status=78, database__url=url)
        assert_true("LATIN1" in done.stderr and "UTF8" in done.stderr, done.stderr)
    finally:
        world.sql("DROP DATABASE latin")


@test
def a_postgresql_before_15_is_refused(world):
    """The server says so itself: the function that all ask has another one in its place, in this database."""
    world.sql("ALTER FUNCTION pg_catalog.current_setting(text) RENAME TO true_setting;"
              " CREATE FUNCTION pg_catalog.current_setting(text) RETURNS text LANGUAGE sql STABLE AS"
              " $$SELECT CASE $1 WHEN 'server_version_num' THEN '140013' ELSE true_setting($1) END$$")
    assert_true("PostgreSQL 14.13 is too old; use PostgreSQL 15 or later" in migrate(world, status=78).stderr,
                "what migrate says")
    seen = world.ctl("doctor", role="postgres")
    assert_equal(seen.returncode, 1, "doctor")
    assert_true(re.search("FAIL  database +PostgreSQL 14.13,.*\n.* fix: use PostgreSQL 15 or later", seen.stdout), seen.stdout)


@slow
@test
def migrate_keeps_what_our_statements_are_given_out_of_the_servers_log(world):
    """Roles and what is set for them belong to the cluster, so this one has an own."""
    own_cluster(world)
    migrate(world)
    world.sql("ALTER DATABASE issuing SET log_statement = 'all'")
    found, = [row for row in lines(world.ctl("doctor", "--json"), code=1) if row["check"] == "server's log"]
    assert_equal((found["warning"], found["ok"]), (False, True), "doctor: " + found["found"])


@slow
@test
def the_owner_of_the_database_migrates_and_a_superuser_leaves_the_tables_to_that_owner(world):
    own_cluster(world)
    world.sql("CREATE ROLE app LOGIN; ALTER DATABASE issuing OWNER TO app")
    (world.dir / "pg" / "data" / "pg_ident.conf").open("a").write("issuing root app\nissuing postgres app\n")
    world.sql("SELECT pg_reload_conf()")
    wait_until(lambda: harness.run([harness.psql_program(), "-XAtqd", world.conninfo("app"), "-c",
                                    "SELECT 1"]).returncode == 0,
               "app may log in")
    for role, program in (("app", BUILD / "issuing-ctl"), ("postgres", BUILD / "issuing-ctl"), ("app", UPGRADED),
                          ("postgres", UPGRADED)):
        migrate(world, role=role, program=program)
        assert_equal(owner(world), "app", "who owns the tables after a migrate as " + role)
    assert_equal(world.sql(COLUMN), "1", "the upgrade")


@core
@slow
@test
def an_upgrade_that_meets_a_long_reader_waits_in_pieces_and_leaves_nothing_half_done(world):
    reader = Session(world, "BEGIN; SELECT count(*) FROM issuing.cards;")
    # Killed while it waits.
    killed = subprocess.Popen([str(UPGRADED), "--config=%s" % world.suite.empty_file,
                               "--database.url=" + world.conninfo("postgres"), "migrate"], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, env=harness.ENVIRONMENT, start_new_session=True)
    wait_until(lambda: world.blocked("colour") > 0, "migrate waits for the reader")
    killed.kill()
    killed.wait()
    wait_until(lambda: world.blocked("colour") == 0, "its session gives up")
    result = []
    thread = threading.Thread(target=lambda: result.append(world.ctl("migrate", role="postgres",
                                                                     program=UPGRADED)))
    thread.start()
    # While it waits, others wait for it; each time it gives up they go on.
    wait_until(lambda: world.blocked("colour") > 0, "migrate waits for the reader")
    assert_equal(world.sql("SELECT count(*) FROM issuing.cards"), "0", "another reader meanwhile")
    assert_equal((versions(world), world.sql(COLUMN)), ("1 schema", "0"), "nothing is half done")
    reader.run("COMMIT;")
    thread.join(2 * harness.STUCK_AFTER_S)
    assert_equal(result[0].returncode, 0, result[0].stdout + result[0].stderr)
    assert_true("wait for a lock that another session holds (55P03); retrying" in result[0].stderr, result[0].stderr)
    assert_equal((versions(world), world.sql(COLUMN)), ("1 schema, 2 adds_a_column", "1"), "in the end")
