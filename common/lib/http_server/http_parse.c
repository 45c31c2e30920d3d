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
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "common/lib/http_server/http_parse_internal.h"

#define EMPTY_LINES_MAX 4 /* before a request line; RFC 9112 2.2 recommends to accept one */
#define CHUNK_DIGITS_MAX 16
#define CHUNK_EXTENSION_MAX 256   /* of one chunk */
#define CHUNK_EXTENSIONS_MAX 4096 /* of all chunks of a message */
#define CHUNK_LINE_MAX (CHUNK_DIGITS_MAX + CHUNK_EXTENSION_MAX + 2)

static bool is_stopped(const struct http_parse *parse)
{
    return parse->slot.refusal.status != 0 || parse->is_broken;
}

/* Refuses the request, unless it is refused already. Returns -1, which stops llhttp when a callback returns it. */
static int refuse(struct http_parse *parse, int status, const char *detail)
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
        return refuse(parse, 431, "too many header fields");
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

/* Gives bytes to llhttp; refuses the request when llhttp does. */
static void feed(struct http_parse *parse, const char *bytes, size_t length)
{
    llhttp_errno_t error = llhttp_execute(&parse->parser, bytes, length);
    bool is_fine = error == HPE_OK || (error == HPE_PAUSED && parse->end_seen);
    if (!is_fine && !parse->is_broken) {
        const char *reason = llhttp_get_error_reason(&parse->parser);
        refuse(parse, 400, reason && reason[0] != '\0' ? reason : "malformed HTTP");
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

/* Takes bytes up to and with the next LF, and of those `most` at most. Every line ends in CRLF and holds no other
 * control byte than HT. A bad byte is refused only when it is the first: llhttp is to see those before it first, and
 * may refuse one of them. */
static size_t take_line(struct http_parse *parse, const char *bytes, size_t length, size_t most, bool *ret_ended)
{
    size_t i = 0;
    char last = parse->last;
    length = length < most ? length : most;
    while (i < length && !*ret_ended) {
        unsigned char byte = (unsigned char)bytes[i];
        if (byte < 0x20 || byte == 0x7F || last == '\r') {
            const char *fault = fault_of(byte, last);
            if (fault && i == 0)
                refuse(parse, 400, fault);
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
        refuse(parse, refusal.status, refusal.detail);
    else if (!parse->end_seen && !(parse->parser.flags & F_CHUNKED) &&
             parse->parser.content_length > parse->limits->body_max)
        refuse(parse, 413, "the body is too large");
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
        feed(parse, "PUT", 3);
        bytes += parse->line.method_length;
        length -= parse->line.method_length;
    }
    if (!is_stopped(parse))
        feed(parse, bytes, length);
    if (!is_stopped(parse) && !parse->head_seen)
        refuse(parse, 400, "malformed header block");
    if (is_stopped(parse))
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
        refuse(parse, 414, "the request line is too long");
        return 0;
    }
    bool has_ended = false;
    size_t used = take_line(parse, bytes, length, most, &has_ended);
    if (is_stopped(parse))
        return used;
    if (has_ended && parse->line_length == 2) {
        if (++parse->empty_lines > EMPTY_LINES_MAX)
            refuse(parse, 400, "too many empty lines");
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
        refuse(parse, refusal.status, refusal.detail);
    parse->slot.request.method = parse->line.method;
    parse->slot.is_1_0 = parse->line.is_1_0;
    return used;
}

/* One line, or a piece of one, of the header or trailer block. *ret_end: it was the empty line that ends the block. */
static size_t take_field_line(struct http_parse *parse, const char *bytes, size_t length, bool *ret_end)
{
    if (parse->line_length == 0 && (bytes[0] == ' ' || bytes[0] == '\t' || bytes[0] == ':')) {
        refuse(parse, 400, bytes[0] == ':' ? "a header field without a name" : "a folded header field");
        return 0;
    }
    size_t most = parse->limits->header_max - parse->block_length;
    if (most == 0) {
        refuse(parse, 431, "the header block is too large");
        return 0;
    }
    bool has_ended = false;
    size_t used = take_line(parse, bytes, length, most, &has_ended);
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
    while (used < length && !is_end && !is_stopped(parse))
        used += take_field_line(parse, bytes + used, length - used, &is_end);
    if (is_stopped(parse))
        return used;
    put_head(parse, bytes, used);
    if (is_end && !parse->is_broken)
        finish_head(parse);
    return used;
}

/* ---- bodies: of a known length, and in chunks with their trailer (RFC 9112 section 7) ---- */

/* What is left of the body or the chunk. */
static size_t read_left(struct http_parse *parse, const char *bytes, size_t length)
{
    size_t used = parse->left < length ? (size_t)parse->left : length;
    feed(parse, bytes, used);
    parse->left -= used;
    return used;
}

static size_t read_body(struct http_parse *parse, const char *bytes, size_t length)
{
    size_t used = read_left(parse, bytes, length);
    if (is_stopped(parse) || parse->left > 0)
        return used;
    if (!parse->end_seen)
        refuse(parse, 400, "malformed body");
    parse->part = HTTP_PART_END;
    return used;
}

/* Sizes have up to 16 digits, and extensions are short: neither zeros nor extensions may be sent without end
 * (CVE-2024-22019 of Node.js). llhttp gets the size only: it refuses valid extensions and accepts malformed ones. */
static void take_chunk_line(struct http_parse *parse, const char *bytes, size_t length)
{
    size_t i = 0;
    while (parse->extension == CHUNK_EXTENSION_NONE && i < length && isxdigit((unsigned char)bytes[i]))
        i++;
    parse->chunk_digits += i;
    if (parse->chunk_digits > CHUNK_DIGITS_MAX) {
        refuse(parse, 400, "a chunk size is too long");
        return;
    }
    if (i > 0)
        feed(parse, bytes, i);
    for (; i < length && bytes[i] != '\r' && bytes[i] != '\n' && !is_stopped(parse); i++) {
        if (!chunk_extension_accepts(&parse->extension, bytes[i]))
            refuse(parse, 400, "malformed chunk size or extension");
    }
}

static void finish_chunk_line(struct http_parse *parse)
{
    size_t extension = parse->line_length - 2 - parse->chunk_digits;
    parse->extension_bytes += extension;
    parse->line_length = 0;
    /* guard: a chunk extension ends where its grammar says */
    if (chunk_extension_may_end(parse->extension))
        feed(parse, "\r\n", 2);
    else
        refuse(parse, 400, "malformed chunk extension");
    if (is_stopped(parse))
        return;
    if (!parse->chunk_seen)
        refuse(parse, 400, "malformed chunk");
    else if (extension > CHUNK_EXTENSION_MAX || parse->extension_bytes > CHUNK_EXTENSIONS_MAX)
        refuse(parse, 400, "chunk extensions are too long");
    else if (parse->left > parse->limits->body_max - parse->body_length)
        refuse(parse, 413, "the body is too large");
    parse->part = parse->left == 0 ? HTTP_PART_TRAILER : HTTP_PART_CHUNK_DATA;
    parse->left += 2;
}

static size_t read_chunk_line(struct http_parse *parse, const char *bytes, size_t length)
{
    size_t most = CHUNK_LINE_MAX - parse->line_length;
    if (most == 0) {
        refuse(parse, 400, "chunk extensions are too long");
        return 0;
    }
    if (parse->line_length == 0) {
        parse->chunk_digits = 0;
        parse->extension = CHUNK_EXTENSION_NONE;
        parse->chunk_seen = false;
    }
    bool has_ended = false;
    size_t used = take_line(parse, bytes, length, most, &has_ended);
    take_chunk_line(parse, bytes, used);
    if (has_ended && !is_stopped(parse))
        finish_chunk_line(parse);
    return used;
}

static size_t read_chunk_data(struct http_parse *parse, const char *bytes, size_t length)
{
    size_t used = read_left(parse, bytes, length);
    if (parse->left == 0)
        parse->part = HTTP_PART_CHUNK_LINE;
    return used;
}

static size_t read_trailer(struct http_parse *parse, const char *bytes, size_t length)
{
    bool is_end = false;
    size_t used = take_field_line(parse, bytes, length, &is_end);
    if (!is_stopped(parse))
        feed(parse, bytes, used);
    if (is_end && !is_stopped(parse)) {
        if (!parse->end_seen)
            refuse(parse, 400, "malformed trailer");
        parse->part = HTTP_PART_END;
    }
    return used;
}

/* ---- the parts of a message: each reads its bytes and moves parse->part on; returns how many were used ---- */

static size_t read_some(struct http_parse *parse, const char *bytes, size_t length)
{
    switch (parse->part) {
    case HTTP_PART_REQUEST_LINE:
        return read_request_line(parse, bytes, length);
    case HTTP_PART_FIELDS:
        return read_fields(parse, bytes, length);
    case HTTP_PART_BODY:
        return read_body(parse, bytes, length);
    case HTTP_PART_CHUNK_LINE:
        return read_chunk_line(parse, bytes, length);
    case HTTP_PART_CHUNK_DATA:
        return read_chunk_data(parse, bytes, length);
    case HTTP_PART_TRAILER:
        return read_trailer(parse, bytes, length);
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
    while (used < length && parse->part != HTTP_PART_END && !is_stopped(parse) && is_head == was_head) {
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
