"""Each request ends as one card, one refusal or one question, also when clocks step while a call is under way, and when
a call arrives after its caller has given up.

Story: a create times out, the user is blocked a moment later, the look-up finds nothing, and the request is REJECTED;
then the create arrives and makes a card that no system knows of. Or the clock of the database is set back during the
create: its age is negative, "nothing was sent" is read from that, and no look-up is made at all.
After each story the invariants compare every end with what the issuer and core-api have, late calls included.
"""
import signal

import time

from harness import assert_equal, assert_true, core, slow, test, wait_until

SHORT = {"issuer__timeout": "300ms", "issuer__settle_time": "1500ms", "core__timeout": "300ms",
         "worker__lease": "1500ms",
         "issuer__key_lifetime": "1h", "retry__max_attempts": "4"}
HOURS = 2 * 3600
REBASES_OF_A_START = 2 * 4  # of the events of clients and of services; worker/flow/sweep.c repeats each three times
LATE_MS = 900  # longer than a timeout and a retry, shorter than the settling time


def creates(world, request):
    return len(world.sandbox.calls("create", reference=request))


def lookups(world, request):
    return len(world.sandbox.calls("lookup", reference=request))


def block(world, user):
    world.sandbox.fault("check", "ineligible", user=user, code="user_blocked")


def end_of(world, request, seconds=40):
    event = world.wait_status(request, "COMPLETED", "REJECTED", "FAILED", seconds=seconds)
    return event["status"], event["reason_code"]


def ineligible_after_a_late_create(world, user="alice"):
    world.sandbox.fault("create", "hang_then_execute", user=user, count=1, late_ms=LATE_MS)
    request = world.accept(user)
    wait_until(lambda: creates(world, request) == 1, "the create is under way")
    block(world, user)
    return request


@core
@slow
@test(**SHORT)
def a_user_who_is_blocked_while_a_create_is_late_gets_no_card(world):
    world.up()
    request = ineligible_after_a_late_create(world)
    assert_equal(end_of(world, request), ("REJECTED", "user_blocked"), "the end")
    assert_true(lookups(world, request) >= 2, "the first look-up decided nothing")
    assert_equal([card["status"] for card in world.sandbox.cards(reference=request)], ["cancelled"], "the late card")


@slow
@test(**SHORT)
def a_create_that_never_arrives_holds_its_refusal_back_for_the_settling_time_only(world):
    world.up()
    world.sandbox.fault("create", "hang", user="alice", count=1)
    request = world.accept("alice")
    wait_until(lambda: creates(world, request) == 1, "the create is under way")
    block(world, "alice")
    assert_equal(end_of(world, request), ("REJECTED", "user_blocked"), "the end")
    assert_equal(creates(world, request), 1, "creates")
    assert_equal(world.sandbox.cards(reference=request), [], "cards")


@slow
@test(**SHORT)
def a_refusal_behind_a_late_create_cancels_what_arrives(world):
    world.up()
    world.sandbox.fault("create", "hang_then_execute", user="alice", count=1, late_ms=LATE_MS)
    world.sandbox.fault("create", "status", user="alice", status=422, code="bin_closed")
    request = world.accept("alice")
    status, code = end_of(world, request)
    assert_true((status, code) in (("COMPLETED", None), ("REJECTED", "bin_closed")), "the end: %s %s" % (status, code))
    assert_equal(creates(world, request), 2, "creates: none is sent while the refusal waits")


@slow
@test(**SHORT)
def used_up_attempts_do_not_end_before_the_last_create_can_have_arrived(world):
    world.up()
    world.sandbox.fault("create", "hang", user="alice", count=3)
    world.sandbox.fault("create", "hang_then_execute", user="alice", late_ms=LATE_MS)
    world.sandbox.fault("create", "hang", user="bob")
    with world.others():  # else it would be an outage, which ends nothing
        requests = [world.accept(user) for user in ("alice", "bob")]
        assert_equal(end_of(world, requests[0]), ("COMPLETED", None), "the late card is found")
        assert_equal(end_of(world, requests[1]), ("FAILED", "attempts_exhausted"), "nothing arrived")
    assert_equal([creates(world, request) for request in requests], [4, 4], "creates: none after the last attempt")


