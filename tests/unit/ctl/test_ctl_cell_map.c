/* The story: the map's file may have been edited by hand, and what answers on a socket may be anything. Nothing of it
 * may become a command to HAProxy or a line on a terminal, and only a clear yes counts as told. The answers are those
 * of HAProxy 2.6. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/cells/cell_map.h"
#include "tests/support/suite.h"

static struct slice slice_of(const char *text)
{
    return (struct slice){.bytes = text, .length = strlen(text)};
}

static struct cell_map map;

START_TEST(a_map_is_read_back_as_it_was_written)
{
    struct buf text;
    static struct cell_map again;
    memset(&map, 0, sizeof(map));
    for (int bucket = 0; bucket < CELL_BUCKETS; bucket++)
        snprintf(map.names[bucket], CELL_NAME_SIZE, "%s", bucket % 3 == 0 ? "eu-1" : bucket % 3 == 1 ? "b" : "");
    buf_init(&text, CELL_MAP_TEXT_MAX);
    ck_assert(cell_map_put(&map, &text));
    cell_map_read(buf_slice(&text), false, &again);
    ck_assert_int_eq(cell_map_compare(&map, &again).count, 0);
    memcpy(again.names[3], "c", 2);
    ck_assert(cell_map_compare(&map, &again).has[3]);
    ck_assert_int_eq(cell_map_compare(&map, &again).count, 1);
    buf_done(&text);
}
END_TEST

START_TEST(lines_that_are_no_bucket_of_a_cell_are_skipped)
{
    cell_map_read(slice_of("# 1 cell_a\n"
                           "2 cell_a more words\r\n"
                           " 3\tcell_b\n"
                           "1024 cell_a\n"
                           "04 cell_a\n"
                           "5 cell_\n"
                           "6 backend_a\n"
                           "7 cell_A\n"
                           "8 cell_0\n"
                           "9 cell_abcdefghijklmnopqrstuvwxyz0123456\n"
                           "10 cell_a;disable\n"
                           "11\n"
                           "\n"
                           "99999999999 cell_a\n"
                           "12 cell_z"),
                  false, &map);
    for (int bucket = 0; bucket < CELL_BUCKETS; bucket++) {
        const char *expected = bucket == 2 ? "a" : bucket == 3 ? "b" : bucket == 12 ? "z" : "";
        ck_assert_msg(strcmp(map.names[bucket], expected) == 0, "%d: %s", bucket, map.names[bucket]);
    }
}
END_TEST

START_TEST(a_bucket_with_two_cells_has_none)
{
    cell_map_read(slice_of("1 cell_a\n1 cell_b\n1 cell_a\n2 cell_a\n2 cell_a\n"), false, &map);
    ck_assert_str_eq(map.names[1], "");
    ck_assert_str_eq(map.names[2], "a");
}
END_TEST

START_TEST(an_answer_of_show_map_has_an_address_on_each_line)
{
    cell_map_read(slice_of("0x55c15b6ea7c0 0 cell_a\n0x55c15b6ea850 1 cell_b\n\n"), true, &map);
    ck_assert_str_eq(map.names[0], "a");
    ck_assert_str_eq(map.names[1], "b");
    ck_assert_str_eq(map.names[2], "");
}
END_TEST

START_TEST(any_bytes_are_read_without_harm)
{
    static const char hostile[] = "\0\n\0 cell_a\n1 cell_\0a\n1 \0cell_a\n\xff\xfe\n1 cell_a\0\n";
    unsigned seed = 7;
    char bytes[4096];
    cell_map_read((struct slice){.bytes = hostile, .length = sizeof(hostile)}, false, &map);
    ck_assert_str_eq(map.names[1], "");
    cell_map_read((struct slice){.bytes = NULL, .length = 0}, true, &map);
    for (int round = 0; round < 2000; round++) {
        char name[CELL_MAP_NAME_SIZE];
        bool is_found;
        for (size_t i = 0; i < sizeof(bytes); i++) {
            seed = seed * 1103515245 + 12345;
            bytes[i] = "0123 \n\t()cell_a;,=\"typefoundkeyvalue\0\xff"[(seed >> 16) % 38];
        }
        struct slice text = {.bytes = bytes, .length = (size_t)round * 2};
        cell_map_read(text, round % 2 == 0, &map);
        if (!cell_map_find(text, "/etc/cells.map", name))
            ck_assert(cell_map_is_name(name));
        (void)!cell_map_confirms(text, 1, "a", &is_found);
    }
}
END_TEST

START_TEST(the_map_is_found_by_its_path_or_by_the_only_file_of_its_name)
{
    static const char answer[] =
        "# id (file) description\n"
        "1 (/etc/haproxy/hosts.map) pattern loaded from file '/etc/haproxy/hosts.map' used by map\n"
        "2 (/etc/haproxy/cells.map) pattern loaded from file '/etc/haproxy/cells.map' used by map\n\n";
    char name[CELL_MAP_NAME_SIZE] = "";
    ck_assert_ptr_null(cell_map_find(slice_of(answer), "/etc/haproxy/cells.map", name));
    ck_assert_str_eq(name, "/etc/haproxy/cells.map");
    ck_assert_ptr_null(cell_map_find(slice_of(answer), "/srv/router/cells.map", name));
    ck_assert_str_eq(name, "/etc/haproxy/cells.map");
    ck_assert_ptr_nonnull(cell_map_find(slice_of(answer), "/etc/haproxy/other.map", name));
    ck_assert_ptr_nonnull(cell_map_find(slice_of(""), "/etc/haproxy/cells.map", name));
    ck_assert_ptr_nonnull(cell_map_find(slice_of("1 (/a/cells.map) x\n2 (/b/cells.map) y\n"), "/c/cells.map", name));
    ck_assert_ptr_nonnull(cell_map_find(slice_of("1 (/a/cells.map;shutdown) x\n"), "/a/cells.map;shutdown", name));
    ck_assert_ptr_nonnull(cell_map_find(slice_of("1 (/a/cells.map"), "/a/cells.map", name));
}
END_TEST

START_TEST(only_a_clear_yes_counts_as_told)
{
    bool is_found;
    ck_assert(cell_map_confirms(
        slice_of("\ntype=str, case=sensitive, found=yes, idx=tree, key=\"17\", value=\"cell_b\", type=\"str\"\n\n"), 17,
        "b", &is_found));
    ck_assert(is_found);
    static const char *const bad[] = {
        "",
        "\n",
        "entry not found.\n\ntype=str, case=sensitive, found=no\n\n",
        "type=str, case=sensitive, found=yes, idx=tree, key=\"17\", value=\"cell_a\", type=\"str\"\n",
        "type=str, case=sensitive, found=yes, idx=tree, key=\"1\", value=\"cell_b\", type=\"str\"\n",
        "type=str, case=sensitive, found=yes, idx=tree, key=\"17\", value=\"cell_bb\", type=\"str\"\n",
        "type=str, case=sensitive, found=yes, idx=tree, key=\"17\", value=\"cell_b",
        "Permission denied\n",
        ", key=\"17\", value=\"cell_b\", \n",
        "type=str, case=sensitive, found=yes, idx=tree, key=\"17\", value=\"cell_b\", type=\"str\"\n"
        "type=str, case=sensitive, found=yes, idx=tree, key=\"17\", value=\"cell_a\", type=\"str\"\n",
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        ck_assert_msg(!cell_map_confirms(slice_of(bad[i]), 17, "b", &is_found), "%s", bad[i]);
    ck_assert(!cell_map_confirms(slice_of(bad[2]), 17, "b", &is_found));
    ck_assert(!is_found);
}
END_TEST

START_TEST(a_path_that_would_be_another_command_is_no_name)
{
    static const char *const bad[] = {"",        "/etc/a b",  "/etc/a;b", "/etc/a\nb",
                                      "/etc/#1", "/etc/a\\b", "/etc/<<",  "a(b)"};
    ck_assert(cell_map_is_name("/etc/haproxy/cells-1.map"));
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        ck_assert_msg(!cell_map_is_name(bad[i]), "%s", bad[i]);
}
END_TEST

SUITE(ctl_cell_map)
{
    TCase *tests = tcase_create("all");
    tcase_add_test(tests, a_map_is_read_back_as_it_was_written);
    tcase_add_test(tests, lines_that_are_no_bucket_of_a_cell_are_skipped);
    tcase_add_test(tests, a_bucket_with_two_cells_has_none);
    tcase_add_test(tests, an_answer_of_show_map_has_an_address_on_each_line);
    tcase_add_test(tests, any_bytes_are_read_without_harm);
    tcase_add_test(tests, the_map_is_found_by_its_path_or_by_the_only_file_of_its_name);
    tcase_add_test(tests, only_a_clear_yes_counts_as_told);
    tcase_add_test(tests, a_path_that_would_be_another_command_is_no_name);
    suite_add_tcase(suite, tests);
}
