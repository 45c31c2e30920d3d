/* The story: an operator's command that goes to the wrong database ends requests of the wrong users. So the name of a
 * cell is taken exactly, from whatever source, each fault is refused with its line, and no password is shown. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/config/config_table.h"
#include "tests/unit/config/config_fixture.h"
#include "tests/support/suite.h"

#define NAME_32 "a2345678901234567890123456789-_2"

static bool load_text(const char *text)
{
    write_file(text);
    return load(CONFIG_CTL);
}

static char *shown(void)
{
    char *text = NULL;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    ck_assert_ptr_nonnull(out);
    config_show(&config, out);
    ck_assert_int_eq(fclose(out), 0);
    return text;
}

static void assert_shown(const char *line)
{
    char *text = shown();
    ck_assert_msg(strstr(text, line), "\"%s\" is not in:\n%s", line, text);
    free(text);
}

START_TEST(cells_are_ordered_by_name_whatever_source_they_come_from)
{
    static const char *const ordered[] = {"a", NAME_32, "b-1", "c", "m", "z_2"};
    char line[160];
    write_file("[cell.m]\nurl = host=m\n[cell.b-1]\nurl = host=b\n[cell." NAME_32 "]\nurl = dbname=x\n");
    ck_assert_int_eq(setenv("ISSUING_CELL_Z_2_URL", "host=z", 1), 0);
    ck_assert_int_eq(setenv("ISSUING_CELL_A_URL", "host=a", 1), 0);
    ck_assert_msg(load(CONFIG_CTL, "status", "--cell.c.url", "host=c", "--cell", "all"), "%s", err.message);
    ck_assert_int_eq(config.cell_count, (int)ARRAY_SIZE(ordered));
    for (size_t i = 0; i < ARRAY_SIZE(ordered); i++)
        ck_assert_str_eq(config.cells[i].name, ordered[i]);
    ck_assert_int_eq(config_find_cell(&config, "m"), 4);
    ck_assert_int_eq(config_find_cell(&config, "n"), -1);
    ck_assert_int_eq(config.argument_count, 3); /* --cell NAME is the program's own */
    ck_assert(config_check(&config, CONFIG_CTL, &err));
    assert_shown("cell.a.url = host=a  # environment\n");
    assert_shown("cell.c.url = host=c  # flag\n");
    snprintf(line, sizeof(line), "cell.m.url = host=m  # file %s:2\n", path);
    assert_shown(line);
    config_done(&config);
}
END_TEST

START_TEST(a_variable_is_that_of_the_cell_whose_name_has_a_dash)
{
    write_file("[cell.eu-1]\nurl = host=file\n");
    ck_assert_int_eq(setenv("ISSUING_CELL_EU_1_URL", "host=variable", 1), 0);
    ck_assert(load(CONFIG_CTL));
    ck_assert_int_eq(config.cell_count, 1);
    ck_assert_str_eq(config.cells[0].name, "eu-1");
    ck_assert_str_eq(config.cells[0].url, "host=variable");
    config_done(&config);
    ck_assert(load(CONFIG_CTL, "--cell.eu-1.url=host=flag"));
    ck_assert_str_eq(config.cells[0].url, "host=flag");
    config_done(&config);
}
END_TEST

START_TEST(no_password_of_a_cell_is_shown_and_none_stands_in_a_file_that_others_read)
{
    char *text;
    write_file("[cell.a]\nurl = host=x password=hunter2\n[cell.b]\nurl = postgresql://me:hunter2@x/y\n");
    ck_assert_int_eq(chmod(path, 0600), 0);
    ck_assert_msg(load(CONFIG_CTL), "%s", err.message);
    text = shown();
    ck_assert_ptr_null(strstr(text, "hunter2"));
    ck_assert_ptr_nonnull(strstr(text, "cell.a.url = host=x password=***"));
    free(text);
    config_done(&config);
    ck_assert_int_eq(chmod(path, 0644), 0);
    ck_assert(!load(CONFIG_CTL));
    assert_place(2, "cell.a.url: there is a password in it");
}
END_TEST

