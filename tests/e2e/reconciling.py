"""reconcile and reissue: a worker looks an event up at the issuer for an operator, and acts on the result. The marks
are in the database, so when a program dies another one continues, and nothing is done twice.

Stories: FAILED had no way out: a card that the issuer had made was never found again, a reissue that failed blocked its
card for ever; and a request that was refused while its create was still on its way left a live card that no system
knew of.
"""
import json
import signal
import subprocess
import time

import harness
from harness import alone, assert_equal, assert_true, core, slow, test, wait_until
from operators import lines, prove, UNKNOWN_ID

SETTLE = "2s"


def failed(world, user, sent="1 hour", status="FAILED", reason="attempts_exhausted", payload='{"kind": "new"}'):
    """An event that has ended so, the last send that long ago; None = nothing was sent."""
    return world.sql("INSERT INTO outbox_events (user_id, payload, status, reason_code, reason_detail, retry_count,"
                     " completed_at, first_sent_at)"
                     " VALUES ('%s', '%s', '%s', '%s', 'Sorry.', 3, now(), %s) RETURNING id" %
                     (user, payload, status, reason, "now() - interval '%s'" % sent if sent else "NULL"))


def made(world, event, user, key=None):
    """A create for this event arrives at the issuer, as the worker would have sent it. Returns the issuer's card id."""
    return world.issuer.make(world, user, event, key or event)


def cancelled(world, card):
    assert_equal(world.issuer.close(world, card).status, 200, "cancelled")


def ctl_started(world, *words):
    flags = ["--config=%s" % world.suite.empty_file, "--database.url=" + world.conninfo("issuing_operator")]
    return subprocess.Popen([str(harness.BUILD / "issuing-ctl"), *flags, *words], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, env=harness.ENVIRONMENT)


def results(done, code):
    return {row["id"]: row["result"] for row in lines(done, code)}


def actions(world, event=None):
    return world.rows("SELECT * FROM operator_actions%s ORDER BY id" %
                      (" WHERE event_id = '%s'" % event if event else ""))


@slow
@test(issuer__settle_time=SETTLE)
def reconcile_finds_what_the_issuer_made(world):
    world.up()
    found, missing, dead, old = (failed(world, user) for user in ("found", "missing", "dead", "old"))
    world.sql("UPDATE outbox_events SET first_sent_at = now() - interval '3 days' WHERE id = '%s'" % old)
    for event, user in ((found, "found"), (old, "old")):
        made(world, event, user)
    cancelled(world, made(world, dead, "dead"))
    done = world.ctl("reconcile", found, missing, dead, old, UNKNOWN_ID, "--reason", "audit of May", "--json")
    assert_equal(results(done, 1), {found: "found", missing: "not_found", dead: "cancelled_at_issuer", old: "found",
                                    UNKNOWN_ID: "refused"}, "results")
    for event in (found, old):
        assert_equal(world.wait_status(event, "COMPLETED")["status"], "COMPLETED", "stored, linked, completed")
    assert_equal((world.status(missing), world.event(missing)["reason_code"]), ("FAILED", "attempts_exhausted"),
                 "not found: unchanged")
    assert_equal((world.status(dead), world.event(dead)["reason_code"]), ("REJECTED", "card_cancelled"),
                 "only cancelled")
    assert_equal([(row["action"], row["reason"], row["before"]["status"], row["after"]["status"], row["db_role"])
                  for row in actions(world, found)],
                 [("reconcile", "audit of May", "FAILED", "PENDING", "issuing_operator")], "on record")
    assert_equal((actions(world, missing), len(actions(world, dead))), ([], 1), "what changed nothing is not")
    assert_equal(len(world.sandbox.cards()), 3, "cards at the issuer")
    text = world.ctl("reconcile", missing)
    assert_equal((text.returncode, "not_found" in text.stdout), (0, True), text.stdout + text.stderr)
    assert_true("looked up at its peer" in world.ctl("explain", dead).stdout, "explain shows it")


@test(issuer__settle_time=SETTLE)
def two_live_cards_are_a_question_and_never_an_answer(world):
    world.allowed.add("two_cards")
    world.up()
    event = failed(world, "twin", reason="attempts_exhausted")
    made(world, event, "twin")
    made(world, event, "twin", key="another")
    assert_equal(results(world.ctl("reconcile", event, "--json"), 1), {event: "duplicate"}, "result")
    assert_equal((world.status(event), world.event(event)["reason_code"]), ("FAILED", "issuer_duplicate"), "the event")
    assert_equal(results(world.ctl("reconcile", event, "--json"), 1), {event: "duplicate"}, "again")
    assert_equal(len(actions(world, event)), 1, "on record once")


