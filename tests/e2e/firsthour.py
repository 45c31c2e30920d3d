"""The first hour at a real issuer: doctor --issuer, and the configurations in the pages of docs/issuers/.

Story: somebody has an account, a key and a page of documentation. The first attempt is deferred, and one code in a log
is all there is to find out whether the key, the path, the holder or a name in core-api's answer is wrong."""
import json
import re
import signal
import subprocess

import harness
from connecting_proxy import ConnectingProxy
from harness import assert_equal, assert_true, core_at, EVERY, slow, test, those, VENDORS, wait_until
from operators import lines

LISTED = those(lambda issuer: issuer.profile in ("stripe", "adyen"))  # a look-up needs the holder
TRIED = ("create", "repeat", "shown", "activate", "number", "freeze", "close", "unknown", "asked")
SOON = r"\d+ ms after the create"
# What the sandbox answers where the vendor's documents are silent, by the question.
ANSWERED = {
    "stripe": {"a second close, under another key": "400 invalid_request_error, taken for refused",
               "how soon a card shows in the list": SOON},
    "lithic": {"how long keys are kept": "no trial shows it; ask lithic",
               "whether a 5xx is kept under the key": "no trial shows it; ask lithic",
               "the key after a refusal": "makes a card: the refusal was not kept",
               "an unknown account": "400, taken for refused", "a second close": "4.., taken for refused",
               "how soon a card shows by memo": SOON},
    "marqeta": {"the codes of a card and of a path that do not exist": r"\d+ is a card's, a path's is another",
                "a second close, by another transition": "409 409, taken for refused",
                "an unknown user": r"400 \d+, taken for refused", "how soon a card shows by its token": SOON},
    "adyen": {"whether the key is honoured": "the same card, and the answer names the key|another card",
              "how long a key is honoured": "no trial shows it; ask adyen",
              "what a 429 looks like": "no trial shows it; ask adyen",
              "the cards of an unknown balance account": r"4.. \w+, taken for unknown",
              "a second close": r"4.. \w+, taken for refused", "how soon a card shows in the list": SOON},
    "increase": {"the key while its first call runs": "the same card|409 .*, taken for not_executed",
                 "the key after a refusal": "makes a card: the refusal was not kept",
                 "an unknown account": "404 object_not_found_error, taken for refused",
                 "a second close": "409 invalid_operation_error, taken for refused",
                 "how soon a card shows by key": SOON},
}
ABOUT = ("profile", "core-api", "parameters", "issuer", "credential", "look-up", "not checked")


def asked(world, *words, code=1):
    """The findings by their check: (level, what was found, what to do). The cluster of the tests runs without fsync, so
    the exit code of the whole is never 0."""
    done = world.ctl("doctor", "--issuer", *words, "--json")
    assert_equal(done.returncode, code, done.stdout + done.stderr)
    credential = world.issuer.credential
    assert_true(not credential or credential not in done.stdout, "the credential is not shown")
    found = {}
    for row in lines(done, code):
        if row["check"] in ABOUT + TRIED + ("numbers",):
            level = "fail" if not row["ok"] else "warn" if row["warning"] else "ok"
            found.setdefault(row["check"], []).append((level, row["found"], row["fix"]))
    return found


def levels(found):
    return {check: rows[0][0] for check, rows in found.items()}


def fine(world):
    return {check: "ok" for check in ABOUT}


def started(world, *words):
    flags = ["--config=%s" % world.suite.empty_file, "--database.url=" + world.conninfo("issuing_operator")]
    return subprocess.Popen([str(harness.BUILD / "issuing-ctl"), *flags, "doctor", "--issuer", *words],
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=harness.ENVIRONMENT)


