/* Each answer of the issuer leads to one step or one end. A wrong row here is a card that stays at the issuer behind a
 * refusal, a request that fails although the user has a card, or a second card. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/keyring.h"
#include "tests/support/suite.h"
#include "tests/unit/worker/fake_profile.h"
#include "worker/flow/step.h"

#define EVENT "01890a5d-ac96-774b-bcce-b302099a8057"
#define CARD(id, state) CARD_OF(EVENT, id, state)
#define CARD_OF(reference, id, state) \
    "{\"id\":\"" id "\",\"ref\":\"" reference "\",\"last4\":\"1111\",\"month\":3,\"year\":2031,\"state\":\"" state "\"}"
#define PAGE(more, cards) "{\"more\":" more ",\"data\":[" cards "]}"
#define SECOND INT64_C(1000)

static struct config config;
static struct peers peers;
static struct db_clock db_clock = {.is_known = true}; /* steady since long */
static struct issuer_profile profile;
static struct parameters_env parameters;
static struct worker_env worker;
static struct flow_env env;
static struct flow flow;
static struct outcome outcome;

static void set_up(void)
{
    config = (struct config){
        .issuer = {.timeout_ms = 3 * SECOND, .key_lifetime_ms = 24 * 3600 * SECOND, .settle_time_ms = 30 * SECOND},
        .worker = {.lease_ms = 30 * SECOND},
    };
    profile = fake_profile;
    parameters = (struct parameters_env){.profile = &profile};
    worker = (struct worker_env){.config = &config, .peers = &peers, .db_clock = &db_clock, .parameters = &parameters};
    env = (struct flow_env){.worker = &worker};
    peers.issuer.url = peers.core.url = "http://peer";
    flow_init(&flow, &env);
    ck_assert(uuid_parse(EVENT, strlen(EVENT), &flow.attempt.event_id));
    trace_of_event((struct slice){0}, (struct slice){0}, &flow.attempt.event_id, &flow.trace);
    flow.attempt.sent_age_ms = flow.attempt.deferred_age_ms = flow.attempt.settle_age_ms = -1;
    flow.attempt.asks_for = flow.attempt.verifies = STEP_COUNT;
    snprintf(flow.card.id, sizeof(flow.card.id), "card-1");
    snprintf(flow.card.last4, sizeof(flow.card.last4), "1111");
    snprintf(flow.replaces_issuer_id, sizeof(flow.replaces_issuer_id), "card-0");
}

static void tear_down(void)
{
    flow_done(&flow);
}

/* body NULL: the call got no answer. */
static struct flow_verdict answered(enum flow_step step, int status, const char *body)
{
    flow.attempt.step = step;
    flow.call.result = body ? HTTP_ANSWERED : HTTP_LOST;
    flow.call.status = status;
    flow.call.retry_after_ms = -1;
    buf_reset(&flow.call.answer);
    ck_assert(buf_put_text(&flow.call.answer, body ? body : ""));
    return flow_steps[step].read(&flow, &outcome);
}

/* ---- a table of answers ---- */

enum {
    SAVED = 1,
    UNKNOWN = 2,
    REISSUE = 4,
    KEYRING = 8,
    UNTRUSTED = 16,
    STARTS_INACTIVE = 128,
    UNNUMBERED = 256,
    RETIRES = 32,
    PLAIN = 64
};

