"""Acceptance: one key is one event, one user has one slot, however often a request comes and on however many devices
at once."""
import threading

import client
from harness import assert_equal, assert_true, BUILD, core, run, slow, test, wait_until

ACCEPT = ("SELECT verdict FROM issuing.accept(ARRAY['%s']::uuid[], ARRAY['%s'], ARRAY['%s'], ARRAY['\\x00'::bytea],"
          " ARRAY['{\"kind\":\"new\"}'],"
          " ARRAY[NULL]::text[], ARRAY[NULL]::text[], 1, '10s', false, '1 day')")
UNKNOWN_ID = "00000000-0000-7000-8000-000000000001"


def events(world):
    return int(world.sql("SELECT count(*) FROM outbox_events"))


def check_window(world, count, window_ms, attempts):
    """Compares every verdict in the log with the rule: a try is accepted if fewer than `count` tries that count are in
    the window before it."""
    wrong = world.rows("""
        SELECT * FROM (
            SELECT l.at, l.accepted, (SELECT count(*) FROM rate_limit_log b WHERE b.user_id = l.user_id AND b.at < l.at
                AND b.at > l.at - %d * interval '1 millisecond' AND (b.accepted OR %s)) AS before
            FROM rate_limit_log l) AS v
        WHERE accepted <> (before < %d)""" % (window_ms, attempts, count))
    assert_equal(wrong, [], "verdicts against the rule")


@test
def a_request_is_accepted_and_becomes_a_card(world):
    world.up()
    answer = world.post("alice", '"tap-1"')
    assert_equal(answer.status, 202, "status")
    request = answer.json()
    assert_equal(answer.header("Location"), "/v1/card-requests/" + request["id"], "Location")
    assert_equal(answer.header("Idempotent-Replayed"), "false", "Idempotent-Replayed")
    assert_equal(request, {"id": request["id"], "kind": "new", "status": "PENDING", "created_at": request["created_at"],
                           "updated_at": request["created_at"], "card": None, "reason": None}, "body")
    assert_true(request["id"][14] == "7", "the id is a UUID of version 7")
    assert_true(request["created_at"].endswith("Z"), "times are UTC")
    world.settle()
    done = world.get("alice", "/v1/card-requests/" + request["id"])
    assert_equal(done.status, 200)
    assert_equal(done.json()["status"], "COMPLETED")
    assert_equal(done.json()["card"]["status"], "active")
    issued = world.sandbox.cards(user="alice")
    assert_equal([(card["reference"], card["key"], card["sends"]) for card in issued],
                 [(request["id"], request["id"], 1)],
                 "the issuer's cards")
    assert_true(world.sandbox.numbers()[0].endswith(done.json()["card"]["last4"]), "last4 is the number's")


@test
def three_hundred_identical_requests_over_two_apis_are_one_event(world):
    world.up(apis=2, workers=0)
    requests = [(world.apis()[i % 2].port, world.post_bytes("alice", '"same"')) for i in range(300)]
    answers = client.burst(requests)
    statuses = {answer.status if answer else None for answer in answers}
    assert_true(statuses <= {202, 503}, "statuses: %r" % statuses)
    accepted = [answer for answer in answers if answer.status == 202]
    assert_equal(sum(answer.header("Idempotent-Replayed") == "false" for answer in accepted), 1, "firsts")
    assert_equal(len({answer.body for answer in accepted}), 1, "different bodies")
    assert_equal(events(world), 1, "events")
    assert_equal(world.sql("SELECT count(*) FROM rate_limit_log"), "1", "slots taken")
    assert_true(all(answer.header("Retry-After") for answer in answers if answer.status == 503),
                "a 503 without Retry-After")


@test(limit__count="1")
def three_hundred_keys_of_one_user_over_two_apis_give_one_card(world):
    world.up(apis=2, workers=0)
    answers = client.burst([(world.apis()[i % 2].port, world.post_bytes("alice", '"key-%d"' % i)) for i in range(300)])
    statuses = sorted(answer.status if answer else 0 for answer in answers)
    assert_equal(statuses, [202] + [429] * 299, "statuses")
    assert_equal(events(world), 1, "events")
    assert_true(int(world.sql("SELECT count(*) FROM rate_limit_log WHERE NOT accepted")) >= 1,
                "the refusals are on record")


