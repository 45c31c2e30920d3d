/* What a profile declares makes an attempt longer: more steps, more pages, and questions to core-api that are not about
 * the user. Each of these calls waits in the issuer's queue, and for its lease, and what the issuer was told stays with
 * the event. */
#include "tests/unit/worker/flow_world.h"

#include "tests/support/suite.h"
#include "tests/unit/worker/fake_profile.h"

#define TOLD(eligible) "{\"eligible\":" eligible ",\"issuer\":{\"holder\":\"h-1\"}}"
#define CHECK "/v1/users/user-0/card-eligibility"

/* A look-up that needs no parameter. */
static const struct issuer_field reference_query[] = {FIELD("reference", FROM_EVENT), {0}};

static struct issuer_profile profile;
static char card_text[300], page_text[400];

static void set_up_fake(void)
{
    set_up();
    profile = fake_profile;
    world.parameters.profile = &profile;
    event_parameters_start(&world.flow.parameters, &world.parameters, "user-0", (struct slice){NULL, 0});
}

static const char *card(const char *id, const char *state)
{
    snprintf(card_text, sizeof(card_text),
             "{\"id\":\"%s\",\"ref\":\"%s\",\"last4\":\"1111\",\"month\":3,\"year\":2031,\"state\":\"%s\"}", id,
             world.flow.event_text, state);
    return card_text;
}

static const char *page(const char *cards, bool more)
{
    snprintf(page_text, sizeof(page_text), "{\"more\":%s,\"data\":[%s]}", more ? "true" : "false", cards);
    return page_text;
}

/* An earlier attempt may have made a card. */
static void was_sent(int64_t age_ms)
{
    world.flow.attempt.sent_age_ms = world.flow.attempt.settle_age_ms = age_ms;
}

static void write_done(enum write_kind kind)
{
    struct write_op *op = expect_write(kind);
    world.write_count = 0;
    op->on_written(op, WRITE_DONE, "");
}

/* Up to the create, whose request is the second. */
static void begin(void)
{
    flow_run_start(&world.flow, true);
    expect_request(0, CHECK);
    answer(0, 200, TOLD("true"));
    write_done(WRITE_KEEP);
    expect_request(1, "/cards");
}

/* A worker that dies from here on leaves a card that is found where it was made. */
TEST(what_the_look_up_is_built_from_is_kept_before_the_create_leaves)
{
    flow_run_start(&world.flow, true);
    expect_request(0, CHECK);
    answer(0, 200, TOLD("true"));
    struct write_op *op = expect_write(WRITE_KEEP);
    ck_assert_str_eq(op->parameters, "{\"holder\":\"h-1\"}");
    ck_assert_int_eq(world.request_count, 1);
    ck_assert(!world.flow.holds_ticket);
    write_done(WRITE_KEEP);
    ck_assert_ptr_null(world.flow.kept.bytes);
    expect_request(1, "/cards");
    answer(1, 500, "{}");
    op = expect_write(WRITE_END);
    ck_assert_ptr_null(op->parameters); /* once is enough */
    op->on_written(op, WRITE_DONE, "");
}

/* The write took so long that the user may have been blocked since; what was kept stays, and is not written again. */
TEST(a_slow_write_is_followed_by_another_check_and_by_no_other_write)
{
    flow_run_start(&world.flow, true);
    expect_request(0, CHECK);
    answer(0, 200, TOLD("true"));
    (void)expect_write(WRITE_KEEP);
    world.flow.attempt.checked_ms -= 4 * SECOND;
    write_done(WRITE_KEEP);
    expect_request(1, CHECK);
    answer(1, 200, "{\"eligible\":true,\"issuer\":{\"holder\":\"h-2\"}}");
    expect_request(2, "/cards");
    ck_assert_int_eq(world.write_count, 0);
    struct slice body = world.requests[2]->body;
    ck_assert_ptr_nonnull(memmem(body.bytes, body.length, "h-1", 3));
    answer(2, 422, "{\"code\":\"no\"}");
    expect_end(OUTBOX_REJECTED, "no");
}

/* Nothing has left: another worker has the event, or the next attempt tries again. */
START_TEST(without_the_write_no_create_leaves)
{
    flow_run_start(&world.flow, true);
    expect_request(0, CHECK);
    answer(0, 200, TOLD("true"));
    struct write_op *op = expect_write(WRITE_KEEP);
    world.write_count = 0;
    op->on_written(op, _i ? WRITE_GIVEN_UP : WRITE_FENCED, "");
    if (_i) {
        op = expect_write(WRITE_END);
        ck_assert(op->end->clear_sent);
        ck_assert_str_eq(op->end->step, "keep");
        expect_end(OUTBOX_PENDING, "write_failed");
    } else {
        ck_assert_int_eq(world.ended, 1);
        ck_assert_int_eq(world.write_count, 0);
    }
    ck_assert_int_eq(world.reported, 0);
    ck_assert_int_eq(world.request_count, 1);
}

