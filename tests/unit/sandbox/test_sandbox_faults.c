/* The story: a chaos test scripts "the first create of alice is dropped after it executed" and then looks at what the
 * worker did. A rule that fires once too often, for the wrong user, or not at all, makes such a test pass for the wrong
 * reason. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "common/lib/base/backoff.h"
#include "common/lib/base/slice.h"
#include "common/lib/json/json_strict.h"
#include "common/lib/json/json_value.h"
#include "sandbox/fault_answer.h"
#include "sandbox/faults.h"
#include "tests/support/suite.h"

static struct faults faults;
static int64_t now_ms;

static void set_up(void)
{
    faults_init(&faults);
    now_ms = 1;
}

static void tear_down(void)
{
    faults_done(&faults);
}

static void add(const char *text)
{
    struct err err = {0};
    ck_assert_msg(faults_add(&faults, text, strlen(text), &err), "%s: %s", text, err.message);
}

/* The name of the fault that fires, or "". */
static const char *match(enum call_kind call, const char *user)
{
    const struct fault *fault = faults_match(&faults, call, slice_of(user), SLICE("/v1"), now_ms);
    return fault ? fault_kind_name(fault->kind) : "";
}

TEST(without_rules_nothing_fires)
{
    ck_assert_str_eq(match(CALL_CREATE, "alice"), "");
}

TEST(a_rule_fires_for_its_target_call_and_user_only)
{
    add("{\"target\":\"issuer\",\"call\":\"create\",\"user\":\"alice\",\"fault\":\"drop\"}");
    ck_assert_str_eq(match(CALL_CREATE, "alice"), "drop");
    ck_assert_str_eq(match(CALL_CREATE, "alice2"), "");
    ck_assert_str_eq(match(CALL_CREATE, "alic"), "");
    ck_assert_str_eq(match(CALL_CREATE, ""), "");
    ck_assert_str_eq(match(CALL_LOOKUP, "alice"), "");
    ck_assert_str_eq(match(CALL_CHECK, "alice"), "");
}

TEST(any_call_means_every_call_of_the_target)
{
    add("{\"target\":\"core\",\"call\":\"any\",\"fault\":\"hang\"}");
    ck_assert_str_eq(match(CALL_CHECK, "alice"), "hang");
    ck_assert_str_eq(match(CALL_LINK, "bob"), "hang");
    ck_assert_str_eq(match(CALL_CREATE, "alice"), "");
}

TEST(a_rule_with_a_path_fires_for_that_webhook_only)
{
    add("[{\"target\":\"route\",\"call\":\"hook\",\"path\":\"/hooks/audit\",\"fault\":\"drop\"},"
        "{\"target\":\"route\",\"call\":\"charge\",\"fault\":\"hang\"}]");
    const struct fault *fault = faults_match(&faults, CALL_HOOK, SLICE("alice"), SLICE("/hooks/audit"), 1);
    ck_assert_ptr_nonnull(fault);
    ck_assert_str_eq(fault_kind_name(fault->kind), "drop");
    ck_assert_ptr_null(faults_match(&faults, CALL_HOOK, SLICE("alice"), SLICE("/hooks/audits"), 1));
    ck_assert_str_eq(match(CALL_CHARGE, "alice"), "hang");
    ck_assert_str_eq(match(CALL_CHARGE_LOOKUP, "alice"), "");
    ck_assert_str_eq(match(CALL_CREATE, "alice"), "");
}

TEST(a_count_is_used_up_and_the_next_rule_follows)
{
    add("[{\"target\":\"issuer\",\"fault\":\"drop\",\"count\":2},{\"target\":\"issuer\",\"fault\":\"hang\",\"count\":1}"
        "]");
    ck_assert_str_eq(match(CALL_CREATE, "a"), "drop");
    ck_assert_str_eq(match(CALL_CANCEL, "b"), "drop");
    ck_assert_str_eq(match(CALL_CREATE, "a"), "hang");
    ck_assert_str_eq(match(CALL_CREATE, "a"), "");
}

TEST(skip_lets_calls_that_fit_pass_first)
{
    add("{\"target\":\"issuer\",\"call\":\"create\",\"user\":\"a\",\"fault\":\"drop\",\"skip\":2,\"count\":1}");
    ck_assert_str_eq(match(CALL_CREATE, "a"), "");
    ck_assert_str_eq(match(CALL_CREATE, "b"), "");
    ck_assert_str_eq(match(CALL_LOOKUP, "a"), "");
    ck_assert_str_eq(match(CALL_CREATE, "a"), "");
    ck_assert_str_eq(match(CALL_CREATE, "a"), "drop");
    ck_assert_str_eq(match(CALL_CREATE, "a"), "");
}

