/* Private to http_slot.c and http_parse.c: one request while it is being read. */
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

#endif
