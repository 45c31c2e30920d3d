/* The story: "not found" lets a create be sent again, or an event end. So it is believed only when every page of every
 * walk was read; and a card of ours is found wherever it stands among the rows of others. */
#include <stdlib.h>

#include "tests/support/suite.h"
#include "vendor_answers.h"

static struct http_call call;
static struct reading reading;
static char rows[32 * 1024];

static void set_up(void)
{
    http_call_init(&call, 64 * 1024);
    memset(&reading, 0, sizeof(reading));
    rows[0] = '\0';
}

static void tear_down(void)
{
    issuer_lookup_forget(&reading.lookup);
    http_call_done(&call);
}

#define OURS 1
#define FOREIGN 0

/* A row, as the vendor would write it. */
static void add_row(const struct issuer_profile *profile, const char *id, int is_ours, const char *state)
{
    const char *reference = is_ours ? EVENT : OTHER_EVENT;
    char row[512];
    if (profile == &issuer_stripe)
        snprintf(row, sizeof(row),
                 "{\"id\":\"%s\",\"metadata\":{\"issuing_reference\":\"%s\"},\"last4\":\"1111\",\"exp_month\":1,"
                 "\"exp_year\":2031,\"status\":\"%s\"}",
                 id, reference, state);
    else if (profile == &issuer_lithic)
        snprintf(row, sizeof(row),
                 "{\"token\":\"%s\",\"memo\":\"%s\",\"last_four\":\"1111\",\"exp_month\":\"01\",\"exp_year\":\"2031\","
                 "\"state\":\"%s\"}",
                 id, reference, state);
    else if (profile == &issuer_increase)
        snprintf(row, sizeof(row),
                 "{\"id\":\"%s\",\"idempotency_key\":\"%s\",\"last4\":\"1111\",\"expiration_month\":1,"
                 "\"expiration_year\":2031,\"status\":\"%s\"}",
                 id, reference, state);
    else
        snprintf(row, sizeof(row),
                 "{\"id\":\"%s\",\"reference\":\"%s\",\"card\":{\"lastFour\":\"1111\",\"expiration\":{\"month\":\"01\","
                 "\"year\":\"2031\"}},\"status\":\"%s\"}",
                 id, reference, state);
    if (rows[0])
        strcat(rows, ",");
    strcat(rows, row);
}

/* Reads the rows that were added as one page. */
static void read_page(const struct issuer_profile *profile, bool has_more)
{
    char text[sizeof(rows) + 256];
    const struct vendor *vendor = vendors;
    while (vendor->profile != profile)
        vendor++;
    snprintf(text, sizeof(text), "%s%s%s", vendor->list_start, rows, has_more ? vendor->list_more : vendor->list_end);
    set_answer(&call, 200, text);
    read_answer(profile, ISSUER_LOOKUP, &call, &reading);
    rows[0] = '\0';
}

static void expect_begun_anew(void)
{
    static const struct issuer_lookup nothing;
    ck_assert_int_eq(reading.outcome.kind, OUTCOME_UNKNOWN);
    ck_assert_int_eq(reading.outcome.advice, ADVICE_RETRY);
    ck_assert_mem_eq(&reading.lookup, &nothing, sizeof(nothing));
}

TEST(a_card_of_ours_is_found_behind_three_pages_of_others)
{
    for (int page = 0; page < 3; page++) {
        char id[16];
        snprintf(id, sizeof(id), "ic_%d", page);
        add_row(&issuer_stripe, "ic_x", FOREIGN, "active");
        add_row(&issuer_stripe, id, FOREIGN, "a state that nobody knows"); /* not ours: not read */
        read_page(&issuer_stripe, true);
        ck_assert_int_eq(reading.outcome.kind, OUTCOME_EXECUTED);
        ck_assert(!reading.lookup.is_done);
        ck_assert_str_eq(reading.lookup.cursor, id);
    }
    add_row(&issuer_stripe, "ic_old", OURS, "canceled");
    add_row(&issuer_stripe, "ic_new", OURS, "inactive");
    read_page(&issuer_stripe, false);
    ck_assert(reading.lookup.is_done);
    ck_assert_int_eq(issuer_lookup_found(&reading.lookup), ISSUER_FOUND_ONE);
    ck_assert_str_eq(reading.lookup.card.id, "ic_new");
    ck_assert_int_eq(reading.lookup.card.state, ISSUER_CARD_INACTIVE);
    ck_assert_int_eq(reading.lookup.pages, 4);
    ck_assert_int_eq(reading.lookup.rows, 8);
}

