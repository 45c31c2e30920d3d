/* Bytes into one HTTP request: the request line and the header block, and the order of its parts.
 *
 * The framing (where the header block, each chunk and the message end) is found by us, byte by byte, and llhttp is
 * given exactly those pieces; both must agree, so a request is accepted only when two readers see the same message.
 * That is the guard against request smuggling: RFC 9112 sections 2.2, 3, 5.2, 6 and 7 with every optional leniency left
 * out. llhttp (strict build) checks names, values, lengths and chunks; http_head.c adds the rules that it lacks.
 *
 * Invariants: the whole header block lies in one buffer, so the slices of the request stay valid until the reply; each
 * message gets a new llhttp parser, so no request influences the next; memory is bounded by the limits, whatever
 * arrives.
 * Left out: trailer fields are checked and dropped; Upgrade is ignored (RFC 9110 7.8 allows that). */
#include <string.h>
#include <strings.h>

#include "common/lib/http_server/http_parse_internal.h"

#define EMPTY_LINES_MAX 4 /* before a request line; RFC 9112 2.2 recommends to accept one */

int http_parse_refuse(struct http_parse *parse, int status, const char *detail)
{
    if (parse->slot.refusal.status == 0)
        parse->slot.refusal = (struct http_refusal){.status = status, .detail = detail};
    return -1;
}

/* ---- llhttp's callbacks ---- */

static int on_header_field(llhttp_t *parser, const char *at, size_t length)
{
    struct http_parse *parse = parser->data;
    struct http_request *request = &parse->slot.request;
    if (parse->part != HTTP_PART_FIELDS)
        return 0;
    if (request->header_count == HTTP_HEADERS_MAX)
        return http_parse_refuse(parse, 431, "too many header fields");
    request->headers[request->header_count].name = (struct slice){.bytes = at, .length = length};
    request->headers[request->header_count].value = (struct slice){.bytes = at + length, .length = 0};
    request->header_count++;
    return 0;
}

static int on_header_value(llhttp_t *parser, const char *at, size_t length)
{
    struct http_parse *parse = parser->data;
    struct http_request *request = &parse->slot.request;
    if (parse->part != HTTP_PART_FIELDS || request->header_count == 0)
        return 0;
    while (length > 0 && (at[length - 1] == ' ' || at[length - 1] == '\t'))
        length--;
    request->headers[request->header_count - 1].value = (struct slice){.bytes = at, .length = length};
    return 0;
}

static int on_headers_complete(llhttp_t *parser)
{
    struct http_parse *parse = parser->data;
    parse->head_seen = true;
    parse->slot.keep_alive = llhttp_should_keep_alive(parser);
    /* Otherwise "Upgrade: x" would make llhttp stop reading HTTP after this request. */
    parser->upgrade = 0;
    return 0;
}

static int on_body(llhttp_t *parser, const char *at, size_t length)
{
    struct http_parse *parse = parser->data;
    parse->body_length += length;
    if (parse->slot.request.drops_body || buf_put(&parse->body, at, length))
        return 0;
    parse->is_broken = true;
    return -1;
}

static int on_chunk_header(llhttp_t *parser)
{
    struct http_parse *parse = parser->data;
    parse->chunk_seen = true;
    parse->left = parser->content_length;
    return 0;
}

static int on_message_complete(llhttp_t *parser)
{
    struct http_parse *parse = parser->data;
    parse->end_seen = true;
    return HPE_PAUSED;
}

static const llhttp_settings_t callbacks = {
    .on_header_field = on_header_field,
    .on_header_value = on_header_value,
    .on_headers_complete = on_headers_complete,
    .on_body = on_body,
    .on_chunk_header = on_chunk_header,
    .on_message_complete = on_message_complete,
};

void http_parse_feed(struct http_parse *parse, const char *bytes, size_t length)
{
    llhttp_errno_t error = llhttp_execute(&parse->parser, bytes, length);
    bool is_fine = error == HPE_OK || (error == HPE_PAUSED && parse->end_seen);
    if (!is_fine && !parse->is_broken) {
        const char *reason = llhttp_get_error_reason(&parse->parser);
        http_parse_refuse(parse, 400, reason && reason[0] != '\0' ? reason : "malformed HTTP");
    }
}

/* ---- lines and the header block ---- */

static const char *fault_of(unsigned char byte, char last)
{
    if (byte == '\n')
        return last == '\r' ? NULL : "a line ends with a bare LF";
    if (last == '\r')
        return "a bare CR";
    return (byte >= 0x20 && byte != 0x7F) || byte == '\t' || byte == '\r' ? NULL : "a control character";
}

