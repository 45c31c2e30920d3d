"""The peers over https with an authority of their own, through a terminator of TLS as load balancers are: HTTP/1.1, and
HTTP/2 where many calls share a connection. A terminator dies with orders on their way: nothing is lost and nothing is
made twice. And without a proof of who it is, a peer is sent nothing."""
import json
import pathlib
import threading

import client
import harness
from daemons import errors, hang_up
from harness import Program, same, test, true, wait

PYTHON = "/usr/bin/python3"  # Debian's, whose package python3-h2 is
HERE = pathlib.Path(__file__).resolve().parent
OUTAGES = {"breaker__failures": "5", "retry__base": "20ms"}


def openssl(*words):
    done = harness.run(["openssl", *words])
    same(done.returncode, 0, "openssl %s: %s" % (words[0], done.stderr))


def make_key(folder, name, subject):
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", subject, "-keyout",
            folder / (name + ".key"), "-out", folder / (name + ".csr"))


def make_authority(world, name="authority"):
    """Returns the path of its certificate; the key is beside it."""
    make_key(world.dir, name, "/CN=test authority")
    certificate, extensions = world.dir / (name + ".pem"), world.dir / (name + ".ext")
    extensions.write_text("basicConstraints = critical, CA:TRUE\n")
    openssl("x509", "-req", "-days", "1", "-in", world.dir / (name + ".csr"), "-signkey", world.dir / (name + ".key"),
            "-extfile", extensions, "-out", certificate)
    return certificate


def make_certificate(world, authority, name="peer", names="IP:127.0.0.1"):
    make_key(world.dir, name, "/CN=peer")
    certificate, extensions = world.dir / (name + ".pem"), world.dir / (name + ".ext")
    extensions.write_text("basicConstraints = critical, CA:FALSE\nsubjectAltName = %s\n" % names)
    openssl("x509", "-req", "-days", "1", "-in", world.dir / (name + ".csr"), "-CA", authority, "-CAkey",
            authority.with_suffix(".key"), "-CAcreateserial", "-extfile", extensions, "-out", certificate)
    return certificate


class Terminator(Program):
    is_peer = True

    def __init__(self, world, name, to, certificate, http2):
        self.port = harness.free_port()
        super().__init__(name, [PYTHON, HERE / "terminator.py", "--listen", self.port, "--to", to,
                                "--certificate", certificate, "--key", certificate.with_suffix(".key"),
                                *(["--http2"] if http2 else [])], world.dir / (name + ".log"))
        world.programs.append(self)

    def lines(self, member):
        return [line for line in (json.loads(text) for text in self.text().splitlines() if text.startswith("{"))
                if member in line]

    def wait_listening(self, times=1):
        def listens():
            true(self.alive(), "%s ended: %s" % (self.name, self.text()[-500:]))
            return len(self.lines("listening")) >= times
        wait(listens, self.name + " listens")
        return self

    def again(self):
        times = len(self.lines("listening"))
        return self.start() and self.wait_listening(times + 1)

    @property
    def url(self):
        return "https://127.0.0.1:%d" % self.port


def up_behind_tls(world, http2, workers=1):
    """The usual set, the worker's calls through terminators. Returns these: the issuer's and core-api's."""
    world.start_sandbox()
    authority = make_authority(world)
    certificate = make_certificate(world, authority)
    terminators = [Terminator(world, name, to, certificate, http2).wait_listening()
                   for name, to in (("tls-issuer", world.sandbox.issuer), ("tls-core", world.sandbox.core))]
    world.settings.update({"issuer.url": terminators[0].url, "core.url": terminators[1].url,
                           "tls.ca_file": authority})
    world.start_api()
    for _ in range(workers):
        world.start_worker()
    return terminators


def cards_are_issued(world, http2):
    terminators = up_behind_tls(world, http2)
    port = world.apis()[0].port
    taps = client.burst([(port, world.post_bytes("user-%d" % (i % 20), "k")) for i in range(60)])
    same({answer.status for answer in taps}, {202}, "three taps of each user")
    same(len({answer.json()["id"] for answer in taps}), 20, "requests")
    world.settle()
    same(world.sql("SELECT count(*) FROM outbox_events WHERE status = 'COMPLETED'"), "20", "completed")
    same([card["sends"] for card in world.sandbox.cards()], [1] * 20, "sends")
    same(world.sql("SELECT count(*), max(retry_count) FROM outbox_events"), "20|1", "attempts")
    for terminator in terminators:
        same({(line["protocol"], line["version"]) for line in terminator.lines("connection")},
             {("h2" if http2 else "http/1.1", "TLSv1.3")}, terminator.name)