@core
@slow
@test(**{**SHORT, "issuer__key_lifetime": "4s", "retry__max_attempts": "100", "retry__cap": "300ms"})
def no_create_is_sent_so_late_that_it_could_arrive_after_its_key(world):
    """The margin before the key's end is at least the settling time: a create that is late still meets its key."""
    world.up(sandbox=("--key-lifetime", "4s"))
    world.sandbox.fault("create", "hang_then_execute", user="alice", late_ms=1400)
    request = world.accept("alice")
    assert_equal(end_of(world, request), ("COMPLETED", None), "the end")
    world.sandbox.wait_late()
    assert_equal(len(world.sandbox.cards(reference=request)), 1, "cards")


@slow
@test(**SHORT)
def a_link_that_arrives_after_its_card_was_cancelled_is_not_executed(world):
    world.up()
    world.sandbox.fault("link", "hang_then_execute", user="alice", count=1, late_ms=2500)
    world.sandbox.fault("link", "status", user="alice", status=422, code="account_closed")
    request = world.accept("alice")
    assert_equal(end_of(world, request), ("REJECTED", "account_closed"), "the end")
    assert_equal(len(world.sandbox.calls("unlink")), 1, "core-api got an unlink")
    world.sandbox.wait_late()
    assert_equal(world.sandbox.ledger()["links"], [], "links")


@test(**SHORT)
def an_unlink_is_repeated_until_core_api_has_taken_it(world):
    world.up()
    world.sandbox.fault("link", "execute_then_status", user="alice", count=1, status=500)
    world.sandbox.fault("link", "status", user="alice", status=422, code="account_closed")
    world.sandbox.faults([{"target": "core", "call": "unlink", "fault": kind, "count": 1, **more} for kind, more in (
        ("status", {"status": 500}), ("drop", {}), ("status", {"status": 429}))])
    request = world.accept("alice")
    assert_equal(end_of(world, request), ("REJECTED", "account_closed"), "the end")
    assert_equal(len(world.sandbox.calls("unlink")), 4, "unlinks")
    assert_equal(world.sandbox.ledger()["links"], [], "links")


@core
@slow
@test(**{**SHORT, "issuer__timeout": "2s", "issuer__settle_time": "4s", "worker__lease": "6s"})
def a_clock_set_back_during_a_create_leaves_it_known(world):
    clock = world.clocked_database()
    world.up()
    world.sandbox.fault("create", "create_then_hang", user="alice", count=1)
    request = world.accept("alice")
    wait_until(lambda: creates(world, request) == 1, "the create is under way")
    clock.step(-HOURS)
    block(world, "alice")
    assert_equal(end_of(world, request, 60), ("REJECTED", "user_blocked"), "the end")
    assert_true(lookups(world, request) >= 1, "it was looked up")
    assert_equal([card["status"] for card in world.sandbox.cards(reference=request)], ["cancelled"], "the card")


@slow
@test(**{**SHORT, "issuer__key_lifetime": "6s", "retry__max_attempts": "1000"})
def a_clock_set_back_during_an_outage_makes_no_second_card(world):
    """The issuer has forgotten the key when it is back: what may have been sent is looked up, whatever the clock
    says."""
    clock = world.clocked_database()
    world.up(sandbox=("--key-lifetime", "6s"))
    world.sandbox.fault("create", "create_then_hang", user="alice", count=1)
    request = world.accept("alice")
    wait_until(lambda: creates(world, request) == 1, "the create is under way")
    clock.step(-20)
    world.sandbox.down()
    wait_until(lambda: world.event(request)["last_error"], "an attempt that found no issuer")
    assert_true(world.event(request)["first_sent_at"] is not None, "the send is known")
    clock.step(27)  # the key is over
    wait_until(lambda: world.event(request)["last_error"].startswith("lookup"), "an attempt has the time of now")
    world.sandbox.advance(7000)  # the issuer forgets its keys
    world.sandbox.down(down=False)
    assert_equal(end_of(world, request, 60), ("COMPLETED", None), "the end")
    assert_equal(len(world.sandbox.cards(reference=request)), 1, "cards")


@slow
@test(**{**SHORT, "issuer__key_lifetime": "12s", "retry__max_attempts": "1000", "breaker__failures": "1",
         "breaker__probe_interval": "10s"})
