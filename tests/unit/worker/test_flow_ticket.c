/* The stories: 500 requests waited for an issuer that answered 429, and core-api was asked 531 times for ten creates.
 * All links were refused, and card after card was made. So a check reserves the ticket of its create first, and no
 * create begins while links are refused to everybody. */
#include "tests/unit/worker/flow_world.h"
#include "tests/support/suite.h"

static struct target *issuer, *core;
static struct target_ticket blocker;

static void set_up_targets(void)
{
    set_up();
    issuer = &world.peers.issuer.target;
    core = &world.peers.core.target;
    blocker = (struct target_ticket){.kind = STEP_ISSUE};
}

/* The issuer takes one call now, and took two. */
static void limit(void)
{
    issuer->breaker.limit_max = 2;
}

static void block(void)
{
    ck_assert_int_eq(target_enter(issuer, &blocker), TARGET_ADMITTED);
}

static void unblock(void)
{
    target_leave(issuer, &blocker, BREAKER_NOTHING, NULL, -1);
}

static void expect_question(int number)
{
    expect_request(number, "/v1/users/user-0/card-eligibility");
}

static void expect_create(int number)
{
    expect_request(number, "/v1/cards");
    ck_assert_int_eq(issuer->breaker.in_flight, 1);
    answer(number, 422, "{\"code\":\"no\"}");
    expect_end(OUTBOX_REJECTED, "no");
    ck_assert_int_eq(issuer->breaker.in_flight, 0);
}

TEST(a_question_waits_for_the_turn_of_its_create)
{
    limit();
    block();
    flow_run_start(&world.flow, true);
    ck_assert_int_eq(world.flow.wait, FLOW_WAIT_TARGET);
    ck_assert_int_eq(world.request_count, 0);
    unblock();
    expect_question(0);
    ck_assert_int_eq(issuer->breaker.in_flight, 1);
    answer(0, 200, ELIGIBLE);
    expect_create(1);
}

TEST(an_issuer_that_takes_all_it_may_costs_a_question_no_ticket)
{
    block();
    flow_run_start(&world.flow, true);
    expect_question(0);
    answer(0, 200, ELIGIBLE);
    run_until(world.flow.wait == FLOW_WAIT_TARGET);
    unblock();
    expect_create(1);
}

TEST(an_eligibility_that_became_too_old_is_asked_for_again_with_the_ticket)
{
    block();
    flow_run_start(&world.flow, true);
    expect_question(0);
    answer(0, 200, ELIGIBLE);
    run_until(world.flow.wait == FLOW_WAIT_TARGET);
    world.flow.attempt.checked_ms -= 10 * SECOND;
    unblock();
    expect_question(1);
    ck_assert_int_eq(issuer->breaker.in_flight, 1);
    answer(1, 200, ELIGIBLE);
    expect_create(2);
}

TEST(a_turn_that_is_not_used_is_given_back)
{
    limit();
    flow_run_start(&world.flow, true);
    expect_question(0);
    answer(0, 200, INELIGIBLE);
    expect_end(OUTBOX_REJECTED, "blocked");
    ck_assert_int_eq(issuer->breaker.in_flight, 0);
    ck_assert(!world.flow.holds_reserved);
}

TEST(a_429_meanwhile_ends_the_reserved_ticket)
{
    issuer->breaker.limit_max = 3;
    issuer->breaker.limit = 2;
    block();
    flow_run_start(&world.flow, true);
    expect_question(0);
    target_leave(issuer, &blocker, BREAKER_BUSY, "issuer_http_429", -1);
    answer(0, 200, ELIGIBLE);
    run_until(world.flow.wait == FLOW_WAIT_TARGET); /* behind the rest */
    ck_assert_int_eq(world.request_count, 1);
    ck_assert_int_eq(issuer->breaker.in_flight, 0);
    expect_create(1);
}

static void suspect(struct target *target, enum flow_step step)
{
    target->suspicions[step].is_suspected = true;
    target->suspicions[step].fresh_at_ms = target->suspicions[step].again_at_ms = INT64_MAX;
    target->suspected++;
}

START_TEST(no_card_is_begun_while_a_call_that_it_needs_is_suspected)
{
    suspect(_i == 0 ? issuer : core, _i == 0 ? STEP_ISSUE : STEP_LINK);
    flow_run_start(&world.flow, true);
    const struct write_end *end = expect_write(WRITE_END)->end;
    ck_assert(end->give_back);
    ck_assert_int_le(end->delay_ms, 50); /* it is due as soon as others are answered well */
    expect_end(OUTBOX_PENDING, "breaker_open");
    ck_assert_int_eq(world.request_count, 0);
}