@test(issuer__settle_time=SETTLE)
def a_replay_of_two_live_cards_looks_up_first(world):
    """Story: the bulk replay of a morning made a request with two live cards COMPLETED, without a look-up."""
    world.allowed.add("two_cards")
    world.up()
    twin, plain = failed(world, "twin", reason="issuer_duplicate"), failed(world, "plain")
    going = failed(world, "going", reason="issuer_duplicate")
    cards = [made(world, twin, "twin"), made(world, twin, "twin", key="another")]
    world.sql("INSERT INTO cards (id, request_id, exp_month, exp_year, user_id, issuer_card_id, last4, status)"
              " VALUES (gen_random_uuid(), '%s', 1, 2040, 'going', '%s', '1111', 'active');"
              " UPDATE outbox_events SET cancel_code = 'user_blocked' WHERE id = '%s'" %
              (going, made(world, going, "going"), going))
    made(world, going, "going", key="a third one")
    done = world.ctl("replay", "--status", "FAILED", "--since", "1h", "--reason", "the issuer is well again", "--json")
    assert_equal([json.loads(line)["id"] for line in done.stdout.splitlines()], [plain], "what the bulk took")
    world.wait_status(plain, "COMPLETED")
    calls = len(world.sandbox.calls("create", user="twin")), len(world.sandbox.calls("link", user="twin"))
    for words in ((twin,), ("--code", "issuer_duplicate")):
        assert_equal(world.ctl("replay", *words, "--reason", "named").returncode, 0, "replay of the one that is named")
        world.settle()
        assert_equal((world.status(twin), world.event(twin)["reason_code"]), ("FAILED", "issuer_duplicate"), "still")
    assert_true("is asked first which cards it has" in world.ctl("explain", twin).stdout, "explain")
    world.wait_status(going, "FAILED")
    assert_equal((world.event(going)["reason_code"], world.sandbox.calls("cancel")),
                 ("issuer_duplicate", []), "the stored one is not cancelled while there is another one")
    assert_equal((len(world.sandbox.calls("create", user="twin")), len(world.sandbox.calls("link", user="twin"))), calls,
                 "creates and links")
    cancelled(world, cards[0])
    assert_equal(world.ctl("replay", twin, "--reason", "one is closed").returncode, 0, "replay")
    world.wait_status(twin, "COMPLETED")
    assert_equal(world.sql("SELECT issuer_card_id FROM cards WHERE request_id = '%s'" % twin), cards[1], "which one")
    assert_equal(len(world.sandbox.calls("create", user="twin")), calls[0], "creates")


@test(issuer__settle_time=SETTLE)
def a_look_does_not_revive_somebody_elses_reissue(world):
    """Story: a reissue whose terminal was closed was revived by a colleague who only wanted to look: a second card, in
    the first one's name."""
    world.up()
    event = failed(world, "shared")
    world.sandbox.fault("lookup", "status", status=503)
    gone = ctl_started(world, "reissue", event, "--reason", "lost", "--confirm", "--timeout", "3s")
    wait_until(lambda: world.sql("SELECT count(*) FROM marks") == "1", "the mark of the reissue")
    gone.kill()
    gone.communicate()
    busy = world.ctl("reconcile", event, "--timeout", "60s")
    assert_equal((busy.returncode, "another operator's reissue or reconcile" in busy.stdout), (75, True), busy.stdout)
    wait_until(lambda: world.sql("SELECT deadline_at < now() FROM marks") == "t", "its deadline")
    looker = ctl_started(world, "reconcile", event, "--timeout", "1s")  # the colleague is not patient either
    wait_until(lambda: world.sql("SELECT count(*) FROM marks WHERE action = 'reconcile'") == "1", "a look of her own")
    looker.kill()
    looker.communicate()
    joined = ctl_started(world, "reconcile", event, "--timeout", "60s", "--json")
    wait_until(lambda: world.sql("SELECT count(*) FROM marks WHERE action = 'reconcile'") == "2",
               "the look of a third one, once the second one's time is over")
    world.sandbox.clear()
    out, errors = joined.communicate(timeout=harness.STUCK_AFTER_S)
    assert_equal((joined.returncode, [json.loads(line)["result"] for line in out.splitlines()]), (0, ["not_found"]), errors)
    assert_equal(world.sql("SELECT string_agg(action || ' ' || result, ', ' ORDER BY id) FROM marks"),
                 "reissue undecided, reconcile undecided, reconcile not_found", "marks")
    assert_equal((world.sql("SELECT count(*) FROM outbox_events"), world.status(event)), ("1", "FAILED"), "unchanged")


