/* An attempt makes the calls of its steps, and ends with one write of its result. The runner runs here with a peer of
 * ours on a real socket, and the writes go to the test. */
#include "tests/unit/worker/flow_world.h"
#include "tests/support/suite.h"

/* ---- an attempt ---- */

/* The slot is free, and neither peer holds or awaits a call of the attempt. */
static void expect_dropped(int requests)
{
    ck_assert_int_eq(world.ended, 1);
    ck_assert_int_eq(world.request_count, requests);
    ck_assert_int_eq(world.peers.issuer.target.breaker.in_flight, 0);
    ck_assert_int_eq(world.peers.core.target.breaker.in_flight, 0);
    ck_assert(TAILQ_EMPTY(&world.peers.core.target.waiting));
    ck_assert_int_eq(world.write_count, 0);
}

/* The issuer refuses, and so the attempt ends. */
static void refuse_create(int number)
{
    expect_request(number, "/v1/cards");
    answer(number, 422, "{\"code\":\"no\"}");
    expect_end(OUTBOX_REJECTED, "no");
}

/* Starts the attempt; core-api has received its first call. */
static void start_and_expect_check(struct flow *flow)
{
    flow_run_start(flow, true);
    expect_request(0, "/v1/users/user-0/card-eligibility");
}

TEST(a_create_follows_when_core_api_agrees)
{
    start_and_expect_check(&world.flow);
    ck_assert_int_eq(world.peers.issuer.target.breaker.in_flight, 0);
    answer(0, 200, ELIGIBLE);
    refuse_create(1);
}

/* An attempt that finds its lease lost after a create reports the event: it may have ended over a look-up that could
 * not see the card. An attempt that has sent nothing reports nothing. */
START_TEST(a_lease_that_is_lost_after_a_create_is_reported)
{
    struct flow *flow = &world.flow;
    start_and_expect_check(flow);
    answer(0, 200, _i ? ELIGIBLE : INELIGIBLE);
    if (_i) {
        expect_request(1, "/v1/cards");
        answer(1, 422, "{\"code\":\"no\"}");
    }
    struct write_op *op = expect_write(WRITE_END);
    ck_assert_int_eq(world.reported, 0);
    op->on_written(op, WRITE_FENCED, "");
    ck_assert_int_eq(world.ended, 1);
    ck_assert_int_eq(world.reported, _i);
}

/* The worker stood still around its create, and its end cannot be written: nobody else knows of the create. One that
 * ended within its lease is known from the claim. */
START_TEST(a_create_that_outlasts_its_lease_is_reported_without_the_database)
{
    struct flow *flow = &world.flow;
    start_and_expect_check(flow);
    answer(0, 200, ELIGIBLE);
    expect_request(1, "/v1/cards");
    if (_i)
        flow->lease_until_ms = clock_mono_ms() - SECOND;
    answer(1, 422, "{\"code\":\"no\"}");
    expect_write(WRITE_END)->on_written(world.writes[0], WRITE_GIVEN_UP, "the database is away");
    ck_assert_int_eq(world.ended, 1);
    ck_assert_int_eq(world.reported, _i);
}

static const struct {
    int status;
    const char *body;
    enum outbox_status end;
    const char *code;
} answers[] = {
    {200, INELIGIBLE, OUTBOX_REJECTED, "blocked"},   {404, "{}", OUTBOX_REJECTED, "user_not_found"},
    {418, "{}", OUTBOX_FAILED, "core_http_418"},     {503, "{}", OUTBOX_PENDING, "core_http_503"},
    {401, "{}", OUTBOX_PENDING, "core_http_401"},    {429, "{}", OUTBOX_PENDING, "core_http_429"},
    {200, "[1]", OUTBOX_PENDING, "core_unreadable"},
};

START_TEST(an_answer_of_core_api_ends_the_attempt)
{
    start_and_expect_check(&world.flow);
    answer(0, answers[_i].status, answers[_i].body);
    expect_end(answers[_i].end, answers[_i].code);
    ck_assert_int_eq(world.request_count, 1);
}

TEST(a_payload_that_cannot_be_read_ends_the_event_without_a_call)
{
    flow_run_start(&world.flow, false);
    expect_end(OUTBOX_FAILED, "payload_invalid");
    ck_assert_int_eq(world.request_count, 0);
}

