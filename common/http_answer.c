/* See http_answer.h.
 *
 * Invariants: an interim answer (1xx) is passed over and leaves nothing behind; of the header only what a call asks
 * for is kept, trailers say nothing; every callback that is not content says why in `objection`.
 * Left out: HTTP/0.9, upgrades, decoding of Content-Encoding. */
#include "common/http_answer.h"

#include <string.h>

#include "common/clock.h"
#include "common/http_client_internal.h"
#include "common/http_values.h"

static int object(struct http_answer *answer, const char *why)
{
    answer->objection = why;
    return HPE_USER;
}

static int count_header(struct http_answer *answer, size_t length)
{
    answer->header_bytes += length;
    return answer->header_bytes > HTTP_HEADER_MAX ? object(answer, "the answer's header is too large") : 0;
}

/* The length grows on past the room: longer than any of ours. */
static void add(char *room, size_t size, unsigned char *length, const char *bytes, size_t count)
{
    size_t fits = size - *length;
    if (count > fits)
        count = fits;
    memcpy(room + *length, bytes, count);
    *length = (unsigned char)(*length + count);
}

static int on_message_begin(llhttp_t *parser)
{
    struct http_answer *answer = parser->data;
    answer->header_is_whole = false;
    answer->name_length = answer->value_length = 0;
    answer->call->retry_after_ms = -1;
    answer->call->answer_is_json = false;
    return 0;
}

static int on_text(llhttp_t *parser, const char *at, size_t length)
{
    (void)at;
    return count_header(parser->data, length);
}

static int on_header_field(llhttp_t *parser, const char *at, size_t length)
{
    struct http_answer *answer = parser->data;
    add(answer->name, sizeof(answer->name), &answer->name_length, at, length);
    return count_header(answer, length);
}

static int on_header_value(llhttp_t *parser, const char *at, size_t length)
{
    struct http_answer *answer = parser->data;
    add(answer->value, sizeof(answer->value), &answer->value_length, at, length);
    return count_header(answer, length);
}

static int on_header_value_complete(llhttp_t *parser)
{
    struct http_answer *answer = parser->data;
    struct slice name = {.bytes = answer->name, .length = answer->name_length};
    struct slice value = {.bytes = answer->value, .length = answer->value_length};
    answer->name_length = answer->value_length = 0;
    if (answer->header_is_whole) /* a trailer */
        return 0;
    while (value.length > 0 && (value.bytes[value.length - 1] == ' ' || value.bytes[value.length - 1] == '\t'))
        value.length--;
    if (http_same_word(name, "retry-after"))
        answer->call->retry_after_ms = http_retry_after_ms(value, clock_wall_us() / 1000);
    else if (http_same_word(name, "content-type"))
        answer->call->answer_is_json = http_is_json(value);
    return count_header(answer, 4);
}

static int on_headers_complete(llhttp_t *parser)
{
    struct http_answer *answer = parser->data;
    answer->header_is_whole = true;
    return parser->status_code == 101 ? object(answer, "an upgrade that nobody asked for") : 0;
}

static int on_body(llhttp_t *parser, const char *at, size_t length)
{
    struct http_answer *answer = parser->data;
    struct buf *body = &answer->call->answer;
    if (length > answer->body_max - body->length)
        return object(answer, "the answer is too large");
    return buf_put(body, at, length) ? 0 : object(answer, "out of memory for the answer");
}

static int on_message_complete(llhttp_t *parser)
{
    struct http_answer *answer = parser->data;
    if (parser->status_code < 100)
        return object(answer, "the answer has no status");
    if (parser->status_code < 200) /* interim */
        return 0;
    answer->is_whole = true;
    answer->may_keep = llhttp_should_keep_alive(parser) == 1;
    answer->call->status = parser->status_code;
    return HPE_PAUSED;
}

static const llhttp_settings_t settings = {
    .on_message_begin = on_message_begin,
    .on_status = on_text,
    .on_header_field = on_header_field,
    .on_header_value = on_header_value,
    .on_header_value_complete = on_header_value_complete,
    .on_chunk_extension_name = on_text,
    .on_chunk_extension_value = on_text,
    .on_headers_complete = on_headers_complete,
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

static enum http_answer_state state_after(struct http_answer *answer, llhttp_errno_t error)
{
    if (answer->is_whole)
        return HTTP_ANSWER_WHOLE;
    if (error == HPE_OK)
        return HTTP_ANSWER_GOES_ON;
    if (!answer->objection)
        answer->objection = "the answer is not HTTP";
    return HTTP_ANSWER_BROKEN;
}

enum http_answer_state http_answer_take(struct http_answer *answer, const char *bytes, size_t length, size_t *ret_used)
{
    answer->has_begun = true;
    llhttp_errno_t error = llhttp_execute(&answer->parser, bytes, length);
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
