#!/usr/bin/python3
"""run.py [--write [LAYOUT...] | WORD...]: the schema on a Citus cluster. One test is skipped where the extension is not
installed.

results   every named statement, and what the functions do further inside, on each layout of layouts.py; the results
          are those of expected.txt, so that a change is noticed, for the better too
programs  api, worker and sandbox issue cards while the schema is distributed
locks     why all programs have to use the coordinator

--write writes expected.txt; WORD runs the tests whose name contains it. The last line is "citus: N passed, N failed".
"""
import argparse
import pathlib
import re
import subprocess
import sys
import threading
import traceback

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "e2e")]

import calls  # noqa: E402
import layouts  # noqa: E402
import nodes  # noqa: E402
from assertions import assert_equal, assert_true, Failed  # noqa: E402
from processes import BUILD, ENVIRONMENT, psql_program, release_ports, run  # noqa: E402
from suite import Suite  # noqa: E402
from world import World  # noqa: E402

EXPECTED = HERE / "expected.txt"
AFTERWARDS = "DEALLOCATE ALL; SET search_path = issuing, public; RESET ROLE;"


def psql_script(text, conninfo, seconds=300, stop=False):
    """All that psql prints for these lines, errors in their place."""
    done = subprocess.run([psql_program(), "-XAtq", "-v", "VERBOSITY=terse", "-v", "ON_ERROR_STOP=%d" % stop, "-d",
                           conninfo], input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=seconds, env=ENVIRONMENT)
    if stop and done.returncode != 0:
        raise Failed("psql: " + done.stdout[-1000:])
    return done.stdout


class Cluster:
    """Migrated and laid out."""

    def __init__(self, suite, layout):
        self.suite, self.layout = suite, layout
        self.nodes = nodes.Nodes(suite.dir, layout)

    def __enter__(self):
        try:
            self.nodes.start()
            done = run([BUILD / "issuing-ctl", "--config=%s" % self.suite.empty_file,
                        "--database.url=" + self.nodes.conninfo(), "migrate"], 120)
            assert_equal(done.returncode, 0, "issuing-ctl migrate: " + done.stdout + done.stderr)
            psql_script(layouts.LAYOUTS[self.layout], self.nodes.conninfo(), stop=True)
        except BaseException:
            self.nodes.stop()
            raise
        return self.nodes

    def __exit__(self, *_):
        self.nodes.stop()


# ---- results --------------------------------------------------------------------------------------------------------


def verdict(output, wanted):
    """`ok`, the error without what differs from run to run, or that the answer is another one."""
    error = re.search(r"(?:ERROR|FATAL):  (.*)", output)
    if error and not (wanted and wanted in error[1]):
        return "error: " + re.sub(r"_\d{6,}\b", "_N", error[1])
    if "connection to server was lost" in output:
        return "error: the connection was lost"
    failed = re.search(r"^failed\|(.*\|f)$", output, re.M) # of keep_rows and keep_house
    if failed:
        return "error: " + re.sub(r"_\d{6,}\w*", "_N", failed[1])
    return "ok" if wanted in output else "another answer"


def results(database, layout):
    psql_script(calls.FIXTURE, database.conninfo(), stop=True)
    cases = calls.script("issuing_owner" if layout == "users" else None)
    text = "".join("\n\\echo @@%s\nBEGIN;\n%s\nROLLBACK;\n%s\n" % (name, sql, AFTERWARDS) for name, sql, _ in cases)
    pieces = re.split(r"^@@(.*)\n", psql_script(text, database.conninfo()), flags=re.M)
    outputs = dict(zip(pieces[1::2], pieces[2::2]))
    assert_equal([name for name, _, _ in cases if name not in outputs], [], "cases without an output")
    return {name: verdict(outputs[name], wanted) for name, _, wanted in cases}


