"""The first hour of a team that sends events of its own: what ./dev up prints, a route that is tested before there is
an event, and a receiver that is as strict as theirs should be.

Story: a newcomer could not reach the database of ./dev up with the driver of their language, could not add a route to
its worker, and noticed a wrong secret only when many events had been refused.
"""
import contextlib
import json
import os
import re
import shlex
import signal
import subprocess

import client
import harness
from harness import assert_equal, assert_true, BUILD, free_port, Program, run, slow, test, wait_until
from operators import lines
from receiver import event_ids, insert, receiver, resets, route, says, wait_ends
from webhooks import Secret, secret_file

TYPE = "PAYMENT_CHARGE"


class Strict(Program):
    """issuing-sandbox receiver."""

    is_peer = True

    def __init__(self, world, secret, *words, port=None):
        self.port, self.control = port or free_port(), free_port()
        super().__init__("receiver", [BUILD / "issuing-sandbox", "receiver", "--webhook-secret-file", secret,
                                      "--route-listen", "127.0.0.1:%d" % self.port, "--control-listen",
                                      "127.0.0.1:%d" % self.control, *words], world.dir / ("receiver-%d.log" % self.port))
        world.programs.append(self)
        wait_until(lambda: '"control"' in self.text(), "the receiver listens")

    @property
    def url(self):
        return "http://127.0.0.1:%d/hooks/mail" % self.port

    def hooks(self):
        return {row["id"]: row["deliveries"] for row in client.call(self.control, "GET", "/hooks").json()["hooks"]}

    def results(self):
        return [json.loads(line)["result"] for line in self.text().splitlines() if '"webhook"' in line]

    def post(self, body, headers):
        return client.call(self.port, "POST", "/hooks/mail", headers, body)


# ---- the receiver ----

@test
def a_strict_receiver_takes_what_is_signed_once_and_says_what_it_has_executed(world):
    secret = Secret()
    service = Strict(world, secret_file(world, secret))
    world.settings.update({"route.%s.%s" % (TYPE, name): str(value) for name, value in (
        ("url", service.url), ("lookup_url", service.url + "/{id}"), ("timeout", "1s"), ("key_lifetime", "8s"),
        ("sign_secret_file", world.dir / "webhook.secret"))})
    world.start_worker()
    dropped, silent, plain = event_ids(world, 3)
    for fault in ({"fault": "create_then_drop", "user": "dropped", "count": 1},
                  {"fault": "hang", "user": "silent", "count": 2}):
        answer = client.call(service.control, "POST", "/faults", {}, {"target": "route", "call": "hook", **fault})
        assert_equal(answer.status, 200, "a rule: %r" % answer)
    insert(world, ["dropped", "silent", "plain"], ids=[dropped, silent, plain])
    ends = wait_ends(world, [dropped, silent, plain])
    assert_equal(set(ends.values()), {("COMPLETED", None)}, "ends")
    assert_equal(service.hooks(), {dropped: 2, silent: 1, plain: 1}, "what took effect, and how often it came")
    assert_equal(sorted(service.results()), ["executed"] * 3 + ["repeated"], "results")
    for event, status in ((plain, 200), (event_ids(world, 1)[0], 404)):
        assert_equal(client.call(service.port, "GET", "/hooks/mail/" + event).status, status, "the look-up")


@test
def a_strict_receiver_refuses_what_is_not_signed_by_whom_it_knows_just_now(world):
    secret, other = Secret(), Secret()
    with receiver(world, "/hook") as good:
        route(world, good, sign_secret_file=secret_file(world, secret))
        world.start_worker()
        wait_ends(world, insert(world, "alice"))
        call, = good.deliveries()
    headers = {name: call.headers[name] for name in ("webhook-id", "webhook-timestamp", "webhook-signature")}
    service = Strict(world, secret_file(world, secret))
    stranger = Strict(world, secret_file(world, other), "--bad-signature", "400")
    late = {**headers, "webhook-timestamp": str(int(headers["webhook-timestamp"]) - 1)}
    unsigned = {name: value for name, value in headers.items() if name != "webhook-signature"}
    wrong = ((service, call.body + b" ", headers, 401, "bad_signature"), (service, call.body, late, 401, "bad_signature"),
             (service, call.body, unsigned, 401, "no_signature"), (stranger, call.body, headers, 400, "bad_signature"))
    for who, body, sent, status, code in wrong:
        answer = who.post(body, sent)
        assert_equal((answer.status, answer.json()["code"]), (status, code), "the answer")
    assert_equal((service.hooks(), stranger.hooks()), ({}, {}), "nothing took effect")
    both = {**headers, "webhook-signature": "v1,AAAA " + headers["webhook-signature"]}
    assert_equal([service.post(call.body, sent).status for sent in (both, headers)], [204, 204], "signed, and again")
    assert_equal(service.hooks(), {headers["webhook-id"]: 2}, "once")


# ---- issuing-ctl route test ----

def tested(world, kind, code):
    done = world.ctl("route", "test", kind, "--json")
    return {row["check"]: (row["ok"], row["found"], row["fix"]) for row in lines(done, code)}