static const struct row {
    enum flow_step step;
    int given; /* the bits above. RETIRES: VERIFY after a retire. PLAIN: a profile without the further calls */
    int status;
    const char *body;
    enum flow_verdict_kind kind;
    enum flow_step next;       /* GO */
    enum lookup_reason reason; /* GO to a look-up */
    const char *code;          /* NULL = none */
} rows[] = {
    /* issue */
    {STEP_ISSUE, 0, 200, CARD("card-1", "live"), FLOW_GO, STEP_SAVE, LOOKUP_NONE, NULL},
    {STEP_ISSUE, 0, 200, CARD("card-1", "new"), FLOW_GO, STEP_ACTIVATE, LOOKUP_NONE, NULL},
    {STEP_ISSUE, KEYRING, 200, CARD("card-1", "live"), FLOW_GO, STEP_REVEAL, LOOKUP_NONE, NULL},
    {STEP_ISSUE, KEYRING | PLAIN, 200, CARD("card-1", "live"), FLOW_GO, STEP_SAVE, LOOKUP_NONE, NULL},
    {STEP_ISSUE, KEYRING, 200, CARD("card-1", "new"), FLOW_GO, STEP_ACTIVATE, LOOKUP_NONE, NULL},
    {STEP_ISSUE, 0, 200, CARD("card-1", "gone"), FLOW_GO, STEP_LOOKUP, LOOKUP_CONTRADICTION, ""},
    {STEP_ISSUE, 0, 409, "{\"code\":\"taken\"}", FLOW_GO, STEP_LOOKUP, LOOKUP_BY_ANSWER, "issuer_http_409"},
    {STEP_ISSUE, UNKNOWN, 200, CARD("card-1", "live"), FLOW_GO, STEP_SAVE, LOOKUP_NONE, NULL},
    {STEP_ISSUE, UNKNOWN | UNTRUSTED, 200, CARD("card-1", "live"), FLOW_GO, STEP_LOOKUP, LOOKUP_AFTER_REPEAT, NULL},
    {STEP_ISSUE, UNTRUSTED, 200, CARD("card-1", "live"), FLOW_GO, STEP_SAVE, LOOKUP_NONE, NULL},
    /* activate */
    {STEP_ACTIVATE, UNKNOWN, 200, "{}", FLOW_GO, STEP_SAVE, LOOKUP_NONE, NULL},
    {STEP_ACTIVATE, UNKNOWN | KEYRING, 200, "{}", FLOW_GO, STEP_REVEAL, LOOKUP_NONE, NULL},
    {STEP_ACTIVATE, UNKNOWN, 422, "{\"code\":\"holder_blocked\"}", FLOW_GO, STEP_MARK, LOOKUP_NONE, NULL},
    {STEP_ACTIVATE, UNKNOWN, 418, "{}", FLOW_FAIL, 0, 0, "issuer_http_418"},
    {STEP_ACTIVATE, UNKNOWN, 503, "{}", FLOW_RETRY, 0, 0, "issuer_http_503"},
    {STEP_ACTIVATE, UNKNOWN, 403, "{}", FLOW_DEFER, 0, 0, "issuer_http_403"},
    {STEP_ACTIVATE, UNKNOWN, 0, NULL, FLOW_RETRY, 0, 0, "issuer_no_answer"},
    /* reveal */
    {STEP_REVEAL, UNKNOWN | KEYRING, 200, "{\"pan\":\"4111111111111111\"}", FLOW_GO, STEP_SAVE, LOOKUP_NONE, NULL},
    {STEP_REVEAL, UNKNOWN | KEYRING, 200, "{\"pan\":\"4242424242424242\"}", FLOW_RETRY, 0, 0, "issuer_unreadable"},
    {STEP_REVEAL, UNKNOWN | KEYRING, 422, "{\"code\":\"not_yours\"}", FLOW_FAIL, 0, 0, "reveal_refused"},
    {STEP_REVEAL, UNKNOWN | KEYRING, 418, "{}", FLOW_FAIL, 0, 0, "reveal_refused"},
    {STEP_REVEAL, UNKNOWN | KEYRING, 401, "{}", FLOW_FAIL, 0, 0, "reveal_refused"},
    {STEP_REVEAL, UNKNOWN | KEYRING, 403, "{}", FLOW_FAIL, 0, 0, "reveal_refused"},
    {STEP_REVEAL, UNKNOWN | KEYRING | UNNUMBERED, 403, "{}", FLOW_GO, STEP_SAVE, LOOKUP_NONE, NULL},
    {STEP_REVEAL, UNKNOWN | KEYRING, 404, "{}", FLOW_DEFER, 0, 0, "issuer_http_404"},
    {STEP_REVEAL, UNKNOWN | KEYRING, 200, "{\"id\":\"card-1\"}", FLOW_GO, STEP_SAVE, LOOKUP_NONE, NULL},
    {STEP_REVEAL, UNKNOWN | KEYRING, 200, "{\"id\":\"card-2\"}", FLOW_RETRY, 0, 0, "issuer_unreadable"},
    {STEP_REVEAL, UNKNOWN | KEYRING, 500, "{}", FLOW_RETRY, 0, 0, "issuer_http_500"},
    /* link, and what follows for a reissue */
    {STEP_LINK, SAVED, 200, "{}", FLOW_COMPLETE, 0, 0, NULL},
    {STEP_LINK, SAVED | REISSUE, 200, "{}", FLOW_GO, STEP_RETIRE, LOOKUP_NONE, NULL},
    {STEP_LINK, SAVED | REISSUE | PLAIN, 200, "{}", FLOW_COMPLETE, 0, 0, NULL},
    {STEP_RETIRE, SAVED | REISSUE, 200, "{}", FLOW_COMPLETE, 0, 0, NULL},
    {STEP_RETIRE, SAVED | REISSUE, 400, "{}", FLOW_GO, STEP_VERIFY, LOOKUP_NONE, NULL},
    {STEP_RETIRE, SAVED | REISSUE | PLAIN, 400, "{}", FLOW_COMPLETE, 0, 0, "retire_refused"},
    {STEP_RETIRE, SAVED | REISSUE, 503, "{}", FLOW_RETRY, 0, 0, "issuer_http_503"},
    {STEP_RETIRE, SAVED | REISSUE, 403, "{}", FLOW_DEFER, 0, 0, "issuer_http_403"},
    {STEP_VERIFY, SAVED | REISSUE | RETIRES, 200, CARD("card-0", "gone"), FLOW_COMPLETE, 0, 0, NULL},
    {STEP_VERIFY, SAVED | REISSUE | RETIRES, 200, CARD("card-0", "live"), FLOW_COMPLETE, 0, 0, "retire_refused"},
    {STEP_VERIFY, SAVED | REISSUE | RETIRES, 404, "{}", FLOW_COMPLETE, 0, 0, "retire_refused"},
    {STEP_VERIFY, SAVED | REISSUE | RETIRES, 200, CARD("card-9", "gone"), FLOW_RETRY, 0, 0, "issuer_unreadable"},
    /* cancel */
    {STEP_CANCEL, SAVED, 200, "{}", FLOW_GO, STEP_UNLINK, LOOKUP_NONE, NULL},
    {STEP_CANCEL, UNKNOWN, 200, "{}", FLOW_REJECT, 0, 0, "why_it_must_go"},
    {STEP_CANCEL, SAVED, 400, "{}", FLOW_GO, STEP_VERIFY, LOOKUP_NONE, NULL},
    {STEP_CANCEL, SAVED | PLAIN, 400, "{}", FLOW_FAIL, 0, 0, "cancel_failed"},
    {STEP_VERIFY, SAVED, 200, CARD("card-1", "gone"), FLOW_GO, STEP_UNLINK, LOOKUP_NONE, NULL},
    {STEP_VERIFY, UNKNOWN, 200, CARD("card-1", "gone"), FLOW_REJECT, 0, 0, "why_it_must_go"},
    {STEP_VERIFY, UNKNOWN, 200, CARD("card-1", "live"), FLOW_FAIL, 0, 0, "cancel_failed"},
    {STEP_VERIFY, UNKNOWN, 404, "{}", FLOW_FAIL, 0, 0, "cancel_failed"},
    {STEP_VERIFY, UNKNOWN, 500, "{}", FLOW_RETRY, 0, 0, "issuer_http_500"},
    /* look-up */
    {STEP_LOOKUP, UNKNOWN, 200, PAGE("true", CARD("card-1", "live")), FLOW_GO, STEP_LOOKUP, LOOKUP_NONE, NULL},
    {STEP_LOOKUP, UNKNOWN, 200, PAGE("false", CARD("card-1", "live")), FLOW_GO, STEP_SAVE, LOOKUP_NONE, NULL},
    {STEP_LOOKUP, UNKNOWN, 200, PAGE("false", CARD("card-1", "new")), FLOW_GO, STEP_SAVE, LOOKUP_NONE, NULL},
    {STEP_LOOKUP, UNKNOWN | STARTS_INACTIVE, 200, PAGE("false", CARD("card-1", "new")), FLOW_GO, STEP_ACTIVATE,
     LOOKUP_NONE, NULL},
    {STEP_LOOKUP, UNKNOWN | KEYRING, 200, PAGE("false", CARD("card-1", "live")), FLOW_GO, STEP_REVEAL, LOOKUP_NONE,
     NULL},
    {STEP_LOOKUP, UNKNOWN, 200, PAGE("false", CARD("card-1", "live") "," CARD("card-2", "new")), FLOW_FAIL, 0, 0,
     "issuer_duplicate"},
    {STEP_LOOKUP, UNKNOWN, 200, PAGE("false", CARD("card-1", "gone")), FLOW_REJECT, 0, 0, "card_cancelled"},
};

