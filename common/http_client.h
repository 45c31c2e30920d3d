/* Outgoing HTTP: one request, one fate, on the loop, over kept connections; https by libcurl, with HTTP/2 where the peer
 * offers it, http as HTTP/1.1.
 *
 * No redirects, http and https only, at most max_body bytes of answer, TLS >= 1.2 with peer and host checked, no proxy
 * from the environment,
 * no cookies, no .netrc, signals off. A call ends exactly once, from the loop, never inside http_client_start. */
#ifndef ISSUING_HTTP_CLIENT_H
#define ISSUING_HTTP_CLIENT_H

#include <uv.h>

#include "common/base.h"
#include "common/buf.h"
#include "common/err.h"

struct http_client;

enum http_fate {
    HTTP_ANSWERED, /* status and body are there */
    HTTP_NOT_SENT, /* no byte of the request left: name not resolved, connection refused, TLS refused, closing */
    HTTP_LOST,     /* something was sent and no whole answer came: timeout, reset, answer too large, garbage */
};

#define HTTP_CALL_HEADERS_MAX 8
#define HTTP_CALL_TEXT_MAX 8192 /* bytes of URL and headers together, and of a body */

struct http_call {
    /* in; made by http_call_make and what follows it, borrowed until on_done */
    const char *method; /* "GET", "DELETE" or "POST" */
    struct buf lines;   /* the URL, then each header as "Name: value"; every line ended by its NUL */
    struct buf body;    /* of a POST; may be empty */
    const char
        *secret_header; /* a further header that must not be copied around ("Authorization: Bearer ...") or NULL */
    int64_t timeout_ms; /* the whole call, connecting included */
    void (*on_done)(struct http_call *call);
    /* out; valid in on_done and until the call is started again, http_call_forget or http_call_done */
    enum http_fate fate;
    int status;
    struct buf answer;      /* the body */
    int64_t retry_after_ms; /* from Retry-After (seconds or date), -1 = none; capped at 5 min */
    bool answer_is_json;    /* Content-Type application/json or application/<any>+json */
    bool was_resent; /* a kept connection was dead, and it was sent once more: the first may have been acted on */
    char error[160]; /* why it was not answered; never holds header or body bytes */
    int64_t took_us;
    /* private */
    struct http_client *client;
    struct http_origin *origin;
    struct http_calls *list;
    struct http_call *next, *previous;
    struct http_kept *kept;
    int64_t deadline_ms;
    bool may_be_sent;
};

struct http_client_options {
    int connections_max; /* kept ones, for each scheme, host and port */
    size_t answer_max;
    const char
        *ca_file; /* whom TLS trusts, PEM; NULL or "" = the system's bundle. Borrowed until the client is closed */
};

must_check bool http_client_open(uv_loop_t *loop, const struct http_client_options *options,
                                 struct http_client **ret_client, struct err *err);
void http_call_init(struct http_call *call, size_t answer_max);
void http_call_done(struct http_call *call);
/* Begins a request. Then the URL and the headers are put into `lines`, each followed by http_call_end_line, and the body
 * into `body`. */
void http_call_make(struct http_call *call, const char *method);
void http_call_end_line(struct http_call *call);
/* false: some of it did not fit, or memory. */
must_check bool http_call_is_made(const struct http_call *call);
/* Wipes and frees the answer. */
void http_call_forget(struct http_call *call);
/* What was made is wiped and freed when the call ends, so it is made anew for the next. An allocation that fails ends the
 * call with HTTP_NOT_SENT. */
void http_client_start(struct http_client *client, struct http_call *call);
/* Ends every call (HTTP_NOT_SENT or HTTP_LOST), closes handles, then on_closed from the loop. */
void http_client_close(struct http_client *client, void (*on_closed)(void *context), void *context);
/* Appends text percent-encoded outside RFC 3986 unreserved. */
bool http_put_encoded(struct buf *out, const char *text, size_t length);

#endif
