/* The story: the first bytes of a proxy's connection say for whom it is. They are binary, cut anywhere by the
 * network, and followed by the client's own bytes at once. A byte that is read beyond the header would be missing in
 * the request. Any client may have written a broken header, so nothing of it may be used. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/http_server/proxy_protocol.h"
#include "tests/support/suite.h"

#define SIGNATURE "\r\n\r\n\0\r\nQUIT\n"
#define TCP4 SIGNATURE "\x21\x11\0\x0c\xc0\0\2\x07\x7f\0\0\1\xd9\x03\x1f\x90"
#define TCP6                                                                                           \
    SIGNATURE "\x21\x21\0\x24\x20\x01\x0d\xb8\0\1\0\2\0\3\0\4\0\5\0\6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1" \
              "\xd9\x03\x1f\x90"
#define LOCAL SIGNATURE "\x20\0\0\0"
#define BYTES(literal) (literal), sizeof(literal) - 1

static const struct {
    const char *name, *bytes;
    size_t length;
    const char *source;
} good[] = {
    {"TCP over IPv4", BYTES(TCP4), "192.0.2.7"},
    {"TCP over IPv6", BYTES(TCP6), "2001:db8:1:2:3:4:5:6"},
    {"LOCAL", BYTES(LOCAL), "::"},
    {"LOCAL with addresses, which do not count",
     BYTES(SIGNATURE "\x20\x11\0\x0c\xc0\0\2\x07\x7f\0\0\1\xd9\x03\x1f\x90"), "::"},
    {"LOCAL with a family that is none", BYTES(SIGNATURE "\x20\x77\0\1x"), "::"},
    {"no family", BYTES(SIGNATURE "\x21\0\0\0"), "::"},
    {"no family, and an extension", BYTES(SIGNATURE "\x21\0\0\4\4\0\1x"), "::"},
    {"IPv4 with extensions", BYTES(SIGNATURE "\x21\x11\0\x13\xc0\0\2\x07\x7f\0\0\1\xd9\x03\x1f\x90\4\0\4xxxx"),
     "192.0.2.7"},
    {"an IPv4 address in IPv6",
     BYTES(SIGNATURE "\x21\x21\0\x24\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\0\2\x07"
                     "\0\0\0\0\0\0\0\0\0\0\xff\xff\x7f\0\0\1\xd9\x03\x1f\x90"),
     "192.0.2.7"},
};

static const struct {
    const char *name, *bytes;
    size_t length;
    size_t at; /* bytes up to the first wrong one */
} bad[] = {
    {"HTTP", BYTES("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), 1},
    {"TLS", BYTES("\x16\x03\x01\x02\0\1\0\1\xfc\x03\x03"), 1},
    {"version 1", BYTES("PROXY TCP4 192.0.2.7 127.0.0.1 55555 8080\r\n"), 1},
    {"the last byte of the signature", BYTES("\r\n\r\n\0\r\nQUIT\r\x21\x11\0\x0c"), 12},
    {"version 1 in binary", BYTES(SIGNATURE "\x11\x11\0\x0c"), 13},
    {"version 3", BYTES(SIGNATURE "\x31\x11\0\x0c"), 13},
    {"an unknown command", BYTES(SIGNATURE "\x22\x11\0\x0c"), 13},
    {"a datagram", BYTES(SIGNATURE "\x21\x12\0\x0c"), 16},
    {"a datagram over IPv6", BYTES(SIGNATURE "\x21\x22\0\x24"), 16},
    {"an unknown family", BYTES(SIGNATURE "\x21\x41\0\x24"), 16},
    {"an unknown transport", BYTES(SIGNATURE "\x21\x13\0\x24"), 16},
    {"too short for IPv4", BYTES(SIGNATURE "\x21\x11\0\x0b"), 16},
    {"too short for IPv6", BYTES(SIGNATURE "\x21\x21\0\x23"), 16},
    {"too short for a Unix socket", BYTES(SIGNATURE "\x21\x31\0\xd7"), 16},
    {"empty with a family", BYTES(SIGNATURE "\x21\x11\0\0"), 16},
    {"too long", BYTES(SIGNATURE "\x21\x11\x08\x01"), 16},
    {"as long as can be", BYTES(SIGNATURE "\x21\x11\xff\xff"), 16},
    {"too long for LOCAL", BYTES(SIGNATURE "\x20\0\xff\xff"), 16},
};

START_TEST(a_header_is_read_the_same_however_it_is_cut_and_nothing_behind_it_is_taken)
{
    for (size_t step = 1; step <= good[_i].length + 5; step++) {
        char bytes[256];
        size_t whole = good[_i].length, length = whole + 5, at = 0, used = 0;
        memcpy(bytes, good[_i].bytes, whole);
        memcpy(bytes + whole, "GET /", 5);
        struct proxy_protocol header = {.length = 0};
        enum proxy_progress progress = PROXY_MORE;
        while (at < length && progress == PROXY_MORE) {
            size_t piece = length - at < step ? length - at : step;
            progress = proxy_protocol_read(&header, bytes + at, piece, &used);
            ck_assert(used <= piece && (progress != PROXY_MORE || used == piece));
            at += used;
        }
        ck_assert_msg(progress == PROXY_COMPLETE && at == whole, "%s, by %zu: %d at %zu", good[_i].name, step,
                      (int)progress, at);
        struct ip_address source = proxy_protocol_source(&header);
        char text[IP_ADDRESS_TEXT_SIZE];
        ip_address_format(&source, text);
        ck_assert_str_eq(text, good[_i].source);
    }
}

START_TEST(what_is_not_a_header_is_refused_at_the_first_wrong_byte)
{
    for (size_t step = 1; step <= bad[_i].length; step++) {
        struct proxy_protocol header = {.length = 0};
        enum proxy_progress progress = PROXY_MORE;
        size_t at = 0, used = 0;
        while (at < bad[_i].length && progress == PROXY_MORE) {
            size_t piece = bad[_i].length - at < step ? bad[_i].length - at : step;
            progress = proxy_protocol_read(&header, bad[_i].bytes + at, piece, &used);
            at += used;
        }
        ck_assert_msg(progress == PROXY_MALFORMED && at == bad[_i].at, "%s, by %zu: %d at %zu", bad[_i].name, step,
                      (int)progress, at);
    }
}

START_TEST(an_unfinished_header_waits_for_more_at_every_byte)
{
    for (size_t length = 0; length < good[_i].length; length++) {
        struct proxy_protocol header = {.length = 0};
        size_t used = 99;
        ck_assert_int_eq(proxy_protocol_read(&header, good[_i].bytes, length, &used), PROXY_MORE);
        ck_assert_uint_eq(used, length);
    }
}

TEST(the_longest_header_is_read_to_its_end)
{
    static char bytes[PROXY_PROTOCOL_HEAD + PROXY_PROTOCOL_REST_MAX + 1];
    memset(bytes, 'x', sizeof(bytes));
    memcpy(bytes, BYTES(TCP4));
    bytes[14] = (char)(PROXY_PROTOCOL_REST_MAX >> 8);
    bytes[15] = (char)(PROXY_PROTOCOL_REST_MAX & 0xFF);
    struct proxy_protocol header = {.length = 0};
    size_t used = 0;
    ck_assert_int_eq(proxy_protocol_read(&header, bytes, sizeof(bytes), &used), PROXY_COMPLETE);
    ck_assert_uint_eq(used, sizeof(bytes) - 1);
}

static uint64_t chance_state = 20260101;

static uint32_t chance(uint32_t below)
{
    chance_state = chance_state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (uint32_t)(chance_state >> 33) % below;
}

/* libcheck notes each assertion that holds in a file: in these loops that takes longer than the test. */
static void expect(bool holds, const char *what, size_t found)
{
    if (!holds)
        ck_abort_msg("%s: %zu", what, found);
}

/* What one reading came to: the verdict, and where it ended. */
static int outcome(const char *bytes, size_t length, uint32_t most)
{
    struct proxy_protocol header = {.length = 0};
    enum proxy_progress progress = PROXY_MORE;
    size_t at = 0, used = 0;
    while (at < length && progress == PROXY_MORE) {
        size_t piece = most == 0 ? length - at : 1 + chance(most);
        piece = piece > length - at ? length - at : piece;
        /* A block of its own, so that a read beyond it is seen by a sanitizer. */
        char *copy = malloc(piece);
        expect(copy != NULL, "memory", length);
        memcpy(copy, bytes + at, piece);
        progress = proxy_protocol_read(&header, copy, piece, &used);
        free(copy);
        expect(used <= piece, "used", used);
        at += used;
    }
    expect(progress != PROXY_COMPLETE ||
               (at >= PROXY_PROTOCOL_HEAD && at == header.whole && at <= PROXY_PROTOCOL_HEAD + PROXY_PROTOCOL_REST_MAX),
           "whole", at);
    return (int)progress << 20 | (int)at;
}

TEST(a_damaged_header_has_the_same_outcome_however_it_is_cut)
{
    int outcomes[3] = {0};
    for (int round = 0; round < 200000; round++) {
        char bytes[3000];
        size_t which = chance(ARRAY_SIZE(good)), length = good[which].length;
        memset(bytes, 0, sizeof(bytes));
        memcpy(bytes, good[which].bytes, length);
        for (uint32_t damage = chance(4); damage > 0; damage--)
            bytes[chance(2) ? 12 + chance(4) : chance((uint32_t)length)] = (char)chance(256);
        length = chance(3) ? length + chance(2900) : chance((uint32_t)length + 1);
        int whole = outcome(bytes, length, 0);
        expect(outcome(bytes, length, 1) == whole && outcome(bytes, length, 40) == whole, "length", length);
        outcomes[whole >> 20]++;
    }
    for (int i = 0; i < 3; i++)
        ck_assert_int_gt(outcomes[i], 1000);
}

SUITE(proxy_protocol)
{
    TCase *tests = tcase_create("all");
    tcase_add_loop_test(tests, a_header_is_read_the_same_however_it_is_cut_and_nothing_behind_it_is_taken, 0,
                        (int)ARRAY_SIZE(good));
    tcase_add_loop_test(tests, what_is_not_a_header_is_refused_at_the_first_wrong_byte, 0, (int)ARRAY_SIZE(bad));
    tcase_add_loop_test(tests, an_unfinished_header_waits_for_more_at_every_byte, 0, (int)ARRAY_SIZE(good));
    ADD_TESTS(tests);
    suite_add_tcase(suite, tests);
}