static void arrange(const struct row *row)
{
    flow.attempt.is_saved = row->given & SAVED;
    flow.attempt.unknown = row->given & UNKNOWN;
    flow.payload.is_reissue = row->given & REISSUE;
    env.keyring = row->given & KEYRING ? (struct keyring *)&env : NULL; /* only its presence is looked at */
    profile.key_is_trusted = !(row->given & UNTRUSTED);
    profile.makes_inactive = row->given & STARTS_INACTIVE;
    config.card.number_refused = row->given & UNNUMBERED ? NUMBER_REFUSED_KEEP : NUMBER_REFUSED_FAIL;
    if (row->given & PLAIN)
        profile.calls[ISSUER_REVEAL] = profile.calls[ISSUER_RETIRE] = profile.calls[ISSUER_RETRIEVE] =
            (struct issuer_call_shape){0};
    flow.attempt.verifies = row->given & RETIRES ? STEP_RETIRE : STEP_CANCEL;
    snprintf(flow.attempt.pending_code, sizeof(flow.attempt.pending_code), "%s",
             row->step == STEP_CANCEL || row->step == STEP_VERIFY ? "why_it_must_go" : "");
}

START_TEST(each_answer_leads_to_one_step_or_one_end)
{
    const struct row *row = &rows[_i];
    arrange(row);
    struct flow_verdict verdict = answered(row->step, row->status, row->body);
    ck_assert_int_eq(verdict.kind, row->kind);
    if (row->kind == FLOW_GO) {
        ck_assert_str_eq(flow_step_name(verdict.step), flow_step_name(row->next));
        ck_assert_int_eq(verdict.reason, row->reason);
    }
    if (row->code)
        ck_assert_str_eq(verdict.code, row->code);
    else
        ck_assert_ptr_null(verdict.code);
    /* Nothing that happens before the card is stored, or gone, makes its outcome known. */
    bool is_before = row->step == STEP_ISSUE || row->step == STEP_ACTIVATE || row->step == STEP_REVEAL;
    ck_assert(!is_before || flow.attempt.unknown);
}