TEST(a_rule_that_is_skipped_leaves_the_call_to_the_next_one)
{
    add("[{\"target\":\"issuer\",\"fault\":\"drop\",\"skip\":1},{\"target\":\"issuer\",\"fault\":\"hang\"}]");
    ck_assert_str_eq(match(CALL_CREATE, "a"), "hang");
    ck_assert_str_eq(match(CALL_CREATE, "a"), "drop");
}

TEST(a_rate_is_about_right_and_the_same_for_the_same_seed)
{
    char luck[2][1000];
    add("{\"target\":\"issuer\",\"fault\":\"drop\",\"rate\":0.25}");
    for (int round = 0; round < 2; round++) {
        backoff_seed(42);
        for (int i = 0; i < 1000; i++)
            luck[round][i] = *match(CALL_CREATE, "a") ? '1' : '0';
    }
    int fired = 0;
    for (int i = 0; i < 1000; i++)
        fired += luck[0][i] == '1';
    ck_assert_int_gt(fired, 150);
    ck_assert_int_lt(fired, 350);
    ck_assert_mem_eq(luck[0], luck[1], 1000);
}

TEST(a_rate_of_zero_never_fires_and_of_one_always)
{
    add("{\"target\":\"issuer\",\"fault\":\"drop\",\"rate\":0}");
    for (int i = 0; i < 100; i++)
        ck_assert_str_eq(match(CALL_CREATE, "a"), "");
    add("{\"target\":\"issuer\",\"fault\":\"hang\",\"rate\":1}");
    for (int i = 0; i < 100; i++)
        ck_assert_str_eq(match(CALL_CREATE, "a"), "hang");
}

TEST(limited_passes_its_rate_and_no_more)
{
    add("[{\"target\":\"issuer\",\"call\":\"create\",\"fault\":\"limited\",\"per_second\":2},"
        "{\"target\":\"issuer\",\"user\":\"bob\",\"fault\":\"drop\"}]");
    ck_assert_str_eq(match(CALL_CREATE, "alice"), "");
    ck_assert_str_eq(match(CALL_CREATE, "bob"), "drop"); /* granted, and then the next rule's */
    ck_assert_str_eq(match(CALL_CREATE, "bob"), "limited");
    ck_assert_str_eq(match(CALL_LOOKUP, "alice"), "");
    now_ms += 499;
    ck_assert_str_eq(match(CALL_CREATE, "alice"), "limited");
    now_ms += 1;
    ck_assert_str_eq(match(CALL_CREATE, "alice"), "");
    ck_assert_str_eq(match(CALL_CREATE, "alice"), "limited");
    now_ms += 60000; /* what was not used does not add up beyond a second's calls */
    ck_assert_str_eq(match(CALL_CREATE, "alice"), "");
    ck_assert_str_eq(match(CALL_CREATE, "alice"), "");
    ck_assert_str_eq(match(CALL_CREATE, "alice"), "limited");
}

TEST(a_rate_below_one_a_second_grants_single_calls)
{
    add("{\"target\":\"issuer\",\"fault\":\"limited\",\"per_second\":0.5,\"retry_after\":\"2\"}");
    ck_assert_str_eq(match(CALL_CREATE, "a"), "");
    now_ms += 1999;
    ck_assert_str_eq(match(CALL_CREATE, "a"), "limited");
    now_ms += 1;
    ck_assert_str_eq(match(CALL_CREATE, "a"), "");
    ck_assert_str_eq(match(CALL_CREATE, "a"), "limited");
}

