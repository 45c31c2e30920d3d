"""The examples in the documents are what the programs print. The story that they guard: three pages showed texts that
no program printed any more, and one of them promised an operator the opposite of what `explain` says.

An example is a fenced block with the line `<!-- example -->` above it. A block of `console` holds commands, each after
"$ ", and their output. A block of `sh` is run as one script; a block with the line `<!-- output -->` above it holds the
output of the script before it. "[...]" stands for any lines, and within a line for any text. The examples of a page run
in their order against the set-up of `./dev up`. Ids, times, durations, digits of cards and the widths of columns may
differ, but an id that a page shows twice must be the same id twice."""
import difflib
import os
import re
import shlex
import shutil
import socket
import subprocess
import threading

import harness
from harness import Failed, Skipped, assert_equal, assert_true, slow, test
from reconciling import failed

# Ports of ./dev up, as the pages show them.
PORTS = {"api": 8080, "api admin": 8081, "worker admin": 8091, "issuer": 8070, "core": 8071, "control": 8072,
         "route": 8073}
UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
MASKS = [
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
    (r"\bby [\w.-]+:\d+", "by WORKER"),
    (r"\bafter \d+ (ms|s)\b", "after DURATION"),
    (r"\bending in \d{4}\b", "ending in DIGITS"),
    (r'"last4": ?"\d{4}"', '"last4": DIGITS'),
    (r'"(exp_month|exp_year)": ?\d+', r'"\1": NUMBER'),
    (r"^(RateLimit: .*;t=|Retry-After: |Content-Length: )\d+", r"\1NUMBER"),
    (r"^(Date: ).*", r"\1TIME"),
    (r"  +", " "),
    (r" +$", ""),
]
# What ./dev up configures; the rest has the programs' own defaults.
AS_UP = {name.replace(".", "__"): None for name in harness.World.DEFAULTS}
AS_UP.update(worker__poll_interval="200ms", issuer__timeout="1s", core__timeout="1s")


class Example:
    def __init__(self, page, line, kind, command, expected):
        self.where, self.kind, self.command, self.expected = "%s:%d" % (page, line), kind, command, expected


def commands_of(block):
    """[(command, output)] of a console block. A command goes on while its line ends with a backslash."""
    found, goes_on = [], False
    for line in block:
        if goes_on:
            found[-1][0] += "\n" + line
        elif line.startswith("$ "):
            found.append([line[2:], []])
        else:
            found[-1][1].append(line)
            continue
        goes_on = line.endswith("\\")
    return found


def examples_of(page):
    found, mark, kind, block = [], None, None, []
    for number, line in enumerate((harness.ROOT / page).read_text(encoding="utf-8").splitlines(), 1):
        if kind is None:
            if line.startswith("```") and mark:
                kind, block = line[3:] or "text", []
            elif line in ("<!-- example -->", "<!-- output -->"):
                mark = line
            elif line.strip():
                mark = None
        elif line != "```":
            block.append(line)
        else:
            if mark == "<!-- output -->":
                found[-1].expected = block
            elif kind == "console":
                found += [Example(page, number - len(block), "sh", *pair) for pair in commands_of(block)]
            else:
                found.append(Example(page, number - len(block), kind, "\n".join(block), None))
            mark = kind = None
    return found


def masked(line):
    for pattern, text in MASKS:
        line = re.sub(pattern, text, line)
    return line


def pattern_of(lines, ids):
    """The expected output as a pattern, and the group of each new id. ids: the real ids of those shown before."""
    names, pieces = {}, []

    def identify(match):
        text = match.group(0)
        if text in ids:
            return re.escape(ids[text])
        if text in names:
            return "(?P=%s)" % names[text]
        names[text] = "id%d" % len(names)
        return "(?P<%s>%s)" % (names[text], UUID)
    for line in lines:
        if line.strip() == "[...]":
            pieces.append(r"(?:.*\n)*?")
        else:
            text = re.sub(UUID, identify, re.escape(masked(line)).replace(r"\-", "-"))
            pieces.append(text.replace(r"\[\.\.\.\]", ".*?") + "\n")
    return "".join(pieces), names