TEST(a_card_that_cannot_be_activated_goes_with_the_issuers_reason)
{
    flow.attempt.unknown = true;
    struct flow_verdict verdict = answered(STEP_ACTIVATE, 422, "{\"code\":\"holder_blocked\"}");
    ck_assert_int_eq(verdict.step, STEP_MARK);
    ck_assert_str_eq(flow.attempt.pending_code, "holder_blocked");
}

TEST(a_number_that_was_revealed_is_the_cards)
{
    flow.attempt.unknown = true;
    (void)answered(STEP_REVEAL, 200, "{\"pan\":\"4111111111111111\"}");
    ck_assert_str_eq(flow.card.number, "4111111111111111");
    (void)answered(STEP_REVEAL, 200, "{\"pan\":\"4242424242424242\"}"); /* another card's */
    ck_assert_str_eq(flow.card.number, "");
}

/* ---- look-ups ---- */

TEST(the_card_of_a_page_is_found_when_all_pages_are_read)
{
    flow.attempt.unknown = true;
    flow.attempt.lookup_reason = LOOKUP_EXHAUSTED;
    struct flow_verdict verdict = answered(STEP_LOOKUP, 200, PAGE("true", CARD("card-7", "live")));
    ck_assert_int_eq(verdict.step, STEP_LOOKUP);
    ck_assert(!flow.attempt.card_is_seen);
    verdict = answered(STEP_LOOKUP, 200, PAGE("false", CARD("card-7", "live"))); /* the list has shifted */
    ck_assert_int_eq(verdict.step, STEP_SAVE);
    ck_assert_str_eq(flow.card.id, "card-7");
    ck_assert(flow.attempt.card_is_seen);
    ck_assert_int_eq(flow.lookup.pages, 0); /* the next look-up begins anew */
}