@test(limit__count="1")
def two_devices_at_the_same_moment_get_one_202_and_one_429(world):
    world.up(apis=2, workers=0)
    requests = [(api.port, world.post_bytes("user-%d" % i, '"device-%d"' % n))
                for i in range(120) for n, api in enumerate(world.apis())]
    answers = client.burst(requests)
    for i in range(120):
        assert_equal(sorted(answer.status for answer in answers[2 * i:2 * i + 2]), [202, 429],
                     "statuses of user-%d" % i)
    assert_equal(events(world), 120, "events")


@test(limit__count="1")
def an_acceptance_that_has_not_committed_yet_blocks_the_other_device(world):
    """The trap of insert-then-count: two transactions that do not see each other's row. Made certain by holding one
    of them open."""
    world.up(workers=0)
    with client.Wire(world.apis()[0].port) as wire:
        with world.holding(ACCEPT % (UNKNOWN_ID, "alice", "first"), end="COMMIT"):
            wire.send(world.post_bytes("alice", '"second"'))
            wait_until(lambda: world.apis()[0].metric("issuing_accept_batch_size_count") >= 2,
                       "the second request is tried again and again while the first one's transaction is open")
        assert_equal(wire.answer().status, 429, "status of the second")
    assert_equal(events(world), 1, "events")


@test
def a_key_that_is_still_being_recorded_gives_409_and_retry_after(world):
    world.up(workers=0)
    with world.holding(ACCEPT % (UNKNOWN_ID, "alice", "slow")):
        answer = world.post("alice", '"slow"')
        assert_equal(answer.status, 409, "status")
        assert_true(int(answer.header("Retry-After")) >= 1, "Retry-After")
        assert_equal(answer.json()["type"], "/problems/request-in-progress")
    assert_equal(world.apis()[0].metric_sum("issuing_db_errors_total"), 0, "the database refused nothing")
    assert_equal(world.post("alice", '"slow"').header("Idempotent-Replayed"), "false",
                 "the other one rolled back, so this one is the first")


@test
def an_api_that_the_schema_refuses_is_not_ready_until_it_works_again(world):
    world.up(workers=0)
    api = world.apis()[0]
    world.sql("ALTER TABLE issuing.rate_limit_log ADD CONSTRAINT nobody CHECK (user_id = '') NOT VALID")
    assert_equal(world.post("alice", '"a"').status, 503, "status")
    assert_true(not api.ready(), "readyz while nobody's request can be recorded")
    assert_true("nobody" in api.get("/readyz").body.decode(), "readyz says why")
    assert_equal((api.metric("issuing_ready"), api.metric('issuing_accept_failures_total{reason="schema"}')), (0, 1),
                 "ready, failures")
    world.sql("ALTER TABLE issuing.rate_limit_log DROP CONSTRAINT nobody")
    api.wait_ready()
    assert_equal(world.post("alice", '"a"').status, 202, "status when it works again")
    assert_equal(events(world), 1, "events")


@core
@slow
@test
def an_api_is_not_ready_while_another_role_fills_the_lock_table(world):
    """One statement of a role without any right."""
    world.own_database()
    world.up(workers=0)
    api = world.apis()[0]
    world.accept("anna")
    with world.holding("DO $$ BEGIN FOR g IN 1 .. 1000000 LOOP PERFORM pg_advisory_lock(1, g); END LOOP;"
                       " EXCEPTION WHEN out_of_memory THEN NULL; END $$"):
        wait_until(lambda: world.post("alice", "k").status == 503 and not api.ready(), "not ready")
    api.wait_ready()
    world.accept("bob")


