/* A delivery by the runner: what leaves, under which key, and what the end writes. The receiver is a peer of ours on a
 * real socket, and the writes go to the test. */
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/suite.h"
#include "tests/unit/worker/flow_world.h"
#include "worker/route/route_call.h"

#define BODY "{\"amount\": 7, \"to\": \"Zo\u00eb\"}"

static struct config_route *configured(void)
{
    return &world.config.routes[0];
}

static struct target *target(void)
{
    return &world.routes.routes[0].peer.target;
}

static void start(bool is_readable)
{
    struct slice user = {.bytes = "user 0", .length = 6}, body = {.bytes = BODY, .length = sizeof(BODY) - 1};
    ck_assert(flow_take_delivery(&world.flow, &world.routes.routes[0], user, body));
    world.flow.made_ms = 1700000000123;
    flow_run_start(&world.flow, is_readable);
}

/* The same event again, as the next claim has it. */
static void start_again(int64_t sent_age_ms)
{
    world.ended = world.write_count = 0;
    world.flow.attempt.number++;
    world.flow.attempt.sent_age_ms = world.flow.attempt.settle_age_ms = sent_age_ms;
    start(true);
}

static void expect_header(int number, const char *name, const char *value)
{
    struct slice got = http_header(world.requests[number], name, NULL);
    ck_assert_msg(got.bytes && got.length == strlen(value) && memcmp(got.bytes, value, got.length) == 0, "%s: %.*s",
                  name, (int)got.length, got.bytes ? (const char *)got.bytes : "");
}

static void expect_delivery(int number)
{
    expect_request(number, "/charges");
    ck_assert_int_eq(world.requests[number]->method, HTTP_POST);
    expect_header(number, "idempotency-key", world.flow.event_text);
    expect_header(number, "ce-id", world.flow.event_text);
    expect_header(number, "ce-type", "PAYMENT_CHARGE");
    expect_header(number, "ce-subject", "user%200");
    expect_header(number, "ce-time", "2023-11-14T22:13:20.123Z");
    struct slice body = world.requests[number]->body;
    ck_assert_int_eq(body.length, sizeof(BODY) - 1);
    ck_assert_int_eq(memcmp(body.bytes, BODY, body.length), 0);
}

static void expect_question(int number)
{
    char path[80];
    snprintf(path, sizeof(path), "/charges/%s", world.flow.event_text);
    expect_request(number, path);
    ck_assert_int_eq(world.requests[number]->method, HTTP_GET);
}

TEST(an_event_is_delivered_and_its_answer_is_kept)
{
    start(true);
    expect_delivery(0);
    ck_assert_int_eq(target()->breaker.in_flight, 1);
    ck_assert_int_eq(world.peers.issuer.target.breaker.in_flight + world.peers.core.target.breaker.in_flight, 0);
    answer(0, 201, "{\"charge\":\"c-1\"}");
    struct write_op *op = expect_write(WRITE_COMPLETE);
    ck_assert_str_eq(op->end->step, "deliver");
    ck_assert_str_eq(op->result, "{\"charge\":\"c-1\"}");
    ck_assert_ptr_null(op->parameters);
    op->on_written(op, WRITE_DONE, "");
    ck_assert_int_eq(world.ended, 1);
    ck_assert_int_eq(world.reported, 0);
}

TEST(an_answer_that_is_not_wanted_is_not_kept)
{
    configured()->keep_result = false;
    start(true);
    expect_delivery(0);
    answer(0, 200, "{\"charge\":\"c-1\"}");
    ck_assert_ptr_null(expect_write(WRITE_COMPLETE)->result);
    world.writes[0]->on_written(world.writes[0], WRITE_DONE, "");
}

TEST(the_key_and_the_body_are_the_same_on_every_attempt)
{
    start(true);
    expect_delivery(0);
    answer(0, 503, "{}");
    expect_end(OUTBOX_PENDING, "route_http_503");
    start_again(SECOND);
    expect_delivery(1);
    answer(1, 200, "{}");
    expect_end(OUTBOX_COMPLETED, "");
}