def a_clock_set_back_while_an_event_waits_for_long_prolongs_no_key(world):
    """Nothing writes the row while the breaker is open, so nothing in it shows that the clock was set back: by the
    database the send is young, at the issuer its key is forgotten. The event's id shows how old the key can be."""
    clock = world.clocked_database()
    world.up(sandbox=("--key-lifetime", "12s"))
    world.sandbox.fault("create", "create_then_hang", count=2)
    requests = [world.accept(user) for user in ("alice", "bob")]
    wait_until(lambda: all(world.event(request)["last_error"] for request in requests), "both creates have timed out")
    made = time.monotonic()
    world.sandbox.down()
    for _ in range(4):
        time.sleep(6.5)
        clock.step(-6)
    world.sandbox.down(down=False)
    world.wait_final(requests, 60)
    assert_true(time.monotonic() - made > 12, "the keys are over")
    assert_equal([world.status(request) for request in requests], ["COMPLETED"] * 2, "ends")
    assert_equal([len(world.sandbox.cards(reference=request)) for request in requests], [1, 1], "cards")


@slow
@test(**SHORT)
def a_clock_set_forward_does_not_end_the_settling_time(world):
    clock = world.clocked_database()
    world.up()
    request = ineligible_after_a_late_create(world)
    clock.step(HOURS)
    assert_equal(end_of(world, request, 60)[0], "REJECTED", "the end")
    assert_equal([card["status"] for card in world.sandbox.cards(reference=request)], ["cancelled"], "the late card")


@slow
@test(**SHORT)
def a_clock_set_back_before_a_replay_leaves_the_send_known(world):
    clock = world.clocked_database()
    world.up()
    world.sandbox.fault("create", "create_then_hang", user="alice")
    world.sandbox.fault("lookup", "answer", user="alice", body='{"cards":[]}')
    with world.others():
        request = world.accept("alice")
        assert_equal(end_of(world, request), ("FAILED", "attempts_exhausted"), "an issuer whose look-up is wrong")
    world.sandbox.clear()
    block(world, "alice")
    clock.step(-HOURS)
    assert_equal(world.ctl("replay", request, "--reason", "the look-up is right now").returncode, 0, "replay")
    assert_equal(end_of(world, request, 60), ("REJECTED", "user_blocked"), "the end")
    assert_equal([card["status"] for card in world.sandbox.cards(reference=request)], ["cancelled"], "the card")


@slow
@test(**SHORT)
def what_a_clock_that_was_ahead_has_written_does_not_wait_for_it(world):
    clock = world.clocked_database()
    clock.step(HOURS)
    world.sql("ALTER ROLE issuing_worker IN DATABASE %s SET log_statement = 'all'" % world.database)
    log = world.suite.clocked / "log"
    before = log.read_text(errors="replace").count("WITH ahead AS")
    world.up()
    wait_until(lambda: log.read_text(errors="replace").count("WITH ahead AS") >= before + REBASES_OF_A_START,
               "the rebases of the start are over: no other answers the step")
    world.sandbox.down()
    request = world.accept("alice")
    wait_until(lambda: world.event(request)["last_error"], "an attempt, by the clock that is ahead")
    held = world.accept("bob")
    clock.step(-HOURS)
    world.sandbox.down(down=False)
    for one in (request, held):
        assert_equal(end_of(world, one), ("COMPLETED", None), "the end")


@slow
@test(**SHORT)
def a_lease_of_a_clock_that_was_ahead_is_taken_over_in_time(world):
    clock = world.clocked_database()
    clock.step(HOURS)
    world.up(workers=0)
    worker = world.start_worker()
    world.sandbox.fault("create", "hang", user="alice", count=1)
    request = world.accept("alice")
    wait_until(lambda: creates(world, request) == 1, "the create is under way")
    worker.kill()
    clock.step(-HOURS)
    world.start_worker()
    assert_equal(end_of(world, request), ("COMPLETED", None), "the end")


@slow
@test(**{**SHORT, "issuer__timeout": "2s", "issuer__settle_time": "4s", "worker__lease": "6s",
         "issuer__max_concurrency": "1"})
