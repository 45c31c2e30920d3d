/* Private to http_slot.c, http_parse.c and http_parse_chunks.c: one request while it is being read. */
#ifndef ISSUING_HTTP_PARSE_INTERNAL_H
#define ISSUING_HTTP_PARSE_INTERNAL_H

#include "common/lib/base/chunk_extension.h"
#include "common/lib/http_server/http_server_internal.h"

/* llhttp names some of its methods as http_server.h does. */
#define HTTP_GET LLHTTP_GET
#define HTTP_HEAD LLHTTP_HEAD
#define HTTP_POST LLHTTP_POST
#define HTTP_PATCH LLHTTP_PATCH
#include <llhttp.h>
#undef HTTP_GET
#undef HTTP_HEAD
#undef HTTP_POST
#undef HTTP_PATCH

/* What a request line has besides its target. */
#define HTTP_REQUEST_LINE_EXTRA (HTTP_METHOD_MAX + sizeof("  HTTP/1.1\r\n") - 1)

/* The part of the message that the next byte belongs to. */
enum http_part {
    HTTP_PART_REQUEST_LINE,
    HTTP_PART_FIELDS,
    HTTP_PART_BODY,
    HTTP_PART_CHUNK_LINE,
    HTTP_PART_CHUNK_DATA,
    HTTP_PART_TRAILER,
    HTTP_PART_END,
};

struct http_parse {
    struct http_slot slot;
    const struct http_server_options *limits; /* borrowed */
    llhttp_t parser;
    struct buf head;
    struct buf body;
    enum http_part part;
    char last;           /* last byte of the unfinished line */
    size_t line_length;  /* of the unfinished line, so far */
    size_t block_length; /* header block and trailer block, so far */
    int empty_lines;     /* before the request line */
    struct http_line line;
    uint64_t left;      /* bytes still to come: of the body, or of a chunk with its CRLF */
    size_t body_length; /* bytes of the body so far, also those that are dropped */
    size_t chunk_digits;
    size_t extension_bytes;
    enum chunk_extension extension;
    bool head_seen, chunk_seen, end_seen; /* what llhttp has seen */
    bool is_broken;                       /* no memory */
};

static inline struct http_parse *http_parse_of(struct http_slot *slot)
{
    return container_of(slot, struct http_parse, slot);
}

static inline bool http_parse_is_stopped(const struct http_parse *parse)
{
    return parse->slot.refusal.status != 0 || parse->is_broken;
}

/* ---- http_parse.c ---- */

/* Refuses the request, unless it is refused already. Returns -1, which stops llhttp when a callback returns it. */
int http_parse_refuse(struct http_parse *parse, int status, const char *detail);
/* Gives bytes to llhttp; refuses the request when llhttp does. */
void http_parse_feed(struct http_parse *parse, const char *bytes, size_t length);
/* Takes bytes up to and with the next LF, and of those `most` at most. Every line ends in CRLF and holds no other
 * control byte than HT. A bad byte is refused only when it is the first: llhttp is to see those before it first, and
 * may refuse one of them. */
size_t http_parse_take_line(struct http_parse *parse, const char *bytes, size_t length, size_t most, bool *ret_ended);
/* One line, or a piece of one, of the header or trailer block. *ret_end: it was the empty line that ends the block. */
size_t http_parse_take_field_line(struct http_parse *parse, const char *bytes, size_t length, bool *ret_end);

/* ---- http_parse_chunks.c ---- */

/* Each reads the bytes of its part and moves parse->part on; returns how many bytes were used. */
size_t http_parse_body(struct http_parse *parse, const char *bytes, size_t length);
size_t http_parse_chunk_line(struct http_parse *parse, const char *bytes, size_t length);
size_t http_parse_chunk_data(struct http_parse *parse, const char *bytes, size_t length);
size_t http_parse_trailer(struct http_parse *parse, const char *bytes, size_t length);

#endif
