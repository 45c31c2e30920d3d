"""The first sentence of `status` and of the console's first page: what is wrong, and its cause.

Story: the issuer was paused, 110 events waited, and the first page said that all was well."""
import signal

from console import Console
from harness import assert_equal, assert_true, slow, test, wait_until
from operators import doctor, lines


def verdict(world):
    status = lines(world.ctl("status", "--json"))[0]
    return status["well"], status["verdict"]


def wait_for(world, *parts, do=""):
    """Both say that it is not good, and what to do."""
    def is_said():
        well, text = verdict(world)
        return not well and all(part in text for part in parts) and do in lines(world.ctl("status", "--json"))[0]["todo"]
    wait_until(is_said, "status says %r" % (parts,), every=0.2)
    page = Console(world).enter().page("/")
    summary = page[page.index('id="summary"'):].split("</p>", 1)[0]
    assert_true(all(part in summary for part in parts) and "All is well" not in summary, summary)
    assert_true("<strong>Do:</strong>" in summary and do in summary, summary)


@test
def all_is_well_until_something_waits(world):
    world.up()
    wait_until(lambda: verdict(world) == (True, "All is well; no event is open."), "at first, once the worker is seen")
    world.ctl("pause", "issuer", "--reason", "maintenance")
    request = world.accept("alice")
    wait_for(world, "issuer has been paused by", "1 event waits", do="issuing-ctl resume issuer --reason TEXT")
    world.ctl("resume", "issuer", "--reason", "over")
    world.wait_status(request, "COMPLETED")
    assert_equal(verdict(world), (True, "All is well; no event is open."), "at the end")


@test(breaker__failures="2")
def an_open_breaker_is_named_with_its_cause(world):
    world.up()
    world.sandbox.fault("check", "status", status=503)
    for user in ("alice", "bob", "carol"):
        world.accept(user)
    wait_for(world, "The breaker of core has been open at 1 of 1 workers", "core_http_503",
             do="tell the team of core; once it is back, issuing-ctl probe core --reason TEXT")


@test
def no_worker_is_named_first(world):
    world.up(workers=0)
    world.accept("alice")
    wait_for(world, "No worker is alive: 1 event is open and not processed", do="systemctl start issuing-worker@1")


@test
def a_trouble_that_goes_on_is_named_before_events_that_wait_for_an_operator(world):
    """Story: "Events wait for an operator" was the headline of a whole outage, because of one old question."""
    world.up()
    world.sandbox.fault("create", "status", user="alice", status=418)
    world.wait_status(world.accept("alice"), "FAILED")
    wait_for(world, "1 event waits for an operator", do="issuing-ctl list --status FAILED")
    assert_true('class="notice warn"' in Console(world).enter().page("/"), "a question alone is not an emergency")
    world.workers()[0].signal(signal.SIGSTOP)
    world.sql("INSERT INTO outbox_events (user_id, payload, next_attempt_at, created_at) VALUES"
              " ('bob', '{\"kind\": \"new\"}', now() - interval '90 s', now() - interval '90 s')")
    wait_for(world, "1 event has been due for more than a minute, the first for ")
    text = verdict(world)[1]
    assert_true(text.index("due for more") < text.index("waits for an operator"), text)
    assert_true('class="notice bad"' in Console(world).enter().page("/"), "the worst one colours it")
    world.workers()[0].signal(signal.SIGCONT)


@test
def events_that_wait_for_an_operator_are_counted(world):
    world.up()
    world.sandbox.fault("create", "status", user="alice", status=418)
    failed = world.accept("alice")
    world.wait_status(failed, "FAILED")
    wait_for(world, "1 event waits for an operator")


@test
def unknown_outcomes_are_counted_alike_everywhere(world):
    """Story: the first page said 0 while 15 FAILED events had an unknown outcome."""
    world.up(workers=0)
    world.sql("INSERT INTO outbox_events (user_id, payload, status, reason_code, first_sent_at, completed_at)"
              " SELECT 'u' || i, '{\"kind\": \"new\"}', 'FAILED', 'issuer_key_expired', now(), now()"
              " FROM generate_series(1, 15) AS g (i)")
    assert_equal(lines(world.ctl("status", "--json"))[0]["unknown"], 15, "status")
    assert_equal(len(lines(world.ctl("list", "--unknown", "--json"))), 15, "list")
    tile = Console(world).enter().page("/").split("Unknown outcome", 1)[1].split("</a>", 1)[0]
    assert_true(">15<" in tile, tile)