def a_worker_whose_machine_was_suspended_sends_nothing_of_before(world):
    """It waits for its turn at the issuer; the machine sleeps for hours; the lease is long over when the turn comes."""
    world.up(workers=0)
    worker = world.start_worker(clock=world.clock("worker"))
    world.sandbox.fault("create", "hang", user="alice", count=1)
    first = world.accept("alice")
    wait_until(lambda: creates(world, first) == 1, "the only place at the issuer is taken")
    second = world.accept("bob")
    wait_until(lambda: len(world.sandbox.calls("check", user="bob")) == 1, "core-api was called for the second")
    worker.clock.sleep(HOURS)
    block(world, "bob")
    assert_equal(end_of(world, second, 60), ("REJECTED", "user_blocked"), "the end")
    assert_equal(creates(world, second), 0, "creates of what was checked before the sleep")
    assert_equal(end_of(world, first, 60), ("COMPLETED", None), "the first")


@slow
@test(**{**SHORT, "issuer__key_lifetime": "4s", "retry__max_attempts": "2"})
def an_unreadable_look_up_ends_as_a_question(world):
    world.up()
    world.sandbox.fault("create", "create_then_hang", user="alice")
    world.sandbox.fault("lookup", "answer", user="alice", body='{"cards":[{"id":"x","status":"pending_activation"}]}')
    request = world.accept("alice")
    assert_equal(end_of(world, request, 60), ("FAILED", "outcome_unknown"), "the end")
    world.sandbox.clear()
    assert_equal(world.ctl("replay", request, "--reason", "it can be read now").returncode, 0, "replay")
    assert_equal(end_of(world, request), ("COMPLETED", None), "a replay looks it up again")
    assert_equal(creates(world, request), 2, "creates: none after the key's lifetime")


@slow
@test(**{**SHORT, "retry__max_attempts": "3"})
def a_worker_that_dies_takes_no_attempts_of_its_events_along(world):
    world.up(workers=0)
    world.sandbox.fault("check", "hang")
    requests = [world.accept("user-%d" % i) for i in range(20)]
    for _ in range(4):
        worker = world.start_worker()
        wait_until(lambda: world.sql("SELECT count(*) FROM outbox_events WHERE status = 'PROCESSING'") != "0", "claims")
        worker.kill()
        world.sql("UPDATE outbox_events SET lease_until = now() - interval '1 second', next_attempt_at = now() WHERE"
                  " status = 'PROCESSING'")
    world.sandbox.clear()
    world.start_worker()
    world.settle(60)
    assert_equal({world.status(request) for request in requests}, {"COMPLETED"}, "ends")


@core
@slow
@test(**{**SHORT, "worker__lease": "1300ms"})
def an_event_that_kills_its_worker_does_not_take_its_neighbours_along(world):
    """The worker dies whenever the issuer sees the poisonous event. It ends as a question; the others get their
    cards."""
    world.up(workers=0)
    world.sandbox.fault("create", "create_then_hang", user="poison")
    world.sandbox.fault("lookup", "hang", user="poison")
    poison = world.accept("poison")
    others = [world.accept("user-%d" % i) for i in range(6)]
    seen = 0
    while world.status(poison) != "FAILED":
        worker = world.start_worker()
        wait_until(lambda: world.status(poison) == "FAILED" or
                   creates(world, poison) + lookups(world, poison) > seen, "the poison is met, or has ended", 60)
        worker.kill()
        seen = creates(world, poison) + lookups(world, poison)
    world.start_worker()
    for request in others:
        assert_equal(end_of(world, request), ("COMPLETED", None), "a neighbour")
    assert_equal(world.event(poison)["reason_code"], "worker_lost", "the poison")
    assert_equal(len(world.sandbox.cards(reference=poison)), 1, "its card is there: a question for a person")