TEST(a_page_that_fails_decides_nothing)
{
    flow.attempt.unknown = true;
    flow.attempt.lookup_reason = LOOKUP_KEY_EXPIRED;
    (void)answered(STEP_LOOKUP, 200, PAGE("true", CARD("card-7", "live")));
    ck_assert_int_eq(answered(STEP_LOOKUP, 500, "{}").kind, FLOW_RETRY);
    ck_assert_int_eq(flow.lookup.pages, 0);
    ck_assert_int_eq(answered(STEP_LOOKUP, 200, PAGE("false", "")).kind, FLOW_FAIL); /* issuer_key_expired */
}

/* What "not found" means while a send may still arrive, and when none can. */
static const struct {
    enum lookup_reason reason;
    enum flow_verdict_kind kind, settled_kind;
    enum flow_step settled_step;
} not_found[] = {
    {LOOKUP_FIRST, FLOW_GO, FLOW_GO, STEP_ISSUE},      {LOOKUP_BEFORE_SENDING, FLOW_DEFER, FLOW_GO, STEP_CHECK},
    {LOOKUP_KEY_SPENT, FLOW_DEFER, FLOW_FAIL, 0},      {LOOKUP_BY_ANSWER, FLOW_RETRY, FLOW_RETRY, 0},
    {LOOKUP_CONTRADICTION, FLOW_DEFER, FLOW_RETRY, 0}, {LOOKUP_AFTER_REPEAT, FLOW_GO, FLOW_GO, STEP_SAVE},
    {LOOKUP_EXHAUSTED, FLOW_DEFER, FLOW_FAIL, 0},      {LOOKUP_KEY_EXPIRED, FLOW_DEFER, FLOW_FAIL, 0},
    {LOOKUP_INELIGIBLE, FLOW_DEFER, FLOW_REJECT, 0},   {LOOKUP_REFUSED, FLOW_DEFER, FLOW_REJECT, 0},
    {LOOKUP_UNFORESEEN, FLOW_DEFER, FLOW_FAIL, 0},     {LOOKUP_WORKER_LOST, FLOW_DEFER, FLOW_FAIL, 0},
    {LOOKUP_IN_OUTAGE, FLOW_DEFER, FLOW_DEFER, 0},     {LOOKUP_CARD_SEEN, FLOW_RETRY, FLOW_RETRY, 0},
};

START_TEST(nothing_found_is_an_end_only_when_no_send_can_arrive)
{
    flow.attempt.unknown = flow.attempt.may_arrive = true;
    flow.attempt.lookup_reason = not_found[_i].reason;
    ck_assert_int_eq(answered(STEP_LOOKUP, 200, PAGE("false", "")).kind, not_found[_i].kind);
    flow.attempt.may_arrive = flow.attempt.end_is_held = false;
    flow.attempt.lookup_reason = not_found[_i].reason;
    struct flow_verdict verdict = answered(STEP_LOOKUP, 200, PAGE("false", ""));
    ck_assert_int_eq(verdict.kind, not_found[_i].settled_kind);
    if (verdict.kind == FLOW_GO)
        ck_assert_int_eq(verdict.step, not_found[_i].settled_step);
    ck_assert(flow.attempt.unknown);
}

/* Else an operator may cancel the request as one that was never sent, with a live card. */
TEST(a_card_that_was_found_is_unknown_until_it_is_stored)
{
    flow.attempt.lookup_reason = LOOKUP_FIRST;
    ck_assert_int_eq(answered(STEP_LOOKUP, 200, PAGE("false", "")).step, STEP_ISSUE);
    ck_assert(!flow.attempt.unknown);
    flow.attempt.lookup_reason = LOOKUP_FIRST;
    ck_assert_int_eq(answered(STEP_LOOKUP, 200, PAGE("false", CARD("card-1", "live"))).kind, FLOW_GO);
    ck_assert(flow.attempt.unknown);
}