TEST(a_card_that_is_found_does_not_end_the_walk_before_its_twin_is_found)
{
    add_row(&issuer_lithic, "one", OURS, "OPEN");
    read_page(&issuer_lithic, true);
    ck_assert(!reading.lookup.is_done);
    add_row(&issuer_lithic, "two", OURS, "OPEN");
    read_page(&issuer_lithic, false);
    ck_assert(reading.lookup.is_done);
    ck_assert_int_eq(issuer_lookup_found(&reading.lookup), ISSUER_FOUND_MORE);
}

TEST(a_card_that_comes_twice_since_pages_overlap_is_one_card)
{
    add_row(&issuer_adyen, "PI1", OURS, "active");
    add_row(&issuer_adyen, "PI0", OURS, "closed");
    read_page(&issuer_adyen, true);
    add_row(&issuer_adyen, "PI0", OURS, "closed");
    add_row(&issuer_adyen, "PI1", OURS, "active");
    add_row(&issuer_adyen, "PI1", OURS, "closed"); /* closed while we walked: it counts as it was first seen */
    read_page(&issuer_adyen, false);
    ck_assert_int_eq(reading.lookup.live, 1);
    ck_assert_int_eq(reading.lookup.gone, 1);
    ck_assert_int_eq(issuer_lookup_found(&reading.lookup), ISSUER_FOUND_ONE);
}

TEST(only_closed_cards_of_ours_are_a_cancelled_card)
{
    add_row(&issuer_adyen, "PI0", OURS, "closed");
    add_row(&issuer_adyen, "PI2", OURS, "closed");
    read_page(&issuer_adyen, false);
    ck_assert(reading.lookup.is_done); /* something of ours: no second walk */
    ck_assert_int_eq(issuer_lookup_found(&reading.lookup), ISSUER_FOUND_CANCELLED);
    ck_assert_str_eq(reading.lookup.gone_id, "PI0");
}

TEST(where_rows_shift_two_walks_must_find_nothing)
{
    add_row(&issuer_adyen, "PI1", FOREIGN, "active");
    read_page(&issuer_adyen, true);
    ck_assert_int_eq(reading.lookup.rows, 1);
    read_page(&issuer_adyen, false);
    ck_assert_int_eq(reading.outcome.kind, OUTCOME_EXECUTED);
    ck_assert(!reading.lookup.is_done);
    ck_assert_int_eq(reading.lookup.rows, 0); /* from the start */
    read_page(&issuer_adyen, false);
    ck_assert(reading.lookup.is_done);
    ck_assert_int_eq(issuer_lookup_found(&reading.lookup), ISSUER_FOUND_NONE);
    issuer_lookup_forget(&reading.lookup);
    read_page(&issuer_adyen, false);
    add_row(&issuer_adyen, "PI1", OURS, "active"); /* passed over by the first walk */
    read_page(&issuer_adyen, false);
    ck_assert(reading.lookup.is_done);
    ck_assert_int_eq(issuer_lookup_found(&reading.lookup), ISSUER_FOUND_ONE);
}

TEST(a_page_that_leads_nowhere_makes_the_look_up_unreadable)
{
    read_page(&issuer_stripe, true); /* no rows, and more behind them */
    expect_begun_anew();
    read_page(&issuer_adyen, true);
    expect_begun_anew();
    for (int page = 0; page < 2; page++) {
        add_row(&issuer_stripe, "ic_same", FOREIGN, "active");
        read_page(&issuer_stripe, true);
    }
    expect_begun_anew();
    static const char *const ids[] = {"", ".", "..", "a b"};
    for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
        add_row(&issuer_stripe, ids[i], FOREIGN, "active");
        read_page(&issuer_stripe, true);
        expect_begun_anew();
    }
}

TEST(a_look_up_has_an_end_whatever_the_issuer_says)
{
    int pages = 0;
    do {
        char id[32];
        snprintf(id, sizeof(id), "ic_%d", pages);
        add_row(&issuer_stripe, id, FOREIGN, "active");
        read_page(&issuer_stripe, true);
        ck_assert_int_le(++pages, ISSUER_LOOKUP_PAGES_MAX);
    } while (reading.outcome.kind == OUTCOME_EXECUTED);
    ck_assert_int_eq(pages, ISSUER_LOOKUP_PAGES_MAX);
    expect_begun_anew();
}

