/* The story: the issuer showed two live cards of one request, which ended FAILED issuer_duplicate; an operator replays
 * it. Whatever is stored, and whatever was to follow, the first call is the look-up, and nothing is sent, stored or
 * linked before it shows exactly one card. */
#include "tests/unit/worker/flow_world.h"

#include "tests/support/suite.h"

#define LIST(cards) "{\"cards\":[" cards "]}"
#define ONE CARD("card-1", "active")
#define OTHER CARD("card-2", "active")
#define CARD(id, status)                                                                                               \
    "{\"id\":\"" id "\",\"reference\":\"@\",\"last4\":\"1111\",\"exp_month\":3,\"exp_year\":2031,\"status\":\"" status \
    "\"}"

/* With our reference instead of each @. */
static const char *ours(const char *pattern)
{
    static char text[1200];
    size_t length = 0;
    for (; *pattern; pattern++)
        length += *pattern == '@' ? (size_t)snprintf(text + length, sizeof(text) - length, "%s", world.flow.event_text)
                                  : (text[length] = *pattern, (size_t)1);
    text[length] = '\0';
    return text;
}

static void start(bool is_saved, const char *cancel_code, int64_t age_ms)
{
    struct flow *flow = &world.flow;
    flow->attempt.is_saved = is_saved;
    flow->attempt.sent_age_ms = flow->attempt.settle_age_ms = age_ms;
    snprintf(flow->card.id, sizeof flow->card.id, "%s", is_saved ? "card-1" : "");
    snprintf(flow->save.last4, sizeof flow->save.last4, "1111");
    snprintf(flow->attempt.held_end, sizeof flow->attempt.held_end, "duplicate");
    snprintf(flow->attempt.pending_code, sizeof flow->attempt.pending_code, "%s", cancel_code);
    flow_run_start(flow, true);
    expect_request(0, "/v1/cards");
    ck_assert(world.requests[0]->query.length > 0); /* no create */
}

/* What ends the attempt at once. */
static const struct {
    const char *cards;
    bool is_saved;
    const char *cancel_code;
    enum outbox_status end;
    const char *code;
} ends[] = {
    {LIST(ONE "," OTHER), false, "", OUTBOX_FAILED, "issuer_duplicate"},
    {LIST(ONE "," OTHER), true, "", OUTBOX_FAILED, "issuer_duplicate"},
    {LIST(ONE "," OTHER), true, "blocked", OUTBOX_FAILED, "issuer_duplicate"},
    {LIST(OTHER), true, "", OUTBOX_FAILED, "issuer_duplicate"}, /* not the one that core-api may have */
    {LIST(OTHER), true, "blocked", OUTBOX_FAILED, "issuer_duplicate"},
    {LIST(""), false, "", OUTBOX_FAILED, "issuer_duplicate"},
    {LIST(""), true, "", OUTBOX_FAILED, "issuer_duplicate"},
    {LIST(CARD("card-1", "cancelled")), false, "", OUTBOX_REJECTED, "card_cancelled"},
    {LIST(CARD("card-1", "cancelled")), false, "blocked", OUTBOX_REJECTED, "blocked"},
};

START_TEST(the_look_up_comes_first_and_may_end_it)
{
    start(ends[_i].is_saved, ends[_i].cancel_code, HOUR);
    answer(0, 200, ours(ends[_i].cards));
    struct write_op *op = expect_write(WRITE_END);
    if (ends[_i].end == OUTBOX_FAILED)
        ck_assert_str_eq(op->end->held_end, "duplicate"); /* whatever the next replay finds as the reason */
    ck_assert(!op->end->clear_sent);
    expect_end(ends[_i].end, ends[_i].code);
    ck_assert_int_eq(world.request_count, 1);
}

/* The one card, and what is left to do for it. */
static const struct {
    const char *cards;
    bool is_saved;
    const char *cancel_code, *path; /* of the second call; NULL = a write */
    enum write_kind write;
} ways[] = {
    {LIST(ONE), false, "", NULL, WRITE_SAVE},
    {LIST(ONE "," CARD("card-2", "cancelled")), false, "", NULL, WRITE_SAVE},
    {LIST(ONE), true, "", "/v1/users/user-0/cards", 0},
    {LIST(ONE), true, "blocked", "/v1/cards/card-1/cancel", 0},
    {LIST(OTHER), false, "blocked", "/v1/cards/card-2/cancel", 0},
    {LIST(CARD("card-1", "cancelled")), true, "", NULL, WRITE_MARK}, /* core-api may have a link of it */
};

START_TEST(exactly_one_card_decides)
{
    start(ways[_i].is_saved, ways[_i].cancel_code, HOUR);
    answer(0, 200, ours(ways[_i].cards));
    if (!ways[_i].path) {
        struct write_op *op = expect_write(ways[_i].write);
        if (ways[_i].write == WRITE_MARK)
            ck_assert_str_eq(op->cancel_code, "card_cancelled");
        op->on_written(op, WRITE_FENCED, "");
        return;
    }
    expect_request(1, ways[_i].path);
    answer(1, 418, "{}");
    expect_end(OUTBOX_FAILED, ways[_i].cancel_code[0] ? "cancel_failed" : "core_http_418");
}

/* An attempt that could not look up, or not use what it found, says to the next one where to begin. */
START_TEST(until_the_card_is_stored_each_attempt_begins_at_the_look_up)
{
    start(_i == 2, "", HOUR);
    answer(0, _i == 1 ? 200 : 503, _i == 1 ? ours(LIST(ONE)) : "{}");
    struct write_op *op;
    if (_i == 1) {
        op = expect_write(WRITE_SAVE);
        world.write_count = 0;
        op->on_written(op, WRITE_GIVEN_UP, "");
    }
    op = expect_write(WRITE_END);
    ck_assert_str_eq(op->end->held_end, "duplicate");
    expect_end(OUTBOX_PENDING, _i == 1 ? "write_failed" : "issuer_http_503");
}

TEST(once_the_card_is_stored_and_alone_the_next_attempt_links_it)
{
    start(true, "", HOUR);
    answer(0, 200, ours(LIST(ONE)));
    expect_request(1, "/v1/users/user-0/cards");
    answer(1, 503, "{}");
    struct write_op *op = expect_write(WRITE_END);
    ck_assert_ptr_null(op->end->held_end);
    expect_end(OUTBOX_PENDING, "core_http_503");
}

/* The key is not honoured, so a create that is still under way makes another card. */
START_TEST(nothing_is_believed_before_the_last_send_has_settled)
{
    static const char *const cards[] = {LIST(""), LIST(ONE), LIST(CARD("card-1", "cancelled"))};
    start(false, "", SECOND);
    answer(0, 200, ours(cards[_i]));
    struct write_op *op = expect_write(WRITE_END);
    ck_assert_str_eq(op->end->held_end, "duplicate");
    expect_end(OUTBOX_PENDING, "settling");
}

SUITE(flow_duplicate)
{
    TCase *tcase = tcase_create("flow_duplicate");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_loop_test(tcase, the_look_up_comes_first_and_may_end_it, 0, (int)ARRAY_SIZE(ends));
    tcase_add_loop_test(tcase, exactly_one_card_decides, 0, (int)ARRAY_SIZE(ways));
    tcase_add_loop_test(tcase, until_the_card_is_stored_each_attempt_begins_at_the_look_up, 0, 3);
    ADD_TESTS(tcase);
    tcase_add_loop_test(tcase, nothing_is_believed_before_the_last_send_has_settled, 0, 3);
    suite_add_tcase(suite, tcase);
}