START_TEST(every_fault_of_the_file_is_refused_with_its_line)
{
    static const struct {
        const char *text;
        int line;
        const char *part;
    } rows[] = {
        {"[cell]\nurl = host=a\n", 1, "a cell is [cell.NAME]"},
        {"[cell.]\n", 1, "begins with a small letter"},
        {"\n[cell.A]\n", 2, "[cell.A]: the name of a cell begins with a small letter"},
        {"[cell.1a]\n", 1, "begins with a small letter"},
        {"[cell.-a]\n", 1, "begins with a small letter"},
        {"[cell.a.b]\n", 1, "begins with a small letter"},
        {"[cell.a ]\n", 1, "begins with a small letter"},
        {"[cell." NAME_32 "3]\n", 1, "at most 32 characters"},
        {"[cell." NAME_32 NAME_32 NAME_32 NAME_32 "]\n", 1, "at most 32 characters"},
        {"[cell.all]\n", 1, "no cell can have the name all"},
        {"[cells.a]\n", 1, "unknown section [cells.a]"},
        {"[cell.a]\n[cell.b]\n[cell.a]\n", 3, "the section [cell.a] for the second time"},
        {"[cell.a-b]\n[cell.a_b]\n", 2, "the cells a-b and a_b have one variable, ISSUING_CELL_A_B_URL"},
        {"[cell.a]\nurl = host=a\n\nurl = host=b\n", 4, "cell.a.url is set a second time; the first is line 2"},
        {"[cell.a]\nulr = host=a\n", 2, "unknown option ulr in [cell.a]; a cell has only url"},
        {"[cell.a]\nurl =\n", 2, "cell.a.url: the value is empty"},
        {"[cell.a]\nurl = host=a\n[log]\nurl = x\n", 4, "unknown option log.url"},
        {"[database]\ncell = A\n", 2, "database.cell: the name of a cell begins with a small letter"},
        {"[database]\ncell = all\n", 2, "database.cell: no cell can have the name all"},
        {"[router]\nsockets = /run/a.sock b\n", 2, "router.sockets: \"b\" is no path that begins with '/'"},
        {"[router]\nsockets = 10.0.0.1:99999\n", 2, "router.sockets: \"10.0.0.1:99999\" is no path"},
        {"[router]\nsocket = /a\n", 2, "unknown option router.socket; the nearest is router.sockets"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        ck_assert_msg(!load_text(rows[i].text), "%s", rows[i].text);
        assert_place(rows[i].line, rows[i].part);
    }
}
END_TEST

START_TEST(a_cell_without_a_url_is_refused_where_it_is_used_only)
{
    ck_assert(load_text("[auth]\nhs256_secret_file = /x\n[cell.a]\nurl = host=a\n[cell.b]\n"));
    ck_assert(!config_check(&config, CONFIG_CTL, &err));
    assert_place(5, "the cell b needs cell.b.url");
    ck_assert_msg(config_check(&config, CONFIG_API, &err), "%s", err.message);
    config_done(&config);
}
END_TEST

START_TEST(a_flag_or_a_variable_of_a_cell_that_cannot_be_is_refused)
{
    static const struct {
        const char *flag, *part;
    } flags[] = {
        {"--cell.a.ulr=x", "unknown option --cell.a.ulr; the option of a cell is --cell.NAME.url"},
        {"--cell.a=x", "the option of a cell is --cell.NAME.url"},
        {"--cell.A.url=x", "--cell.A.url: the name of a cell begins with a small letter"},
        {"--cell..url=x", "begins with a small letter"},
        {"--cell.all.url=x", "no cell can have the name all"},
        {"--cell." NAME_32 "3.url=x", "at most 32 characters"},
        {"--cell.a.url", "--cell.a.url needs a value"},
    };
    static const struct {
        const char *variable, *value, *part;
    } variables[] = {
        {"ISSUING_CELL_A", "x", "that of a cell is ISSUING_CELL_NAME_URL"},
        {"ISSUING_CELL__URL", "x", "that of a cell is ISSUING_CELL_NAME_URL"},
        {"ISSUING_CELL_URL", "x", "that of a cell is ISSUING_CELL_NAME_URL"},
        {"ISSUING_CELL_a_URL", "x", "begins with a small letter"},
        {"ISSUING_CELL_1_URL", "x", "begins with a small letter"},
        {"ISSUING_CELL_ALL_URL", "x", "no cell can have the name all"},
        {"ISSUING_CELL_A_URL", "", "ISSUING_CELL_A_URL is empty"},
    };
    write_file("");
    for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
        ck_assert_msg(!load(CONFIG_CTL, flags[i].flag), "%s", flags[i].flag);
        ck_assert_int_eq(err.kind, ERR_USAGE);
        assert_message(flags[i].part);
    }
    for (size_t i = 0; i < ARRAY_SIZE(variables); i++) {
        ck_assert_int_eq(setenv(variables[i].variable, variables[i].value, 1), 0);
        ck_assert_msg(!load(CONFIG_CTL), "%s", variables[i].variable);
        ck_assert_int_eq(err.kind, ERR_CONFIG);
        assert_message(variables[i].part);
        ck_assert_int_eq(unsetenv(variables[i].variable), 0);
    }
}
END_TEST

