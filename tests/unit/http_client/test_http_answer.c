/* The end of an answer decides which call the next bytes belong to, and whether a card was made. So each form that an
 * answer may have, and many that it may not have, is fed whole, byte by byte and split at every place: the result must
 * be the same each time, and bytes behind the answer must not be used. A good answer that is refused is at worst lost;
 * an answer that other readers divide differently may belong to another call. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/base/clock.h"
#include "common/lib/http_client/http_answer.h"
#include "tests/unit/fault_injection.h"
#include "tests/support/suite.h"

#define BODY_MAX 65536

enum { GOES_ON = HTTP_ANSWER_GOES_ON, WHOLE = HTTP_ANSWER_WHOLE, BROKEN = HTTP_ANSWER_BROKEN };

struct result {
    enum http_answer_state state;
    size_t used;
    int status;
    bool may_keep, is_json;
    int64_t retry_after_ms;
    const char *objection;
    size_t length;
    char body[BODY_MAX];
};

/* In steps of `step` bytes, after a first one of its own; then the close. */
static void feed(const char *bytes, size_t length, size_t first, size_t step, bool closes, struct result *ret_result)
{
    struct http_call call;
    struct http_answer answer;
    enum http_answer_state state = HTTP_ANSWER_GOES_ON;
    size_t used = 0;
    http_call_init(&call, BODY_MAX);
    http_answer_begin(&answer, &call, BODY_MAX);
    for (size_t part = first; used < length && state == HTTP_ANSWER_GOES_ON; part = step) {
        part = part < length - used ? part : length - used;
        char *copy = malloc(part); /* so that a sanitizer sees what is read behind it */
        size_t of_part = part + 1;
        memcpy(copy, bytes + used, part);
        state = http_answer_take(&answer, copy, part, &of_part);
        free(copy);
        if (of_part >
            part) /* libcheck notes each assertion that holds in a file: here that takes longer than the test */
            ck_abort_msg("%zu of %zu", of_part, part);
        used += of_part;
    }
    if (closes && state == HTTP_ANSWER_GOES_ON)
        state = http_answer_close(&answer);
    ret_result->state = state;
    ret_result->used = used;
    ret_result->status = call.status;
    ret_result->may_keep = answer.may_keep;
    ret_result->is_json = call.answer_is_json;
    ret_result->retry_after_ms = call.retry_after_ms;
    ret_result->objection = answer.objection;
    ret_result->length = call.answer.length;
    if (call.answer.length > 0)
        memcpy(ret_result->body, call.answer.bytes, call.answer.length);
    http_call_done(&call);
}

static void expect_same(const struct result *result, const struct result *other, const char *name, size_t first)
{
    bool is_same = result->state == other->state &&
                   (result->state != HTTP_ANSWER_WHOLE || result->used == other->used) &&
                   result->status == other->status && result->may_keep == other->may_keep;
    bool is_same_answer = result->state != HTTP_ANSWER_WHOLE ||
                          (result->is_json == other->is_json && result->retry_after_ms == other->retry_after_ms &&
                           result->length == other->length && memcmp(result->body, other->body, result->length) == 0);
    if (!is_same || !is_same_answer)
        ck_abort_msg("split at %zu: %s", first, name);
    const char *why = result->objection ? result->objection : "", *of_other = other->objection ? other->objection : "";
    if (strcmp(why, of_other) != 0)
        ck_abort_msg("split at %zu: %s, or: %s: %s", first, why, of_other, name);
}

/* Fed in every way; what comes of it in ret_result. */
static void feed_all_ways(const char *bytes, size_t length, bool closes, struct result *ret_result)
{
    static struct result other;
    feed(bytes, length, length, length, closes, ret_result);
    feed(bytes, length, 1, 1, closes, &other);
    expect_same(ret_result, &other, bytes, 0);
    for (size_t first = 1; first<length; first += length> 1000 ? 97 : 1) {
        feed(bytes, length, first, length, closes, &other);
        expect_same(ret_result, &other, bytes, first);
        feed(bytes, length, first, 3, closes, &other);
        expect_same(ret_result, &other, bytes, first);
    }
}

