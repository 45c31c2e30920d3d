/* The story: a table is data that no compiler checks. A parameter that is misspelt in a row, a rule that looks at a
 * header that nobody notes, objects whose rows do not stand together: each would be found by a customer. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/suite.h"
#include "common/core/issuer/issuer.h"
#include "common/core/issuer_profiles.h"

#define EACH_PROFILE(profile) \
    for (const struct issuer_profile *const *at_ = issuer_profiles, *profile; (profile = *at_) != NULL; at_++)

static size_t count_texts(const char *const *texts)
{
    size_t count = 0;
    while (texts && texts[count])
        count++;
    return count;
}

static bool is_parameter(const struct issuer_profile *profile, const char *name, size_t length)
{
    for (size_t i = 0; i < count_texts(profile->parameters); i++) {
        const char *known = profile->parameters[i] + (profile->parameters[i][0] == '?');
        if (strlen(known) == length && strncmp(known, name, length) == 0)
            return true;
    }
    return false;
}

static void check_fields(const struct issuer_profile *profile, const struct issuer_field *fields, bool is_json)
{
    for (const struct issuer_field *field = fields; field && field->name; field++) {
        bool has_text =
            field->source == FROM_TEXT || field->source == FROM_EVENT_HEX || field->source == FROM_PARAMETER;
        ck_assert_msg(has_text == (field->text != NULL), "%s: %s", profile->name, field->name);
        ck_assert_msg(field->source != FROM_PARAMETER || is_parameter(profile, field->text, strlen(field->text)),
                      "%s: no parameter %s", profile->name, field->text);
        ck_assert(field->when != NULL_IF_NONE || is_json);
        ck_assert(field->when != WITH_LAST || field != fields);
        ck_assert_uint_le(strlen(field->name), ISSUER_NAME_MAX);
        ck_assert_msg(field->name[0] != '/' && !strstr(field->name, "//"), "%s", field->name);
    }
}

/* Once the rows of an object have ended, none of them comes again. */
static void check_objects(const struct issuer_field *fields)
{
    for (const struct issuer_field *field = fields; field && field->name; field++)
        for (const struct issuer_field *later = field + 1; later->name; later++) {
            ck_assert_str_ne(field->name, later->name);
            for (const char *slash = strchr(field->name, '/'); slash; slash = strchr(slash + 1, '/')) {
                size_t length = (size_t)(slash + 1 - field->name);
                bool is_same = strncmp(later->name, field->name, length) == 0;
                bool was_same = strncmp((later - 1)->name, field->name, length) == 0;
                ck_assert_msg(!is_same || was_same, "%s is apart", later->name);
            }
        }
}

TEST(the_names_are_those_of_the_options)
{
    static const char *const names[] = {
#define X(name, ...) #name,
        ISSUER_PROFILES(X)
#undef X
    };
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        ck_assert_str_eq(issuer_profiles[i]->name, names[i]);
        ck_assert_ptr_eq(issuer_profile_find(names[i]), issuer_profiles[i]);
    }
    ck_assert_ptr_null(issuer_profiles[ARRAY_SIZE(names)]);
    ck_assert_ptr_null(issuer_profile_find("nonsense"));
    ck_assert_ptr_null(issuer_profile_find(""));
}

TEST(a_key_that_the_issuer_ignores_is_not_trusted)
{
    static char names[][8] = {"generic", "stripe", "none"};
    struct config config = {.issuer.profile = names[0]};
    ck_assert_ptr_eq(issuer_profile_of(&config), &issuer_generic);
    config.issuer.keys = ISSUER_KEYS_IGNORED;
    const struct issuer_profile *profile = issuer_profile_of(&config);
    ck_assert(!profile->key_is_trusted && !issuer_attempt_rules(&config, profile).key_is_trusted);
    ck_assert_str_eq(profile->name, "generic");
    ck_assert(issuer_url_check(profile, "https://cards.example.com/v1", NULL));
    config.issuer.profile = names[1];
    ck_assert_ptr_eq(issuer_profile_of(&config), &issuer_stripe);
    config.issuer.profile = names[2];
    ck_assert_ptr_null(issuer_profile_of(&config));
}

