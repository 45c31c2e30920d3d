/* The story: an operator names buckets on a command line. One too many is a pause for users who were not meant, so what
 * is not plainly a bucket is refused. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/cells/cell_buckets.h"
#include "tests/support/suite.h"

START_TEST(numbers_ranges_and_lists_are_read)
{
    char words[3][20] = {"17", "0-3,9", "1020-1023"};
    char *arguments[] = {words[0], words[1], words[2]};
    struct cell_buckets buckets;
    struct err err;
    char text[CELL_BUCKETS_TEXT_SIZE];
    ck_assert(cell_buckets_read(arguments, 3, &buckets, &err));
    ck_assert_int_eq(buckets.count, 10);
    ck_assert_str_eq(cell_buckets_text(&buckets, text), "0-3,9,17,1020-1023");
}
END_TEST

START_TEST(what_is_no_bucket_is_refused_and_adds_nothing_to_the_result)
{
    static const char *const bad[] = {
        "",       "-1",  "1024", "01",  "00",  "5-3",   "1-",    "-",    "1,",  ",1",
        "1-2-3",  "1 ",  " 1",   "0x1", "1e2", "17,17", "3-5,4", "1..3", "all", "99999999999999999999",
        "1-1024", "\xff"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        char word[32];
        char *arguments[] = {word};
        struct cell_buckets buckets = {.count = -7};
        struct err err;
        strcpy(word, bad[i]);
        ck_assert_msg(!cell_buckets_read(arguments, 1, &buckets, &err), "%s", bad[i]);
        ck_assert_int_eq(err.kind, ERR_USAGE);
        ck_assert_int_eq(buckets.count, -7);
    }
}
END_TEST

START_TEST(no_bucket_at_all_and_one_named_by_two_arguments_are_refused)
{
    char one[] = "17", two[] = "10-20";
    char *arguments[] = {one, two};
    struct cell_buckets buckets;
    struct err err;
    ck_assert(!cell_buckets_read(arguments, 0, &buckets, &err));
    ck_assert(!cell_buckets_read(arguments, 2, &buckets, &err));
}
END_TEST

START_TEST(a_long_list_is_cut_at_a_bucket)
{
    struct cell_buckets buckets = {.count = 0};
    char text[CELL_BUCKETS_TEXT_SIZE];
    ck_assert_str_eq(cell_buckets_text(&buckets, text), "none");
    for (int bucket = 1; bucket < CELL_BUCKETS; bucket += 2)
        cell_buckets_put(&buckets, bucket);
    cell_buckets_text(&buckets, text);
    ck_assert_uint_lt(strlen(text), CELL_BUCKETS_TEXT_SIZE);
    ck_assert_str_eq(text + strlen(text) - 4, ",...");
    cell_buckets_all(&buckets);
    ck_assert_int_eq(buckets.count, CELL_BUCKETS);
    ck_assert_str_eq(cell_buckets_text(&buckets, text), "0-1023");
}
END_TEST

SUITE(ctl_cell_buckets)
{
    TCase *tests = tcase_create("all");
    tcase_add_test(tests, numbers_ranges_and_lists_are_read);
    tcase_add_test(tests, what_is_no_bucket_is_refused_and_adds_nothing_to_the_result);
    tcase_add_test(tests, no_bucket_at_all_and_one_named_by_two_arguments_are_refused);
    tcase_add_test(tests, a_long_list_is_cut_at_a_bucket);
    suite_add_tcase(suite, tests);
}