struct row {
    const char *bytes;
    size_t length;
    int state; /* after all of it was fed, and the peer closed, if it does */
    bool closes;
    int status;
    bool may_keep;
    size_t behind; /* bytes that belong to no answer */
    const char *body;
};

#define OK "HTTP/1.1 200 OK\r\n"
#define TWO "Content-Length: 2\r\n\r\nok"
#define CHUNKED OK "Transfer-Encoding: chunked\r\n\r\n"
#define TEXT(text) .bytes = text, .length = sizeof(text) - 1
#define IS(number, text) .state = WHOLE, .status = number, .body = text, .may_keep = true
#define IS_LAST(number, text) .state = WHOLE, .status = number, .body = text
#define AT_CLOSE(number, text) .state = WHOLE, .status = number, .body = text, .closes = true
#define BAD .state = BROKEN
#define CUT .state = BROKEN, .closes = true

static void expect_rows(const struct row *rows, size_t count)
{
    static struct result result;
    for (const struct row *row = rows; row < rows + count; row++) {
        feed_all_ways(row->bytes, row->length, row->closes, &result);
        ck_assert_msg((int)result.state == row->state, "state %d, %s: %s", (int)result.state,
                      result.objection ? result.objection : "", row->bytes);
        ck_assert_msg((result.objection != NULL) == (row->state == BROKEN), "%s", row->bytes);
        if (row->state != WHOLE)
            continue;
        ck_assert_msg(result.status == row->status, "status %d: %s", result.status, row->bytes);
        ck_assert_msg(result.length == strlen(row->body) && memcmp(result.body, row->body, result.length) == 0,
                      "body %.*s: %s", (int)result.length, result.body, row->bytes);
        ck_assert_msg(result.used == row->length - row->behind, "used %zu of %zu: %s", result.used, row->length,
                      row->bytes);
        ck_assert_msg(result.may_keep == row->may_keep, "may_keep %d: %s", (int)result.may_keep, row->bytes);
    }
}

TEST(an_answer_ends_where_its_framing_ends_it)
{
    static const struct row rows[] = {
        {TEXT(OK TWO), IS(200, "ok")},
        {TEXT(OK "content-LENGTH:2\r\n\r\nok"), IS(200, "ok")},
        {TEXT(OK "Content-Length: \t 2  \r\n\r\nok"), IS(200, "ok")},
        {TEXT(OK "Content-Length: 0002\r\n\r\nok"), IS(200, "ok")},
        {TEXT(OK "Content-Length: 2\t\r\n\r\nok"), IS(200, "ok")},
        {TEXT(OK "X: a\tb\r\nContent-Length:2 \t \t\r\nY:\t\r\n\r\nok"), IS(200, "ok")},
        {TEXT(OK "Content-Length: 0\r\n\r\n"), IS(200, "")},
        {TEXT("HTTP/1.1 201\r\n" TWO), IS(201, "ok")},
        {TEXT("HTTP/1.1 201 \r\n" TWO), IS(201, "ok")},
        {TEXT("HTTP/1.1 999 \xc3\xa4 (!)\r\n" TWO), IS(999, "ok")},
        {TEXT("HTTP/1.1 205 Reset\r\nContent-Length: 0\r\n\r\n"), IS(205, "")},
        {TEXT(OK "X:\r\nY: \xff \x80\r\n" TWO), IS(200, "ok")},
        {TEXT(CHUNKED "2\r\nok\r\n0\r\n\r\n"), IS(200, "ok")},
        {TEXT(CHUNKED "1\r\no\r\n00001\r\nk\r\n0\r\n\r\n"), IS(200, "ok")},
        {TEXT(CHUNKED "2;a;b=\"c\"\r\nok\r\n0;d=e\r\n\r\n"), IS(200, "ok")},
        {TEXT(CHUNKED "2;c=\"d;e\"\r\nok\r\n0 ; f = \"\\\";\t\";g\r\n\r\n"), IS(200, "ok")},
        {TEXT(CHUNKED "A\r\n0123456789\r\n0\r\n\r\n"), IS(200, "0123456789")},
        {TEXT(CHUNKED "2\r\nok\r\n0\r\nX: y\r\nY: 7\r\n\r\n"), IS(200, "ok")},
        {TEXT(CHUNKED "0\r\n\r\n"), IS(200, "")},
        {TEXT(OK "Transfer-Encoding: Chunked \r\n\r\n2\r\nok\r\n0\r\n\r\n"), IS(200, "ok")},
        {TEXT("HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\n" TWO), IS(200, "ok")},
        {TEXT("HTTP/1.0 200 OK\r\n" TWO), IS_LAST(200, "ok")},
        {TEXT(OK "Connection: close\r\n" TWO), IS_LAST(200, "ok")},
        {TEXT(OK "Connection: x, CLOSE\r\n" TWO), IS_LAST(200, "ok")},
        {TEXT(OK "Connection: close\r\nConnection: keep-alive\r\n" TWO), IS_LAST(200, "ok")},
        {TEXT(OK "Upgrade: h2c\r\nConnection: upgrade\r\n" TWO), IS(200, "ok")},
    };
    expect_rows(rows, ARRAY_SIZE(rows));
}

