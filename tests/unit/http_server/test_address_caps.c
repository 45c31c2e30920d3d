/* The story: 10,300 idle connections of one address took every connection, and no other client could connect for a
 * minute. Each address has its share; an IPv6 customer has 2^64 addresses and still one share; and the counting itself
 * must neither grow without end nor forget to give back. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/http_server/address_caps.h"
#include "tests/unit/fault_injection.h"
#include "tests/support/suite.h"

static struct ip_address address_of(const char *text)
{
    struct ip_address address;
    ck_assert(ip_address_parse((struct slice){text, strlen(text)}, &address));
    return address;
}

TEST(an_address_gets_its_limit_and_others_are_not_affected)
{
    struct address_caps *caps = address_caps_new(3);
    struct ip_address one = address_of("192.0.2.1"), other = address_of("192.0.2.2");
    struct address_entry *held[3];
    for (int i = 0; i < 3; i++)
        ck_assert_ptr_nonnull(held[i] = address_caps_take(caps, &one));
    ck_assert_ptr_null(address_caps_take(caps, &one));
    ck_assert_int_eq(address_caps_held(caps, &one), 3);
    struct address_entry *others = address_caps_take(caps, &other);
    ck_assert_ptr_nonnull(others);
    address_caps_give_back(caps, held[1]);
    ck_assert_ptr_nonnull(held[1] = address_caps_take(caps, &one));
    ck_assert_ptr_null(address_caps_take(caps, &one));
    for (int i = 0; i < 3; i++)
        address_caps_give_back(caps, held[i]);
    address_caps_give_back(caps, others);
    ck_assert_uint_eq(address_caps_addresses(caps), 0);
    address_caps_free(caps);
}

TEST(ipv6_is_counted_by_its_network_of_64_bits_and_ipv4_by_the_address)
{
    static const struct {
        const char *left, *right;
        bool is_same;
    } pairs[] = {
        {"2001:db8:0:1::1", "2001:db8:0:1:ffff:ffff:ffff:ffff", true},
        {"2001:db8:0:1::1", "2001:db8:0:2::1", false},
        {"192.0.2.1", "192.0.2.2", false},
        {"192.0.2.1", "::ffff:192.0.2.1", true},
        {"::1", "::2", true},
        {"::ffff:0.0.0.1", "::1", false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(pairs); i++) {
        struct address_caps *caps = address_caps_new(1);
        struct ip_address left = address_of(pairs[i].left), right = address_of(pairs[i].right);
        struct address_entry *first = address_caps_take(caps, &left), *second = address_caps_take(caps, &right);
        ck_assert_ptr_nonnull(first);
        ck_assert_msg(!second == pairs[i].is_same, "%s and %s", pairs[i].left, pairs[i].right);
        address_caps_give_back(caps, first);
        if (second)
            address_caps_give_back(caps, second);
        address_caps_free(caps);
    }
}

#define MANY 20000

TEST(many_addresses_come_and_go_and_nothing_is_left)
{
    static struct address_entry *held[MANY][2];
    struct address_caps *caps = address_caps_new(2);
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < MANY; i++) {
            unsigned char bytes[4] = {10, (unsigned char)(i >> 16), (unsigned char)(i >> 8), (unsigned char)i};
            struct ip_address address = ip_address_of_v4(bytes);
            ck_assert_int_eq(address_caps_held(caps, &address), round);
            ck_assert_ptr_nonnull(held[i][round] = address_caps_take(caps, &address));
        }
    ck_assert_uint_eq(address_caps_addresses(caps), MANY);
    for (int i = 0; i < MANY; i++)
        for (int round = 0; round < 2; round++)
            address_caps_give_back(caps, held[i][round]);
    ck_assert_uint_eq(address_caps_addresses(caps), 0);
    address_caps_free(caps);
}

TEST(without_memory_an_address_is_refused_and_what_is_counted_stays_right)
{
    static struct address_entry *held[300];
    /* Nothing is asserted while allocations fail: libcheck needs some. */
    for (long n = 1; n <= 2; n++) {
        allocations_fail_at(n, 0);
        struct address_caps *none = address_caps_new(1);
        allocations_stop_failing();
        ck_assert_ptr_null(none);
    }
    struct address_caps *caps = address_caps_new(1);
    for (int i = 0; i < 300; i++) {
        unsigned char bytes[4] = {10, 0, (unsigned char)(i >> 8), (unsigned char)i};
        struct ip_address address = ip_address_of_v4(bytes);
        allocations_fail_at(1, 2);
        struct address_entry *none = address_caps_take(caps, &address);
        allocations_stop_failing();
        ck_assert_ptr_null(none);
        allocations_fail_at(i < 64 ? 1000000 : 1, 0); /* from 64 addresses on: growing fails, the entry does not */
        held[i] = address_caps_take(caps, &address);
        allocations_stop_failing();
        ck_assert_ptr_nonnull(held[i]);
        ck_assert_ptr_null(address_caps_take(caps, &address));
    }
    ck_assert_uint_eq(address_caps_addresses(caps), 300);
    for (int i = 0; i < 300; i++)
        address_caps_give_back(caps, held[i]);
    address_caps_free(caps);
}

TESTS(address_caps)
