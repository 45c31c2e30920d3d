"""The peers over https with an authority of their own, through a terminator of TLS as load balancers are. A terminator
dies with orders on their way: nothing is lost and nothing is made twice. And without a proof of who it is, a peer is
sent nothing."""
import datetime
import json
import os
import pathlib
import sys
import threading

import client
import harness
from daemons import errors, hang_up, write_secret
from harness import assert_equal, assert_true, core, Program, Skipped, slow, test, wait_until

HERE = pathlib.Path(__file__).resolve().parent
OUTAGES = {"breaker__failures": "5", "retry__base": "20ms"}


def openssl(*words):
    done = harness.run(["openssl", *words])
    assert_equal(done.returncode, 0, "openssl %s: %s" % (words[0], done.stderr))


def make_key(folder, name, subject):
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", subject, "-keyout",
            folder / (name + ".key"), "-out", folder / (name + ".csr"))


def make_authority(world, name="authority", days=1):
    """Returns the path of its certificate; the key is beside it."""
    make_key(world.dir, name, "/CN=test authority")
    certificate, extensions = world.dir / (name + ".pem"), world.dir / (name + ".ext")
    extensions.write_text("basicConstraints = critical, CA:TRUE\nkeyUsage = critical, keyCertSign, cRLSign\n"
                          "subjectKeyIdentifier = hash\n")
    openssl("x509", "-req", "-days", str(days), "-in", world.dir / (name + ".csr"), "-signkey", world.dir / (name + ".key"),
            "-extfile", extensions, "-out", certificate)
    return certificate


def make_certificate(world, authority, name="peer", names="IP:127.0.0.1", subject="/CN=peer", days=1):
    make_key(world.dir, name, subject)
    certificate, extensions = world.dir / (name + ".pem"), world.dir / (name + ".ext")
    extensions.write_text("basicConstraints = critical, CA:FALSE\nkeyUsage = critical, digitalSignature\n"
                          "subjectKeyIdentifier = hash\nauthorityKeyIdentifier = keyid\n" +
                          ("subjectAltName = %s\n" % names if names else ""))
    openssl("x509", "-req", "-days", str(days), "-in", world.dir / (name + ".csr"), "-CA", authority, "-CAkey",
            authority.with_suffix(".key"), "-CAcreateserial", "-extfile", extensions, "-out", certificate)
    return certificate


class Terminator(Program):
    is_peer = True

    def __init__(self, world, name, to, certificate, client_authority=None, tls_1_2=False):
        self.port = harness.free_port()
        super().__init__(name, [sys.executable, HERE / "terminator.py", "--listen", self.port, "--to", to,
                                "--certificate", certificate, "--key", certificate.with_suffix(".key"),
                                *(["--tls-1-2"] if tls_1_2 else []),
                                *(["--client-authority", client_authority] if client_authority else [])],
                         world.dir / (name + ".log"))
        world.programs.append(self)

    def lines(self, member):
        return [line for line in (json.loads(text) for text in self.text().splitlines() if text.startswith("{"))
                if member in line]

    def wait_listening(self, times=1):
        def listens():
            assert_true(self.alive(), "%s ended: %s" % (self.name, self.text()[-500:]))
            return len(self.lines("listening")) >= times
        wait_until(listens, self.name + " listens")
        return self

    def again(self):
        times = len(self.lines("listening"))
        return self.start() and self.wait_listening(times + 1)

    @property
    def url(self):
        return "https://127.0.0.1:%d" % self.port


def up_behind_tls(world, workers=1):
    """The usual set, the worker's calls through terminators. Returns these: the issuer's and core-api's."""
    world.start_sandbox()
    authority = make_authority(world)
    certificate = make_certificate(world, authority)
    terminators = [Terminator(world, name, to, certificate).wait_listening()
                   for name, to in (("tls-issuer", world.sandbox.issuer), ("tls-core", world.sandbox.core))]
    world.settings.update({"issuer.url": terminators[0].url, "core.url": terminators[1].url,
                           "tls.ca_file": authority})
    world.start_api()
    for _ in range(workers):
        world.start_worker()
    return terminators


