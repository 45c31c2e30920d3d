/* The body of a request is read by the api and, from the outbox, by the worker; other services insert rows as well.
 * What one accepts the other must accept, every bad member is named once, and nothing of a value is ever repeated. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/outbox.h"
#include "common/lib/base/buf.h"
#include "tests/support/suite.h"

#define CARD "0199a4b1-0c3d-7e5f-8a9b-0c1d2e3f4a5b"

static struct outbox_payload payload;
static struct outbox_fault faults[OUTBOX_FAULTS_MAX];

static int read_text(const char *text)
{
    /* A copy of its exact size, so that a byte read too far is noticed. */
    size_t length = strlen(text);
    char *copy = malloc(length > 0 ? length : 1);
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, text, length);
    memset(&payload, 0x55, sizeof(payload));
    memset(faults, 0x55, sizeof(faults));
    int count = outbox_payload_read(copy, length, &payload, faults);
    free(copy);
    return count;
}

static void expect_one_fault(const char *text, const char *pointer, const char *detail)
{
    int count = read_text(text);
    ck_assert_msg(count == 1, "%d faults in %s", count, text);
    ck_assert_str_eq(faults[0].pointer, pointer);
    ck_assert_msg(strstr(faults[0].detail, detail) != NULL, "%s: %s", text, faults[0].detail);
    ck_assert_int_eq(payload.memo[0], 0x55);
}

TEST(the_shortest_request_is_a_kind)
{
    ck_assert_int_eq(read_text(" {\"kind\":\"new\"} "), 0);
    ck_assert(!payload.is_reissue);
    ck_assert(!payload.has_program);
    ck_assert(!payload.has_memo);
    ck_assert_str_eq(payload.replaces, "");
    ck_assert_str_eq(payload.program, "");
}

