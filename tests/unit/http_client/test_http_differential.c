/* Two readers of the same bytes: our reader of answers, over real connections, in clear text and through TLS, and
 * libcurl's, in clear text. The answers are good ones that were spoilt at random. Whenever ours reports that it was
 * answered, libcurl must have been, with the same status and body; that ours refuses what libcurl takes is allowed. A
 * longer run: HTTP_DIFFERENTIAL=<answers>[,<seed>]; with HTTP_DIFFERENTIAL_LIST=1 it prints what only libcurl takes. */
#include <check.h>
#include <ctype.h>
#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/lib/base/clock.h"
#include "common/lib/http_client/http_client.h"
#include "common/lib/http_client/http_values.h"
#include "tests/unit/scripted_peer.h"
#include "tests/support/suite.h"

#define TEXT_MAX 4096

/* ---- spoilt answers ---- */

#define OK "HTTP/1.1 200 OK\r\n"
#define TWO "Content-Length: 2\r\n\r\nok"
#define CHUNKED OK "Transfer-Encoding: chunked\r\n\r\n"
#define JSON "Content-Type: application/json\r\n"
#define INTERIM "HTTP/1.1 100 Continue\r\n\r\n"

static const char *const good[] = {
    OK TWO,
    OK JSON "Content-Length: 12\r\n\r\n{\"id\": \"123\"}",
    CHUNKED "2\r\nok\r\n0\r\n\r\n",
    CHUNKED "5;a=b\r\nhello\r\n6\r\n world\r\n0\r\nX: y\r\nRetry-After: 3\r\n\r\n",
    "HTTP/1.1 201 Created\r\nDate: Fri, 20 Nov 2026 12:00:00 GMT\r\nServer: x\r\n" JSON
    "Connection: keep-alive\r\n" TWO,
    OK "\r\nuntil the close",
    "HTTP/1.0 200 OK\r\n" JSON "\r\n{}",
    "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n" TWO,
    INTERIM OK TWO,
    "HTTP/1.1 103 Early Hints\r\nLink: </x>; rel=preload\r\n\r\n" INTERIM OK JSON TWO,
    "HTTP/1.1 429 Slow down\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 503 No\r\nRetry-After: 120\r\nConnection: close\r\n" TWO,
    "HTTP/1.1 204 No Content\r\n\r\n",
    "HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\n\r\n",
    "HTTP/1.1 422 No\r\nContent-Type: application/problem+json; charset=utf-8\r\nContent-Length: 15\r\n\r\n{\"code\": "
    "\"none\"}",
    OK "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
    OK TWO OK TWO,
};

static const char *const pieces[] = {
    "\r\n",
    "\n",
    "\r",
    " ",
    "\t",
    ":",
    ";",
    ",",
    "0",
    "1",
    "2",
    "9",
    "-",
    "+",
    "x",
    "a",
    "\"",
    "\r\n ",
    "\r\n\r\n",
    "\r\n\t",
    "HTTP/1.1 ",
    "HTTP/1.0 ",
    "200",
    "100",
    "204",
    "304",
    "101",
    "99999999999999999999",
    OK,
    INTERIM,
    TWO,
    "Content-Length: 2\r\n",
    "Content-Length: 1\r\n",
    "Content-Length:",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: gzip\r\n",
    "Transfer-Encoding: gzip, chunked\r\n",
    "Connection: close\r\n",
    "Connection: upgrade\r\n",
    "Upgrade: h2c\r\n",
    "Retry-After: 1\r\n",
    "0\r\n\r\n",
    "1\r\nx\r\n",
    "ffffffffffffffff\r\n",
    "chunked",
    "identity",
    "close",
    "Content-Encoding: gzip\r\n",
    "Location: /x\r\n",
    "Set-Cookie: a=b\r\n",
    "X: y\r\n",
};

static unsigned int seed;

static size_t any(size_t count)
{
    return (size_t)rand_r(&seed) % count;
}

