"""What a person expects of the installed units, one function a story, in this order, in one machine."""
import json
import pathlib
import re

import installing
from installing import answers, CONTROL, HOME, ready, sql
from machine import Failed, SOURCE, STUCK_AFTER_S
from page import Page

STORIES = []
RUN_PAGE = Page(pathlib.Path(__file__).parents[2] / "docs" / "run.md")
RESTARTS = 10
RATE = 40
API, WORKERS = "issuing-api", ("issuing-worker@1", "issuing-worker@2")
PROGRAMS = "Several programs on one host"  # the section of docs/install.md, and what it names and sets:
BRAND, BRAND_ADMINS, BRAND_UNITS = ("brand", 8180), (8181, 8191), ("issuing-api@brand", "issuing-worker-of@brand")
BRAND_PEERS = 8170  # of its issuer; of its core-api and of the control of both the next ones
OPEN = "SELECT count(*) FROM issuing.outbox_events WHERE status IN ('PENDING', 'PROCESSING')"


def story(function):
    STORIES.append(function)
    return function


def expect(condition, what):
    if not condition:
        raise Failed(what)


def expect_equal(found, wanted, what):
    expect(found == wanted, "%s: %r, expected %r" % (what, found, wanted))


# ---- clients and peers -----------------------------------------------------------------------------------------------

class Load:
    """40 requests a second, while the block runs. `result` is there after it."""

    def __init__(self, machine):
        self.machine = machine

    def __enter__(self):
        self.process = self.machine.start("python3", "-B", SOURCE + "/tests/systemd/load.py", "8080",
                                          "/etc/credstore/issuing.hs256_secret", str(RATE))
        expect_equal(self.process.stdout.readline().strip(), "started", "the load")
        return self

    def __exit__(self, kind, *_):
        if kind:
            self.process.kill()
        out, err = self.process.communicate(timeout=2 * STUCK_AFTER_S)
        if not kind:
            expect(self.process.returncode == 0, "the load: " + err[-500:])
            self.result = json.loads(out)

    def check_nothing_lost(self):
        result = self.result
        expect(result["sent"] > RATE / 2, "hardly any load: %(sent)d" % result)
        expect_equal(result["lost"], [], "requests without an answer")
        expect_equal(len(set(result["ids"])), result["sent"], "different requests that were accepted")
        settle(self.machine)
        ids = "', '".join(result["ids"])
        expect_equal(sql(self.machine, "SELECT count(*) FROM issuing.outbox_events WHERE status = 'COMPLETED'"
                                       " AND id IN ('%s')" % ids), str(result["sent"]), "requests with a card")
        check_ledger(self.machine)


def settle(machine):
    machine.wait(lambda: sql(machine, OPEN) == "0", "every event is final")


def control(machine, path, body=None, port=CONTROL):
    post = "" if body is None else " -H 'Content-Type: application/json' --data-binary @-"
    text = machine.out("curl -sS -f%s http://127.0.0.1:%d%s" % (post, port, path),
                       stdin="" if body is None else json.dumps(body))
    return json.loads(text) if text else None


def check_ledger(machine):
    """The issuer has made as many cards as our database has, and not one reference twice."""
    cards = control(machine, "/ledger")["cards"]
    references = [card["reference"] for card in cards]
    expect_equal(len(references), len(set(references)), "cards of the issuer and their references")
    expect_equal(str(len(cards)), sql(machine, "SELECT count(*) FROM issuing.cards"), "cards of the issuer, and ours")


def post(machine, user, program="issuing", port=8080):
    """The status and the body of one card request; program: whose secret signs the token."""
    text = machine.out("%s token --user %s --secret-file /etc/credstore/%s.hs256_secret >/root/token-%s;"
                       " curl -sS -m %d -w '\\n%%{http_code}' -H \"Authorization: Bearer $(cat /root/token-%s)\""
                       " -H 'Idempotency-Key: k' --json '{\"kind\": \"new\"}'"
                       " http://127.0.0.1:%d/v1/card-requests"
                       % (installing.SANDBOX, user, program, user, STUCK_AFTER_S, user, port))
    body, status = text.rsplit("\n", 1)
    return int(status), json.loads(body)