static bool is_plain(unsigned char byte)
{
    return byte >= 0x20 && byte != 0x7F;
}

size_t http_parse_take_line(struct http_parse *parse, const char *bytes, size_t length, size_t most, bool *ret_ended)
{
    size_t i = 0;
    char last = parse->last;
    length = length < most ? length : most;
    while (i < length && !*ret_ended) {
        unsigned char byte = (unsigned char)bytes[i];
        if (byte < 0x20 || byte == 0x7F || last == '\r') {
            const char *fault = fault_of(byte, last);
            if (fault && i == 0)
                http_parse_refuse(parse, 400, fault);
            if (fault)
                break;
            *ret_ended = byte == '\n';
        }
        last = *ret_ended ? '\0' : (char)byte;
        i++;
        if (is_plain((unsigned char)last)) { /* most bytes are; they need no look at the one before */
            while (i < length && is_plain((unsigned char)bytes[i]))
                i++;
            last = bytes[i - 1];
        }
    }
    parse->last = last;
    parse->line_length += i;
    return i;
}

/* Only once the header block is complete: until then its buffer may move. */
static void place_target(struct http_parse *parse)
{
    struct http_request *request = &parse->slot.request;
    const char *whole = parse->head.bytes + parse->line.method_length + 1, *end = whole + parse->line.target_length;
    const char *target = whole + parse->line.authority_length;
    const char *mark = memchr(target, '?', (size_t)(end - target));
    const char *path_end = mark ? mark : end, *query = mark ? mark + 1 : end;
    request->target = (struct slice){.bytes = target, .length = (size_t)(end - target)};
    request->path = (struct slice){.bytes = target, .length = (size_t)(path_end - target)};
    request->query = (struct slice){.bytes = query, .length = (size_t)(end - query)};
}

static void check_fields(struct http_parse *parse)
{
    struct http_slot *slot = &parse->slot;
    bool has_expect = false;
    struct http_refusal refusal = http_check_fields(&slot->request, parse->line.is_1_0, &has_expect);
    if (refusal.status == 0 && parse->line.authority_length > 0)
        refusal = http_check_authority(&slot->request,
                                       (struct slice){.bytes = parse->head.bytes + parse->line.method_length + 1,
                                                      .length = parse->line.authority_length});
    if (refusal.status != 0)
        http_parse_refuse(parse, refusal.status, refusal.detail);
    else if (!parse->end_seen && !(parse->parser.flags & F_CHUNKED) &&
             parse->parser.content_length > parse->limits->body_max)
        http_parse_refuse(parse, 413, "the body is too large");
    slot->wants_continue = has_expect && !parse->end_seen;
}

/* A tab behind a length is white space as a blank is (RFC 9110, 5.6.3), but not to llhttp. */
static void blank_tabs(char *line, size_t length)
{
    static const char name[] = "content-length:";
    for (char *end; (end = memchr(line, '\n', length)); length -= (size_t)(end + 1 - line), line = end + 1) {
        char *tab = strncasecmp(line, name, sizeof(name) - 1) == 0 ? line : end;
        while ((tab = memchr(tab, '\t', (size_t)(end - tab))))
            *tab = ' ';
    }
}

static void finish_head(struct http_parse *parse)
{
    if (memchr(parse->head.bytes, '\t', parse->head.length))
        blank_tabs(parse->head.bytes, parse->head.length);
    llhttp_init(&parse->parser, HTTP_REQUEST, &callbacks);
    parse->parser.data = parse;
    const char *bytes = parse->head.bytes;
    size_t length = parse->head.length;
    if (parse->slot.request.method == HTTP_OTHER) {
        /* llhttp knows a fixed list of methods and frames two of them in its own way. To the framing all are alike (RFC
         * 9112 6), and whether a method is served is for the router to decide. */
        http_parse_feed(parse, "PUT", 3);
        bytes += parse->line.method_length;
        length -= parse->line.method_length;
    }
    if (!http_parse_is_stopped(parse))
        http_parse_feed(parse, bytes, length);
    if (!http_parse_is_stopped(parse) && !parse->head_seen)
        http_parse_refuse(parse, 400, "malformed header block");
    if (http_parse_is_stopped(parse))
        return;
    place_target(parse);
    check_fields(parse);
    if (parse->end_seen) {
        parse->part = HTTP_PART_END;
    } else if (parse->parser.flags & F_CHUNKED) {
        parse->part = HTTP_PART_CHUNK_LINE;
    } else {
        parse->part = HTTP_PART_BODY;
        parse->left = parse->parser.content_length;
    }
}