/* A create was executed behind an unknown one, and the key is not trusted: card-1 is ours. */
static const struct {
    const char *page;
    enum flow_verdict_kind kind;
    const char *code;
} repeats[] = {
    {PAGE("false", CARD("card-1", "live")), FLOW_GO, NULL},
    {PAGE("false", CARD("card-2", "live")), FLOW_FAIL, "issuer_duplicate"}, /* ours is not shown yet */
    {PAGE("false", CARD("card-1", "live") "," CARD("card-2", "live")), FLOW_FAIL, "issuer_duplicate"},
    {PAGE("false", CARD("card-2", "gone")), FLOW_GO, NULL},
    {PAGE("false", CARD("card-1", "gone")), FLOW_REJECT, "card_cancelled"},
    {PAGE("false", ""), FLOW_GO, NULL}, /* ours is not shown yet; stored, it is never made again */
};

START_TEST(a_second_card_of_a_repeat_is_a_question)
{
    flow.attempt.unknown = flow.attempt.may_arrive = flow.attempt.card_is_seen = true;
    flow.attempt.lookup_reason = LOOKUP_AFTER_REPEAT;
    struct flow_verdict verdict = answered(STEP_LOOKUP, 200, repeats[_i].page);
    ck_assert_int_eq(verdict.kind, repeats[_i].kind);
    if (repeats[_i].code)
        ck_assert_str_eq(verdict.code, repeats[_i].code);
    else
        ck_assert_int_eq(verdict.step, STEP_SAVE);
    ck_assert_str_eq(flow.card.id, "card-1");
}

/* ---- check ---- */

TEST(a_required_parameter_that_nobody_gives_is_an_unreadable_answer)
{
    struct flow_verdict verdict = answered(STEP_CHECK, 200, "{\"eligible\":true,\"issuer\":{\"account\":\"a\"}}");
    ck_assert_int_eq(verdict.kind, FLOW_RETRY);
    ck_assert_str_eq(verdict.code, "core_unreadable");
    ck_assert_str_eq(outcome.detail, "no issuer.holder");
    verdict = answered(STEP_CHECK, 200, "{\"eligible\":true,\"issuer\":{\"holder\":\"h\"}}");
    ck_assert_int_eq(verdict.step, STEP_ISSUE);
    snprintf(parameters.fixed.values[0], sizeof(parameters.fixed.values[0]), "everybody");
    ck_assert_int_eq(answered(STEP_CHECK, 200, "{\"eligible\":true}").step, STEP_ISSUE);
}

static const struct {
    int status;
    const char *body;
    enum flow_verdict_kind kind;
} asked[] = {
    {200, "{\"eligible\":true,\"issuer\":{\"holder\":\"h\"}}", FLOW_GO},
    {200, "{\"eligible\":false,\"reason\":\"no\",\"issuer\":{\"holder\":\"h\"}}", FLOW_GO},
    {200, "{\"eligible\":false}", FLOW_GO},
    {404, "{}", FLOW_GO},
    {418, "{}", FLOW_RETRY},
    {503, "{}", FLOW_RETRY},
    {403, "{}", FLOW_DEFER},
    {200, "[]", FLOW_RETRY},
};

/* A check that only asks for parameters decides nothing about the request. */
START_TEST(a_check_for_the_parameters_leads_to_the_step_that_needs_them)
{
    flow.attempt.unknown = true;
    flow.attempt.lookup_reason = LOOKUP_KEY_EXPIRED;
    flow.attempt.asks_for = STEP_LOOKUP;
    struct flow_verdict verdict = answered(STEP_CHECK, asked[_i].status, asked[_i].body);
    ck_assert_int_eq(verdict.kind, asked[_i].kind);
    if (verdict.kind == FLOW_GO) {
        ck_assert_int_eq(verdict.step, STEP_LOOKUP);
        ck_assert_int_eq(verdict.reason, LOOKUP_NONE); /* the flow's stays */
        ck_assert(flow.parameters.was_asked);
        ck_assert_int_eq(flow.attempt.asks_for, STEP_COUNT);
    } else {
        ck_assert_int_eq(flow.attempt.asks_for, STEP_LOOKUP); /* for attempt_purpose() */
    }
}

