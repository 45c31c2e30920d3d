/* One outgoing request and its result. The caller makes a call, http_client.h starts it, the pool ends it.
 *
 * A call ends exactly once, from the loop, never inside http_client_start(). What was sent and what came back is wiped
 * when it is freed: it may hold credentials and card numbers. */
#ifndef ISSUING_HTTP_CALL_H
#define ISSUING_HTTP_CALL_H

#include "common/lib/base/base.h"
#include "common/lib/base/buf.h"
#include "common/lib/base/trace.h"

struct client_certificate;

enum http_result {
    HTTP_ANSWERED, /* status and body are there */
    HTTP_NOT_SENT, /* no byte of the request left: name not resolved, connection refused, TLS refused, closing */
    HTTP_LOST,     /* something was sent and no complete answer came: timeout, reset, answer too large, garbage */
};

/* What a connection cost that was made for a call. */
enum http_handshake {
    HTTP_HANDSHAKE_NONE, /* it served others before, or is in clear text */
    HTTP_HANDSHAKE_FULL,
    HTTP_HANDSHAKE_RESUMED, /* took up a session */
};

/* What is known of the body of an answer (outcome_body() of common/core/decide/outcome.h). */
enum http_body {
    HTTP_BODY_UNCHECKED,
    HTTP_BODY_JSON, /* its grammar was checked */
    HTTP_BODY_OTHER,
};

#define HTTP_CALL_HEADERS_MAX 40
#define HTTP_CALL_TEXT_MAX 8192              /* bytes of URL and headers together, and of a body */
#define HTTP_CALL_BODY_MAX (2 * 1024 * 1024) /* of a body for which http_call_allow_body() was called */
#define HTTP_NOTED_MAX 4                     /* answer headers that one call may ask for */
#define HTTP_NOTED_NAME_MAX 40               /* bytes of such a header's name */
#define HTTP_NOTED_SIZE 40                   /* of its value, with its NUL */
#define HTTP_SUBJECT_SIZE 129                /* of whom a request is about, with its NUL */

struct http_call {
    /* in; borrowed until on_done. The first two are filled by http_call_make() and the functions below it. */
    const char *method; /* "GET", "POST", "PUT", "PATCH" or "DELETE" */
    struct buf lines;   /* the URL, then each header as "Name: value", with a NUL between them */
    struct buf body;    /* of a POST, PUT or PATCH, may be empty; the others have none */
    /* A further header line that must not be copied around ("Authorization: Bearer ..."), or NULL. */
    const char *secret_header;
    int64_t timeout_ms;                     /* for the whole call, connecting included */
    struct client_certificate *certificate; /* ours, over https; NULL = none. Borrowed by http_client_start() */
    /* "http://host:port" of a proxy that makes the connection by CONNECT, over either scheme; NULL = none. Borrowed as
     * the certificate. */
    const char *proxy;
    /* A connection that this call is the first on serves no call that begins later than this, less up to a fifth by
     * chance; 0 = any. */
    int64_t connection_age_ms;
    /* The request is never sent a second time: a pooled connection that turns out dead once a byte may have left makes
     * the call HTTP_LOST. */
    bool must_not_resend;
    /* An answer whose body is too large counts as an answer with an empty body: the status decides. */
    bool status_is_enough;
    /* Whether an answer names another request than this one, whose subject is `subject`: the peer, or a gateway, has
     * answered once too often, and every answer of that connection is another's. It is called before the connection is
     * used again. NULL = an answer does not tell. */
    bool (*names_other)(struct http_call *call);
    const void *names_by; /* its own */
    char subject[HTTP_SUBJECT_SIZE];
    size_t answer_max;                /* as http_call_init() was told */
    const char *const *noted_headers; /* names in lower case, ended by NULL; at most HTTP_NOTED_MAX. NULL = none */
    void (*on_done)(struct http_call *call);

    /* out; valid in on_done and until the call is started again, http_call_forget() or http_call_done() */
    enum http_result result;
    int status;
    struct buf answer;      /* the body */
    enum http_body checked; /* the body, by names_other(): a later reader need not check it again */
    int64_t retry_after_ms; /* from Retry-After (seconds or date), -1 = none; capped at 5 min */
    bool answer_is_json;    /* Content-Type application/json or application/<any>+json */
    bool is_anothers;       /* names_other() said so; the answer decides nothing */
    /* By the index of the name in noted_headers: the value as sent, without the white space around it. "" = absent, too
     * long, not printable ASCII, or sent twice with different values. */
    char noted[HTTP_NOTED_MAX][HTTP_NOTED_SIZE];
    bool was_resent; /* sent twice, because a pooled connection was dead: the first may have been acted on */
    enum http_handshake handshake;
    int64_t certificate_ends_s; /* when the first certificate of the peer's chain ends, since 1970; 0 = not known */
    char error[160];            /* why it was not answered; never holds header or body bytes */
    int64_t took_us;