START_TEST(there_are_at_most_64_cells)
{
    char text[8192] = "";
    size_t length = 0;
    for (int i = 0; i < CONFIG_CELLS_MAX; i++)
        length += (size_t)snprintf(text + length, sizeof(text) - length, "[cell.c%d]\nurl = host=a\n", i);
    ck_assert(load_text(text));
    ck_assert_int_eq(config.cell_count, CONFIG_CELLS_MAX);
    config_done(&config);
    snprintf(text + length, sizeof(text) - length, "[cell.one-more]\n");
    ck_assert(!load_text(text));
    assert_place(2 * CONFIG_CELLS_MAX + 1, "there are more than 64 cells");
}
END_TEST

START_TEST(the_router_and_the_name_of_the_database_are_read)
{
    ck_assert(load_text("[database]\ncell = eu-1\n[router]\nmap_file = /etc/haproxy/cells.map\n"
                        "sockets = /run/haproxy/admin.sock  10.0.0.1:9999 [::1]:9999\n"));
    ck_assert_str_eq(config.database.cell, "eu-1");
    ck_assert_str_eq(config.router.map_file, "/etc/haproxy/cells.map");
    ck_assert_str_eq(config.router.sockets, "/run/haproxy/admin.sock  10.0.0.1:9999 [::1]:9999");
    config_done(&config);
    ck_assert(load_text(""));
    ck_assert_ptr_null(config.database.cell);
    ck_assert_ptr_null(config.router.map_file);
    ck_assert_int_eq(config.cell_count, 0);
    config_done(&config);
}
END_TEST

SUITE(config_cells)
{
    TCase *tcase = tcase_create("cells");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, cells_are_ordered_by_name_whatever_source_they_come_from);
    tcase_add_test(tcase, a_variable_is_that_of_the_cell_whose_name_has_a_dash);
    tcase_add_test(tcase, no_password_of_a_cell_is_shown_and_none_stands_in_a_file_that_others_read);
    tcase_add_test(tcase, every_fault_of_the_file_is_refused_with_its_line);
    tcase_add_test(tcase, a_cell_without_a_url_is_refused_where_it_is_used_only);
    tcase_add_test(tcase, a_flag_or_a_variable_of_a_cell_that_cannot_be_is_refused);
    tcase_add_test(tcase, there_are_at_most_64_cells);
    tcase_add_test(tcase, the_router_and_the_name_of_the_database_are_read);
    suite_add_tcase(suite, tcase);
}
