/* See http_answer.h.
 *
 * llhttp finds where an answer ends. What it accepts and other parsers may read differently is refused here: anything
 * before the status, a status other than three digits of HTTP/1, folded lines, lines that end with LF alone, NUL, an
 * encoding other than chunked, or stated twice. So the lines of header and trailers are checked before llhttp gets
 * them, and what stands behind the size of a chunk it does not get.
 *
 * Invariants: an interim answer (1xx) is skipped and leaves nothing behind; like 204 and 304 it has no body; of the
 * header only what a call needs is stored, trailers are ignored; every callback that fails sets `objection`.
 * Left out: HTTP/0.9, upgrades, decoding of Content-Encoding. */
#include "common/lib/http_client/http_answer.h"

#include <ctype.h>
#include <string.h>

#include "common/lib/base/secret.h"
#include "common/lib/http_client/http_values.h"

#define START_LENGTH 13 /* of a status line that is compared byte by byte */
#define WITHOUT_BODY 1  /* to llhttp, from on_headers_complete() */

static int reject(struct http_answer *answer, const char *why)
{
    answer->objection = why;
    return HPE_USER;
}

static int count_header(struct http_answer *answer, size_t length)
{
    answer->header_bytes += length;
    /* guard: a header has an end */
    return answer->header_bytes > HTTP_HEADER_MAX ? reject(answer, "the answer's header is too large") : 0;
}

/* ---- the lines of a header, as they come ---- */

/* HTTP/1.x, a blank, three digits, and what ends them. */
static bool fits_start(size_t at, char byte)
{
    static const char start[] = "HTTP/1.";
    if (at < sizeof(start) - 1)
        return byte == start[at];
    switch (at) {
    case 7:
        return byte == '0' || byte == '1';
    case 8:
        return byte == ' ';
    case 9:
        return byte >= '1' && byte <= '9';
    case START_LENGTH - 1:
        return byte == ' ' || byte == '\r';
    }
    return byte >= '0' && byte <= '9';
}

/* A line, or the part of one that is there. */
static bool check_line(struct http_answer *answer, const char *bytes, size_t length)
{
    for (size_t i = 0; i < length && answer->start_length < START_LENGTH; i++)
        /* guard: an answer begins with its status */
        if (!fits_start(answer->start_length++, bytes[i]))
            return false;
    /* guard: a folded line is refused */
    if (answer->line_length == 0 && (bytes[0] == ' ' || bytes[0] == '\t'))
        return false;
    if (bytes[length - 1] == '\n' && (length > 1 ? bytes[length - 2] : answer->last_byte) != '\r')
        return false;
    answer->line_length += length;
    answer->last_byte = bytes[length - 1];
    return true;
}

/* Returns the number of bytes that belong to the header, which ends with an empty line; 0 = there is an objection. */
static size_t check_header(struct http_answer *answer, const char *bytes, size_t length)
{
    size_t used = 0;
    for (bool is_over = false; used < length && !is_over;) {
        const char *end = memchr(bytes + used, '\n', length - used);
        size_t part = end ? (size_t)(end + 1 - (bytes + used)) : length - used;
        if (!check_line(answer, bytes + used, part)) {
            reject(answer, "the answer is not HTTP/1");
            return 0;
        }
        used += part;
        is_over = end && answer->line_length == 2;
        if (end)
            answer->line_length = 0;
    }
    return count_header(answer, used) == 0 ? used : 0;
}

/* ---- what llhttp finds ---- */

/* Cuts what does not fit; returns whether all of it did. */
static bool append(char *text, size_t size, unsigned char *length, const char *bytes, size_t count)
{
    size_t fits = size - *length, added = count < fits ? count : fits;
    memcpy(text + *length, bytes, added);
    *length = (unsigned char)(*length + added);
    return added == count;
}

static int on_message_begin(llhttp_t *parser)
{
    struct http_answer *answer = parser->data;
    answer->name_length = answer->value_length = 0;
    answer->value_is_cut = false;
    http_call_begin_answer(answer->call);
    return 0;
}

static int on_status(llhttp_t *parser, const char *at, size_t length)
{
    return memchr(at, '\0', length) ? reject(parser->data, "the answer is not HTTP/1") : 0;
}

static int on_header_field(llhttp_t *parser, const char *at, size_t length)
{
    struct http_answer *answer = parser->data;
    (void)append(answer->name, sizeof(answer->name), &answer->name_length, at, length);
    return 0;
}

static int on_header_value(llhttp_t *parser, const char *at, size_t length)
{
    struct http_answer *answer = parser->data;
    answer->value_is_cut |= !append(answer->value, sizeof(answer->value), &answer->value_length, at, length);
    return 0;
}