TEST(a_fault_on_a_later_page_forgets_the_card_of_an_earlier_one)
{
    static const struct {
        int status;
        const char *text;
    } faults[] = {{200, ""},
                  {200, "{}"},
                  {200, "{\"data\":[]}"},
                  {200, "{\"data\":[],\"has_more\":\"false\"}"},
                  {200, "{\"data\":{},\"has_more\":false}"},
                  {200, "{\"data\":[7],\"has_more\":false}"},
                  {500, ""},
                  {400, "{\"error\":{\"code\":\"x\"}}"}};
    for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
        add_row(&issuer_stripe, "ic_1", OURS, "active");
        read_page(&issuer_stripe, true);
        ck_assert_int_eq(reading.lookup.live, 1);
        set_answer(&call, faults[i].status, faults[i].text);
        read_answer(&issuer_stripe, ISSUER_LOOKUP, &call, &reading);
        expect_begun_anew();
    }
    add_row(&issuer_stripe, "ic_1", OURS, "frozen"); /* ours, and not understood */
    read_page(&issuer_stripe, false);
    expect_begun_anew();
}

TEST(a_page_that_is_answered_429_may_be_asked_for_again)
{
    add_row(&issuer_stripe, "ic_1", OURS, "active");
    read_page(&issuer_stripe, true);
    for (int busy = 1; busy <= 3; busy++) {
        set_answer(&call, 429, "{\"error\":{\"code\":\"rate_limit\"}}");
        read_answer(&issuer_stripe, ISSUER_LOOKUP, &call, &reading);
        ck_assert_int_eq(reading.outcome.advice, ADVICE_WAIT);
        ck_assert_int_eq(reading.lookup.busy, busy);
        ck_assert_str_eq(reading.lookup.cursor, "ic_1");
    }
    add_row(&issuer_stripe, "ic_2", FOREIGN, "active");
    read_page(&issuer_stripe, false);
    ck_assert(reading.lookup.is_done);
    ck_assert_int_eq(reading.lookup.busy, 0);
    ck_assert_int_eq(issuer_lookup_found(&reading.lookup), ISSUER_FOUND_ONE);
}

/* Increase ends a page with a text of its own, and the last one with null. */
TEST(the_text_behind_a_page_leads_to_the_next_one_and_null_ends_the_walk)
{
    add_row(&issuer_increase, "card_1", OURS, "canceled");
    read_page(&issuer_increase, true);
    ck_assert(!reading.lookup.is_done);
    ck_assert_str_eq(reading.lookup.cursor, "v57w5d");
    add_row(&issuer_increase, "card_2", OURS, "active");
    read_page(&issuer_increase, false);
    ck_assert(reading.lookup.is_done);
    ck_assert_int_eq(issuer_lookup_found(&reading.lookup), ISSUER_FOUND_ONE);
    ck_assert_str_eq(reading.lookup.card.id, "card_2");
    issuer_lookup_forget(&reading.lookup);
    read_page(&issuer_increase, false);
    ck_assert(reading.lookup.is_done);
    ck_assert_int_eq(issuer_lookup_found(&reading.lookup), ISSUER_FOUND_NONE);
}

TEST(a_cursor_that_is_no_text_or_leads_nowhere_decides_nothing)
{
    static const char *const ends[] = {"",
                                       ",\"next_cursor\":false",
                                       ",\"next_cursor\":true",
                                       ",\"next_cursor\":0",
                                       ",\"next_cursor\":[]",
                                       ",\"next_cursor\":\"\"",
                                       ",\"next_cursor\":\"a b\"",
                                       ",\"has_more\":false"};
    for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
        for (int rows_of_page = 0; rows_of_page < 2; rows_of_page++) {
            char text[1024];
            snprintf(text, sizeof(text), "{\"data\":[%s]%s}", rows_of_page ? INCREASE_CARD : "", ends[i]);
            set_answer(&call, 200, text);
            read_answer(&issuer_increase, ISSUER_LOOKUP, &call, &reading);
            expect_begun_anew();
        }
    for (int page = 0; page < 2; page++) { /* in a circle */
        add_row(&issuer_increase, "card_1", OURS, "active");
        read_page(&issuer_increase, true);
    }
    expect_begun_anew();
    add_row(&issuer_increase, "card_1", FOREIGN, "active"); /* of a filter that was not obeyed */
    read_page(&issuer_increase, false);
    expect_begun_anew();
}