@slow
@test(**SHORT)
def a_create_of_a_worker_that_stood_still_leaves_no_card_behind_a_refusal(world):
    """The worker is stopped while its create is on the way, and for longer than its lease. Another one finds nothing,
    waits for the settling time and ends the request: the user is blocked. Only then does the create arrive. The stopped
    worker, back again, is the only one who knows that it was sent."""
    world.up(workers=0)
    stopped = world.start_worker()
    world.sandbox.fault("create", "hang_then_execute", user="alice", count=1, late_ms=3600 * 1000)
    request = world.accept("alice")
    wait_until(lambda: creates(world, request) == 1, "the create is under way")
    stopped.signal(signal.SIGSTOP)
    block(world, "alice")
    world.start_worker()
    assert_equal(end_of(world, request), ("REJECTED", "user_blocked"), "the end")
    assert_equal((world.sandbox.cards(reference=request), creates(world, request)), ([], 1), "cards and creates so far")
    assert_equal(world.sandbox.run_late(), 1, "the create arrives")
    assert_equal([card["status"] for card in world.sandbox.cards(reference=request)], ["active"],
                 "a card that no system knows of")
    stopped.signal(signal.SIGCONT)
    wait_until(lambda: [card["status"] for card in world.sandbox.cards(reference=request)] == ["cancelled"],
               "it is cancelled")
    wait_until(lambda: world.sql("SELECT result FROM marks WHERE event_id = '%s'" %
                                 request) == "orphan_cancelled", "the mark")
    assert_equal(world.status(request), "REJECTED", "the end stays")


@test(**SHORT)
def an_event_that_no_worker_can_claim_alone_does_not_hold_the_others_back(world):
    world.up(workers=0)
    poison = world.accept("poison")
    world.sql("UPDATE outbox_events SET lost_count = 3; INSERT INTO issuing.lost_events SELECT id FROM outbox_events;"
              " CREATE FUNCTION issuing.broken() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'broken'; END $$;"
              " CREATE TRIGGER broken BEFORE UPDATE ON issuing.outbox_events FOR EACH ROW WHEN (OLD.lost_count > 1)"
              " EXECUTE FUNCTION issuing.broken()")
    worker = world.start_worker()
    wait_until(lambda: "a claim failed" in worker.text(), "a claim that fails")
    for number in range(3):
        world.issue("user-%d" % number)
    # Replaced, since DROP TRIGGER locks the partitions first and meets claims in a deadlock.
    world.sql("CREATE OR REPLACE FUNCTION issuing.broken() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END"
              " $$")
    assert_equal(end_of(world, poison), ("COMPLETED", None), "it was none")


@slow
@test(**{**SHORT, "issuer__timeout": "2s", "issuer__settle_time": "4s", "worker__lease": "6s",
         "issuer__max_concurrency": "1"})
def a_worker_whose_clock_was_set_sends_no_create_of_before(world):
    """The worker cannot know which of its clocks is right: the attempt is given back, and repeated."""
    world.up(workers=0)
    worker = world.start_worker(clock=world.clock("worker"))
    world.sandbox.fault("create", "hang", user="alice", count=1)
    first = world.accept("alice")
    wait_until(lambda: creates(world, first) == 1, "the only place at the issuer is taken")
    second = world.accept("bob")
    wait_until(lambda: len(world.sandbox.calls("check", user="bob")) == 1, "core-api was called for the second")
    worker.clock.step(-HOURS)
    for request in (first, second):
        assert_equal(end_of(world, request, 60), ("COMPLETED", None), "the end")
    assert_equal(len(world.sandbox.calls("check", user="bob")), 2, "core-api was called anew")
    assert_equal(creates(world, second), 1, "creates")


@slow
@test(**SHORT)
def a_late_create_that_cannot_be_reported_any_more_is_logged(world):
    """As with the worker that stood still, but the database refuses its mark until it gets SIGTERM."""
    world.up(workers=0)
    stopped = world.start_worker()
    world.sandbox.fault("create", "hang", user="alice", count=1)
    request = world.accept("alice")
    wait_until(lambda: creates(world, request) == 1, "the create is under way")
    stopped.signal(signal.SIGSTOP)
    block(world, "alice")
    world.start_worker()
    assert_equal(end_of(world, request), ("REJECTED", "user_blocked"), "the end")
    world.sql("REVOKE EXECUTE ON FUNCTION issuing.add_mark(uuid, text) FROM issuing_worker")
    stopped.signal(signal.SIGCONT)
    wait_until(lambda: "the lease was lost" in stopped.text(), "it learns that it was replaced")
    assert_equal(stopped.stop(), 0, "exit status")
    lines = [line for line in stopped.text().splitlines() if "could not be noted" in line]
    assert_true(len(lines) == 1 and request in lines[0], "lines: %s" % lines)
    world.sql("GRANT EXECUTE ON FUNCTION issuing.add_mark(uuid, text) TO issuing_worker")
