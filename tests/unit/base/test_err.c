/* An operator reads one line and a script reads an exit code. The message must stay one line and end in a whole
 * character whatever text a library returned, and the code must be that of docs/troubleshoot.md. */
#include <check.h>
#include <string.h>

#include "common/lib/base/err.h"
#include "tests/support/suite.h"

TEST(an_error_carries_its_kind_and_sentence_and_is_false)
{
    struct err err = {.kind = ERR_NONE};
    ck_assert(!err_set(&err, ERR_CONFIG, "option %s: %d is too big", "limit.count", 7));
    ck_assert_int_eq(err.kind, ERR_CONFIG);
    ck_assert_str_eq(err.message, "option limit.count: 7 is too big");
}

TEST(a_caller_that_does_not_want_to_know_passes_null)
{
    ck_assert(!err_set(NULL, ERR_SYSTEM, "%s", "x"));
    ck_assert(!err_prefix(NULL, "%s", "x"));
    ck_assert(!err_set_sqlstate(NULL, ERR_DATABASE, "42501", "%s", "x"));
}

TEST(a_prefix_names_the_place_and_the_kind_stays)
{
    struct err err;
    err_set(&err, ERR_AWAY, "connection refused");
    ck_assert(!err_prefix(&err, "database %d", 1));
    ck_assert_int_eq(err.kind, ERR_AWAY);
    ck_assert_str_eq(err.message, "database 1: connection refused");
}

/* What a program does next hangs on the code; a prefix that leaves no room for the message must not change it. */
TEST(a_prefix_that_fills_the_message_leaves_the_sqlstate)
{
    char long_text[2000];
    memset(long_text, 'p', sizeof(long_text) - 1);
    long_text[sizeof(long_text) - 1] = '\0';
    struct err err;
    ck_assert(!err_set_sqlstate(&err, ERR_DATABASE, "55P03", "%s (SQLSTATE 55P03)", "no lock"));
    ck_assert_str_eq(err.message, "no lock (SQLSTATE 55P03)");
    ck_assert(!err_prefix(&err, "%s", long_text));
    ck_assert_ptr_null(strstr(err.message, "55P03"));
    ck_assert(err_is_sqlstate(&err, "55P03"));
    ck_assert(!err_is_sqlstate(&err, "55P0"));
    ck_assert_int_eq(err.kind, ERR_DATABASE);
}

TEST(a_new_error_has_not_the_sqlstate_of_the_last_one)
{
    struct err err;
    err_set_sqlstate(&err, ERR_DATABASE, "42501", "refused");
    err_set(&err, ERR_CONFIG, "connect as another role");
    ck_assert_str_eq(err.sqlstate, "");
    ck_assert(!err_is_sqlstate(&err, "42501"));
}

TEST(newlines_of_libraries_do_not_break_the_line)
{
    struct err err;
    err_set(&err, ERR_DATABASE, "FATAL: no\n\tDETAIL: %s\n\n", "because\x7f");
    ck_assert_ptr_null(strpbrk(err.message, "\n\t\x7f"));
    ck_assert_str_eq(err.message, "FATAL: no  DETAIL: because ");
}

TEST(the_old_message_may_be_part_of_the_new_one)
{
    struct err err;
    err_set(&err, ERR_SYSTEM, "inner");
    err_set(&err, ERR_REFUSED, "outer (%s)", err.message);
    ck_assert_str_eq(err.message, "outer (inner)");
}

/* Fills the buffer so that the last character is cut at each of its bytes. */
TEST(a_long_message_is_cut_between_characters)
{
    static const char *const characters[] = {"\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x92\xb3"};
    for (size_t c = 0; c < ARRAY_SIZE(characters); c++) {
        size_t width = strlen(characters[c]);
        for (size_t shift = 0; shift < width; shift++) {
            char long_text[1024];
            size_t length = shift;
            memset(long_text, 'a', length);
            for (; length < 600; length += width)
                memcpy(long_text + length, characters[c], width);
            long_text[length] = '\0';
            struct err err;
            err_set(&err, ERR_SYSTEM, "%s", long_text);
            size_t cut_length = strlen(err.message);
            ck_assert_uint_eq((cut_length - shift) % width, 0);
            ck_assert_uint_gt(cut_length + width, sizeof(err.message) - 1);
            ck_assert_mem_eq(err.message, long_text, cut_length);
        }
    }
}

TEST(a_prefix_of_any_length_leaves_a_terminated_message)
{
    char long_text[2000];
    memset(long_text, 'p', sizeof(long_text) - 1);
    long_text[sizeof(long_text) - 1] = '\0';
    struct err err;
    err_set(&err, ERR_SYSTEM, "%s", long_text);
    err_prefix(&err, "here");
    ck_assert_uint_eq(strlen(err.message), sizeof(err.message) - 1);
    ck_assert_mem_eq(err.message, "here: ppp", 9);
    err_prefix(&err, "%s", long_text);
    ck_assert_uint_eq(strlen(err.message), sizeof(err.message) - 1);
    ck_assert_int_eq(err.message[0], 'p');
}

TEST(exit_codes_are_as_documented)
{
    ck_assert_int_eq(err_exit_code(ERR_NONE), 0);
    ck_assert_int_eq(err_exit_code(ERR_USAGE), 2);
    ck_assert_int_eq(err_exit_code(ERR_AWAY), 75);
    ck_assert_int_eq(err_exit_code(ERR_CONFIG), 78);
    ck_assert_int_eq(err_exit_code(ERR_REFUSED), 1);
    ck_assert_int_eq(err_exit_code((enum err_kind)99), 1);
}

TESTS(err)
