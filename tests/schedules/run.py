#!/usr/bin/python3
"""run.py [--show] [PART...]: the schedules of the SQL, in the manner of PostgreSQL's isolation tester.

Each file of specs/ (spec.py says how it is written) has sessions with steps. All orders of the steps are run that the
locks allow, and after each the file's checks must hold: once with plain settings, once with the settings of which
nothing of ours may depend (tests/support/testing.sh). Then each mutant that the file names is put in place, and one
order must fail. --show prints the orders. The last line is "schedules: N passed, N failed".

Whether a step waits is read from pg_blocking_pids: the next step begins when every session has ended its step or waits,
through others or not, for a session whose step has ended. An order in which a session is to act while it waits cannot
be, and is left out with all that begin alike. POSTGRES_BIN names the programs of another version of PostgreSQL.
"""
import argparse
import multiprocessing
import os
import pathlib
import re
import select
import shutil
import subprocess
import sys
import time
import traceback

import psycopg2
import psycopg2.extensions

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.append(str(HERE.parent / "e2e"))

import spec as specs  # noqa: E402
from stuck import STUCK_AFTER_S  # noqa: E402

BUILD = pathlib.Path(os.environ.pop("ISSUING_BUILD", None) or specs.ROOT / "build").resolve()
RUN = BUILD / "run" / "schedules"
CLUSTER = specs.ROOT / "tests" / "support" / "cluster"
# Of the server. A deadlock is found soon, and nothing but the sessions takes locks.
SETTINGS = ("autovacuum=off", "fsync=off", "deadlock_timeout=100ms")
PREPARED = psycopg2.extensions.TRANSACTION_STATUS_IDLE


def hostile():
    """The options of a session with settings that nothing of ours may depend on."""
    text = (specs.ROOT / "tests" / "support" / "testing.sh").read_text(encoding="utf-8")
    words = re.search(r"^hostile_settings='(.*?)'", text, re.M | re.S)[1].split()
    # Code that is compiled is meant; the time to optimise it is not.
    words += ["jit_optimize_above_cost=-1", "jit_inline_above_cost=-1", "search_path=hostile,issuing,public,pg_catalog"]
    return " ".join(f"-c {word}" for word in words)


class Connection:
    """An asynchronous session with the server."""

    def __init__(self, conninfo, options=""):
        self.connection = psycopg2.connect(conninfo, async_=True, options=options)
        self.end()
        self.pid = self.connection.info.backend_pid
        self.step = None  # the one under way

    def poll(self):
        """Whether nothing is under way any more."""
        try:
            return self.connection.poll() == psycopg2.extensions.POLL_OK
        finally:
            self.connection.notices.clear()

    def end(self):
        until = time.monotonic() + STUCK_AFTER_S
        while not self.poll():
            select.select([self.connection], [], [], 0.1)
            if time.monotonic() > until:
                raise RuntimeError("a session hangs")

    def begin(self, sql):
        self.cursor = self.connection.cursor()
        self.cursor.execute(sql)

    def rows(self):
        return self.cursor.fetchall() if self.cursor.description else []

    def run(self, sql):
        self.begin(sql)
        self.end()
        return self.rows()