def all_is_well_and_nothing_notices_the_check(world):
    found = asked(world, "--user", "alice")
    assert_equal(levels(found), fine(world), "findings: %r" % found)
    assert_true(world.issuer.profile in found["profile"][0][1] and world.settings["issuer.url"] in found["issuer"][0][1],
                "profile and url: %r" % found)
    calls = [call["call"] for call in world.sandbox.calls()]
    reveal = {"generic": [], "lithic": ["retrieve"], "marqeta": ["stray", "reveal"]}.get(world.issuer.profile, ["reveal"])
    told = ["account"] if world.issuer.name == "stripe" else []
    assert_equal((calls, world.sandbox.cards()), (["check", "lookup", *told, *reveal], []), "calls and cards at the issuer")
    assert_equal(world.sql("SELECT action, after ->> 'user_id', db_role FROM operator_actions"),
                 "check_issuer|alice|issuing_operator", "on record")
    assert_equal(world.sql("SELECT count(*) FROM outbox_events"), "0", "events")


def without_a_user_it_says_what_was_not_checked(world):
    before = len(world.sandbox.calls())
    found = asked(world)
    expected = {**fine(world), "core-api": "warn"}
    if world.issuer.profile != "generic":
        expected["parameters"] = "warn"
    assert_equal(levels(found), expected, "findings: %r" % found)
    call = "retrieve" if world.issuer.name in LISTED else "lookup"
    calls = world.sandbox.calls()[before:]
    assert_true(call in [row["call"] for row in calls], "calls: %r" % calls)
    assert_true("--user" in found["core-api"][0][2], "what to do: %r" % found)


def a_trial_makes_one_card_in_the_test_mode_and_closes_it(world):
    """The address of the sandbox is one of this machine, which counts as a test mode."""
    made = 2 if "--ignore-keys" in world.issuer.sandbox else 1
    found = asked(world, "--user", "alice", "--create")
    tried = {check: rows[0][0] for check, rows in found.items() if check in TRIED}
    wanted = {check: "warn" if check == "repeat" and made == 2 else "ok" for check in tried}
    assert_equal(tried, wanted, "findings: %r" % found)
    vendor = world.issuer.name in VENDORS
    assert_true({"create", "repeat", "shown", "close"} | ({"freeze", "asked"} if vendor else set()) <= set(found),
                "findings: %r" % found)
    if vendor:
        assert_equal(found["freeze"][0][:2], ("ok", "a frozen card is shown as frozen"), "freeze")
    check = world.row("SELECT id, creates, result FROM issuer_checks WHERE creates")
    second = check["id"][:-2] + "%02x" % (int(check["id"][-2:], 16) ^ 1)
    world.foreign |= {check["id"], second}
    seconds = [second] if world.issuer.name in ("lithic", "increase") else []
    assert_equal([(card["status"], card["reference"]) for card in world.sandbox.cards()],
                 [("cancelled", reference) for reference in [check["id"]] * made + seconds], "cards at the issuer")
    answers = dict(row[1].split(": ", 1) for row in found.get("asked", []))
    for about, said in ANSWERED.get(world.issuer.profile, {}).items():
        assert_true(re.fullmatch(said, answers.pop(about, "")), "%s: %r" % (about, found.get("asked")))
    assert_equal(answers, {}, "other questions")
    # Doctor tells it from now on, also to a viewer.
    kept = [row["found"] for row in lines(world.ctl("doctor", "--json", role="issuing_viewer"), 1)
            if row["check"] == "trial"]
    assert_equal(kept[2:], [row[1] for row in found.get("asked", [])], "what doctor shows afterwards")
    assert_true(world.issuer.profile in kept[0] and "issuer.settle_time" in kept[1], "profile and settle time: %r" % kept)
    assert_equal((check["creates"], check["result"]), (True, "ok"), "the check")
    assert_equal(world.sql("SELECT (SELECT count(*) FROM outbox_events) + (SELECT count(*) FROM cards)"), "0",
                 "no event and no card here")


def a_missing_right_to_numbers_is_named_before_the_first_card(world):
    world.sandbox.fault("reveal", "status", status=403)
    level, said, fix = asked(world, "--user", "alice")["numbers"][0]
    assert_equal((level, "403" in said, "card.number_refused" in fix), ("fail", True, True), "%s / %s" % (said, fix))
    world.sandbox.clear()