/* ---- what calls are made of ---- */

START_TEST(a_create_with_an_untrusted_key_is_never_sent_twice_by_the_client)
{
    profile.key_is_trusted = _i & 1;
    profile.sends_trace = _i & 2;
    snprintf(flow.parameters.values.values[0], sizeof(flow.parameters.values.values[0]), "h");
    flow.attempt.step = STEP_ISSUE;
    ck_assert(flow_steps[STEP_ISSUE].prepare(&flow));
    ck_assert_int_eq(flow.call.must_not_resend, !profile.key_is_trusted);
    ck_assert_int_eq(memmem(flow.call.lines.bytes, flow.call.lines.length, "traceparent: ", 13) != NULL,
                     profile.sends_trace);
    flow.attempt.step = STEP_LOOKUP;
    ck_assert(flow_steps[STEP_LOOKUP].prepare(&flow));
    ck_assert(!flow.call.must_not_resend);
}

TEST(a_retire_is_of_the_old_card_and_all_else_of_ours)
{
    static const struct {
        enum flow_step step, verifies;
        const char *url;
    } calls[] = {
        {STEP_ACTIVATE, STEP_COUNT, "http://peer/cards/card-1/activate"},
        {STEP_REVEAL, STEP_COUNT, "http://peer/cards/card-1/number"},
        {STEP_CANCEL, STEP_COUNT, "http://peer/cards/card-1/cancel"},
        {STEP_RETIRE, STEP_COUNT, "http://peer/cards/card-0/retire"},
        {STEP_VERIFY, STEP_CANCEL, "http://peer/cards/card-1"},
        {STEP_VERIFY, STEP_RETIRE, "http://peer/cards/card-0"},
    };
    flow.payload.is_reissue = true;
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
        flow.attempt.step = calls[i].step;
        flow.attempt.verifies = calls[i].verifies;
        ck_assert(flow_steps[flow.attempt.step].prepare(&flow));
        ck_assert_str_eq(flow.call.lines.bytes, calls[i].url);
    }
}

/* No vendor's step may lead to one that the vendor has no call for. */
TEST(every_profile_has_the_calls_that_its_declarations_lead_to)
{
    for (int i = 0; issuer_profiles[i]; i++) {
        const struct issuer_profile *known = issuer_profiles[i];
        ck_assert(issuer_profile_has(known, ISSUER_CREATE) && issuer_profile_has(known, ISSUER_LOOKUP) &&
                  issuer_profile_has(known, ISSUER_CANCEL));
        for (const struct issuer_state_word *word = known->card.states; word->word; word++)
            ck_assert_msg(word->state != ISSUER_CARD_INACTIVE || issuer_profile_has(known, ISSUER_ACTIVATE), "%s",
                          known->name);
        ck_assert_msg(!issuer_profile_has(known, ISSUER_REVEAL) || known->revealed_number, "%s", known->name);
    }
}

SUITE(step)
{
    TCase *tcase = tcase_create("step");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_loop_test(tcase, each_answer_leads_to_one_step_or_one_end, 0, ARRAY_SIZE(rows));
    ADD_TESTS(tcase);
    tcase_add_loop_test(tcase, nothing_found_is_an_end_only_when_no_send_can_arrive, 0, ARRAY_SIZE(not_found));
    tcase_add_loop_test(tcase, a_second_card_of_a_repeat_is_a_question, 0, ARRAY_SIZE(repeats));
    tcase_add_loop_test(tcase, a_check_for_the_parameters_leads_to_the_step_that_needs_them, 0, ARRAY_SIZE(asked));
    tcase_add_loop_test(tcase, a_create_with_an_untrusted_key_is_never_sent_twice_by_the_client, 0, 4);
    suite_add_tcase(suite, tcase);
}