static int on_header_value_complete(llhttp_t *parser)
{
    struct http_answer *answer = parser->data;
    struct slice name = {.bytes = answer->name, .length = answer->name_length};
    struct slice value = {.bytes = answer->value, .length = answer->value_length};
    bool is_cut = answer->value_is_cut;
    answer->name_length = answer->value_length = 0;
    answer->value_is_cut = false;
    /* llhttp 6 accepts both. */
    bool is_trailer = answer->part == HTTP_ANSWER_TRAILER;
    if (name.length == 0 || (is_trailer && http_same_word(name, "content-length")))
        return reject(answer, "the answer is not HTTP");
    if (is_trailer)
        return 0;
    while (!is_cut && value.length > 0 &&
           (value.bytes[value.length - 1] == ' ' || value.bytes[value.length - 1] == '\t'))
        value.length--;
    bool is_encoding = http_same_word(name, "transfer-encoding");
    /* guard: a body in another encoding is refused */
    /* guard: an encoding that is stated twice is refused */
    if (is_encoding && (answer->has_encoding || !http_same_word(value, "chunked")))
        return reject(answer, "an encoding that was not requested");
    answer->has_encoding |= is_encoding;
    http_call_read_header(answer->call, name, value);
    return 0;
}

/* Whatever its header states. */
static bool has_no_body(const llhttp_t *parser)
{
    /* guard: an interim answer has no body */
    return parser->status_code < 200 || parser->status_code == 204 || parser->status_code == 304;
}

static int on_headers_complete(llhttp_t *parser)
{
    struct http_answer *answer = parser->data;
    if (parser->status_code == 101)
        return reject(answer, "an upgrade that was not requested");
    bool is_chunked = parser->flags & F_CHUNKED;
    if ((parser->flags & F_TRANSFER_ENCODING) && (!is_chunked || parser->http_minor == 0))
        return reject(answer, "an encoding that was not requested");
    answer->part = is_chunked ? HTTP_ANSWER_CHUNK_LINE : HTTP_ANSWER_BODY;
    return answer->ends_at_head || has_no_body(parser) ? WITHOUT_BODY : 0;
}

static int on_chunk_header(llhttp_t *parser)
{
    struct http_answer *answer = parser->data;
    answer->part = parser->content_length > 0 ? HTTP_ANSWER_CHUNK : HTTP_ANSWER_TRAILER;
    answer->left = parser->content_length < UINT64_MAX - 2 ? parser->content_length + 2 : UINT64_MAX;
    return 0;
}

/* The rest of the body is not read, so the connection cannot be used again. */
static int end_without_body(llhttp_t *parser)
{
    struct http_answer *answer = parser->data;
    buf_wipe(&answer->call->answer);
    answer->is_whole = true;
    answer->call->status = parser->status_code;
    return HPE_PAUSED;
}

static int on_body(llhttp_t *parser, const char *at, size_t length)
{
    struct http_answer *answer = parser->data;
    struct buf *body = &answer->call->answer;
    if (length > answer->body_max - body->length)
        return answer->call->status_is_enough ? end_without_body(parser) : reject(answer, "the answer is too large");
    return buf_put(body, at, length) ? 0 : reject(answer, "out of memory for the answer");
}

static int on_message_complete(llhttp_t *parser)
{
    struct http_answer *answer = parser->data;
    if (parser->status_code < 200) { /* interim */
        answer->part = HTTP_ANSWER_HEADER;
        answer->start_length = 0;
        answer->has_encoding = false;
        return 0;
    }
    /* A body that must not be there may follow all the same. */
    bool is_odd = has_no_body(parser) && (parser->content_length > 0 || (parser->flags & F_TRANSFER_ENCODING));
    answer->is_whole = true;
    answer->may_keep = llhttp_should_keep_alive(parser) == 1 && !is_odd;
    answer->call->status = parser->status_code;
    return HPE_PAUSED;
}

static const llhttp_settings_t settings = {
    .on_message_begin = on_message_begin,
    .on_status = on_status,
    .on_header_field = on_header_field,
    .on_header_value = on_header_value,
    .on_header_value_complete = on_header_value_complete,
    .on_headers_complete = on_headers_complete,
    .on_chunk_header = on_chunk_header,
    .on_body = on_body,
    .on_message_complete = on_message_complete,
};

void http_answer_begin(struct http_answer *answer, struct http_call *call, size_t body_max)
{
    memset(answer, 0, sizeof(*answer));
    llhttp_init(&answer->parser, HTTP_RESPONSE, &settings);
    answer->parser.data = answer;
    answer->call = call;
    answer->body_max = body_max < call->answer.max ? body_max : call->answer.max;
}

/* ---- the parts ---- */