TEST(faults_that_execute_late_differ_from_faults_that_execute_at_once)
{
    static const struct {
        enum fault_kind kind;
        bool now, late;
    } wanted[] = {
        {FAULT_drop, false, false},
        {FAULT_create_then_drop, true, false},
        {FAULT_drop_then_execute, false, true},
        {FAULT_hang_then_execute, false, true},
        {FAULT_status_then_execute, false, true},
        {FAULT_execute_twice, true, true},
        {FAULT_limited, false, false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
        struct fault fault = {.kind = wanted[i].kind};
        ck_assert_int_eq(fault_executes_now(&fault), wanted[i].now);
        ck_assert_int_eq(fault_executes_late(&fault), wanted[i].late);
    }
}

TEST(the_ring_knows_whose_reference_it_was)
{
    struct calls *calls = calls_new();
    ck_assert_ptr_nonnull(calls);
    calls_note(calls, CALL_CREATE, &(struct call_words){.user = SLICE("alice"), .reference = SLICE("r1")}, NULL, 0);
    calls_note(calls, CALL_LOOKUP, &(struct call_words){.reference = SLICE("r1")}, NULL, 0);
    struct slice user = calls_user_of(calls, SLICE("r1"));
    ck_assert_uint_eq(user.length, 5);
    ck_assert_mem_eq(user.bytes, "alice", 5);
    ck_assert_uint_eq(calls_user_of(calls, SLICE("r")).length, 0);
    ck_assert_uint_eq(calls_user_of(calls, SLICE("")).length, 0);
    calls_free(calls);
}

TEST(every_kind_is_found_by_its_name)
{
    static const char *const special[][2] = {
        {"ineligible", ",\"target\":\"core\",\"call\":\"check\""},
        {"link_refused", ",\"target\":\"core\",\"call\":\"link\""},
        {"user_not_found", ",\"target\":\"core\""},
        {"status", ",\"target\":\"issuer\",\"status\":500"},
        {"execute_then_status", ",\"target\":\"issuer\",\"status\":500"},
        {"answer", ",\"target\":\"issuer\",\"body\":\"x\""},
        {"drop_then_execute", ",\"target\":\"issuer\",\"call\":\"create\",\"late_code\":\"no\""},
        {"hang_then_execute", ",\"target\":\"core\",\"call\":\"link\",\"late_from\":\"gone\""},
        {"status_then_execute", ",\"target\":\"core\",\"call\":\"unlink\",\"late_ms\":5"},
        {"execute_twice", ",\"target\":\"issuer\",\"call\":\"cancel\""},
        {"limited", ",\"target\":\"issuer\",\"per_second\":2.5"},
        {"stale", ",\"target\":\"issuer\",\"call\":\"lookup\",\"stale_ms\":5"},
        {"skip_row", ",\"target\":\"issuer\",\"call\":\"lookup\""},
    };
    static const char *const names[] = {
#define X(kind, executes, help) #kind,
        FAULT_KINDS(X)
#undef X
    };
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        char rule[200];
        const char *rest = ",\"target\":\"issuer\"";
        for (size_t j = 0; j < ARRAY_SIZE(special); j++) {
            if (strcmp(special[j][0], names[i]) == 0)
                rest = special[j][1];
        }
        snprintf(rule, sizeof(rule), "{\"fault\":\"%s\"%s}", names[i], rest);
        add(rule);
        ck_assert_int_eq(faults.rules[faults.count - 1].kind, (enum fault_kind)i);
    }
}