@slow
@test
def cards_are_issued_over_https_with_an_own_authority(world):
    terminators = up_behind_tls(world)
    port = world.apis()[0].port
    taps = client.burst([(port, world.post_bytes("user-%d" % (i % 20), "k")) for i in range(60)])
    assert_equal({answer.status for answer in taps}, {202}, "three taps of each user")
    assert_equal(len({answer.json()["id"] for answer in taps}), 20, "requests")
    world.settle()
    assert_equal(world.sql("SELECT count(*) FROM outbox_events WHERE status = 'COMPLETED'"), "20", "completed")
    assert_equal([card["sends"] for card in world.sandbox.cards()], [1] * 20, "sends")
    assert_equal(world.sql("SELECT count(*), max(retry_count) FROM outbox_events"), "20|1", "attempts")
    for terminator in terminators:
        assert_equal({(line["protocol"], line["version"]) for line in terminator.lines("connection")},
                     {("http/1.1", "TLSv1.3")}, terminator.name)


@test
def operators_see_the_connections_handshakes_and_certificates_of_a_peer(world):
    """Story: the issuer's load balancer closed each connection after one answer, and nobody saw why the CPU had
    doubled; its certificate, which ended on a Sunday, was seen by all of them."""
    up_behind_tls(world)
    worker = world.workers()[0]
    for i in range(5):
        world.issue("user-%d" % i)
    for target in ("issuer", "core"):
        assert_true(worker.metric('issuing_tls_handshakes_total{target="%s",kind="full"}' % target) >= 1, "handshakes")
        assert_true(worker.metric('issuing_peer_connections{target="%s",state="open"}' % target) >= 1, "open")
        assert_true(worker.metric('issuing_peer_connections{target="%s",state="idle"}' % target) >= 1, "idle")
        assert_true(0 < worker.metric('issuing_peer_certificate_days{target="%s"}' % target) <= 1, "days")
    wait_until(lambda: "a certificate of issuer ends at" in world.ctl("doctor").stdout, "doctor")


def found_in_memory(program, texts):
    """Which of the texts are anywhere that the process can write to. For root: our programs let nobody else look."""
    found = set()
    with open("/proc/%d/mem" % program.pid, "rb", 0) as memory:
        for line in pathlib.Path("/proc/%d/maps" % program.pid).read_text().splitlines():
            start, end = (int(part, 16) for part in line.split()[0].split("-"))
            if line.split()[1].startswith("rw"):
                memory.seek(start)
                bytes_there = memory.read(end - start)
                found |= {text for text in texts if text.encode() in bytes_there}
    return found


@test
def no_number_of_a_finished_call_is_in_the_memory_of_a_program(world):
    """Story: OpenSSL freed what it had decrypted without wiping it, so numbers stayed in the worker for hours."""
    if os.geteuid() != 0:
        raise Skipped("only root may read the memory of the programs")
    up_behind_tls(world)
    clear = {"issuer.url": "http://127.0.0.1:%d" % world.sandbox.issuer,
             "core.url": "http://127.0.0.1:%d" % world.sandbox.core}
    for scheme, settings in (("https", {}), ("http", clear)):
        if settings:
            world.workers()[-1].stop()
            world.settings.update(settings)
            world.start_worker()
        users = ["%s-%d" % (scheme, i) for i in range(40)]
        world.sandbox.fault("create", "create_then_drop", user=users[0], count=1)
        world.sandbox.fault("create", "create_then_hang", user=users[1], count=1)
        world.sandbox.fault("link", "status", user=users[2], status=500, count=2)
        for user in users:
            world.accept(user)
        world.settle()
        cards = [world.get(user, "/v1/cards").json()["items"][0]["id"] for user in users]
        numbers = {world.get(user, "/v1/cards/%s/number" % card).json()["number"] for user, card in zip(users, cards)}
        assert_equal(len(numbers), len(users), "numbers")
        for program in (world.workers()[-1], world.apis()[0]):
            assert_equal(found_in_memory(program, numbers), set(), "numbers in %s, %s" % (program.name, scheme))