def issue(machine, user, program="issuing", port=8080):
    """A card request that is accepted, and its card."""
    status, body = post(machine, user, program, port)
    expect(status in (201, 202), "%d %r" % (status, body))
    machine.wait(lambda: sql(machine, "SELECT status FROM issuing.outbox_events WHERE id = '%s'" % body["id"], program)
                 == "COMPLETED", "the card of " + user)


def main_pid(machine, unit):
    return int(machine.show(unit, "MainPID"))


def wait_ready(machine, unit):
    port = 8081 if unit == API else 8090 + int(unit[-1])
    machine.wait(lambda: ready(machine, port), unit + " is ready")


def status_text(machine, unit):
    return machine.show(unit, "StatusText")


def now(machine):
    """A place in the journal. (With a filter, --after-cursor of systemd 252 leaves out the first line behind it.)"""
    return int(machine.out("date +%s%6N"))


def messages(machine, unit, since, priority="debug"):
    machine.run("journalctl --sync")
    return [row["MESSAGE"] for row in machine.journal("-u", unit, "-p", priority)
            if int(row["__REALTIME_TIMESTAMP"]) >= since]


def drop_in(machine, unit, name, *lines):
    machine.write("/run/systemd/system/%s.d/%s.conf" % (unit, name), "\n".join(lines) + "\n")
    machine.run("systemctl daemon-reload")


def no_drop_in(machine, unit, name):
    machine.run("rm -f /run/systemd/system/%s.d/%s.conf; systemctl daemon-reload" % (unit, name))


def tidy_up(machine):
    """After a story that failed: the next one finds the machine as after the install."""
    machine.run("systemctl stop squatter; systemctl unmask issuing-api.socket; rm -rf /run/systemd/system/issuing-*.d;"
                " systemctl daemon-reload; systemctl start postgresql; systemctl reset-failed; cd /root &&"
                " if [ -e issuing.conf ]; then cp -p issuing.conf /etc/issuing/; fi;"
                " if [ -e issuing.issuer_credential ]; then mv issuing.issuer_credential /etc/credstore/; fi",
                check=False)
    control(machine, "/down", {"target": "issuer", "down": False})
    control(machine, "/faults/clear", {})
    machine.run("systemctl stop issuing.target; systemctl start issuing.target %s %s" % WORKERS)
    for unit in (API, *WORKERS):
        wait_ready(machine, unit)


# ---- the units -------------------------------------------------------------------------------------------------------

@story
def the_units_are_in_order_and_confined(machine):
    units = ["issuing-api.service", "issuing-api.socket", "issuing-worker@1.service", "issuing-migrate.service",
             "issuing.target"]
    folder = machine.out("dirname $(systemctl show -P FragmentPath issuing-api.service)")
    done = machine.run("cd %s && systemd-analyze verify --man=no %s" % (folder, " ".join(units)), check=False)
    expect(done.returncode == 0 and not done.stderr.strip(), "systemd-analyze verify: " + done.stderr)
    for unit in units:
        if unit.endswith(".service"):
            done = machine.run("systemd-analyze security --threshold=20 --no-pager " + unit, check=False)
            expect(done.returncode == 0, "%s: %s" % (unit, done.stdout[-300:]))
    expect_equal(machine.out("systemctl --failed --no-legend --plain"), "", "failed units")


@story
def the_number_of_a_worker_is_added_to_its_port(machine):
    machine.run("systemctl start issuing-worker@12")
    machine.wait(lambda: answers(machine, 8102) == 200, "issuing-worker@12 is ready")
    machine.run("systemctl stop issuing-worker@12")