def read_expected():
    found, layout = {}, None
    for line in EXPECTED.read_text(encoding="utf-8").splitlines():
        if line.startswith("== "):
            layout = found.setdefault(line[3:], {})
        elif line and not line.startswith("#"):
            name, _, result = line.partition(" -> ")
            layout[name] = result
    return found


def write_expected(found):
    lines = ["# Made by tests/citus/run.py --write: what each case of calls.py comes to on each layout of layouts.py."]
    for layout, cases in found.items():
        lines += ["", "== " + layout, *("%s -> %s" % case for case in cases.items())]
    EXPECTED.write_text("\n".join(lines) + "\n", encoding="utf-8")


def compare(found, wanted):
    differences = ["%s: %s, expected: %s" % (name, found.get(name), wanted.get(name))
                   for name in [*wanted, *(name for name in found if name not in wanted)]
                   if found.get(name) != wanted.get(name)]
    assert_equal(differences, [], "results that differ from %s" % EXPECTED.name)


def statements_on(layout):
    def test(suite):
        with Cluster(suite, layout) as database:
            compare(results(database, layout), read_expected().get(layout, {}))
    test.__name__ = "statements_and_functions_on_the_layout_%s_come_to_what_is_expected" % layout
    return test


# ---- programs -------------------------------------------------------------------------------------------------------


def world_on(suite, database, name):
    world = World(suite, name, {"limit.count": "3"})
    suite.worlds.append(world)
    world.base = database.base()
    return world