@test
def cards_are_issued_over_https_with_an_own_authority(world):
    cards_are_issued(world, http2=False)


@test
def cards_are_issued_over_http2_with_an_own_authority(world):
    cards_are_issued(world, http2=True)


def load_with_endings(world, terminators, end):
    """Users ask for cards, and meanwhile each terminator comes to an end, again and again, with orders on their way."""
    world.sandbox.fault("create", "delay", delay_ms=100)
    world.sandbox.fault("link", "delay", delay_ms=30)
    users = ["user-%d" % i for i in range(120)]
    posting = threading.Thread(target=lambda: [world.accept(user) for user in users], daemon=True)
    posting.start()
    for turn in range(6):
        terminator, call = terminators[turn % 2], ("create", "link")[turn % 2]
        seen = len(world.sandbox.calls(call))
        wait(lambda: len(world.sandbox.calls(call)) >= seen + 5 or
             world.sql("SELECT count(*) FROM outbox_events WHERE status = 'COMPLETED'") == str(len(users)),
             "orders are on their way")
        end(terminator)
        terminator.again()
    posting.join(harness.PATIENCE)
    world.sandbox.clear()
    world.settle(60)
    same(world.sql("SELECT status, count(*) FROM outbox_events GROUP BY status"), "COMPLETED|%d" % len(users), "events")
    same(sorted(card["user_id"] for card in world.sandbox.cards()), sorted(users), "cards")


def killed(world, http2):
    terminators = up_behind_tls(world, http2, workers=2)
    load_with_endings(world, terminators, lambda terminator: terminator.kill())
    true(int(world.sql("SELECT count(*) FROM outbox_attempts WHERE unknown")) > 0,
         "some orders were on their way when the issuer's died")
    true(max(card["sends"] for card in world.sandbox.cards()) > 1, "some were sent again")


@test(**OUTAGES)
def a_terminator_that_is_killed_with_orders_on_their_way_loses_nothing_and_makes_no_second_card(world):
    killed(world, http2=False)


@test(**OUTAGES)
def a_terminator_of_http2_that_is_killed_with_orders_on_their_way_loses_nothing_and_makes_no_second_card(world):
    killed(world, http2=True)


@test(**OUTAGES)
def a_terminator_of_http2_that_leaves_in_good_order_loses_nothing_and_makes_no_second_card(world):
    """It refuses new orders and answers those that it has; libcurl sends the refused ones elsewhere by itself."""
    terminators = up_behind_tls(world, http2=True, workers=2)
    load_with_endings(world, terminators, lambda terminator: same(terminator.stop(), 0, "exit status"))


@test(issuer__max_concurrency="64", worker__max_in_flight="128")
def over_http2_many_calls_share_a_connection(world):
    issuer, core = up_behind_tls(world, http2=True)
    world.sandbox.fault("create", "delay", delay_ms=300)
    for i in range(60):
        world.accept("user-%d" % i)
    world.settle()
    for terminator in (issuer, core):
        true(len(terminator.lines("connection")) <= 3, "%s: connections %r" % (terminator.name,
                                                                              terminator.lines("connection")))
    true(max(line["at_once"] for line in issuer.lines("request")) >= 20, "requests at once on one connection")
    same([card["sends"] for card in world.sandbox.cards()], [1] * 60, "sends")


def answers_get_lost(world, http2):
    """The issuer makes the card and its answer never arrives: the attempts are used up, and the look-up finds it. A
    refusal after a lost answer is looked up as well."""
    up_behind_tls(world, http2)
    world.sandbox.fault("create", "create_then_drop", user="always")
    world.sandbox.fault("create", "create_then_hang", user="refused", count=1)
    world.sandbox.fault("create", "status", user="refused", status=422, code="bin_closed")
    world.sandbox.fault("create", "drop", user="never")
    requests = {user: world.accept(user) for user in ("always", "refused", "never")}
    with world.others():
        world.wait_final(requests.values())
    world.settle()
    same({user: world.status(request) for user, request in requests.items()},
         {"always": "COMPLETED", "refused": "COMPLETED", "never": "FAILED"}, "statuses")
    for user, request in requests.items():
        calls = [call["call"] for call in world.sandbox.calls(reference=request)]
        # The last attempt is repeated until others are seen to fare better, and looks each time.
        true(calls.count("lookup") >= 1 if user == "never" else calls.count("lookup") == 1, "look-ups for " + user)
    same([len(world.sandbox.cards(user=user)) for user in requests], [1, 1, 0], "cards")