def a_holder_that_the_issuer_does_not_know_is_named(world):
    issuer = dict(world.issuer.holder(world, "alice"))
    issuer[{"stripe": "cardholder", "adyen": "balanceAccountId"}[world.issuer.profile]] = "ich_unknown"
    world.sandbox.fault("check", "answer", body=json.dumps({"eligible": True, "issuer": issuer}))
    found = asked(world, "--user", "alice")
    level, said, fix = found["look-up"][0]
    assert_equal((levels(found)["parameters"], level), ("ok", "fail"), "findings: %r" % found)
    assert_true("holder" in fix, "%s / %s" % (said, fix))
    world.sandbox.clear()


def a_name_that_core_api_does_not_give_or_misspells_is_named(world):
    name = {"stripe": "cardholder", "adyen": "balanceAccountId"}[world.issuer.profile]
    for body, word in (({"eligible": True}, None), ({"eligible": True, "issuer": {name.upper(): "x"}}, name.upper())):
        world.sandbox.clear()
        world.sandbox.fault("check", "answer", body=json.dumps(body))
        rows = asked(world, "--user", "alice")["parameters"]
        missing = [row for row in rows if row[0] == "fail"][0]
        assert_true(name in missing[1] and '"%s"' % name in missing[2], "missing: %r" % rows)
        ignored = [row[1] for row in rows if row[0] == "warn"]
        assert_equal(bool(ignored) and word in ignored[0], bool(word), "ignored: %r" % rows)
    world.sandbox.clear()
    for fault, check in (({"fault": "ineligible"}, "warn"), ({"fault": "user_not_found"}, "fail"),
                         ({"fault": "garbage"}, "fail"), ({"fault": "status", "status": 403}, "fail")):
        world.sandbox.faults([{"target": "core", "call": "check", "count": 1, **fault}])
        assert_equal(levels(asked(world, "--user", "alice"))["core-api"], check, "core-api: %r" % fault)


def a_wrong_url_is_named(world):
    """Story: a path without its version is 404 for everything. Marqeta answers so for a card that does not exist,
    too."""
    right = world.settings["issuer.url"]
    version = {"marqeta": "/v3", "adyen": "/bcl/v2"}.get(world.issuer.profile, "")
    wrong = {right + "/v9": ("look-up", "404"),
             "http://127.0.0.1:%d" % harness.free_port(): ("issuer", "nothing was sent"),
             right.replace("http://", "https://"): ("issuer", ""),
             "https://no-such-host.invalid" + version: ("issuer", "")}
    for url, (check, words) in wrong.items():
        worker = world.start_worker(issuer__url=url)
        level, said, fix = asked(world, "--user", "alice")[check][0]
        worker.stop()
        assert_equal((level, words in said), ("fail", True), "%s: %s / %s" % (url, said, fix))
        assert_true("issuer.url" in fix or "tls.ca_file" in fix, "what to do about %s: %s" % (url, fix))


def a_wrong_key_is_named_with_its_file_and_form_and_not_shown(world):
    file = world.dir / "wrong.credential"
    file.write_text("wrong:wrong-secret\n")
    file.chmod(0o600)
    worker = world.start_worker(issuer__credential_file=file)
    found = asked(world, "--user", "alice")
    level, said, fix = found["credential"][0]
    assert_equal((levels(found)["issuer"], level), ("ok", "fail"), "findings: %r" % found)
    assert_true(" 401" in said and str(file) in fix, "%s / %s" % (said, fix))
    form = {"stripe": "Authorization: Bearer ", "lithic": "Authorization: ", "marqeta": "Authorization: Basic ",
            "adyen": "X-API-Key: ", "increase": "Authorization: Bearer "}[world.issuer.profile]
    assert_true('"%s..."' % form in fix, "the form: " + fix)
    assert_true("wrong-secret" not in "%r" % found, "the key is shown: %r" % found)
    # Corrected, and read again.
    file.write_text(world.issuer.credential + "\n")
    worker.signal(signal.SIGHUP)
    wait_until(lambda: levels(asked(world, "--user", "alice"))["credential"] == "ok", "the right key is accepted")
    worker.stop()


