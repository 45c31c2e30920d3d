/* A repeat under the same key must be the same request, and a look-up must go to the holder that the create went to.
 * What an event keeps decides both, so nothing that was only guessed may be kept, and what is kept must win. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/suite.h"
#include "tests/unit/worker/fake_profile.h"
#include "worker/peers/event_parameters.h"

enum { HOLDER, ACCOUNT };

static struct issuer_profile profile;
static struct parameters_env env;
static struct event_parameters parameters;

static void set_up(void)
{
    profile = fake_profile;
    env = (struct parameters_env){.profile = &profile};
}

static void start(const char *kept)
{
    event_parameters_start(&parameters, &env, "user-1",
                           kept ? (struct slice){kept, strlen(kept)} : (struct slice){NULL, 0});
}

static void set(struct issuer_parameters *values, int index, const char *value)
{
    snprintf(values->values[index], sizeof(values->values[index]), "%s", value);
}

/* core-api answers; NULL = it does not give that one, and without any there is no object. */
static void take(bool is_eligible, const char *holder, const char *account)
{
    struct core_eligibility answer = {.has_parameters = holder || account};
    set(&answer.parameters, HOLDER, holder ? holder : "");
    set(&answer.parameters, ACCOUNT, account ? account : "");
    event_parameters_take(&parameters, &env, "user-1", is_eligible, &answer);
}

static const char *written(void)
{
    static struct buf out;
    buf_done(&out);
    buf_init(&out, 4096);
    ck_assert(event_parameters_write(&parameters, &env, &out));
    return out.bytes ? out.bytes : "";
}

static void expect(const char *holder, const char *account)
{
    ck_assert_str_eq(parameters.values.values[HOLDER], holder);
    ck_assert_str_eq(parameters.values.values[ACCOUNT], account);
}

TEST(the_word_of_core_api_wins_over_the_configuration)
{
    set(&env.fixed, HOLDER, "everybody");
    set(&env.fixed, ACCOUNT, "ours");
    start(NULL);
    expect("everybody", "ours");
    take(true, "h-1", NULL);
    expect("h-1", "ours");
}

TEST(what_the_event_keeps_wins_over_both)
{
    set(&env.fixed, HOLDER, "everybody");
    start("{\"holder\":\"h-first\"}");
    take(true, "h-2", "a-2");
    expect("h-first", ""); /* the first request had no account, so its repeat has none */
    ck_assert_str_eq(written(), "");
}

TEST(a_required_parameter_that_is_not_kept_is_filled_in)
{
    start("{\"account\":\"a-first\",\"forgotten\":\"x\"}");
    ck_assert(event_parameters_must_ask(&parameters, &env, ISSUER_LOOKUP));
    take(true, "h-2", "a-2");
    expect("h-2", "a-first");
    ck_assert(!event_parameters_must_ask(&parameters, &env, ISSUER_LOOKUP));
}

TEST(what_cannot_be_read_counts_as_not_kept)
{
    static const char *const texts[] = {"", "{", "[]", "{\"holder\":1}", "{\"holder\":\"\"}"};
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        start(texts[i]);
        ck_assert_msg(!parameters.is_kept, "%s", texts[i]);
        take(true, "h-2", NULL);
        expect("h-2", "");
    }
}

/* What may be kept: core-api's own word, whole. */
static const struct {
    bool is_asked, is_eligible;
    const char *holder, *account, *kept;
} words[] = {
    {false, false, NULL, NULL, ""},
    {true, true, "h", NULL, "{\"holder\":\"h\"}"},
    {true, true, "h", "a", "{\"holder\":\"h\",\"account\":\"a\"}"},
    {true, false, "h", NULL, "{\"holder\":\"h\"}"}, /* the user may have none, and is still known */
    {true, true, NULL, "a", ""},                    /* not whole */
    {true, false, NULL, NULL, ""},
};

START_TEST(only_what_core_api_gave_and_whole_is_kept)
{
    start(NULL);
    if (words[_i].is_asked)
        take(words[_i].is_eligible, words[_i].holder, words[_i].account);
    ck_assert_str_eq(written(), words[_i].kept);
}

/* A user whom core-api has forgotten: the default by the user id is a guess. */
TEST(a_guess_is_never_kept)
{
    profile.parameter_from_user = "holder";
    start(NULL);
    expect("user-1", "");
    take(false, NULL, NULL);
    expect("user-1", "");
    ck_assert_str_eq(written(), "");
    take(true, NULL, NULL); /* the user is known, and core-api names no other holder */
    ck_assert_str_eq(written(), "{\"holder\":\"user-1\"}");
}

