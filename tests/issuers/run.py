#!/usr/bin/python3
"""run.py [PART...]: the worker's issuer profiles, the sandbox's dialects and signed deliveries, against the libraries
that vendors and receivers use.

requests  each call of each profile is what the SDK puts on the wire (compare.py, requests.js)
clients   the SDKs are clients of issuing-sandbox --issuer=... (clients.js)
types     what the worker sends and reads, and what the sandbox answered to the clients, is in the SDK's types
          (literals.py, tsc)
webhooks  the stock library of Standard Webhooks accepts what the worker signs, and nothing else (webhooks.js)
traces    OpenTelemetry's own protocol code and the rules of exported.py accept a right export, and refuse each that is
          broken (trace_cases.py); and what the programs send in the stories of tests/e2e/spans.py

The SDKs of Stripe, Lithic, Increase and Adyen, and those libraries, are installed from package-lock.json into
<build>/issuer-sdks; where node, npm or its registry is not there, the group is skipped with the reason. Marqeta has no
SDK at npm: its requests are compared with its documents by unit tests only.

The last line is "issuers: N passed, N failed".
"""
import json
import pathlib
import shutil
import signal
import subprocess
import sys

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))

import compare  # noqa: E402
import exported  # noqa: E402
import literals  # noqa: E402
import trace_cases  # noqa: E402
import traces as trace_headers  # noqa: E402
from harness import BUILD, environment, free_port, release_ports, Sandbox, STUCK_AFTER_S  # noqa: E402

FILES = ("package.json", "package-lock.json")
NODE_MIN = 18  # of Adyen's SDK; all of them work with it
CREDENTIAL = "golden-credential"
NOT_COMPARED = ("cancel_odd_card",)  # no vendor makes such an id
CLIENTS = [trace_headers.PARENT]
TRACE_STORIES = ("a request is one tree", "of requests without a trace", "repeats and refusals have",
                 "no error of a span", "a deferral names", "leaves no span and its", "notifications have spans",
                 "an operator did is", "is one tree with its end", "before its user is known")
PARTS = ("requests", "clients", "types", "webhooks", "traces")


def skip(reason):
    print("skip   %s" % reason)
    print("issuers: 1 skipped")
    print("issuers: 0 passed, 0 failed")
    return 0


def install():
    """The folder with the packages; or why there is none."""
    folder = BUILD / "issuer-sdks"
    mark = folder / "installed"
    lock = (HERE / "package-lock.json").read_text()
    if mark.exists() and mark.read_text() == lock:
        return folder, None
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        shutil.copy(HERE / name, folder / name)
    try:
        done = subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error",
                               "--cache", str(folder / "cache")], cwd=folder, capture_output=True, text=True,
                              timeout=STUCK_AFTER_S)
    except subprocess.TimeoutExpired:
        return None, "npm did not get the packages in time"
    if done.returncode != 0:
        return None, "npm could not get the packages: " + (done.stderr.strip().splitlines() or ["no reason given"])[0]
    mark.write_text(lock)
    return folder, None


class Results:
    """Counts and prints."""

    def __init__(self):
        self.passed = self.failed = 0

    def add(self, sentence, complaints=()):
        if complaints:
            self.failed += 1
            print("\n    ".join(["FAILED " + sentence, *complaints]), flush=True)
        else:
            self.passed += 1
            print("ok     " + sentence, flush=True)


class Node:
    """Runs our scripts with the packages; all of it stays in the folder and on 127.0.0.1."""

    def __init__(self, folder):
        self.folder = folder

    def run(self, script, *words):
        variables = {**environment(), "HOME": str(self.folder), "NODE_PATH": str(self.folder / "node_modules")}
        seconds = max(600, STUCK_AFTER_S)
        try:
            return subprocess.run(["node", str(script), *words], cwd=self.folder, env=variables, capture_output=True,
                                  text=True, timeout=seconds)
        except subprocess.TimeoutExpired as error:
            return subprocess.CompletedProcess(error.cmd, 124, "", "not done within %d s" % seconds)


