"""What is under way when its bucket moves: events that wait, are tried again, are unknown, held, in question or at
work, marks, and deliveries in order.

Story: an event whose outcome is unknown moves, and the other cell's worker begins anew, as if nothing had been sent.
The issuer then has two cards. Or the old cell's worker still has it in hands when the new one's claims it. The ledger
of the sandbox is the judge: no card twice, none lost.
"""
import signal

from cells import bucket_of, Cells, users_of
from harness import assert_equal, assert_true, EVERY, slow_but_at, test, wait_until
from holders import told, TOLD
from operators import lines
from receiver import event_ids, insert, is_held, receiver, route, says, wait_ends
from reconciling import ctl_started, failed, made
from routes_order import in_order

BUCKET = 17
# A worker that tries once: what did not end then rests for an hour.
ONCE = {"retry__base": "1h", "retry__cap": "1h"}
ROWS = {
    "outbox_events": "user_id", "outbox_attempts": "user_id", "idempotency_keys": "user_id",
    "rate_limit_log": "user_id", "cards": "user_id", "card_reissues": "user_id", "issuing.number_reveals": "user_id",
    "issuing.event_reissues": "old_id", "issuing.lost_events": "event_id", "issuing.peer_checks": "event_id",
    "operator_actions": "event_id",
}


def rows_of(cell, users):
    """Everything that a move takes along, as text. Without what it may change: the time at which a due event is due,
    and the number of an audit row."""
    events = "SELECT id FROM outbox_events WHERE user_id IN ('%s')" % "', '".join(users)
    found = {}
    for table, column in ROWS.items():
        which = "'%s'" % "', '".join(users) if column == "user_id" else events
        rows = cell.rows("SELECT * FROM %s WHERE %s IN (%s)" % (table, column, which))
        for row in rows:
            if table == "operator_actions":
                row.pop("id")
            if row.get("status") in ("PENDING", "PROCESSING"):
                row.pop("next_attempt_at", None), row.pop("due_at", None)
        found[table] = sorted(rows, key=str)
    return found


def wake(cell):
    cell.sql("UPDATE outbox_events SET next_attempt_at = now() WHERE status = 'PENDING' AND held_end IS NULL")


def wait_rest(cell, events):
    """Until the worker has done what it does at once, and no attempt runs."""
    wait_until(lambda: all(cell.attempts(event) for event in events), "an attempt for each")
    wait_until(lambda: cell.sql("SELECT count(*) FROM outbox_events WHERE status = 'PROCESSING'") == "0",
               "no attempt runs")


FAULTS = {
    "tried-again": [("create", "status", {"status": 503})],
    "unknown-made": [("create", "create_then_drop", {})],
    "unknown-late": [("create", "drop_then_execute", {"late_ms": 3600000})],
    "question": [("create", "status", {"status": 418})],
    "deferred": [("create", "status", {"status": 409})],
    "cancelling": [("link", "link_refused", {}), ("cancel", "status", {"status": 503})],
    "linking": [("link", "create_then_drop", {})],
    "refused": [("create", "status", {"status": 422, "code": "bin_closed"})],
}
ENDS = {"cancelling": "REJECTED", "refused": "REJECTED"}


