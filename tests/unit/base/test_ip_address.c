/* The story: addresses decide which proxies are trusted and how clients are counted. They come as text from the
 * configuration and from header lines that any client may write. A reader that accepts too much makes any client
 * a trusted proxy; two spellings of one address would make two clients of one. */
#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/base/ip_address.h"
#include "common/lib/base/slice.h"
#include "tests/support/suite.h"

static const struct {
    const char *text, *wanted;
} addresses[] = {
    {"192.0.2.1", "192.0.2.1"},
    {"192.0.2.1:443", "192.0.2.1"},
    {"::ffff:192.0.2.1", "192.0.2.1"},
    {"[::ffff:192.0.2.1]:1", "192.0.2.1"},
    {"0.0.0.0", "0.0.0.0"},
    {"255.255.255.255:65535", "255.255.255.255"},
    {"2001:db8::1", "2001:db8::1"},
    {"2001:DB8:0:0:0:0:0:1", "2001:db8::1"},
    {"[2001:db8::1]", "2001:db8::1"},
    {"[2001:db8::1]:8080", "2001:db8::1"},
    {"::1", "::1"},
    {"::", "::"},
    {"2001:db8:1:2:3:4:5:6", "2001:db8:1:2:3:4:5:6"},
};

START_TEST(an_address_has_one_form_however_it_is_written)
{
    struct ip_address address;
    char text[IP_ADDRESS_TEXT_SIZE];
    ck_assert_msg(ip_address_parse(slice_of(addresses[_i].text), &address), "%s", addresses[_i].text);
    ip_address_format(&address, text);
    ck_assert_str_eq(text, addresses[_i].wanted);
}

TEST(what_is_no_address_is_none)
{
    static const char *const texts[] = {
        "",
        " ",
        "192.0.2",
        "192.0.2.256",
        "192.0.2.1.",
        " 192.0.2.1",
        "192.0.2.1 ",
        "192.0.2.01",
        "0300.0.2.1",
        "0xc0.0.2.1",
        "3221225985",
        "192.0.2.1:",
        "192.0.2.1:x",
        "192.0.2.1:123456",
        "192.0.2.1:-1",
        "192.0.2.1/24",
        "unknown",
        "_hidden",
        "localhost",
        "2001:db8::g",
        "2001:db8::1%eth0",
        "2001:db8::1::",
        "[2001:db8::1",
        "2001:db8::1]",
        "[]",
        "[",
        "]",
        ":",
        "[2001:db8::1]x",
        "[2001:db8::1]:",
        "[2001:db8::1]:x",
        "[192.0.2.1]",
        "[192.0.2.1]:1",
        "1:2:3:4:5:6:7:8:9",
        "2001:db8:0000:0000:0000:0000:0000:0000:0000:0000:0000:0000:0001",
        "\"192.0.2.1\"",
        "192.0.2.1,192.0.2.2",
    };
    struct ip_address address = {{7}}, before = address;
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        ck_assert_msg(!ip_address_parse(slice_of(texts[i]), &address), "%s", texts[i]);
    ck_assert(!ip_address_parse((struct slice){"192.0.2.1\0", 10}, &address));
    ck_assert(!ip_address_parse((struct slice){NULL, 0}, &address));
    ck_assert(ip_address_equals(&address, &before));
}

TEST(a_socket_address_of_either_family_gives_the_same_client)
{
    struct sockaddr_storage socket_address = {0};
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    inet_pton(AF_INET, "192.0.2.7", &v4.sin_addr);
    inet_pton(AF_INET6, "::ffff:192.0.2.7", &v6.sin6_addr);
    memcpy(&socket_address, &v4, sizeof(v4));
    struct ip_address left = ip_address_of_socket(&socket_address);
    memcpy(&socket_address, &v6, sizeof(v6));
    struct ip_address right = ip_address_of_socket(&socket_address);
    ck_assert(ip_address_equals(&left, &right) && ip_address_is_v4(&left) && ip_address_is_known(&left));
    socket_address.ss_family = AF_UNIX;
    left = ip_address_of_socket(&socket_address);
    ck_assert(!ip_address_is_known(&left));
}

static const struct {
    const char *networks, *inside, *outside;
} networks[] = {
    {"192.0.2.1", "192.0.2.1", "192.0.2.2"},
    {"10.0.0.0/8", "10.255.255.255", "11.0.0.0"},
    {"10.0.0.0/8", "::ffff:10.1.2.3", "::10.1.2.3"},
    {"10.16.0.0/12", "10.31.255.255", "10.32.0.0"},
    {"192.0.2.128/25", "192.0.2.128", "192.0.2.127"},
    {"0.0.0.0/0", "255.255.255.255", "2001:db8::1"},
    {"2001:db8::/32", "2001:db8:ffff::1", "2001:db9::"},
    {"2001:db8::/33", "2001:db8:7fff::1", "2001:db8:8000::"},
    {"::1", "::1", "::2"},
    {"::/0", "::", NULL},
    {" 192.0.2.1,\t198.51.100.0/24 ,2001:db8::/32 ", "198.51.100.9", "198.51.101.9"},
    {"::ffff:10.0.0.0/104", "10.9.9.9", "11.9.9.9"},
};

START_TEST(a_network_holds_what_has_its_prefix)
{
    struct ip_networks list;
    struct ip_address address;
    struct err err;
    ck_assert_msg(ip_networks_parse(networks[_i].networks, &list, &err), "%s", err.message);
    ck_assert(ip_address_parse(slice_of(networks[_i].inside), &address) && ip_networks_hold(&list, &address));
    if (networks[_i].outside)
        ck_assert(ip_address_parse(slice_of(networks[_i].outside), &address) && !ip_networks_hold(&list, &address));
}

TEST(a_list_with_a_fault_is_refused_as_a_whole)
{
    static const char *const texts[] = {
        "",
        " , ",
        "10.0.0.0/33",
        "2001:db8::/129",
        "10.0.0.0/",
        "10.0.0.0/08",
        "10.0.0.0/8/8",
        "10.0.0.0/+8",
        "10.0.0.1/8",
        "192.0.2.129/25",
        "2001:db8::1/64",
        "10.0.0.0/0",
        "proxy.example",
        "192.0.2.1:80",
        "[2001:db8::1]",
        "10.0.0.0/8;192.0.2.1",
        "192.0.2.1 nonsense",
        "/8",
    };
    struct ip_networks list = {.count = -7};
    struct err err;
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        ck_assert_msg(!ip_networks_parse(texts[i], &list, &err), "%s", texts[i]);
        ck_assert_int_eq(err.kind, ERR_CONFIG);
    }
    char many[IP_NETWORKS_MAX * 12 + 32] = "";
    for (int i = 0; i <= IP_NETWORKS_MAX; i++)
        strcat(many, "192.0.2.1 ");
    ck_assert(!ip_networks_parse(many, &list, &err));
    many[strlen(many) - strlen("192.0.2.1 ")] = '\0';
    ck_assert_int_eq(list.count, -7);
    ck_assert(ip_networks_parse(many, &list, &err));
}

SUITE(ip_address)
{
    TCase *tests = tcase_create("all");
    tcase_add_loop_test(tests, an_address_has_one_form_however_it_is_written, 0, (int)ARRAY_SIZE(addresses));
    ADD_TESTS(tests);
    tcase_add_loop_test(tests, a_network_holds_what_has_its_prefix, 0, (int)ARRAY_SIZE(networks));
    suite_add_tcase(suite, tests);
}
