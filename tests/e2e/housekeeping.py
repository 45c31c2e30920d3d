"""The housekeeping continues with the next table when one fails, and reports what it could not do."""
import time

from harness import assert_equal, assert_true, slow, test, wait_until
from operators import doctor

FAILURES = 'issuing_housekeeping_failures_total{table="%s"}'
EXPIRED = 'issuing_expired_total{table="%s"}'
HELD = ("INSERT INTO issuing.outbox_events (user_id, payload, next_attempt_at, created_at, status, retry_count,"
        " lease_token, lease_until)"
        " VALUES ('held', '{\"kind\": \"new\"}', now() - interval '5 h', now() - interval '5 h', 'PROCESSING', 1,"
        " gen_random_uuid(),"
        " now() + interval '1 h')")


@slow
@test
def a_table_that_cannot_be_cleaned_is_counted_and_the_others_are_cleaned(world):
    world.allowed.add("orphan")
    world.sql("CREATE FUNCTION issuing.broken() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'broken'; END $$;"
              " CREATE TRIGGER broken BEFORE DELETE ON issuing.idempotency_keys_default FOR EACH ROW EXECUTE FUNCTION"
              " issuing.broken();"
              " INSERT INTO issuing.idempotency_keys SELECT gen_random_uuid(), now() - interval '9 days', 'u', 'k', '';"
              " INSERT INTO issuing.rate_limit_log SELECT now() - interval '9 days', gen_random_uuid(), true, 'u'")
    world.up()
    worker, = world.workers()
    wait_until(lambda: worker.metric(FAILURES % "idempotency_keys") >= 1, "the failure is counted")
    wait_until(lambda: worker.metric(EXPIRED % "rate_limit_log") == 1, "the table that comes next")


@slow
@test
def a_pass_that_is_not_answered_in_time_is_counted(world):
    world.sql("CREATE FUNCTION issuing.slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(13);"
              " RETURN NEW; END $$;"
              " CREATE TRIGGER slow BEFORE UPDATE ON issuing.housekeeping_clock FOR EACH ROW EXECUTE FUNCTION issuing.slow()")
    world.up()
    worker, = world.workers()
    wait_until(lambda: worker.metric(FAILURES % "all") >= 1, "the failure is counted")
    world.issue("alice")


@slow
@test
def an_open_event_far_behind_the_others_stays_in_the_gauges(world):
    """A stopped worker, or a lease that was written by hand: no claim reads there."""
    world.sql(HELD)
    world.up()
    worker, = world.workers()
    held = 'issuing_outbox_events{status="PROCESSING"}'
    wait_until(lambda: worker.metric(held) == 1, "the gauge has it")
    for i in range(4):  # the bookmark moves past it, and the gauges are read again
        world.issue("user-%d" % i)
        time.sleep(3)
    assert_equal(worker.metric(held), 1.0, "the gauge still has it")
    assert_true(world.sql("SELECT status FROM issuing.outbox_events WHERE user_id = 'held'") == "PROCESSING",
                "no worker took it")


@test
def an_api_is_ready_once_the_database_keeps_keys_for_as_long_as_it_promises(world):
    """Story: 72 h at the api, 24 h at the worker, whose housekeeping dropped the keys after a day: second cards."""
    def kept():
        return world.sql("SELECT extract(epoch FROM kept)::int / 3600 FROM retentions WHERE name = 'keys'")

    def found(hours):
        rows = doctor(world, code=1, idempotency__retention="%dh" % hours)
        return [row["ok"] for row in rows if row["check"] == "retention"]
    world.start_worker()
    assert_equal(found(72), [False], "doctor, before the api was there")
    with world.holding("SELECT FROM retentions FOR UPDATE"):
        api = world.start_api(wait_ready=False, idempotency__retention="72h")
        wait_until(lambda: b"not noted yet" in api.get("/readyz").body, "it is not ready")
    api.wait_ready()
    assert_equal(kept(), "72", "kept from now on")
    assert_true("idempotency.retention was raised" in api.text(), "the log says so")
    assert_equal((found(72), found(73)), ([True], [False]), "doctor")
    other = world.start_api(idempotency__retention="48h")
    assert_equal((kept(), other.get("/readyz").status), ("72", 200), "a second api, of an older configuration")