class Reader:
    """Runs the commands of one page in the set-up that the page describes."""

    def __init__(self, world):
        self.world, self.ids, self.assignments = world, {}, []
        api, worker, sandbox = world.apis()[0], world.workers()[0], world.sandbox
        ports = {"api": api.port, "api admin": api.admin, "worker admin": worker.admin,
                 "issuer": sandbox.issuer, "core": sandbox.core, "control": sandbox.control, "route": sandbox.route}
        self.ports = [("127.0.0.1:%d" % PORTS[name], "127.0.0.1:%d" % port) for name, port in ports.items()]
        self.folder = world.dir / "clone"
        up = self.folder / "build" / "run" / "up"
        up.mkdir(parents=True)
        (up / "secret").symlink_to(world.suite.secret_file)
        (up / "issuing.conf").write_text("[database]\nurl = %s\n[issuer]\ntimeout = 1s\n[card]\nkeys_file = %s\n" %
                                         (world.conninfo("issuing_operator"), world.suite.keys_file))
        (self.folder / "build" / "issuing-sandbox").symlink_to(harness.BUILD / "issuing-sandbox")
        ctl = self.folder / "build" / "issuing-ctl"
        words = [shlex.quote(str(harness.BUILD / "issuing-ctl")), shlex.quote("--config=%s" % (up / "issuing.conf"))]
        ctl.write_text('#!/bin/sh\nexec %s "$@"\n' % " ".join(words))
        ctl.chmod(0o755)

    def run(self, command):
        """Returns the lines printed, with the ports of ./dev up, and the status. Assignments hold for later ones."""
        for shown, real in [*self.ports, *self.ids.items()]:
            command = command.replace(shown, real)
        curl = "curl() { command curl -sS --noproxy '*' --max-time %d \"$@\"; }" % harness.STUCK_AFTER_S
        script = ["set -e", curl, *self.assignments, command]
        environment = {**harness.ENVIRONMENT, "PATH": "%s:%s" % (self.folder / "build", harness.ENVIRONMENT["PATH"])}
        done = subprocess.run(["bash", "-c", "\n".join(script)], cwd=self.folder, env=environment,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=2 * harness.STUCK_AFTER_S)
        self.assignments += re.findall(r"^[A-Z_]+=.*", command, re.M)
        printed = done.stdout.replace("\r", "")
        for shown, real in self.ports:
            printed = printed.replace(real, shown)
        return printed.rstrip("\n").split("\n"), done.returncode

    def follow(self, example):
        printed, status = self.run(example.command)
        if example.expected is None:
            assert_equal(status, 0, "%s: the status of\n%s\n%s\n" %
                         (example.where, example.command, "\n".join(printed)))
            return
        lines = list(example.expected)
        while lines and not lines[-1]:
            lines.pop()
        while printed and not printed[-1]:
            printed.pop()
        pattern, names = pattern_of(lines, self.ids)
        match = re.fullmatch(pattern, "".join(masked(line) + "\n" for line in printed))
        if not match:
            raise Failed("%s is stale: %s\n%s" % (example.where, example.command, "\n".join(
                difflib.unified_diff(lines, printed, "the page", "the programs", lineterm="", n=100))))
        for text, name in names.items():
            assert_true(match.group(name) not in self.ids.values(),
                 "%s is stale: elsewhere the page shows another id for %s" % (example.where, text))
            self.ids[text] = match.group(name)


def read(world, page):
    """Follows the page; returns the examples that are not for a shell."""
    reader, others = Reader(world), []
    examples = examples_of(page)
    assert_true(examples, "%s has no examples: the marks are gone" % page)
    for example in examples:
        if example.kind == "sh":
            reader.follow(example)
        else:
            others.append(example)
    return others


@test(**AS_UP)
def the_examples_of_the_readme_are_what_the_programs_print(world):
    read(world.up(), "README.md")


@test(**AS_UP)
def the_examples_for_operators_are_what_the_programs_print(world):
    read(world.up(), "docs/troubleshoot.md")


@test(**AS_UP)
def the_drills_are_what_the_programs_print(world):
    read(world.up(), "docs/drills.md")


@test(**AS_UP)
def the_example_of_the_issuers_is_what_the_programs_print(world):
    read(world.up(), "docs/issuers/README.md")