    /* of the client and the pool */
    struct http_client *client; /* NULL = not under way */
    struct http_url_origin *origin;
    struct http_calls *list;
    struct http_call *next, *previous;
    struct http_pooled_conn *conn;
    int64_t deadline_ms;
    bool may_be_sent;
    unsigned noted_seen; /* bits by the index in noted_headers */
};

void http_call_init(struct http_call *call, size_t answer_max);
void http_call_done(struct http_call *call);
/* Wipes and frees the answer. */
void http_call_forget(struct http_call *call);

/* ---- making a request ---- */

/* Starts a new request, and its URL with `base`. The rest of the URL follows, then the headers; the body is written
 * into `body` at any time. All of it is freed when the call ends. It may be sent again, notes no headers, needs the
 * whole answer, which names nobody, and has a body of at most HTTP_CALL_TEXT_MAX bytes, until the caller says
 * otherwise. */
void http_call_make(struct http_call *call, const char *method, const char *base);
/* An answer to this request may name its subject, which fits. */
void http_call_about(struct http_call *call, const char *subject, bool (*names_other)(struct http_call *call));
/* The body of this request may have body_max bytes, at most HTTP_CALL_BODY_MAX. */
void http_call_allow_body(struct http_call *call, size_t body_max);
/* The largest answer to this request, in bytes, if the client allows it. */
void http_call_allow_answer(struct http_call *call, size_t answer_max);
/* Appends to the URL: text as it is, or text that becomes one segment of the path, see http_put_segment()
 * (http_values.h). Precondition: no header yet. */
void http_call_url(struct http_call *call, const char *text);
void http_call_url_segment(struct http_call *call, const char *text);
/* Adds a header, at most HTTP_CALL_HEADERS_MAX of them. A line break in it fails the call when it is started. */
void http_call_header(struct http_call *call, const char *name, const char *value);
/* Adds the headers of the trace. */
void http_call_trace(struct http_call *call, const struct trace *trace);
/* false: a part did not fit or is not a segment, or out of memory. */
must_check bool http_call_is_made(const struct http_call *call);

/* ---- for the client and the pool ---- */

#define HTTP_HEADER_MAX (32 * 1024) /* bytes of one answer's header, interim answers and trailers included */
/* What a peer may send for one call, framing included: chunks of few bytes, padding, records of TLS, interim
 * answers. */
#define HTTP_CALL_BYTES(answer_max) (512 * (size_t)1024 + 8 * (answer_max))

/* The header line behind this one; behind the URL, which `lines` begins with, the first. NULL = there is no other. */
const char *http_call_next_line(const struct http_call *call, const char *line);
/* By its method; it may be empty. */
bool http_call_has_body(const struct http_call *call);
/* What is wrong with the lines, or NULL. */
const char *http_call_check(const struct http_call *call);
/* Resets what an earlier start left, and starts the clock. */
void http_call_begin(struct http_call *call, struct http_client *client);
/* From now on the request is being sent, or may be. */
void http_call_leaves(struct http_call *call);
/* Whether the request may be sent once more, on another connection. */
bool http_call_may_resend(const struct http_call *call);
/* The header of an answer begins: forgets that of an interim one. */
void http_call_begin_answer(struct http_call *call);
/* A field of the answer's header, not of its trailers: stores what the call needs of it. The value has no white space
 * around it. */
void http_call_read_header(struct http_call *call, struct slice name, struct slice value);
/* Its time is over. Checked before a byte is sent: the timer that ends the call may fire late, above all after a
 * suspension, and by then the caller may have lost the right to send it. */
bool http_call_is_late(const struct http_call *call);
/* Sets the result LOST or NOT_SENT, by may_be_sent. Any text; it is cut and made harmless. */
void http_call_set_failed(struct http_call *call, const char *why);
/* Ends the call with the result that is set: on_done may free it or start it again. */
void http_call_end(struct http_call *call);
/* Ends it ANSWERED: status, header and body are filled in. */
void http_call_answered(struct http_call *call);
/* http_call_set_failed() and http_call_end(). */
void http_call_failed(struct http_call *call, const char *why);

#endif