/* Also where it would be looked up, cancelled or ended at once. */
START_TEST(nothing_is_done_for_an_event_of_another_issuer)
{
    struct flow *flow = &world.flow;
    flow->attempt.is_of_other_issuer = true;
    flow->attempt.number = _i == 1 ? 11 : 1;
    flow->attempt.sent_age_ms = 20 * SECOND;
    flow->attempt.is_saved = _i == 2;
    snprintf(flow->attempt.held_end, sizeof(flow->attempt.held_end), "%s", _i == 3 ? "refused" : "");
    snprintf(flow->attempt.pending_code, sizeof(flow->attempt.pending_code), "%s", _i == 3 ? "limit" : "");
    flow_run_start(flow, _i != 4);
    ck_assert_int_eq(world.write_count, 1);
    const struct write_end *end = world.writes[0]->end;
    ck_assert_int_eq(end->status, OUTBOX_PENDING);
    ck_assert_str_eq(end->cause, "other_issuer");
    ck_assert(end->give_back && !end->clear_sent && !end->may_arrive);
    ck_assert_ptr_null(world.writes[0]->parameters);
    ck_assert_int_le(end->delay_ms, world.config.retry.cap_ms);
    if (_i == 3)
        ck_assert(end->held_end && strcmp(end->held_end, "refused") == 0 && strcmp(end->held_end_code, "limit") == 0);
    world.writes[0]->on_written(world.writes[0], WRITE_DONE, NULL);
    ck_assert_int_eq(world.request_count, 0);
}

/* Also where it was sent before, by a newer worker, or its attempts are used up. */
START_TEST(a_request_of_a_newer_api_waits_for_a_newer_worker)
{
    struct flow *flow = &world.flow;
    flow->attempt.is_newer = true;
    flow->attempt.number = _i == 1 ? 11 : 1;
    flow->attempt.sent_age_ms = _i == 2 ? 20 * SECOND : -1;
    flow_run_start(flow, false);
    ck_assert_int_eq(world.write_count, 1);
    const struct write_end *end = world.writes[0]->end;
    ck_assert_int_eq(end->status, OUTBOX_PENDING);
    ck_assert_str_eq(end->cause, "newer_request");
    ck_assert(end->give_back && !end->may_arrive);
    world.writes[0]->on_written(world.writes[0], WRITE_DONE, NULL);
    ck_assert_int_eq(world.request_count, 0);
}

TEST(an_attempt_too_many_ends_the_event_without_a_call)
{
    world.flow.attempt.number = 11;
    flow_run_start(&world.flow, true);
    expect_end(OUTBOX_FAILED, "attempts_exhausted");
    ck_assert_int_eq(world.request_count, 0);
}

/* Attempts that start at another step than check. */
static const struct {
    bool is_saved;
    const char *pending_code;
    const char *path;
    int status; /* that ends it */
    const char *body;
    enum outbox_status end;
    const char *code;
} others[] = {
    {true, "", "/v1/users/user-0/cards", 200, "{}", OUTBOX_COMPLETED, ""},
    {true, "gone", "/v1/cards/card-1/cancel", 422, "{}", OUTBOX_FAILED, "cancel_failed"},
    {false, "gone", "/v1/cards", 200, "{\"cards\":[]}", OUTBOX_PENDING, "issuer_unreadable"}, /* it was seen */
};

static void start_elsewhere(struct flow *flow, int i)
{
    flow->attempt.is_saved = others[i].is_saved;
    flow->attempt.sent_age_ms = flow->attempt.settle_age_ms = HOUR;
    snprintf(flow->card.id, sizeof flow->card.id, "card-1");
    snprintf(flow->save.last4, sizeof flow->save.last4, "1111");
    snprintf(flow->attempt.pending_code, sizeof flow->attempt.pending_code, "%s", others[i].pending_code);
    flow_run_start(flow, true);
}

START_TEST(an_attempt_goes_on_at_the_step_that_the_row_shows)
{
    start_elsewhere(&world.flow, _i);
    expect_request(0, others[_i].path);
    answer(0, others[_i].status, others[_i].body);
    expect_end(others[_i].end, others[_i].code);
}