@test(retry__max_attempts="20", issuer__settle_time="10s")
def what_waits_in_one_cell_ends_once_in_the_other(world):
    cells = Cells(world).up(workers=0)
    one, two = cells.all
    worker = one.start_worker(**ONCE)
    kinds = [*FAULTS, "waiting", "done"]
    users = dict(zip(kinds, users_of(BUCKET, len(kinds))))
    for kind, rules in FAULTS.items():
        for call, fault, more in rules:
            world.sandbox.fault(call, fault, user=users[kind], count=1, **more)
    events = {kind: one.accept(users[kind]) for kind in kinds if kind != "waiting"}
    wait_rest(one, events.values())
    worker.stop()
    events["waiting"] = one.accept(users["waiting"])
    assert_true(all(one.event(events["unknown-" + kind])["first_sent_at"] for kind in ("made", "late")), "unknown")
    before = rows_of(one, list(users.values()))
    cells.move(BUCKET, "two")
    for table, rows in rows_of(two, list(users.values())).items():
        assert_equal(rows, before[table], "rows of " + table)
    assert_equal(sum(map(len, rows_of(one, list(users.values())).values())), 0, "rows that are left")
    world.sandbox.run_late()
    two.start_worker()
    one.start_worker()  # it has nothing to do
    wake(two)
    assert_equal(two.ctl("replay", events["question"], "--reason", "the issuer is well again").returncode, 0, "replay")
    two.wait_final(events.values(), 60)
    assert_equal({kind: two.status(event) for kind, event in events.items()},
                 {kind: ENDS.get(kind, "COMPLETED") for kind in events}, "ends")
    assert_equal(len(world.sandbox.calls("create", user=users["unknown-made"])), 2, "creates, with one key")
    assert_equal({card["sends"] for card in world.sandbox.cards(reference=events["unknown-made"])}, {2}, "its sends")


@test(retry__max_attempts="20", issuer__settle_time="6s")
def an_end_that_is_held_until_a_send_has_settled_is_held_in_the_other_cell(world):
    """The create was refused behind one without an answer, and the look-up finds nothing: the refusal is held. Then the
    card is made. A cell that forgot the send would call it refused."""
    cells = Cells(world).up(workers=0)
    one, two = cells.all
    worker = one.start_worker()
    user, = users_of(BUCKET)
    world.sandbox.fault("create", "drop_then_execute", user=user, count=1, late_ms=3600000)
    world.sandbox.fault("create", "status", user=user, status=422, code="bin_closed")
    event = one.accept(user)
    wait_until(lambda: one.event(event)["held_end"], "an end is held")
    worker.kill()
    wait_until(lambda: one.status(event) == "PENDING" or one.start_worker(**ONCE).stop() is None, "it waits")
    cells.move(BUCKET, "two")
    assert_true(two.event(event)["held_end"], "the end is held still")
    assert_equal(world.sandbox.run_late(), 1, "the card is made")
    two.start_worker()
    end = two.wait_status(event, "COMPLETED", "REJECTED", "FAILED")
    assert_equal((end["status"], [card["status"] for card in world.sandbox.cards(reference=event)]),
                 ("COMPLETED", ["active"]), "the end: %r" % end)


@test
def a_move_waits_for_the_attempts_under_way(world):
    cells = Cells(world).up()
    one, two = cells.all
    user, later = users_of(BUCKET, 2)
    world.sandbox.fault("create", "delay", user=user, delay_ms=900)
    event = one.accept(user)
    wait_until(lambda: world.sandbox.calls("create", user=user), "its create")
    mover = cells.start_move(BUCKET, "two")
    cells.wait_state(one, BUCKET, "draining")
    waiting = one.accept(later)  # accepted, and left to the other cell
    assert_equal(mover.wait(30), 0, "the move: " + mover.stdout.read())
    for each, worker in ((event, 0), (waiting, 1)):
        end = two.wait_status(each, "COMPLETED")
        owner = world.workers()[worker]
        assert_true(end["lease_owner"].endswith(":%d" % owner.pid), "%s: by %s" % (end["lease_owner"], owner.pid))
    assert_equal(len(world.sandbox.calls("create", user=user)), 1, "creates")
    assert_equal(len(two.attempts(event)), 1, "its attempt went along")


@test
def events_that_wait_for_a_move_do_not_hold_up_others(world):
    """More events of a bucket that is closed than a claim takes at once, and all are older than the others'."""
    cells = Cells(world).up(workers=0)
    one, two = cells.all
    user, other = users_of(BUCKET, 1) + users_of(BUCKET + 1, 1)
    for number in range(40):
        one.accept(user, "k%d" % number)
    cells.move(BUCKET, "two", "--stop-after", "close")
    events = [one.accept(other, "k%d" % number) for number in range(3)]
    one.start_worker(worker__max_in_flight="8")
    one.wait_final(events)
    assert_equal(one.sql("SELECT count(*) FROM outbox_events WHERE retry_count > 0 AND user_id = '%s'" % user), "0",
                 "attempts of the bucket that is closed")
    cells.move(BUCKET, "two")
    two.start_worker()
    two.settle()