TEST(what_is_behind_an_answer_is_not_used)
{
    static const struct row rows[] = {
        {TEXT(OK TWO "EXTRA"), IS(200, "ok"), .behind = 5},
        {TEXT(OK TWO OK TWO), IS(200, "ok"), .behind = 40},
        {TEXT(OK "Content-Length: 0\r\n\r\n\r\n"), IS(200, ""), .behind = 2},
        {TEXT(CHUNKED "2\r\nok\r\n0\r\n\r\nEXTRA"), IS(200, "ok"), .behind = 5},
        {TEXT(CHUNKED "2\r\nok\r\n0\r\nX: y\r\n\r\n\r\n"), IS(200, "ok"), .behind = 2},
        {TEXT(OK "Connection: close\r\n" TWO "EXTRA"), IS_LAST(200, "ok"), .behind = 5},
        {TEXT("HTTP/1.1 204 No\r\n\r\nx"), IS(204, ""), .behind = 1},
        {TEXT("HTTP/1.1 204 No\r\n" TWO), IS_LAST(204, ""), .behind = 2},
        {TEXT("HTTP/1.1 304 Not\r\n" TWO), IS_LAST(304, ""), .behind = 2},
        {TEXT("HTTP/1.1 204 No\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"), IS_LAST(204, ""),
         .behind = 11},
    };
    expect_rows(rows, ARRAY_SIZE(rows));
}

TEST(some_answers_have_no_body_whatever_they_say)
{
    static const struct row rows[] = {
        {TEXT("HTTP/1.1 204 No\r\n\r\n"), IS(204, "")},
        {TEXT("HTTP/1.1 204 No\r\nContent-Length: 0\r\n\r\n"), IS(204, "")},
        {TEXT("HTTP/1.1 204 No\r\nContent-Length: 2\r\n\r\n"), IS_LAST(204, "")},
        {TEXT("HTTP/1.1 204 No\r\nTransfer-Encoding: chunked\r\n\r\n"), IS_LAST(204, "")},
        {TEXT("HTTP/1.1 304 Not\r\n\r\n"), IS(304, "")},
        {TEXT("HTTP/1.1 304 Not\r\nContent-Length: 200\r\n\r\n"), IS_LAST(304, "")},
        {TEXT("HTTP/1.0 204 No\r\n\r\n"), IS_LAST(204, "")},
    };
    expect_rows(rows, ARRAY_SIZE(rows));
}

