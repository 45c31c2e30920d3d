/* Bodies: of a known length, and in chunks with their trailer (RFC 9112 section 7). See http_parse.c. */
#include <ctype.h>

#include "common/lib/http_server/http_parse_internal.h"

#define CHUNK_DIGITS_MAX 16
#define CHUNK_EXTENSION_MAX 256   /* of one chunk */
#define CHUNK_EXTENSIONS_MAX 4096 /* of all chunks of a message */
#define CHUNK_LINE_MAX (CHUNK_DIGITS_MAX + CHUNK_EXTENSION_MAX + 2)

size_t http_parse_body(struct http_parse *parse, const char *bytes, size_t length)
{
    size_t used = parse->left < length ? (size_t)parse->left : length;
    http_parse_feed(parse, bytes, used);
    parse->left -= used;
    if (http_parse_is_stopped(parse) || parse->left > 0)
        return used;
    if (!parse->end_seen)
        http_parse_refuse(parse, 400, "malformed body");
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
        http_parse_refuse(parse, 400, "a chunk size is too long");
        return;
    }
    if (i > 0)
        http_parse_feed(parse, bytes, i);
    for (; i < length && bytes[i] != '\r' && bytes[i] != '\n' && !http_parse_is_stopped(parse); i++) {
        if (!chunk_extension_accepts(&parse->extension, bytes[i]))
            http_parse_refuse(parse, 400, "malformed chunk size or extension");
    }
}

static void finish_chunk_line(struct http_parse *parse)
{
    size_t extension = parse->line_length - 2 - parse->chunk_digits;
    parse->extension_bytes += extension;
    parse->line_length = 0;
    /* guard: a chunk extension ends where its grammar says */
    if (chunk_extension_may_end(parse->extension))
        http_parse_feed(parse, "\r\n", 2);
    else
        http_parse_refuse(parse, 400, "malformed chunk extension");
    if (http_parse_is_stopped(parse))
        return;
    if (!parse->chunk_seen)
        http_parse_refuse(parse, 400, "malformed chunk");
    else if (extension > CHUNK_EXTENSION_MAX || parse->extension_bytes > CHUNK_EXTENSIONS_MAX)
        http_parse_refuse(parse, 400, "chunk extensions are too long");
    else if (parse->left > parse->limits->body_max - parse->body_length)
        http_parse_refuse(parse, 413, "the body is too large");
    parse->part = parse->left == 0 ? HTTP_PART_TRAILER : HTTP_PART_CHUNK_DATA;
    parse->left += 2;
}

size_t http_parse_chunk_line(struct http_parse *parse, const char *bytes, size_t length)
{
    size_t most = CHUNK_LINE_MAX - parse->line_length;
    if (most == 0) {
        http_parse_refuse(parse, 400, "chunk extensions are too long");
        return 0;
    }
    if (parse->line_length == 0) {
        parse->chunk_digits = 0;
        parse->extension = CHUNK_EXTENSION_NONE;
        parse->chunk_seen = false;
    }
    bool has_ended = false;
    size_t used = http_parse_take_line(parse, bytes, length, most, &has_ended);
    take_chunk_line(parse, bytes, used);
    if (has_ended && !http_parse_is_stopped(parse))
        finish_chunk_line(parse);
    return used;
}

size_t http_parse_chunk_data(struct http_parse *parse, const char *bytes, size_t length)
{
    size_t used = parse->left < length ? (size_t)parse->left : length;
    http_parse_feed(parse, bytes, used);
    parse->left -= used;
    if (parse->left == 0)
        parse->part = HTTP_PART_CHUNK_LINE;
    return used;
}

size_t http_parse_trailer(struct http_parse *parse, const char *bytes, size_t length)
{
    bool is_end = false;
    size_t used = http_parse_take_field_line(parse, bytes, length, &is_end);
    if (!http_parse_is_stopped(parse))
        http_parse_feed(parse, bytes, used);
    if (is_end && !http_parse_is_stopped(parse)) {
        if (!parse->end_seen)
            http_parse_refuse(parse, 400, "malformed trailer");
        parse->part = HTTP_PART_END;
    }
    return used;
}
