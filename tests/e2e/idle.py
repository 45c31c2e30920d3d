"""An idle worker sends one statement at every poll, for all kinds of work. If that fails or hangs, work is found all
the same."""
from harness import assert_equal, test, wait_until

DUE = "INSERT INTO outbox_events (user_id, payload) VALUES ('%s', '{\"kind\": \"new\"}')"
CALLS = """SELECT coalesce(sum(calls) FILTER (WHERE funcname = 'what_waits'), 0),
                  coalesce(sum(calls) FILTER (WHERE funcname IN ('claim', 'take_marks', 'take_issuer_check',
                                                                 'take_listing', 'fold_statistics')), 0)
           FROM pg_stat_user_functions"""


def issues(world, user):
    """No wake-up says that it is there."""
    world.sql(DUE % user)
    wait_until(lambda: world.sql("SELECT count(*) FROM outbox_events WHERE user_id = '%s' AND status = 'COMPLETED'"
                                 % user) == "1", user + " has a card")


@test(worker__poll_interval="50ms")
def an_idle_worker_sends_one_statement_a_poll(world):
    world.sql("ALTER ROLE issuing_worker IN DATABASE %s SET track_functions = 'pl'" % world.database)
    world.up()
    world.issue("alice")
    since = []

    def stretch_of_questions():
        asked, others = map(int, world.sql(CALLS).split("|"))
        if not since or others != since[1]:
            since[:] = asked, others
        return asked >= since[0] + 20
    wait_until(stretch_of_questions, "twenty questions, and no claim among them")
    issues(world, "bob")


@test
def a_question_that_is_refused_stops_nothing(world):
    world.up()
    world.issue("alice")
    world.sql("REVOKE EXECUTE ON FUNCTION issuing.what_waits(text[]) FROM issuing_worker")
    issues(world, "bob")
    assert_equal(world.sql("SELECT count(*) FROM statistics_changes WHERE refused IS NOT NULL"), "0", "left out")


@test
def a_question_that_hangs_stops_nothing(world):
    world.up()
    world.issue("alice")
    with world.holding("LOCK issuing.issuer_checks"):
        issues(world, "bob")
