/* The story: with two places in one database, or a worker in none, a user would get no card, or the tries of two users.
 * So each place has a url of its own, and what is unclear starts nothing. */
#include "tests/unit/config/config_fixture.h"
#include "tests/support/suite.h"

TEST(one_place_is_what_nobody_has_to_know)
{
    write_file("[database]\nurl = host=/one\n");
    ck_assert(load(CONFIG_WORKER));
    ck_assert_int_eq(config.database.places, 1);
    ck_assert_int_eq(config.database.place, CONFIG_NO_PLACE);
    ck_assert_str_eq(config_database_url(&config, 0), "host=/one");
    config_done(&config);
    write_file("");
    ck_assert(load(CONFIG_WORKER));
    ck_assert_ptr_null(config_database_url(&config, 0));
    config_done(&config);
}

TEST(each_place_has_its_number_in_the_url)
{
    write_file("[database]\nplaces = 64\nurl = postgresql://u@h/{place}issuing_{place}?application_name={place}\n");
    ck_assert(load(CONFIG_API));
    ck_assert_str_eq(config_database_url(&config, 0), "postgresql://u@h/0issuing_0?application_name=0");
    ck_assert_str_eq(config_database_url(&config, 63), "postgresql://u@h/63issuing_63?application_name=63");
    config_done(&config);
}

TEST(a_unit_names_its_place_in_the_environment)
{
    write_file("[database]\nplaces = 4\nurl = dbname={place}\n");
    ck_assert_int_eq(setenv("ISSUING_DATABASE_PLACE", "3", 1), 0);
    ck_assert(load(CONFIG_WORKER));
    ck_assert_int_eq(config.database.place, 3);
    config_done(&config);
}

TEST(a_place_that_is_not_named_is_shown_as_nothing)
{
    write_file("[database]\nplaces = 4\nurl = dbname={place} password=hunter2\n");
    ck_assert(load(CONFIG_CTL));
    char *text = NULL;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    config_show(&config, out);
    ck_assert_int_eq(fclose(out), 0);
    ck_assert_ptr_nonnull(strstr(text, "database.url = dbname={place} password=***  # file"));
    ck_assert_ptr_nonnull(strstr(text, "database.place =   # default\n"));
    free(text);
    config_done(&config);
}

static const struct {
    const char *text, *message;
} wrong[] = {
    {"places = 4\nurl = dbname=issuing\n", "database.places is 4, and database.url has no {place}"},
    {"places = 4\n", "database.places is 4, and database.url has no {place}"},
    {"url = dbname={place}\n", "database.url has {place}, and database.places is 1"},
    {"places = 4\nurl = dbname={place}\nplace = 4\n",
     "database.place is 4, and database.places is 4: the last one is 3"},
    {"place = 1\n", "database.place is 1, and database.places is 1: the last one is 0"},
    {"places = 4\nurl = dbname={place}\n", "a worker works in one of them: database.place is missing"},
};

START_TEST(what_is_unclear_starts_nothing)
{
    char text[200];
    snprintf(text, sizeof(text), "[database]\n%s", wrong[_i].text);
    write_file(text);
    ck_assert(load(CONFIG_WORKER));
    ck_assert(!config_check(&config, CONFIG_WORKER, &err));
    ck_assert_int_eq(err.kind, ERR_CONFIG);
    assert_message(wrong[_i].message);
    config_done(&config);
}

TEST(numbers_out_of_range_are_refused)
{
    write_file("[database]\nplaces = 65\n");
    ck_assert(!load(CONFIG_CTL));
    assert_place(2, "database.places: 65 is outside 1 to 64");
    write_file("[database]\nplaces = 0\n");
    ck_assert(!load(CONFIG_CTL));
    write_file("[database]\nplace = -1\n");
    ck_assert(!load(CONFIG_CTL));
    assert_place(2, "database.place: \"-1\" is not a whole number");
}

SUITE(config_places)
{
    TCase *tcase = tcase_create("places");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    ADD_TESTS(tcase);
    tcase_add_loop_test(tcase, what_is_unclear_starts_nothing, 0, ARRAY_SIZE(wrong));
    suite_add_tcase(suite, tcase);
}