@core_at("stripe")
@slow
@test(issuers=EVERY)
def settings_are_checked_against_the_issuer(world):
    """Right ones first; then what is not allowed, not known or wrong, one thing after the other."""
    world.up()
    all_is_well_and_nothing_notices_the_check(world)
    without_a_user_it_says_what_was_not_checked(world)
    a_trial_makes_one_card_in_the_test_mode_and_closes_it(world)
    if "reveal" in world.issuer.calls:
        a_missing_right_to_numbers_is_named_before_the_first_card(world)
    if world.issuer.name in LISTED:
        a_holder_that_the_issuer_does_not_know_is_named(world)
        a_name_that_core_api_does_not_give_or_misspells_is_named(world)
    world.issue("alice")
    world.workers()[0].stop()
    a_wrong_url_is_named(world)
    if world.issuer.name in VENDORS:
        a_wrong_key_is_named_with_its_file_and_form_and_not_shown(world)


@test(issuers=("stripe",))
def the_account_of_the_credential_is_compared_with_its_name(world):
    """Test and live mode of Stripe have one address. What doctor proposes is what makes it content."""
    world.up()
    note = [row["found"] for row in lines(world.ctl("doctor", "--issuer", "--json"), 1) if row["check"] == "account"]
    assert_true(len(note) == 1 and "issuer.account = acct_1SandboxOfIssuing" in note[0], "not named: %r" % note)
    for account, level in (("acct_1SandboxOfIssuing", True), ("acct_1Other", False)):
        assert_equal(world.workers()[-1].stop(), 0, "exit status")
        world.start_worker(issuer__account=account)
        row, = [row for row in lines(world.ctl("doctor", "--issuer", "--json"), 1) if row["check"] == "account"]
        assert_equal((row["ok"], row["warning"]), (level, False), "%s: %r" % (account, row))
    world.sandbox.fault("account", "status", status=403)
    row, = [row for row in lines(world.ctl("doctor", "--issuer", "--json"), 1) if row["check"] == "account"]
    assert_true("did not tell" in row["found"], "refused: %r" % row)


@test(breaker__failures="1", breaker__probe_interval="30s")
def the_check_is_made_while_the_breaker_is_open_and_leaves_it_as_it_is(world):
    """An open breaker is when the question comes up. The answer is not evidence: an event still waits for its probe."""
    world.up()
    world.sandbox.down()
    request = world.accept("alice")
    worker = world.workers()[0]
    wait_until(lambda: worker.metric('issuing_breaker_state{target="issuer"}') == 2, "the breaker is open")
    found = asked(world, "--user", "alice")
    assert_equal((found["issuer"][0][0], "credential" in found), ("fail", False), "while it is down: %r" % found)
    world.sandbox.down(down=False)
    assert_equal(levels(asked(world, "--user", "alice")), fine(world), "when it is back")
    assert_equal((worker.metric('issuing_breaker_state{target="issuer"}'), world.status(request)), (2, "PENDING"),
                 "breaker and event")
    assert_equal(world.sandbox.calls("create"), [], "creates")
    world.ctl("probe", "issuer", "--reason", "it is back")
    world.settle()


@slow
@test
def a_paused_issuer_is_not_called_by_a_check(world):
    world.up()
    assert_equal(world.ctl("pause", "issuer", "--reason", "maintenance").returncode, 0, "pause")
    found = asked(world, "--user", "alice")
    assert_equal((list(found), found["issuer"][0][0], "paused" in found["issuer"][0][1]), (["issuer"], "fail", True),
                 "refused: %r" % found)
    assert_equal((world.sandbox.calls(), world.sql("SELECT count(*) FROM issuer_checks")), ([], "0"), "calls and checks")
    world.ctl("resume", "issuer", "--reason", "over")
    world.ctl("pause", "core", "--reason", "maintenance")
    wait_until(lambda: levels(asked(world, "--user", "alice"))["core-api"] == "warn", "core-api is paused, and not asked")
    world.ctl("resume", "core", "--reason", "over")


@test
def a_check_rests_an_issuer_that_answers_429_and_is_not_sent_while_it_rests(world):
    """Story: the issuer had limited our calls, and each question why was one call more."""
    world.up()
    world.sandbox.fault("lookup", "status", status=429, retry_after="300", count=2)
    wait_until(lambda: asked(world) and len(world.sandbox.calls("lookup")) == 2, "two answers in a row")
    found = asked(world)
    assert_equal((found["issuer"][0][0], "rests" in found["issuer"][0][1], len(world.sandbox.calls("lookup"))),
                 ("fail", True, 2), "while it rests: %r" % found)
    world.ctl("probe", "issuer", "--reason", "the limit is higher now")
    wait_until(lambda: levels(asked(world)).get("look-up") == "ok", "it may be called")


