/* One HTTP reply into bytes (RFC 9110, 9112).
 *
 * Invariants: a reply is built as a whole or not at all; it always has its length, so the client never has to guess
 * where it ends; no header value can end its line. Left out: sending (http_conn_write.c). */
#include <string.h>
#include <time.h>

#include "common/lib/base/clock.h"
#include "common/lib/http_server/http_server_internal.h"

#define US_PER_SECOND 1000000
#define FIXED_MAX 256 /* status line, Date, Connection, Content-Length: what does not depend on the caller's texts */

static const struct {
    int status;
    const char *reason;
} reasons[] = {
    {200, "OK"},
    {201, "Created"},
    {202, "Accepted"},
    {204, "No Content"},
    {301, "Moved Permanently"},
    {302, "Found"},
    {303, "See Other"},
    {304, "Not Modified"},
    {307, "Temporary Redirect"},
    {308, "Permanent Redirect"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {406, "Not Acceptable"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {410, "Gone"},
    {411, "Length Required"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {415, "Unsupported Media Type"},
    {417, "Expectation Failed"},
    {422, "Unprocessable Content"},
    {425, "Too Early"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {502, "Bad Gateway"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
};

/* The phrase is for people only (RFC 9112 4), and may be empty. */
static const char *reason_of(int status)
{
    for (size_t i = 0; i < ARRAY_SIZE(reasons); i++) {
        if (reasons[i].status == status)
            return reasons[i].reason;
    }
    return "";
}

/* strftime() would follow the locale; RFC 9110 5.6.7 does not. */
static void write_date(char text[30], time_t second)
{
    static const char days[] = "SunMonTueWedThuFriSat", months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    struct tm tm;
    gmtime_r(&second, &tm);
    int year = tm.tm_year + 1900;
    memcpy(text, "Sun, 00 Jan 0000 00:00:00 GMT", 30);
    memcpy(text, days + 3 * tm.tm_wday, 3);
    memcpy(text + 8, months + 3 * tm.tm_mon, 3);
    const struct {
        int at, value;
    } numbers[] = {{5, tm.tm_mday},  {12, year / 100 % 100}, {14, year % 100},
                   {17, tm.tm_hour}, {20, tm.tm_min},        {23, tm.tm_sec % 60}};
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
        text[numbers[i].at] = (char)('0' + numbers[i].value / 10);
        text[numbers[i].at + 1] = (char)('0' + numbers[i].value % 10);
    }
}

static const char *date_text(struct http_date *date)
{
    int64_t second = clock_wall_us() / US_PER_SECOND;
    if (second != date->second || date->text[0] == '\0') {
        write_date(date->text, (time_t)second);
        date->second = second;
    }
    return date->text;
}

/* A value with a line break would let the client that chose the value write header fields; such a field is left out. */
static bool is_safe(const char *text, size_t length)
{
    unsigned faults = 0; /* no early end: so it is a few wide instructions */
    for (size_t i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)text[i];
        faults |= (unsigned)(byte < 0x20 && byte != '\t') | (unsigned)(byte == 0x7F);
    }
    return faults == 0;
}

static char *put(char *at, const char *text)
{
    size_t length = strlen(text);
    memcpy(at, text, length);
    return at + length;
}

static char *put_number(char *at, size_t number)
{
    char digits[20];
    size_t count = 0;
    do {
        digits[count++] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    while (count > 0)
        *at++ = digits[--count];
    return at;
}

static char *put_field(char *at, const char *name, const char *value)
{
    if (!value)
        return at;
    size_t name_length = strlen(name), value_length = strlen(value);
    if (!is_safe(name, name_length) || !is_safe(value, value_length))
        return at;
    memcpy(at, name, name_length);
    at = put(at + name_length, ": ");
    memcpy(at, value, value_length);
    return put(at + value_length, "\r\n");
}

static size_t field_size(const char *name, const char *value)
{
    return value ? strlen(name) + strlen(value) + 4 : 0;
}

static size_t size_most(const struct http_reply *reply, const struct http_reply_style *style)
{
    size_t size = FIXED_MAX + reply->body_length;
    size += field_size("Server", style->server_name) + field_size("Content-Type", reply->content_type);
    for (int i = 0; i < HTTP_REPLY_HEADERS_MAX && reply->headers[i].name; i++)
        size += field_size(reply->headers[i].name, reply->headers[i].value);
    return size;
}

static char *put_status_line(char *at, int status)
{
    at = put_number(put(at, "HTTP/1.1 "), (size_t)status);
    return put(put(put(at, " "), reason_of(status)), "\r\n");
}

bool http_reply_build(struct buf *out, const struct http_reply *reply, const struct http_reply_style *style)
{
    int status = reply->status >= 200 && reply->status <= 599 ? reply->status : 500;
    bool has_content = status != 204 && status != 304; /* RFC 9110 6.4.1, 8.6 */
    char *start = buf_reserve(out, size_most(reply, style));
    if (!start)
        return false;
    char *at = put_status_line(start, status);
    at = put_field(at, "Date", date_text(style->date));
    at = put_field(at, "Server", style->server_name);
    if (has_content) {
        at = put_field(at, "Content-Type", reply->content_type);
        at = put(put_number(put(at, "Content-Length: "), reply->body_length), "\r\n");
    }
    if (style->is_last)
        at = put(at, "Connection: close\r\n");
    else if (style->say_keep_alive || style->idle_ms > 0)
        at = put(at, "Connection: keep-alive\r\n");
    if (!style->is_last && style->idle_ms > 0) /* rounded down: the client closes first */
        at = put(put_number(put(at, "Keep-Alive: timeout="), (size_t)(style->idle_ms / 1000)), "\r\n");
    for (int i = 0; i < HTTP_REPLY_HEADERS_MAX && reply->headers[i].name; i++)
        at = put_field(at, reply->headers[i].name, reply->headers[i].value);
    at = put(at, "\r\n");
    if (has_content && !style->no_body && reply->body_length > 0) {
        memcpy(at, reply->body, reply->body_length);
        at += reply->body_length;
    }
    out->length += (size_t)(at - start);
    out->bytes[out->length] = '\0';
    return true;
}