TEST(a_longer_lease_is_written_before_a_call_that_could_outlast_it)
{
    struct flow *flow = &world.flow;
    flow->lease_until_ms = clock_mono_ms() + SECOND;
    flow_run_start(flow, true);
    struct write_op *op = expect_write(WRITE_EXTEND);
    ck_assert_int_eq(world.request_count, 0);
    world.write_count = 0;
    op->on_written(op, WRITE_DONE, "");
    expect_request(0, "/v1/users/user-0/card-eligibility");
    answer(0, 200, ELIGIBLE);
    refuse_create(1);
}

/* ---- a machine that was suspended ---- */

#define SLEPT_US (86400 * INT64_C(1000000))

TEST(no_create_leaves_when_the_machine_slept_after_the_claim)
{
    struct flow *flow = &world.flow;
    flow_run_start(flow, true);
    expect_request(0, "/v1/users/user-0/card-eligibility");
    answer(0, 200, ELIGIBLE);
    clock_advance(SLEPT_US); /* before the answer is read */
    run_until(world.write_count > 0 || world.request_count > 1);
    ck_assert_int_eq(world.request_count, 1);
    struct write_op *op = expect_write(WRITE_EXTEND); /* its deadline is the end of the lease, which is over */
    ck_assert_int_lt(op->deadline_ms, clock_mono_ms());
    world.write_count = 0;
    op->on_written(op, WRITE_FENCED, "");
    expect_dropped(1);
    clock_release();
}

TEST(no_create_leaves_when_the_machine_slept_while_the_call_was_queued)
{
    struct flow *flow = &world.flow;
    struct target_ticket blocker = {.on_admitted = NULL};
    ck_assert_int_eq(target_enter(&world.peers.issuer.target, &blocker), TARGET_ADMITTED);
    flow_run_start(flow, true);
    expect_request(0, "/v1/users/user-0/card-eligibility");
    answer(0, 200, ELIGIBLE);
    run_until(flow->attempt.step == STEP_ISSUE && flow->wait == FLOW_WAIT_TARGET);
    clock_advance(SLEPT_US);
    target_leave(&world.peers.issuer.target, &blocker, BREAKER_GOOD, NULL, -1);
    run_until(world.write_count > 0 || world.request_count > 1);
    ck_assert_int_eq(world.request_count, 1);
    struct write_op *op = expect_write(WRITE_EXTEND);
    world.write_count = 0;
    op->on_written(op, WRITE_FENCED, "");
    expect_dropped(1);
    clock_release();
}

START_TEST(an_attempt_that_may_not_call_is_given_back)
{
    world.env.is_draining = _i == 0;
    if (_i == 1)
        world.peers.issuer.target.breaker.state = BREAKER_HALF_OPEN;
    flow_run_start(&world.flow, true);
    ck_assert(expect_write(WRITE_END)->end->give_back);
    expect_end(OUTBOX_PENDING, _i == 0 ? "drain" : "breaker_open");
    ck_assert_int_eq(world.request_count, 0);
}

/* ---- peers that are away or rest ---- */

TEST(an_event_that_failed_a_probe_comes_back_after_the_next_probe)
{
    struct flow *flow = &world.flow;
    struct breaker *breaker = &world.peers.core.target.breaker;
    breaker->state = BREAKER_OPEN;
    breaker->probe_at_ms = 0;
    breaker->probe_interval_ms = 4 * SECOND;
    start_and_expect_check(flow);
    answer(0, 503, "{}");
    const struct write_end *end = expect_write(WRITE_END)->end;
    ck_assert_int_eq(breaker->state, BREAKER_OPEN);
    ck_assert(end->give_back);
    ck_assert_int_gt(clock_mono_ms() + end->delay_ms, breaker->probe_at_ms);
}

TEST(core_api_is_not_called_while_the_issuer_rests)
{
    struct flow *flow = &world.flow;
    world.peers.issuer.target.rest_until_ms = clock_mono_ms() + 60 * SECOND;
    flow_run_start(flow, true);
    const struct write_end *end = expect_write(WRITE_END)->end;
    ck_assert(end->give_back);
    ck_assert_int_ge(end->delay_ms, 50 * SECOND);
    expect_end(OUTBOX_PENDING, "target_resting");
    ck_assert_int_eq(world.request_count, 0);
}