@slow
@test(issuer__settle_time=SETTLE)
def an_orphan_of_a_rejected_request_is_cancelled(world):
    """Story: REJECTED was written while the create was still on its way; the card stayed live, and nothing in the
    system knew of it."""
    world.allowed.add("two_cards")
    world.up()
    orphan = failed(world, "orphan", status="REJECTED", reason="user_blocked")
    twins = failed(world, "twins", status="REJECTED", reason="user_blocked")
    clean = failed(world, "clean", status="REJECTED", reason="user_blocked")
    made(world, orphan, "orphan")
    made(world, twins, "twins")
    made(world, twins, "twins", key="another")
    done = world.ctl("reconcile", "--all", "--status", "REJECTED", "--json")
    assert_equal(results(done, 1), {orphan: "orphan_cancelled", twins: "orphan_cancelled", clean: "ok"}, "results")
    assert_equal([card["status"] for card in world.sandbox.cards()], ["cancelled"] * 3, "at the issuer")
    assert_equal([(row["event_id"] == orphan or row["event_id"] == twins, row["after"]["result"])
                  for row in actions(world)],
                 [(True, "orphan_cancelled")] * 2, "on record")
    assert_equal({world.status(event) for event in (orphan, twins, clean)}, {"REJECTED"}, "statuses")
    assert_equal(set(results(world.ctl("reconcile", "--all", "--status", "REJECTED", "--json"), 0).values()), {"ok"},
                 "afterwards")


@test(issuer__settle_time=SETTLE)
def what_is_completed_stays_so_and_its_card_follows_the_issuer(world):
    world.allowed.add("closed_card")
    world.up()
    good, lost, dead = (world.issue(user)["id"] for user in ("good", "lost", "dead"))
    world.sandbox.fault("lookup", "answer", body='{"cards":[]}', count=1, skip=1)
    assert_equal(results(world.ctl("reconcile", good, "--json"), 0), {good: "ok"}, "ok")
    assert_equal(results(world.ctl("reconcile", lost, "--json"), 1), {lost: "missing"}, "missing")
    cancelled(world, world.row("SELECT issuer_card_id FROM cards WHERE request_id = '%s'" % dead)["issuer_card_id"])
    assert_equal(results(world.ctl("reconcile", dead, "--json"), 1), {dead: "cancelled_at_issuer"}, "cancelled")
    assert_equal({world.status(event) for event in (good, lost, dead)}, {"COMPLETED"}, "statuses")
    assert_equal([(row["event_id"], row["action"], row["after"]["status"]) for row in actions(world)],
                 [(dead, "card_status", "cancelled")], "on record")
    assert_equal([card["status"] for card in world.get("dead", "/v1/cards").json()["items"]], ["cancelled"], "the api")
    assert_equal(results(world.ctl("reconcile", dead, "--json"), 0), {dead: "ok"}, "again")


@slow
@test(issuer__settle_time=SETTLE)
def a_peer_that_is_away_decides_nothing(world):
    world.up()
    event, open_one = failed(world, "away"), None
    world.sandbox.down()
    done = world.ctl("reconcile", "--all", "--timeout", "1s", "--json")
    assert_equal(results(done, 75), {event: "undecided"}, "no result")
    assert_equal(world.ctl("reissue", event, "--reason", "x", "--confirm", "--timeout", "1s").returncode, 75,
                 "no reissue")
    assert_equal(world.status(event), "FAILED", "unchanged")
    open_one = world.accept("open")
    assert_equal(results(world.ctl("reconcile", open_one, "--json"), 0), {open_one: "open"},
                 "an open one is the flow's")
    world.sandbox.down(down=False)
    world.settle()
    assert_equal(results(wait_until(lambda: (lambda done: done if done.returncode == 0 else None)(world.ctl("reconcile",
                                                                                                            event,
                                                                                                            "--json")),
                                    "the issuer is back"), 0),
                 {event: "not_found"}, "when it is back")
    world.sandbox.fault("lookup", "garbage", count=2)
    assert_equal(results(world.ctl("reconcile", event, "--json"), 0), {event: "not_found"},
                 "after an answer that cannot be read the look-up is repeated")