TEST(a_holder_that_the_event_keeps_is_not_written_again)
{
    static const char kept[] = "{\"holder\":\"h-first\"}";
    struct flow *flow = &world.flow;
    event_parameters_start(&flow->parameters, &world.parameters, "user-0", (struct slice){kept, strlen(kept)});
    flow_run_start(flow, true);
    expect_request(0, CHECK);
    answer(0, 200, TOLD("true"));
    expect_request(1, "/cards");
    ck_assert_int_eq(world.write_count, 0);
    struct slice body = world.requests[1]->body;
    ck_assert_ptr_nonnull(memmem(body.bytes, body.length, "h-first", 7));
    answer(1, 422, "{\"code\":\"no\"}");
    expect_end(OUTBOX_REJECTED, "no");
}

TEST(a_card_is_activated_before_it_is_stored)
{
    begin();
    answer(1, 200, card("card-1", "new"));
    expect_request(2, "/cards/card-1/activate");
    answer(2, 200, "{}");
    write_done(WRITE_SAVE);
    expect_request(3, "/v1/users/user-0/cards");
    answer(3, 201, "{}");
    expect_end(OUTBOX_COMPLETED, "");
    ck_assert_ptr_null(world.writes[0]->parameters);
}

/* The repeat must be the same request. */
START_TEST(what_the_issuer_was_told_is_kept_with_an_unknown_outcome)
{
    profile.calls[ISSUER_LOOKUP].query = reference_query;
    flow_run_start(&world.flow, true);
    expect_request(0, CHECK);
    answer(0, 200, TOLD("true"));
    expect_request(1, "/cards");
    answer(1, _i ? 422 : 500, "{\"code\":\"no\"}");
    struct write_op *op = expect_write(WRITE_END);
    if (_i) /* refused: there is no repeat */
        ck_assert_ptr_null(op->parameters);
    else
        ck_assert_str_eq(op->parameters, "{\"holder\":\"h-1\"}");
    op->on_written(op, WRITE_DONE, "");
    ck_assert_ptr_null(world.flow.kept.bytes);
}

TEST(what_the_issuer_was_told_is_kept_with_the_mark)
{
    profile.calls[ISSUER_LOOKUP].query = reference_query;
    flow_run_start(&world.flow, true);
    expect_request(0, CHECK);
    answer(0, 200, TOLD("true"));
    expect_request(1, "/cards");
    answer(1, 200, card("card-1", "new"));
    expect_request(2, "/cards/card-1/activate");
    answer(2, 422, "{\"code\":\"blocked\"}");
    struct write_op *op = expect_write(WRITE_MARK);
    ck_assert_str_eq(op->cancel_code, "blocked");
    ck_assert_str_eq(op->parameters, "{\"holder\":\"h-1\"}");
    write_done(WRITE_MARK);
    expect_request(3, "/cards/card-1/cancel");
    answer(3, 200, "{}");
    expect_end(OUTBOX_REJECTED, "blocked");
}

/* The worker that sent the create died before it could keep the holder: core-api is asked only for that, also when the
 * user may have no card. */
TEST(a_look_up_asks_core_api_for_the_holder_first)
{
    struct flow *flow = &world.flow;
    was_sent(HOUR);
    flow->attempt.lost_count = OUTBOX_LOST_LOOKUP;
    flow_run_start(flow, true);
    expect_request(0, CHECK);
    answer(0, 200, TOLD("false"));
    expect_request(1, "/cards"); /* the look-up */
    ck_assert(world.requests[1]->query.length > 0);
    answer(1, 200, page("", false));
    expect_end(OUTBOX_FAILED, "worker_lost");
}

TEST(a_holder_that_the_event_keeps_needs_no_question)
{
    static const char kept[] = "{\"holder\":\"h-first\"}";
    struct flow *flow = &world.flow;
    event_parameters_start(&flow->parameters, &world.parameters, "user-0", (struct slice){kept, strlen(kept)});
    was_sent(HOUR);
    flow->attempt.lost_count = OUTBOX_LOST_LOOKUP;
    flow_run_start(flow, true);
    expect_request(0, "/cards");
    ck_assert_ptr_nonnull(memmem(world.requests[0]->query.bytes, world.requests[0]->query.length, "h-first", 7));
    answer(0, 200, page("", false));
    expect_end(OUTBOX_FAILED, "worker_lost");
}

/* Past the key's lifetime nothing else will ever tell. */
START_TEST(a_look_up_whose_holder_nobody_knows_decides_nothing)
{
    struct flow *flow = &world.flow;
    was_sent(_i ? 24 * HOUR : HOUR);
    flow->attempt.lost_count = OUTBOX_LOST_LOOKUP;
    flow_run_start(flow, true);
    expect_request(0, CHECK);
    answer(0, 404, "{}");
    expect_end(_i ? OUTBOX_FAILED : OUTBOX_PENDING, _i ? "outcome_unknown" : "core_unreadable");
    ck_assert_int_eq(world.request_count, 1);
}