def load_with_endings(world, terminators, end):
    """Users request cards, and meanwhile each terminator ends, repeatedly, with creates on their way."""
    world.sandbox.fault("create", "delay", delay_ms=100)
    world.sandbox.fault("link", "delay", delay_ms=30)
    users = ["user-%d" % i for i in range(120)]
    posting = threading.Thread(target=lambda: [world.accept(user) for user in users], daemon=True)
    posting.start()
    for turn in range(6):
        terminator, call = terminators[turn % 2], ("create", "link")[turn % 2]
        seen = len(world.sandbox.calls(call))
        wait_until(lambda: len(world.sandbox.calls(call)) >= seen + 5 or
                   world.sql("SELECT count(*) FROM outbox_events WHERE status = 'COMPLETED'") == str(len(users)),
                   "orders are on their way")
        end(terminator)
        terminator.again()
    posting.join(harness.STUCK_AFTER_S)
    world.sandbox.clear()
    world.settle(60)
    assert_equal(world.sql("SELECT status, count(*) FROM outbox_events GROUP BY status"), "COMPLETED|%d" % len(users),
                 "events")
    assert_equal(sorted(card["user_id"] for card in world.sandbox.cards()), sorted(users), "cards")


@slow
@test(**OUTAGES)
def a_terminator_that_is_killed_with_orders_on_their_way_loses_nothing_and_makes_no_second_card(world):
    terminators = up_behind_tls(world, workers=2)
    load_with_endings(world, terminators, lambda terminator: terminator.kill())
    assert_true(int(world.sql("SELECT count(*) FROM outbox_attempts WHERE unknown")) > 0,
                "some orders were on their way when the issuer's died")
    assert_true(max(card["sends"] for card in world.sandbox.cards()) > 1, "some were sent again")


@slow
@test(retry__max_attempts="3")
def over_https_an_unknown_outcome_is_looked_up(world):
    """The issuer makes the card and its answer never arrives: the attempts are used up, and the look-up finds it. A
    refusal after a lost answer is looked up as well."""
    up_behind_tls(world)
    world.sandbox.fault("create", "create_then_drop", user="always")
    world.sandbox.fault("create", "create_then_hang", user="refused", count=1)
    world.sandbox.fault("create", "status", user="refused", status=422, code="bin_closed")
    world.sandbox.fault("create", "drop", user="never")
    requests = {user: world.accept(user) for user in ("always", "refused", "never")}
    with world.others():
        world.wait_final(requests.values())
    world.settle()
    assert_equal({user: world.status(request) for user, request in requests.items()},
                 {"always": "COMPLETED", "refused": "COMPLETED", "never": "FAILED"}, "statuses")
    for user, request in requests.items():
        calls = [call["call"] for call in world.sandbox.calls(reference=request)]
        # The last attempt is repeated until others are seen to fare better, and looks each time.
        assert_true(calls.count("lookup") >= 1 if user == "never" else calls.count("lookup") == 1,
                    "look-ups for " + user)
    assert_equal([len(world.sandbox.cards(user=user)) for user in requests], [1, 1, 0], "cards")