TEST(core_api_is_not_called_while_the_issuer_is_paused)
{
    target_set_paused(&world.peers.issuer.target, true);
    flow_run_start(&world.flow, true);
    ck_assert(expect_write(WRITE_END)->end->give_back);
    expect_end(OUTBOX_PENDING, "target_paused");
    ck_assert_int_eq(world.request_count, 0);
}

/* The operator pauses the issuer while core-api answers, while the call waits in the queue, or while the lease of the
 * admitted call is extended: no create leaves, and no attempt is used up. */
START_TEST(a_pause_holds_back_a_create_at_the_last_moment)
{
    struct flow *flow = &world.flow;
    struct target *issuer = &world.peers.issuer.target;
    struct target_ticket blocker = {.on_admitted = NULL};
    start_and_expect_check(flow);
    if (_i > 0)
        ck_assert_int_eq(target_enter(issuer, &blocker), TARGET_ADMITTED);
    else
        target_set_paused(issuer, true);
    answer(0, 200, ELIGIBLE);
    if (_i > 0)
        run_until(flow->wait == FLOW_WAIT_TARGET);
    if (_i == 1)
        target_set_paused(issuer, true);
    if (_i == 2) {
        flow->lease_until_ms = clock_mono_ms() + SECOND;
        target_leave(issuer, &blocker, BREAKER_GOOD, NULL, -1);
        struct write_op *op = expect_write(WRITE_EXTEND);
        world.write_count = 0;
        target_set_paused(issuer, true);
        op->on_written(op, WRITE_DONE, "");
    }
    ck_assert(expect_write(WRITE_END)->end->give_back);
    expect_end(OUTBOX_PENDING, "target_paused");
    ck_assert_int_eq(world.request_count, 1);
    if (_i == 1)
        target_leave(issuer, &blocker, BREAKER_GOOD, NULL, -1);
    ck_assert_int_eq(issuer->breaker.in_flight, 0);
}

/* The waits of an attempt are visible: one at a time, each for what is in flight. */
TEST(an_attempt_shows_what_it_waits_for)
{
    struct flow *flow = &world.flow;
    struct target_ticket blocker = {.on_admitted = NULL};
    ck_assert_int_eq(flow->wait, FLOW_WAIT_NONE);
    flow->lease_until_ms = clock_mono_ms() + SECOND;
    ck_assert_int_eq(target_enter(&world.peers.core.target, &blocker), TARGET_ADMITTED);
    flow_run_start(flow, true);
    ck_assert_int_eq(flow->wait, FLOW_WAIT_LEASE);
    struct write_op *op = expect_write(WRITE_EXTEND);
    world.write_count = 0;
    op->on_written(op, WRITE_DONE, "");
    ck_assert_int_eq(flow->wait, FLOW_WAIT_TARGET);
    target_leave(&world.peers.core.target, &blocker, BREAKER_GOOD, NULL, -1);
    ck_assert_int_eq(flow->wait, FLOW_WAIT_CALL);
    expect_request(0, "/v1/users/user-0/card-eligibility");
    answer(0, 200, INELIGIBLE);
    run_until(world.write_count == 1);
    ck_assert_int_eq(flow->wait, FLOW_WAIT_END);
    expect_end(OUTBOX_REJECTED, "blocked");
}

SUITE(flow_run)
{
    TCase *tcase = tcase_create("attempt");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    ADD_TESTS(tcase);
    tcase_add_loop_test(tcase, a_lease_that_is_lost_after_a_create_is_reported, 0, 2);
    tcase_add_loop_test(tcase, a_create_that_outlasts_its_lease_is_reported_without_the_database, 0, 2);
    tcase_add_loop_test(tcase, an_answer_of_core_api_ends_the_attempt, 0, ARRAY_SIZE(answers));
    tcase_add_loop_test(tcase, nothing_is_done_for_an_event_of_another_issuer, 0, 5);
    tcase_add_loop_test(tcase, a_request_of_a_newer_api_waits_for_a_newer_worker, 0, 3);
    tcase_add_loop_test(tcase, an_attempt_goes_on_at_the_step_that_the_row_shows, 0, ARRAY_SIZE(others));
    tcase_add_loop_test(tcase, an_attempt_that_may_not_call_is_given_back, 0, 2);
    tcase_add_loop_test(tcase, a_pause_holds_back_a_create_at_the_last_moment, 0, 3);
    suite_add_tcase(suite, tcase);
}