@story
def no_line_of_a_good_start_is_a_warning(machine):
    for unit in (API, WORKERS[0], "issuing-migrate"):
        rows = machine.journal("-u", unit, "-p", "warning")
        expect_equal([row["MESSAGE"] for row in rows], [], "warnings of " + unit)


@story
def the_journal_finds_the_lines_of_an_event_and_of_a_cause(machine):
    control(machine, "/down", {"target": "issuer", "down": True})
    _, request = post(machine, "journal")
    event = request["id"]
    found = lambda: machine.journal("EVENT_ID=" + event)  # noqa: E731
    machine.wait(found, "a line of the event")
    control(machine, "/down", {"target": "issuer", "down": False})
    settle(machine)
    machine.run("journalctl --sync")
    rows = found()
    expect({row["_SYSTEMD_UNIT"] for row in rows} <= {"%s.service" % unit for unit in WORKERS}, "units: %s" % rows)
    expect(all(event in row["MESSAGE"] for row in rows), "messages: %s" % rows)
    cause = rows[0]["REASON"]
    expect(event in [row.get("EVENT_ID") for row in machine.journal("REASON=" + cause, "TARGET=issuer")],
           "%s by its cause, %s" % (event, cause))


@story
def systemctl_status_shows_counts(machine):
    machine.wait(lambda: re.fullmatch(r"\d+ connections?, [\d.]+ requests/s, \d+ waiting for the database",
                                      status_text(machine, API)), "counts of the api: " + status_text(machine, API))
    machine.wait(lambda: status_text(machine, WORKERS[0]) == "0 in flight, 0 pending",
                 "counts of the worker: " + status_text(machine, WORKERS[0]))
    control(machine, "/down", {"target": "issuer", "down": True})
    for number in range(6):
        post(machine, "away-%d" % number)
    machine.wait(lambda: re.search(r"[1-9] pending \(oldest [^)]+\), issuer open since \d\d:\d\d$",
                                   status_text(machine, WORKERS[0])), "the open breaker in the status")
    control(machine, "/down", {"target": "issuer", "down": False})
    settle(machine)


# ---- restarts --------------------------------------------------------------------------------------------------------

@story
def ten_restarts_of_the_api_under_load_refuse_nobody(machine):
    before = main_pid(machine, API)
    with Load(machine) as load:
        for _ in range(RESTARTS):
            machine.run("sleep 0.2; systemctl restart " + API)
    expect(main_pid(machine, API) != before, "it was restarted")
    trouble = {name: load.result[name] for name in ("refused", "broken", "unavailable")}
    expect_equal(trouble, {"refused": 0, "broken": 0, "unavailable": 0},
                 "trouble of the clients (%(seen)s)" % load.result)
    load.check_nothing_lost()


@story
def restarts_and_kills_under_load_lose_nothing(machine):
    machine.run("systemctl start " + WORKERS[1])
    wait_ready(machine, WORKERS[1])
    with Load(machine) as load:
        for command in ("restart issuing-worker@1", "kill -s KILL issuing-worker@2", "kill -s KILL issuing-api",
                        "restart issuing.target", "restart issuing-api"):
            machine.run("sleep 0.5; systemctl " + command)
        for unit in (API, *WORKERS):
            wait_ready(machine, unit)
    expect_equal(load.result["refused"], 0, "connections that were refused")
    load.check_nothing_lost()
    for unit in (API, *WORKERS):
        expect_equal(machine.show(unit, "ActiveState", "Result"), ["active", "success"], unit)


@story
def what_ends_a_daemon_by_itself_brings_it_back(machine):
    """Also a clean end: SIGTERM of somebody who meant something else."""
    for unit in (API, WORKERS[0]):
        before = main_pid(machine, unit)
        machine.run("kill -TERM %d" % before)
        machine.wait(lambda unit=unit, before=before: main_pid(machine, unit) not in (0, before),
                     unit + " is back")
        wait_ready(machine, unit)


