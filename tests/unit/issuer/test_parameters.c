/* The story: a card for the wrong holder is worse than none. What an issuer must be told of a user comes from three
 * places, of which one is typed by an operator and one by another team's program. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/json/json_strict.h"
#include "tests/support/suite.h"
#include "common/core/issuer/parameters.h"

static struct issuer_parameters parameters;
static struct err err;

static void set_up(void)
{
    memset(&parameters, 0, sizeof(parameters));
    memset(&err, 0, sizeof(err));
}

static const char *value(const struct issuer_profile *profile, const char *name)
{
    return issuer_parameters_value(profile, &parameters, name);
}

static const char *read_json(const struct issuer_profile *profile, const char *text)
{
    ck_assert_msg(json_grammar_check(text, strlen(text), NULL), "%s", text);
    return issuer_parameters_read(profile, json_value_of(text, strlen(text)), &parameters);
}

static void expect_written(const struct issuer_profile *profile, const char *text)
{
    struct buf out;
    buf_init(&out, 4096);
    ck_assert(issuer_parameters_write(profile, &parameters, &out));
    ck_assert_str_eq(out.length ? out.bytes : "", text);
    buf_done(&out);
}

TEST(an_operators_line_is_read)
{
    ck_assert(issuer_parameters_parse(&issuer_adyen, " brand=visa\tbrandVariant=visadebit\n issuingCountryCode=NL ",
                                      &parameters, &err));
    ck_assert_str_eq(value(&issuer_adyen, "brand"), "visa");
    ck_assert_str_eq(value(&issuer_adyen, "brandVariant"), "visadebit");
    ck_assert_str_eq(value(&issuer_adyen, "issuingCountryCode"), "NL");
    ck_assert_ptr_null(value(&issuer_adyen, "phone"));
    ck_assert_ptr_null(value(&issuer_adyen, "nonsense"));
    ck_assert(issuer_parameters_parse(&issuer_stripe, "currency=a=b", &parameters, &err));
    ck_assert_str_eq(value(&issuer_stripe, "currency"), "a=b");
    ck_assert(issuer_parameters_parse(&issuer_stripe, "stripe_account=acct_1", &parameters, &err)); /* not required */
    ck_assert_str_eq(value(&issuer_stripe, "stripe_account"), "acct_1");
    ck_assert_ptr_null(value(&issuer_stripe, "currency")); /* of the line before */
}

/* Story: the name on a company's cards has a blank in it, and could not be configured. */
TEST(a_value_with_blanks_stands_between_double_quotes)
{
    ck_assert(issuer_parameters_parse(&issuer_adyen, "brand=mc cardholderName=\"Example Travel\" phone=\"+31 6\"",
                                      &parameters, &err));
    ck_assert_str_eq(value(&issuer_adyen, "cardholderName"), "Example Travel");
    ck_assert_str_eq(value(&issuer_adyen, "phone"), "+31 6");
    ck_assert(issuer_parameters_parse(&issuer_adyen, "\tcardholderName=\" a=\\ '# \"\n", &parameters, &err));
    ck_assert_str_eq(value(&issuer_adyen, "cardholderName"), " a=\\ '# "); /* as it is: nothing else is special */
    ck_assert(issuer_parameters_parse(&issuer_adyen, "brand=\"mc\"", &parameters, &err));
    ck_assert_str_eq(value(&issuer_adyen, "brand"), "mc");
    char text[160] = "cardholderName=\"";
    for (int length = 128; length <= 129; length++) {
        snprintf(text, sizeof(text), "cardholderName=\"%0*d\"", length, 0);
        ck_assert_int_eq(issuer_parameters_parse(&issuer_adyen, text, &parameters, &err), length == 128);
    }
}

TEST(no_line_is_no_parameters)
{
    static const char *const none[] = {NULL, "", " ", "\t\n"};
    for (size_t i = 0; i < ARRAY_SIZE(none); i++)
        for (const struct issuer_profile *const *profile = issuer_profiles; *profile; profile++)
            ck_assert(issuer_parameters_parse(*profile, none[i], &parameters, &err));
}