TEST(a_bad_rule_is_refused_with_its_reason_and_adds_nothing)
{
    static const char *const bad[][2] = {
        {"", ""},
        {"[", ""},
        {"3", "not an object"},
        {"{}", "required"},
        {"{\"target\":\"issuer\"}", "required"},
        {"{\"target\":\"moon\",\"fault\":\"drop\"}", "target"},
        {"{\"target\":\"issuer\",\"fault\":\"explode\"}", "fault"},
        {"{\"target\":\"issuer\",\"fault\":\"drop\",\"conut\":1}", "conut"},
        {"{\"target\":\"issuer\",\"fault\":\"drop\",\"count\":-1}", "count"},
        {"{\"target\":\"issuer\",\"fault\":\"drop\",\"rate\":1.5}", "rate"},
        {"{\"target\":\"issuer\",\"fault\":\"drop\",\"rate\":\"1\"}", "rate"},
        {"{\"target\":\"issuer\",\"fault\":\"status\"}", "needs a status"},
        {"{\"target\":\"issuer\",\"fault\":\"status\",\"status\":99}", "status"},
        {"{\"target\":\"issuer\",\"call\":\"check\",\"fault\":\"drop\"}", "does not have this call"},
        {"{\"target\":\"core\",\"call\":\"link\",\"fault\":\"ineligible\"}", "call check"},
        {"{\"target\":\"issuer\",\"fault\":\"user_not_found\"}", "core"},
        {"{\"target\":\"issuer\",\"fault\":\"delay\",\"delay_ms\":99999999}", "delay_ms"},
        {"{\"target\":\"issuer\",\"fault\":\"status\",\"status\":429,\"retry_after\":\"1\\r\\nX: y\"}", "retry_after"},
        {"{\"target\":\"issuer\",\"fault\":\"answer\"}", "needs a card"},
        {"{\"target\":\"issuer\",\"call\":\"charge\",\"fault\":\"drop\"}", "the target does not have this call"},
        {"{\"target\":\"route\",\"fault\":\"drop\",\"path\":\"hooks\"}", "\"path\" has no usable value"},
        {"{\"target\":\"route\",\"call\":\"hook\",\"fault\":\"drop_then_execute\"}", "link, unlink or charge"},
        {"{\"target\":\"issuer\",\"fault\":\"execute_twice\"}", "create, activate, cancel, link, unlink or charge"},
        {"{\"target\":\"issuer\",\"call\":\"lookup\",\"fault\":\"drop_then_execute\"}",
         "create, activate, cancel, link, unlink or charge"},
        {"{\"target\":\"issuer\",\"fault\":\"drop\",\"late_ms\":1}", "execute late"},
        {"{\"target\":\"issuer\",\"call\":\"create\",\"fault\":\"drop\",\"stored\":true}", "stored is for"},
        {"{\"target\":\"issuer\",\"fault\":\"status\",\"status\":500,\"stored\":true}", "stored is for"},
        {"{\"target\":\"issuer\",\"call\":\"create\",\"fault\":\"status\",\"status\":500,\"stored\":1}", "stored"},
        {"{\"target\":\"issuer\",\"call\":\"create\",\"fault\":\"delay\",\"at_work\":true}", "at_work is for"},
        {"{\"target\":\"issuer\",\"fault\":\"drop\",\"headers\":[]}", "headers"},
        {"{\"target\":\"issuer\",\"fault\":\"drop\",\"headers\":{\"\":\"x\"}}", "headers"},
        {"{\"target\":\"issuer\",\"fault\":\"drop\",\"headers\":{\"X:\":\"x\"}}", "headers"},
        {"{\"target\":\"issuer\",\"fault\":\"drop\",\"headers\":{\"X\":\"1\\r\\nY: 2\"}}", "headers"},
        {"{\"target\":\"issuer\",\"fault\":\"drop\",\"headers\":{\"A\":\"\",\"B\":\"\",\"C\":\"\",\"D\":\"\",\"E\":"
         "\"\",\"F\":\"\",\"G\":\"\"}}",
         "headers"},
        {"{\"target\":\"core\",\"call\":\"link\",\"fault\":\"drop_then_execute\",\"late_from\":\"gone\"}",
         "hang_then_execute"},
        {"{\"target\":\"core\",\"call\":\"link\",\"fault\":\"drop_then_execute\",\"late_code\":\"x\"}", "call create"},
        {"{\"target\":\"issuer\",\"call\":\"lookup\",\"fault\":\"stale\"}", "stale_ms"},
        {"{\"target\":\"issuer\",\"fault\":\"limited\"}", "per_second"},
        {"{\"target\":\"issuer\",\"fault\":\"limited\",\"per_second\":0}", "per_second"},
        {"{\"target\":\"issuer\",\"fault\":\"drop\",\"per_second\":1}", "limited"},
        {"[{\"target\":\"issuer\",\"fault\":\"answer\",\"card\":{}},{\"target\":\"issuer\",\"fault\":\"drop\",\"card\":"
         "3}]",
         "rule 2"},
    };
    add("{\"target\":\"issuer\",\"fault\":\"drop\"}");
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct err err = {0};
        ck_assert_msg(!faults_add(&faults, bad[i][0], strlen(bad[i][0]), &err), "%s", bad[i][0]);
        ck_assert_int_eq(err.kind, ERR_MALFORMED);
        ck_assert_msg(strstr(err.message, bad[i][1]) != NULL, "%s: %s", bad[i][0], err.message);
        ck_assert_uint_eq(faults.count, 1);
    }
}

TEST(clearing_removes_every_rule)
{
    add("{\"target\":\"issuer\",\"fault\":\"answer\",\"card\":{\"a\":1},\"body\":\"x\"}");
    faults_clear(&faults);
    ck_assert_str_eq(match(CALL_CREATE, "a"), "");
    ck_assert_uint_eq(faults.count, 0);
}