/* What a later release may know, and what none will. */
TEST(faults_tell_a_newer_request_from_a_broken_one)
{
    static const struct {
        const char *text;
        bool may_be_newer;
    } cases[] = {
        {"{\"kind\":\"new\",\"no_such_member\":\"night\"}", true},
        {"{\"kind\":\"upgrade\"}", true},
        {"{\"kind\":\"reissue\",\"replaces\":\"" CARD "\",\"reason\":\"bent\"}", true},
        {"{\"kind\":\"new\",\"memo\":7}", false},
        {"{\"kind\":null}", false},
        {"{\"kind\":\"new\",\"program\":\"\"}", false},
        {"{\"kind\":\"reissue\",\"replaces\":\"7\"}", false},
        {"[]", false},
        {"{\"kind\":", false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        ck_assert_int_eq(read_text(cases[i].text), 1);
        ck_assert_msg(faults[0].may_be_newer == cases[i].may_be_newer, "%s", cases[i].text);
    }
}

TEST(a_full_request_is_read_in_any_order)
{
    ck_assert_int_eq(read_text("{\"memo\":\"caf\\u00e9 \\ud83d\\udcb3\",\"program\":\"gold\",\"replaces\":\"" CARD
                               "\",\"kind\":\"reissue\"}"),
                     0);
    ck_assert(payload.is_reissue);
    ck_assert_str_eq(payload.replaces, CARD);
    ck_assert(payload.has_program);
    ck_assert_str_eq(payload.program, "gold");
    ck_assert(payload.has_memo);
    ck_assert_str_eq(payload.memo, "caf\xc3\xa9 \xf0\x9f\x92\xb3");
}

TEST(a_text_that_is_too_long_may_be_of_a_newer_release)
{
    char text[400];
    snprintf(text, sizeof(text), "{\"kind\":\"new\",\"memo\":\"%0256d\"}", 0);
    ck_assert_int_eq(read_text(text), 1);
    ck_assert(faults[0].may_be_newer);
}

/* Two requests that differ in any member must be two fingerprints. */
TEST(what_is_written_is_what_was_read_each_member_of_it)
{
    static const char *const members[] = {
        "\"kind\":\"new\"",
        "\"kind\":\"new\",\"program\":\"gold\"",
        "\"kind\":\"new\",\"memo\":\"\"",
        "\"kind\":\"new\",\"memo\":\"a\\\"b\"",
        "\"kind\":\"new\",\"program\":\"gold\",\"memo\":\"gold\"",
        "\"kind\":\"reissue\",\"replaces\":\"" CARD "\"",
        "\"kind\":\"reissue\",\"replaces\":\"" CARD "\",\"reason\":\"stolen\",\"memo\":\"m\"",
    };
    for (size_t i = 0; i < ARRAY_SIZE(members); i++) {
        char text[200];
        struct buf out;
        buf_init(&out, sizeof(text));
        snprintf(text, sizeof(text), "{%s}", members[i]);
        ck_assert_int_eq(read_text(text), 0);
        outbox_payload_write(&out, &payload);
        ck_assert_msg(slice_is(buf_slice(&out), text), "%s", text);
        buf_done(&out);
    }
}

TEST(names_and_values_mean_what_they_unescape_to)
{
    ck_assert_int_eq(read_text("{\"\\u006bind\":\"\\u006eew\"}"), 0);
    expect_one_fault("{\"kind\":\"new\",\"\\u006bind\":\"new\"}", "#", "");
}

TEST(one_card_has_one_spelling)
{
    ck_assert_int_eq(read_text("{\"kind\":\"reissue\",\"replaces\":\"0199A4B1-0C3D-7E5F-8A9B-0C1D2E3F4A5B\"}"), 0);
    ck_assert_str_eq(payload.replaces, CARD);
}

TEST(a_text_that_is_no_json_object_is_one_fault)
{
    static const char *const bad[] = {
        "",
        "  ",
        "{",
        "[]",
        "\"new\"",
        "null",
        "1",
        "{'kind':1}",
        "{\"kind\":\"new\"}x",
        "{\"kind\":\"new\",\"kind\":\"new\"}",
        "{\"kind\":\"new\",}",
        "{\"kind\":\"new\",\"memo\":\"\\u0000\"}",
        "{\"kind\":\"new\",\"memo\":\"\xff\"}",
        "{\"kind\":\"new\",\"memo\":\"a\nb\"}",
        "\xef\xbb\xbf{\"kind\":\"new\"}",
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        expect_one_fault(bad[i], "#", "");
    expect_one_fault("[]", "#", "must be an object");
}

TEST(kind_is_required_and_one_of_two)
{
    expect_one_fault("{}", "#/kind", "is required");
    expect_one_fault("{\"kind\":null}", "#/kind", "must not be null");
    expect_one_fault("{\"kind\":1}", "#/kind", "must be a string");
    expect_one_fault("{\"kind\":\"New\"}", "#/kind", "must be \"new\" or \"reissue\"");
    expect_one_fault("{\"kind\":\"\"}", "#/kind", "must be");
    expect_one_fault("{\"kind\":\"newnewnewnewnewnewnewnew\"}", "#/kind", "must be");
}

TEST(replaces_belongs_to_a_reissue_and_is_an_id)
{
    expect_one_fault("{\"kind\":\"reissue\"}", "#/replaces", "required");
    expect_one_fault("{\"kind\":\"new\",\"replaces\":\"" CARD "\"}", "#/replaces", "only for a reissue");
    expect_one_fault("{\"replaces\":\"" CARD "\",\"kind\":\"new\"}", "#/replaces", "only for a reissue");
    expect_one_fault("{\"kind\":\"new\",\"replaces\":null}", "#/replaces", "null");
    expect_one_fault("{\"kind\":\"reissue\",\"replaces\":null}", "#/replaces", "null");
    expect_one_fault("{\"kind\":\"reissue\",\"replaces\":\"\"}", "#/replaces", "id of a card");
    expect_one_fault("{\"kind\":\"reissue\",\"replaces\":\"" CARD "0\"}", "#/replaces", "id of a card");
    expect_one_fault("{\"kind\":\"reissue\",\"replaces\":\"0199a4b1-0c3d-7e5f-8a9b-0c1d2e3f4a5g\"}", "#/replaces",
                     "id of a card");
    expect_one_fault("{\"kind\":\"reissue\",\"replaces\":[\"" CARD "\"]}", "#/replaces", "must be a string");
}

/* A body with one text member of `length` bytes. */
static int read_sized(const char *member, size_t length, const char *character)
{
    char text[1024];
    size_t used = (size_t)sprintf(text, "{\"kind\":\"new\",\"%s\":\"", member);
    for (size_t i = 0; i < length / strlen(character); i++)
        used += (size_t)sprintf(text + used, "%s", character);
    memcpy(text + used, "\"}", 3);
    return read_text(text);
}

TEST(a_reason_belongs_to_a_reissue_and_is_one_of_four)
{
    static const char *const words[] = {"lost", "stolen", "damaged", "expired"};
    char text[200];
    for (int i = 0; i < OUTBOX_REISSUE_REASONS; i++) {
        snprintf(text, sizeof(text), "{\"kind\":\"reissue\",\"replaces\":\"" CARD "\",\"reason\":\"%s\"}", words[i]);
        ck_assert_int_eq(outbox_payload_read(text, strlen(text), &payload, NULL), 0);
        ck_assert_int_eq(payload.reason, i);
        ck_assert_str_eq(outbox_reissue_reason_name(payload.reason), words[i]);
    }
    static const char none[] = "{\"kind\":\"reissue\",\"replaces\":\"" CARD "\"}";
    ck_assert_int_eq(outbox_payload_read(none, strlen(none), &payload, NULL), 0);
    ck_assert_int_eq(payload.reason, OUTBOX_LOST);
    expect_one_fault("{\"kind\":\"new\",\"reason\":\"lost\"}", "#/reason", "only for a reissue");
    expect_one_fault("{\"kind\":\"reissue\",\"replaces\":\"" CARD "\",\"reason\":\"LOST\"}", "#/reason", "must be");
    expect_one_fault("{\"kind\":\"reissue\",\"replaces\":\"" CARD "\",\"reason\":null}", "#/reason", "not be null");
    expect_one_fault("{\"kind\":\"reissue\",\"replaces\":\"" CARD "\",\"reason\":\"a reason that is much too long\"}",
                     "#/reason", "must be");
}

TEST(texts_have_their_limits_in_bytes)
{
    ck_assert_int_eq(read_sized("program", 1, "p"), 0);
    ck_assert_int_eq(read_sized("program", 64, "p"), 0);
    ck_assert_uint_eq(strlen(payload.program), 64);
    ck_assert_int_eq(read_sized("program", 0, "p"), 1);
    ck_assert_int_eq(read_sized("program", 65, "p"), 1);
    ck_assert_str_eq(faults[0].pointer, "#/program");
    ck_assert_int_eq(read_sized("program", 64, "\xc3\xa9"), 0);
    ck_assert_int_eq(read_sized("program", 66, "\xc3\xa9"), 1);
    ck_assert_int_eq(read_sized("memo", 0, "m"), 0);
    ck_assert(payload.has_memo);
    ck_assert_int_eq(read_sized("memo", 255, "m"), 0);
    ck_assert_uint_eq(strlen(payload.memo), 255);
    ck_assert_int_eq(read_sized("memo", 256, "m"), 1);
    ck_assert_str_eq(faults[0].pointer, "#/memo");
    ck_assert_int_eq(read_sized("memo", 252, "\xf0\x9f\x92\xb3"), 0);
    ck_assert_int_eq(read_sized("memo", 256, "\xf0\x9f\x92\xb3"), 1);
}

TEST(control_characters_are_refused_and_their_neighbours_are_not)
{
    for (unsigned int code = 1; code < 0x100; code++) {
        bool is_control = code < 0x20 || (code >= 0x7f && code <= 0x9f);
        char text[128];
        sprintf(text, "{\"kind\":\"new\",\"memo\":\"a\\u%04xb\"}", code);
        ck_assert_msg(read_text(text) == is_control, "U+%04X", code);
        sprintf(text, "{\"kind\":\"new\",\"program\":\"\\u%04x\"}", code);
        ck_assert_msg(read_text(text) == is_control, "U+%04X", code);
        if (is_control)
            ck_assert_str_eq(faults[0].detail, "must not contain control characters");
    }
    /* The second byte of U+00A0 and of U+4080 is not a control. */
    ck_assert_int_eq(read_text("{\"kind\":\"new\",\"memo\":\"\xc2\xa0\xe4\x82\x80\"}"), 0);
    expect_one_fault("{\"kind\":\"new\",\"memo\":\"\xc2\x85\"}", "#/memo", "control");
}

TEST(every_bad_member_is_reported_once)
{
    ck_assert_int_eq(read_text("{\"program\":\"\",\"colour\":1,\"replaces\":null,\"memo\":[],\"kind\":\"old\"}"), 5);
    static const char *const wanted[] = {"#/program", "#/colour", "#/replaces", "#/memo", "#/kind"};
    for (size_t i = 0; i < ARRAY_SIZE(wanted); i++)
        ck_assert_str_eq(faults[i].pointer, wanted[i]);
}

TEST(faults_beyond_the_array_are_counted_up_to_its_size)
{
    char text[2048] = "{";
    for (int i = 0; i < 40; i++)
        sprintf(text + strlen(text), "\"x%d\":null,", i);
    sprintf(text + strlen(text), "\"kind\":\"new\"}");
    ck_assert_int_eq(read_text(text), OUTBOX_FAULTS_MAX);
    ck_assert_str_eq(faults[OUTBOX_FAULTS_MAX - 1].pointer, "#/x7");
    ck_assert_int_eq(outbox_payload_read(text, strlen(text), &payload, NULL), OUTBOX_FAULTS_MAX);
}

TEST(odd_names_are_shown_short_and_printable)
{
    expect_one_fault("{\"kind\":\"new\",\"\":1}", "#/", "not a member");
    expect_one_fault("{\"kind\":\"new\",\"a/b~c\":1}", "#/a~1b~0c", "not a member");
    expect_one_fault("{\"kind\":\"new\",\"a\\n\\u00e9\":1}", "#/a???", "not a member");
    expect_one_fault("{\"kind\":\"new\",\"Kind\":1}", "#/Kind", "not a member");
    expect_one_fault("{\"kind\":\"new\",\"kindkindkindkind\":1}", "#/kindkindkindkind", "not a member");
    expect_one_fault("{\"kind\":\"new\",\"12345678901234567890123456789012\":1}", "#/12345678901234567890123456789012",
                     "not");
    expect_one_fault("{\"kind\":\"new\",\"123456789012345678901234567890123\":1}",
                     "#/12345678901234567890123456789012...", "not");
    for (size_t length = 250; length <= 700; length += 150) {
        char text[1024] = "{\"kind\":\"new\",\"";
        size_t used = strlen(text);
        memset(text + used, '~', length);
        memcpy(text + used + length, "\":1}", 5);
        ck_assert_int_eq(read_text(text), 1);
        ck_assert_uint_eq(strlen(faults[0].pointer), 2 + 64 + 3);
        ck_assert_mem_eq(faults[0].pointer, "#/~0~0~0", 8);
    }
}

TEST(no_fault_repeats_a_value)
{
    ck_assert_int_eq(read_text("{\"kind\":\"hush\",\"replaces\":\"hush\",\"program\":\"hush\\u0001\",\"memo\":"
                               "\"hush\\u0001\",\"x\":\"hush\"}"),
                     5);
    for (int i = 0; i < 5; i++)
        ck_assert_ptr_null(strstr(faults[i].detail, "hush"));
    ck_assert_int_eq(read_text("{\"kind\":\"hush\",\"memo\":hush}"), 1);
    ck_assert_ptr_null(strstr(faults[0].detail, "hush"));
}

TEST(statuses_have_the_names_of_the_documents)
{
    static const char *const names[] = {"PENDING", "PROCESSING", "COMPLETED", "REJECTED", "FAILED"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        enum outbox_status status = OUTBOX_PENDING;
        ck_assert(outbox_status_parse(names[i], strlen(names[i]), &status));
        ck_assert_uint_eq(status, i);
        ck_assert_str_eq(outbox_status_name(status), names[i]);
        ck_assert_int_eq(outbox_status_is_final(status), i >= 2);
    }
    enum outbox_status status = OUTBOX_FAILED;
    ck_assert(!outbox_status_parse("pending", 7, &status));
    ck_assert(!outbox_status_parse("PENDING", 6, &status));
    ck_assert(!outbox_status_parse("PENDINGS", 8, &status));
    ck_assert(!outbox_status_parse("", 0, &status));
    ck_assert_int_eq(status, OUTBOX_FAILED);
}

TEST(reason_codes_are_short_words)
{
    char longest[66];
    memset(longest, 'a', sizeof(longest));
    ck_assert(outbox_reason_code_is_valid("card_limit_2", 12));
    ck_assert(outbox_reason_code_is_valid(longest, 64));
    ck_assert(!outbox_reason_code_is_valid(longest, 65));
    ck_assert(!outbox_reason_code_is_valid("", 0));
    ck_assert(!outbox_reason_code_is_valid("Card", 4));
    ck_assert(!outbox_reason_code_is_valid("a-b", 3));
    ck_assert(!outbox_reason_code_is_valid("a b", 3));
    ck_assert(!outbox_reason_code_is_valid("a\0b", 3));
    ck_assert(!outbox_reason_code_is_valid("caf\xc3\xa9", 5));
}

TEST(every_reason_has_a_sentence_for_the_user)
{
#define X(code, detail, meaning)                           \
    ck_assert_str_eq(outbox_reason_detail(#code), detail); \
    ck_assert_str_eq(outbox_code_text(#code), meaning);
    OUTBOX_REASONS(X)
#undef X
    static const char *const others[] = {"insufficient_funds", "issuer_http_418", "core_http_402", "", "<script>"};
    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        const char *detail = outbox_reason_detail(others[i]);
        ck_assert_uint_gt(strlen(detail), 10);
        ck_assert(others[i][0] == '\0' || strstr(detail, others[i]) == NULL);
    }
    ck_assert_ptr_nonnull(outbox_reason_detail(NULL));
}

/* A retry whose code means nothing to the operator is looked for at the issuer; and the database takes a code that
 * begins with a peer's name for that peer's answer, and counts such answers. */
TEST(every_cause_has_a_code_of_its_own_and_a_meaning)
{
    static const char *const codes[] = {
#define X(name, code, text) #code,
        OUTBOX_CAUSES(X)
#undef X
    };
    for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
        const char *code = codes[i];
        ck_assert_str_eq(outbox_cause_name((enum outbox_cause)i), code);
        ck_assert(outbox_reason_code_is_valid(code, strlen(code)));
        ck_assert_uint_gt(strlen(outbox_code_text(code)), 10);
        bool is_of_peer = strncmp(code, "issuer_", 7) == 0 || strncmp(code, "core_", 5) == 0;
        ck_assert_msg(is_of_peer == (i <= OUTBOX_CAUSE_CORE_UNREADABLE), "%s", code);
        for (size_t other = 0; other < i; other++)
            ck_assert_str_ne(code, codes[other]);
#define X(name, detail, meaning) ck_assert_str_ne(code, #name);
        OUTBOX_REASONS(X)
#undef X
    }
    ck_assert_ptr_null(outbox_code_text("insufficient_funds"));
    ck_assert_ptr_null(outbox_code_text(""));
}

TEST(each_end_of_an_attempt_is_read_as_it_is_written)
{
    enum outbox_attempt attempt;
#define X(name, word)                                                    \
    ck_assert_str_eq(outbox_attempt_name(OUTBOX_ATTEMPT_##name), #word); \
    ck_assert(outbox_attempt_parse(#word, &attempt) && attempt == OUTBOX_ATTEMPT_##name);
    OUTBOX_ATTEMPTS(X)
#undef X
    ck_assert(!outbox_attempt_parse("FAILED", &attempt));
    ck_assert(!outbox_attempt_parse("", &attempt));
}

TEST(a_user_id_is_printable_ascii)
{
    char longest[129];
    memset(longest, 'u', sizeof(longest));
    ck_assert(outbox_user_id_is_valid("alice", 5));
    ck_assert(outbox_user_id_is_valid(" ~", 2));
    ck_assert(outbox_user_id_is_valid(longest, 128));
    ck_assert(!outbox_user_id_is_valid(longest, 129));
    ck_assert(!outbox_user_id_is_valid("", 0));
    ck_assert(!outbox_user_id_is_valid(".", 1));
    ck_assert(!outbox_user_id_is_valid("..", 2));
    ck_assert(outbox_user_id_is_valid("...", 3));
    ck_assert(outbox_user_id_is_valid(".a", 2));
    ck_assert(!outbox_user_id_is_valid("a\x1f", 2));
    ck_assert(!outbox_user_id_is_valid("a\x7f", 2));
    ck_assert(!outbox_user_id_is_valid("a\0b", 3));
    ck_assert(!outbox_user_id_is_valid("\xc3\xa9", 2));
}

TESTS(outbox)