@test(issuer__settle_time=SETTLE)
def without_a_worker_nothing_is_done_and_nothing_is_left_to_do(world):
    world.up(workers=0)
    event = failed(world, "alone")
    done = world.ctl("reissue", event, "--reason", "x", "--confirm", "--timeout", "300ms")
    assert_equal((done.returncode, "withdrawn" in done.stderr), (75, True), done.stderr)
    assert_equal(results(world.ctl("reconcile", event, "--timeout", "300ms", "--json"), 75), {event: "undecided"},
                 "reconcile")
    world.start_worker()
    wait_until(lambda: world.sql("SELECT count(*) FROM marks WHERE finished_at IS NULL") == "0",
               "the marks end by themselves")
    assert_equal(world.sql("SELECT string_agg(result, ' ' ORDER BY id) FROM marks"),
                 "withdrawn undecided", "marks")
    assert_equal((world.status(event), world.sql("SELECT count(*) FROM outbox_events"), actions(world)),
                 ("FAILED", "1", []), "nothing came of it")


@slow
@test(issuer__settle_time=SETTLE)
def a_reissue_is_a_new_event_instead_of_the_old_one(world):
    """Story: a reissue that failed past its key's lifetime blocked its card for ever."""
    world.up(apis=1, workers=0)
    worker = world.start_worker()
    card = world.issue("alice")["card"]["id"]
    worker.stop()
    body = {"kind": "reissue", "replaces": card, "reason": "damaged"}
    old = world.accept("alice", "again", body)
    stored = world.post("alice", "again", body).body
    world.sql("UPDATE outbox_events SET status = 'FAILED', reason_code = 'issuer_key_expired', retry_count = 3,"
              " completed_at = now(),"
              " first_sent_at = now() - interval '2 days' WHERE id = '%s'" % old)
    world.restart(worker)
    world.sandbox.fault("check", "status", user="alice", status=503)
    assert_equal(world.ctl("reissue", old, "--reason", "x").returncode, 2, "not confirmed")
    assert_equal(world.ctl("reissue", old, "--confirm").returncode, 2, "no reason")
    refused = world.ctl("reissue", old, "--reason", "x", "--confirm", "--because", "tired")
    assert_equal((refused.returncode, "lost, stolen" in refused.stderr), (2, True), refused.stderr)
    refused = world.ctl("reissue", failed(world, "bob"), "--reason", "x", "--confirm", "--because", "stolen")
    assert_equal((refused.returncode, "replaces no card" in refused.stdout), (1, True), refused.stdout)
    answer = lines(world.ctl("reissue", old, "--reason", "asked the bank", "--confirm", "--because", "stolen",
                             "--json"))[0]
    assert_equal((set(answer), answer["id"]), ({"id", "new_id"}, old), "what it prints")
    new = answer["new_id"]
    keys = [row for row in prove(world) if row["check"] == "client keys"]
    assert_equal([row["ok"] for row in keys], [True], "the key that the open new one has is the old one's")
    world.sandbox.clear()
    assert_equal(world.wait_status(new, "COMPLETED")["idempotency_key"], "again", "the new one")
    assert_equal([call["key"] for call in world.sandbox.calls("create", reference=new)], [new], "its own key")
    shown = world.get("alice", "/v1/card-requests/" + old).json()
    assert_equal((shown["status"], shown["reason"]["code"], shown["reason"]["replaced_by"]),
                 ("REJECTED", "reissued", new), "what the client sees")
    listed = {row["id"]: row for row in world.get("alice", "/v1/card-requests").json()["items"]}
    assert_equal((listed[old], "replaced_by" in (listed[new]["reason"] or {})), (shown, False), "in the list")
    assert_equal(world.post("alice", "again", body).body, stored, "a repeat of the client's key")
    assert_equal(world.sql("SELECT event_id FROM card_reissues"), new, "the row of the card")
    row = actions(world, old)[0]
    assert_equal((row["action"], row["reason"], row["after"]["new_id"], row["after"]["because"],
                  row["after"]["status"], row["db_role"]),
                 ("reissue", "asked the bank", new, "stolen", "REJECTED", "issuing_operator"), "on record")
    assert_equal([lines(world.ctl("list", "--json", "--user", "alice", "--key", "again", "--status", status))[0][
        "because"] for status in ("REJECTED", "COMPLETED")], ["damaged", "stolen"], "why the card is replaced")
    assert_true("because that one is stolen" in world.ctl("explain", new).stdout, "explain says why")
    done = world.ctl("reissue", old, "--reason", "x", "--confirm")
    assert_equal((done.returncode, "already" in done.stdout), (1, True), done.stdout)
    assert_equal(world.ctl("reissue", new, "--reason", "x", "--confirm").returncode, 1, "a completed one")
    assert_equal(world.ctl("reissue", UNKNOWN_ID, "--reason", "x", "--confirm").returncode, 1, "an unknown one")
    assert_true("new event" in world.ctl("explain", old).stdout, "explain shows it")