TEST(a_body_without_a_length_ends_with_the_connection_and_no_other_does)
{
    static const struct row rows[] = {
        {TEXT(OK "\r\nuntil the close"), AT_CLOSE(200, "until the close")},
        {TEXT(OK "\r\n"), AT_CLOSE(200, "")},
        {TEXT("HTTP/1.0 500 No\r\n\r\nx"), AT_CLOSE(500, "x")},
        {TEXT("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\nx"), AT_CLOSE(200, "x")},
        {TEXT("HTTP/1.1 100 Go\r\n\r\n" OK "\r\nx"), AT_CLOSE(200, "x")},
        {TEXT(OK "\r\nuntil the close"), .state = GOES_ON},
        {TEXT(""), CUT},
        {TEXT("H"), CUT},
        {TEXT("HTTP/1.1 200 OK"), CUT},
        {TEXT(OK), CUT},
        {TEXT(OK "Content-Length: 0\r\n"), CUT},
        {TEXT(OK "Content-Length: 0\r\n\r"), CUT},
        {TEXT(OK "Content-Length: 2\r\n\r\no"), CUT},
        {TEXT(CHUNKED), CUT},
        {TEXT(CHUNKED "2\r\nok"), CUT},
        {TEXT(CHUNKED "2\r\nok\r\n"), CUT},
        {TEXT(CHUNKED "2\r\nok\r\n0"), CUT},
        {TEXT(CHUNKED "2\r\nok\r\n0\r\n"), CUT},
        {TEXT(CHUNKED "2\r\nok\r\n0\r\n\r"), CUT},
        {TEXT(CHUNKED "2\r\nok\r\n0\r\nX: y\r\n"), CUT},
        {TEXT("HTTP/1.1 100 Go\r\n\r\n"), CUT},
        {TEXT("HTTP/1.1 199 Go\r\n"), CUT},
    };
    expect_rows(rows, ARRAY_SIZE(rows));
}

TEST(interim_answers_leave_nothing_behind)
{
    static const struct row rows[] = {
        {TEXT("HTTP/1.1 100 Continue\r\n\r\n" OK TWO), IS(200, "ok")},
        {TEXT("HTTP/1.1 103 Hints\r\nLink: x\r\n\r\nHTTP/1.1 100 Go\r\n\r\n" OK TWO), IS(200, "ok")},
        {TEXT("HTTP/1.1 100 Go\r\nContent-Length: 5\r\n\r\n" OK TWO), IS(200, "ok")},
        {TEXT("HTTP/1.1 100 Go\r\nContent-Length: 5\r\n\r\n" OK "\r\nx"), AT_CLOSE(200, "x")},
        {TEXT("HTTP/1.1 100 Go\r\nTransfer-Encoding: chunked\r\n\r\n" OK TWO), IS(200, "ok")},
        {TEXT("HTTP/1.1 100 Go\r\n\r\nHTTP/1.1 204 No\r\n\r\n"), IS(204, "")},
        /* a body that it must not have would be the beginning of the answer's */
        {TEXT("HTTP/1.1 100 Go\r\nContent-Length: 3\r\n\r\nabc" OK TWO), BAD},
        {TEXT("HTTP/1.1 100 Go\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n" OK TWO), BAD},
        {TEXT("HTTP/1.1 100 Go\r\n\r\n\r\n" OK TWO), BAD},
        {TEXT("HTTP/1.1 101 Up\r\n\r\n"), BAD},
        {TEXT("HTTP/1.1 101 Up\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n" OK TWO), BAD},
        {TEXT("HTTP/1.0 100 Go\r\n\r\n" OK TWO), BAD},
        {TEXT("HTTP/1.1 100 Go\r\nConnection: close\r\n\r\n" OK TWO), BAD},
    };
    expect_rows(rows, ARRAY_SIZE(rows));
}

