/* Bytes into one HTTP request.
 *
 * The framing (where the header block, each chunk and the message end) is found here, byte by byte, and llhttp is
 * given exactly those pieces; both must agree, so a request is accepted only when two readers see the same message.
 * That is the guard against request smuggling: RFC 9112 sections 2.2, 3, 5.2, 6 and 7 with every optional leniency
 * left out. llhttp (strict build) checks names, values, lengths and chunks; http_head.c adds the rules that it
 * lacks.
 *
 * Invariants: the whole header block lies in one buffer, so the slices of the request stay valid until the reply; a
 * new llhttp for each message, so nothing of one request colours the next; memory is bounded by the limits, whatever
 * arrives.
 * Left out: trailer fields are checked and dropped; Upgrade is ignored (RFC 9110 7.8 allows that). */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "common/http_conn.h"

/* llhttp names some of its methods as http_server.h does. */
#define HTTP_GET LLHTTP_GET
#define HTTP_HEAD LLHTTP_HEAD
#define HTTP_POST LLHTTP_POST
#include <llhttp.h>
#undef HTTP_GET
#undef HTTP_HEAD
#undef HTTP_POST

#define REQUEST_LINE_EXTRA \
    (HTTP_METHOD_MAX + sizeof("  HTTP/1.1\r\n") - 1) /* what a request line has besides its target */
#define EMPTY_LINES_MAX 4                            /* before a request line; RFC 9112 2.2 asks for one */
#define CHUNK_DIGITS_MAX 16
#define CHUNK_EXTENSION_MAX 256   /* of one chunk */
#define CHUNK_EXTENSIONS_MAX 4096 /* of all chunks of a message */
#define CHUNK_LINE_MAX (CHUNK_DIGITS_MAX + CHUNK_EXTENSION_MAX + 2)
#define KEEP_CAPACITY ((size_t)16 * 1024) /* of a spare exchange's buffers */

enum wire { WIRE_REQUEST_LINE, WIRE_FIELDS, WIRE_BODY, WIRE_CHUNK_LINE, WIRE_CHUNK_DATA, WIRE_TRAILER, WIRE_DONE };

struct parse {
    struct http_exchange exchange;
    const struct http_server_options *limits;
    llhttp_t parser;
    struct buf head;
    struct buf body;
    enum wire wire;
    char last;           /* last byte of the unfinished line */
    size_t line_length;  /* of the unfinished line, so far */
    size_t block_length; /* header block and trailer block, so far */
    int empty_lines;
    struct http_line line;
    uint64_t left; /* bytes still to come: of the body, or of a chunk with its CRLF */
    size_t chunk_digits;
    size_t extension_bytes;
    bool in_extension;
    bool head_seen, chunk_seen, end_seen; /* llhttp's view */
    bool is_broken;
};

static struct parse *parse_of(struct http_exchange *exchange)
{
    return container_of(exchange, struct parse, exchange);
}

/* The first refusal stands. Returns -1, which stops llhttp when a callback returns it. */
static int refuse(struct parse *parse, int status, const char *detail)
{
    if (parse->exchange.refusal.status == 0)
        parse->exchange.refusal = (struct http_refusal){.status = status, .detail = detail};
    return -1;
}

static bool is_stopped(const struct parse *parse)
{
    return parse->exchange.refusal.status != 0 || parse->is_broken;
}

/* ---- llhttp's callbacks ---- */

static int on_header_field(llhttp_t *parser, const char *at, size_t length)
{
    struct parse *parse = parser->data;
    struct http_request *request = &parse->exchange.request;
    if (parse->wire != WIRE_FIELDS)
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
    struct parse *parse = parser->data;
    struct http_request *request = &parse->exchange.request;
    if (parse->wire != WIRE_FIELDS || request->header_count == 0)
        return 0;
    while (length > 0 && (at[length - 1] == ' ' || at[length - 1] == '\t'))
        length--;
    request->headers[request->header_count - 1].value = (struct slice){.bytes = at, .length = length};
    return 0;
}

static int on_headers_complete(llhttp_t *parser)
{
    struct parse *parse = parser->data;
    parse->head_seen = true;
    parse->exchange.keep_alive = llhttp_should_keep_alive(parser);
    /* Otherwise "Upgrade: x" would make llhttp stop reading HTTP after this request. */
    parser->upgrade = 0;
    return 0;
}

