/* The story: a script whose flag was misspelt, or whose variable was empty, must not run with another meaning. So a
 * flag is known, is given once, and has a value that its kind takes, or nothing runs. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/options.h"
#include "ctl/role.h"
#include "tests/support/suite.h"

static const char *text;
static int64_t number;
static bool flag;
static const struct option_spec specs[] = {
    {.name = "text", .text = &text},
    {.name = "number", .number = &number, .min = 1, .max = 50},
    {.name = "flag", .flag = &flag},
    {.name = NULL},
};
static struct err err;

#define MAX 8

/* Splits words at blanks and reads them. */
static bool read_words(const char *words, char *ret_rest[MAX], int *ret_count)
{
    static char copy[200];
    char *arguments[MAX];
    int count = 0;
    text = NULL;
    number = 0;
    flag = false;
    err = (struct err){.kind = ERR_NONE};
    ck_assert_uint_lt(strlen(words), sizeof(copy));
    strcpy(copy, words);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " "))
        arguments[count++] = word;
    if (!options_read(specs, arguments, count, ret_count, &err))
        return false;
    for (int i = 0; i < *ret_count; i++)
        ret_rest[i] = arguments[i];
    return true;
}

static void refused(const char *words, const char *because)
{
    char *rest[MAX];
    int count = -1;
    ck_assert_msg(!read_words(words, rest, &count), "%s was taken", words);
    ck_assert_int_eq(err.kind, ERR_USAGE);
    ck_assert_msg(strstr(err.message, because) != NULL, "%s: %s", words, err.message);
    ck_assert_int_eq(count, -1);
}

TEST(values_are_read_in_both_forms_and_the_rest_stays_in_order)
{
    char *rest[MAX];
    int count;
    ck_assert(read_words("one --text a=b --number=50 two --flag three", rest, &count));
    ck_assert_str_eq(text, "a=b");
    ck_assert_int_eq(number, 50);
    ck_assert(flag);
    ck_assert_int_eq(count, 3);
    ck_assert_str_eq(rest[0], "one");
    ck_assert_str_eq(rest[1], "two");
    ck_assert_str_eq(rest[2], "three");
}

TEST(a_value_may_look_like_a_flag_and_two_dashes_end_the_flags)
{
    char *rest[MAX];
    int count;
    ck_assert(read_words("--text --flag -- --number -", rest, &count));
    ck_assert_str_eq(text, "--flag");
    ck_assert(!flag);
    ck_assert_int_eq(count, 2);
    ck_assert_str_eq(rest[0], "--number");
    ck_assert_str_eq(rest[1], "-");
}

TEST(what_is_unknown_doubled_or_incomplete_is_refused)
{
    refused("--nothing", "unknown option --nothing");
    refused("--tex a", "unknown option --tex");
    refused("-text a", "unknown option -text");
    refused("--text a --text b", "given twice");
    refused("--flag --flag", "given twice");
    refused("--flag=yes", "takes no value");
    refused("--text", "needs a value");
    refused("--number 0", "from 1 to 50");
    refused("--number 51", "from 1 to 50");
    refused("--number 5x", "from 1 to 50");
    refused("--number -5", "from 1 to 50");
    refused("--number 99999999999999999999", "from 1 to 50");
}

TEST(a_duration_has_a_unit)
{
    int64_t us = -1;
    ck_assert(options_duration("1500ms", &us));
    ck_assert_int_eq(us, 1500000);
    ck_assert(options_duration("90s", &us));
    ck_assert_int_eq(us, INT64_C(90000000));
    ck_assert(options_duration("15m", &us));
    ck_assert_int_eq(us, INT64_C(900000000));
    ck_assert(options_duration("12h", &us));
    ck_assert_int_eq(us, INT64_C(43200000000));
    ck_assert(options_duration("7d", &us));
    ck_assert_int_eq(us, INT64_C(604800000000));
    static const char *const bad[] = {
        "", "5", "s", "-5s", " 5s", "5 s", "5S", "5y", "1h30m", "999999999999d", "99999999999999999999s"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        ck_assert_msg(!options_duration(bad[i], &us), "%s was taken", bad[i]);
    ck_assert_int_eq(us, INT64_C(604800000000));
}

TEST(a_rate_may_be_below_one_a_second)
{
    const struct {
        const char *text;
        int64_t interval_us;
    } good[] = {{"5", 200000},
                {"5/s", 200000},
                {"0.2", 5000000},
                {"10/m", 6000000},
                {"100/h", 36000000},
                {"100000", 10},
                {"1/h", INT64_C(3600000000)}};
    const char *const bad[] = {"",   "0",    "-1",  "1e3", "inf",    "0x10",    ".5",
                               "5.", "1..2", "5/d", "5/",  "100001", "0.00001", "5 "};
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        int64_t interval_us = 0;
        ck_assert_msg(options_rate(good[i].text, &interval_us), "%s", good[i].text);
        ck_assert_int_eq(interval_us, good[i].interval_us);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        int64_t interval_us = 7;
        ck_assert_msg(!options_rate(bad[i], &interval_us), "%s was taken", bad[i]);
        ck_assert_int_eq(interval_us, 7);
    }
}

TEST(the_users_of_an_installation_have_a_role_of_their_own)
{
    static const char *const others[] = {"root",
                                         "postgres",
                                         "issuing",
                                         "issuing-",
                                         "issuing-a b",
                                         "my-issuing-operator",
                                         "issuing-Operator",
                                         "issuing-operator2"};
    char role[ROLE_SIZE] = "untouched";
    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        ck_assert_msg(!role_of_user(others[i], role), "%s", others[i]);
    ck_assert_str_eq(role, "untouched");
    ck_assert(role_of_user("issuing-operator", role));
    ck_assert_str_eq(role, "issuing_operator");
    ck_assert(role_of_user("issuing-viewer", role));
    ck_assert_str_eq(role, "issuing_viewer");
}

/* issuing-operator was told to run `sudo -u issuing-operator issuing-ctl`, which he did. */
TEST(a_refused_login_is_answered_by_what_helps_there)
{
    ck_assert_ptr_nonnull(strstr(role_hint("28000", false), "sudo -u issuing-operator"));
    ck_assert_ptr_nonnull(strstr(role_hint("28P01", false), "sudo -u issuing-operator"));
    ck_assert_ptr_nonnull(strstr(role_hint("28000", true), "pg_hba.conf"));
    ck_assert_ptr_nonnull(strstr(role_hint("28P01", true), ".pgpass"));
    ck_assert_ptr_nonnull(strstr(role_hint("42501", false), "GRANT CONNECT"));
}

TESTS(ctl_options)
