"""reconcile --from-issuer: the issuer's own list of its cards beside ours.

Story: the database was restored from a backup of the morning. Requests of the afternoon were missing with their keys,
the issuer had their cards, and every command here said that all is well.
"""
import json

import harness
from harness import assert_equal, assert_true, slow, test, those, wait_until
from operators import lines, UNKNOWN_ID
from reconciling import cancelled, ctl_started, failed, made, SETTLE

LISTS = those(lambda issuer: issuer.profile in ("generic", "stripe", "lithic", "increase"))
NO_LISTS = those(lambda issuer: issuer.profile in ("marqeta", "adyen"))


def asked(world, code, *words, since="1h"):
    """The questions, and the last line."""
    rows = lines(world.ctl("reconcile", "--from-issuer", "--since", since, "--json", *words), code)
    return {(row["id"], row["result"]) for row in rows[:-1]}, rows[-1]


def restored(world, *requests):
    """The rows of these requests are those of a backup from before them: there are none."""
    named = ", ".join("'%s'" % request for request in requests)
    for table, column in (("cards", "request_id"), ("outbox_events", "id"), ("idempotency_keys", "event_id"),
                          ("outbox_attempts", "event_id"), ("end_notifications", "ids[1]")):
        world.sql("DELETE FROM %s WHERE %s IN (%s)" % (table, column, named))
    world.allowed |= {"orphan", "rejected_card"}


def older(world):
    """Moves the events back in time: what has just changed is not compared."""
    world.sql("UPDATE cards SET created_at = created_at - interval '1 min'")
    world.sql("UPDATE outbox_events SET updated_at = updated_at - interval '1 min'")


def state(world):
    """Everything that the comparison must leave alone."""
    return (world.sql("SELECT md5(string_agg(e::text, ' ' ORDER BY e.id)) FROM outbox_events e"),
            world.sql("SELECT md5(string_agg(c::text, ' ' ORDER BY c.id)) FROM cards c"),
            [(card["id"], card["status"]) for card in world.sandbox.cards()])


@test(issuer__settle_time=SETTLE)
def after_a_restore_the_issuers_cards_without_an_event_are_found(world):
    world.up()
    for user in ("kept", "lost", "unsent", "other"):
        world.issue(user)
    lost, unsent, other = (world.sql("SELECT id FROM outbox_events WHERE user_id = '%s'" % user)
                           for user in ("lost", "unsent", "other"))
    assert_equal(asked(world, 0)[1]["counts"], {"ok": 4}, "all is well")
    assert_equal(world.ctl("pause", "core", "--reason", "restore").returncode, 0, "nothing is sent from here on")
    refused, asks, closed = (failed(world, user, status=status) for user, status in
                             (("refused", "REJECTED"), ("asks", "FAILED"), ("closed", "REJECTED")))
    made(world, refused, "refused"), made(world, asks, "asks"), made(world, "not-an-event-id", "stranger", key="foreign")
    cancelled(world, made(world, closed, "closed"))
    restored(world, lost)
    world.sql("DELETE FROM cards WHERE request_id = '%s'" % unsent)
    world.sql("UPDATE outbox_events SET status = 'PENDING', first_sent_at = NULL, completed_at = NULL,"
              " next_attempt_at = now() WHERE id = '%s'" % unsent)
    world.sql("UPDATE cards SET issuer_card_id = 'ic_nobody' WHERE request_id = '%s'" % other)
    older(world)
    before = state(world)
    creates = len(world.sandbox.calls("create"))
    found, end = asked(world, 1, "--reason", "INC-7")
    assert_equal(found, {(lost, "no_event"), (unsent, "unsent"), (refused, "rejected"), (asks, "failed"),
                         (other, "other_card"), (other, "not_listed")}, "questions: %r" % end)
    assert_equal((end["is_whole"], end["questions"], end["cards"], end["counts"]["closed"], end["counts"]["foreign"],
                  end["counts"]["ok"]), (True, 6, 8, 1, 1, 1), "the end: %r" % end)
    assert_equal((state(world), len(world.sandbox.calls("create"))), (before, creates), "nothing is changed")
    assert_equal(world.sql("SELECT count(*) FROM operator_actions WHERE action = 'list_issuer' AND reason = 'INC-7'"), "1",
                 "on record")
    said = world.ctl("reconcile", "--from-issuer", "--since", "1h")
    assert_true("%s  no_event: the issuer's card ic_" % lost in said.stdout, said.stdout)
    assert_true("8 cards since" in said.stderr and "6 to look into" in said.stderr, said.stderr)
    wait_until(lambda: world.sql("SELECT count(*) FROM listed_cards") == "12", "what is not a question is removed")
    for words in ((), ("--since", "1h", "--all"), ("--since", "1h", "--user", "kept"), ("--since", "1h", unsent),
                  ("--since", "1h", "--dry-run"), ("--since", "2099-01-01")):
        assert_equal(world.ctl("reconcile", "--from-issuer", *words).returncode, 2, "%r" % (words,))
    assert_equal(world.ctl("reconcile", "--from-issuer", "--since", "1h", role="issuing_viewer").returncode, 78,
                 "a viewer may not ask")


@test(issuer__settle_time="20s", retry__max_attempts="100")
def what_is_under_way_is_no_question(world):
    """Stories: a card that was just made, whose answer is not there yet; an end that is newer than the page."""
    world.up()
    world.sandbox.fault("create", "execute_then_status", status=503, user="alice")
    world.accept("alice")
    wait_until(lambda: world.sandbox.cards(), "the card is made")
    ended = failed(world, "ended", status="REJECTED")
    made(world, ended, "ended")
    assert_equal(asked(world, 0)[1]["counts"], {"open": 2}, "counts")
    world.sandbox.clear()
    world.settle()
    world.allowed |= {"rejected_card"}