@core
@slow
@test(breaker__failures="3", breaker__probe_interval="20ms")
def an_issuer_that_cannot_prove_who_it_is_is_sent_nothing(world):
    world.start_sandbox()
    authority, other = make_authority(world), make_authority(world, "other")
    issuers = {name: Terminator(world, name, world.sandbox.issuer, certificate).wait_listening()
               for name, certificate in (("good", make_certificate(world, authority)),
                                         ("elsewhere", make_certificate(world, authority, "elsewhere",
                                                                        "DNS:issuer.example")))}
    world.start_api()
    request = world.accept("alice")
    issuers["nameless"] = Terminator(world, "nameless", world.sandbox.issuer,
                                     make_certificate(world, authority, "nameless", None,
                                                      "/CN=localhost")).wait_listening()
    for what, own in (("the system does not know the authority", {"issuer__url": issuers["good"].url}),
                      ("nor another one", {"issuer__url": issuers["good"].url, "tls__ca_file": other}),
                      ("the name is another", {"issuer__url": issuers["elsewhere"].url, "tls__ca_file": authority}),
                      ("the name is its common name only",
                       {"issuer__url": issuers["nameless"].url.replace("127.0.0.1", "localhost"),
                        "tls__ca_file": authority})):
        worker = world.start_worker(**own)
        wait_until(lambda: worker.metric('issuing_deferrals_total{reason="issuer_unreachable"}') >= 3,
                   "probes: " + what)
        wait_until(lambda: "issuer_unreachable: TLS: " in (world.event(request)["last_error"] or ""), "error: " + what)
        assert_equal(worker.stop(), 0, "exit status")
        event = world.event(request)
        assert_equal((event["status"], event["first_sent_at"]), ("PENDING", None), what)
        assert_equal(world.sandbox.calls("create"), [], "creates: " + what)
    worker = world.start_worker(issuer__url=issuers["good"].url, tls__ca_file=authority)
    world.wait_status(request, "COMPLETED")
    assert_equal([card["sends"] for card in world.sandbox.cards()], [1], "sends")


@slow
@test(**OUTAGES)
def an_issuer_whose_certificate_has_expired_is_sent_nothing_until_it_has_another(world):
    world.start_sandbox()
    authority, clock = make_authority(world, days=30), world.clock("worker")
    issuer, core = (Terminator(world, "tls-" + name, to, make_certificate(world, authority, name, days=days))
                    .wait_listening() for name, to, days in (("issuer", world.sandbox.issuer, 1),
                                                             ("core", world.sandbox.core, 20)))
    world.settings.update({"issuer.url": issuer.url, "core.url": core.url, "tls.ca_file": authority})
    world.start_api()
    worker = world.start_worker(clock=clock)
    world.issue("alice")
    clock.step(2 * 86400)
    issuer.kill()  # the next call needs a connection, and its handshake cannot resume the session
    issuer.again()
    request = world.accept("bob")
    event = wait_until(lambda: (row := world.event(request))["last_error"] and row["status"] == "PENDING" and row,
                       "an attempt of bob's is over")
    assert_equal(event["first_sent_at"], None, "not sent")
    assert_true("TLS: " in event["last_error"] and "expired" in event["last_error"], event["last_error"])
    assert_equal(world.sandbox.calls("create", reference=request), [], "creates")
    issuer.kill()
    make_certificate(world, authority, "issuer", days=9)
    issuer.again()
    world.wait_status(request, "COMPLETED")
    days = worker.metric('issuing_peer_certificate_days{target="issuer"}')
    assert_true(6 <= days <= 7, "days of the new certificate, two of nine are gone: %s" % days)


def make_crl(world, authority, revoked, ends_days=1):
    """Of this authority, with these certificates; PEM. ends_days: when its next update is due."""
    folder = world.dir
    rows = ["R\t491231235959Z\t200101000000Z\t%s\tunknown\t/CN=peer\n" % serial_of(certificate)
            for certificate in revoked]
    (folder / "crl.index").write_text("".join(rows))
    (folder / "crl.cnf").write_text("[ca]\ndefault_ca = own\n[own]\ndatabase = %s\ndefault_md = sha256\n"
                                    % (folder / "crl.index"))
    now = datetime.datetime.now(datetime.timezone.utc)
    since, end = ((now + datetime.timedelta(days=days)).strftime("%Y%m%d%H%M%SZ") for days in (-9, ends_days))
    openssl("ca", "-gencrl", "-config", folder / "crl.cnf", "-cert", authority, "-keyfile",
            authority.with_suffix(".key"), "-crl_lastupdate", since, "-crl_nextupdate", end, "-out", folder / "crl.pem")
    return (folder / "crl.pem").read_bytes()