@test
def a_plan_of_the_housekeeping_that_nobody_took_back_refuses_nobody(world):
    """No worker has been there for a day: the promised range has begun."""
    world.up(workers=0)
    world.sql("DO $$ DECLARE p text; BEGIN FOR p IN SELECT name FROM issuing.partitions LOOP"
              " EXECUTE format('DROP TABLE issuing.%I', p); END LOOP; DELETE FROM issuing.partitions; END $$")
    world.sql("INSERT INTO issuing.partition_plans (parent, from_at, to_at, planned_at) SELECT p, now(),"
              " now() + interval '1 day', now() - interval '1 day' FROM unnest(ARRAY['rate_limit_log',"
              " 'idempotency_keys', 'outbox_events']) p;"
              " SELECT issuing.default_promise(parent || '_default', from_at, to_at) FROM issuing.partition_plans")
    assert_equal(world.post("alice", '"a"').status, 202, "status")
    assert_true(world.apis()[0].ready(), "readyz")
    assert_equal(world.sql("SELECT count(*) FROM issuing.partition_plans"), "0", "plans")


@slow
@test
def a_plan_that_no_worker_takes_back_refuses_nobody_while_an_api_runs(world):
    """Nobody asks the api for anything, and the range is one of rows that it never writes."""
    world.up(workers=0)
    world.sql("DO $$ DECLARE p text; BEGIN FOR p IN SELECT name FROM issuing.partitions LOOP"
              " EXECUTE format('DROP TABLE issuing.%I', p); END LOOP; DELETE FROM issuing.partitions; END $$;"
              " INSERT INTO issuing.partition_plans (parent, from_at, to_at, planned_at) VALUES ('operator_actions',"
              " now() - interval '1 minute', now() + interval '1 day', now() - interval '1 day');"
              " SELECT issuing.default_promise(parent || '_default', from_at, to_at) FROM issuing.partition_plans")
    wait_until(lambda: world.sql("SELECT count(*) FROM issuing.partition_plans") == "0", "the plan is taken back")
    assert_equal(world.ctl("pause", "core", "--reason", "t").returncode, 0, "an operator's action")


@test
def others_are_not_held_up_by_a_user_whose_lock_is_taken(world):
    world.up(workers=0)
    with client.Wire(world.apis()[0].port) as wire:
        with world.holding("SELECT pg_advisory_xact_lock(hashtextextended('alice', salt)) FROM issuing.lock_salt"):
            wire.send(world.post_bytes("alice", '"a"'))
            wait_until(lambda: world.apis()[0].metric("issuing_accept_queue") == 1, "alice waits")
            for i in range(5):
                assert_equal(world.post("bob-%d" % i, '"b"').status, 202, "bob's status")
            assert_equal(events(world), 5, "events")
        # On a busy machine her wait may have ended before.
        assert_true(wire.answer().status in (202, 503), "alice's first status")
        assert_equal(world.post("alice", '"a"').status, 202, "alice's status in her turn")
        assert_equal(events(world), 6, "events")


@test(limit__count="1", limit__window="1h")
def a_repeat_gets_the_same_bytes_is_never_limited_and_outlives_a_restart(world):
    world.up(workers=1)
    first = world.post("alice", '"k"')
    assert_equal(world.post("alice", '"other"').status, 429, "another key")
    world.settle()
    for again in range(3):
        repeat = world.post("alice", '"k"')
        assert_equal((repeat.status, repeat.body, repeat.header("Location")),
                     (202, first.body, first.header("Location")),
                     "the repeat")
        assert_equal(repeat.header("Idempotent-Replayed"), "true", "Idempotent-Replayed")
        assert_equal(repeat.header("RateLimit").split(";")[1], "r=0", "slots left")
        if again == 0:
            assert_equal(world.apis()[0].stop(), 0, "exit status")
            world.restart(world.apis()[0])
        if again == 1:
            world.apis()[0].kill()
            world.restart(world.apis()[0])
    assert_equal(events(world), 1, "events")
    assert_true(world.apis()[0].metric("issuing_idempotency_replays_total") == 1, "the replays are counted")