static void replace(char *bytes, size_t *length, size_t at, size_t count, const char *by, size_t by_length)
{
    if (*length - count + by_length > TEXT_MAX)
        return;
    memmove(bytes + at + by_length, bytes + at + count, *length - at - count);
    memcpy(bytes + at, by, by_length);
    *length = *length - count + by_length;
}

static void spoil(char *bytes, size_t *length)
{
    size_t at = any(*length + 1), rest = *length - at, count = any(rest < 12 ? rest + 1 : 12);
    const char *piece = pieces[any(ARRAY_SIZE(pieces))];
    char copy[64], byte = (char)any(256);
    switch (any(8)) {
    case 0:
        replace(bytes, length, at, count, "", 0);
        break;
    case 1:
        replace(bytes, length, at, rest > 0, &byte, 1);
        break;
    case 2:
        memcpy(copy, bytes + at, count);
        replace(bytes, length, any(*length + 1), 0, copy, count);
        break;
    case 3: /* cut off */
        *length = any(4) == 0 ? at : *length;
        break;
    case 4: { /* a digit for a digit, or what stands in its place */
        char digit = "0123456789abcdefA -+"[any(20)];
        while (at < *length && !isdigit((unsigned char)bytes[at]))
            at++;
        replace(bytes, length, at, at < *length, &digit, 1);
        break;
    }
    case 5: /* at the beginning of a line */
        while (at < *length && (at == 0 || bytes[at - 1] != '\n'))
            at++;
        replace(bytes, length, at, 0, piece, strlen(piece));
        break;
    default:
        replace(bytes, length, at, any(3) == 0 ? count : 0, piece, strlen(piece));
    }
}

static size_t make_answer(char *bytes)
{
    const char *text = good[any(ARRAY_SIZE(good))];
    size_t length = strlen(text);
    memcpy(bytes, text, length + 1);
    for (size_t left = any(5); left > 0; left--)
        spoil(bytes, &length);
    return length;
}

/* ---- libcurl's reading ---- */

struct reading {
    bool is_answer;
    CURLcode code;
    int status;
    size_t length;
    char body[2 * TEXT_MAX];
    bool is_whole, is_json;
    int64_t retry_after_ms;
    struct http_call noting; /* for its noted headers only */
};

static CURLM *multi;
static const char *const noted_headers[] = {"retry-after", "content-type", "connection", "x", NULL};

static size_t on_body(char *bytes, size_t one, size_t length, void *context)
{
    (void)one;
    struct reading *reading = context;
    memcpy(reading->body + reading->length, bytes, length);
    reading->length += length;
    return length;
}

/* Splits "Name: value CR LF"; false if it is not a header line. */
static bool split_header(struct slice line, struct slice *ret_name, struct slice *ret_value)
{
    const char *colon = line.length > 0 ? memchr(line.bytes, ':', line.length) : NULL;
    if (!colon || colon == line.bytes)
        return false;
    size_t before = (size_t)(colon - line.bytes);
    *ret_name = (struct slice){.bytes = line.bytes, .length = before};
    *ret_value = (struct slice){.bytes = colon + 1, .length = line.length - before - 1};
    while (ret_value->length > 0 && strchr("\r\n", ret_value->bytes[ret_value->length - 1]))
        ret_value->length--;
    *ret_value = slice_trim(*ret_value);
    return true;
}

static size_t on_header(char *bytes, size_t one, size_t length, void *context)
{
    (void)one;
    struct reading *reading = context;
    struct slice name, value, line = {.bytes = bytes, .length = length};
    if (length >= 5 && memcmp(bytes, "HTTP/", 5) == 0) {
        reading->retry_after_ms = -1;
        reading->is_json = reading->is_whole = false;
        http_call_begin_answer(&reading->noting);
    } else if (bytes[0] == '\r' || bytes[0] == '\n') {
        reading->is_whole = true;
    } else if (!reading->is_whole && split_header(line, &name, &value)) {
        http_call_read_header(&reading->noting, name, value);
        if (http_same_word(name, "retry-after"))
            reading->retry_after_ms = http_retry_after_ms(value, clock_wall_us() / 1000);
        else if (http_same_word(name, "content-type"))
            reading->is_json = http_is_json(value);
    }
    return length;
}