@test
def a_claim_that_began_before_the_move_is_awaited(world):
    """It has asked which buckets are on their way, and then waits for a lock: no bucket leaves meanwhile."""
    cells = Cells(world).up(workers=0)
    one, two = cells.all
    user, = users_of(BUCKET)
    event = one.accept(user)
    with one.holding("LOCK TABLE outbox_events IN SHARE ROW EXCLUSIVE MODE"):
        one.start_worker(wait_ready=False)
        wait_until(lambda: one.blocked("issuing.claim(") >= 1, "its claim waits")
        done = cells.move(BUCKET, "two", status=None)
        assert_true(done.returncode in (1, 75), "the move: %d %s%s" % (done.returncode, done.stdout, done.stderr))
        assert_equal((one.state(BUCKET), two.state(BUCKET)), ("here", "away"), "states")
    one.wait_status(event, "COMPLETED")
    assert_equal(len(world.sandbox.calls("create", user=user)), 1, "creates")
    cells.move(BUCKET, "two")


@test(worker__lease="30s")
def a_move_that_waits_too_long_for_an_attempt_is_undone(world):
    cells = Cells(world).up()
    one, two = cells.all
    user, other = users_of(BUCKET, 2)
    world.sandbox.fault("create", "delay", user=user, delay_ms=300)
    event = one.accept(user)
    wait_until(lambda: world.sandbox.calls("create", user=user), "its create")
    one.workers()[0].signal(signal.SIGSTOP)
    done = cells.move(BUCKET, "two", "--drain-timeout", "1s", status=None)
    assert_true(done.returncode in (1, 75), "the move: %d %s%s" % (done.returncode, done.stdout, done.stderr))
    assert_true(str(BUCKET) in done.stdout + done.stderr, "it names the bucket: " + done.stdout + done.stderr)
    assert_equal((one.state(BUCKET), two.state(BUCKET)), ("here", "away"), "states")
    second = one.accept(other)
    one.workers()[0].signal(signal.SIGCONT)
    one.wait_final([event, second])
    assert_equal(len(world.sandbox.cards()), 2, "cards")
    cells.move(BUCKET, "two")


@test(worker__lease="2s", issuer__timeout="500ms", core__timeout="500ms")
def an_event_whose_worker_died_is_taken_over_and_moves(world):
    """The card is made, and only the dead worker knew. A claim that nobody ends holds the move, until a living worker
    of that cell has given it back."""
    cells = Cells(world).up(workers=0)
    one, two = cells.all
    user, = users_of(BUCKET)
    world.sandbox.fault("create", "create_then_hang", user=user, count=1)
    worker = one.start_worker()
    event = one.accept(user)
    wait_until(lambda: world.sandbox.calls("create", user=user), "its create")
    worker.kill()
    done = cells.move(BUCKET, "two", "--drain-timeout", "500ms", status=None)
    assert_true(done.returncode in (1, 75), "while nobody takes it over: %d" % done.returncode)
    one.start_worker()
    two.start_worker()
    mover = cells.start_move(BUCKET, "two")
    assert_equal(mover.wait(30), 0, "the move: " + mover.stdout.read())
    cells.wait_end(user, event, "COMPLETED")
    assert_equal([row["outcome"] for row in two.attempts(event)], ["lost", "completed"], "attempts")
    assert_equal([card["status"] for card in world.sandbox.cards(reference=event)], ["active"], "cards")