@slow
@test(issuer__settle_time=SETTLE)
def a_list_of_many_pages_is_read_once_by_two_operators_and_over_a_killed_worker(world):
    world.up(workers=0)
    world.start_worker(issuer__timeout="20s", issuer__settle_time="40s", worker__lease="50s")
    world.issue("alice")
    for number in range(250):
        made(world, "not-an-event-id-%d" % number, "stranger", key="key-%d" % number)
    world.sandbox.fault("list", "delay", delay_ms=15000, skip=1, count=1)  # until both have asked
    first = ctl_started(world, "reconcile", "--from-issuer", "--since", "2h", "--json")
    wait_until(lambda: world.sql("SELECT pages FROM issuer_listings") == "1", "a page is read")
    second = ctl_started(world, "reconcile", "--from-issuer", "--since", "1h", "--json")
    wait_until(lambda: world.sql("SELECT count(*) FROM operator_actions WHERE action = 'list_issuer'") == "2", "both ask")
    world.workers()[0].kill()
    world.sql("UPDATE issuing.issuer_listings SET lease_until = clock_timestamp()")
    world.start_worker()
    for operator in (first, second):
        said, wrong = operator.communicate(timeout=harness.STUCK_AFTER_S)
        end = json.loads(said.splitlines()[-1])
        assert_equal((operator.returncode, end["is_whole"], end["counts"]), (0, True, {"ok": 1, "foreign": 250}),
                     said + wrong)
    assert_equal(world.sql("SELECT count(*), sum(cards) FROM issuer_listings"), "1|251", "one list")
    assert_equal(world.sandbox.calls("list")[-1]["status"], 200, "the last page")
    assert_true(3 <= len(world.sandbox.calls("list")) <= 4, "a page at most is read again")
    world.allowed |= {"orphan"}


@test(issuer__settle_time=SETTLE)
def a_command_that_ran_out_of_time_goes_on(world):
    world.up(workers=0)
    done = world.ctl("reconcile", "--from-issuer", "--since", "1h", "--timeout", "300ms")
    assert_equal((done.returncode, "goes on there" in done.stderr), (75, True), done.stderr)
    world.start_worker()
    assert_equal(asked(world, 0)[1]["counts"], {}, "the end")
    assert_equal(world.sql("SELECT count(*) FROM issuer_listings"), "1", "one list")
    assert_equal(world.ctl("pause", "issuer", "--reason", "maintenance").returncode, 0, "pause")
    done = world.ctl("reconcile", "--from-issuer", "--since", "1h")
    assert_equal((done.returncode, "paused" in done.stderr), (1, True), done.stderr)


@slow
@test(issuer__settle_time=SETTLE)
def an_issuer_that_cannot_list_or_lists_garbage_is_said_and_bounded(world):
    """A refusal ends the list at once, an unreadable page after three; what may pass is tried until the time is
    over."""
    world.up()
    made(world, "not-an-event-id", "stranger", key="foreign")
    world.allowed |= {"orphan"}
    again = '{"cards": [{"id": "ic_a"}], "has_more": true}'
    for body, status, words in ((None, 400, "refuses the list by 400"), (None, 401, "refuses the list by 401"),
                                ("{", 200, "not JSON"), (again, 200, "does not lead to the next one")):
        world.sandbox.clear()
        if body:
            world.sandbox.fault("list", "answer", body=body, status=status)
        else:
            world.sandbox.fault("list", "status", status=status)
        done = world.ctl("reconcile", "--from-issuer", "--since", "1h")
        assert_true(words in done.stderr, "%s: %s" % (body or status, done.stderr))
    world.sandbox.clear()
    world.sandbox.fault("list", "status", status=503)
    done = world.ctl("reconcile", "--from-issuer", "--since", "1h", "--timeout", "3s")
    assert_equal((done.returncode, "issuer_http_503" in done.stderr), (75, True), done.stderr)
    world.sandbox.clear()
    assert_equal(asked(world, 0)[1]["counts"], {"foreign": 1}, "the same command goes on")


@test(issuers=LISTS, issuer__settle_time=SETTLE)
def each_issuer_that_lists_is_compared(world):
    world.up()
    for number in range(12):  # more than a page of stripe
        world.issue("user-%d" % number)
    lost = world.sql("SELECT id FROM outbox_events WHERE user_id = 'user-3'")
    restored(world, lost)
    found, end = asked(world, 1)
    assert_equal((found, end["counts"]), ({(lost, "no_event")}, {"ok": 11, "no_event": 1}), "the end: %r" % end)


@test(issuer__settle_time=SETTLE, issuer__reconcile_every="24h")
def a_worker_compares_by_itself_and_the_figures_show_it(world):
    world.start_sandbox()
    world.allowed |= {"orphan"}
    made(world, UNKNOWN_ID, "alice")
    world.start_api(), world.start_worker()
    for program in world.apis() + world.workers():
        wait_until(lambda program=program: program.metrics().get("issuing_issuer_list_unknown_cards") == 1, "the figure", 40)
        assert_true(0 < program.metrics()["issuing_issuer_list_age_seconds"] < 3600, "its age")
    assert_equal(world.sql("SELECT count(*) FROM issuer_listings WHERE is_regular"), "1", "once a day")


@test(issuers=NO_LISTS)
def an_issuer_that_cannot_list_is_named(world):
    world.up()
    done = world.ctl("reconcile", "--from-issuer", "--since", "1h")
    assert_equal((done.returncode, "does not list all its cards" in done.stderr, "export them" in done.stderr),
                 (1, True, True), done.stderr)
    assert_equal(world.sandbox.calls("list"), [], "it is not called")