class Night:
    """What an operator may meet: requests in many states. Gives a command of the page the words that it leaves open."""

    def __init__(self, world):
        self.world = world
        for user in ("ends", "again", "once-more"):
            world.sandbox.fault("create", "status", user=user, status=418)
        world.sandbox.fault("create", "status", user="bulk", status=451)
        world.sandbox.fault("check", "status", user="waits", status=409)
        trace = "%032x" % 0xabcdef
        card = world.issue("done")
        self.done, self.words = card["id"], {
            "USER": "done", "KEY": "k", "CARD": card["card"]["id"], "LAST4": card["card"]["last4"], "TRACE": trace,
            "CODE": "issuer_http_451", "TEXT": "ticket 4711", "FILE": str(world.suite.keys_file)}
        self.traced = world.accept("traced", headers=[("traceparent", "00-%s-b7ad6b7169203331-01" % trace)])
        self.failed = {user: world.accept(user) for user in ("ends", "again", "once-more", "bulk")}
        world.accept("waits")
        self.unknown = failed(world, "unknown")
        world.wait_status(self.traced, "COMPLETED")
        for request in self.failed.values():
            world.wait_status(request, "FAILED")
        # `unknown` was written by hand.
        assert_equal(world.ctl("stats", "--rebuild", "--reason", "a row by hand").returncode, 0, "stats --rebuild")

    def fill(self, line):
        """The words of a command as the page writes it."""
        own = dict(self.words)
        verb = re.search(r"issuing-ctl (?:--json )?(\w+)", line).group(1)
        own["ID"] = self.failed[{"resolve": "ends", "reissue": "once-more"}.get(verb, "again")]
        own["USER"] = "waits" if verb == "cancel" else "done"
        if "BATCH" in line:
            own["BATCH"] = self.world.sql("SELECT DISTINCT batch FROM issuing.operator_actions WHERE batch IS NOT NULL"
                                          " AND action = 'replay'")
        return [own.get(word, word) for word in shlex.split(line)[1:]]

    def shown(self, line):
        """The request that the answer must name; None: it may be empty, or is not a list."""
        found = {"--unknown": self.unknown, "--bundle": self.failed["bulk"], "--trace": self.traced, "--failed-since": self.failed["ends"],
                 "--user": self.done, "--last4": self.done, "--card": self.done}
        return next((found[word] for word in line.split() if word in found), None) if " list " in line else None


def table_under(page, heading):
    text = (harness.ROOT / page).read_text(encoding="utf-8")
    section = re.split(r"^## ", text.split("\n## %s\n" % heading, 1)[1], maxsplit=1, flags=re.M)[0]
    return re.findall(r"^\| ([^|]+) \| `([^`|]+)` \|$", section, re.M)


@test(issuer__timeout="300ms")
def each_question_of_an_operator_is_answered_by_the_command_beside_it(world):
    """Story: of twenty questions of a bad night eight had no answer but SQL, curl or systemctl. Each command of the
    table is run as it stands there, on requests in all states."""
    rows = table_under("docs/troubleshoot.md", "Questions")
    assert_true(len(rows) >= 20, "few questions found: the check is broken")
    night, wrong = Night(world.up()), []
    for question, line in rows:
        done = world.ctl(*night.fill(line))
        shown = night.shown(line)
        # The cluster of the tests runs without fsync, and that is all that doctor may complain about.
        failures = [text for text in re.findall(r"^FAIL .*", done.stdout, re.M) if "fsync = off" not in text]
        if done.returncode != ("doctor" in line) or failures:
            wrong.append("%s\n    %s: exit %d: %s" % (question, line, done.returncode, done.stderr or done.stdout))
        elif shown and shown not in done.stdout:
            wrong.append("%s\n    %s: does not name %s: %s" % (question, line, shown, done.stdout))
    world.sandbox.clear()
    assert_equal("\n".join(wrong), "", "questions without an answer")


def message(side):
    """One message with a Content-Length, from a socket."""
    read = b""
    while piece := side.recv(65536):
        read += piece
        head, end, body = read.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)^content-length: (\d+)", head, re.M)
        if end and length and len(body) >= int(length.group(1)):
            break
    return read


def refusal(status, *lines):
    return ("\r\n".join(["HTTP/1.1 %d Trouble" % status, *lines, "Content-Length: 4", "Connection: close", "", "oops"])).encode()


# What a network and a proxy make of the api's answer, one after the other; the last one is passed on.
TROUBLES = (lambda answer: b"", lambda answer: refusal(504), lambda answer: refusal(502), lambda answer: answer[:-40],
            lambda answer: refusal(500), lambda answer: refusal(503, "Retry-After: " + harness.http_date(1)),
            lambda answer: answer)