@slow_but_at("stripe")
@test(issuers=TOLD, retry__max_attempts="20")
def what_was_sent_for_one_holder_is_repeated_for_the_same_one_in_the_other_cell(world):
    """core-api names another holder by then. What the event keeps goes along."""
    cells = Cells(world).up(workers=0)
    one, two = cells.all
    user, = users_of(BUCKET)
    world.sandbox.fault("create", "execute_then_status", user=user, count=1, status=503)
    worker = one.start_worker(**ONCE)
    event = one.accept(user)
    wait_rest(one, [event])
    worker.stop()
    world.sandbox.fault("check", "answer", user=user, body=told(world.issuer.holder(world, "somebody-else")))
    cells.move(BUCKET, "two")
    two.start_worker()
    wake(two)
    two.wait_status(event, "COMPLETED")
    assert_equal([card["user_id"] for card in world.sandbox.cards()], [user], "whose cards there are")


@test(issuer__settle_time="2s")
def marks_that_wait_are_done_in_the_other_cell(world):
    """reconcile has left its marks, and no worker looked at them before the bucket moved."""
    cells = Cells(world).up(workers=0)
    one, two = cells.all
    found, orphan, clean = users_of(BUCKET, 3)
    events = {"found": failed(one, found), "orphan": failed(one, orphan, status="REJECTED", reason="user_blocked"),
              "clean": failed(one, clean)}
    made(world, events["found"], found)
    made(world, events["orphan"], orphan)
    for event in events.values():
        one.ctl("reconcile", event, "--timeout", "200ms")
    # ctl has gone when its time was over, and its marks with it; these are asked for once more, by hand.
    one.sql("UPDATE issuing.peer_checks SET finished_at = NULL, result = NULL, detail = NULL, deadline_at = now() +"
            " interval '5 min'")
    waiting = one.sql("SELECT count(*) FROM issuing.peer_checks WHERE finished_at IS NULL")
    assert_true(int(waiting) >= 3, "marks that wait: " + waiting)
    cells.move(BUCKET, "two")
    assert_equal(one.sql("SELECT count(*) FROM issuing.peer_checks"), "0", "marks that are left")
    two.start_worker()
    wait_until(lambda: two.sql("SELECT count(*) FROM issuing.peer_checks WHERE finished_at IS NULL") == "0",
               "the marks are done")
    two.wait_status(events["found"], "COMPLETED")
    assert_equal([card["status"] for card in world.sandbox.cards(reference=events["orphan"])], ["cancelled"],
                 "the orphan")
    assert_equal(two.status(events["clean"]), "FAILED", "what has no card")


@test(issuer__settle_time="4s", issuer__timeout="2s", worker__lease="8s")
def a_move_waits_for_a_mark_under_way(world):
    cells = Cells(world).up()
    one, two = cells.all
    user, = users_of(BUCKET)
    event = failed(one, user)
    made(world, event, user)
    world.sandbox.fault("lookup", "delay", delay_ms=900)
    asked = ctl_started(one, "reconcile", event)
    wait_until(lambda: world.sandbox.calls("lookup", reference=event), "its look-up")
    cells.move(BUCKET, "two")
    asked.communicate(timeout=60)
    two.wait_status(event, "COMPLETED")
    assert_equal(one.sql("SELECT count(*) FROM issuing.peer_checks"), "0", "marks that are left")
    assert_equal(two.sql("SELECT count(*) FROM issuing.peer_checks WHERE finished_at IS NULL"), "0",
                 "marks that are left to do")


# ---- routes ----------------------------------------------------------------------------------------------------------


@test(retry__max_attempts="50")
def events_of_an_ordered_route_keep_their_order_across_the_move(world):
    with receiver(world) as service:
        route(world, service, ordered="true")
        cells = Cells(world).up()
        one, two = cells.all
        users = users_of(BUCKET, 3)
        ids = event_ids(one, 18)
        owners = {event: users[number % 3] for number, event in enumerate(ids)}
        for event in ids[3::4]:
            service.plan(event, says(503), says(429))
        service.plan(ids[2], *[says(503)] * 30)  # the last user's first
        backwards = list(reversed(ids[:12]))
        insert(one, [owners[event] for event in backwards], ids=backwards)
        wait_until(lambda: service.deliveries(ids[2]), "the first of each is tried")
        cells.move(BUCKET, "two")
        insert(two, [owners[event] for event in ids[12:]], ids=ids[12:])
        service.clear()
        wake(two)
        assert_equal(set(wait_ends(two, ids, 60).values()), {("COMPLETED", None)}, "ends")
        in_order(service, owners)