START_TEST(a_key_past_its_lifetime_is_asked_about_and_never_sent)
{
    world.flow.attempt.number = 0;
    start_again(24 * HOUR);
    expect_question(0);
    if (_i) {
        answer(0, 404, "{}");
        expect_end(OUTBOX_FAILED, "route_key_expired");
    } else {
        answer(0, 200, "{\"charge\":\"c-1\"}");
        struct write_op *op = expect_write(WRITE_END);
        ck_assert_int_eq(op->end->status, OUTBOX_COMPLETED);
        ck_assert_str_eq(op->end->step, "ask");
        ck_assert_str_eq(op->result, "{\"charge\":\"c-1\"}");
        op->on_written(op, WRITE_DONE, "");
    }
    ck_assert_int_eq(world.request_count, 1);
}

/* It may be this worker that was cut off, or this event that stops workers. */
START_TEST(what_lost_attempts_have_done_is_asked_and_not_done_again)
{
    world.flow.attempt.number = 0;
    world.flow.attempt.lost_count = OUTBOX_LOST_LOOKUP;
    if (_i)
        configured()->lookup_url = NULL;
    start_again(HOUR);
    if (!_i) {
        expect_question(0);
        answer(0, 404, "{}");
    }
    expect_end(OUTBOX_FAILED, "worker_lost");
    ck_assert_int_eq(world.request_count, _i ? 0 : 1);
}

/* An earlier attempt was refused behind an unknown one; its end waits, and then the look-up was configured away. */
START_TEST(a_held_end_that_cannot_be_asked_about_any_more_is_a_question)
{
    snprintf(world.flow.attempt.held_end, sizeof(world.flow.attempt.held_end), "refused");
    snprintf(world.flow.attempt.pending_code, sizeof(world.flow.attempt.pending_code), "no_funds");
    world.flow.attempt.number = 0;
    configured()->on_refused = _i == 2 ? ON_REFUSED_QUESTION : ON_REFUSED_REJECT;
    if (_i == 1)
        configured()->lookup_url = NULL;
    start_again(HOUR);
    if (_i != 1) {
        expect_question(0);
        answer(0, 404, "{}");
    }
    expect_end(_i ? OUTBOX_FAILED : OUTBOX_REJECTED, "no_funds");
}

START_TEST(a_refusal_is_what_its_route_says)
{
    configured()->on_refused = _i ? ON_REFUSED_QUESTION : ON_REFUSED_REJECT;
    start(true);
    expect_delivery(0);
    answer(0, 422, "{\"code\":\"no_funds\"}");
    expect_end(_i ? OUTBOX_FAILED : OUTBOX_REJECTED, "no_funds");
}

START_TEST(a_delivery_that_may_not_leave_is_given_back)
{
    static const char *const causes[] = {"drain", "target_paused", "out_of_memory", "clock_stepped"};
    struct slice user = {.bytes = "u", .length = 1}, body = {.bytes = BODY, .length = sizeof(BODY) - 1};
    struct flow *flow = &world.flow;
    ck_assert(flow_take_delivery(flow, &world.routes.routes[0], user, body));
    world.env.is_draining = _i == 0;
    target()->is_paused = _i == 1;
    flow->body.failed = _i == 2;
    if (_i == 3) { /* it waits in the queue, and a clock is set meanwhile */
        struct target_ticket other = {.kind = STEP_DELIVER};
        ck_assert_int_eq(target_enter(target(), &other), TARGET_ADMITTED);
        flow_run_start(flow, true);
        ck_assert_int_eq(flow->wait, FLOW_WAIT_TARGET);
        flow->attempt.wall_offset_us += 2 * SECOND * 1000;
        target_leave(target(), &other, BREAKER_GOOD, NULL, -1);
    } else {
        flow_run_start(flow, true);
    }
    struct write_op *op = expect_write(WRITE_END);
    ck_assert_str_eq(op->end->cause, causes[_i]);
    ck_assert(op->end->give_back && op->end->clear_sent);
    ck_assert_int_eq(target()->breaker.in_flight, 0);
    op->on_written(op, WRITE_DONE, "");
    ck_assert_int_eq(world.request_count, 0);
}