@test
def the_same_value_in_other_bytes_is_the_same_body(world):
    world.up(workers=0)
    first = world.post("alice", "k", '{"kind":"new","program":"travel","memo":"h\u00e9"}')
    for body in ('{ "memo" : "h\u00e9",\r\n\t"program":"travel", "kind":"new" }',
                 '{"kind":"new","program":"tra\\u0076el","memo":"h\\u00e9"}'):
        answer = world.post("alice", "k", body)
        assert_equal((answer.status, answer.body), (202, first.body), body)
    assert_equal(events(world), 1, "events")


@test
def a_reused_key_with_another_body_is_422_and_changes_nothing(world):
    world.up(workers=0)
    world.accept("alice", "k", {"kind": "new"})
    for body in ({"kind": "new", "memo": ""}, {"kind": "new", "memo": "x"}, {"kind": "new", "program": "p"},
                 {"kind": "reissue", "replaces": UNKNOWN_ID}):
        answer = world.post("alice", "k", body)
        assert_equal((answer.status, answer.json()["type"]), (422, "/problems/idempotency-key-reused"), repr(body))
        assert_equal(answer.header("Idempotent-Replayed"), None, "Idempotent-Replayed on an error")
    assert_equal(world.post("alice", "k", {"kind": "new"}).status, 202, "the first body again")
    assert_equal(world.sql("SELECT count(*) FROM rate_limit_log"), "1", "slots taken")


@test
def the_reason_of_a_reissue_belongs_to_its_body(world):
    world.up()
    card = world.issue("alice")["card"]["id"]
    body = {"kind": "reissue", "replaces": card}
    first = world.post("alice", "again", body)
    assert_equal(first.status, 202, "without a reason")
    assert_equal(world.post("alice", "again", {**body, "reason": "lost"}).body, first.body, "which is `lost`")
    for reason in ("stolen", "damaged", "expired"):
        answer = world.post("alice", "again", {**body, "reason": reason})
        assert_equal((answer.status, answer.json()["type"]), (422, "/problems/idempotency-key-reused"), reason)
    for bad in ({"kind": "new", "reason": "lost"}, {**body, "reason": "sold"}, {**body, "reason": None}):
        answer = world.post("alice", "bad", bad)
        assert_equal((answer.status, [row["pointer"] for row in answer.json()["errors"]]), (400, ["#/reason"]), repr(bad))


@test
def a_key_belongs_to_one_user(world):
    world.up(workers=1)
    one, other = world.accept("alice", "same", {"kind": "new"}), world.accept("bob", "same",
                                                                              {"kind": "new", "memo": "bob's"})
    assert_true(one != other, "two events")
    world.settle()
    assert_equal(len(world.sandbox.cards()), 2, "cards")


@slow
@test(limit__count="3", limit__window="1500ms")
def the_window_slides_and_every_verdict_follows_the_rule(world):
    world.up(apis=2, workers=0)
    first = [world.post("alice", "k%d" % i) for i in range(3)]
    assert_equal([answer.status for answer in first], [202] * 3, "the first three")
    assert_equal([answer.header("RateLimit").split(";")[1] for answer in first], ["r=2", "r=1", "r=0"], "slots left")
    assert_equal(first[0].header("RateLimit-Policy"), '"issuance";q=3;w=2', "RateLimit-Policy, rounded up")
    accepted, refused, number = 3, 0, 3
    while accepted < 8:
        number += 1
        answer = world.post("alice", "k%d" % number, api=world.apis()[number % 2])
        assert_true(answer.status in (202, 429), "status %d" % answer.status)
        accepted += answer.status == 202
        refused += answer.status == 429
        if answer.status == 429:
            assert_true(1 <= int(answer.header("Retry-After")) <= 2, "Retry-After %s" % answer.header("Retry-After"))
            assert_equal(answer.header("RateLimit").split(";")[1], "r=0", "slots left")
    check_window(world, 3, 1500, "false")
    assert_equal(world.apis()[0].metric_sum("issuing_ratelimited_total") +
                 world.apis()[1].metric_sum("issuing_ratelimited_total"), float(refused), "refusals counted")