@story
def a_stop_of_api_and_socket_is_a_stop_and_a_start_brings_both(machine):
    machine.run("systemctl stop issuing-api.socket " + API)
    expect_equal(answers(machine, 8080, "/openapi.json"), 0, "nobody listens")
    machine.run("systemctl start " + API)
    expect_equal(machine.show("issuing-api.socket", "ActiveState"), "active", "the socket")
    wait_ready(machine, API)
    machine.run("systemctl stop issuing.target")
    for unit in ("issuing-api.socket", API, *WORKERS):  # systemctl has waited for the target only
        machine.wait(lambda unit=unit: machine.show(unit, "ActiveState") == "inactive", unit + " stops with the target")
    machine.run("systemctl start issuing.target " + WORKERS[1])
    for unit in (API, *WORKERS):
        wait_ready(machine, unit)


@story
def without_its_socket_unit_the_api_listens_by_itself(machine):
    machine.run("systemctl mask --now issuing-api.socket && systemctl restart %s" % API)
    expect_equal(machine.show("issuing-api.socket", "ActiveState"), "inactive", "the socket")
    wait_ready(machine, API)
    issue(machine, "own-socket")
    machine.run("systemctl stop %s && systemctl unmask issuing-api.socket && systemctl start %s" % (API, API))
    wait_ready(machine, API)
    expect_equal(machine.show("issuing-api.socket", "ActiveState"), "active", "the socket")


# ---- signals ---------------------------------------------------------------------------------------------------------

@story
def a_reload_reads_files_again_and_ends_nobody(machine):
    for unit in (API, *WORKERS):
        before, since = main_pid(machine, unit), now(machine)
        machine.run("systemctl reload " + unit)
        machine.wait(lambda unit=unit, since=since: any("were read again" in text
                                                        for text in messages(machine, unit, since)), unit + " has read")
        expect_equal(main_pid(machine, unit), before, "the process of " + unit)


@story
def a_worker_that_hangs_is_killed_and_its_events_are_taken_over(machine):
    """The watchdog; in a tenth of its time."""
    drop_in(machine, "issuing-worker@.service", "watchdog", "[Service]", "WatchdogSec=3")
    machine.run("systemctl restart " + WORKERS[0])
    wait_ready(machine, WORKERS[0])
    before = main_pid(machine, WORKERS[0])
    machine.run("kill -STOP %d" % before)
    machine.wait(lambda: main_pid(machine, WORKERS[0]) not in (0, before), "the watchdog has it restarted")
    wait_ready(machine, WORKERS[0])
    machine.wait(lambda: any("atchdog timeout" in row["MESSAGE"] for row in
                             machine.journal("UNIT=%s.service" % WORKERS[0], "-p", "err")), "systemd says why")
    no_drop_in(machine, "issuing-worker@.service", "watchdog")
    machine.run("systemctl restart " + WORKERS[0])
    wait_ready(machine, WORKERS[0])


@story
def a_drain_takes_as_long_as_a_call_may_whatever_the_unit_says(machine):
    """Calls that hang for issuer.timeout, 8 s here, and a unit that allows one second: systemd is told to wait."""
    machine.run("systemctl stop " + WORKERS[1])
    drop_in(machine, "issuing-worker@.service", "impatient", "[Service]", "TimeoutStopSec=1",
            "Environment=ISSUING_ISSUER_TIMEOUT=8s")
    machine.run("systemctl restart " + WORKERS[0])
    wait_ready(machine, WORKERS[0])
    control(machine, "/faults", {"target": "issuer", "call": "create", "fault": "hang"})
    for number in range(3):
        post(machine, "hang-%d" % number)
    since = now(machine)
    machine.wait(lambda: "issuing_in_flight 3" in machine.out("curl -s http://127.0.0.1:8091/metrics").splitlines(),
                 "three calls hang", every=0.05)
    machine.run("systemctl stop " + WORKERS[0])
    expect_equal(machine.show(WORKERS[0], "Result", "ExecMainStatus"), ["success", "0"], "how it ended")
    said = messages(machine, WORKERS[0], since)
    expect(any('"msg":"stopped"' in text for text in said) and not any("took too long" in text for text in said),
           "it drained to the end: %r" % said[-5:])
    no_drop_in(machine, "issuing-worker@.service", "impatient")
    control(machine, "/faults/clear", {})
    machine.run("systemctl start %s %s" % WORKERS)
    settle(machine)
    check_ledger(machine)