TEST(the_list_shows_what_fired_and_what_is_left)
{
    struct buf out;
    buf_init(&out, 1 << 16);
    add("{\"target\":\"issuer\",\"user\":\"a\\\"b\",\"fault\":\"status\",\"status\":503,\"count\":3,\"card\":{\"pan\":"
        "null}}");
    add("{\"target\":\"core\",\"fault\":\"drop\"}");
    add("{\"target\":\"issuer\",\"call\":\"retrieve\",\"fault\":\"drop\",\"headers\":{\"X-A\":\"b\"}}");
    add("{\"target\":\"issuer\",\"call\":\"activate\",\"fault\":\"status\",\"status\":500,\"stored\":true}");
    ck_assert_str_eq(match(CALL_CREATE, "a\"b"), "status");
    ck_assert(faults_write(&faults, &out));
    ck_assert(json_strict_check(out.bytes, out.length, NULL));
    ck_assert_ptr_nonnull(strstr(out.bytes, "\"fired\":1,\"left\":2"));
    ck_assert_ptr_nonnull(strstr(out.bytes, "\"fired\":0,\"left\":null"));
    ck_assert_ptr_nonnull(strstr(out.bytes, "\"card\":{\"pan\":null}"));
    ck_assert_ptr_nonnull(strstr(out.bytes, "\"call\":\"retrieve\",\"fault\":\"drop\",\"headers\":{\"X-A\":\"b\"}"));
    ck_assert_ptr_nonnull(strstr(out.bytes, "\"status\":500,\"stored\":true"));
    buf_done(&out);
}

static void check_override(const char *answer, const char *card, const char *expected)
{
    struct buf out;
    buf_init(&out, 1 << 16);
    ck_assert(fault_override(slice_of(answer), "cards", card, &out));
    ck_assert_str_eq(out.bytes, expected);
    buf_done(&out);
}

TEST(members_are_put_over_an_answer_added_or_removed)
{
    check_override("{\"id\":\"x\",\"pan\":\"1\",\"n\":3}", "{\"id\":\"y\",\"last4\":\"2\",\"pan\":null}",
                   "{\"id\":\"y\",\"n\":3,\"last4\":\"2\"}");
    check_override("{}", "{\"a\":[1,{\"b\":2}]}", "{\"a\":[1,{\"b\":2}]}");
    check_override("{\"a\":1}", "{\"a\":null,\"b\":null}", "{}");
    check_override("{\"m\":{\"a\":1,\"b\":2},\"n\":{\"c\":3}}", "{\"m\":{\"b\":null,\"d\":4},\"n\":7}",
                   "{\"m\":{\"a\":1,\"d\":4},\"n\":7}");
}

TEST(every_card_of_a_look_up_gets_the_members)
{
    check_override("{\"cards\":[{\"id\":\"x\",\"status\":\"active\"},{\"id\":\"y\",\"status\":\"active\"}]}",
                   "{\"status\":\"cancelled\"}",
                   "{\"cards\":[{\"id\":\"x\",\"status\":\"cancelled\"},{\"id\":\"y\",\"status\":\"cancelled\"}]}");
    check_override("{\"cards\":[]}", "{\"status\":\"cancelled\"}", "{\"cards\":[]}");
    check_override("{\"more\":true,\"cards\":[{\"id\":1}],\"url\":\"/\"}", "{\"id\":2}",
                   "{\"more\":true,\"cards\":[{\"id\":2}],\"url\":\"/\"}");
}

TEST(the_ring_of_calls_keeps_the_newest_and_forgets_late_answers_to_the_oldest)
{
    struct calls *calls = calls_new();
    struct buf out;
    ck_assert_ptr_nonnull(calls);
    buf_init(&out, 1 << 24);
    uint64_t first = calls_note(calls, CALL_CHECK, &(struct call_words){.user = SLICE("first")}, NULL, 0);
    for (int i = 0; i < CALLS_MAX; i++) {
        uint64_t call = calls_note(calls, CALL_CREATE, &(struct call_words){.user = SLICE("later")}, "drop", 0);
        calls_answered(calls, call, 201);
    }
    calls_answered(calls, first, 599);
    ck_assert(calls_write(calls, CALLS_MAX + 5, &out));
    ck_assert(json_strict_check(out.bytes, out.length, NULL));
    ck_assert_ptr_null(strstr(out.bytes, "first"));
    ck_assert_ptr_null(strstr(out.bytes, "599"));
    struct json_value list = json_member(json_value_of(out.bytes, out.length), "calls"), element;
    size_t cursor = 0;
    int count = 0;
    while (json_next_element(list, &cursor, &element))
        count++;
    ck_assert_int_eq(count, CALLS_MAX);
    buf_reset(&out);
    ck_assert(calls_write(calls, 2, &out));
    ck_assert_ptr_nonnull(
        strstr(out.bytes, "\"target\":\"issuer\",\"call\":\"create\",\"user\":\"later\",\"key\":null"));
    calls_clear(calls);
    buf_reset(&out);
    ck_assert(calls_write(calls, 2, &out));
    ck_assert_str_eq(out.bytes, "{\"calls\":[]}\n");
    buf_done(&out);
    calls_free(calls);
}

TESTS_BETWEEN(sandbox_faults, set_up, tear_down)