TEST(a_create_is_held_back_when_links_become_suspected_meanwhile)
{
    flow_run_start(&world.flow, true);
    expect_question(0);
    suspect(core, STEP_LINK);
    answer(0, 200, ELIGIBLE);
    expect_end(OUTBOX_PENDING, "breaker_open");
    ck_assert_int_eq(world.request_count, 1);
    ck_assert_int_eq(issuer->breaker.in_flight, 0);
}

TEST(a_create_that_waited_is_held_back_when_links_become_suspected_meanwhile)
{
    block();
    flow_run_start(&world.flow, true);
    expect_question(0);
    answer(0, 200, ELIGIBLE);
    run_until(world.flow.wait == FLOW_WAIT_TARGET);
    suspect(core, STEP_LINK);
    unblock();
    expect_end(OUTBOX_PENDING, "breaker_open");
    ck_assert_int_eq(world.request_count, 1);
    ck_assert_int_eq(issuer->breaker.in_flight, 0);
}

TEST(an_event_that_was_claimed_as_a_probe_goes_on)
{
    suspect(issuer, STEP_ISSUE);
    suspect(core, STEP_LINK);
    world.flow.is_probe = true;
    flow_run_start(&world.flow, true);
    expect_question(0);
    answer(0, 200, ELIGIBLE);
    expect_create(1); /* 422: the issuer is well */
    ck_assert_int_eq(issuer->suspected, 0);
    ck_assert_int_eq(core->suspected, 1);
}

/* The story: ten events whose links were refused, some of which the opened breaker had turned away before. Each of them
 * put the probe with another event off four times as long as the one before, up to minutes. */
START_TEST(a_link_that_cost_no_card_puts_no_probe_with_another_event_off)
{
    struct suspicion *links = &core->suspicions[STEP_LINK];
    bool is_new = _i == 1;
    world.flow.attempt.is_saved = !is_new;
    world.flow.is_probe = true;
    suspect(core, STEP_LINK);
    links->is_dear = true;
    links->fresh_at_ms = links->again_at_ms = 0;
    links->pause_ms = 60 * SECOND;
    flow_run_start(&world.flow, true);
    int number = 0;
    if (is_new) {
        expect_question(number);
        answer(number++, 200, ELIGIBLE);
        expect_request(number, "/v1/cards");
        char card[200];
        snprintf(card, sizeof(card),
                 "{\"id\":\"card-1\",\"reference\":\"%s\",\"last4\":\"1111\",\"exp_month\":3,\"exp_year\":2031,"
                 "\"status\":\"active\"}",
                 world.flow.event_text);
        answer(number++, 201, card);
        struct write_op *save = expect_write(WRITE_SAVE);
        world.write_count = 0;
        save->on_written(save, WRITE_DONE, "");
    }
    expect_request(number, "/v1/users/user-0/cards");
    answer(number, 403, "{}");
    expect_end(OUTBOX_PENDING, "core_http_403");
    ck_assert_int_eq(suspicion_fresh_is_due(links, clock_mono_ms()), !is_new);
}

/* The story: the first creates of 25 events were executed and answered 503, their repeats were refused, and the worker
 * paused the issuer because "none was executed". */
START_TEST(only_a_refusal_with_nothing_unknown_counts_towards_the_pause)
{
    world.flow.attempt.event_id = uuid7_make();
    if (_i == 1)
        world.flow.attempt.sent_age_ms = SECOND;
    flow_run_start(&world.flow, true);
    expect_question(0);
    answer(0, 200, ELIGIBLE);
    expect_request(1, "/v1/cards");
    answer(1, 422, "{\"code\":\"no\"}");
    if (_i == 0)
        expect_end(OUTBOX_REJECTED, "no");
    else
        expect_request(2, "/v1/cards");
    ck_assert_int_eq(issuer->refused.count, _i == 0);
}

SUITE(flow_ticket)
{
    TCase *tcase = tcase_create("flow_ticket");
    tcase_add_checked_fixture(tcase, set_up_targets, tear_down);
    ADD_TESTS(tcase);
    tcase_add_loop_test(tcase, no_card_is_begun_while_a_call_that_it_needs_is_suspected, 0, 2);
    tcase_add_loop_test(tcase, a_link_that_cost_no_card_puts_no_probe_with_another_event_off, 0, 2);
    tcase_add_loop_test(tcase, only_a_refusal_with_nothing_unknown_counts_towards_the_pause, 0, 2);
    suite_add_tcase(suite, tcase);
}