# ---- what is away or wrong -------------------------------------------------------------------------------------------

@story
def a_port_that_is_taken_for_a_while_mends_itself(machine):
    machine.run("systemctl stop " + WORKERS[1])
    machine.run("systemd-run -q --unit=squatter python3 -c 'import socket, time;"
                " held = socket.create_server((\"127.0.0.1\", 8092)); time.sleep(1000)'")
    machine.wait(lambda: machine.run("echo >/dev/tcp/127.0.0.1/8092", check=False).returncode == 0, "the port is taken")
    machine.run("systemctl start --no-block " + WORKERS[1])
    machine.wait(lambda: int(machine.show(WORKERS[1], "NRestarts")) >= 6, "six tries")
    machine.run("systemctl stop squatter")
    wait_ready(machine, WORKERS[1])


@story
def postgresql_away_at_the_start_is_waited_for(machine):
    machine.run("systemctl stop issuing.target && systemctl stop postgresql")
    machine.run("systemctl start %s %s" % (API, WORKERS[0]))  # both are started, since they notify
    for unit in (API, WORKERS[0]):
        machine.wait(lambda unit=unit: status_text(machine, unit).startswith("waiting for the database ("),
                     "the status of %s: %s" % (unit, status_text(machine, unit)))
        expect_equal(answers(machine, 8081 if unit == API else 8091), 503, "/readyz of " + unit)
    machine.run("systemctl start postgresql")
    for unit in (API, WORKERS[0]):
        wait_ready(machine, unit)
    issue(machine, "late-database")


@story
def what_is_wrong_at_a_start_is_an_error_in_the_journal(machine):
    conf = "/etc/issuing/issuing.conf"
    machine.run("cp -p %s /root/issuing.conf && echo 'cuont = 1' >>%s" % (conf, conf))
    try:
        check_complaints(machine)
    finally:
        machine.run("cp -p /root/issuing.conf %s; systemctl reset-failed" % conf)
    machine.run("systemctl start issuing-migrate issuing-api.socket %s %s" % (API, WORKERS[0]))
    for unit in (API, WORKERS[0]):
        wait_ready(machine, unit)


def check_complaints(machine):
    for unit in (API, WORKERS[0], "issuing-migrate"):
        since = now(machine)
        machine.run("systemctl restart " + unit, check=False)
        machine.wait(lambda unit=unit: machine.show(unit, "ActiveState") == "failed", unit + " is failed")
        expect_equal(machine.show(unit, "ExecMainStatus"), "78", "the status of " + unit)
        said = messages(machine, unit, since, "err")
        expect(any("cuont" in text for text in said), "errors of %s: %r" % (unit, said))


@story
def a_credential_that_is_missing_is_a_warning(machine):
    since = now(machine)
    machine.run("mv /etc/credstore/issuing.issuer_credential /root/ && systemctl restart " + WORKERS[0])
    wait_ready(machine, WORKERS[0])
    said = messages(machine, WORKERS[0], since, "warning")
    expect(len(said) == 1 and '"issuer_credential"' in said[0], "warnings: %r" % said)
    since = now(machine)
    machine.run("mv /root/issuing.issuer_credential /etc/credstore/ && systemctl restart " + WORKERS[0])
    wait_ready(machine, WORKERS[0])
    expect_equal(messages(machine, WORKERS[0], since, "warning"), [], "warnings with it")