class Stage:
    """A database with what the schedules need, and the sessions of one schedule."""

    def __init__(self, conninfo):
        self.conninfo = conninfo
        self.control = Connection(f"{conninfo} user=postgres")
        self.sessions = []
        self.control.run((HERE / "prelude.sql").read_text(encoding="utf-8"))
        self.named = specs.statements()

    def open(self, spec, options):
        for session in self.sessions:
            session.connection.close()
        self.sessions = [Connection(f"{self.conninfo} user={session.role}", options) for session in spec.sessions]

    def put(self, mutant, back=False):
        """The mutant's file instead of ours, or ours again."""
        if mutant.path.parent == specs.STATEMENTS:
            self.named = specs.statements(None if back else mutant)
            return
        text = specs.TEXTS[mutant.path.name] if back else mutant.text
        self.control.run("SET search_path = pg_catalog, issuing, pg_temp;" + text + ";RESET search_path")
        self.control.run("SELECT schedule.be_patient()")

    def settle(self):
        """Until each session has ended its step, or waits for one that has; returns the steps that have ended."""
        ended, until = [], time.monotonic() + STUCK_AFTER_S
        while True:
            ended += [session for session in self.sessions
                      if session.step and session not in ended and self.has_ended(session)]
            busy = [session for session in self.sessions if session.step and session not in ended]
            if not busy:
                return ended
            if select.select([session.connection for session in busy], [], [], 0.001)[0]:
                continue
            blockers = dict(self.control.run("SELECT p, pg_blocking_pids(p) FROM unnest(ARRAY[%s]) p" % ", ".join(
                str(session.pid) for session in busy)))
            idle = {session.pid for session in self.sessions if session not in busy}
            if all(self.waits_for(session.pid, blockers, idle) for session in busy):
                return ended
            if time.monotonic() > until:
                raise RuntimeError("hangs: " + ", ".join(session.step for session in busy))

    @staticmethod
    def waits_for(pid, blockers, idle):
        """Whether it waits for one of these, perhaps through others."""
        seen, ask = set(), [pid]
        while ask:
            for other in blockers.get(ask.pop(), ()):
                if other in idle:
                    return True
                if other not in seen:
                    seen.add(other)
                    ask.append(other)
        return False

    @staticmethod
    def has_ended(session):
        session.error, session.at = None, time.time()
        try:
            if not session.poll():
                return False
            session.found = session.rows()
        except psycopg2.Error as reason:
            if session.connection.closed:
                raise
            session.error, session.found = reason, []
        return True

    def run_order(self, spec, order):
        """Returns the log of the order, what was wrong, and who waited; None = at this place the order cannot be."""
        self.control.run("SELECT schedule.reset()")
        if spec.setup:
            self.control.run(specs.expand(spec.setup, self.named))
        log, said, waited, wrong = [], [], set(), []
        for number, (at, step) in enumerate(order):
            session = self.sessions[at]
            if session.step:
                self.clear()
                return number, [], waited
            session.step = step
            session.begin(specs.expand(spec.sql[step], self.named))
            for other in self.settle():
                state = other.error.pgcode if other.error else None
                if state and state not in spec.fails.get(other.step, ()):
                    wrong.append(f"{other.step}: {state} {str(other.error).strip()}")
                said += [(other.step, None, state, other.at)] if state else \
                    [(other.step, row[0], None, other.at) for row in other.found]
                log.append(f"{other.step} {state or ' '.join(str(row[0]) for row in other.found)}".strip())
                other.step = None
            if session.step:
                waited.add(step)
                log.append(f"{step} waits")
        if any(session.step for session in self.sessions):
            wrong.append("a step waits for ever")
        self.clear()
        return log, wrong or self.check(spec, said), waited

    def clear(self):
        """Ends all transactions."""
        for _ in self.sessions:
            for session in self.sessions:
                if session.step and self.has_ended(session):
                    session.step = None
                if not session.step and session.connection.info.transaction_status != PREPARED:
                    session.run("ROLLBACK")
            if not any(session.step for session in self.sessions):
                return
            self.settle_all()

    def settle_all(self):
        for session in self.settle():
            session.step = None

    def check(self, spec, said):
        self.control.run("TRUNCATE said")
        if said:
            with self.control.connection.cursor() as cursor:
                row = cursor.mogrify
                values = b", ".join(row("(%s, %s, %s, to_timestamp(%s))", (step, None if value is None else str(value),
                                                                           state, at)) for step, value, state, at in said)
            self.control.run(b"INSERT INTO said VALUES " + values)
        wrong = []
        for sentence, sql in spec.checks:
            rows = self.control.run(sql)
            wrong += [f"not so: {sentence}: {row}" for row in rows[:3]]
        return wrong

    def run(self, spec, options, show=False, stops=False):
        """Returns the number of orders and what was wrong. stops: with the first order that fails."""
        self.open(spec, options)
        count, wrong, waited, impossible = 0, [], set(), None
        for order in spec.orders():
            if impossible and order[:len(impossible)] == impossible:
                continue
            log, found, more = self.run_order(spec, order)
            waited |= more
            if isinstance(log, int):
                impossible = order[:log + 1]
                continue
            count += 1
            if show:
                print("    " + " | ".join(log), flush=True)
            wrong += [f"{' | '.join(log)}\n        {line}" for line in found]
            if wrong and stops:
                break
        if not stops and waited != spec.waits or waited - spec.waits:
            wrong.append(f"these wait: {' '.join(sorted(waited)) or 'none'}; the file says: "
                         f"{' '.join(sorted(spec.waits)) or 'none'}")
        return count, wrong