TEST(one_card_by_its_token_is_found_or_is_not_there)
{
    set_answer(&call, 200, MARQETA_CARD);
    read_answer(&issuer_marqeta, ISSUER_LOOKUP, &call, &reading);
    ck_assert(reading.lookup.is_done);
    ck_assert_int_eq(issuer_lookup_found(&reading.lookup), ISSUER_FOUND_ONE);
    issuer_lookup_forget(&reading.lookup);

    set_answer(&call, 404, "{\"error_code\":\"404057\",\"error_message\":\"Card not found\"}");
    read_answer(&issuer_marqeta, ISSUER_LOOKUP, &call, &reading);
    ck_assert_int_eq(reading.outcome.kind, OUTCOME_EXECUTED);
    ck_assert(!reading.lookup.is_done);
    set_answer(&call, 404, "{\"error_code\":\"404000\",\"error_message\":\"No handler found\"}");
    read_answer(&issuer_marqeta, ISSUER_LOOKUP, &call, &reading);
    ck_assert_int_eq(reading.outcome.kind, OUTCOME_EXECUTED);
    ck_assert(reading.lookup.is_done);
    ck_assert_int_eq(issuer_lookup_found(&reading.lookup), ISSUER_FOUND_NONE);
}

/* The story: a wrong path is 404 with a code, too, and a request was REJECTED over a live card. */
TEST(a_card_is_not_there_only_if_a_wrong_path_is_answered_otherwise)
{
    static const struct {
        int status;
        const char *body;
        bool is_none;
    } seconds[] = {
        {404, "{\"error_code\":\"404000\"}", false}, {200, MARQETA_CARD, false},
        {503, "{\"error_code\":\"503000\"}", false}, {401, "{\"error_code\":\"401000\"}", false},
        {404, "{\"error_code\":\"404057\"}", true},  {404, "", true},
        {405, "{\"error_code\":\"405000\"}", true},
    };
    for (size_t i = 0; i < ARRAY_SIZE(seconds); i++) {
        issuer_lookup_forget(&reading.lookup);
        set_answer(&call, 404, "{\"error_code\":\"404000\",\"error_message\":\"No handler found\"}");
        read_answer(&issuer_marqeta, ISSUER_LOOKUP, &call, &reading);
        set_answer(&call, seconds[i].status, seconds[i].body);
        read_answer(&issuer_marqeta, ISSUER_LOOKUP, &call, &reading);
        ck_assert_msg(reading.lookup.is_done == seconds[i].is_none, "%zu", i);
        ck_assert_msg((reading.outcome.kind == OUTCOME_EXECUTED) == seconds[i].is_none, "%zu", i);
    }
}

/* A proxy, or a wrong path in issuer.url, knows nothing about cards. */
TEST(a_404_that_is_not_the_issuers_own_is_no_answer_to_a_look_up)
{
    static const char *const bodies[] = {"", "<html>404</html>", "{}", "{\"message\":\"no Route matched\"}",
                                         "{\"error_code\":null}"};
    for (size_t i = 0; i < ARRAY_SIZE(bodies); i++) {
        set_answer(&call, 404, bodies[i]);
        read_answer(&issuer_marqeta, ISSUER_LOOKUP, &call, &reading);
        ck_assert_int_eq(reading.outcome.kind, OUTCOME_NOT_EXECUTED);
        ck_assert_int_eq(reading.outcome.advice, ADVICE_CONFIGURATION);
        ck_assert(!reading.lookup.is_done);
    }
    set_answer(&call, 404, "{\"error_code\":\"404057\"}");
    call.result = HTTP_LOST;
    read_answer(&issuer_marqeta, ISSUER_LOOKUP, &call, &reading);
    ck_assert_int_eq(reading.outcome.kind, OUTCOME_UNKNOWN);
}

TEST(a_forgotten_look_up_holds_nothing)
{
    static const struct issuer_lookup nothing;
    set_answer(&call, 200, "{\"cards\":[" GENERIC_CARD "]}");
    read_answer(&issuer_generic, ISSUER_LOOKUP, &call, &reading);
    ck_assert_str_eq(reading.lookup.card.number, "4111111111111111");
    issuer_lookup_forget(&reading.lookup);
    ck_assert_mem_eq(&reading.lookup, &nothing, sizeof(nothing));
}

SUITE(issuer_lookup)
{
    TCase *tests = tcase_create("look-ups");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    ADD_TESTS(tests);
    suite_add_tcase(suite, tests);
}