@test(retry__max_attempts="3")
def what_is_held_behind_a_question_waits_in_the_other_cell_too(world):
    with receiver(world) as service:
        route(world, service, ordered="true")
        cells = Cells(world).up()
        one, two = cells.all
        user, = users_of(BUCKET)
        ids = event_ids(one, 4)
        service.plan(ids[0], says(418))
        insert(one, [user] * 3, ids=ids[:3])
        one.wait_status(ids[0], "FAILED")
        wait_until(lambda: one.sql("SELECT count(*) FROM outbox_events WHERE held_behind IS NOT NULL") == "2", "held")
        cells.move(BUCKET, "two")
        insert(two, user, ids=ids[3:])
        wait_until(lambda: two.sql("SELECT count(*) FROM outbox_events WHERE held_behind IS NOT NULL") == "3",
                   "held in the new cell")
        assert_equal(len(service.deliveries()), 1, "deliveries")
        story = lines(two.ctl("explain", ids[1], "--json"))[0]
        assert_true(ids[0] in str(story["next"]), "explain: %r" % story["next"])
        assert_equal(two.ctl("replay", ids[0], "--reason", "they are ready").returncode, 0, "replay")
        assert_equal(set(wait_ends(two, ids).values()), {("COMPLETED", None)}, "ends")
        in_order(service, dict.fromkeys(ids, user))


@test(retry__max_attempts="20")
def a_delivery_whose_outcome_is_unknown_is_repeated_under_its_key(world):
    with receiver(world) as service:
        route(world, service, lookup=True, key_lifetime="20s", timeout="500ms", keep_result="true")
        cells = Cells(world).up(workers=0)
        one, two = cells.all
        user, other = users_of(BUCKET, 2)
        worker = one.start_worker(**ONCE)
        ids = event_ids(one, 2)
        service.plan(ids[0], is_held())
        insert(one, [user, other], ids=ids)
        wait_rest(one, ids)
        worker.stop()
        kept = one.event(ids[1])["result"]
        cells.move(BUCKET, "two")
        assert_equal(service.run_late(), 1, "the delivery arrives")
        two.start_worker()
        wake(two)
        assert_equal(set(wait_ends(two, ids).values()), {("COMPLETED", None)}, "ends")
        assert_equal(({call.event for call in service.deliveries()}, two.event(ids[1])["result"]), (set(ids), kept),
                     "keys, and the answer that is kept")
        assert_equal(bucket_of(user), BUCKET, "the bucket")


@test(route__CARD_REQUEST_ENDED__timeout="1s")
def the_end_of_a_request_is_told_once_though_its_bucket_moves(world):
    with receiver(world) as service:
        route(world, service, "CARD_REQUEST_ENDED")
        cells = Cells(world).up()
        one, two = cells.all
        users = users_of(BUCKET, 3)
        for cell in cells.all:
            wait_until(lambda cell=cell: cell.sql("SELECT count(*) FROM issuing.routes") == "1", "the route is known")
        requests = [one.accept(user) for user in users[:2]]
        one.wait_final(requests)
        service.always(says(503))
        requests.append(one.accept(users[2]))
        one.wait_final(requests[2:])
        cells.move(BUCKET, "two")
        service.clear()
        wake(two)
        told_ends = ("SELECT count(*) FROM outbox_events WHERE event_type = 'CARD_REQUEST_ENDED'"
                     " AND status = 'COMPLETED'")
        wait_until(lambda: two.sql(told_ends) == "3", "all three ends are told")
        assert_equal(two.sql(told_ends.replace(" AND status = 'COMPLETED'", "")), "3", "ends")