TEST(a_length_that_can_be_read_in_two_ways_is_none)
{
    static const struct row rows[] = {
        {TEXT(OK "Content-Length: 2\r\nContent-Length: 2\r\n\r\nok"), BAD},
        {TEXT(OK "Content-Length: 2\r\nContent-Length: 3\r\n\r\nokk"), BAD},
        {TEXT(OK "Content-Length: 2, 2\r\n\r\nok"), BAD},
        {TEXT(OK "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"), BAD},
        {TEXT(OK "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\nok\r\n0\r\n\r\n"), BAD},
        {TEXT(OK "Content-Length: -2\r\n\r\nok"), BAD},
        {TEXT(OK "Content-Length: +2\r\n\r\nok"), BAD},
        {TEXT(OK "Content-Length: 0x2\r\n\r\nok"), BAD},
        {TEXT(OK "Content-Length: 2 2\r\n\r\nok"), BAD},
        {TEXT(OK "Content-Length: 2x\r\n\r\nok"), BAD},
        {TEXT(OK "Content-Length:\r\n\r\nok"), BAD},
        {TEXT(OK "Content-Length : 2\r\n\r\nok"), BAD},
        {TEXT(OK "Content-Length: 18446744073709551616\r\n\r\nok"), BAD},
        {TEXT(OK "Content-Length: 99999999999999999999999999999999\r\n\r\nok"), BAD},
        {TEXT(OK "Content-Length: 18446744073709551615\r\n\r\nok"), CUT},
        {TEXT(OK "Transfer-Encoding: gzip\r\n\r\nabc"), BAD},
        {TEXT(OK "Transfer-Encoding: identity\r\n\r\nabc"), BAD},
        {TEXT(OK "Transfer-Encoding:\r\n\r\nabc"), BAD},
        {TEXT(OK "Transfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"), BAD},
        {TEXT(OK "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"), BAD},
        {TEXT(OK "Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n\r\n2\r\nok\r\n0\r\n\r\n"), BAD},
        {TEXT(OK "Transfer-Encoding: chunked, gzip\r\n\r\n2\r\nok\r\n0\r\n\r\n"), BAD},
        {TEXT(OK "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"), BAD},
        {TEXT("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"), BAD},
        {TEXT(OK "Content-Length: 2\t2\r\n\r\nok"), BAD},
        {TEXT(OK "Transfer-Encoding: chunked\t\r\n\r\n2\r\nok\r\n0\r\n\r\n"), BAD},
        {TEXT(OK "Transfer-Encoding: xchunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"), BAD},
        {TEXT(OK "Transfer-Encoding: chunked;q=1\r\n\r\n2\r\nok\r\n0\r\n\r\n"), BAD},
        {TEXT(CHUNKED "-2\r\nok\r\n0\r\n\r\n"), BAD},
        {TEXT(CHUNKED "0x2\r\nok\r\n0\r\n\r\n"), BAD},
        {TEXT(CHUNKED "2 \r\nok\r\n0\r\n\r\n"), BAD},
        {TEXT(CHUNKED "\r\n\r\n"), BAD},
        {TEXT(CHUNKED "3\r\nok\r\n0\r\n\r\n"), BAD},
        {TEXT(CHUNKED "2\r\nokk\r\n0\r\n\r\n"), BAD},
        {TEXT(CHUNKED "10000000000000002\r\nok\r\n0\r\n\r\n"), BAD},
        {TEXT(CHUNKED "ffffffffffffffff\r\nok"), CUT},
        {TEXT(CHUNKED "2\nok\r\n0\r\n\r\n"), BAD},
        {TEXT(CHUNKED "2\r\nok\n0\r\n\r\n"), BAD},
        {TEXT(CHUNKED "2;\r\nok\r\n0\r\n\r\n"), BAD},
        {TEXT(CHUNKED "2;a=\"b\r\nok\r\n0\r\n\r\n"), BAD},
        {TEXT(CHUNKED "2;a\rb\r\nok\r\n0\r\n\r\n"), BAD},
        {TEXT(CHUNKED "2;a\nok\r\n0\r\n\r\n"), BAD},
        {TEXT(CHUNKED "2;a=\"\0\"\r\nok\r\n0\r\n\r\n"), BAD},
        {TEXT(CHUNKED ";a\r\nok\r\n0\r\n\r\n"), BAD},
        {TEXT(CHUNKED "2\r\nok\r\n0\r\nX: y\n\r\n"), BAD},
        {TEXT(CHUNKED "2\r\nok\r\n0\r\nX: y\r\n z\r\n\r\n"), BAD},
        {TEXT(CHUNKED "2\r\nok\r\n0\r\n\tX: y\r\n\r\n"), BAD},
        {TEXT(CHUNKED "2\r\nok\r\n0\r\nno colon\r\n\r\n"), BAD},
        {TEXT(CHUNKED "2\r\nok\r\n0\r\nX: a\0b\r\n\r\n"), BAD},
    };
    expect_rows(rows, ARRAY_SIZE(rows));
}