def golden():
    """What the worker's engine builds and reads, see issuer_requests.c: {values}, [request, ...], [table, ...]."""
    done = subprocess.run([BUILD / "tests" / "issuers" / "issuer_requests"], capture_output=True, text=True,
                          timeout=STUCK_AFTER_S, env=environment())
    if done.returncode != 0:
        raise SystemExit("issuers: issuer_requests: status %d: %s" % (done.returncode, done.stderr))
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    by_kind = {kind: [row[kind] for row in rows if kind in row] for kind in ("values", "request", "more", "table")}
    requests = [row for row in by_kind["request"] + by_kind["more"]
                if row["profile"] in compare.PROFILES and row["call"] not in NOT_COMPARED]
    return by_kind["values"][0], requests, by_kind["table"]


# ---- requests --------------------------------------------------------------------------------------------------------

def compare_requests(results, node, values, requests):
    ours = {(row["profile"], row["call"]): row for row in requests}
    memos = {row["call"]: row["memo"] for row in requests if "memo" in row}
    done = node.run(HERE / "requests.js", json.dumps(values), json.dumps(memos))
    theirs = {(row["profile"], row["call"]): row for row in map(json.loads, done.stdout.splitlines())}
    results.add("every call of a profile is made by the vendor's SDK, and no other",
                [done.stderr] * bool(done.returncode) + sorted("%s %s" % name for name in ours.keys() ^ theirs.keys()))
    both = sorted(ours.keys() & theirs.keys())
    for name in both:
        results.add("%s: %s is what the vendor's SDK sends" % name,
                    compare.differences(name[0], ours[name], theirs[name]))
    results.add("a broken request is seen as different, whatever the call and whatever is broken",
                ["this is not: %s %s: %s" % (*name, what) for name in both for what, request in
                 compare.broken(ours[name]) if not compare.differences(name[0], request, theirs[name])])
    for profile, take_out, why in compare.ALLOWED:
        pairs = [(ours[name], theirs[name]) for name in ours.keys() & theirs.keys() if name[0] == profile]
        is_needed = any(compare.differences(profile, *pair, left_out=take_out) for pair in pairs)
        results.add("%s: a difference is allowed, and is there: %s" % (profile, why),
                    [] if is_needed else ["no request differs so: take it out of ALLOWED"])


# ---- clients ---------------------------------------------------------------------------------------------------------

def sandbox_of(profile, folder):
    ports = [free_port() for _ in range(4)]
    secret = folder / (profile + ".credential")
    secret.touch(0o600)
    secret.write_text(CREDENTIAL + "\n")
    return Sandbox("sandbox-" + profile, [
        BUILD / "issuing-sandbox", "--seed", "7", "--quiet", "--issuer=" + profile, "--credential-file", secret,
        *(word for name, port in zip(("issuer", "core", "control", "route"), ports)
          for word in ("--%s-listen" % name, "127.0.0.1:%d" % port))], folder / (profile + ".log"), *ports).wait_ready()


def drive_sandbox(results, node, profile, folder):
    """clients.js tells its stories; each is one test. Returns what the sandbox answered."""
    sandbox = sandbox_of(profile, folder)
    try:
        url = "http://127.0.0.1:%d"
        done = node.run(HERE / "clients.js", profile, json.dumps({
            "issuer": url % sandbox.issuer, "core": url % sandbox.core, "control": url % sandbox.control,
            "credential": CREDENTIAL}))
    finally:
        status = sandbox.stop()
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    stories = [row for row in rows if "story" in row]
    for row in stories:
        results.add("%s: %s" % (profile, row["story"]), row["complaints"])
    results.add("%s: the sandbox and its client end well" % profile,
                ["the sandbox's status is %d" % status] * bool(status) +
                ["the client's status is %d: %s" % (done.returncode, done.stderr)] * bool(done.returncode) +
                ["no story was told"] * (not stories))
    return [{"profile": profile, **row["answer"]} for row in rows if "answer" in row]