@test(issuer__settle_time=SETTLE)
def a_reissue_is_refused_while_the_issuer_has_a_card(world):
    world.up()
    event, dead = failed(world, "has"), failed(world, "had")
    made(world, event, "has")
    cancelled(world, made(world, dead, "had"))
    done = world.ctl("reissue", event, "--reason", "x", "--confirm")
    assert_equal((done.returncode, "replay" in done.stdout), (1, True), done.stdout)
    done = world.ctl("reissue", dead, "--reason", "x", "--confirm")
    assert_equal((done.returncode, "reconcile" in done.stdout), (1, True), done.stdout)
    assert_equal((world.status(event), world.sql("SELECT count(*) FROM outbox_events"), actions(world)),
                 ("FAILED", "2", []), "nothing was done")
    assert_equal(world.ctl("replay", event, "--reason", "x").returncode, 0, "replay")
    world.wait_status(event, "COMPLETED")


@slow
@test(issuer__settle_time="15s")
def not_found_decides_nothing_while_a_create_may_still_arrive(world):
    world.up()
    event, late = failed(world, "slow", sent="0 s"), failed(world, "late", sent="0 s", status="REJECTED",
                                                            reason="user_blocked")
    other = ctl_started(world, "reconcile", late, "--json")
    try:
        wait_until(lambda: world.sandbox.calls("lookup", reference=late), "looked up too early")
        made(world, late, "late")
        assert_equal(world.ctl("resolve", event, "--confirm-no-card", "--reason", "x").returncode, 1,
                     "resolve is too early as well")
        assert_equal(world.ctl("reissue", event, "--reason", "x", "--confirm", "--timeout", "100ms").returncode, 75,
                     "too early")
        assert_equal(world.ctl("reissue", event, "--reason", "x", "--confirm", "--json").returncode, 0, "reissue")
        out, _ = other.communicate(timeout=harness.STUCK_AFTER_S)
    finally:
        other.kill()
    assert_equal(world.sql("SELECT n.created_at >= o.first_sent_at + interval '15 s' FROM outbox_events o,"
                           " outbox_events n, event_reissues r"
                           " WHERE r.old_id = o.id AND r.new_id = n.id AND o.id = '%s'" % event), "t", "not before")
    assert_equal([json.loads(line)["result"] for line in out.splitlines()], ["orphan_cancelled"],
                 "a card that came late was seen")
    world.settle()


@core
@slow
@test(issuer__settle_time=SETTLE)
def two_operators_and_two_workers_make_one_reissue(world):
    world.up(workers=2)
    event = failed(world, "both")
    world.sandbox.fault("lookup", "delay", delay_ms=300)
    both = [ctl_started(world, "reissue", event, "--reason", "together", "--confirm", "--json") for _ in range(2)]
    outs = [process.communicate(timeout=harness.STUCK_AFTER_S)[0] for process in both]
    assert_equal(sorted(process.returncode for process in both), [0, 1], "exit statuses: %r" % outs)
    world.settle()
    assert_equal(world.sql("SELECT count(*) FROM outbox_events"), "2", "events")
    assert_equal(len(actions(world)), 1, "on record")
    assert_equal(len(world.sandbox.cards()), 1, "cards")