@test(retry__max_attempts="3")
def over_https_an_unknown_outcome_is_looked_up(world):
    answers_get_lost(world, http2=False)


@test(retry__max_attempts="3")
def over_http2_an_unknown_outcome_is_looked_up(world):
    answers_get_lost(world, http2=True)


@test(breaker__failures="3", breaker__probe_interval="20ms")
def an_issuer_that_cannot_prove_who_it_is_is_sent_nothing(world):
    world.start_sandbox()
    authority, other = make_authority(world), make_authority(world, "other")
    issuers = {name: Terminator(world, name, world.sandbox.issuer, certificate, False).wait_listening()
               for name, certificate in (("good", make_certificate(world, authority)),
                                         ("elsewhere", make_certificate(world, authority, "elsewhere",
                                                                        "DNS:issuer.example")))}
    world.start_api()
    request = world.accept("alice")
    for what, own in (("the system does not know the authority", {"issuer__url": issuers["good"].url}),
                      ("nor another one", {"issuer__url": issuers["good"].url, "tls__ca_file": other}),
                      ("the name is another", {"issuer__url": issuers["elsewhere"].url, "tls__ca_file": authority})):
        worker = world.start_worker(**own)
        wait(lambda: worker.metric('issuing_deferrals_total{reason="issuer_unreachable"}') >= 3, "probes: " + what)
        same(worker.stop(), 0, "exit status")
        event = world.event(request)
        same((event["status"], event["first_sent_at"]), ("PENDING", None), what)
        true("issuer_unreachable: SSL" in event["last_error"], event["last_error"])
        same(world.sandbox.calls("create"), [], "creates: " + what)
    worker = world.start_worker(issuer__url=issuers["good"].url, tls__ca_file=authority)
    world.wait_status(request, "COMPLETED")
    same([card["sends"] for card in world.sandbox.cards()], [1], "sends")


@test
def a_file_of_authorities_that_is_none_is_told_at_the_start(world):
    world.start_sandbox()
    empty, key = world.dir / "empty.pem", make_authority(world).with_suffix(".key")
    empty.write_text("")
    for path, why in ((world.dir / "missing.pem", "No such file"), (world.dir, "not a regular file"),
                      (empty, "no certificate"), (key, "no certificate")):
        worker = world.start_worker(wait_ready=False, tls__ca_file=path)
        worker.expected_dead = True
        same(worker.ended(harness.PATIENCE), 78, "exit status with %s" % path)
        true("tls.ca_file" in worker.text() and why in worker.text(), worker.text())


@test(**OUTAGES)
def sighup_changes_whom_tls_trusts(world):
    world.start_sandbox()
    authority, other = make_authority(world), make_authority(world, "other")
    trusted = world.dir / "trusted.pem"
    trusted.write_bytes(other.read_bytes())
    issuer = Terminator(world, "tls-issuer", world.sandbox.issuer, make_certificate(world, authority),
                        True).wait_listening()
    world.start_api()
    worker = world.start_worker(issuer__url=issuer.url, tls__ca_file=trusted)
    request = world.accept("alice")
    wait(lambda: worker.metric('issuing_breaker_state{target="issuer"}') == 2, "the issuer is not trusted")
    trusted.write_bytes(authority.read_bytes())
    same(errors(hang_up(worker)), [], "errors")
    world.wait_status(request, "COMPLETED")
    for broken in (b"", authority.read_bytes()[:200]):
        trusted.write_bytes(broken)
        told = errors(hang_up(worker))
        true(len(told) == 1 and told[0].startswith("tls.ca_file: "), "told: %r" % told)
        issuer.kill()  # so that the next call needs a connection, and a handshake
        issuer.again()
        world.issue("user-%d" % len(broken))