@slow
@test(limit__count="2", limit__window="5s", limit__counts="attempts")
def with_limit_counts_attempts_refused_tries_prolong_the_block(world):
    world.up(workers=0)
    number = 0

    def post_status():
        nonlocal number
        number += 1
        return world.post("alice", "k%d" % number).status
    assert_equal([post_status(), post_status()], [202, 202], "the first two")
    # Asking all the time never gets through, although the window passes: only a silent window lets somebody in.
    wait_until(lambda: post_status() == 429 and
               world.sql("SELECT max(at) - min(at) > '7s' FROM rate_limit_log") == "t", "7 s of asking", every=0.1)
    check_window(world, 2, 5000, "true")
    wait_until(lambda: world.sql("SELECT clock_timestamp() > max(at) + '5s' FROM rate_limit_log") == "t",
               "a quiet window")
    assert_equal(post_status(), 202, "after silence")
    check_window(world, 2, 5000, "true")


@test(limit__count="1", limit__window="800ms")
def a_429_leaves_its_key_unused(world):
    world.up(workers=0)
    world.accept("alice", "first")
    assert_equal(world.post("alice", "second", {"kind": "new", "memo": "one"}).status, 429, "the second")
    assert_equal(world.sql("SELECT count(*) FROM idempotency_keys"), "1", "keys")
    assert_equal(world.sql("SELECT count(*) FROM rate_limit_log WHERE NOT accepted"), "1", "the refusal is on record")
    # Also with another body: nothing is remembered under that key.

    def second():
        answer = world.post("alice", "second", {"kind": "new", "memo": "two"})
        return answer if answer.status == 202 else None
    answer = wait_until(second, "a free slot")
    assert_equal(answer.header("Idempotent-Replayed"), "false", "Idempotent-Replayed")
    check_window(world, 1, 800, "false")


@test(limit__count="1", limit__window="1h")
def ratelimit_headers_are_on_every_201_202_and_429(world):
    world.up(workers=1)
    for answer, left in ((world.post("alice", "a", headers=[("Prefer", "wait=20")]), 0), (world.post("alice", "a"), 0),
                         (world.post("alice", "b"), 0)):
        assert_equal(answer.header("RateLimit-Policy"), '"issuance";q=1;w=3600', "policy on %d" % answer.status)
        name, state, reset = answer.header("RateLimit").split(";")
        assert_equal((name, state), ('"issuance"', "r=%d" % left), "state on %d" % answer.status)
        assert_true(3500 < int(reset[2:]) <= 3600, "reset on %d: %s" % (answer.status, reset))
    assert_equal([world.post("alice", key).status for key in ("a", "b")], [202, 429], "statuses")
    assert_true(3500 < int(world.post("alice", "b").header("Retry-After")) <= 3600, "Retry-After")


@test
def every_spelling_of_a_key_is_read_as_documented(world):
    world.up(workers=0)
    long_key, signs = "x" * 255, "!#$%&'*+-.^_`|~:/=?@()<>[]{}"
    good = [  # the header, the key it means
        ('"k"', "k"), ("k", "k"), ('"k";a=1', "k"), ('"k"; a=1;b="x;y"', "k"), ('  "k"  ', "k"), ('"a b"', "a b"),
        ('"\\""', '"'), ('"\\\\"', "\\"), ('"' + long_key + '"', long_key), (long_key, long_key),
        (signs, signs), ('","', ","),
    ]
    for i, (header, key) in enumerate(good):
        world.accept("user-%d" % i, header)
        assert_equal(world.sql("SELECT key = $key$%s$key$ FROM idempotency_keys WHERE user_id = 'user-%d'" % (key, i)),
                     "t",
                     "key of " + header)
    first = world.post("alice", '"k"')
    for header in ("k", '"k";x', ' "k"'):
        assert_equal(world.post("alice", header).body, first.body, "%s is the same key" % header)
    bad = ['""', "", " ", '"k', 'k"', '"k" x', '"k","k"', "a,b", "a;b", "a\\b", "a b", '"\\k"', '"\\', '"a\\"',
           "x" * 256, '"' + "x" * 256 + '"', "\x80\xff",
           '"\x80"', '"a\tb"', "k\xe9", '"k";', '"k";A=1', '"k"=1']
    for header in bad:
        answer = world.post("mallory", header)
        assert_equal(answer.status, 400, "status of %r" % header)
        assert_equal([error.get("header") for error in answer.json()["errors"]], ["Idempotency-Key"],
                     "errors of %r" % header)
    assert_equal(world.post("mallory", "k", headers=[("Idempotency-Key", "k")]).status, 400, "two lines")
    assert_equal(world.post("mallory", None).status, 400, "none at all")
    assert_equal(world.sql("SELECT count(*) FROM outbox_events WHERE user_id = 'mallory'"), "0", "mallory's events")


