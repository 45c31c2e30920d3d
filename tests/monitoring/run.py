#!/usr/bin/python3
"""run.py [--plots]: the metrics, the alert rules and the dashboard, by Prometheus' own programs.

rules   promtool checks and tests them; a wrong rule is noticed (that each alert has a test is seen by ./dev lint docs);
        an Alertmanager with the example silences what follows from another alert
scrape  what api and worker really show passes promtool, and has every metric that rules and dashboard name
alerts  a Prometheus server scrapes a real api and worker: no worker = alarm, all is well = silence, a 401 = alarm

--plots tests nothing: it draws docs/plots/dashboard-*.svg, a panel each, from a run with load, an outage of the issuer
and the recovery (about five minutes). Without Prometheus the group is skipped with the reason. The last line is
"monitoring: N passed, N failed".
"""
import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys
import traceback

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "e2e"), *(str(HERE.parents[1] / name) for name in ("bench", "monitoring"))]

import dashboard  # noqa: E402
import harness  # noqa: E402
import pictures  # noqa: E402
import server  # noqa: E402
from harness import assert_equal, assert_true, wait_until  # noqa: E402

PROGRAMS = {"promtool": "prometheus", "prometheus": "prometheus", "amtool": "prometheus-alertmanager",
            "prometheus-alertmanager": "prometheus-alertmanager"}
NAME = re.compile(r"\b((?:issuing|process)_[a-z_]+)\b(?!:)")
ELSEWHERE = {"issuing_peer_certificate_days", "issuing_place_workers_alive"}  # tests/e2e/tls.py, places.py
QUIET = 15  # evaluations without an alert


def promtool(*words, text=None, cwd=None):
    done = subprocess.run(["promtool", *map(str, words)], input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=900, cwd=cwd)
    return done.returncode, done.stdout


def alerts():
    return re.findall(r"^ +- alert: (\w+)$", server.RULES.read_text(), re.M)


# ---- rules ----------------------------------------------------------------------------------------------------------


def rules_are_well_formed_and_pass_their_tests(_):
    assert_true(len(alerts()) > 15, "the rules were found")
    done = subprocess.run(["amtool", "check-config", server.ALERTMANAGER],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=harness.STUCK_AFTER_S)
    assert_equal(done.returncode, 0, done.stdout)
    for words in (("check", "rules", server.RULES), ("test", "rules", *(HERE / name for name in ("fires.yml", "silent.yml", "repaired.yml")))):
        status, text = promtool(*words)
        assert_equal(status, 0, text)


def group_of(rule):
    """The rule as the only one of its file."""
    return "groups:\n  - name: issuing\n    rules:\n" + rule


def a_wrong_rule_is_noticed(suite):
    """The tests of the rules can fail: one alert that always fires, and one that never does. Each is seen alone: with
    the tests of its name, or with those of silence; so nothing else can be what was noticed."""
    folder = suite.dir / "wrong"
    tests_folder = folder / "tests" / "monitoring"
    tests_folder.mkdir(parents=True)
    (folder / "monitoring").mkdir()
    shutil.copy(HERE / "silent.yml", tests_folder)
    head, *tests = re.split(r"(?m)^(?=  - name: )", (HERE / "fires.yml").read_text())
    _, *rules = re.split(r"(?m)^(?=      - alert: )", server.RULES.read_text())
    assert_equal([re.match(r" +- alert: (\w+)", rule)[1] for rule in rules], alerts(), "the rules one by one")
    for name, rule in zip(alerts(), rules):
        (tests_folder / "fires.yml").write_text(head + "".join(test for test in tests
                                                               if test.startswith("  - name: '%s: " % name)))
        for becomes, file in (("vector(1) > 0", "silent.yml"), ("vector(1) < 0", "fires.yml")):
            wrong, times = re.subn(r"(?m)^        expr: (\|\n( {10}.*\n)+|.*\n)", "        expr: %s\n" % becomes, rule)
            (folder / "monitoring" / server.RULES.name).write_text(group_of(wrong))
            status, text = promtool("test", "rules", file, cwd=tests_folder)
            assert_true(times == 1 and status != 0 and name in text and "got:" in text,
                        "noticed: %s as the expression of %s\n%s" % (becomes, name, text))


def what_follows_from_another_alert_is_silent(suite):
    """Each rule of the example: a cause, what it silences, and what it does not."""
    world = suite.world({})
    cases = [("IssuingNoWorker", "IssuingCardsLate", "IssuingUnavailable"),
             ("IssuingTargetDown", "IssuingUnknownForLong", "IssuingMostRejected"),
             ("IssuingTargetPaused", "IssuingRouteLate", "IssuingOpenQuestion"),
             ("IssuingNotReady", "IssuingDatabaseErrors", "IssuingHistoryLost"),
             ("IssuingDown", "IssuingRestarts", "IssuingNotReady")]
    try:
        for cause, follows, stays in cases:
            manager = server.Alertmanager(world)
            heard = manager.heard((follows, "critical", "a"))
            assert_equal(heard, {(follows, "a"): (["night"], False)}, "%s alone wakes somebody" % follows)
            heard = manager.heard((cause, "critical", "a"), (follows, "critical", "a"), (stays, "warning", "a"),
                                  ("IssuingRestarts", "warning", "b"))
            wanted = {(cause, "a"): (["night"], False), (follows, "a"): (["night"], True),
                      (stays, "a"): (["day"], False), ("IssuingRestarts", "b"): (["day"], False)}
            assert_equal(heard, wanted, cause)
            manager.kill()
            shutil.rmtree(world.dir / "alertmanager")
    finally:
        stop(suite, world)


# ---- scrapes --------------------------------------------------------------------------------------------------------


