/* The story: a timeout of 10 that was meant as 10 s, and an address without its port, are found by the program and not
 * by a customer. So a value has one form, is refused with a sentence that names the fault, and what is printed can be
 * read back. */
#include "common/lib/config/config_value.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/suite.h"

static struct err err;

static void set_up(void)
{
    memset(&err, 0, sizeof(err));
}

static void assert_message(const char *part)
{
    ck_assert_msg(strstr(err.message, part), "\"%s\" is not in \"%s\"", part, err.message);
}

TEST(durations_need_one_unit_and_stay_in_range)
{
    static const struct {
        const char *text;
        int64_t ms;
    } good[] = {
        {"100ms", 100},    {"1s", 1000},      {"90s", 90000}, {"5m", 300000},
        {"24h", 86400000}, {"7d", 604800000}, {"007s", 7000},
    };
    static const char *const bad[] = {"",
                                      "s",
                                      "10",
                                      "1.5s",
                                      "-1s",
                                      "+1s",
                                      "1 s",
                                      "1h30m",
                                      "1sec",
                                      "1S",
                                      "1M",
                                      "1w",
                                      "1e3s",
                                      "0x1s",
                                      "99ms",
                                      "8d",
                                      "0s",
                                      "9223372036854775808ms",
                                      "9223372036854775807d"};
    int64_t ms = 5;

    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        ck_assert_msg(config_value_duration(good[i].text, 100, 604800000, &ms, &err), "%s", good[i].text);
        ck_assert_int_eq(ms, good[i].ms);
    }
    ms = 5;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        ck_assert_msg(!config_value_duration(bad[i], 100, 604800000, &ms, &err), "%s", bad[i]);
    ck_assert_int_eq(ms, 5);
    ck_assert(!config_value_duration("10", 100, 604800000, &ms, &err));
    assert_message("missing unit");
    ck_assert(!config_value_duration("8d", 100, 604800000, &ms, &err));
    assert_message("8d is outside 100ms to 7d");
}

TEST(what_is_written_is_read_back_to_the_same)
{
    static const struct {
        int64_t ms;
        const char *text;
    } rows[] = {
        {0, "0ms"}, {1, "1ms"}, {1500, "1500ms"}, {60000, "1m"}, {90000, "90s"}, {86400000, "1d"}, {90000000, "25h"},
    };
    char text[CONFIG_VALUE_SIZE];
    int64_t value;

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        config_value_write_duration(rows[i].ms, text);
        ck_assert_str_eq(text, rows[i].text);
        ck_assert(config_value_duration(text, 0, INT64_MAX, &value, &err));
        ck_assert_int_eq(value, rows[i].ms);
    }
}

TEST(integers_booleans_and_words_are_exact)
{
    static const char *const words[] = {"cancel", "keep", NULL};
    static const char *const bad[] = {"", "1e9", "-1", "+1", " 1", "1 ", "0x1", "1.0", "101", "99999999999999999999"};
    int64_t value = 5;
    bool yes = false;

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        ck_assert_msg(!config_value_integer(bad[i], 0, 100, &value, &err), "%s", bad[i]);
    ck_assert_int_eq(value, 5);
    ck_assert(config_value_integer("100", 0, 100, &value, &err) && value == 100);
    ck_assert(config_value_bool("true", &yes, &err) && yes);
    ck_assert(config_value_bool("false", &yes, &err) && !yes);
    ck_assert(!config_value_bool("yes", &yes, &err) && !config_value_bool("1", &yes, &err) &&
              !config_value_bool("True", &yes, &err));
    ck_assert(config_value_choice("keep", words, &value, &err) && value == 1);
    ck_assert(!config_value_choice("Keep", words, &value, &err));
    assert_message("\"Keep\" is none of cancel, keep");
}

