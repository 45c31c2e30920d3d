/* Parses one answer of HTTP/1 into its call. llhttp (strict build) finds the framing. Private to the HTTP
 * client. */
#ifndef ISSUING_HTTP_ANSWER_H
#define ISSUING_HTTP_ANSWER_H

#include <llhttp.h>

#include "common/lib/base/chunk_extension.h"
#include "common/lib/http_client/http_call.h"

/* The part that the next byte belongs to. */
enum http_answer_part {
    HTTP_ANSWER_HEADER,
    HTTP_ANSWER_BODY, /* without chunks */
    HTTP_ANSWER_CHUNK_LINE,
    HTTP_ANSWER_CHUNK, /* with the end of its line */
    HTTP_ANSWER_TRAILER,
};

enum http_answer_state {
    HTTP_ANSWER_GOES_ON,
    HTTP_ANSWER_WHOLE,
    HTTP_ANSWER_BROKEN, /* why: objection */
};

struct http_answer {
    llhttp_t parser;
    struct http_call *call; /* gets status, header and body */
    size_t body_max;
    size_t header_bytes;
    size_t line_length;    /* of the line that is being checked */
    uint64_t left;         /* of the chunk */
    const char *objection; /* static text */
    bool has_begun;        /* a byte of it arrived */
    enum http_answer_part part;
    enum chunk_extension extension;
    bool has_encoding;
    bool is_whole;
    bool may_keep;     /* the connection; once it is whole */
    bool ends_at_head; /* in, after http_answer_begin(): no body is read, whatever the header states */
    unsigned char start_length, name_length, value_length;
    bool value_is_cut;
    char last_byte; /* of that line */
    /* Of the header that is being read; longer names are not ours, longer values are cut. */
    char name[HTTP_NOTED_NAME_MAX + 1], value[112];
};

void http_answer_begin(struct http_answer *answer, struct http_call *call, size_t body_max);
/* ret_used: the number of bytes that belong to the answer. */
enum http_answer_state http_answer_take(struct http_answer *answer, const char *bytes, size_t length, size_t *ret_used);
/* The peer has closed: that may be the end of the body. */
enum http_answer_state http_answer_close(struct http_answer *answer);
/* Wipes what is left of its header. */
void http_answer_forget(struct http_answer *answer);

#endif
