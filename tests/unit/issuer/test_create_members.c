/* The story: the create was fixed, so a card was live without its limits until somebody set them by another call.
 * Members by configuration must not touch what the promise rests on, and a repeat must say what the first create has
 * said. */
#include "common/core/issuer/create_members.h"
#include "common/core/issuer/issuer.h"
#include "tests/support/suite.h"

#define EVENT "0199a4b1-0c3d-7e5f-8a9b-0c1d2e3f4a5b"

static struct config config;
static struct create_members *members;
static struct http_call call;
static struct err err;

static void set_up(void)
{
    config = (struct config){0};
    members = NULL;
    http_call_init(&call, 64 * 1024);
}

static void tear_down(void)
{
    create_members_close(members);
    http_call_done(&call);
}

static void add(const char *path, const char *value)
{
    struct config_member *member = &config.issuer.members[config.issuer.member_count++];
    snprintf(member->path, sizeof(member->path), "%s", path);
    member->value = (char *)(uintptr_t)value;
}

/* The body of a create with these parameters of core-api. */
static const char *body_of(const struct issuer_profile *base, const char *given)
{
    struct issuer_parameters parameters = {0}, more = {0};
    ck_assert_msg(create_members_open(base, &config, &members, &err), "%s", err.message);
    const struct issuer_profile *profile = create_members_profile(members, base);
    create_members_fill(members, &parameters);
    ck_assert_ptr_null(issuer_parameters_read(profile, json_value_of(given, strlen(given)), &more));
    issuer_parameters_merge(&parameters, &more);
    struct issuer_subject subject = {.base = "https://issuer.test", .user_id = "alice", .parameters = &parameters};
    ck_assert(uuid_parse(EVENT, strlen(EVENT), &subject.event_id));
    return issuer_build(profile, ISSUER_CREATE, &subject, &call) ? call.body.bytes : NULL;
}

TEST(members_stand_in_their_objects_with_their_kinds)
{
    add("card/authentication/password", "{password}");
    add("card/configuration/contactless", "true");
    add("legalEntity", "\"12345\"");
    add("level", "007");
    const char *body =
        body_of(&issuer_adyen, "{\"balanceAccountId\":\"BA1\",\"issuingCountryCode\":\"NL\",\"cardholderName\":\"A\","
                               "\"brand\":\"mc\",\"brandVariant\":\"d\",\"phone\":\"+31\",\"password\":\"pw\"}");
    ck_assert_str_eq(
        body, "{\"type\":\"card\",\"balanceAccountId\":\"BA1\",\"issuingCountryCode\":\"NL\",\"reference\":\"" EVENT
              "\",\"status\":\"active\",\"card\":{\"cardholderName\":\"A\",\"brand\":\"mc\",\"brandVariant\":\"d\","
              "\"formFactor\":\"virtual\",\"authentication\":{\"phone\":{\"number\":\"+31\",\"type\":\"mobile\"},"
              "\"password\":\"pw\"},\"configuration\":{\"contactless\":true}},\"legalEntity\":\"12345\","
              "\"level\":\"007\"}");
}

TEST(a_form_has_lists)
{
    add("spending_controls/spending_limits/0/amount", "10000");
    add("spending_controls/spending_limits/0/interval", "daily");
    const char *body = body_of(&issuer_stripe, "{\"cardholder\":\"ich_1\",\"currency\":\"eur\"}");
    ck_assert_ptr_nonnull(strstr(body, "&spending_controls[spending_limits][0][amount]=10000&spending_controls"
                                       "[spending_limits][0][interval]=daily"));
}

TEST(a_parameter_of_a_member_is_required_unless_it_is_marked)
{
    add("group", "{?group}");
    add("limit", "{limit}");
    const char *given = "{\"account_token\":\"a\"}";
    ck_assert_ptr_null(body_of(&issuer_lithic, given));
    const struct issuer_profile *profile = create_members_profile(members, &issuer_lithic);
    struct issuer_parameters parameters = {0};
    ck_assert_ptr_null(issuer_parameters_read(profile, json_value_of(given, strlen(given)), &parameters));
    ck_assert_str_eq(issuer_parameters_missing(profile, &parameters), "limit");
}

/* What a first create has said is kept by its path, whatever the configuration says later. */
TEST(what_is_kept_wins_over_a_value_that_was_changed)
{
    struct issuer_parameters kept = {0};
    struct buf text;
    buf_init(&text, 1000);
    add("spend_limit", "500");
    const char *given = "{\"account_token\":\"a\",\"spend_limit\":\"100\"}";
    ck_assert_ptr_nonnull(strstr(body_of(&issuer_lithic, given), "\"spend_limit\":100"));
    const struct issuer_profile *profile = create_members_profile(members, &issuer_lithic);
    create_members_fill(members, &kept);
    ck_assert(issuer_parameters_write(profile, &kept, &text));
    ck_assert_str_eq(text.bytes, "{\"spend_limit\":\"500\"}");
    buf_done(&text);
}

TEST(what_the_profile_owns_is_not_touched)
{
    static const struct {
        const struct issuer_profile *profile;
        const char *path, *value;
    } rows[] = {
        {&issuer_stripe, "metadata/issuing_reference", "x"},
        {&issuer_stripe, "metadata", "x"},
        {&issuer_stripe, "type", "physical"},
        {&issuer_stripe, "replacement_for", "ic_1"},
        {&issuer_stripe, "status/x", "y"},
        {&issuer_lithic, "memo", "x"},
        {&issuer_lithic, "Idempotency-Key", "x"},
        {&issuer_marqeta, "token", "x"},
        {&issuer_marqeta, "new_pan_from_card_token", "x"},
        {&issuer_adyen, "card", "x"},
        {&issuer_adyen, "reference", "x"},
        {&issuer_adyen, "list/0", "x"},
        {&issuer_adyen, "a", "{"},
        {&issuer_adyen, "a", "{}"},
        {&issuer_adyen, "a", "{b/c}"},
        {&issuer_adyen, "a", "\"\""},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        config.issuer.member_count = 0;
        add(rows[i].path, rows[i].value);
        ck_assert_msg(!create_members_open(rows[i].profile, &config, &members, &err), "%zu", i);
        ck_assert_ptr_nonnull(strstr(err.message, rows[i].path));
    }
    config.issuer.member_count = 0;
    add("limits/daily", "1");
    add("limits", "2"); /* two lines about one member */
    ck_assert(!create_members_open(&issuer_stripe, &config, &members, &err));
}

TEST(without_members_the_profile_is_the_compiled_in_one)
{
    ck_assert(create_members_open(&issuer_stripe, &config, &members, &err));
    ck_assert_ptr_eq(create_members_profile(members, &issuer_stripe), &issuer_stripe);
}

SUITE(create_members)
{
    TCase *tests = tcase_create("create members");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    ADD_TESTS(tests);
    suite_add_tcase(suite, tests);
}