TEST(addresses_are_host_and_port)
{
    static const struct {
        const char *text, *host;
        int port;
    } good[] = {
        {"127.0.0.1:8080", "127.0.0.1", 8080},
        {"[::1]:0", "::1", 0},
        {"*:65535", "*", 65535},
        {"localhost:1", "localhost", 1},
        {"127.0.0.1:8090+12", "127.0.0.1", 8102},
        {"[::1]:0+65535", "::1", 65535},
    };
    static const char *const bad[] = {"",
                                      "8080",
                                      ":8080",
                                      "127.0.0.1",
                                      "127.0.0.1:",
                                      "127.0.0.1:65536",
                                      "127.0.0.1:x",
                                      "::1:80",
                                      "[::1]",
                                      "[::1:80",
                                      "[::1]80",
                                      "[x]:80",
                                      "[]:80",
                                      "a b:80",
                                      "a:1:2",
                                      "a:-1",
                                      "a:+1",
                                      "a/b:1",
                                      "a:000080",
                                      "**:1",
                                      "a:1+",
                                      "a:1+65535",
                                      "a:1+x",
                                      "a:1+1+1",
                                      "a+1:1",
                                      "a:1+99999999999999999999"};
    char host[CONFIG_HOST_SIZE];
    int port;

    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        ck_assert_msg(config_value_address(good[i].text, host, &port, &err), "%s", good[i].text);
        ck_assert_str_eq(host, good[i].host);
        ck_assert_int_eq(port, good[i].port);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        ck_assert_msg(!config_value_address(bad[i], host, &port, &err), "%s", bad[i]);
}

TEST(urls_are_http_without_credentials_query_or_fragment)
{
    static const struct {
        const char *text, *url;
    } good[] = {
        {"https://issuer.example", "https://issuer.example"},
        {"https://issuer.example/", "https://issuer.example"},
        {"https://issuer.example:8443/a/b//", "https://issuer.example:8443/a/b"},
        {"HTTP://Issuer.Example:80/A", "http://issuer.example/A"},
        {"http://[::1]:9000/x", "http://[::1]:9000/x"},
    };
    static const char *const bad[] = {
        "",
        "issuer.example",
        "ftp://x",
        "file:///etc/passwd",
        "https:/x",
        "https://",
        "https:///x",
        "https://u@x",
        "https://u:p@x/",
        "https://x?y=1",
        "https://x/?",
        "https://x#f",
        "https://x y",
        "https://x/\x7f",
        "https://x:0",
        "https://x:70000",
        "https://x:",
        "https://x:8a",
        "https://[::1",
        "https://[zz]/",
        "https://*",
        "https://*:1",
        "https://x\\@y",
        "https://x/{id}",
        "https://caf\xc3\xa9",
        "https://x:1:2",
        "https://@x",
    };
    char *url = NULL, text[CONFIG_URL_MAX + 2] = "https://x/";

    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        ck_assert_msg(config_value_url(good[i].text, &url, &err), "%s: %s", good[i].text, err.message);
        ck_assert_str_eq(url, good[i].url);
        free(url);
    }
    url = NULL;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        ck_assert_msg(!config_value_url(bad[i], &url, &err), "%s", bad[i]);
    memset(text + 10, 'a', sizeof(text) - 11);
    ck_assert(!config_value_url(text, &url, &err));
    ck_assert_ptr_null(url);
}

TEST(only_the_loopback_is_loopback)
{
    static const char *const inside[] = {"http://127.0.0.1", "http://127.255.3.4:80/x", "http://[::1]:80",
                                         "http://localhost:9000/", "HTTP://LocalHost"};
    static const char *const outside[] = {"http://128.0.0.1", "http://127.0.0.1.example",  "http://localhost.example",
                                          "http://[::2]",     "http://10.0.0.1",           "http://127.1",
                                          "http://0.0.0.0",   "http://[::ffff:127.0.0.1]", "http://x/127.0.0.1",
                                          "http://0177.0.0.1"};

    for (size_t i = 0; i < ARRAY_SIZE(inside); i++)
        ck_assert_msg(config_value_url_is_loopback(inside[i]), "%s", inside[i]);
    for (size_t i = 0; i < ARRAY_SIZE(outside); i++)
        ck_assert_msg(!config_value_url_is_loopback(outside[i]), "%s", outside[i]);
    ck_assert(config_value_url_is_https("https://x") && !config_value_url_is_https("http://x"));
}

TEST(the_distance_counts_letters)
{
    ck_assert_uint_eq(config_value_distance("", ""), 0);
    ck_assert_uint_eq(config_value_distance("", "abc"), 3);
    ck_assert_uint_eq(config_value_distance("kitten", "sitting"), 3);
    ck_assert_uint_eq(config_value_distance("limit.count", "limit.cuont"), 2);
}

TESTS_BETWEEN(config_value, set_up, NULL)
