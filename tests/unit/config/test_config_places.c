/* The story: a place that two sections name would be looked for in two databases, and a place that none names in none:
 * a user of it would get no card. So the ranges cover 0 to P-1 exactly once, or nothing starts. */
#include <sys/stat.h>

#include "tests/unit/config/config_fixture.h"
#include "tests/support/suite.h"

static bool check_text(const char *text)
{
    write_file(text);
    return load(CONFIG_CTL) && config_check(&config, CONFIG_CTL, &err);
}

TEST(without_sections_all_places_are_in_database_url)
{
    ck_assert(check_text("[database]\nurl = host=/one\n"));
    ck_assert_int_eq(config_places(&config), 0);
    ck_assert_int_eq(config.database_count, 1);
    ck_assert_str_eq(config_database_url(&config, 0), "host=/one");
    ck_assert_int_eq(config_database_of(&config, 63), 0);
    config_done(&config);
    ck_assert(check_text(""));
    ck_assert_ptr_null(config_database_url(&config, 0));
    config_done(&config);
}

TEST(each_place_is_in_the_database_of_its_section)
{
    ck_assert(check_text("[place.4-6]\nurl = host=/two\n[place.0-3]\nurl = host=/one\n[place.7]\nurl = host=/one\n"));
    ck_assert_int_eq(config_places(&config), 8);
    ck_assert_int_eq(config.database_count, 2);
    ck_assert_str_eq(config_database_url(&config, 0), "host=/one");
    ck_assert_str_eq(config_database_url(&config, 1), "host=/two");
    for (int place = 0; place < 8; place++)
        ck_assert_int_eq(config_database_of(&config, place), place >= 4 && place <= 6);
    config_done(&config);
}

TEST(flags_and_variables_name_places_and_override)
{
    write_file("[place.0-1]\nurl = host=/file\n");
    ck_assert_int_eq(setenv("ISSUING_PLACE_2_3_URL", "host=/variable password=hunter2", 1), 0);
    ck_assert(load(CONFIG_WORKER, "--place.0-1.url=host=/flag", "--place.4.url", "host=/x"));
    ck_assert_str_eq(config_database_url(&config, 0), "host=/flag");
    ck_assert_str_eq(config_database_url(&config, config_database_of(&config, 3)), "host=/variable password=hunter2");
    ck_assert_int_eq(config_places(&config), 5);
    char *text = NULL;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    config_show(&config, out);
    ck_assert_int_eq(fclose(out), 0);
    ck_assert_ptr_nonnull(strstr(text, "place.0-1.url = host=/flag  # flag\n"));
    ck_assert_ptr_nonnull(strstr(text, "place.2-3.url = host=/variable password=***  # environment\n"));
    ck_assert_ptr_nonnull(strstr(text, "place.4.url = host=/x  # flag\n"));
    ck_assert_ptr_null(strstr(text, "hunter2"));
    free(text);
    config_done(&config);
}

static const struct {
    const char *text, *told;
} wrong[] = {
    {"[place.0-4]\nurl = host=/a\n[place.4-7]\nurl = host=/b\n", "place 4 is in [place.0-4] and in [place.4-7]"},
    {"[place.0-3]\nurl = host=/a\n[place.5-7]\nurl = host=/b\n", "place 4 is in no section [place.N-M]"},
    {"[place.1-3]\nurl = host=/a\n", "place 0 is in no section [place.N-M]"},
    {"[place.0-3]\nurl = host=/a\n[place.4-7]\n", "[place.4-7] has no url"},
    {"[database]\nurl = host=/a\n[place.0]\nurl = host=/b\n", "database.url and sections [place.N-M] are both there"},
    {"[place.0-3]\nurl = host=/a\n[place.0-3]\nurl = host=/b\n", ":3: place.0-3 is there for the second time"},
    {"[place.0-3]\nurl = host=/a\nurl = host=/b\n", ":3: place.0-3.url: place.0-3 is there for the second time"},
    {"[place.3-1]\nurl = host=/a\n", ":1: place.3-1: the places are N or N-M, from 0 to 63"},
    {"[place.0-64]\nurl = host=/a\n", ":1: place.0-64: the places are N or N-M"},
    {"[place.0-]\nurl = host=/a\n", ":1: place.0-: the places are N or N-M"},
    {"[place.]\nurl = host=/a\n", ":1: place.: the places are N or N-M"},
    {"[place.0-3]\nuri = host=/a\n", ":2: unknown option uri in [place.0-3]; there is url"},
    {"[place.0-3]\nurl =\n", ":2: place.0-3.url: the value is empty"},
};

START_TEST(sections_that_do_not_cover_each_place_once_are_refused)
{
    ck_assert(!check_text(wrong[_i].text));
    ck_assert_int_eq(err.kind, ERR_CONFIG);
    assert_message(wrong[_i].told);
}

TEST(a_flag_or_a_variable_that_names_no_place_is_refused)
{
    ck_assert(!load(CONFIG_CTL, "--place.x.url=host=/a"));
    ck_assert_int_eq(err.kind, ERR_USAGE);
    ck_assert(!load(CONFIG_CTL, "--place.0-3.uri=host=/a"));
    assert_message("the nearest is --place.N-M.url");
    ck_assert_int_eq(setenv("ISSUING_PLACE_0_3", "host=/a", 1), 0);
    ck_assert(!load(CONFIG_CTL));
    assert_message("the nearest is ISSUING_PLACE_N_M_URL");
}

TEST(a_password_is_refused_in_a_file_that_others_can_read)
{
    write_file("[place.0]\nurl = host=/a password=secret\n");
    ck_assert_int_eq(chmod(path, 0644), 0);
    ck_assert(!load(CONFIG_CTL));
    assert_message("there is a password in it");
}

SUITE(config_places)
{
    TCase *tcase = tcase_create("places");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    ADD_TESTS(tcase);
    tcase_add_loop_test(tcase, sections_that_do_not_cover_each_place_once_are_refused, 0, ARRAY_SIZE(wrong));
    suite_add_tcase(suite, tcase);
}