def cards_are_issued_while_the_schema_is_distributed(suite):
    """The real programs, two of each: every request ends as one card, a repeat is a replay, the limit is exact for two
    devices of one user, and the housekeeping and the statistics go on."""
    with Cluster(suite, "schema") as database:
        world = world_on(suite, database, "programs")
        world.up(apis=2, workers=2)
        ids = [world.accept("user-%d" % n) for n in range(20)]
        world.wait_final(ids, 120)
        assert_equal(world.sql("SELECT count(*), count(DISTINCT request_id) FROM issuing.cards"), "20|20", "cards")
        assert_equal(world.accept("user-3"), ids[3], "a repeat")
        answers = []

        def post(number):
            answers.append(world.post("one-user", "k%d" % number, api=world.apis()[number % 2]).status)
        threads = [threading.Thread(target=post, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert_equal((answers.count(202), answers.count(429)), (3, 5), "accepted and limited of one user")
        world.settle()
        replaced = world.issue("user-5", "k-2")
        assert_equal(world.ctl("status").returncode, 0, "issuing-ctl status")
        assert_true(replaced["card"]["last4"], "a second card")
        assert_equal(world.stop_all(), [], "ends of the programs")
        logs = "".join(path.read_text() for path in world.dir.glob("*-?.log"))
        assert_equal(re.findall(r'"level":"(?:warning|error)".*', logs), [], "warnings and errors")
        world.base = None


def expect_same_rights(database):
    """A function that only some may call, or that runs as the owner, is not for everybody on another node."""
    functions = ("SELECT string_agg(p.oid::regprocedure::text || ' ' || pg_get_userbyid(p.proowner) || ' ' ||"
                 " has_function_privilege('public', p.oid, 'EXECUTE'), '\n' ORDER BY p.oid::regprocedure::text)"
                 " FROM pg_proc p WHERE p.pronamespace = 'issuing'::regnamespace")
    columns = ("SELECT string_agg(c.oid::regclass || '.' || a.attname || a.attacl::text, '\n' ORDER BY"
               " c.oid::regclass::text, a.attname) FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid"
               " WHERE c.relnamespace = 'issuing'::regnamespace AND a.attacl IS NOT NULL AND"
               " c.relname !~ '_1[0-9]{5}$'")
    for query in (functions, columns):
        wanted = database.sql(query)
        assert_true(len(wanted.split("\n")) > 20, "functions and columns with rights")
        for name in database.NAMES[1:]:
            missing = set(wanted.split("\n")) ^ set(database.sql(query, name).split("\n"))
            assert_equal(sorted(missing), [], "rights that differ on " + name)


def the_schema_comes_back_with_all_its_rows(suite):
    """undistribute.sql, a migrate, and distribute.sql again: what a release needs. A card is issued afterwards, and
    nobody has gained a right on another node."""
    with Cluster(suite, "schema") as database:
        expect_same_rights(database)
        psql_script(calls.FIXTURE, database.conninfo(), stop=True)
        before = database.sql("SELECT count(*) FROM issuing.outbox_events")
        refused = run([BUILD / "issuing-ctl", "--config=%s" % suite.empty_file,
                       "--database.url=" + database.conninfo(), "migrate"], 120)
        assert_true(refused.returncode != 0, "a migrate while the schema is distributed fails")
        psql_script("\\i %s\n" % (layouts.EXAMPLES / "undistribute.sql"), database.conninfo(), stop=True)
        assert_equal(database.sql("SELECT count(*) FROM citus_tables"), "0", "distributed tables")
        done = run([BUILD / "issuing-ctl", "--config=%s" % suite.empty_file,
                    "--database.url=" + database.conninfo(), "migrate"], 120)
        assert_equal(done.returncode, 0, "migrate: " + done.stdout + done.stderr)
        assert_equal(database.sql("SELECT count(*) FROM issuing.outbox_events"), before, "rows")
        psql_script(layouts.LAYOUTS["schema"], database.conninfo(), stop=True)
        assert_equal(database.sql("SELECT count(*) FROM issuing.outbox_events"), before, "rows, distributed again")
        expect_same_rights(database)
        world = world_on(suite, database, "again")
        world.up()
        assert_equal(world.issue("user-12")["status"], "COMPLETED", "a card")
        assert_equal(world.stop_all(), [], "ends of the programs")
        world.base = None


# ---- locks ----------------------------------------------------------------------------------------------------------


def the_lock_of_a_user_is_one_of_the_node_that_is_asked(suite):
    """Citus nodes do not share advisory locks. Acceptance is exact because of such a lock, so all programs have to use
    one node. This test notices when that changes."""
    with Cluster(suite, "schema") as database:
        world = world_on(suite, database, "locks")
        take = "SELECT pg_try_advisory_xact_lock(hashtextextended('user-1', 4711))"
        with world.holding(take):
            assert_equal(database.sql(take), "f", "the lock on the coordinator")
            assert_equal(database.sql(take, "worker-1"), "t", "the same lock on another node")
        world.base = None


TESTS = [*(statements_on(layout) for layout in layouts.LAYOUTS), cards_are_issued_while_the_schema_is_distributed,
         the_schema_comes_back_with_all_its_rows, the_lock_of_a_user_is_one_of_the_node_that_is_asked]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write expected.txt")
    parser.add_argument("words", nargs="*", help="parts of the names of tests; with --write: layouts")
    options = parser.parse_args()
    if not nodes.installed():
        print("skip   the extension citus is not installed for PostgreSQL 15")
        print("citus: 1 skipped\ncitus: 0 passed, 0 failed")
        return 0
    passed = failed = 0
    with Suite("citus") as suite:
        if options.write:
            found = read_expected() if EXPECTED.exists() else {}
            for layout in options.words or layouts.LAYOUTS:
                with Cluster(suite, layout) as database:
                    found[layout] = results(database, layout)
            write_expected(found)
            return 0
        for test in TESTS:
            name = test.__name__.replace("_", " ")
            if options.words and not any(word in name for word in options.words):
                continue
            try:
                test(suite)
                passed += 1
                print("ok     " + name, flush=True)
            except Exception as error:  # noqa: BLE001 - every failure is reported, and the others run
                failed += 1
                suite.keep = True
                print("FAILED %s\n%s" % (name, error if isinstance(error, Failed) else traceback.format_exc()))
            release_ports()
    print("citus: %d passed, %d failed" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