/* One for each answer: 7.88 crashes when the second answer that a handle reads begins with a folded line
 * (curl/curl#11101). */
static CURL *make_easy(struct reading *reading)
{
    CURL *easy = curl_easy_init();
    char url[64];
    snprintf(url, sizeof(url), "http://127.0.0.1:%d/spoilt", scripted.port);
    curl_easy_setopt(easy, CURLOPT_URL, url);
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, 1L);
    curl_easy_setopt(easy, CURLOPT_HTTP09_ALLOWED, 0L);
    curl_easy_setopt(easy, CURLOPT_POSTFIELDS, "{}");
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, reading);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, reading);
    return easy;
}

static void read_by_curl(const char *bytes, size_t length, struct reading *reading)
{
    int running = 1, left, fd = -1;
    long status = 0;
    CURL *easy = make_easy(reading);
    SSL_CTX *tls = scripted.tls;
    scripted.tls = NULL;
    reading->length = 0;
    reading->retry_after_ms = -1;
    reading->is_whole = reading->is_json = false;
    reading->noting.noted_headers = noted_headers;
    http_call_begin_answer(&reading->noting);
    reading->code = CURLE_OK;
    ck_assert_int_eq(curl_multi_add_handle(multi, easy), CURLM_OK);
    while (curl_multi_perform(multi, &running) == CURLM_OK && running) {
        if (fd < 0 && scripted_has_connection()) {
            fd = scripted_accept();
            scripted_send_bytes(fd, bytes, length);
            shutdown(fd, SHUT_WR);
        } else {
            curl_multi_poll(multi, NULL, 0, fd < 0 ? 0 : 1000, NULL);
        }
    }
    CURLMsg *message = curl_multi_info_read(multi, &left);
    ck_assert_ptr_nonnull(message);
    reading->code = message->data.result;
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    reading->status = (int)status;
    reading->is_answer = reading->code == CURLE_OK && reading->is_whole && status >= 200 && status <= 999;
    curl_multi_remove_handle(multi, easy);
    curl_easy_cleanup(easy);
    close(fd);
    scripted.tls = tls;
}

/* ---- ours ---- */

enum end { CLOSES, RESETS, WAITS, ENDS };

static void read_by_us(const char *bytes, size_t length, enum end end, struct scripted_call *call)
{
    scripted_prepare(call, "POST", "/spoilt");
    call->call.noted_headers = noted_headers;
    scripted_start(call);
    int fd = scripted_accept();
    scripted_receive_any(fd);
    for (size_t at = 0, part; at < length; at += part) {
        part = any(3) == 0 ? 1 + any(length - at) : length - at;
        scripted_send_bytes(fd, bytes + at, part);
        if (at + part < length)
            scripted_run_once();
    }
    if (end == WAITS)
        scripted_settle();
    if (end == RESETS)
        scripted_reset(fd);
    else
        scripted_end(fd);
    scripted_wait(call);
    scripted_run_once(); /* the next call shall have a connection of its own */
    if (end != RESETS)
        scripted_close(fd);
    scripted_settle();
}

/* ---- the comparison ---- */

/* libcurl has a limit of its own for the digits of a chunk's size; their value is the same. */
static bool has_long_number(const char *bytes, size_t length)
{
    size_t digits = 0;
    for (size_t i = 0; i < length && digits <= 16; i++)
        digits = isxdigit((unsigned char)bytes[i]) ? digits + 1 : 0;
    return digits > 16;
}