static int on_body(llhttp_t *parser, const char *at, size_t length)
{
    struct parse *parse = parser->data;
    if (buf_put(&parse->body, at, length))
        return 0;
    parse->is_broken = true;
    return -1;
}

static int on_chunk_header(llhttp_t *parser)
{
    struct parse *parse = parser->data;
    parse->chunk_seen = true;
    parse->left = parser->content_length;
    return 0;
}

static int on_message_complete(llhttp_t *parser)
{
    struct parse *parse = parser->data;
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

static void feed(struct parse *parse, const char *bytes, size_t length)
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

/* Takes bytes up to and with the next LF. Every line ends in CRLF and holds no other control byte than HT. A bad
 * byte is refused only when it is the first: llhttp is to see those before it first, and may refuse one of them. */
static size_t take_line(struct parse *parse, const char *bytes, size_t length, bool *ret_ended)
{
    size_t i = 0;
    char last = parse->last;
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
        if (is_plain((unsigned char)last)) { /* most are, and then it is enough to pass over them */
            while (i < length && is_plain((unsigned char)bytes[i]))
                i++;
            last = bytes[i - 1];
        }
    }
    parse->last = last;
    parse->line_length += i;
    return i;
}

/* Not before the header block is complete: until then its buffer may move. */
static void place_target(struct parse *parse)
{
    struct http_request *request = &parse->exchange.request;
    const char *target = parse->head.bytes + parse->line.method_length + 1, *end = target + parse->line.target_length;
    const char *mark = memchr(target, '?', parse->line.target_length);
    const char *path_end = mark ? mark : end, *query = mark ? mark + 1 : end;
    request->target = (struct slice){.bytes = target, .length = parse->line.target_length};
    request->path = (struct slice){.bytes = target, .length = (size_t)(path_end - target)};
    request->query = (struct slice){.bytes = query, .length = (size_t)(end - query)};
}

static void check_fields(struct parse *parse)
{
    struct http_exchange *exchange = &parse->exchange;
    bool has_expect = false;
    struct http_refusal refusal = http_check_fields(&exchange->request, parse->line.is_1_0, &has_expect);
    if (refusal.status != 0)
        refuse(parse, refusal.status, refusal.detail);
    else if (!parse->end_seen && !(parse->parser.flags & F_CHUNKED) &&
             parse->parser.content_length > parse->limits->body_max)
        refuse(parse, 413, "the body is too large");
    exchange->wants_continue = has_expect && !parse->end_seen;
}

static void finish_head(struct parse *parse)
{
    llhttp_init(&parse->parser, HTTP_REQUEST, &callbacks);
    parse->parser.data = parse;
    const char *bytes = parse->head.bytes;
    size_t length = parse->head.length;
    if (parse->exchange.request.method == HTTP_OTHER) {
        /* llhttp knows a fixed list of methods and frames two of them in its own way. To the framing all are alike
         * (RFC 9112 6), and whether a method is served is the router's to say. */
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
        parse->wire = WIRE_DONE;
    } else if (parse->parser.flags & F_CHUNKED) {
        parse->wire = WIRE_CHUNK_LINE;
    } else {
        parse->wire = WIRE_BODY;
        parse->left = parse->parser.content_length;
    }
}

static void put_head(struct parse *parse, const char *bytes, size_t length)
{
    if (!buf_put(&parse->head, bytes, length))
        parse->is_broken = true;
}

static size_t smaller(size_t left, size_t right)
{
    return left < right ? left : right;
}

static size_t read_request_line(struct parse *parse, const char *bytes, size_t length)
{
    size_t room = parse->limits->target_max + REQUEST_LINE_EXTRA - parse->line_length;
    if (room == 0) {
        refuse(parse, 414, "the request line is too long");
        return 0;
    }
    bool has_ended = false;
    size_t used = take_line(parse, bytes, smaller(length, room), &has_ended);
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
    parse->wire = WIRE_FIELDS;
    struct slice line = {.bytes = parse->head.bytes, .length = parse->head.length - 2};
    struct http_refusal refusal = http_check_line(line, parse->limits->target_max, &parse->line);
    if (refusal.status != 0)
        refuse(parse, refusal.status, refusal.detail);
    parse->exchange.request.method = parse->line.method;
    parse->exchange.is_1_0 = parse->line.is_1_0;
    return used;
}