TEST(an_unknown_outcome_is_looked_up_before_the_create_is_repeated)
{
    profile.looks_first = true;
    was_sent(SECOND); /* with a trusted key nothing must settle */
    flow_run_start(&world.flow, true);
    expect_request(0, CHECK);
    answer(0, 200, TOLD("true"));
    expect_request(1, "/cards");
    ck_assert(world.requests[1]->query.length > 0);
    answer(1, 200, page("", false));
    write_done(WRITE_KEEP);
    expect_request(2, "/cards"); /* at once, without another question to core-api */
    ck_assert(world.requests[2]->query.length == 0);
    answer(2, 422, "{\"code\":\"no\"}");
    expect_request(3, "/cards"); /* refused behind an unknown one: only a settled look-up ends it */
    answer(3, 200, page("", false));
    expect_end(OUTBOX_PENDING, "settling");
}

START_TEST(without_a_trusted_key_a_repeat_waits_until_the_last_send_has_settled)
{
    profile.key_is_trusted = false;
    was_sent(_i ? HOUR : SECOND);
    flow_run_start(&world.flow, true);
    expect_request(0, CHECK);
    answer(0, 200, TOLD("true"));
    expect_request(1, "/cards");
    answer(1, 200, page("", false));
    if (!_i) {
        expect_end(OUTBOX_PENDING, "settling");
        return;
    }
    expect_request(2, CHECK);
    answer(2, 200, TOLD("true"));
    write_done(WRITE_KEEP);
    expect_request(3, "/cards");
    answer(3, 200, card("card-1", "live"));
    expect_request(4, "/cards"); /* are there two now? */
    char two[600];
    snprintf(two, sizeof(two), "%s,", card("card-1", "live"));
    snprintf(two + strlen(two), sizeof(two) - strlen(two), "%s", card("card-2", "live"));
    char body[700];
    snprintf(body, sizeof(body), "{\"more\":false,\"data\":[%s]}", two);
    answer(4, 200, body);
    expect_end(OUTBOX_FAILED, "issuer_duplicate");
}

/* A page is a call of its own: it waits in the issuer's queue, and for its lease, and a worker that drains makes no
 * other one. */
START_TEST(a_worker_that_drains_reads_no_further_page)
{
    struct flow *flow = &world.flow;
    was_sent(HOUR);
    flow->attempt.lost_count = OUTBOX_LOST_LOOKUP;
    flow_run_start(flow, true);
    expect_request(0, CHECK);
    answer(0, 200, TOLD("true"));
    expect_request(1, "/cards");
    if (_i)
        world.env.is_draining = true;
    else
        flow->lease_until_ms = clock_mono_ms() + SECOND;
    answer(1, 200, page(card("card-1", "live"), true));
    if (_i) {
        expect_end(OUTBOX_PENDING, "drain");
        ck_assert_int_eq(world.request_count, 2);
        ck_assert_int_eq(flow->lookup.pages, 0); /* the next attempt begins anew */
        return;
    }
    write_done(WRITE_EXTEND);
    expect_request(2, "/cards");
    ck_assert_ptr_nonnull(memmem(world.requests[2]->query.bytes, world.requests[2]->query.length, "card-1", 6));
    answer(2, 500, "{}");
    expect_end(OUTBOX_PENDING, "issuer_http_500");
}

START_TEST(an_answer_that_would_stay_the_same_leads_to_a_look_up)
{
    begin();
    answer(1, 409, "{\"code\":\"taken\"}");
    expect_request(2, "/cards");
    answer(2, 200, page(_i ? card("card-1", "live") : "", false));
    if (_i)
        write_done(WRITE_SAVE);
    else
        expect_end(OUTBOX_PENDING, "issuer_http_409"); /* nothing there decides nothing */
    if (_i) {
        expect_request(3, "/v1/users/user-0/cards");
        answer(3, 200, "{}");
        struct write_op *op = expect_write(WRITE_END);
        ck_assert_int_eq(op->end->status, OUTBOX_COMPLETED);
        ck_assert(op->end->may_arrive); /* the create that was answered so */
        op->on_written(op, WRITE_DONE, "");
    }
}

SUITE(flow_profile)
{
    TCase *tcase = tcase_create("flow_profile");
    tcase_add_checked_fixture(tcase, set_up_fake, tear_down);
    ADD_TESTS(tcase);
    tcase_add_loop_test(tcase, without_the_write_no_create_leaves, 0, 2);
    tcase_add_loop_test(tcase, what_the_issuer_was_told_is_kept_with_an_unknown_outcome, 0, 2);
    tcase_add_loop_test(tcase, a_look_up_whose_holder_nobody_knows_decides_nothing, 0, 2);
    tcase_add_loop_test(tcase, without_a_trusted_key_a_repeat_waits_until_the_last_send_has_settled, 0, 2);
    tcase_add_loop_test(tcase, a_worker_that_drains_reads_no_further_page, 0, 2);
    tcase_add_loop_test(tcase, an_answer_that_would_stay_the_same_leads_to_a_look_up, 0, 2);
    suite_add_tcase(suite, tcase);
}
