/* The story: after a restore nobody here knows a card that the issuer has, so its own list is read, page by page. A
 * page that is half read, or that leads nowhere, would hide cards: it counts as unreadable. */
#include <string.h>

#include "common/core/issuer/issuer.h"
#include "tests/support/suite.h"

#define OURS "019c0000-0000-7000-8000-000000000001"

static struct http_call call;
static struct issuer_listed seen[4];
static int count;
static char next[CARD_ISSUER_ID_MAX + 1];
static struct outcome outcome;

static void set_up(void)
{
    http_call_init(&call, 4096);
}

static void tear_down(void)
{
    http_call_done(&call);
}

static void on_card(void *context, const struct issuer_listed *card)
{
    (void)context;
    if (count < (int)ARRAY_SIZE(seen))
        seen[count] = *card;
    count++;
}

static void read_page(const struct issuer_profile *profile, int status, const char *cursor, const char *text)
{
    count = 0;
    call.result = HTTP_ANSWERED;
    call.status = status;
    call.retry_after_ms = -1;
    buf_reset(&call.answer);
    buf_put(&call.answer, text, strlen(text));
    issuer_read_list(profile, &call, cursor, on_card, NULL, next, &outcome);
}

TEST(a_page_tells_its_cards_and_where_the_next_one_begins)
{
    read_page(&issuer_stripe, 200, "",
              "{\"data\":[{\"id\":\"ic_1\",\"metadata\":{\"issuing_reference\":\"" OURS "\"},\"status\":\"inactive\"},"
              "{\"id\":\"ic_2\",\"metadata\":{},\"status\":\"whatever\"},"
              "{\"id\":\"ic_3\",\"metadata\":{\"issuing_reference\":\"" OURS "\"},\"status\":\"canceled\"}],"
              "\"has_more\":true}");
    ck_assert_int_eq(outcome.kind, OUTCOME_EXECUTED);
    ck_assert_int_eq(count, 3);
    ck_assert_str_eq(seen[0].id, "ic_1");
    ck_assert(seen[0].has_reference && seen[0].is_live);
    ck_assert(!seen[1].has_reference); /* another program's, whose words are not ours to know */
    ck_assert(seen[2].has_reference && !seen[2].is_live);
    ck_assert_str_eq(next, "ic_3");
    read_page(&issuer_generic, 200, "ic_3", "{\"cards\":[],\"has_more\":false}");
    ck_assert_int_eq(outcome.kind, OUTCOME_EXECUTED);
    ck_assert_str_eq(next, "");
}

TEST(a_page_that_may_hide_a_card_is_unreadable)
{
    static const char *const pages[] = {
        "",
        "{",
        "[]",
        "{\"cards\":[]}", /* whether there are more? */
        "{\"cards\":{},\"has_more\":false}",
        "{\"cards\":[],\"has_more\":\"false\"}",
        "{\"cards\":[7],\"has_more\":false}",
        "{\"cards\":[{\"reference\":\"" OURS "\",\"status\":\"active\"}],\"has_more\":false}",
        "{\"cards\":[{\"id\":\"ic_1\",\"reference\":\"" OURS "\",\"status\":\"new\"}],\"has_more\":false}",
        "{\"cards\":[],\"has_more\":true}",
        "{\"cards\":[{\"id\":\"ic_0\"}],\"has_more\":true}", /* where this one began */
    };
    for (size_t i = 0; i < ARRAY_SIZE(pages); i++) {
        read_page(&issuer_generic, 200, "ic_0", pages[i]);
        ck_assert_msg(outcome.kind == OUTCOME_UNKNOWN, "%s", pages[i]);
        ck_assert_msg(outcome.detail[0], "%s", pages[i]);
    }
    struct buf many;
    buf_init(&many, 64 * 1024);
    buf_put_text(&many, "{\"cards\":[{\"id\":\"a\"}");
    for (int i = 0; i < ISSUER_LIST_ROWS_MAX; i++)
        buf_put_text(&many, ",{\"id\":\"a\"}");
    buf_put_text(&many, "],\"has_more\":false}");
    call.answer.max = 64 * 1024;
    buf_put_byte(&many, '\0');
    read_page(&issuer_generic, 200, "", many.bytes);
    ck_assert_int_eq(outcome.kind, OUTCOME_UNKNOWN);
    buf_done(&many);
}

TEST(a_cursor_is_a_text_or_null)
{
    read_page(&issuer_increase, 200, "", "{\"data\":[{\"id\":\"card_1\"}],\"next_cursor\":\"abc\"}");
    ck_assert_int_eq(outcome.kind, OUTCOME_EXECUTED);
    ck_assert_str_eq(next, "abc");
    read_page(&issuer_increase, 200, "abc", "{\"data\":[],\"next_cursor\":null}");
    ck_assert_int_eq(outcome.kind, OUTCOME_EXECUTED);
    ck_assert_str_eq(next, "");
    static const char *const pages[] = {"{\"data\":[]}", "{\"data\":[],\"next_cursor\":true}",
                                        "{\"data\":[],\"next_cursor\":\"\"}", "{\"data\":[],\"next_cursor\":\"abc\"}"};
    for (size_t i = 0; i < ARRAY_SIZE(pages); i++) {
        read_page(&issuer_increase, 200, "abc", pages[i]);
        ck_assert_msg(outcome.kind == OUTCOME_UNKNOWN, "%s", pages[i]);
    }
}

TEST(a_refusal_is_told_from_what_may_pass)
{
    read_page(&issuer_generic, 404, "", "{\"code\":\"not_found\",\"detail\":\"no such path\"}");
    ck_assert_int_eq(outcome.advice, ADVICE_CONFIGURATION);
    ck_assert_str_eq(outcome.detail, "no such path");
    read_page(&issuer_generic, 400, "", "{}");
    ck_assert_int_eq(outcome.kind, OUTCOME_REFUSED);
    read_page(&issuer_lithic, 429, "", "{}");
    ck_assert_int_eq(outcome.advice, ADVICE_WAIT);
    read_page(&issuer_stripe, 503, "", "{}");
    ck_assert_int_eq(outcome.advice, ADVICE_RETRY);
}

/* The paths and names of the vendors' documents. */
TEST(the_list_is_asked_for_as_the_documents_say)
{
    static const struct {
        const struct issuer_profile *profile;
        const char *url;
    } cases[] = {
        {&issuer_generic, "https://x/v1/cards?created_from=2026-11-28T06%3A00%3A00.000000Z&limit=100&after=ic_1"},
        {&issuer_stripe,
         "https://x/v1/issuing/cards?type=virtual&created[gte]=1795845600&limit=10&starting_after=ic_1"},
        {&issuer_increase,
         "https://x/cards?created_at.on_or_after=2026-11-28T06%3A00%3A00.000000Z&limit=100&cursor=ic_1"},
        {&issuer_lithic, "https://x/v1/cards?begin=2026-11-28T06%3A00%3A00.000000Z&page_size=100&starting_after=ic_1"},
    };
    struct issuer_lookup place = {.cursor = "ic_1"};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct issuer_subject subject = {.base = "https://x", .since_ms = INT64_C(1795845600000), .lookup = &place};
        ck_assert(issuer_build(cases[i].profile, ISSUER_LIST, &subject, &call));
        ck_assert_str_eq(call.method, "GET");
        ck_assert_str_eq(call.lines.bytes, cases[i].url);
    }
    ck_assert(!issuer_profile_has(&issuer_marqeta, ISSUER_LIST));
    ck_assert(!issuer_profile_has(&issuer_adyen, ISSUER_LIST));
}

TESTS_BETWEEN(issuer_list, set_up, tear_down)