def prove(stage, spec, show):
    """Returns what was done, and what was wrong."""
    count, wrong = stage.run(spec, "", show)
    more, hostile_wrong = stage.run(spec, hostile())
    wrong += [f"with hostile settings: {line}" for line in hostile_wrong]
    for mutant in spec.mutants if not wrong else ():
        try:
            stage.put(mutant)
            _, found = stage.run(spec, "", show=show, stops=True)
        finally:
            stage.put(mutant, back=True)
        if show and found:
            print(f"    without {mutant.name}: {found[0]}", flush=True)
        if not found:
            wrong.append(f"no order fails without: {mutant.name}")
    return f"{count} orders, {more} hostile, {len(spec.mutants)} mutants", wrong


def work(number, conninfo, tasks, results, show):
    stage = None
    for name in iter(tasks.get, None):
        begun = time.monotonic()
        try:
            spec = specs.Spec(HERE / "specs" / f"{name}.spec")
            stage = stage or Stage(copy(conninfo, number))
            done, wrong = prove(stage, spec, show)
        except Exception:  # noqa: BLE001 - the other schedules go on
            done, wrong = "", [traceback.format_exc(limit=-6)]
            stage = None
        results.put((name, done, wrong, time.monotonic() - begun))


def copy(conninfo, number):
    """A database of its own: a copy of the migrated one."""
    control = Connection(conninfo.replace("dbname=issuing", "dbname=postgres") + " user=postgres")
    control.run(f"DROP DATABASE IF EXISTS issuing_{number} WITH (FORCE)")
    control.run(f"CREATE DATABASE issuing_{number} TEMPLATE issuing")
    control.connection.close()
    return conninfo.replace("dbname=issuing", f"dbname=issuing_{number}")


def start():
    """A cluster with a migrated database; returns its conninfo."""
    RUN.mkdir(parents=True, exist_ok=True)
    subprocess.run([CLUSTER, "stop", RUN / "pg"], check=True)
    shutil.rmtree(RUN / "pg", ignore_errors=True)
    conninfo = subprocess.run([CLUSTER, "start", RUN / "pg", *SETTINGS], check=True, capture_output=True,
                              text=True).stdout.strip()
    empty = RUN / "empty.conf"
    empty.write_text("", encoding="utf-8")
    subprocess.run([BUILD / "issuing-ctl", f"--config={empty}", "migrate", f"--database.url={conninfo} user=postgres"],
                   check=True, capture_output=True)
    return conninfo


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--jobs", type=int, default=2, metavar="N")
    parser.add_argument("parts", nargs="*", metavar="PART")
    options = parser.parse_args()
    wanted = [path for path in sorted((HERE / "specs").glob("*.spec"))
              if not options.parts or any(part in path.stem for part in options.parts)]
    passed = failed = 0
    context = multiprocessing.get_context("fork")
    tasks, results = context.SimpleQueue(), context.SimpleQueue()
    jobs = []
    try:
        conninfo = start()
        jobs = [context.Process(target=work, args=(number, conninfo, tasks, results, options.show), daemon=True)
                for number in range(min(options.jobs, len(wanted)))]
        for job in jobs:
            job.start()
        for path in wanted:
            tasks.put(path.stem)
        for _ in jobs:
            tasks.put(None)
        for _ in wanted:
            name, done, wrong, seconds = results.get()
            print(f"{'FAILED' if wrong else 'ok    '} {name}: {done} {seconds:.1f} s", flush=True)
            for line in wrong[:6]:
                print(f"    {line}", flush=True)
            passed, failed = passed + (not wrong), failed + bool(wrong)
    finally:
        for job in jobs:
            job.terminate()
            job.join()
        subprocess.run([CLUSTER, "stop", RUN / "pg"], check=False)
    print(f"schedules: {passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