@slow
@test
def a_trial_waits_while_its_issuer_is_paused(world):
    """Story: the calls of a trial went on after the pause, into the issuer's maintenance."""
    world.up()
    world.allowed |= {"orphan", "two_cards"}
    world.sandbox.fault("lookup", "stale", stale_ms=3600000)
    doctor = started(world, "--user", "alice", "--create", "--timeout", "10m", "--json")
    wait_until(lambda: len(world.sandbox.calls("lookup")) > 2, "it waits for its card")
    world.ctl("pause", "issuer", "--reason", "maintenance")
    wait_until(lambda: world.sql("SELECT is_paused FROM worker_targets WHERE target = 'issuer'") == "t",
               "the worker knows")
    calls = []  # a lease is renewed when the call before is answered
    for _ in range(3):
        lease = world.sql("SELECT lease_until FROM issuer_checks")
        wait_until(lambda lease=lease: world.sql("SELECT lease_until FROM issuer_checks") != lease, "the trial goes on")
        calls.append(len(world.sandbox.calls()))
    assert_equal(calls[2], calls[0], "calls")
    world.sandbox.clear()
    world.ctl("resume", "issuer", "--reason", "over")
    said = doctor.communicate(timeout=harness.STUCK_AFTER_S)[0]
    assert_true('"close"' in said, said)
    assert_equal([card["status"] for card in world.sandbox.cards()], ["cancelled"], "cards at the issuer")


@test(issuers=("generic", "lithic"))
def a_trial_finds_that_keys_are_not_honoured(world):
    world.up(sandbox=("--ignore-keys",))
    world.allowed |= {"orphan", "two_cards"}
    found = asked(world, "--user", "alice", "--create")
    assert_equal((found["repeat"][0][0], "second card" in found["repeat"][0][1]), ("fail", True), "%r" % found)
    assert_true("issuer.keys = ignored" in found["repeat"][0][2], "what to do: %r" % found)
    assert_equal({card["status"] for card in world.sandbox.cards()}, {"cancelled"}, "all are closed")


@slow
@test(issuers=("lithic",))
def no_trial_is_made_where_cards_may_be_real(world):
    """The same key file, with the address of production, and with that of the vendor's sandbox. A key of production at
    the sandbox is refused by the vendor, and no card is tried."""
    world.up(workers=0)
    proxy = ConnectingProxy(to=world.sandbox.issuer)
    ways = {"issuer__proxy": "http://127.0.0.1:%d" % proxy.port, "issuer__allow_http": "true"}
    for host, level in (("api.lithic.com", "fail"), ("sandbox.lithic.com", "ok")):
        worker = world.start_worker(issuer__url="http://" + host, **ways)
        found = asked(world, "--user", "alice", "--create")
        assert_equal((found["issuer"][0][0], found["create"][0][0]), ("ok", level), "%s: %r" % (host, found))
        made = world.sandbox.calls("create")
        assert_equal(bool(made), level == "ok", "creates by way of " + host)
        worker.stop()
    assert_true("test mode" in world.row("SELECT detail::text AS said FROM issuer_checks ORDER BY asked_at LIMIT 1")["said"],
                "the first one says why")
    key = world.dir / "production.credential"
    key.write_text("a-key-of-production\n")
    key.chmod(0o600)
    world.start_worker(issuer__url="http://sandbox.lithic.com", issuer__credential_file=key, **ways)
    found = asked(world, "--user", "alice", "--create")
    assert_equal((found["credential"][0][0], "create" in found, len(world.sandbox.calls("create"))),
                 ("fail", False, len(made)), "%r" % found)
    world.allowed |= {"orphan", "two_cards"}