TEST(a_line_that_is_wrong_is_refused_with_what_is_wrong)
{
    char long_value[256] = "currency=";
    memset(long_value + 9, 'a', 129);
    const struct {
        const struct issuer_profile *profile;
        const char *text, *says;
    } lines[] = {
        {&issuer_stripe, "curency=eur", "has no parameter curency; the nearest is currency"},
        {&issuer_stripe, "?stripe_account=x", "a name is"},
        {&issuer_stripe, "currency", "name=value"},
        {&issuer_stripe, "=eur", "a name is"},
        {&issuer_stripe, "currency=", "the value of currency"},
        {&issuer_stripe, "currency=eur currency=usd", "currency is there twice"},
        {&issuer_stripe, "currency=\xff", "the value of currency"},
        {&issuer_stripe, "currency=a\x7f", "the value of currency"},
        {&issuer_stripe, "currency=\xc2\x85", "the value of currency"},
        {&issuer_stripe, long_value, "the value of currency"},
        {&issuer_stripe, "currency=\"\"", "the value of currency must be 1 to 128"},
        {&issuer_stripe, "currency=\"a\nb\"", "the value of currency must be 1 to 128"},
        {&issuer_stripe, "currency=\"a\tb\"", "the value of currency must be 1 to 128"},
        {&issuer_stripe, "currency=\"", "double quotes may only be around the whole value of currency"},
        {&issuer_stripe, "currency=\"eur", "double quotes may only be"},
        {&issuer_stripe, "currency=\"eur\"x", "double quotes may only be"},
        {&issuer_stripe, "currency=\"eur\"cardholder=ich_1", "double quotes may only be"},
        {&issuer_stripe, "currency=\"e\"\"r\"", "double quotes may only be"},
        {&issuer_stripe, "currency=\"e\\\"r\"", "double quotes may only be"}, /* a backslash hides nothing */
        {&issuer_stripe, "currency=e\"u\"r", "double quotes may only be"},
        {&issuer_stripe, "currency=eur\"", "double quotes may only be"},
        {&issuer_stripe, "currency=\"eur\" currency=usd", "currency is there twice"},
        {&issuer_stripe, "currency=eur cardholder=a b", "name=\"value with blanks\""},
        {&issuer_stripe, "currency =eur", "name=value"},
        {&issuer_stripe, "\"currency=eur\"", "a name is"},
        {&issuer_stripe, "\"currency\"=eur", "a name is"},
        {&issuer_stripe, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa=b", "a name is"},
        {&issuer_generic, "currency=eur", "the profile generic has no parameters"},
    };
    ck_assert(issuer_parameters_parse(&issuer_stripe, "currency=chf", &parameters, &err));
    for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
        ck_assert_msg(!issuer_parameters_parse(lines[i].profile, lines[i].text, &parameters, &err), "%s",
                      lines[i].text);
        ck_assert_int_eq(err.kind, ERR_CONFIG);
        ck_assert_msg(strstr(err.message, lines[i].says) != NULL, "%s", err.message);
        ck_assert_str_eq(value(&issuer_stripe, "currency"), "chf"); /* untouched */
    }
}

/* Whatever is typed is refused or read whole, and nothing behind its end is looked at (ASan). */
TEST(any_line_of_quotes_blanks_and_names_is_refused_or_read)
{
    static const char *const parts[] = {"currency", "cardholder", "=", "\"", " ", "\t", "a", "\\", "\xff", "\xc3\xbc"};
    char text[64];
    unsigned accepted = 0, seed = 1;
    for (int round = 0; round < 20000; round++) {
        size_t length = 0;
        for (int count = 0; count < 5; count++) {
            seed = seed * 1103515245U + 12345U;
            length +=
                (size_t)snprintf(text + length, sizeof(text) - length, "%s", parts[(seed >> 16) % ARRAY_SIZE(parts)]);
        }
        char *copy = strndup(text, length); /* its end is the end of the memory */
        ck_assert_ptr_nonnull(copy);
        memset(&parameters, 0, sizeof(parameters));
        bool is_read = issuer_parameters_parse(&issuer_stripe, copy, &parameters, &err);
        for (int i = 0; i < ISSUER_PARAMETERS_MAX; i++)
            ck_assert_msg(!strchr(parameters.values[i], '"') && (is_read || !parameters.values[i][0]), "%s", text);
        accepted += is_read && strchr(text, '"');
        free(copy);
    }
    ck_assert_uint_gt(accepted, 0);
}

TEST(core_apis_object_is_read_and_what_the_profile_does_not_know_is_ignored)
{
    ck_assert_ptr_null(
        read_json(&issuer_stripe, "{\"cardholder\":\"ich_1\",\"other\":\"x\",\"currency\":\"e\\u00fcr\"}"));
    ck_assert_str_eq(value(&issuer_stripe, "cardholder"), "ich_1");
    ck_assert_str_eq(value(&issuer_stripe, "currency"), "e\xc3\xbcr");
    ck_assert_ptr_null(read_json(&issuer_generic, "{\"cardholder\":\"ich_1\"}"));
    ck_assert_ptr_null(read_json(&issuer_stripe, "{}"));
    ck_assert_ptr_null(value(&issuer_stripe, "cardholder"));
    ck_assert_ptr_null(issuer_parameters_read(&issuer_stripe, (struct json_value){.kind = JSON_MISSING}, &parameters));
}