def serial_of(certificate):
    done = harness.run(["openssl", "x509", "-noout", "-serial", "-in", certificate])
    return done.stdout.strip().split("=")[1]


@test(**OUTAGES)
def an_issuer_whose_certificate_is_revoked_is_sent_nothing_until_it_has_another(world):
    world.start_sandbox()
    authority = make_authority(world)
    certificate = make_certificate(world, authority)
    trusted = world.dir / "trusted.pem"
    trusted.write_bytes(authority.read_bytes() + make_crl(world, authority, [certificate]))
    issuer = Terminator(world, "tls-issuer", world.sandbox.issuer, certificate).wait_listening()
    world.start_api()
    worker = world.start_worker(issuer__url=issuer.url, tls__ca_file=trusted)
    request = world.accept("alice")

    def refused_for(why):
        # Between two attempts: while a handshake is under way, the next one counts as sent.
        wait_until(lambda: why in ((row := world.event(request))["last_error"] or "") and
                   (row["status"], row["first_sent_at"]) == ("PENDING", None), why)
    refused_for("certificate revoked")
    trusted.write_bytes(authority.read_bytes() + make_crl(world, authority, [], -1))
    hang_up(worker)
    refused_for("CRL has expired")
    assert_true("the next update of a CRL in it is past" in worker.text(), "warned of at the reload")
    trusted.write_bytes(authority.read_bytes() + make_crl(world, authority, [certificate]))
    hang_up(worker)
    issuer.kill()
    make_certificate(world, authority)
    issuer.again()
    world.wait_status(request, "COMPLETED")
    assert_equal([card["sends"] for card in world.sandbox.cards()], [1], "sends")


@test
def an_invalid_file_of_authorities_is_reported_at_the_start(world):
    world.start_sandbox()
    empty, key = world.dir / "empty.pem", make_authority(world).with_suffix(".key")
    empty.write_text("")
    for path, why in ((world.dir / "missing.pem", "No such file"), (world.dir, "not a regular file"),
                      (empty, "no certificate"), (key, "no certificate")):
        worker = world.start_worker(wait_ready=False, tls__ca_file=path)
        worker.expected_dead = True
        assert_equal(worker.ended(harness.STUCK_AFTER_S), 78, "exit status with %s" % path)
        assert_true("tls.ca_file" in worker.text() and why in worker.text(), worker.text())


@slow
@test(**OUTAGES)
def sighup_changes_whom_tls_trusts(world):
    world.start_sandbox()
    authority, other = make_authority(world), make_authority(world, "other")
    trusted = world.dir / "trusted.pem"
    trusted.write_bytes(other.read_bytes())
    issuer = Terminator(world, "tls-issuer", world.sandbox.issuer, make_certificate(world, authority)).wait_listening()
    world.start_api()
    worker = world.start_worker(issuer__url=issuer.url, tls__ca_file=trusted)
    request = world.accept("alice")
    wait_until(lambda: worker.metric('issuing_breaker_state{target="issuer"}') == 2, "the issuer is not trusted")
    trusted.write_bytes(authority.read_bytes())
    assert_equal(errors(hang_up(worker)), [], "errors")
    world.wait_status(request, "COMPLETED")
    for broken in (b"", authority.read_bytes()[:200]):
        trusted.write_bytes(broken)
        found = errors(hang_up(worker))
        assert_true(len(found) == 1 and found[0].startswith("tls.ca_file: "), "reported: %r" % found)
        issuer.kill()  # so that the next call needs a connection, and a handshake
        issuer.again()
        world.issue("user-%d" % len(broken))