@slow
@test(issuer__settle_time=SETTLE)
def a_bulk_reconcile_by_two_operators_acts_on_each_event_once(world):
    world.up(workers=2)
    events = {failed(world, "u%d" % number): "u%d" % number for number in range(30)}
    never_sent = failed(world, "never", sent=None)
    for event, user in list(events.items())[:20]:
        made(world, event, user)
    both = [ctl_started(world, "reconcile", "--all", "--json") for _ in range(2)]
    outs = [process.communicate(timeout=harness.STUCK_AFTER_S)[0] for process in both]
    assert_equal([process.returncode for process in both], [0, 0], "exit statuses: %r" % outs)
    world.settle()
    assert_equal(world.sql("SELECT status, count(*) FROM outbox_events GROUP BY 1 ORDER BY 1"),
                 "COMPLETED|20\nFAILED|11", "ends")
    assert_equal(world.sql("SELECT count(*), count(DISTINCT event_id) FROM operator_actions"), "20|20", "on record")
    for out in outs:
        assert_true(never_sent not in out, "what was surely not sent is not a question for the issuer")
    assert_equal(len(world.sandbox.cards()), 20, "cards")


def killed_in_the_middle(world, words, call):
    """The worker is killed while this call of it is out; another one goes on when the lease has run out."""
    worker = world.workers()[0]
    done = ctl_started(world, *words)
    wait_until(lambda: world.sandbox.calls(call), "the call is out")
    worker.kill()
    world.sandbox.clear()
    world.start_worker()
    out, errors = done.communicate(timeout=harness.STUCK_AFTER_S)
    return done.returncode, out, errors


@slow
@test(issuer__settle_time=SETTLE, worker__lease="4s")
def a_worker_killed_after_the_look_up_leaves_one_reissue(world):
    world.up()
    event = failed(world, "victim")
    world.sandbox.fault("lookup", "hang")
    code, out, errors = killed_in_the_middle(world, ("reissue", event, "--reason", "x", "--confirm", "--json"),
                                             "lookup")
    assert_equal(code, 0, "exit status: " + out + errors)
    world.settle()
    assert_equal((world.sql("SELECT count(*) FROM outbox_events"), len(actions(world)), len(world.sandbox.cards())),
                 ("2", 1, 1), "once")


@slow
@test(issuer__settle_time=SETTLE, worker__lease="4s")
def a_worker_killed_while_it_cancels_an_orphan_leaves_one_record_of_it(world):
    world.up()
    event = failed(world, "victim", status="REJECTED", reason="user_blocked")
    made(world, event, "victim")
    world.sandbox.fault("cancel", "create_then_hang")
    code, out, errors = killed_in_the_middle(world, ("reconcile", event, "--json"), "cancel")
    assert_equal((code, [json.loads(line)["result"] for line in out.splitlines()]), (1, ["orphan_cancelled"]),
                 "result: " + errors)
    assert_equal((len(actions(world)), [card["status"] for card in world.sandbox.cards()]), (1, ["cancelled"]), "once")


@alone
@slow
@test(issuer__settle_time=SETTLE)
def a_worker_that_drains_gives_its_marks_back(world):
    world.up()
    event = failed(world, "handed over")
    world.sandbox.fault("lookup", "hang", count=1)
    done = ctl_started(world, "reconcile", event, "--json")
    wait_until(lambda: world.sandbox.calls("lookup"), "the call is out")
    begun = time.monotonic()
    assert_equal(world.workers()[0].stop(), 0, "exit status")
    assert_true(time.monotonic() - begun < world.call_limit(), "in time")
    wait_until(lambda: world.sql("SELECT count(*) FROM marks WHERE lease_token IS NOT NULL") == "0", "given back")
    world.start_worker()
    out, errors = done.communicate(timeout=harness.STUCK_AFTER_S)
    assert_equal((done.returncode, json.loads(out)["result"]), (0, "not_found"), errors)


@slow
@test(issuer__settle_time=SETTLE)
def a_command_that_is_interrupted_says_what_becomes_of_its_marks(world):
    world.up()
    event, other = failed(world, "stopped"), failed(world, "kept")
    world.sandbox.fault("lookup", "status", status=503)
    for words, left in ((("reissue", event, "--reason", "x", "--confirm"), "withdrawn"),
                        (("reconcile", other), "undecided")):
        done = ctl_started(world, *words)
        wait_until(lambda: world.sql("SELECT count(*) FROM marks WHERE finished_at IS NULL") != "0", "the mark")
        done.send_signal(signal.SIGINT)
        _, errors = done.communicate(timeout=harness.STUCK_AFTER_S)
        assert_equal((done.returncode, "stopped" in errors), (1, True), errors)
    assert_equal(world.sql("SELECT string_agg(coalesce(result, 'open'), ' ' ORDER BY id) FROM marks"),
                 "withdrawn open", "marks")
    world.sandbox.clear()
    wait_until(lambda: world.sql("SELECT count(*) FROM marks WHERE finished_at IS NULL") == "0",
               "a worker finishes the other one")
    assert_equal((world.status(event), world.status(other)), ("FAILED", "FAILED"), "unchanged")