TEST(an_object_that_breaks_the_rules_is_unreadable_as_a_whole)
{
    static const char *const bad[] = {
        "[]",
        "null",
        "\"cardholder\"",
        "7",
        "true",
        "{\"cardholder\":null}",
        "{\"cardholder\":7}",
        "{\"cardholder\":\"\"}",
        "{\"cardholder\":{\"id\":\"x\"}}",
        "{\"cardholder\":\"a\\nb\"}",
        "{\"cardholder\":\"a\\u007f\"}",
        "{\"cardholder\":\"a\\u0085\"}",
        "{\"\":\"a\"}",
        "{\"card-holder\":\"a\"}",
        "{\"card1\":\"a\"}",
        "{\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\":\"a\"}", /* 41 */
        "{\"other\":7,\"cardholder\":\"ich_2\"}",                /* also in what is ignored */
        "{\"cardholder\":\"ich_2\",\"cardholder\":\"ich_3\"}",
        "{\"cardholder\":\"ich_2\",\"\\u0063ardholder\":\"ich_2\"}",
        "{\"cardholder\":\"Ana \\ud83d\"}",
    };
    ck_assert_ptr_null(read_json(&issuer_stripe, "{\"cardholder\":\"ich_1\"}"));
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        ck_assert_msg(read_json(&issuer_stripe, bad[i]) != NULL, "%s", bad[i]);
        ck_assert_str_eq(value(&issuer_stripe, "cardholder"), "ich_1"); /* untouched */
    }
}

TEST(values_of_128_bytes_and_16_members_fit_and_no_more)
{
    char text[1024];
    for (int length = 128; length <= 129; length++) {
        snprintf(text, sizeof(text), "{\"cardholder\":\"%0*d\"}", length, 0);
        ck_assert_msg((read_json(&issuer_stripe, text) == NULL) == (length == 128), "%d", length);
    }
    for (int count = 16; count <= 17; count++) {
        size_t length = (size_t)snprintf(text, sizeof(text), "{\"a\":\"x\"");
        for (int i = 1; i < count; i++)
            length += (size_t)snprintf(text + length, sizeof(text) - length, ",\"a%c\":\"x\"", 'a' + i);
        snprintf(text + length, sizeof(text) - length, "}");
        ck_assert_msg((read_json(&issuer_stripe, text) == NULL) == (count == 16), "%d", count);
    }
}

TEST(the_stronger_value_wins_and_an_absent_one_does_not)
{
    struct issuer_parameters stronger;
    ck_assert(issuer_parameters_parse(&issuer_stripe, "currency=eur cardholder=ich_1", &parameters, &err));
    ck_assert(issuer_parameters_parse(&issuer_stripe, "cardholder=ich_2", &stronger, &err));
    issuer_parameters_merge(&parameters, &stronger);
    ck_assert_str_eq(value(&issuer_stripe, "cardholder"), "ich_2");
    ck_assert_str_eq(value(&issuer_stripe, "currency"), "eur");
}

TEST(marqetas_user_is_ours_where_our_id_can_be_theirs)
{
    static const struct {
        const char *user_id, *token;
    } users[] = {{"alice", "alice"},
                 {"A-1_b.c", "A-1_b.c"},
                 {"123456789012345678901234567890123456", "123456789012345678901234567890123456"},
                 {"1234567890123456789012345678901234567", NULL},
                 {"a b", NULL},
                 {"a@b", NULL},
                 {"", NULL}};
    for (size_t i = 0; i < ARRAY_SIZE(users); i++) {
        memset(&parameters, 0, sizeof(parameters));
        issuer_parameters_default(&issuer_marqeta, users[i].user_id, &parameters);
        if (users[i].token)
            ck_assert_str_eq(value(&issuer_marqeta, "user_token"), users[i].token);
        else
            ck_assert_str_eq(issuer_parameters_missing(&issuer_marqeta, &parameters), "user_token");
    }
    ck_assert_ptr_null(read_json(&issuer_marqeta, "{\"user_token\":\"theirs\"}"));
    issuer_parameters_default(&issuer_marqeta, "alice", &parameters);
    ck_assert_str_eq(value(&issuer_marqeta, "user_token"), "theirs");
    memset(&parameters, 0, sizeof(parameters));
    issuer_parameters_default(&issuer_stripe, "alice", &parameters); /* whose holder is never ours */
    ck_assert_str_eq(issuer_parameters_missing(&issuer_stripe, &parameters), "cardholder");
}