@slow
@test
def refusals_of_the_requests_of_all_users_are_named(world):
    world.up()
    world.sandbox.fault("create", "status", status=422, code="bin_closed")
    events = [world.accept("user-%d" % number) for number in range(24)]
    world.wait_final(events)
    wait_for(world, "24 of 24 events that ended since", "are REJECTED", "bin_closed", do="ask the team of the peer")
    assert_true("REJECTED BECAUSE" in world.ctl("status").stdout, "the table")
    found = [row for row in doctor(world) if row["check"] == "ends"]
    assert_true(found and "24 of 24" in found[0]["found"] and found[0]["warning"], "doctor: %r" % found)


@slow
@test
def a_frozen_worker_is_silent_after_three_heartbeats(world):
    """Story: it was "working" for a minute, and its successor stood beside it."""
    world.up()
    worker = world.workers()[0]
    wait_until(lambda: lines(world.ctl("workers", "--json")), "its first heartbeat")
    worker.signal(signal.SIGSTOP)
    try:
        wait_for(world, "1 of 1 workers is silent")
        assert_equal([row["state"] for row in lines(world.ctl("workers", "--json"))], ["silent"], "workers")
        found = [row["found"] for row in doctor(world) if row["check"] == "workers" and row["warning"]]
        assert_true(found and "is silent" in found[0], "doctor: %r" % found)
    finally:
        worker.signal(signal.SIGCONT)


@test
def users_of_one_kind_who_all_have_trouble_are_told_from_the_others(world):
    """Story: 500 for the 15 users of one BIN among good traffic; seen only with list --json and jq."""
    world.up()
    world.sql("INSERT INTO outbox_events (user_id, payload, status, reason_code, completed_at) SELECT 'u' || i,"
              " '{\"kind\": \"new\"}', 'REJECTED', 'no_account', now() FROM generate_series(1, 40) AS g (i)")
    events = []
    for number in range(15):
        world.sandbox.fault("create", "status", user="b4%x" % number, status=418)
        events.append(world.accept("b4%x" % number))
    world.settle()
    wait_for(world, "All 15 users b4* that were tried lately have trouble since 20",
             " (issuer_http_418); of 40 others none", do="tell the team of the peer which users")
    world.sql("UPDATE outbox_events SET status = 'REJECTED', reason_code = 'x' WHERE id = '%s'" % events[0])
    assert_true("users b4*" not in verdict(world)[1], "one of them has an answer: %s" % verdict(world)[1])


@test
def the_first_key_of_an_unknown_outcome_that_ends_soon_is_named(world):
    """Story: which unknown outcome runs out of its key first took two commands."""
    world.up(workers=0)
    for hours in (1, 19, 30):
        world.sql("INSERT INTO outbox_events (user_id, payload, status, reason_code, first_sent_at, completed_at)"
                  " VALUES ('u', '{\"kind\": \"new\"}', 'FAILED', 'attempts_exhausted', now() - interval '%d h', now())"
                  % hours)
        ends = lines(world.ctl("status", "--json"))[0]["first_key_ends_at"]
        assert_true(ends is not None, "the key of an hour ago has not ended, nor that of %d hours" % hours)
        if hours == 1:
            assert_true("key of an unknown" not in verdict(world)[1], verdict(world)[1])
    wait_for(world, "The first key of an unknown outcome ends at", "in 4 h 59 min")


@test
def when_a_backlog_is_done_is_said_with_what_is_known_of_it(world):
    """Story: how long a backlog would last took two commands and a calculation."""
    world.up()
    world.sql("INSERT INTO outbox_events (user_id, payload, created_at, next_attempt_at, retry_count, last_error) SELECT"
              " 'u' || i, '{\"kind\": \"new\"}', now() - interval '10 min', now() + interval '1 h', 1,"
              " CASE WHEN i <= 20 THEN 'issue: issuer_http_503: busy' END FROM generate_series(1, 30) AS g (i)")
    ended = ("INSERT INTO outbox_statistics VALUES (date_trunc('hour', now(), 'UTC'), 'CARD_ISSUE', 'COMPLETED', '', 9,"
             " %d, 9)")
    world.sql(ended % 10)
    wait_for(world, "30 events are PENDING", "CARD_ISSUE events came and 10 ended: 30 events wait, and more will",
             do="issuing-ctl list --status PENDING --oldest-first")
    world.sql("DELETE FROM outbox_statistics; " + ended % 630)
    wait_for(world, "Since 20", "30 CARD_ISSUE events came and 630 ended: 30 events would be done, at that rate, in ")
    causes = {row["cause"]: row["events"] for row in lines(world.ctl("status", "--json"))[0]["pending"]}
    assert_equal(causes, {"issuer_http_503": 20, "not_tried": 10}, "why they are PENDING")
    assert_true("PENDING BECAUSE" in world.ctl("status").stdout, "the table")
    world.ctl("pause", "issuer", "--reason", "maintenance")
    wait_until(lambda: "at that rate" not in verdict(world)[1], "while nothing is sent there is no such rate")