/* One line, or a piece of one, of the header or trailer block. *ret_end: it was the empty line that ends the block. */
static size_t take_field_line(struct parse *parse, const char *bytes, size_t length, bool *ret_end)
{
    if (parse->line_length == 0 && (bytes[0] == ' ' || bytes[0] == '\t' || bytes[0] == ':')) {
        refuse(parse, 400, bytes[0] == ':' ? "a header field without a name" : "a folded header field");
        return 0;
    }
    size_t room = parse->limits->header_max - parse->block_length;
    if (room == 0) {
        refuse(parse, 431, "the header block is too large");
        return 0;
    }
    bool has_ended = false;
    size_t used = take_line(parse, bytes, smaller(length, room), &has_ended);
    parse->block_length += used;
    if (has_ended) {
        *ret_end = parse->line_length == 2;
        parse->line_length = 0;
    }
    return used;
}

static size_t read_fields(struct parse *parse, const char *bytes, size_t length)
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

/* ---- bodies ---- */

static size_t read_body(struct parse *parse, const char *bytes, size_t length)
{
    size_t used = parse->left < length ? (size_t)parse->left : length;
    feed(parse, bytes, used);
    parse->left -= used;
    if (is_stopped(parse) || parse->left > 0)
        return used;
    if (!parse->end_seen)
        refuse(parse, 400, "malformed body");
    parse->wire = WIRE_DONE;
    return used;
}

/* Sizes of up to 16 digits and short extensions: neither zeros nor extensions may be sent without end
 * (CVE-2024-22019 of Node.js). */
static void measure_chunk_line(struct parse *parse, const char *bytes, size_t length)
{
    for (size_t i = 0; i < length && !parse->in_extension; i++) {
        if (isxdigit((unsigned char)bytes[i]))
            parse->chunk_digits++;
        else
            parse->in_extension = true;
    }
    if (parse->chunk_digits > CHUNK_DIGITS_MAX)
        refuse(parse, 400, "a chunk size is too long");
}

static void finish_chunk_line(struct parse *parse)
{
    size_t extension = parse->line_length - 2 - parse->chunk_digits;
    parse->extension_bytes += extension;
    parse->line_length = 0;
    if (!parse->chunk_seen)
        refuse(parse, 400, "malformed chunk");
    else if (extension > CHUNK_EXTENSION_MAX || parse->extension_bytes > CHUNK_EXTENSIONS_MAX)
        refuse(parse, 400, "chunk extensions are too long");
    else if (parse->left > parse->limits->body_max - parse->body.length)
        refuse(parse, 413, "the body is too large");
    parse->wire = parse->left == 0 ? WIRE_TRAILER : WIRE_CHUNK_DATA;
    parse->left += 2;
}

static size_t read_chunk_line(struct parse *parse, const char *bytes, size_t length)
{
    size_t room = CHUNK_LINE_MAX - parse->line_length;
    if (room == 0) {
        refuse(parse, 400, "chunk extensions are too long");
        return 0;
    }
    if (parse->line_length == 0) {
        parse->chunk_digits = 0;
        parse->in_extension = false;
        parse->chunk_seen = false;
    }
    bool has_ended = false;
    size_t used = take_line(parse, bytes, smaller(length, room), &has_ended);
    measure_chunk_line(parse, bytes, used);
    if (!is_stopped(parse))
        feed(parse, bytes, used);
    if (has_ended && !is_stopped(parse))
        finish_chunk_line(parse);
    return used;
}

static size_t read_chunk_data(struct parse *parse, const char *bytes, size_t length)
{
    size_t used = parse->left < length ? (size_t)parse->left : length;
    feed(parse, bytes, used);
    parse->left -= used;
    if (parse->left == 0)
        parse->wire = WIRE_CHUNK_LINE;
    return used;
}

static size_t read_trailer(struct parse *parse, const char *bytes, size_t length)
{
    bool is_end = false;
    size_t used = take_field_line(parse, bytes, length, &is_end);
    if (!is_stopped(parse))
        feed(parse, bytes, used);
    if (is_end && !is_stopped(parse)) {
        if (!parse->end_seen)
            refuse(parse, 400, "malformed trailer");
        parse->wire = WIRE_DONE;
    }
    return used;
}