TEST(core_api_is_asked_once_before_a_call_that_it_could_change)
{
    start(NULL);
    ck_assert(event_parameters_must_ask(&parameters, &env, ISSUER_LOOKUP));
    ck_assert(event_parameters_must_ask(&parameters, &env, ISSUER_CREATE));
    ck_assert(!event_parameters_must_ask(&parameters, &env, ISSUER_CANCEL)); /* has none */
    take(false, NULL, NULL);
    ck_assert(!event_parameters_must_ask(&parameters, &env, ISSUER_LOOKUP));
    start("{\"holder\":\"h\"}");
    ck_assert(!event_parameters_must_ask(&parameters, &env, ISSUER_LOOKUP));
}

/* A header of every call, even an optional one: the card may be in another account. A segment of the path, too. */
TEST(a_parameter_in_a_header_or_in_a_path_counts)
{
    static const struct issuer_field headers[] = {PARAMETER("Account", "account", .when = IF_GIVEN), {0}};
    start(NULL);
    profile.calls[ISSUER_CANCEL].path = "/holders/{holder}/cards/{card}/cancel";
    ck_assert(event_parameters_must_ask(&parameters, &env, ISSUER_CANCEL));
    profile.calls[ISSUER_CANCEL].path = "/cards/{card}/{event}/cancel";
    ck_assert(!event_parameters_must_ask(&parameters, &env, ISSUER_CANCEL));
    profile.headers = headers;
    ck_assert(event_parameters_must_ask(&parameters, &env, ISSUER_CANCEL));
    profile.calls[ISSUER_RETRIEVE] = (struct issuer_call_shape){0}; /* there is no such call */
    ck_assert(!event_parameters_must_ask(&parameters, &env, ISSUER_RETRIEVE));
}

/* Only optional ones, and none is given: that, too, is what the first request was. */
TEST(that_nothing_was_given_is_kept)
{
    static const char *const optional[] = {"?holder", "?account", NULL};
    profile.parameters = optional;
    start(NULL);
    take(true, NULL, NULL);
    ck_assert(event_parameters_must_keep(&parameters, &env));
    ck_assert_str_eq(written(), "{}");
    start("{}");
    take(true, "h-2", "a-2");
    expect("", "");
    ck_assert(!event_parameters_must_keep(&parameters, &env));
}

TEST(an_issuer_without_parameters_is_never_asked_about)
{
    env.profile = &issuer_generic;
    start("{\"holder\":\"h\"}");
    start(NULL);
    for (int call = 0; call < ISSUER_CALLS; call++)
        ck_assert(!event_parameters_must_ask(&parameters, &env, (enum issuer_call)call));
    take(true, NULL, NULL);
    ck_assert_str_eq(written(), "");
    ck_assert(!event_parameters_must_keep(&parameters, &env));
}

TEST(a_peers_words_do_not_repeat_the_holder)
{
    start("{\"holder\":\"ich_123456\",\"account\":\"eur\"}");
    char text[] = "No such holder: 'ich_123456' in eur (ich_123456)";
    event_parameters_hide(&parameters, text);
    ck_assert_str_eq(text, "No such holder: '**********' in eur (**********)");
}

/* A detail is ASCII, and at most so long (outcome_read_detail()). */
TEST(a_name_that_was_made_ascii_or_cut_is_not_repeated_either)
{
    start("{\"holder\":\"J\u00fcrgen Gro\u00df\",\"account\":\"J\u00fcrgen\"}");
    char whole[] = "J??rgen Gro?? may not have a card, J??rgen", cut[] = "refused for J??rgen G", begun[] = "J??rg, or";
    event_parameters_hide(&parameters, whole);
    ck_assert_str_eq(whole, "************* may not have a card, *******");
    event_parameters_hide(&parameters, cut);
    ck_assert_str_eq(cut, "refused for *********");
    event_parameters_hide(&parameters, begun);
    ck_assert_str_eq(begun, "J??rg, or");
}

SUITE(event_parameters)
{
    TCase *tcase = tcase_create("event_parameters");
    tcase_add_checked_fixture(tcase, set_up, NULL);
    ADD_TESTS(tcase);
    tcase_add_loop_test(tcase, only_what_core_api_gave_and_whole_is_kept, 0, ARRAY_SIZE(words));
    suite_add_tcase(suite, tcase);
}