def check_clients(results, node):
    """Returns what the sandboxes answered. Their logs stay when something failed."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda which, _: sys.exit(128 + which))
    logs = BUILD / "run" / "issuers"
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)
    answers = [answer for profile in compare.PROFILES for answer in drive_sandbox(results, node, profile, logs)]
    release_ports()
    if not results.failed:
        shutil.rmtree(logs)
    return answers


# ---- types -----------------------------------------------------------------------------------------------------------

def check_types(results, node, requests, tables, answers):
    folder = node.folder / "types"
    folder.mkdir(exist_ok=True)
    found = list(literals.cases(requests, tables, answers))
    lines = literals.write(folder, found)
    done = node.run(node.folder / "node_modules" / "typescript" / "bin" / "tsc", "--noEmit", "--strict",
                    "--skipLibCheck", "--pretty", "false", "--module", "nodenext", "--target", "es2022",
                    str(folder / "good.ts"), str(folder / "bad.ts"))
    for label, complaints in literals.judge(found, lines, done.stdout + done.stderr):
        results.add("types: " + label, complaints)


# ---- webhooks --------------------------------------------------------------------------------------------------------

def check_webhooks(results, node):
    done = node.run(HERE / "webhooks.js", str(BUILD / "tests" / "issuers" / "webhook_deliveries"))
    stories = [json.loads(line) for line in done.stdout.splitlines()]
    for row in stories:
        results.add("webhooks: " + row["story"], row["complaints"])
    results.add("webhooks: the receiver ends well", [done.stderr] * bool(done.returncode) +
                ["no story was told"] * (not stories))


# ---- traces ----------------------------------------------------------------------------------------------------------

def check_traces(results, node):
    def complaints_of(bodies):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for number, body in enumerate(bodies):
            (folder / ("%d.json" % number)).write_text(body if isinstance(body, str) else json.dumps(body))
        return exported.check_folder(node, folder, [trace_cases.CLIENTS], [trace_cases.USER])[0]

    folder = node.folder / "traces"
    results.add("traces: a right export is accepted", complaints_of(trace_cases.good()))
    twice = json.dumps(trace_cases.good()[0]).replace('"flags"', '"kind": 2, "flags"')
    for what, bodies, wanted in (*trace_cases.broken(), ("a member twice", [twice], "has a member twice")):
        found = complaints_of(bodies)
        results.add("traces: refused is %s" % what, [] if any(wanted in line for line in found) else [
            "wanted is a complaint with %r: %s" % (wanted, found)])
    check_stories(results, node, folder)


def check_stories(results, node, folder):
    """What the programs sent in the stories of tests/e2e/spans.py whose receiver kept it all."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    done = subprocess.run([sys.executable, "-B", HERE.parent / "e2e" / "run.py", *TRACE_STORIES],
                          env={**environment(), "SPANS_KEPT": str(folder)}, capture_output=True, text=True)
    results.add("traces: the stories pass", [done.stdout[-2000:] + done.stderr[-2000:]] * (done.returncode != 0))
    sent = sorted(folder.iterdir())
    results.add("traces: each story has sent spans", ["%d of %d have" % (len(sent), len(TRACE_STORIES))] *
                (len(sent) != len(TRACE_STORIES)))
    for story in sent:
        complaints, spans = exported.check_folder(node, story, CLIENTS, ("alice", "bob"))
        results.add("traces: of %d spans of a story each is right" % len(spans), complaints)


def main():
    wanted = sys.argv[1:] or PARTS
    if not set(wanted) <= set(PARTS):
        print(__doc__)
        return 2
    missing = [name for name in ("node", "npm") if not shutil.which(name)]
    if missing:
        return skip("%s is not installed" % " and ".join(missing))
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, timeout=STUCK_AFTER_S).stdout.strip()
    if int(version.lstrip("v").split(".")[0]) < NODE_MIN:
        return skip("the SDKs need Node.js %d; this is %s" % (NODE_MIN, version))
    folder, why = install()
    if not folder:
        return skip(why)
    results, node = Results(), Node(folder)
    values, requests, tables = golden()
    if "requests" in wanted:
        compare_requests(results, node, values, requests)
    answers = check_clients(results, node) if "clients" in wanted else []
    if "types" in wanted:
        check_types(results, node, requests, tables, answers)
    if "webhooks" in wanted:
        check_webhooks(results, node)
    if "traces" in wanted:
        check_traces(results, node)
    print("issuers: %d passed, %d failed" % (results.passed, results.failed))
    return 1 if results.failed else 0


if __name__ == "__main__":
    sys.exit(main())