def make_pair(world, authority, name):
    """A certificate of ours and its key, as options want them; the key is 0600."""
    certificate = make_certificate(world, authority, name, None, "/CN=" + name)
    certificate.with_suffix(".key").chmod(0o600)
    return certificate, certificate.with_suffix(".key")


def up_with_issuer_that_requests_certificates(world, **how):
    """The issuer is behind a terminator that demands a certificate of `ours`. Returns ours and the terminator."""
    world.start_sandbox()
    authority, ours = make_authority(world), make_authority(world, "ours")
    issuer = Terminator(world, "tls-issuer", world.sandbox.issuer, make_certificate(world, authority), ours,
                        **how).wait_listening()
    world.settings.update({"issuer.url": issuer.url, "tls.ca_file": authority})
    world.start_api()
    return ours, issuer


def clients(terminator):
    return {line["client"] for line in terminator.lines("connection")}


@test
def peers_that_request_a_client_certificate_get_one_each(world):
    ours, issuer = up_with_issuer_that_requests_certificates(world)
    core = Terminator(world, "tls-core", world.sandbox.core, world.dir / "peer.pem", ours).wait_listening()
    pairs = {name: make_pair(world, ours, name) for name in ("to-issuer", "to-core")}
    worker = world.start_worker(
        core__url=core.url, issuer__client_cert_file=pairs["to-issuer"][0],
                                issuer__client_key_file=pairs["to-issuer"][1],
        core__client_cert_file=pairs["to-core"][0], core__client_key_file=pairs["to-core"][1])
    world.issue("alice")
    assert_equal([clients(issuer), clients(core)], [{"to-issuer"}, {"to-core"}], "who it was")
    assert_equal([card["sends"] for card in world.sandbox.cards()], [1], "sends")
    shown = harness.run([*worker.argv, "--show-config"]).stdout
    assert_true("issuer.client_key_file = %s" % pairs["to-issuer"][1] in shown, "the path is shown")
    secrets = [key.read_text().splitlines()[1] for _, key in pairs.values()]
    assert_true(not any(text in shown + worker.text() for text in ["PRIVATE", *secrets]), "no key is")


def refused_then_accepted(world, ours, unknown):
    """A worker without a certificate, one with another authority's, then the right one."""
    stranger = make_pair(world, make_authority(world, "other"), "stranger")
    request = world.accept("alice")
    for own in ({}, {"issuer__client_cert_file": stranger[0], "issuer__client_key_file": stranger[1]}):
        worker = world.start_worker(**own)
        reason = "issuer_no_answer" if unknown else "issuer_unreachable"
        wait_until(lambda: worker.metric('issuing_breaker_state{target="issuer"}') == 2, "the breaker opens")
        event = world.wait_status(request, "PENDING")
        assert_true(reason in event["last_error"] or "breaker" in event["last_error"], event["last_error"])
        assert_equal(world.sandbox.calls("create"), [], "creates")
        assert_equal(worker.stop(), 0, "exit status")
        event = world.event(request)
        assert_true(unknown == (event["first_sent_at"] is not None), "first_sent_at: %r" % event["first_sent_at"])
    pair = make_pair(world, ours, "to-issuer")
    world.start_worker(issuer__client_cert_file=pair[0], issuer__client_key_file=pair[1])
    world.wait_status(request, "COMPLETED")
    assert_equal([card["sends"] for card in world.sandbox.cards()], [1], "sends")


@slow
@test(breaker__failures="3", breaker__probe_interval="20ms", retry__max_attempts="1000")
def a_refusal_of_the_certificate_that_comes_with_the_handshake_is_not_sent(world):
    refused_then_accepted(world, up_with_issuer_that_requests_certificates(world, tls_1_2=True)[0], unknown=False)


@slow
@test(breaker__failures="3", breaker__probe_interval="20ms", retry__max_attempts="1000")
def a_refusal_of_the_certificate_that_comes_after_the_request_is_unknown(world):
    """With TLS 1.3 the request is on its way before the peer has looked at the certificate. Whether it was read is
    unknown: the event stays open, and the same key settles it."""
    refused_then_accepted(world, up_with_issuer_that_requests_certificates(world)[0], unknown=True)