@core
@slow
@test(issuer__settle_time=SETTLE)
def a_worker_may_request_a_look_up_itself(world):
    """Story: a create was answered after the lease was lost; the event was REJECTED by another worker meanwhile."""
    world.up()
    event = failed(world, "late", status="REJECTED", reason="user_blocked")
    made(world, event, "late")
    report = "SELECT issuing.add_mark('%s', 'a create was answered after its lease was lost')" % event
    with world.holding("LOCK TABLE outbox_attempts IN SHARE MODE"):
        assert_equal(world.sql(report, "issuing_worker"), "t", "a mark")
    wait_until(lambda: world.sql("SELECT result FROM marks") == "orphan_cancelled", "the mark's result")
    row = actions(world, event)[0]
    assert_equal((row["actor"], row["db_role"], row["after"]["result"]),
                 ("worker", "issuing_worker", "orphan_cancelled"), "on record")
    assert_equal([card["status"] for card in world.sandbox.cards()], ["cancelled"], "at the issuer")
    assert_equal(world.sql("SELECT issuing.add_mark('%s', 'x')" % UNKNOWN_ID, "issuing_worker"), "f", "no such event")


@slow
@test(issuer__settle_time=SETTLE, breaker__failures="2")
def a_look_up_goes_through_an_open_breaker_now_and_then_and_does_not_close_it(world):
    """Stories: with no event to probe with, an open breaker kept every mark waiting for ever; and look-ups that went
    well closed it again and again, and events used their attempts up while creates were failing."""
    world.up()
    events = [failed(world, "calm%d" % number) for number in range(3)]
    world.sandbox.fault("create", "status", status=503)
    trips = world.accept("trips")
    state = 'issuing_breaker_state{target="issuer"}'
    wait_until(lambda: world.workers()[0].metric(state) == 2.0, "the breaker is open")
    wait_until(lambda: world.sql("UPDATE outbox_events SET next_attempt_at = now() + interval '1 hour' WHERE id ="
                                 " '%s' AND status = 'PENDING'"
                                 " RETURNING id" % trips), "no event is due")
    creates = len(world.sandbox.calls("create"))
    assert_equal(results(world.ctl("reconcile", *events, "--json"), 0), {event: "not_found" for event in events},
                 "results")
    assert_equal(world.workers()[0].metric(state), 2.0, "the breaker")
    assert_equal(len(world.sandbox.calls("create")), creates, "creates")
    world.sandbox.clear()
    world.sql("UPDATE outbox_events SET next_attempt_at = now() WHERE id = '%s'" % trips)
    world.settle()
    assert_equal(world.status(trips), "COMPLETED", "afterwards")


@slow
@test(issuer__settle_time=SETTLE, core__on_link_refused="keep")
def a_stored_card_that_the_issuer_cancelled_ends_its_event(world):
    """Whether core-api has the link is unknown: core-api gets an unlink of the card before the end is
    written."""
    world.up()
    world.sandbox.fault("link", "link_refused", user="carol", count=1)
    request = world.accept("carol")
    world.wait_status(request, "FAILED")
    assert_equal(results(world.ctl("reconcile", "--user", "carol", "--json"), 0), {},
                 "no unknown outcome, so not among all")
    cancelled(world, world.row("SELECT issuer_card_id FROM cards")["issuer_card_id"])
    assert_equal(results(world.ctl("reconcile", request, "--json"), 0), {request: "cancelled_at_issuer"}, "result")
    event = world.event(request)
    assert_equal((event["status"], event["reason_code"]), ("REJECTED", "card_cancelled"), "the event")
    assert_equal([card["status"] for card in world.get("carol", "/v1/cards").json()["items"]], ["cancelled"],
                 "the card in the api")
    shown = world.get("carol", "/v1/card-requests/" + request).json()
    assert_equal(shown["reason"], {"code": "card_cancelled", "detail": "The card was cancelled by the issuer."},
                 "what the client sees")