@test(issuers=("increase",))
def a_trial_sees_what_a_key_answers_while_its_first_call_runs(world):
    world.up()
    world.sandbox.fault("create", "status", status=409, code="conflict", count=1)
    said = {row[1].split(": ", 1)[0]: row[1].split(": ", 1)[1]
            for row in asked(world, "--user", "alice", "--create")["asked"]}
    assert_equal(said["the key while its first call runs"], "409 conflict, taken for not_executed", "%r" % said)
    world.allowed |= {"orphan", "two_cards"}


@slow
@test
def a_trial_of_an_issuer_that_answers_badly_leaves_no_card(world):
    """Stories: the create is executed and not answered; the issuer cannot look up."""
    world.up()
    world.allowed |= {"orphan", "two_cards"}
    world.sandbox.fault("create", "execute_then_status", status=503, count=1)
    found = asked(world, "--user", "alice", "--create")
    assert_equal((found["create"][0][0], found["close"][0][0]), ("fail", "ok"), "%r" % found)
    world.sandbox.fault("lookup", "status", status=503)
    found = asked(world, "--user", "alice", "--create")
    assert_true("create" not in found, "an issuer that is not reached is not tried: %r" % found)
    world.sandbox.clear()
    assert_equal([card["status"] for card in world.sandbox.cards()], ["cancelled"], "cards at the issuer")
    for words in (("--issuer", "--create"), ("--create", "--user", "alice")):
        assert_equal(world.ctl("doctor", *words).returncode, 2, "%r" % (words,))


@slow
@test(issuers=("lithic",))
def a_trial_names_or_closes_the_card_of_a_create_without_an_answer(world):
    """Story: the create under the key of a refusal was executed, and its answer lost. Its card stayed, and nobody was
    told. The first three creates are the card's, its repeat, and the one that must be refused."""
    world.up()
    world.allowed |= {"orphan", "two_cards"}
    world.sandbox.fault("create", "execute_then_status", status=503, skip=3, count=1)
    found = asked(world, "--user", "alice", "--create")
    assert_equal(([card["status"] for card in world.sandbox.cards()], found["unknown"][0][0]), (["cancelled"] * 2, "ok"),
                 "found and closed: %r" % found)
    world.sandbox.clear()
    world.sandbox.fault("create", "status_then_execute", status=503, skip=3, count=1, late_ms=3600000)
    level, said, fix = asked(world, "--user", "alice", "--create")["unknown"][0]
    assert_equal(world.sandbox.run_late(), 1, "the create arrives, later than anything that is waited for")
    late, = [card for card in world.sandbox.cards() if card["status"] != "cancelled"]
    assert_equal((level, late["reference"] in said, "by hand" in fix), ("fail", True, True), "%s / %s" % (said, fix))


@slow
@test(issuer__timeout="400ms", core__timeout="400ms", issuer__settle_time="1s", worker__lease="2s")
def a_trial_that_lasts_longer_than_a_lease_is_one_workers(world):
    """Story: the second worker took the check over while the first one waited for its card to be shown."""
    world.up(workers=2)
    world.allowed |= {"orphan", "two_cards"}
    world.sandbox.fault("lookup", "stale", stale_ms=8000)
    found = asked(world, "--user", "alice", "--create")
    assert_equal((levels(found)["create"], levels(found)["close"], len(world.sandbox.calls("create"))), ("ok", "ok", 2),
                 "findings and creates: %r" % found)
    # Nobody waits any more: what was made is closed, and what was found is kept.
    world.ctl("doctor", "--issuer", "--user", "alice", "--create", "--timeout", "2s")
    wait_until(lambda: world.sql("SELECT count(*) FROM issuer_checks WHERE detail @> '[{\"check\": \"cut short\"}]'") == "1",
               "what was found by then")
    assert_equal([card["status"] for card in world.sandbox.cards()], ["cancelled"] * 2, "cards at the issuer")


