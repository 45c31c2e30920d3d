"""An event belongs to the issuer that it was first sent to.

Story: a create was lost, and the worker was restarted with another issuer.profile or issuer.url. It looked the event up
there, found nothing, and made a second card: one live card at each issuer, and nobody was told.

The second issuer is the same sandbox under another name, so what is sent to it can be counted.
"""
import signal

from harness import assert_equal, assert_true, slow, test, wait_until
from operators import lines

QUICK = {"issuer__timeout": "400ms", "core__timeout": "400ms", "worker__lease": "2s", "issuer__settle_time": "1s"}


def other_url(world):
    return world.settings["issuer.url"].replace("127.0.0.1", "localhost")


def deferred(world, event):
    """Its row between two attempts: a claim writes first_sent_at before the worker knows what it will do."""
    def between():
        row = world.event(event)
        return row["status"] == "PENDING" and "other_issuer" in (row["last_error"] or "") and row
    return wait_until(between, "it is deferred")


def calls(world):
    return [(call["call"], call["user"]) for call in world.sandbox.calls() if call["call"] not in ("check", "link")]


def sent(world, users):
    """Their events, each of which the one worker that is awake has sent to its issuer."""
    events = [world.accept(user) for user in users]
    wait_until(lambda: all(world.event(event)["sent_to"] for event in events), "all are sent")
    return events


def start_unknown(world, user):
    """An event whose create was executed and never answered, and whose worker is dead."""
    world.sandbox.fault("create", "create_then_hang", user=user)
    event = world.accept(user)
    wait_until(lambda: world.sandbox.cards(user=user), "the card is made")
    world.workers()[0].kill()
    world.sandbox.clear()
    return event


@slow
@test(**QUICK)
def under_another_issuer_nothing_is_sent_looked_up_or_decided_until_it_is_adopted(world):
    world.up()
    event = start_unknown(world, "alice")
    before = calls(world)
    for other in ({"issuer__url": other_url(world)}, {"issuer__profile": "lithic"}):
        worker = world.start_worker(**other)
        deferred(world, event)
        wait_until(lambda: worker.metric('issuing_deferrals_total{reason="other_issuer"}') >= 2, "it is deferred again")
        assert_equal(calls(world), before, "calls")
        assert_equal(world.event(event)["issuer_parameters"], None, "parameters of this issuer")
        assert_equal(worker.stop(), 0, "exit status")
    world.sandbox.fault("check", "ineligible", user="alice")  # core-api's word decides nothing either
    worker = world.start_worker(issuer__url=other_url(world))
    story = lines(world.ctl("explain", event, "--json"))[0]
    assert_equal(story["next"]["action"], "operator", "explain")
    assert_true("belongs to generic at %s" % world.settings["issuer.url"] in story["next"]["why"], story["next"])
    found = [row for row in lines(world.ctl("doctor", "--json"), 1) if row["check"] == "issuer"]
    assert_true(len(found) == 1 and "belongs to generic at %s, and workers spoke to generic at %s last" % (
        world.settings["issuer.url"], other_url(world)) in found[0]["found"], "doctor: %r" % found)
    refused = world.ctl("adopt", event, "--reason", "x")
    assert_true(refused.returncode == 1 and "--issuer ADDRESS" in refused.stdout, refused.stdout)
    assert_equal(world.ctl("adopt", event).returncode, 2, "without a reason")
    assert_equal((calls(world), world.event(event)["status"] in ("PENDING", "PROCESSING")), (before, True), "nothing yet")
    world.sandbox.clear()

    def adopted():
        return world.ctl("adopt", event, "--issuer", other_url(world), "--reason", "it moved").returncode == 0
    wait_until(adopted, "no worker holds it")
    world.wait_status(event, "COMPLETED")
    assert_equal(calls(world)[len(before):], [("lookup", "alice")], "it is looked up, and nothing is sent")
    assert_equal(len(world.sandbox.cards(user="alice")), 1, "cards")
    row = world.row("SELECT * FROM operator_actions WHERE action = 'adopt'")
    assert_equal((row["reason"], row["after"]["from"]["address"], row["after"]["to"]["address"]),
                 ("it moved", world.settings["issuer.url"], other_url(world)), "on record")
    assert_equal(world.ctl("adopt", event, "--reason", "again").returncode, 1, "a second time")


