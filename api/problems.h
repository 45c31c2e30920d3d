/* Every problem the api can answer with: one list for the error bodies (RFC 9457), the pages under /problems and the
 * OpenAPI check. */
#ifndef ISSUING_PROBLEMS_H
#define ISSUING_PROBLEMS_H

#include "common/lib/base/base.h"
#include "common/lib/base/buf.h"
#include "common/lib/json/json_writer.h"

#define PROBLEMS(X)                                                                                                   \
    X(MALFORMED_REQUEST, 400, "malformed-request", "The request is malformed",                                        \
      "The bytes are not an HTTP request that this server accepts (RFC 9112). The connection is closed.")             \
    X(INVALID_HEADER, 400, "invalid-header", "A header is missing or malformed",                                      \
      "Idempotency-Key is required on POST /v1/card-requests: a structured-field String (\"abc\") or the same value " \
      "bare, 1 to 255 bytes, once.")                                                                                  \
    X(INVALID_BODY, 400, "invalid-body", "The body is not a card request",                                            \
      "Each bad member is listed in `errors` with a JSON pointer.")                                                   \
    X(INVALID_PARAMETER, 400, "invalid-parameter", "A query parameter is malformed",                                  \
      "Lists take `limit`, 1 to 100, and `cursor`, which is what `next_cursor` gave. `errors` lists each bad one.")   \
    X(UNAUTHORIZED, 401, "unauthorized", "A valid token is required",                                                 \
      "Send Authorization: Bearer with a JWT that this service's keys verify and that has not expired.")              \
    X(NOT_FOUND, 404, "not-found", "There is no such resource",                                                       \
      "The path is unknown, or the resource is not one of this user.")                                                \
    X(NUMBER_ERASED, 404, "number-erased", "The number of this card was erased",                                      \
      "The card was closed or has expired, and stored numbers are kept for a limited time after that. It does not "   \
      "come back.")                                                                                                   \
    X(METHOD_NOT_ALLOWED, 405, "method-not-allowed", "The method is not allowed here",                                \
      "The Allow header lists those that are.")                                                                       \
    X(TIMEOUT, 408, "request-timeout", "The request came too slowly", "A header may take 5 s, a body 10 s.")          \
    X(IN_PROGRESS, 409, "request-in-progress", "The same key is still being recorded",                                \
      "Try again after Retry-After, with the same key and body.")                                                     \
    X(TOO_LARGE, 413, "body-too-large", "The body is too large", "A body may have 64 KiB.")                           \
    X(URI_TOO_LONG, 414, "uri-too-long", "The target is too long", "A target may have 4 KiB.")                        \
    X(MEDIA_TYPE, 415, "unsupported-media-type", "The body must be application/json",                                 \
      "UTF-8, and no Content-Encoding.")                                                                              \
    X(EXPECTATION, 417, "expectation-failed", "The expectation is not supported", "Only Expect: 100-continue is.")    \
    X(KEY_REUSED, 422, "idempotency-key-reused", "The key was used with another body",                                \
      "A key names one request. A new request needs a new key.")                                                      \
    X(NOT_REPLACEABLE, 422, "not-replaceable", "The card cannot be replaced",                                         \
      "`replaces` names no active card of this user, or one that is already being replaced. Neither the key nor a "   \
      "slot was used.")                                                                                               \
    X(TOO_MANY_CONNECTIONS, 429, "too-many-connections", "Too many connections of this address",                      \
      "Nothing was recorded. Try again with the same key after Retry-After.")                                         \
    X(LIMITED, 429, "rate-limited", "Too many requests of this user",                                                 \
      "The key was not used. Try again with it after Retry-After.")                                                   \
    X(REVEALS_LIMITED, 429, "reveals-limited", "Too many card numbers were shown to this user",                       \
      "Try again after Retry-After.")                                                                                 \
    X(HEADER_TOO_LARGE, 431, "header-too-large", "The header block is too large",                                     \
      "All headers together may have 16 KiB, in 64 lines.")                                                           \
    X(UNAVAILABLE, 503, "unavailable", "The service cannot answer now",                                               \
      "Of a POST nothing was recorded, or the outcome is not known: repeat it with the same key after Retry-After.")  \
    X(USER_MOVING, 503, "user-moving", "The data of this user are being moved",                                       \
      "It takes seconds. Of a POST nothing was recorded, or the outcome is not known: repeat it with the same key.")  \
    X(VERSION, 505, "http-version-not-supported", "This version of HTTP is not spoken here",                          \
      "HTTP/1.1 and HTTP/1.0 are.")

enum problem {
#define X(id, status, slug, title, text) PROBLEM_##id,
    PROBLEMS(X)
#undef X
        PROBLEM_COUNT
};

/* What is wrong with a request, one by one: the member `errors` of its problem. Begins as all zeros and may not move;
 * api_call_problem_with_errors() frees it. */
struct problem_errors {
    struct buf list;
    struct json_writer writer;
    const char *first; /* the detail of the first, borrowed; NULL = nothing is wrong */
    int count;
};
/* member: where the fault is, such as "header", and its name there. */
void problem_errors_add(struct problem_errors *errors, const char *detail, const char *member, struct slice name);

int problem_status(enum problem problem);
/* The problem that stands for a status of the layer below the router; PROBLEM_MALFORMED_REQUEST for others. */
enum problem problem_of_status(int status);
/* {"type","title","status","detail"} and, where `errors` has bytes, "errors" with that JSON. */
void problem_write(struct buf *out, enum problem problem, const char *detail, struct slice errors);
/* The HTML page of a slug. false: there is no such problem, and nothing was written. */
must_check bool problem_write_page(struct buf *out, struct slice slug);
/* The HTML page that lists all problems. */
void problem_write_index(struct buf *out);

#endif