TEST(a_header_that_is_not_by_the_book_is_none)
{
    static const struct row rows[] = {
        {TEXT("HTTP/1.1 200 OK\n" TWO), BAD},
        {TEXT("HTTP/1.1 200\n" TWO), BAD},
        {TEXT("HTTP/1.1 200 OK\nContent-Length: 2\n\nok"), BAD},
        {TEXT(OK "Content-Length: 2\n\nok"), BAD},
        {TEXT(OK "Content-Length: 2\r\n\nok"), BAD},
        {TEXT(OK ": none\r\n" TWO), BAD},
        {TEXT(OK "X: a\r\n: none\r\n" TWO), BAD},
        {TEXT(CHUNKED "2\r\nok\r\n0\r\n: none\r\n\r\n"), BAD},
        {TEXT(CHUNKED "2\r\nok\r\n0\r\nX: y\r\nContent-Length: 7\r\n\r\n"), BAD},
        {TEXT(OK "X: a\n" TWO), BAD},
        {TEXT(OK "X: a\r b\r\n" TWO), BAD},
        {TEXT("HTTP/1.1 200 OK\r" TWO), BAD},
        {TEXT(OK "X: a\r\n b\r\n" TWO), BAD},
        {TEXT(OK "X: a\r\n\tb\r\n" TWO), BAD},
        {TEXT(OK "X:\r\n b\r\n" TWO), BAD},
        {TEXT(OK " X: b\r\n" TWO), BAD},
        {TEXT(OK "Content-Length: 2\r\n 2\r\n\r\nok"), BAD},
        {TEXT(OK "Content-Length:\r\n 2\r\n\r\nok"), BAD},
        {TEXT(OK "Transfer-Encoding:\r\n chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"), BAD},
        {TEXT(OK "no colon\r\n" TWO), BAD},
        {TEXT(OK "A B: c\r\n" TWO), BAD},
        {TEXT(OK "X\0: y\r\n" TWO), BAD},
        {TEXT(OK "X: a\0b\r\n" TWO), BAD},
        {TEXT(OK "X: \x01\r\n" TWO), BAD},
        {TEXT("HTTP/1.1 200 a\0b\r\n" TWO), BAD},
        {TEXT("HTTP/1.1 000 X\r\n" TWO), BAD},
        {TEXT("HTTP/1.1 099 X\r\n" TWO), BAD},
        {TEXT("HTTP/1.1 0200 X\r\n" TWO), BAD},
        {TEXT("HTTP/1.1 1000 X\r\n" TWO), BAD},
        {TEXT("HTTP/1.1 2000 X\r\n" TWO), BAD},
        {TEXT("HTTP/1.1 20 X\r\n" TWO), BAD},
        {TEXT("HTTP/1.1 2x0 X\r\n" TWO), BAD},
        {TEXT("HTTP/1.1 -200 X\r\n" TWO), BAD},
        {TEXT("HTTP/1.1 200X\r\n" TWO), BAD},
        {TEXT("HTTP/1.1  200 X\r\n" TWO), BAD},
        {TEXT("HTTP/1.1\t200 X\r\n" TWO), BAD},
        {TEXT("HTTP/1.1\r\n" TWO), BAD},
        {TEXT("HTTP/0.9 200 X\r\n" TWO), BAD},
        {TEXT("HTTP/1.2 200 X\r\n" TWO), BAD},
        {TEXT("HTTP/2.0 200 X\r\n" TWO), BAD},
        {TEXT("HTTP/2 200 X\r\n" TWO), BAD},
        {TEXT("http/1.1 200 X\r\n" TWO), BAD},
        {TEXT("ICY 200 X\r\n" TWO), BAD},
        {TEXT("\r\n" OK TWO), BAD},
        {TEXT("\n" OK TWO), BAD},
        {TEXT(" " OK TWO), BAD},
        {TEXT("\xef\xbb\xbf" OK TWO), BAD},
        {TEXT("\0" OK TWO), BAD},
        {TEXT("what do you want"), BAD},
        {TEXT("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), BAD},
        {TEXT("\x15\x03\x01\x00\x02\x02\x16"), BAD},
    };
    expect_rows(rows, ARRAY_SIZE(rows));
}

/* ---- what a call reads of a header ---- */

#define NOON_S 1795176000LL /* 2026-11-20T12:00:00Z, a Friday */
#define LONG_NAME \
    "X-A-Name-That-Is-Much-Longer-Than-Any-Of-Those-That-Are-Asked-For-And-Then-Some-More-Of-It-And-More-Of-It"

TEST(retry_after_and_type_are_those_of_the_header_alone)
{
    static const struct {
        const char *header;
        int64_t retry_after_ms;
        bool is_json;
    } rows[] = {
        {"Retry-After: 7\r\n", 7000, false},
        {"RETRY-after:7 \t \r\n", 7000, false},
        {"Retry-After: Fri, 20 Nov 2026 12:00:30 GMT\r\n", 30000, false},
        {"Retry-After: Fri, 20 Nov 2026 11:00:30 GMT\r\n", -1, false},
        {"Retry-After: soon\r\n", -1, false},
        {"Retry-After:\r\n", -1, false},
        {"Retry-After: -7\r\n", -1, false},
        {"Retry-After: 99999999999999999999\r\n", 300000, false},
        {"Retry-After: 7\r\nRetry-After: 9\r\n", 9000, false}, /* the last one counts */
        {"Retry-After: 7\r\nRetry-After: soon\r\n", -1, false},
        {"Content-Type: application/json\r\n", -1, true},
        {"Content-Type: application/json; charset=utf-8; and=a-text-that-goes-on-and-on-so-that-the-value-is-longer-"
         "than-the-room-for-it-which-is-a-hundred-and-twelve-bytes\r\n",
         -1, true},
        {"Content-Type: text/html\r\n", -1, false},
        {"Content-Type: application/json\r\nContent-Type: text/html\r\n", -1, false},
        {"Content-Type: application/json\r\nContent-Type:\r\n", -1, false},
        {"Content-TypeX: application/json\r\nRetry-AfterX: 7\r\n", -1, false},
        {"XContent-Type: application/json\r\nXRetry-After: 7\r\n", -1, false},
        {LONG_NAME ": application/json\r\n", -1, false},
        {LONG_NAME "Retry-After: 7\r\n", -1, false},
        {"Retry-After: 7\r\n" LONG_NAME ": " LONG_NAME LONG_NAME "\r\nContent-Type: application/problem+json\r\n", 7000,
         true},
        {"X: Retry-After: 7\r\n", -1, false},
    };
    static struct result result;
    clock_freeze(NOON_S * 1000000, 0);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        char text[1024];
        /* An interim answer's and a trailer's are another matter. */
        int length = snprintf(text, sizeof(text),
                              "HTTP/1.1 103 Hints\r\nRetry-After: 3\r\nContent-Type: application/json\r\n\r\n"
                              "HTTP/1.1 503 No\r\n%sTransfer-Encoding: chunked\r\n\r\n"
                              "2\r\nok\r\n0\r\nRetry-After: 5\r\nContent-Type: application/json\r\n\r\n",
                              rows[i].header);
        feed_all_ways(text, (size_t)length, false, &result);
        ck_assert_msg(result.state == HTTP_ANSWER_WHOLE, "%s: %s", result.objection, text);
        ck_assert_int_eq(result.status, 503);
        ck_assert_msg(result.retry_after_ms == rows[i].retry_after_ms, "%lld: %s", (long long)result.retry_after_ms,
                      text);
        ck_assert_msg(result.is_json == rows[i].is_json, "%s", text);
    }
    clock_release();
}

/* ---- limits ---- */

static char large[1300000];

/* First, then the piece `times` times, then the end. */
static size_t make_large(const char *first, const char *piece, size_t times, const char *end)
{
    size_t length = strlen(first), piece_length = strlen(piece);
    strcpy(large, first);
    for (; times > 0; times--, length += piece_length)
        memcpy(large + length, piece, piece_length + 1);
    strcpy(large + length, end);
    return length + strlen(end);
}

static void expect_large(size_t length, bool is_whole, const char *why)
{
    static struct result result;
    ck_assert_uint_lt(length, sizeof(large));
    for (size_t step = 1; step < 100000; step *= 37) {
        feed(large, length, step, step, false, &result);
        ck_assert_msg((result.state == HTTP_ANSWER_WHOLE) == is_whole, "%s", why);
        if (!is_whole)
            ck_assert_str_eq(result.objection, why);
    }
}

TEST(a_header_has_an_end)
{
    static const char why[] = "the answer's header is too large";
    expect_large(make_large(OK "X: ", "0123456789abcdef", 2000, "\r\n" TWO), true, "");
    expect_large(make_large(OK "X: ", "0123456789abcdef", 2112, "\r\n" TWO), false, why);
    expect_large(make_large(OK, "X: 0123456789abcd\r\n", 1600, TWO), true, "");
    expect_large(make_large(OK, "X: 0123456789abcd\r\n", 1800, TWO), false, why);
    expect_large(make_large(OK, "0123456789abcdef", 2112, ": x\r\n" TWO), false, why);
    expect_large(make_large(OK, "X:\r\n", 9000, TWO), false, why);
    expect_large(make_large("HTTP/1.1 200 ", "OK", 20000, "\r\n" TWO), false, why);
    /* with what comes before it, */
    expect_large(make_large("", "HTTP/1.1 100\r\n\r\n", 1000, OK TWO), true, "");
    expect_large(make_large("", "HTTP/1.1 100\r\n\r\n", 2100, OK TWO), false, why);
    /* and behind it */
    expect_large(make_large(CHUNKED "2;", "x", 30000, "\r\nok\r\n0\r\n\r\n"), true, "");
    expect_large(make_large(CHUNKED "2;", "x", 40000, "\r\nok\r\n0\r\n\r\n"), false, why);
    expect_large(make_large(CHUNKED, "1;xxxxxxxxxx=yyyyyyyy\r\na\r\n", 2000, "0\r\n\r\n"), false, why);
    expect_large(make_large(CHUNKED "0\r\n", "X: y\r\n", 4000, "\r\n"), true, "");
    expect_large(make_large(CHUNKED "0\r\n", "X: y\r\n", 8000, "\r\n"), false, why);
    expect_large(make_large(CHUNKED "0\r\n", "X:\r\n", 20000, "\r\n"), false, why);
}

TEST(a_body_has_an_end)
{
    static const char why[] = "the answer is too large";
    expect_large(make_large(OK "Content-Length: 65536\r\n\r\n", "0123456789abcdef", 4096, ""), true, "");
    expect_large(make_large(OK "Content-Length: 65537\r\n\r\n", "0123456789abcdef", 4096, "x"), false, why);
    expect_large(make_large(CHUNKED, "4\r\nabcd\r\n", 16384, "0\r\n\r\n"), true, "");
    expect_large(make_large(CHUNKED, "4\r\nabcd\r\n", 16384, "1\r\nx\r\n0\r\n\r\n"), false, why);
    expect_large(make_large(OK "\r\n", "0123456789abcdef", 4097, ""), false, why);
}

/* ---- memory ---- */

static enum http_answer_state take_without_memory(size_t length, size_t step, long n, long *ret_count)
{
    struct http_call call;
    struct http_answer answer;
    enum http_answer_state state = HTTP_ANSWER_GOES_ON;
    http_call_init(&call, BODY_MAX);
    http_answer_begin(&answer, &call, BODY_MAX);
    allocations_fail_at(n, 0);
    for (size_t used = 0; used < length && state == HTTP_ANSWER_GOES_ON; used += step) {
        size_t of_part, part = step < length - used ? step : length - used;
        state = http_answer_take(&answer, large + used, part, &of_part);
    }
    *ret_count = allocations_stop_failing();
    if (state == HTTP_ANSWER_BROKEN)
        ck_assert_str_eq(answer.objection, "out of memory for the answer");
    http_call_done(&call);
    return state;
}

TEST(an_answer_for_which_there_is_no_memory_is_none)
{
    size_t length = make_large(CHUNKED, "100\r\n", 1, "");
    for (int i = 0; i < 0x100; i++)
        large[length++] = 'm';
    length += (size_t)sprintf(large + length, "\r\n2000\r\n");
    for (int i = 0; i < 0x2000; i++)
        large[length++] = 'm';
    length += (size_t)sprintf(large + length, "\r\n0\r\n\r\n");
    for (size_t step = 100; step < 100000; step *= 10) {
        long count = 0, n = 1;
        for (; take_without_memory(length, step, n, &count) == HTTP_ANSWER_BROKEN; n++)
            ck_assert_int_eq(count, n);
        ck_assert_int_ge(n, 3); /* it grew at least twice */
        ck_assert_int_eq(count, n - 1);
    }
}

TESTS(http_answer)