TEST(every_call_is_whole_and_names_only_what_is_there)
{
    EACH_PROFILE(profile)
    {
        ck_assert_uint_le(count_texts(profile->parameters), ISSUER_PARAMETERS_MAX);
        check_fields(profile, profile->headers, false);
        for (int which = 0; which < ISSUER_CALLS; which++) {
            const struct issuer_call_shape *shape = &profile->calls[which];
            if (!shape->method)
                continue;
            ck_assert_int_eq(shape->path[0], '/');
            for (const char *brace = strchr(shape->path, '{'); brace; brace = strchr(brace + 1, '{')) {
                size_t length = strcspn(brace + 1, "}");
                bool is_known = is_parameter(profile, brace + 1, length) || strncmp(brace, "{card}", 6) == 0 ||
                                strncmp(brace, "{event}", 7) == 0;
                ck_assert_msg(is_known && length <= ISSUER_NAME_MAX, "%s: %s", profile->name, shape->path);
            }
            ck_assert((shape->encoding == ENCODING_NONE) == (shape->body == NULL));
            ck_assert(!shape->body || strcmp(shape->method, "GET") != 0);
            ck_assert(!shape->key_suffix || shape->has_key);
            ck_assert_uint_le(shape->key_suffix ? strlen(shape->key_suffix) : 0, ISSUER_NAME_MAX);
            check_fields(profile, shape->query, false);
            check_fields(profile, shape->body, shape->encoding == ENCODING_JSON);
            check_objects(shape->query);
            check_objects(shape->body);
        }
    }
}

TEST(a_profile_can_do_what_the_flow_asks_of_it)
{
    EACH_PROFILE(profile)
    {
        bool is_activated = false;
        ck_assert(issuer_profile_has(profile, ISSUER_CREATE));
        ck_assert(issuer_profile_has(profile, ISSUER_LOOKUP));
        ck_assert(issuer_profile_has(profile, ISSUER_CANCEL));
        ck_assert(issuer_profile_has(profile, ISSUER_REVEAL) == (profile->revealed_number != NULL));
        for (const struct issuer_state_word *row = profile->card.states; row->word; row++) {
            ck_assert_int_ne(row->state, ISSUER_CARD_NONE);
            is_activated |= row->state == ISSUER_CARD_INACTIVE;
        }
        ck_assert_msg(is_activated == issuer_profile_has(profile, ISSUER_ACTIVATE), "%s", profile->name);
        ck_assert(profile->card.exp_mmyy ? !profile->card.exp_month
                                         : profile->card.exp_month && profile->card.exp_year);
        ck_assert((profile->list.paging == PAGING_ONE_CARD) == (profile->list.cards == NULL));
        bool has_pages = profile->list.paging != PAGING_ONE_CARD && profile->list.paging != PAGING_NONE;
        ck_assert(has_pages == (profile->list.more != NULL));
        /* "Not found" of a single card is told from a wrong address by the issuer's code. */
        ck_assert(profile->list.paging != PAGING_ONE_CARD || count_texts(profile->error_codes) > 0);
        /* Where rows shift while they are walked over, one walk proves nothing. */
        ck_assert(profile->list.paging != PAGING_OFFSET || profile->list.walks > 1);
        ck_assert(profile->key_is_trusted || profile->looks_first);
        ck_assert(!profile->sends_trace || profile == &issuer_generic);
    }
}

TEST(rules_look_only_at_what_is_noted_and_read)
{
    EACH_PROFILE(profile)
    {
        ck_assert_uint_le(count_texts(profile->noted_headers), HTTP_NOTED_MAX);
        ck_assert_uint_le(count_texts(profile->error_codes), ISSUER_CODES_MAX);
        for (size_t i = 0; i < count_texts(profile->error_codes); i++)
            ck_assert_int_eq(profile->error_codes[i][0], '/');
        for (const struct issuer_rule *rule = profile->rules; rule && rule->meaning != MEANS_END; rule++) {
            bool is_noted = !rule->header;
            for (size_t i = 0; rule->header && i < count_texts(profile->noted_headers); i++) {
                size_t length = strlen(profile->noted_headers[i]);
                is_noted |= strncmp(rule->header, profile->noted_headers[i], length) == 0 &&
                            strncmp(rule->header + length, ": ", 2) == 0 &&
                            strlen(rule->header + length + 2) < HTTP_NOTED_SIZE;
            }
            ck_assert_msg(is_noted, "%s: %s", profile->name, rule->header);
            ck_assert(!rule->code || count_texts(profile->error_codes) > 0);
            ck_assert(rule->calls >> ISSUER_CALLS == 0);
        }
    }
}

/* Headers of a call: ours, Content-Type, the key, and the trace that the flow adds where it may. */
TEST(no_call_has_more_headers_than_a_call_may_have)
{
    EACH_PROFILE(profile)
    {
        size_t count = 3;
        for (const struct issuer_field *field = profile->headers; field && field->name; field++)
            count++;
        ck_assert_uint_le(count, HTTP_CALL_HEADERS_MAX);
    }
}

TESTS(profiles)