/* A tab behind a length is white space as a blank is (RFC 9110, 5.6.3), but not to llhttp. */
static llhttp_errno_t read_header(struct http_answer *answer, const char *bytes, size_t length)
{
    llhttp_errno_t error = HPE_OK;
    while (length > 0 && error == HPE_OK) {
        const char *tab = memchr(bytes, '\t', length);
        size_t part = tab ? (size_t)(tab - bytes) : length;
        error = llhttp_execute(&answer->parser, bytes, part);
        struct slice name = {.bytes = answer->name, .length = answer->name_length};
        if (tab && error == HPE_OK)
            error = llhttp_execute(&answer->parser, http_same_word(name, "content-length") ? " " : "\t", 1);
        bytes += part + (tab != NULL);
        length -= part + (tab != NULL);
    }
    return error;
}

/* One byte behind the size of a chunk. Returns 0, or HPE_USER. */
static int check_behind_size(struct http_answer *answer, char byte)
{
    bool is_control = ((unsigned char)byte < 0x20 && byte != '\t') || byte == 0x7f, is_good = byte == '\r';
    if (answer->last_byte == '\r')
        is_good = byte == '\n' && chunk_extension_may_end(answer->extension);
    else if (!is_control && chunk_extension_accepts(&answer->extension, byte))
        return count_header(answer, 1);
    return is_good ? 0 : reject(answer, "the answer is not HTTP");
}

/* The size of a chunk, which llhttp gets, and what is behind it in its line. Returns the number of bytes used. */
static size_t read_chunk_line(struct http_answer *answer, const char *bytes, size_t length, llhttp_errno_t *ret_error)
{
    size_t size = 0, used;
    while (size < length && answer->extension == CHUNK_EXTENSION_NONE && answer->last_byte != '\r' &&
           isxdigit((unsigned char)bytes[size]))
        size++;
    *ret_error = llhttp_execute(&answer->parser, bytes, size);
    for (used = size; used < length && *ret_error == HPE_OK && answer->part == HTTP_ANSWER_CHUNK_LINE; used++) {
        *ret_error = (llhttp_errno_t)check_behind_size(answer, bytes[used]);
        answer->last_byte = bytes[used];
        if (bytes[used] == '\n' && *ret_error == HPE_OK)
            *ret_error = llhttp_execute(&answer->parser, "\r\n", 2);
    }
    return used;
}

static size_t read_part(struct http_answer *answer, const char *bytes, size_t length, llhttp_errno_t *ret_error)
{
    switch (answer->part) {
    case HTTP_ANSWER_HEADER:
    case HTTP_ANSWER_TRAILER:
        length = check_header(answer, bytes, length);
        *ret_error = read_header(answer, bytes, length);
        return length;
    case HTTP_ANSWER_CHUNK_LINE:
        return read_chunk_line(answer, bytes, length, ret_error);
    case HTTP_ANSWER_CHUNK:
        length = length < answer->left ? length : (size_t)answer->left;
        answer->left -= length;
        break;
    case HTTP_ANSWER_BODY:
        break;
    }
    *ret_error = llhttp_execute(&answer->parser, bytes, length);
    if (answer->part == HTTP_ANSWER_CHUNK && answer->left == 0) {
        answer->part = HTTP_ANSWER_CHUNK_LINE;
        answer->extension = CHUNK_EXTENSION_NONE;
        answer->last_byte = '\n';
    }
    return length;
}

static enum http_answer_state state_after(struct http_answer *answer, llhttp_errno_t error)
{
    if (answer->is_whole)
        return HTTP_ANSWER_WHOLE;
    if (error == HPE_OK && !answer->objection)
        return HTTP_ANSWER_GOES_ON;
    if (!answer->objection)
        answer->objection = "the answer is not HTTP";
    return HTTP_ANSWER_BROKEN;
}

enum http_answer_state http_answer_take(struct http_answer *answer, const char *bytes, size_t length, size_t *ret_used)
{
    llhttp_errno_t error = HPE_OK;
    size_t used = 0;
    answer->has_begun = true;
    while (used < length && error == HPE_OK && !answer->objection)
        used += read_part(answer, bytes + used, length - used, &error);
    *ret_used = answer->is_whole ? (size_t)(llhttp_get_error_pos(&answer->parser) - bytes) : length;
    return state_after(answer, error);
}

enum http_answer_state http_answer_close(struct http_answer *answer)
{
    llhttp_errno_t error = llhttp_finish(&answer->parser);
    if (!answer->is_whole && !answer->objection)
        answer->objection =
            answer->has_begun ? "the peer closed in the middle of its answer" : "the peer closed without an answer";
    enum http_answer_state state = state_after(answer, error);
    answer->may_keep = false;
    return state == HTTP_ANSWER_WHOLE ? HTTP_ANSWER_WHOLE : HTTP_ANSWER_BROKEN;
}

void http_answer_forget(struct http_answer *answer)
{
    secret_wipe(answer->name, sizeof(answer->name));
    secret_wipe(answer->value, sizeof(answer->value));
}