static size_t read_some(struct parse *parse, const char *bytes, size_t length)
{
    switch (parse->wire) {
    case WIRE_REQUEST_LINE:
        return read_request_line(parse, bytes, length);
    case WIRE_FIELDS:
        return read_fields(parse, bytes, length);
    case WIRE_BODY:
        return read_body(parse, bytes, length);
    case WIRE_CHUNK_LINE:
        return read_chunk_line(parse, bytes, length);
    case WIRE_CHUNK_DATA:
        return read_chunk_data(parse, bytes, length);
    case WIRE_TRAILER:
        return read_trailer(parse, bytes, length);
    case WIRE_DONE:
        break;
    }
    return 0;
}

/* ---- exchanges ---- */

enum http_progress http_exchange_read(struct http_exchange *exchange, const char *bytes, size_t length,
                                      size_t *ret_used)
{
    struct parse *parse = parse_of(exchange);
    bool was_head = parse->wire <= WIRE_FIELDS, is_head = was_head;
    size_t used = 0;
    while (used < length && parse->wire != WIRE_DONE && !is_stopped(parse) && is_head == was_head) {
        used += read_some(parse, bytes + used, length - used);
        is_head = parse->wire <= WIRE_FIELDS;
    }
    *ret_used = used;
    if (parse->is_broken)
        return HTTP_BROKEN;
    if (exchange->refusal.status != 0)
        return HTTP_REFUSED;
    if (parse->wire == WIRE_DONE) {
        exchange->request.body = buf_slice(&parse->body);
        return HTTP_COMPLETE;
    }
    return is_head == was_head ? HTTP_MORE : HTTP_HEAD_DONE;
}

struct http_exchange *http_exchange_new(const struct http_server_options *limits)
{
    struct parse *parse = malloc(sizeof(*parse));
    if (!parse)
        return NULL;
    parse->limits = limits;
    buf_init(&parse->head, limits->target_max + REQUEST_LINE_EXTRA + limits->header_max);
    buf_init(&parse->body, limits->body_max);
    http_exchange_begin(&parse->exchange, 0);
    return &parse->exchange;
}

void http_exchange_begin(struct http_exchange *exchange, int64_t started_us)
{
    struct parse *parse = parse_of(exchange);
    struct http_request *request = &exchange->request;
    request->method = HTTP_OTHER;
    request->target = request->path = request->query = request->body = (struct slice){0};
    request->header_count = 0;
    request->started_us = started_us;
    request->user = NULL;
    request->on_gone = NULL;
    request->gone_at_end = false;
    exchange->conn = NULL;
    exchange->next_spare = NULL;
    exchange->is_handed_over = exchange->keep_alive = exchange->is_1_0 = exchange->wants_continue = false;
    exchange->refusal = (struct http_refusal){0};
    buf_reset(&parse->head);
    buf_reset(&parse->body);
    parse->wire = WIRE_REQUEST_LINE;
    parse->last = '\0';
    parse->line_length = parse->block_length = 0;
    parse->line = (struct http_line){.method = HTTP_OTHER};
    parse->empty_lines = 0;
    parse->left = 0;
    parse->extension_bytes = 0;
    parse->head_seen = parse->end_seen = parse->is_broken = false;
}

static void forget(struct buf *buf)
{
    if (buf->bytes)
        explicit_bzero(buf->bytes, buf->length);
    buf_reset(buf);
    if (buf->capacity > KEEP_CAPACITY)
        buf_done(buf);
}

void http_exchange_forget(struct http_exchange *exchange)
{
    forget(&parse_of(exchange)->head);
    forget(&parse_of(exchange)->body);
}

void http_exchange_free(struct http_exchange *exchange)
{
    http_exchange_forget(exchange);
    buf_done(&parse_of(exchange)->head);
    buf_done(&parse_of(exchange)->body);
    free(parse_of(exchange));
}

bool http_exchange_is_begun(const struct http_exchange *exchange)
{
    const struct parse *parse = container_of(exchange, const struct parse, exchange);
    return parse->head.length > 0;
}