@test(retry__max_attempts="3")
def a_route_is_tested_before_there_is_an_event(world):
    secret, wrong = Secret(), Secret()
    file = secret_file(world, wrong)
    with receiver(world, "/hook") as service:
        route(world, service, sign_secret_file=file, url=service.url + "?code=in-the-query")
        assert_equal(tested(world, TYPE, 1)["route"][1], "no such route is registered", "before a worker has named it")
        worker = world.start_worker()
        service.always(says(401, '{"detail": "not %s"}' % wrong.text))
        wait_until(lambda: "receiver" in tested(world, TYPE, 1), "the worker has named it")
        found = tested(world, TYPE, 1)
        assert_true(not found["receiver"][0] and str(file) in found["receiver"][2], "what to do: %r" % found)
        assert_true(wrong.text[6:] not in "%r" % found and "in-the-query" not in "%r" % found, "secrets: %r" % found)
        secret_file(world, secret)
        worker.signal(signal.SIGHUP)
        service.clear()
        wait_until(lambda: world.ctl("route", "test", TYPE).returncode == 0 and secret.signs(service.deliveries()[-1]),
                   "the right secret is used")
        call = service.deliveries()[-1]
        body = json.loads(call.body)
        assert_equal((call.headers["ce-type"], body["type"], body["data"], call.headers["webhook-id"]),
                     ("TEST", "test", {"route": TYPE}, call.event), "what was sent")
        assert_equal(world.sql("SELECT count(*) FROM outbox_events"), "0", "events")
        assert_equal(world.sql("SELECT DISTINCT action, after ->> 'target' FROM operator_actions"),
                     "test_route|" + TYPE, "on record")
        before = len(service.deliveries())
        world.ctl("pause", TYPE, "--reason", "their weekend")
        assert_true("paused" in tested(world, TYPE, 1)["route"][1], "a paused one is not called")
        assert_equal(len(service.deliveries()), before, "calls")
        world.ctl("resume", TYPE, "--reason", "Monday")
        service.always(resets())
        wait_until(lambda: "receiver" in tested(world, TYPE, 1), "no answer is a finding")
        worker.stop()
        done = world.ctl("route", "test", TYPE, "--timeout", "2s")
        assert_equal((done.returncode, "no worker answered" in done.stdout), (75, True), "without a worker")
        service.calls.clear()  # a test is not an event


# ---- ./dev up ----

@contextlib.contextmanager
def dev_up(world, *words):
    """Yields what it prints."""
    if BUILD != harness.ROOT / "build":
        raise harness.Skipped("./dev up runs the programs in build/")
    log = world.dir / "up.log"
    with open(log, "wb") as out, subprocess.Popen(
            ["setpriv", "--pdeathsig", "TERM", harness.ROOT / "dev", "up", *words], cwd=harness.ROOT, stdout=out,
            stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            env={**harness.ENVIRONMENT, "HOME": os.environ.get("HOME", "/")}) as up:
        try:
            wait_until(lambda: "  MAIL -> " in log.read_text() or up.poll() is not None, "it is up", 600)
            if "another one is running here" in log.read_text():
                raise harness.Skipped("another ./dev up is running")
            assert_equal(up.poll(), None, "it runs: " + log.read_text()[-2000:])
            yield log.read_text()
        finally:
            up.terminate()
            up.wait(harness.STUCK_AFTER_S)
        assert_equal(up.returncode, 0, "its end: " + log.read_text()[-2000:])


def follow(text, pattern, **words):
    """Runs the printed command that matches, with the words it leaves open."""
    command, = re.findall(r"^  (%s.*)$" % pattern, text, re.M)
    for name, value in words.items():
        command = command.replace("'%s'" % name, "'%s'" % value)
    done = run(["sh", "-c", "cd %s && PATH=/usr/bin:/bin %s" % (shlex.quote(str(harness.ROOT)), command)])
    assert_equal(done.returncode, 0, "%s: %s%s" % (command, done.stdout, done.stderr))
    return done.stdout


@slow
@test
def what_dev_up_prints_is_enough_to_send_a_first_event(world):
    port = free_port()
    with dev_up(world, "--route", "MAIL=http://127.0.0.1:%d/hooks/mail" % port) as text:
        url = re.search(r"postgresql://\S+@127\.0\.0\.1:\d+/issuing", text).group()
        secret = re.search("^  build/issuing-sandbox receiver --webhook-secret-file (.*)$", text, re.M).group(1)
        service = Strict(world, harness.ROOT / secret, port=port)
        assert_true("an event would be COMPLETED" in follow(text, "build/issuing-ctl .* route test MAIL"), "the test")
        follow(text, "build/issuing-ctl .* sender add")
        event = re.search("[0-9a-f]{8}-[0-9a-f-]{27}", follow(text, "psql .*enqueue")).group()
        wait_until(lambda: "COMPLETED" in follow(text, "psql .*end_of", ID=event), "its end")
        assert_true(event in service.hooks(), "the receiver has it, and its signature is good")
        psql = [harness.psql_program(), "-XAtq", "-v", "ON_ERROR_STOP=1", "-d"]
        done = run([*psql, url], stdin=(harness.ROOT / "examples" / "orders" / "orders.sql").read_text() +
                   ";CREATE ROLE mails LOGIN PASSWORD 'a password'; GRANT CONNECT ON DATABASE issuing TO mails")
        assert_equal((done.returncode, done.stderr), (0, ""), "roles and schemas")
        own = re.sub("//[^@]*@", "//mails:a%20password@", url)
        send = "SELECT issuing.enqueue('MAIL', current_user, '{}') \\g /dev/null\nSELECT current_user"
        assert_true("permission denied for schema issuing" in run([*psql, own], stdin=send).stderr, "before it is added")
        assert_true("mails MAIL  added" in follow(text.replace("add developer", "add mails"), "build/issuing-ctl .* sender add"),
                    "it is added")
        assert_equal(run([*psql, own], stdin=send).stdout, "mails\n", "a role of one's own logs in and sends")
        assert_true(run([*psql, url], stdin="SELECT payload FROM issuing.outbox_events").returncode != 0,
                    "a developer reads no payloads")