@slow
@test(**QUICK)
def another_path_or_account_of_one_address_is_another_issuer(world):
    """A gateway that serves several issuers, a vendor whose test mode has the address of the live one: a look-up there
    finds no card, and a create makes another one. How an address is written makes no other issuer."""
    world.up()
    event = start_unknown(world, "alice")
    before, url = calls(world), world.settings["issuer.url"]
    for other in ({"issuer__url": url + "/eu"}, {"issuer__account": "live"}):
        worker = world.start_worker(**other)
        deferred(world, event)
        wait_until(lambda: worker.metric('issuing_deferrals_total{reason="other_issuer"}') >= 2, "it is deferred again")
        assert_equal(calls(world), before, "calls")
        why = lines(world.ctl("explain", event, "--json"))[0]["next"]["why"]
        present = "generic at " + (url + "/eu" if "issuer__url" in other else url + " account live")
        assert_true("belongs to generic at %s, " % url in why and present in why, why)
        assert_equal(worker.stop(), 0, "exit status")
    world.start_worker(issuer__url=url.replace("http", "HTTP") + "/")
    world.wait_status(event, "COMPLETED")
    assert_equal(len(world.sandbox.cards(user="alice")), 1, "cards")
    assert_equal(world.sql("SELECT string_agg(address, ', ' ORDER BY id) FROM issuers"),
                 ", ".join((url, url + "/eu", url + " account live")), "issuers")


@slow
@test(**QUICK)
def two_workers_with_two_issuers_each_end_what_they_have_begun(world):
    """A rolling change, or one that was forgotten half-way."""
    world.up()
    first, users = world.workers()[0], ["user-%d" % number for number in range(24)]
    for user in users:
        world.sandbox.fault("create", "execute_then_status", user=user, count=2, status=503)
    events = sent(world, users[:12])
    first.signal(signal.SIGSTOP)
    world.start_worker(issuer__url=other_url(world))
    events += sent(world, users[12:])
    first.signal(signal.SIGCONT)
    world.wait_final(events, 60)
    assert_equal(world.sql("SELECT count(*) FROM outbox_events WHERE status <> 'COMPLETED'"), "0", "ends")
    assert_equal(len(world.sandbox.cards()), len(users), "cards")
    assert_equal(world.sql("SELECT count(*) FROM (SELECT event_id FROM outbox_attempts WHERE code IS DISTINCT FROM"
                           " 'other_issuer' GROUP BY event_id HAVING count(DISTINCT worker) > 1) AS e"), "0",
                 "events that two issuers were asked about")
    assert_equal(world.sql("SELECT count(DISTINCT sent_to) FROM outbox_events"), "2", "issuers")


@slow
@test(**QUICK)
def a_card_is_replaced_at_the_issuer_that_made_it(world):
    """The id of the old issuer's card means nothing to the new one, or another card."""
    world.up()
    card = world.issue("alice")["card"]["id"]
    assert_equal(world.workers()[0].stop(), 0, "exit status")
    before = calls(world)
    world.start_worker(issuer__url=other_url(world))
    event = world.accept("alice", "again", {"kind": "reissue", "replaces": card})
    assert_equal(deferred(world, event)["first_sent_at"], None, "nothing was sent")
    assert_equal(world.issue("bob")["status"], "COMPLETED", "a new card")
    assert_equal(calls(world), before + [("create", "bob")], "calls")

    def completed():
        world.ctl("adopt", "--user", "alice", "--issuer", other_url(world), "--reason", "it moved", "--limit", "9")
        return world.status(event) == "COMPLETED"
    wait_until(completed, "the new card", every=0.2)
    assert_equal(world.get("alice", "/v1/cards/" + card).json()["status"], "replaced", "the old card")


@slow
@test(retry__max_attempts="1", **QUICK)
def an_operators_mark_does_not_look_up_at_another_issuer(world):
    world.up()
    world.sandbox.fault("create", "status", user="alice", status=418)
    world.sandbox.fault("create", "execute_then_status", user="bob", status=503)
    world.sandbox.fault("lookup", "status", user="bob", status=500)
    done = world.issue("carol")["id"]
    failed = world.accept("alice")
    world.wait_status(failed, "FAILED")
    assert_equal(world.workers()[0].stop(), 0, "exit status")
    before = calls(world)
    world.sql("UPDATE outbox_events SET sent_to = 1 WHERE id = '%s'" % failed)  # as if something had been sent
    world.start_worker(issuer__url=other_url(world))
    for event in (done, failed):
        told = lines(world.ctl("reconcile", event, "--reason", "x", "--json"), 1)[0]
        assert_equal(told["result"], "other_issuer", "reconcile: %r" % told)
    refused = world.ctl("reissue", failed, "--confirm", "--reason", "x")
    assert_true(refused.returncode == 1 and "another issuer" in refused.stdout + refused.stderr, refused.stderr)
    assert_equal(calls(world), before, "calls")