static void put_head(struct http_parse *parse, const char *bytes, size_t length)
{
    if (!buf_put(&parse->head, bytes, length))
        parse->is_broken = true;
}

static size_t read_request_line(struct http_parse *parse, const char *bytes, size_t length)
{
    size_t most = parse->limits->target_max + HTTP_REQUEST_LINE_EXTRA - parse->line_length;
    if (most == 0) {
        http_parse_refuse(parse, 414, "the request line is too long");
        return 0;
    }
    bool has_ended = false;
    size_t used = http_parse_take_line(parse, bytes, length, most, &has_ended);
    if (http_parse_is_stopped(parse))
        return used;
    if (has_ended && parse->line_length == 2) {
        if (++parse->empty_lines > EMPTY_LINES_MAX)
            http_parse_refuse(parse, 400, "too many empty lines");
        buf_reset(&parse->head);
        parse->line_length = 0;
        return used;
    }
    put_head(parse, bytes, used);
    if (!has_ended || parse->is_broken)
        return used;
    parse->line_length = 0;
    parse->part = HTTP_PART_FIELDS;
    struct slice line = {.bytes = parse->head.bytes, .length = parse->head.length - 2};
    struct http_refusal refusal = http_check_line(line, parse->limits->target_max, &parse->line);
    if (refusal.status != 0)
        http_parse_refuse(parse, refusal.status, refusal.detail);
    parse->slot.request.method = parse->line.method;
    parse->slot.is_1_0 = parse->line.is_1_0;
    return used;
}

size_t http_parse_take_field_line(struct http_parse *parse, const char *bytes, size_t length, bool *ret_end)
{
    if (parse->line_length == 0 && (bytes[0] == ' ' || bytes[0] == '\t' || bytes[0] == ':')) {
        http_parse_refuse(parse, 400, bytes[0] == ':' ? "a header field without a name" : "a folded header field");
        return 0;
    }
    size_t most = parse->limits->header_max - parse->block_length;
    if (most == 0) {
        http_parse_refuse(parse, 431, "the header block is too large");
        return 0;
    }
    bool has_ended = false;
    size_t used = http_parse_take_line(parse, bytes, length, most, &has_ended);
    parse->block_length += used;
    if (has_ended) {
        *ret_end = parse->line_length == 2;
        parse->line_length = 0;
    }
    return used;
}

static size_t read_fields(struct http_parse *parse, const char *bytes, size_t length)
{
    bool is_end = false;
    size_t used = 0;
    while (used < length && !is_end && !http_parse_is_stopped(parse))
        used += http_parse_take_field_line(parse, bytes + used, length - used, &is_end);
    if (http_parse_is_stopped(parse))
        return used;
    put_head(parse, bytes, used);
    if (is_end && !parse->is_broken)
        finish_head(parse);
    return used;
}

/* ---- the parts of a message ---- */

static size_t read_some(struct http_parse *parse, const char *bytes, size_t length)
{
    switch (parse->part) {
    case HTTP_PART_REQUEST_LINE:
        return read_request_line(parse, bytes, length);
    case HTTP_PART_FIELDS:
        return read_fields(parse, bytes, length);
    case HTTP_PART_BODY:
        return http_parse_body(parse, bytes, length);
    case HTTP_PART_CHUNK_LINE:
        return http_parse_chunk_line(parse, bytes, length);
    case HTTP_PART_CHUNK_DATA:
        return http_parse_chunk_data(parse, bytes, length);
    case HTTP_PART_TRAILER:
        return http_parse_trailer(parse, bytes, length);
    case HTTP_PART_END:
        break;
    }
    return 0;
}

enum http_progress http_slot_read(struct http_slot *slot, const char *bytes, size_t length, size_t *ret_used)
{
    struct http_parse *parse = http_parse_of(slot);
    bool was_head = parse->part <= HTTP_PART_FIELDS, is_head = was_head;
    size_t used = 0;
    while (used < length && parse->part != HTTP_PART_END && !http_parse_is_stopped(parse) && is_head == was_head) {
        used += read_some(parse, bytes + used, length - used);
        is_head = parse->part <= HTTP_PART_FIELDS;
    }
    *ret_used = used;
    if (parse->is_broken)
        return HTTP_BROKEN;
    if (slot->refusal.status != 0)
        return HTTP_REFUSED;
    if (parse->part == HTTP_PART_END) {
        slot->request.body = buf_slice(&parse->body);
        return HTTP_COMPLETE;
    }
    return is_head == was_head ? HTTP_MORE : HTTP_HEAD_DONE;
}
