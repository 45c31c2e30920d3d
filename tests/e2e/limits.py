"""With one token nobody can fill the tables or read card numbers without end: what a user repeats adds a limited number
of rows, and card numbers are shown a limited number of times a minute."""
from harness import assert_equal, assert_true, test

REVEALS = 'issuing_number_reveals_total{result="%s"}'


def number_path(world, user):
    return "/v1/cards/%s/number" % world.issue(user)["card"]["id"]


def reveals(world, result):
    return sum(api.metric(REVEALS % result) for api in world.apis())


@test
def a_user_is_shown_ten_numbers_a_minute_over_all_apis(world):
    world.up(apis=2)
    paths = {user: number_path(world, user) for user in ("alice", "bob")}
    for result in ("revealed", "limited", "not_found", "unreadable"):
        assert_equal([api.metrics().get(REVEALS % result) for api in world.apis()], [0.0, 0.0],
                     result + " is there from the start")
    answers = [world.get("alice", paths["alice"], api=world.apis()[i % 2]) for i in range(30)]
    assert_equal([answer.status for answer in answers], [200] * 10 + [429] * 20, "statuses")
    last = answers[-1]
    assert_true(1 <= int(last.header("Retry-After")) <= 60, "Retry-After %s" % last.header("Retry-After"))
    assert_equal((last.json()["type"], last.json()["status"], last.header("Content-Type"),
                  last.header("Cache-Control")),
                 ("/problems/reveals-limited", 429, "application/problem+json", "no-store"), "the problem")
    assert_equal(world.get("alice", last.json()["type"]).status, 200, "its page")
    assert_true(not any(number.encode() in last.body for number in world.sandbox.numbers()), "a number in a refusal")
    # Of the refusals, one row.
    assert_equal(world.sql("SELECT action, count(*), min(actor), min(db_role) FROM operator_actions GROUP BY 1 ORDER"
                           " BY 1"),
                 "number_refused|1|alice|issuing_api\nnumber_revealed|10|alice|issuing_api", "operator_actions")
    assert_equal([reveals(world, result) for result in ("revealed", "limited", "not_found")], [10.0, 20.0, 0.0],
                 "metric")
    # It is this user's, and of numbers only.
    assert_equal(world.get("bob", paths["bob"]).status, 200, "another user")
    assert_equal(world.get("alice", paths["alice"].removesuffix("/number")).status, 200, "the masked card")
    assert_equal(world.get("bob", paths["alice"]).status, 404, "another user's card")
    assert_equal(reveals(world, "not_found"), 1.0, "not_found")
    # A minute later.
    world.sql("UPDATE number_reveals SET revealed_at = ARRAY(SELECT a - interval '1 min' FROM unnest(revealed_at) a)")
    assert_equal(world.get("alice", paths["alice"]).status, 200, "a minute later")


@test(card__reveal_limit="50")
def what_the_owner_allows_binds_every_api(world):
    world.up()
    path = number_path(world, "alice")
    world.sql("SELECT issuing.set_ceiling('reveals', 2)")
    assert_equal([world.get("alice", path).status for _ in range(4)], [200, 200, 429, 429], "statuses")
    world.sql("SELECT issuing.set_ceiling('reveals', 0)")
    assert_equal(world.get("alice", path).status, 404, "no number is shown")


@test(card__reveal_limit="0")
def a_limit_of_none_shows_no_number(world):
    world.up()
    path = number_path(world, "alice")
    answer = world.get("alice", path)
    assert_equal((answer.status, answer.json()["type"]), (404, "/problems/not-found"), "answer")
    assert_equal(world.sql("SELECT count(*) FROM operator_actions"), "0", "operator_actions")


@test(limit__count="1", limit__window="1h")
def a_client_that_repeats_without_a_pause_fills_no_table(world):
    world.up(workers=0)
    statuses = [world.post("alice", "k%d" % i).status for i in range(400)]
    assert_equal(statuses, [202] + [429] * 399, "statuses")
    assert_equal(world.apis()[0].metric_sum("issuing_ratelimited_total"), 399.0, "each refusal is counted")
    rows = world.row("SELECT count(*) AS n, extract(epoch FROM max(at) - min(at)) AS seconds FROM rate_limit_log"
                     " WHERE NOT accepted")
    assert_true(1 <= rows["n"] <= rows["seconds"] + 1, "one refusal a second is on record: %r" % rows)
    assert_equal(world.sql("SELECT count(*) FROM rate_limit_log WHERE accepted"), "1", "accepted")
