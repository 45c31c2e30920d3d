"""kill -9 at each step of each issuer's flow: one worker holds an event at every step when it dies.

Story: an attempt may end after any line. Then only the issuer knows what the attempt did, and the next attempt must
find it out."""
from harness import assert_equal, assert_true, core_at, EVERY, Failed, slow, test, wait_until

LOST_REFUSED = (("create", "execute_then_status", {"count": 1, "status": 503}),
                ("create", "status", {"status": 422}))
BLOCKED = ("link", "link_refused", {})
CLOSED = ("cancel", "execute_then_status", {"status": 422})
SETTINGS = {"issuer__timeout": "1500ms", "core__timeout": "500ms", "worker__lease": "4s", "issuer__settle_time": "3s",
            "retry__max_attempts": "20"}


class Step:
    """A user whose event stands at that call when the worker dies. executed: the call took effect. before: the rules
    that lead there."""

    def __init__(self, call, executed=False, before=(), end="COMPLETED", reissue=False, skip=0, several_pages=False):
        self.call, self.before, self.end, self.reissue, self.several_pages = call, before, end, reissue, several_pages
        self.hold = (call, "create_then_hang" if executed else "hang", {"skip": skip})


def steps_of(issuer):
    steps = {
        "check": Step("check"), "create": Step("create"), "created": Step("create", True), "link": Step("link"),
        "linked": Step("link", True), "lookup": Step("lookup", before=LOST_REFUSED),
        "cancel": Step("cancel", before=[BLOCKED], end="REJECTED"),
        "cancelled": Step("cancel", True, [BLOCKED], "REJECTED"),
        "unlink": Step("unlink", False, [BLOCKED], "REJECTED"),
        "unlinked": Step("unlink", True, [BLOCKED], "REJECTED"),
    }
    for call, done in (("activate", "activated"), ("reveal", "revealed")):
        if call in issuer.calls:
            steps[call], steps[done] = Step(call), Step(call, True)
    if issuer.retrieve:
        steps["retrieve"] = Step(issuer.retrieve, before=[BLOCKED, CLOSED], end="REJECTED")
    if issuer.closes_replaced:
        steps["retire"], steps["retired"] = Step("cancel", reissue=True), Step("cancel", True, reissue=True)
    if issuer.page:
        steps["second-page"] = Step("lookup", before=LOST_REFUSED, skip=1, several_pages=True)
    return steps


def accept_all(world, steps):
    """Returns the event of each step that is to be held."""
    olds = {user: world.accept(user, "old") for user, step in steps.items() if step.reissue}
    if olds:
        worker = world.start_worker()
        world.wait_final(olds.values())
        worker.stop()
    events = {}
    for user, step in steps.items():
        card = step.reissue and world.get(user, "/v1/card-requests/" + olds[user]).json()["card"]["id"]
        events[user] = world.accept(user, "k", {"kind": "reissue", "replaces": card} if card else None)
        if step.several_pages:
            world.make_foreign(user, events[user], world.issuer.page + 2)
    for user, step in steps.items():
        for call, fault, members in (*step.before, step.hold):
            world.sandbox.fault(call, fault, user=user, **members)
    return events


def held(world, steps, events):
    """The users whose event was in a worker's hands when their call met the rule that holds it."""
    calls = {(row["user"], row["call"], row["fault"]) for row in world.sandbox.calls()}
    at_work = {row["id"] for row in world.rows("SELECT id FROM outbox_events WHERE status = 'PROCESSING'")}
    return [user for user, step in steps.items() if (user, *step.hold[:2]) in calls and events[user] in at_work]


def creates(world, event):
    return len(world.sandbox.calls("create", reference=event))


@core_at("generic", "stripe")
@slow
@test(issuers=EVERY, **SETTINGS)
def killed_at_every_step_the_next_worker_goes_on(world):
    world.up(workers=0)
    steps = steps_of(world.issuer)
    events = accept_all(world, steps)
    worker = world.start_worker()
    # No step's own rule ends before the worker dies, so an event that was there is there again after a timeout.
    waiting = set(steps)

    def reach():
        waiting.difference_update(held(world, steps, events))
        return not waiting or None
    try:
        wait_until(reach, "every step was reached")
    except Failed as error:
        raise Failed("%s; not: %s" % (error, ", ".join(sorted(waiting)))) from None
    with world.holding("LOCK TABLE cards IN SHARE MODE"):
        events["save"] = world.accept("save")
        wait_until(lambda: world.blocked() >= 1, "the save waits")
        worker.kill()
        world.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND"
                  " wait_event_type = 'Lock'")
        wait_until(lambda: world.blocked() == 0, "its session is gone")
    sent = {user: creates(world, events[user]) for user in ("create", "created")}
    lost = world.sql("SELECT count(*) FROM outbox_events WHERE status = 'PROCESSING'")
    assert_true(int(lost) >= len(steps) // 2, "events in the hands of the dead worker: %s" % lost)
    world.sandbox.clear()
    world.sandbox.faults([{"target": "core", "call": "link", "fault": "link_refused", "user": user}
                          for user, step in steps.items() if step.end == "REJECTED"])
    world.start_worker()
    world.wait_final(events.values(), 60)
    wrong = []
    for user, event in events.items():
        row, step = world.event(event), steps.get(user)
        states = [card["status"] for card in world.sandbox.cards(reference=event)]
        wanted = ("COMPLETED", ["active"]) if not step or step.end == "COMPLETED" else ("REJECTED", ["cancelled"])
        if (row["status"], states) != wanted:
            wrong.append("%s: %s %s, cards %r (%s)" % (user, row["status"], row["reason_code"], states,
                                                       row["last_error"]))
        if step and step.reissue:
            live = [card for card in world.sandbox.cards(user=user) if card["status"] == "active"]
            if len(live) != 1:
                wrong.append("%s: %d live cards" % (user, len(live)))
    assert_equal(wrong, [], "ends")
    if world.issuer.name == "generic":
        for user, before in sent.items():
            assert_equal(creates(world, events[user]), before + 1, "creates, one by the next worker: " + user)
            assert_equal([row["outcome"] for row in world.attempts(events[user])][-2:], ["lost", "completed"],
                         "attempts on record: " + user)
        assert_equal(world.sandbox.cards(reference=events["created"])[0]["sends"], sent["created"] + 1,
                     "sends with the one key")