TEST(what_is_missing_is_named_and_a_look_up_needs_less)
{
    ck_assert_ptr_null(issuer_parameters_missing(&issuer_generic, &parameters));
    ck_assert_ptr_null(issuer_parameters_missing_for(&issuer_marqeta, &parameters, ISSUER_LOOKUP));
    ck_assert_ptr_null(issuer_parameters_missing_for(&issuer_lithic, &parameters, ISSUER_LOOKUP));
    ck_assert_ptr_null(issuer_parameters_missing_for(&issuer_increase, &parameters, ISSUER_LOOKUP));
    ck_assert_str_eq(issuer_parameters_missing_for(&issuer_stripe, &parameters, ISSUER_LOOKUP), "cardholder");
    ck_assert_str_eq(issuer_parameters_missing_for(&issuer_adyen, &parameters, ISSUER_LOOKUP), "balanceAccountId");
    for (const struct issuer_profile *const *profile = issuer_profiles; *profile; profile++)
        if (issuer_profile_has(*profile, ISSUER_CANCEL)) /* an attempt that only cancels has no parameters */
            ck_assert_ptr_null(issuer_parameters_missing_for(*profile, &parameters, ISSUER_CANCEL));
    ck_assert_ptr_null(read_json(&issuer_stripe, "{\"cardholder\":\"ich_1\"}"));
    ck_assert_ptr_null(issuer_parameters_missing_for(&issuer_stripe, &parameters, ISSUER_LOOKUP));
    ck_assert_str_eq(issuer_parameters_missing_for(&issuer_stripe, &parameters, ISSUER_CREATE), "currency");
    ck_assert_str_eq(issuer_parameters_missing(&issuer_stripe, &parameters), "currency");
}

TEST(what_is_written_is_read_again)
{
    struct issuer_parameters before;
    expect_written(&issuer_stripe, "");
    expect_written(&issuer_generic, "");
    ck_assert_ptr_null(read_json(&issuer_stripe, "{\"currency\":\"e\\\"\\\\r\",\"stripe_account\":\"acct_1\"}"));
    expect_written(&issuer_stripe, "{\"currency\":\"e\\\"\\\\r\",\"stripe_account\":\"acct_1\"}");
    before = parameters;
    ck_assert_ptr_null(read_json(&issuer_stripe, "{\"currency\":\"e\\\"\\\\r\",\"stripe_account\":\"acct_1\"}"));
    ck_assert_mem_eq(&parameters, &before, sizeof(before));
    struct buf tiny;
    buf_init(&tiny, 4);
    ck_assert(!issuer_parameters_write(&issuer_stripe, &parameters, &tiny));
    buf_done(&tiny);
}

/* By the tables: whose look-up would not see a card that was made with other values. */
TEST(the_look_ups_of_stripe_and_adyen_are_built_from_parameters)
{
    for (int i = 0; issuer_profiles[i]; i++) {
        const struct issuer_profile *profile = issuer_profiles[i];
        bool is_wanted = profile == &issuer_stripe || profile == &issuer_adyen;
        ck_assert_msg(issuer_call_has_parameters(profile, ISSUER_LOOKUP) == is_wanted, "%s", profile->name);
        ck_assert_msg(issuer_call_has_parameters(profile, ISSUER_CREATE) == (profile->parameters != NULL), "%s",
                      profile->name);
    }
}

/* All else that a look-up is built from never changes for an event: its id and when it was made. The replaced card's id
 * comes from another row, and a card of ours is not known yet. */
TEST(nothing_but_parameters_can_lead_a_look_up_elsewhere)
{
    for (int i = 0; issuer_profiles[i]; i++) {
        const struct issuer_field *field = issuer_profiles[i]->calls[ISSUER_LOOKUP].query;
        for (; field && field->name; field++)
            ck_assert_msg(field->source != FROM_REPLACES && field->source != FROM_CARD, "%s: %s",
                          issuer_profiles[i]->name, field->name);
        ck_assert_ptr_null(strstr(issuer_profiles[i]->calls[ISSUER_LOOKUP].path, "{card}"));
    }
}

TESTS_BETWEEN(parameters, set_up, NULL)