def families(page):
    """The names that a page has samples of. A histogram counts with its three series."""
    return {re.split(r"[{ ]", line)[0] for line in page.splitlines() if line and not line.startswith("#")}


def scrapes_are_clean_and_have_every_metric_that_is_named(suite):
    world = suite.world({"limit.count": "1"})
    try:
        world.up()
        request = world.accept("alice")
        world.wait_final([request])
        wait_until(lambda: all("issuing_breaker_state" in families(daemon.get("/metrics").body.decode())
                               for daemon in [*world.apis(), *world.workers()]), "the gauges are read")
        shown = set()
        for daemon in [*world.apis(), *world.workers()]:
            page = daemon.get("/metrics").body.decode()
            assert_equal(promtool("check", "metrics", text=page), (0, ""), "the page of " + daemon.name)
            shown |= families(page)
        texts = {"the rules": server.RULES.read_text(), "the dashboard": json.dumps(dashboard.board(), indent=2)}
        named = {what: set(NAME.findall("\n".join(re.findall(r'(?:expr: |"expr": |^ {10})(.*)', text, re.M))))
                 for what, text in texts.items()}
        assert_true(all(len(names) > 10 for names in named.values()), "names were found: %r" % named)
        for what, names in named.items():
            assert_equal(sorted(names - shown - ELSEWHERE), [], "metrics of %s that no program shows" % what)
    finally:
        stop(suite, world)


def the_dashboard_is_one_that_grafana_loads(_):
    board = json.loads(json.dumps(dashboard.board()))
    assert_true(board["schemaVersion"] >= 36 and board["templating"]["list"][0]["type"] == "datasource", "the board")
    panels, squares = board["panels"], set()
    assert_equal(len({panel["id"] for panel in panels}), len(panels), "ids of panels")
    for panel in panels:
        at = panel["gridPos"]
        covered = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert_true(not covered & squares and at["x"] + at["w"] <= 24, "%s lies on another panel" % panel["title"])
        squares |= covered
        assert_true(panel["description"] and panel["fieldConfig"]["defaults"]["unit"], panel["title"])
        assert_equal({target["datasource"]["uid"] for target in panel["targets"]}, {"${datasource}"}, panel["title"])
    assert_equal(squares, {(x, y) for x in range(24) for y in range(1 + max(y for _, y in squares))}, "no gap")


# ---- alerts ---------------------------------------------------------------------------------------------------------


def an_alarm_comes_when_it_must_and_not_when_all_is_well(suite):
    world = suite.world({"limit.count": "100000", "breaker.failures": "5"})
    try:
        world.up(workers=0)
        prometheus = server.Prometheus(world)
        world.accept("early")
        wait_until(lambda: prometheus.firing() == {"IssuingNoWorker"}, "the alarm that no worker runs", 90)
        links = prometheus.runbooks()
        assert_true(server.DOCS + "docs/troubleshoot.md#issuingnoworker" in links, "the link of the alert: %s" % links)
        worker = world.start_worker()
        prometheus.scrape()
        wait_until(lambda: not prometheus.firing() and prometheus.query("sum(issuing_in_flight)"), "silence", 90)
        with world.others(every=0.05):
            first = prometheus.evaluations()
            wait_until(lambda: prometheus.evaluations() >= first + QUIET or prometheus.firing(), "evaluations", 120)
            assert_equal(prometheus.firing(), set(), "alerts while all is well")
            wait_until(lambda: any(rate > 0 for _, rate in prometheus.query("sum(rate(issuing_events_ended_total[10s]))")),
                       "cards are made meanwhile")
            world.sandbox.fault("create", "status", status=401, count=1)
            wait_until(lambda: "IssuingCallsRefused" in prometheus.firing(), "the alarm of the first 401", 90)
        assert_equal(worker.stop(), 0, "the worker's exit status")
        wait_until(lambda: prometheus.firing() >= {"IssuingNoWorker", "IssuingDown"}, "a stopped worker's alarms", 90)
    finally:
        stop(suite, world)


# ---- running --------------------------------------------------------------------------------------------------------


def stop(suite, world):
    world.kill_all()
    suite.worlds.remove(world)
    world.drop_database()
    harness.release_ports()


CHECKS = (rules_are_well_formed_and_pass_their_tests, a_wrong_rule_is_noticed,
          what_follows_from_another_alert_is_silent,
          the_dashboard_is_one_that_grafana_loads, scrapes_are_clean_and_have_every_metric_that_is_named,
          an_alarm_comes_when_it_must_and_not_when_all_is_well)


def run():
    passed = failed = 0
    with harness.Suite("monitoring") as suite:
        for check in CHECKS:
            try:
                check(suite)
                passed += 1
                print("ok     " + check.__name__.replace("_", " "))
            except Exception:  # noqa: BLE001 - a check may fail in any way
                failed += 1
                suite.keep = True
                print("FAILED %s\n%s" % (check.__name__.replace("_", " "), traceback.format_exc(limit=-3)))
            sys.stdout.flush()
    print("monitoring: %d passed, %d failed" % (passed, failed))
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plots", action="store_true")
    options = parser.parse_args()
    missing = ["%s (package %s)" % pair for pair in PROGRAMS.items() if not shutil.which(pair[0])]
    if missing:
        print("skip   not installed: %s\nmonitoring: %d skipped\nmonitoring: 0 passed, 0 failed"
              % (", ".join(missing), len(CHECKS)))
        return 1 if options.plots else 0
    if options.plots:
        with harness.Suite("monitoring") as suite:
            pictures.draw(suite, dashboard.board())
        return 0
    return run()


if __name__ == "__main__":
    sys.exit(main())