@test
def without_a_worker_the_answer_is_to_try_again_later(world):
    world.up(workers=0)
    done = world.ctl("doctor", "--issuer", "--timeout", "300ms")
    assert_equal((done.returncode, "no worker answered within 300 ms" in done.stdout), (75, True), done.stdout)
    world.start_worker()
    wait_until(lambda: world.sql("SELECT result FROM issuer_checks") == "unanswered", "the check is over")
    assert_equal(world.sandbox.calls(), [], "nobody waits for it, so nothing is called")
    refused = world.ctl("doctor", "--issuer", "--json", role="issuing_viewer")
    assert_true("connect as issuing_operator" in refused.stdout, "a viewer may not ask: " + refused.stdout)
    for words in (("--user", "alice"), ("--issuer", "--user", ""), ("--issuer", "--since", "1h"),
                  ("--issuer", "--timeout", "2h"), ("--timeout", "1s")):
        assert_equal(world.ctl("doctor", *words).returncode, 2, "%r" % (words,))


@slow
@test
def a_worker_that_dies_in_the_middle_is_replaced_by_another(world):
    world.up()
    world.sandbox.fault("lookup", "hang", count=1)
    doctor = started(world, "--user", "alice", "--json")
    wait_until(lambda: world.sandbox.calls("lookup"), "the look-up is under way")
    world.workers()[0].kill()
    world.start_worker(core__timeout="20s", worker__lease="50s")
    said, wrong = doctor.communicate(timeout=harness.STUCK_AFTER_S)
    rows = {row["check"]: row for row in map(json.loads, said.splitlines())}
    assert_equal((rows["look-up"]["ok"], len(world.sandbox.calls("lookup"))), (True, 2), said + wrong)
    # One that drains gives its check away, or ends it, and does not wait.
    world.sandbox.fault("check", "delay", delay_ms=15000, count=1)
    doctor = started(world, "--user", "alice", "--json")
    wait_until(lambda: len(world.sandbox.calls("check")) == 3, "core-api is asked")
    second = world.start_worker()
    assert_equal(world.workers()[1].stop(), 0, "the drain")
    said, wrong = doctor.communicate(timeout=harness.STUCK_AFTER_S)
    rows = {row["check"]: row for row in map(json.loads, said.splitlines())}
    assert_true(rows["look-up"]["ok"] and ":%d" % second.popen.pid in rows["profile"]["found"], said + wrong)


@slow
@test
def what_an_issuer_answers_in_trouble_is_no_fault_of_the_settings(world):
    world.up()
    for fault, check, level in (({"fault": "status", "status": 503}, "look-up", "fail"),
                                ({"fault": "status", "status": 429}, "look-up", "warn"),
                                ({"fault": "garbage"}, "look-up", "fail"), ({"fault": "redirect"}, "look-up", "fail"),
                                ({"fault": "wrong_reference"}, "look-up", "ok"),
                                ({"fault": "huge"}, "look-up", "fail"), ({"fault": "hang"}, "issuer", "fail"),
                                ({"fault": "drop"}, "issuer", "fail"), ({"fault": "truncated"}, "issuer", "fail")):
        world.sandbox.faults([{"target": "issuer", "call": "lookup", **fault}])
        found = asked(world, "--user", "alice")
        assert_equal(levels(found)[check], level, "%r: %r" % (fault, found))
        world.sandbox.clear()


@test
def what_the_pages_tell_to_paste_is_a_configuration(world):
    pages = sorted((harness.ROOT / "docs" / "issuers").glob("*.md"))
    checked = []
    for page in pages:
        for block in re.findall(r"<!-- config -->\n```ini\n(.*?)```", page.read_text(encoding="utf-8"), re.S):
            file = world.dir / (page.stem + ".conf")
            made = world.dir / (page.stem + ".credential")
            made.write_text("name:secret\n")
            made.chmod(0o600)
            file.write_text(re.sub(r"(?m)^(\w+_file) = \S+", lambda line: "%s = %s" % (
                line[1], world.suite.keys_file if line[1] == "keys_file" else made), block))
            done = harness.run([harness.BUILD / "issuing-worker", "--config=%s" % file, "--check-config"])
            assert_equal(done.returncode, 0, "%s: %s" % (page.name, done.stdout + done.stderr))
            shown = harness.run([harness.BUILD / "issuing-worker", "--config=%s" % file, "--show-config"]).stdout
            assert_true("issuer.profile = %s " % page.stem in shown, "%s: %s" % (page.name, shown))
            checked.append(page.stem)
    assert_equal(checked, sorted({issuer.profile for issuer in harness.PROFILES.values()}), "pages with a configuration")