TEST(a_code_that_repeats_the_credential_is_no_reason)
{
    struct err err = {0};
    char path[64];
    snprintf(path, sizeof(path), "/tmp/test_flow_route_run.%ld", (long)getpid());
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs("5ca1ab1e_c0ffee\n", file), 0);
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_int_eq(chmod(path, 0600), 0);
    ck_assert(credential_load(path, &credential_bearer, &world.routes.routes[0].peer.credential, &err));
    ck_assert_int_eq(unlink(path), 0);
    start(true);
    expect_delivery(0);
    answer(0, 422, "{\"code\":\"5ca1ab1e_c0ffee\",\"detail\":\"5ca1ab1e_c0ffee\"}");
    ck_assert_ptr_null(strstr(expect_write(WRITE_END)->end->last_error, "c0ffee"));
    expect_end(OUTBOX_REJECTED, "route_refused");
}

TEST(a_lease_that_is_lost_drops_the_attempt)
{
    start(true);
    expect_delivery(0);
    answer(0, 422, "{\"code\":\"no_funds\"}");
    struct write_op *op = expect_write(WRITE_END);
    op->on_written(op, WRITE_FENCED, "");
    ck_assert_int_eq(world.ended, 1);
    ck_assert_int_eq(world.reported, 0); /* no card was made */
    ck_assert_ptr_null(world.flow.body.bytes);
}

TEST(a_longer_lease_is_written_before_a_delivery_that_could_outlast_it)
{
    world.flow.lease_until_ms = clock_mono_ms() + SECOND;
    start(true);
    struct write_op *op = expect_write(WRITE_EXTEND);
    ck_assert_int_eq(world.request_count, 0);
    world.write_count = 0;
    op->on_written(op, WRITE_DONE, "");
    expect_delivery(0);
    answer(0, 204, "");
    expect_end(OUTBOX_COMPLETED, "");
}

START_TEST(a_payload_that_cannot_be_delivered_ends_the_event_without_a_call)
{
    static char large[ROUTE_PAYLOAD_MAX + 1];
    struct slice user = {.bytes = _i ? "user" : "", .length = _i ? 4 : 0};
    struct slice body = {.bytes = large, .length = _i ? sizeof(large) : 2};
    memset(large, '1', sizeof(large));
    ck_assert(!flow_take_delivery(&world.flow, &world.routes.routes[0], user, body));
    flow_run_start(&world.flow, false);
    expect_end(OUTBOX_FAILED, "payload_invalid");
    ck_assert_int_eq(world.request_count, 0);
}

TEST(a_slot_serves_a_card_after_a_delivery)
{
    start(true);
    expect_delivery(0);
    answer(0, 200, "{}");
    expect_end(OUTBOX_COMPLETED, "");
    world.ended = world.write_count = 0;
    world.flow.route = NULL;
    snprintf(world.flow.user_id, sizeof(world.flow.user_id), "user-0");
    world.flow.attempt.number = 1;
    flow_run_start(&world.flow, true);
    expect_request(1, "/v1/users/user-0/card-eligibility");
    answer(1, 200, INELIGIBLE);
    expect_end(OUTBOX_REJECTED, "blocked");
}

SUITE(flow_route_run)
{
    TCase *tcase = tcase_create("delivery");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    ADD_TESTS(tcase);
    tcase_add_loop_test(tcase, a_key_past_its_lifetime_is_asked_about_and_never_sent, 0, 2);
    tcase_add_loop_test(tcase, what_lost_attempts_have_done_is_asked_and_not_done_again, 0, 2);
    tcase_add_loop_test(tcase, a_held_end_that_cannot_be_asked_about_any_more_is_a_question, 0, 3);
    tcase_add_loop_test(tcase, a_refusal_is_what_its_route_says, 0, 2);
    tcase_add_loop_test(tcase, a_delivery_that_may_not_leave_is_given_back, 0, 4);
    tcase_add_loop_test(tcase, a_payload_that_cannot_be_delivered_ends_the_event_without_a_call, 0, 2);
    suite_add_tcase(suite, tcase);
}