@slow
@test
def sighup_changes_the_certificate_under_load(world):
    ours, issuer = up_with_issuer_that_requests_certificates(world)
    old, new = make_pair(world, ours, "old"), make_pair(world, ours, "new")
    shown = [write_secret(world.dir / name, path.read_text()) for name, path in zip(("shown.pem", "shown.key"), old)]
    worker = world.start_worker(issuer__client_cert_file=shown[0], issuer__client_key_file=shown[1])
    with world.others():
        wait_until(lambda: len(world.sandbox.cards()) >= 5, "cards are made")
        write_secret(shown[0], new[0].read_text())
        found = errors(hang_up(worker))
        assert_true(len(found) == 1 and found[0].startswith("issuer.client_cert_file, issuer.client_key_file: ") and
                    "does not belong" in found[0], "half of a pair: %r" % found)
        seen = len(world.sandbox.cards())
        wait_until(lambda: len(world.sandbox.cards()) >= seen + 5, "the old pair stays in force")
        assert_equal(clients(issuer), {"old"}, "who it was")
        write_secret(shown[1], new[1].read_text())
        assert_equal(errors(hang_up(worker)), [], "errors")
        wait_until(lambda: "new" in clients(issuer), "the new one is shown")
        seen = len(world.sandbox.cards())
        wait_until(lambda: len(world.sandbox.cards()) >= seen + 5, "cards are made")
        for broken in ("", "no key", old[1].read_text()):
            write_secret(shown[1], broken)
            assert_equal(len(errors(hang_up(worker))), 1, "errors with %r" % broken[:20])
    world.settle()
    assert_equal({card["sends"] for card in world.sandbox.cards()}, {1}, "sends")
    assert_equal(world.sql("SELECT status FROM outbox_events GROUP BY status"), "COMPLETED", "events")
    assert_equal(clients(issuer), {"old", "new"}, "who it was")
    assert_true("PRIVATE" not in worker.text(), "no key in the log")


@test
def a_certificate_that_does_not_match_its_key_is_reported_at_the_start(world):
    ours, _ = up_with_issuer_that_requests_certificates(world)
    pair, other = make_pair(world, ours, "pair"), make_pair(world, ours, "another")
    open_key, locked = world.dir / "open.key", world.dir / "locked.key"
    open_key.write_bytes(pair[1].read_bytes())
    open_key.chmod(0o644)
    openssl("pkcs8", "-topk8", "-in", pair[1], "-out", locked, "-passout", "pass:sesame")
    locked.chmod(0o600)
    for section in ("issuer", "core"):
        for cert, key, why in ((pair[0], other[1], "does not belong"), (pair[0], open_key, "mode 0644"),
                               (pair[0], locked, "passphrase"), (pair[0], world.dir / "none", "No such file"),
                               (world.dir / "none", pair[1], "No such file"), (pair[1], pair[1], "no certificate"),
                               (pair[0], None, "go together"), (None, pair[1], "go together")):
            worker = world.start_worker(wait_ready=False, **{section + "__client_cert_file": cert,
                                                             section + "__client_key_file": key})
            worker.expected_dead = True
            assert_equal(worker.ended(harness.STUCK_AFTER_S), 78, "exit status with %s and %s" % (cert, key))
            assert_true(section + ".client_cert_file" in worker.text() and why in worker.text(), worker.text())


@test
def a_certificate_that_has_expired_is_a_warning(world):
    ours, _ = up_with_issuer_that_requests_certificates(world)
    make_certificate(world, ours, "past", None, "/CN=past", days=0)
    (world.dir / "past.key").chmod(0o600)
    worker = world.start_worker(issuer__client_cert_file=world.dir / "past.pem",
                                issuer__client_key_file=world.dir / "past.key")
    assert_true("the certificate has expired" in worker.text(), worker.text())