@story
def a_reload_names_the_credentials_that_only_a_restart_takes_up(machine):
    since = now(machine)
    machine.run("systemctl reload " + API)
    machine.wait(lambda: any("were read again" in text for text in messages(machine, API, since)), "the reload")
    said = messages(machine, API, since, "warning")
    expect(len(said) == 2 and all("restart the unit" in text for text in said) and "auth.hs256_secret_file" in said[0]
           and "card.keys_file" in said[1], "warnings: %r" % said)


@story
def card_numbers_are_sealed_again_by_the_line_of_the_page(machine):
    """Story: the file of the keys is root's, and the role is its owner's alone."""
    page = (pathlib.Path(__file__).parents[2] / "docs" / "run.md").read_text()
    line = re.search(r"`(sudo systemd-run\s+--pipe -q [^`]*keys\s+rewrap)`", page).group(1)
    machine.run(" ".join(line.split()).replace("sudo ", "", 1))


def keys_from(machine, names, user):
    """The page's lines for these files of /etc/systemd/system; then both programs have the keys, and no plain file."""
    for name in names:
        lines = "\n".join(RUN_PAGE.file_lines("Secrets and keys", name)) + "\n"
        folders = ("issuing-api.service.d/", "issuing-worker@.service.d/") if name.endswith(".conf") else ("",)
        for folder in folders:
            machine.write("/etc/systemd/system/%s%s" % (folder, name), lines)
    machine.run("mv /etc/credstore/issuing.card_keys /root/ && systemctl daemon-reload && systemctl restart %s %s"
                % (API, WORKERS[0]))
    for unit in (API, WORKERS[0]):
        wait_ready(machine, unit)
    issue(machine, user)
    for unit in (API, WORKERS[0]):
        found = machine.out("sha256sum </run/credentials/%s.service/card_keys" % unit)
        expect_equal(found, machine.out("sha256sum </root/issuing.card_keys"), "the keys of " + unit)


def plain_keys(machine):
    machine.run("mv -n /root/issuing.card_keys /etc/credstore/; systemctl stop issuing-kms.socket; cd /etc/systemd/system;"
                " rm -rf issuing-api.service.d issuing-worker@.service.d issuing-kms*; systemctl daemon-reload;"
                " systemctl restart %s %s" % (API, WORKERS[0]))
    for unit in (API, WORKERS[0]):
        wait_ready(machine, unit)


@story
def the_card_keys_are_encrypted_at_rest_by_the_lines_of_the_page(machine):
    try:
        for command in RUN_PAGE.commands("Secrets and keys"):
            machine.run(command)
        keys_from(machine, ["keys.conf"], "sealed-keys")
        machine.run("systemd-run --pipe -q -p User=issuing-owner -p LoadCredentialEncrypted=card_keys:issuing.card_keys"
                    " issuing-ctl keys rewrap")
        machine.run("mv /var/lib/systemd/credential.secret /root/ && systemctl stop %s" % WORKERS[0])
        done = machine.run("systemctl start " + WORKERS[0], check=False)
        machine.run("systemctl stop %s; mv /root/credential.secret /var/lib/systemd/" % WORKERS[0])
        expect(done.returncode != 0, "on a machine without the key of this host it does not start")
    finally:
        plain_keys(machine)


@story
def the_card_keys_come_from_a_kms_by_the_lines_of_the_page(machine):
    """The KMS refuses its first call; the units wait for it."""
    machine.write("/usr/local/bin/aws", """#!/bin/sh
[ "$*" = "kms decrypt --ciphertext-blob fileb:///etc/issuing/card_keys.kms --query Plaintext --output text" ] || exit 2
[ -e /root/kms-called ] || { touch /root/kms-called; echo AccessDenied >&2; exit 254; }
base64 -w 0 /root/issuing.card_keys
""")
    machine.run("chmod 755 /usr/local/bin/aws")
    try:
        keys_from(machine, ["issuing-kms.socket", "issuing-kms@.service", "kms.conf"], "kms-keys")
        expect_equal(machine.out("ls /root/kms-called"), "/root/kms-called", "it was refused once")
    finally:
        plain_keys(machine)