static char *shown(const char *bytes, size_t length)
{
    static char text[4 * TEXT_MAX + 1];
    char *out = text;
    for (size_t i = 0; i < length; i++)
        out += bytes[i] >= 0x20 && bytes[i] < 0x7f ? sprintf(out, "%c", bytes[i])
                                                   : sprintf(out,
                                                             bytes[i] == '\r'   ? "\\r"
                                                             : bytes[i] == '\n' ? "\\n"
                                                                                : "\\x%02x",
                                                             (unsigned char)bytes[i]);
    *out = '\0';
    return text;
}

static void expect_no_more_than_curl(const char *bytes, size_t length, const struct http_call *call,
                                     const struct reading *reading)
{
    if (call->result != HTTP_ANSWERED)
        return;
    if (!reading->is_answer && has_long_number(bytes, length))
        return;
    bool is_same = reading->is_answer && call->status == reading->status && call->answer.length == reading->length &&
                   memcmp(call->answer.bytes ? call->answer.bytes : "", reading->body, reading->length) == 0;
    ck_assert_msg(is_same, "ours: %d, %zu bytes; libcurl: %s, %d, %zu bytes: %s", call->status, call->answer.length,
                  curl_easy_strerror(reading->code), reading->status, reading->length, shown(bytes, length));
    ck_assert_msg(call->retry_after_ms == reading->retry_after_ms && call->answer_is_json == reading->is_json,
                  "ours: %lld, %d; libcurl: %lld, %d: %s", (long long)call->retry_after_ms, (int)call->answer_is_json,
                  (long long)reading->retry_after_ms, (int)reading->is_json, shown(bytes, length));
    for (int i = 0; i < HTTP_NOTED_MAX; i++)
        ck_assert_msg(strcmp(call->noted[i], reading->noting.noted[i]) == 0, "%s, ours: \"%s\"; libcurl: \"%s\": %s",
                      noted_headers[i], call->noted[i], reading->noting.noted[i], shown(bytes, length));
}

START_TEST(what_is_an_answer_to_us_is_the_same_answer_to_libcurl)
{
    const char *setting = getenv("HTTP_DIFFERENTIAL"), *comma = setting ? strchr(setting, ',') : NULL;
    int answers = setting ? atoi(setting) : scripted.tls ? 1000 : 5000, ours = 0, both = 0, theirs = 0;
    bool lists = getenv("HTTP_DIFFERENTIAL_LIST") != NULL;
    static struct reading reading;
    static char bytes[TEXT_MAX + 1];
    seed = comma ? (unsigned int)atoi(comma + 1) : 4711;
    multi = curl_multi_init();
    for (int i = 0; i < answers; i++) {
        struct scripted_call call;
        enum end end = (enum end)any(ENDS);
        size_t length = make_answer(bytes);
        read_by_us(bytes, length, end, &call);
        read_by_curl(bytes, length, &reading);
        expect_no_more_than_curl(bytes, length, &call.call, &reading);
        ours += call.call.result == HTTP_ANSWERED;
        theirs += reading.is_answer;
        both += reading.is_answer && call.call.result == HTTP_ANSWERED;
        if (lists && reading.is_answer && call.call.result != HTTP_ANSWERED && end != RESETS)
            printf("%s | %s\n", call.call.error, shown(bytes, length));
        http_call_done(&call.call);
    }
    curl_multi_cleanup(multi);
    if (lists)
        printf("of %d: ours %d, libcurl's %d, both %d\n", answers, ours, theirs, both);
    /* else it compares nothing */
    ck_assert_int_gt(both, answers / 10);
    ck_assert_int_lt(ours, answers * 9 / 10);
}

static void add_test(Suite *suite, const char *scheme, void (*set_up)(void))
{
    TCase *tests = tcase_create(scheme);
    tcase_add_checked_fixture(tests, set_up, scripted_tear_down);
    tcase_set_timeout(tests, 100000);
    tcase_add_test(tests, what_is_an_answer_to_us_is_the_same_answer_to_libcurl);
    suite_add_tcase(suite, tests);
}

SUITE(http_differential)
{
    add_test(suite, "http", scripted_set_up);
    add_test(suite, "https", scripted_set_up_tls);
}
