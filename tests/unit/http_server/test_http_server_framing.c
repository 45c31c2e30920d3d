/* The server's port faces clients that are broken or hostile, often behind a proxy that reads HTTP a little
 * differently. A client that can make proxy and server disagree about where a request ends can smuggle one past the
 * proxy. So everything ambiguous is refused and the connection ended, every size has a limit, and the answers depend on
 * the bytes only, not on how they were cut. */
#include "http_server/http_server_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/base/clock.h"
#include "tests/support/suite.h"

/* ---- what is refused ---- */

/* Each is followed by a request that must never be served. */
static const struct {
    const char *name;
    int status;
    const char *bytes;
    size_t length;
} refused[] = {
    ROW("length and encoding", 400,
        "POST / HTTP/1.1\r\n" H "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ROW("encoding and length", 400,
        "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"),
    ROW("two lengths", 400, "POST / HTTP/1.1\r\n" H "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
    ROW("two equal lengths", 400, "POST / HTTP/1.1\r\n" H "Content-Length: 1\r\nContent-Length: 1\r\n\r\na"),
    ROW("a list of lengths", 400, "POST / HTTP/1.1\r\n" H "Content-Length: 1, 1\r\n\r\na"),
    ROW("plus sign in a length", 400, "POST / HTTP/1.1\r\n" H "Content-Length: +5\r\n\r\nhello"),
    ROW("negative length", 400, "POST / HTTP/1.1\r\n" H "Content-Length: -5\r\n\r\nhello"),
    ROW("empty length", 400, "POST / HTTP/1.1\r\n" H "Content-Length:\r\n\r\n"),
    ROW("hexadecimal length", 400, "POST / HTTP/1.1\r\n" H "Content-Length: 0x5\r\n\r\nhello"),
    ROW("inner space in a length", 400, "POST / HTTP/1.1\r\n" H "Content-Length: 1 1\r\n\r\nhello"),
    ROW("length past 64 bits", 400, "POST / HTTP/1.1\r\n" H "Content-Length: 99999999999999999999999\r\n\r\n"),
    ROW("large length", 413, "POST / HTTP/1.1\r\n" H "Content-Length: 18446744073709551615\r\n\r\n"),
    ROW("length one above the limit", 413, "POST / HTTP/1.1\r\n" H "Content-Length: 65537\r\n\r\n"),
    ROW("length above the limit, Expect", 413,
        "POST / HTTP/1.1\r\n" H "Expect: 100-continue\r\nContent-Length: 65537\r\n\r\n"),
    ROW("0x in a chunk size", 400, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n0\r\n\r\n"),
    ROW("chunk size past 64 bits", 400,
        "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n11111111111111111\r\n"),
    ROW("large chunk", 413, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF\r\n"),
    ROW("seventeen zeros in a chunk size", 400,
        "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n00000000000000000\r\n\r\n"),
    ROW("empty chunk size", 400, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n\r\n\r\n"),
    ROW("negative chunk size", 400, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n"),
    ROW("space before a chunk size", 400,
        "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n 1\r\na\r\n0\r\n\r\n"),
    ROW("chunk longer than its size", 400,
        "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n"),
    ROW("bare LF behind a chunk size", 400,
        "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n1\na\r\n0\r\n\r\n"),
    ROW("bare LF behind a chunk", 400, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n1\r\na\n0\r\n\r\n"),
    ROW("bare LF behind the last chunk", 400,
        "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\n"),
    ROW("bare CR in a chunk extension", 400,
        "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n1;a\rb\r\na\r\n0\r\n\r\n"),
    ROW("LF in a chunk extension", 400,
        "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n1;a\nb\r\na\r\n0\r\n\r\n"),
    ROW("no name in a chunk extension", 400,
        "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n1;=a\r\na\r\n0\r\n\r\n"),
    ROW("an empty chunk extension", 400,
        "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n1;\r\na\r\n0\r\n\r\n"),
    ROW("no value in a chunk extension", 400,
        "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n1;a=\r\na\r\n0\r\n\r\n"),
    ROW("open quotes in a chunk extension", 400,
        "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n1;a=\"b\r\na\r\n0\r\n\r\n"),
    ROW("a quote within a value of a chunk extension", 400,
        "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n1;a=b\"c\"\r\na\r\n0\r\n\r\n"),
    ROW("text behind quotes in a chunk extension", 400,
        "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n1;a=\"b\"c\r\na\r\n0\r\n\r\n"),
    ROW("a blank at the end of a chunk line", 400,
        "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n1;a \r\na\r\n0\r\n\r\n"),
    ROW("folded trailer", 400, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n c\r\n\r\n"),
    ROW("malformed trailer", 400, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n0\r\nA b\r\n\r\n"),
    ROW("bare CR in a header", 400, "GET / HTTP/1.1\r\n" H "A: b\rC: d\r\n\r\n"),
    ROW("header block ended by CR alone (CVE-2025-23167)", 400,
        "GET / HTTP/1.1\r\n" H "\r\rGET /smuggled HTTP/1.1\r\n" H "\r\n"),
    ROW("header block ended by CR and a letter (CVE-2025-23167)", 400, "GET / HTTP/1.1\r\n" H "\rX\r\n\r\n"),
    ROW("empty value and CR (CVE-2023-30589)", 400, "GET / HTTP/1.1\r\n" H "A:\rContent-Length: 5\r\n\r\n"),
    ROW("space before the first header (CVE-2024-27982)", 400,
        "POST / HTTP/1.1\r\n " H "Content-Length: 5\r\n\r\nhello"),
    ROW("bare LF lines", 400, "GET / HTTP/1.1\nHost: a\n\n"),
    ROW("bare LF behind a header", 400, "GET / HTTP/1.1\r\nHost: a\n\r\n"),
    ROW("bare LF for the empty line", 400, "GET / HTTP/1.1\r\nHost: a\r\n\n"),
    ROW("space before the colon", 400, "GET / HTTP/1.1\r\n" H "A : b\r\n\r\n"),
    ROW("space before the colon of a length", 400, "POST / HTTP/1.1\r\n" H "Content-Length : 5\r\n\r\nhello"),
    ROW("NUL in a value", 400, "GET / HTTP/1.1\r\n" H "A: b\0c\r\n\r\n"),
    ROW("NUL in a name", 400, "GET / HTTP/1.1\r\n" H "A\0: b\r\n\r\n"),
    ROW("DEL in a value", 400, "GET / HTTP/1.1\r\n" H "A: b\x7F\r\n\r\n"),
    ROW("escape in a value", 400, "GET / HTTP/1.1\r\n" H "A: \x1B[0m\r\n\r\n"),
    ROW("non-ASCII name", 400, "GET / HTTP/1.1\r\n" H "\xC3\xA9: b\r\n\r\n"),
    ROW("empty name", 400, "GET / HTTP/1.1\r\n" H ": b\r\n\r\n"),
    ROW("empty name in a trailer", 400, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n0\r\n: b\r\n\r\n"),
    ROW("no colon", 400, "GET / HTTP/1.1\r\n" H "Anything\r\n\r\n"),
    ROW("parenthesis in a name", 400, "GET / HTTP/1.1\r\n" H "A(b): c\r\n\r\n"),
    ROW("control byte in the target", 400, "GET /\x01 HTTP/1.1\r\n" H "\r\n"),
    ROW("HT in the target", 400, "GET /\ta HTTP/1.1\r\n" H "\r\n"),
    ROW("non-ASCII target", 400, "GET /\xC3\xA9 HTTP/1.1\r\n" H "\r\n"),
    ROW("fragment", 400, "GET /a#b HTTP/1.1\r\n" H "\r\n"),
    ROW("unknown encoding", 400, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
    ROW("chunked is not last", 400, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"),
    ROW("compressed and chunked", 400, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    ROW("chunked twice", 400,
        "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ROW("identity", 400, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: identity\r\n\r\n"),
    ROW("empty encoding", 400, "POST / HTTP/1.1\r\n" H "Transfer-Encoding:\r\n\r\n"),
    ROW("vertical tab before chunked", 400,
        "POST / HTTP/1.1\r\n" H "Transfer-Encoding: \x0B"
        "chunked\r\n\r\n0\r\n\r\n"),
    ROW("encoding on 1.0", 400, "POST / HTTP/1.0\r\n" H "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ROW("no Host", 400, "GET / HTTP/1.1\r\n\r\n"),
    ROW("two Hosts", 400, "GET / HTTP/1.1\r\n" H "Host: b\r\n\r\n"),
    ROW("two equal Hosts", 400, "GET / HTTP/1.1\r\n" H H "\r\n"),
    ROW("two Hosts on 1.0", 400, "GET / HTTP/1.0\r\n" H "Host: b\r\n\r\n"),
    ROW("empty Host", 400, "GET / HTTP/1.1\r\nHost:\r\n\r\n"),
    ROW("Host with user", 400, "GET / HTTP/1.1\r\nHost: user@a\r\n\r\n"),
    ROW("Host with a path", 400, "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"),
    ROW("Host with a space", 400, "GET / HTTP/1.1\r\nHost: a b\r\n\r\n"),
    ROW("Host with a bad port", 400, "GET / HTTP/1.1\r\nHost: a:80x\r\n\r\n"),
    ROW("folded header", 400, "GET / HTTP/1.1\r\n" H "A: b\r\n c\r\n\r\n"),
    ROW("header folded with HT", 400, "GET / HTTP/1.1\r\n" H "A: b\r\n\tc\r\n\r\n"),
    ROW("folded empty header", 400, "GET / HTTP/1.1\r\n" H "A:\r\n b\r\n\r\n"),
    ROW("folded encoding", 400, "POST / HTTP/1.1\r\n" H "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n"),
    ROW("absolute target of another host", 400, "GET http://evil/ HTTP/1.1\r\n" H "\r\n"),
    ROW("absolute target with a port", 400, "GET http://a:80/ HTTP/1.1\r\n" H "\r\n"),
    ROW("absolute target with a user", 400, "GET http://u@a/ HTTP/1.1\r\n" H "\r\n"),
    ROW("absolute target without a host", 400, "GET http:///a HTTP/1.1\r\n" H "\r\n"),
    ROW("absolute target without a path", 400, "GET http://a HTTP/1.1\r\n" H "\r\n"),
    ROW("absolute target with a query alone", 400, "GET http://a?b=/ HTTP/1.1\r\n" H "\r\n"),
    ROW("absolute target without Host", 400, "GET http://a/ HTTP/1.1\r\n\r\n"),
    ROW("absolute target and two Hosts", 400, "GET http://a/ HTTP/1.1\r\n" H H "\r\n"),
    ROW("another scheme", 400, "GET ftp://a/ HTTP/1.1\r\n" H "\r\n"),
    ROW("a scheme alone", 400, "GET http:// HTTP/1.1\r\n" H "\r\n"),
    ROW("asterisk", 400, "OPTIONS * HTTP/1.1\r\n" H "\r\n"),
    ROW("CONNECT", 400, "CONNECT a:443 HTTP/1.1\r\n" H "\r\n"),
    ROW("CONNECT with a path", 400, "CONNECT /a HTTP/1.1\r\n" H "\r\n"),
    ROW("PRI", 400, "PRI /a HTTP/1.1\r\n" H "\r\n"),
    ROW("preface of HTTP/2", 505, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    ROW("HTTP/2.0", 505, "GET / HTTP/2.0\r\n" H "\r\n"),
    ROW("HTTP/1.2", 505, "GET / HTTP/1.2\r\n" H "\r\n"),
    ROW("HTTP/9.9", 505, "GET / HTTP/9.9\r\n" H "\r\n"),
    ROW("HTTP/0.9 named", 400, "GET / HTTP/0.9\r\n" H "\r\n"),
    ROW("HTTP/0.9", 400, "GET /\r\n"),
    ROW("HTTP/1.1 and a space", 400, "GET / HTTP/1.1 \r\n" H "\r\n"),
    ROW("HTTP/11.1", 400, "GET / HTTP/11.1\r\n" H "\r\n"),
    ROW("http/1.1", 400, "GET / http/1.1\r\n" H "\r\n"),
    ROW("RTSP", 400, "GET / RTSP/1.0\r\n" H "\r\n"),
    ROW("ICE", 400, "SOURCE / ICE/1.0\r\n" H "\r\n"),
    ROW("two spaces", 400, "GET  / HTTP/1.1\r\n" H "\r\n"),
    ROW("space in the target", 400, "GET /a b HTTP/1.1\r\n" H "\r\n"),
    ROW("space first", 400, " GET / HTTP/1.1\r\n" H "\r\n"),
    ROW("no method", 400, "/ HTTP/1.1\r\n" H "\r\n"),
    ROW("method of 33 bytes", 400, "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA / HTTP/1.1\r\n" H "\r\n"),
    ROW("parenthesis in the method", 400, "G(T / HTTP/1.1\r\n" H "\r\n"),
    ROW("five empty lines", 400, "\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\n" H "\r\n"),
    ROW("TLS", 400, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
    ROW("unknown Expect", 417, "POST / HTTP/1.1\r\n" H "Expect: 200-ok\r\nContent-Length: 5\r\n\r\nhello"),
};

START_TEST(what_can_be_read_in_two_ways_is_refused_and_nothing_behind_it_is_served)
{
    static const char smuggled[] = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    start_with_defaults();
    char bytes[1024];
    size_t length = refused[_i].length;
    memcpy(bytes, refused[_i].bytes, length);
    memcpy(bytes + length, smuggled, sizeof(smuggled) - 1);
    provoke(bytes, length + sizeof(smuggled) - 1);
    assert_refused(refused[_i].name, refused[_i].status);
    ck_assert_int_eq(world.handled, 0);
    stop();
}

/* Sends before + count times byte + after, and expects the status. */
static void assert_long_one_refused(const char *before, char byte, size_t count, const char *after, int status)
{
    start_with_defaults();
    char *text = repeat(before, byte, count, after);
    provoke(text, strlen(text));
    assert_refused(before, status);
    ck_assert_int_eq(world.handled, 0);
    free(text);
    stop();
}

TEST(what_is_too_long_is_refused_with_its_own_status)
{
    assert_long_one_refused("GET /", 'a', 4096, " HTTP/1.1\r\n" H "\r\n", 414);
    assert_long_one_refused("GET /", 'a', 100000, "", 414);
    assert_long_one_refused("GET / HTTP/1.1\r\n" H "A: ", 'a', 16384, "\r\n\r\n", 431);
    assert_long_one_refused("GET / HTTP/1.1\r\n" H "A: ", 'a', 100000, "", 431);
    assert_long_one_refused("GET / HTTP/1.1\r\n" H, 'a', 100000, "", 431);
    assert_long_one_refused("POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n0\r\nA: ", 'a', 20000,
                            "\r\n\r\n", 431);
    assert_long_one_refused("POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n1;", 'a', 100000, "", 400);
    assert_long_one_refused("POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n1;", 'a', 256,
                            "\r\na\r\n0\r\n\r\n", 400);
    assert_long_one_refused("POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n", '0', 100000, "", 400);
}

TEST(what_just_fits_is_accepted)
{
    start_with_defaults();
    char *texts[] = {
        repeat("GET /", 'a', 4095, " HTTP/1.1\r\n" H "\r\n"),
        repeat("GET / HTTP/1.1\r\n" H "A: ", 'a', 16384 - 17, "\r\n\r\n"),
        repeat("POST / HTTP/1.1\r\n" H "Content-Length: 65536\r\n\r\n", 'a', 65536, ""),
        repeat("POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n10000\r\n", 'a', 65536, "\r\n0\r\n\r\n"),
        repeat("POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n1;", 'a', 255, "\r\na\r\n0\r\n\r\n"),
    };
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        converse(texts[i], strlen(texts[i]), SIZE_MAX);
        ck_assert_int_eq(heard.count, 1);
        ck_assert_msg(heard.replies[0].status == 200, "%zu: %.*s", i, (int)heard.length, heard.bytes);
        free(texts[i]);
    }
    stop();
}

TEST(sixty_four_headers_are_accepted_and_sixty_five_are_not)
{
    start_with_defaults();
    char text[4096];
    for (int count = 64; count <= 65; count++) {
        size_t length = (size_t)snprintf(text, sizeof(text), "GET /short HTTP/1.1\r\n" H);
        for (int i = 1; i < count; i++)
            length += (size_t)snprintf(text + length, sizeof(text) - length, "A%d: b\r\n", i);
        length += (size_t)snprintf(text + length, sizeof(text) - length, "\r\n");
        converse(text, length, SIZE_MAX);
        ck_assert_int_eq(heard.count, 1);
        ck_assert_int_eq(heard.replies[0].status, count == 64 ? 200 : 431);
    }
    stop();
}

TEST(a_body_that_grows_past_the_limit_by_chunks_is_refused)
{
    start_with_defaults();
    char *chunk = repeat("8000\r\n", 'a', 0x8000, "\r\n");
    char *text = malloc(4 * strlen(chunk) + 256);
    ck_assert_ptr_nonnull(text);
    sprintf(text, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n%s%s1\r\na\r\n0\r\n\r\n", chunk, chunk);
    provoke(text, strlen(text));
    assert_refused("chunks", 413);
    ck_assert_int_eq(world.handled, 0);
    free(text);
    free(chunk);
    stop();
}

TEST(short_extensions_of_many_chunks_are_refused_when_they_add_up)
{
    start_with_defaults();
    static char text[64 * 1024];
    size_t length = (size_t)snprintf(text, sizeof(text), "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 1000; i++)
        length += (size_t)snprintf(text + length, sizeof(text) - length, "1;abcdefgh=ijklmnop\r\na\r\n");
    length += (size_t)snprintf(text + length, sizeof(text) - length, "0\r\n\r\n");
    provoke(text, length);
    assert_refused("extensions", 400);
    stop();
}

/* ---- what is accepted ---- */

static const struct {
    const char *name, *request, *answer;
} accepted[] = {
    {"plain", "GET /a?b=c HTTP/1.1\r\n" H "\r\n", "GET|/a|b=c|1|Host=a;|"},
    {"white space around a value", "GET /a HTTP/1.1\r\nHost: \t a \t \r\n\r\n", "GET|/a||1|Host=a;|"},
    {"no white space", "GET /a HTTP/1.1\r\nHost:a\r\n\r\n", "GET|/a||1|Host=a;|"},
    {"empty value", "GET /a HTTP/1.1\r\n" H "A:\r\nB: \r\nC: d\r\n\r\n", "GET|/a||4|Host=a;A=;B=;C=d;|"},
    {"non-ASCII value", "GET /a HTTP/1.1\r\n" H "A: \xC3\xA9\r\n\r\n", "GET|/a||2|Host=a;A=\xC3\xA9;|"},
    {"empty line first", "\r\nGET /a HTTP/1.1\r\n" H "\r\n", "GET|/a||1|Host=a;|"},
    {"two marks in the target", "GET /a?b?c HTTP/1.1\r\n" H "\r\n", "GET|/a|b?c|1|Host=a;|"},
    {"empty query", "GET /a? HTTP/1.1\r\n" H "\r\n", "GET|/a||1|Host=a;|"},
    {"encoded path, as sent", "GET //%2e%2e/%00%2F HTTP/1.1\r\n" H "\r\n", "GET|//%2e%2e/%00%2F||1|Host=a;|"},
    {"Host with a port", "GET /a HTTP/1.1\r\nHost: a.b:80\r\n\r\n", "GET|/a||1|Host=a.b:80;|"},
    {"IPv6 Host", "GET /a HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", "GET|/a||1|Host=[::1]:80;|"},
    {"1.0 without Host", "GET /a HTTP/1.0\r\n\r\n", "GET|/a||0||"},
    {"body", "POST /a HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\nhello", "POST|/a||2|Host=a;Content-Length=5;|hello"},
    {"empty body", "POST /a HTTP/1.1\r\n" H "Content-Length: 0\r\n\r\n", "POST|/a||2|Host=a;Content-Length=0;|"},
    {"leading zeros", "POST /a HTTP/1.1\r\n" H "Content-Length: 0005\r\n\r\nhello",
     "POST|/a||2|Host=a;Content-Length=0005;|hello"},
    {"tabs behind a length", "POST /a HTTP/1.1\r\nHost: a\t\r\nContent-Length: 5\t \t\r\n\r\nhello",
     "POST|/a||2|Host=a;Content-Length=5;|hello"},
    {"GET with a body", "GET /a HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\nhello",
     "GET|/a||2|Host=a;Content-Length=5;|hello"},
    {"chunks",
     "POST /a HTTP/1.1\r\n" H
     "transfer-encoding: Chunked\r\n\r\n2;x=\"y\"\r\nhe\r\n03\r\nllo\r\n0\r\nHost: b\r\nX: y\r\n\r\n",
     "POST|/a||2|Host=a;transfer-encoding=Chunked;|hello"},
    {"chunk extensions of every lawful form",
     "POST /a HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n"
     "2;a=\"b c;d,\\\"\\\\\xC3\xA9\";e\r\nhe\r\n1 ; \ta = b ;c= \"\"\r\nl\r\n2;a\r\nlo\r\n0;last=\"1\"\r\n\r\n",
     "POST|/a||2|Host=a;Transfer-Encoding=chunked;|hello"},
    {"no chunk", "POST /a HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
     "POST|/a||2|Host=a;Transfer-Encoding=chunked;|"},
    {"PATCH with a body", "PATCH /a HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\nhello",
     "PATCH|/a||2|Host=a;Content-Length=5;|hello"},
    {"other method", "DELETE /a HTTP/1.1\r\n" H "\r\n", "OTHER|/a||1|Host=a;|"},
    {"unknown method", "BREW /a HTTP/1.1\r\n" H "\r\n", "OTHER|/a||1|Host=a;|"},
    {"unknown method with a body", "BREW /a HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\nhello",
     "OTHER|/a||2|Host=a;Content-Length=5;|hello"},
    {"lower case method", "get /a HTTP/1.1\r\n" H "\r\n", "OTHER|/a||1|Host=a;|"},
    {"TRACE", "TRACE /a HTTP/1.1\r\n" H "\r\n", "OTHER|/a||1|Host=a;|"},
    {"SOURCE", "SOURCE /a HTTP/1.1\r\n" H "\r\n", "OTHER|/a||1|Host=a;|"},
    {"Upgrade", "GET /a HTTP/1.1\r\n" H "Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
     "GET|/a||3|Host=a;Connection=Upgrade;Upgrade=h2c;|"},
    {"Upgrade with a body",
     "POST /a HTTP/1.1\r\n" H "Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nhi",
     "POST|/a||4|Host=a;Connection=Upgrade;Upgrade=h2c;Content-Length=2;|hi"},
    {"Expect on 1.0", "POST /a HTTP/1.0\r\nExpect: x\r\nContent-Length: 2\r\n\r\nhi",
     "POST|/a||2|Expect=x;Content-Length=2;|hi"},
};

/* The request behind it shows that the end was found. Also byte by byte. */
START_TEST(what_is_well_formed_is_read_as_it_was_sent_however_it_was_cut)
{
    char text[1024];
    size_t length = (size_t)snprintf(text, sizeof(text), "%sGET /short HTTP/1.1\r\n" H "\r\n", accepted[_i].request);
    int expected = strstr(accepted[_i].request, "HTTP/1.0") ? 1 : 2; /* 1.0 closes */
    for (size_t step = 1; step <= length; step = step == 1 ? 7 : step == 7 ? length : length + 1) {
        start_with_defaults();
        converse(text, length, step);
        ck_assert_msg(heard.count == expected && body_is(0, accepted[_i].answer), "%s by %zu: %.*s", accepted[_i].name,
                      step, (int)heard.length, heard.bytes);
        ck_assert(expected == 1 || body_is(1, "short"));
        ck_assert_int_eq(world.refused, 0);
        stop();
    }
}

TEST(http_header_finds_the_first_of_a_name_in_any_case_and_counts_them)
{
    struct http_request request = {.header_count = 3};
    request.headers[0].name = SLICE("Accept");
    request.headers[0].value = SLICE("one");
    request.headers[1].name = SLICE("X");
    request.headers[1].value = SLICE("");
    request.headers[2].name = SLICE("ACCEPT");
    request.headers[2].value = SLICE("two");
    int count = -1;
    struct slice value = http_header(&request, "accept", &count);
    ck_assert_int_eq(count, 2);
    ck_assert_uint_eq(value.length, 3);
    ck_assert_int_eq(memcmp(value.bytes, "one", 3), 0);
    ck_assert_ptr_nonnull(http_header(&request, "x", NULL).bytes);
    ck_assert_ptr_null(http_header(&request, "accep", &count).bytes);
    ck_assert_int_eq(count, 0);
}

/* ---- chance ---- */

static uint64_t chance_state;

static uint32_t chance(uint32_t below)
{
    chance_state ^= chance_state << 13;
    chance_state ^= chance_state >> 7;
    chance_state ^= chance_state << 17;
    return below > 0 ? (uint32_t)(chance_state >> 11) % below : 0;
}

static const char *const seeds[] = {
    "GET /a?b=c HTTP/1.1\r\nHost: a\r\nA: b\r\n\r\n",
    "POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
    "POST /p HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nhe\r\n3\r\nllo\r\n0\r\nX: y\r\n\r\n",
    "HEAD /short HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /short HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    "BREW /short HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
    "POST /nothing HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi",
};

static const char *const splices[] = {
    "\r\n",
    "\n",
    "\r",
    " ",
    "\t",
    ":",
    ";",
    "0",
    "\r\n\r\n",
    "\r\n ",
    "Content-Length: 3\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Host: b\r\n",
    "Connection: close\r\n",
    "0\r\n\r\n",
    "HTTP/1.1",
    "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "\x80",
    "\x01",
    ",",
    "Upgrade: x\r\n",
    "FFFFFFFF",
};

static size_t make_input(char *text, size_t size)
{
    size_t length = 0;
    for (uint32_t i = 0, count = 1 + chance(3); i < count; i++)
        length += (size_t)snprintf(text + length, size - length, "%s", seeds[chance(ARRAY_SIZE(seeds))]);
    for (uint32_t i = 0, count = chance(4); i < count && length + 64 < size; i++) {
        size_t at = chance((uint32_t)length);
        const char *splice = splices[chance(ARRAY_SIZE(splices))];
        size_t cut = 1 + chance(8);
        if (cut > length - at)
            cut = length - at;
        switch (chance(4)) {
        case 0:
            text[at] = (char)chance(256);
            break;
        case 1:
            memmove(text + at, text + at + cut, length - at - cut);
            length -= cut;
            break;
        default:
            memmove(text + at + strlen(splice), text + at, length - at);
            memcpy(text + at, splice, strlen(splice));
            length += strlen(splice);
            break;
        }
    }
    return length;
}

TEST(a_damaged_request_gets_the_same_answers_however_it_is_cut)
{
    start_with_defaults();
    clock_freeze(clock_wall_us(), clock_mono_us());
    chance_state = 0x9E3779B97F4A7C15ULL;
    static char text[4096], whole[1 << 20];
    int answered = 0, refusals = 0;
    for (int round = 0; round < 2500; round++) {
        size_t length = make_input(text, sizeof(text));
        heard.is_opaque = true; /* HEAD and others mixed */
        converse(text, length, SIZE_MAX);
        size_t whole_length = heard.length < sizeof(whole) ? heard.length : sizeof(whole);
        memcpy(whole, heard.bytes, whole_length);
        answered += world.handled > 0;
        int handled = world.handled, refused_before = world.refused;
        converse(text, length, round % 3 == 0 ? 1 : 1 + chance(16));
        ck_assert_msg(heard.length == whole_length && memcmp(heard.bytes, whole, whole_length) == 0,
                      "round %d: %.*s\n--- whole\n%.*s\n--- cut\n%.*s", round, (int)length, text, (int)whole_length,
                      whole, (int)heard.length, heard.bytes);
        ck_assert_int_eq(world.handled, 2 * handled);
        ck_assert_int_eq(world.refused, 2 * refused_before);
        refusals += world.refused > 0;
        world.handled = world.refused = 0;
    }
    ck_assert_int_gt(answered, 250);
    ck_assert_int_gt(refusals, 250);
    run_some();
    ck_assert_int_eq(http_server_connections(world.server), 0);
    stop();
}

SUITE(http_server_framing)
{
    TCase *tests = tcase_create("http_server_framing");
    tcase_add_loop_test(tests, what_can_be_read_in_two_ways_is_refused_and_nothing_behind_it_is_served, 0,
                        (int)ARRAY_SIZE(refused));
    ADD_TESTS(tests);
    tcase_add_loop_test(tests, what_is_well_formed_is_read_as_it_was_sent_however_it_was_cut, 0,
                        (int)ARRAY_SIZE(accepted));
    suite_add_tcase(suite, tests);
}