@story
def operators_have_a_home_for_their_password(machine):
    expect_equal(machine.out("su -s /bin/sh issuing-operator -c 'cd && pwd && stat -c %a:%U .'").split(),
                 ["/var/lib/issuing-operator", "700:issuing-operator"], "their home")


@story
def two_programs_on_one_host_do_not_touch_each_other(machine):
    """The second one by the page, with peers of its own."""
    installing.start_sandbox(machine, BRAND_PEERS)
    installation = installing.Installation(machine)
    installation.edit_postgres(PROGRAMS, ["pg_hba.conf"])
    lines = "\n".join(installation.page.file_lines(PROGRAMS, "brand.conf")) + "\n"
    machine.write("/etc/issuing/brand.conf", lines.replace("https://issuer.example", "http://127.0.0.1:%d" % BRAND_PEERS)
                  .replace("https://core-api.example", "http://127.0.0.1:%d" % (BRAND_PEERS + 1)))
    first = {unit: main_pid(machine, unit) for unit in (API, WORKERS[0])}
    installation.section(PROGRAMS)
    machine.wait(lambda: ready(machine, *BRAND_ADMINS), "both daemons of the second program are ready")
    issue(machine, "same-user")
    issue(machine, "same-user", *BRAND)
    for unit in (*BRAND_UNITS, "issuing-migrate@brand"):
        done = machine.run("systemd-analyze security --threshold=20 --no-pager %s.service" % unit, check=False)
        expect(done.returncode == 0, "%s: %s" % (unit, done.stdout[-300:]))
        rows = machine.journal("-u", unit, "-p", "warning")
        expect(not rows, "%s: %r" % (unit, [row["MESSAGE"] for row in rows]))
    expect_equal(post(machine, "stranger", "issuing", BRAND[1])[0], 401, "a token of the other program")
    expect_equal(sorted(card["reference"] for card in control(machine, "/ledger", port=BRAND_PEERS + 2)["cards"]),
                 sql(machine, "SELECT request_id FROM issuing.cards", "brand").split(), "cards at the second issuer")
    check_ledger(machine)
    machine.run("systemctl stop issuing-api@brand.socket " + " ".join(BRAND_UNITS))
    expect_equal([answers(machine, port) for port in (BRAND[1], *BRAND_ADMINS)], [0, 0, 0], "the second program's ports")
    issue(machine, "beside-a-stopped-one")
    expect_equal({unit: main_pid(machine, unit) for unit in first}, first, "processes of the first program")
    machine.run("systemctl start " + " ".join(BRAND_UNITS))
    machine.wait(lambda: ready(machine, *BRAND_ADMINS), "the second program is back")
    machine.run("systemctl stop issuing-api.socket %s %s" % (API, WORKERS[0]))
    issue(machine, "beside-the-stopped-first", *BRAND)
    machine.run("systemctl start %s %s" % (API, WORKERS[0]))
    for unit in first:
        wait_ready(machine, unit)


@story
def a_reboot_brings_everything_back(machine):
    machine.run("systemctl stop " + " ".join(WORKERS))
    status, request = post(machine, "before-the-reboot")
    expect_equal(status, 202, "accepted before the reboot")
    machine.reboot()
    installing.start_sandbox(machine)
    for unit in (API, WORKERS[0]):
        wait_ready(machine, unit)
    settle(machine)
    expect_equal(sql(machine, "SELECT status FROM issuing.outbox_events WHERE id = '%s'" % request["id"]), "COMPLETED",
                 "its status after the reboot")
    expect_equal(machine.out("systemctl --failed --no-legend --plain"), "", "failed units")
    machine.run("sudo -u issuing-operator env PGUSER=issuing_operator issuing-ctl doctor", cwd=HOME)