@test
def a_client_that_goes_away_gets_its_request_all_the_same(world):
    world.up(workers=1)
    for i in range(20):
        with client.Wire(world.apis()[0].port) as wire:
            wire.send(world.post_bytes("user-%d" % i, "k"))
    wait_until(lambda: events(world) == 20, "20 events")
    world.settle()
    for i in range(20):
        assert_equal(world.post("user-%d" % i, "k").header("Idempotent-Replayed"), "true", "the repeat")


@test(limit__count="100000")
def many_users_and_repeats_at_once_over_two_apis_lose_and_double_nothing(world):
    world.up(apis=2, workers=2)
    first = {}
    wrong = []

    def one(number):
        for i in range(40):
            user, key = "user-%d" % (i % 20), "key-%d-%d" % (number % 2, i)
            answer = world.post(user, key, api=world.apis()[(number + i) % 2])
            if answer.status not in (202, 503):
                wrong.append(answer)
            elif answer.status == 202 and first.setdefault((user, key), answer.body) != answer.body:
                wrong.append("two bodies for %s %s" % (user, key))
    threads = [threading.Thread(target=one, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert_equal(wrong, [], "answers")
    assert_equal(events(world), len(first), "events")
    world.settle()
    assert_equal(len(world.sandbox.cards()), len(first), "cards")


@test
def a_stricter_isolation_of_roles_and_database_changes_nothing(world):
    """Story: every request was answered 503, and the api said that it was ready."""
    world.sql("ALTER DATABASE %s SET default_transaction_isolation = 'repeatable read'" % world.database)
    for role in ("issuing_api", "issuing_worker", "issuing_operator"):
        world.sql("ALTER ROLE %s IN DATABASE %s SET default_transaction_isolation = serializable" %
                  (role, world.database))
    world.up()
    card = world.issue("alice")["card"]
    assert_equal(world.get("alice", "/v1/cards/%s/number" % card["id"]).status, 200, "the number")
    assert_equal(world.ctl("status").returncode, 0, "status")


@test
def the_sandbox_mints_tokens_that_the_api_takes(world):
    world.up(workers=0)
    minted = run([BUILD / "issuing-sandbox", "token", "--user", "alice", "--secret-file", world.suite.secret_file])
    assert_equal(minted.returncode, 0, "exit status")
    world.tokens["alice"] = minted.stdout.strip()
    assert_equal(world.post("alice", "k").status, 202)
    expired = run([BUILD / "issuing-sandbox", "token", "--user", "alice", "--secret-file", world.suite.secret_file,
                   "--expires", "-1h"])
    world.tokens["alice"] = expired.stdout.strip()
    assert_equal(world.post("alice", "k").status, 401)


@test
def a_token_needs_no_more_than_a_user_where_the_configuration_has_the_key(world):
    world.up(workers=0)
    config = world.dir / "token.conf"
    config.write_text("[auth]\nhs256_secret_file = %s\n" % world.suite.secret_file)
    minted = run([BUILD / "issuing-sandbox", "token", "--user", "alice", "--config", config])
    assert_equal((minted.returncode, minted.stderr), (0, ""), "exit status")
    world.tokens["alice"] = minted.stdout.strip()
    assert_equal(world.post("alice", "k").status, 202)
    config.write_text("")
    assert_equal(run([BUILD / "issuing-sandbox", "token", "--user", "alice", "--config", config]).returncode, 2,
                 "no key anywhere")