def not_readable(_):
    return b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n{\"id"


def trouble(listener, port, troubles):
    for change in troubles:
        client_side, _ = listener.accept()
        with client_side, socket.create_connection(("127.0.0.1", port), harness.STUCK_AFTER_S) as server_side:
            client_side.settimeout(harness.STUCK_AFTER_S)
            server_side.settimeout(harness.STUCK_AFTER_S)
            server_side.sendall(message(client_side))
            client_side.sendall(change(message(server_side)))


LOOPS = {
    "python": (["/usr/bin/python3"], "loop.py", """%s
print(request_card(%s, %s, {"kind": "new"})["id"])
"""),
    "js": (["node"], "loop.js", """%s
requestCard(%s, %s, { kind: 'new' }).then(found => console.log(found.id))
"""),
    "go": (["go", "run"], "loop.go", """package main
import ("encoding/json"; "errors"; "fmt"; "io"; "math"; "net/http"; "os"; "strconv"; "strings"; "time")
%s
func main() {
	text, err := requestCard(%s, %s, `{"kind": "new"}`, "1")
	var found struct{ ID string }
	if err != nil || json.Unmarshal([]byte(text), &found) != nil {
		fmt.Fprintln(os.Stderr, text, err)
		os.Exit(1)
	}
	fmt.Println(found.ID)
}
"""),
    "java": (["java", "-XX:-UsePerfData"], "Loop.java", """import java.io.IOException; import java.net.URI; import java.net.http.*;
import java.time.Duration; import java.util.*;
class Loop {
%s
    public static void main(String[] arguments) throws Exception {
        System.out.println(requestCard(%s, %s, "{\\"kind\\": \\"new\\"}", UUID.randomUUID().toString()).replaceAll(".*\\"id\\":\\"([-0-9a-f]*)\\",\\"kind.*", "$1"));
    }
}
"""),
}


def run_loop(world, example, user, troubles):
    """The loop of the page, with short pauses, behind a network with these troubles: one request, whatever happened."""
    start, name, program = LOOPS[example.kind]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(harness.STUCK_AFTER_S)
        network = threading.Thread(target=trouble, args=(listener, world.apis()[0].port, troubles), daemon=True)
        network.start()
        shorter = re.sub(r"(pause :?= )0\.5", r"\g<1>0.001", example.command)
        assert_true(shorter != example.command, "%s: no pause" % example.where)
        (world.dir / name).write_text(program % (shorter, '"http://127.0.0.1:%d"' % listener.getsockname()[1],
                                                 '"%s"' % world.token(user)))
        done = harness.run(["env", "GO111MODULE=off", "GOCACHE=%s" % (harness.BUILD / "go-cache"), *start,
                            world.dir / name])
        network.join(harness.STUCK_AFTER_S)
    assert_equal((done.returncode, [done.stdout.strip()]),
                 (0, world.sql("SELECT id FROM outbox_events WHERE user_id = '%s'" % user).split()),
                 "%s: %s" % (example.where, done.stderr))


@test(**AS_UP)
def the_examples_for_clients_work_also_when_an_answer_is_lost(world):
    others = read(world.up(), "docs/clients.md")
    assert_equal([example.kind for example in others], list(LOOPS), "blocks to be run")
    run_loop(world, others[0], "grace", (not_readable, *TROUBLES))


@slow
@test(**AS_UP)
def the_loops_for_clients_in_other_languages_survive_the_same(world):
    others = [example for example in examples_of("docs/clients.md") if example.kind in LOOPS]
    missing = {LOOPS[example.kind][0][0] for example in others if not shutil.which(LOOPS[example.kind][0][0])}
    world.up()
    for example in others:
        if LOOPS[example.kind][0][0] not in missing:
            # Java has no reader of JSON: the caller reads the text.
            run_loop(world, example, example.kind, TROUBLES if example.kind == "java" else (not_readable, *TROUBLES))
    if missing:
        raise Skipped("not installed: " + ", ".join(sorted(missing)))


def demo(world, *words):
    """What it prints; it must end well."""
    if harness.BUILD != harness.ROOT / "build":
        raise harness.Skipped("./dev demo runs the programs in build/")
    done = subprocess.run(["setpriv", "--pdeathsig", "TERM", harness.ROOT / "dev", "demo", *words], cwd=harness.ROOT,
                          env={**harness.ENVIRONMENT, "HOME": os.environ.get("HOME", "/")}, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=max(600, harness.STUCK_AFTER_S))
    (world.dir / "demo.log").write_text(done.stdout)
    if "another one is running here" in done.stdout:
        raise harness.Skipped("another ./dev demo is running")
    assert_equal(done.returncode, 0, "the demo: " + done.stdout[-2000:])
    return done.stdout


@test
def the_demo_prints_what_the_readme_shows(world):
    page = (harness.ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.search(r"^```\n\$ \./dev demo\n(.*?)^```$", page, re.S | re.M)
    assert_true(shown, "README.md shows no demo")
    text = demo(world)
    pattern, _ = pattern_of(shown.group(1).splitlines(), {})
    printed = "".join(masked(line) + "\n" for line in text.splitlines())
    assert_true(re.fullmatch(pattern, printed), "README.md shows another demo than this:\n" + text)


@slow
@test
def the_demo_of_webhooks_ends_as_it_promises(world):
    assert_true(re.search(r"^   accepted (\d+) = executed \1$", demo(world, "--webhooks"), re.M), "the count")
