/* See http_transfer.h.
 *
 * A transfer has an easy handle of its own. A handle that served an earlier one keeps a pointer into that one's header
 * (curl/curl#11101, in libcurl 7.88): a peer that begins an answer with a folded line would crash us. Connections,
 * names and TLS sessions are stored in the lanes (http_loop.h) that the calls are spread over.
 *
 * Invariants: a request counts as sent from the point just before curl writes it (CURLOPT_PREREQFUNCTION), and
 * http_call_leaves() is called at each sending. */
#include "common/http_client/http_transfer.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/base/clock.h"
#include "common/http_client/client_certificate.h"
#include "common/http_client/http_url_origin.h"
#include "common/http_client/http_values.h"

#define OWN_HEADERS 4 /* User-Agent, Expect:, Content-Type:, the secret one */
#define CURL_CONNECT_MS 300000
#define LANE_CALLS 64

struct http_transfer {
    struct http_transfers *transfers;
    struct http_transfer *next, *previous;
    struct http_transfer_origin *origin;
    CURL *easy;
    struct http_call *call;
    struct http_lane *lane;
    struct authorities *authorities;        /* whom it trusts; NULL = as the options say */
    struct client_certificate *certificate; /* ours; NULL = none */
    struct http_tls_options tls;
    struct curl_slist headers[HTTP_CALL_HEADERS_MAX + OWN_HEADERS]; /* point to the call's texts; curl copies neither */
    const char *objection;                                          /* why a callback of ours ended the transfer */
    size_t header_bytes;
    bool header_is_whole;
    bool header_is_last; /* it was not that of an interim answer */
    bool is_enough;      /* the header is all that is taken of the answer */
    char problem[CURL_ERROR_SIZE];
};

/* ---- the end of a call ---- */

/* The call goes on without it. */
static void free_transfer(struct http_transfer *transfer)
{
    struct http_transfer_origin *origin = transfer->origin;
    struct http_lane *lane = transfer->lane;
    if (transfer->previous)
        transfer->previous->next = transfer->next;
    else
        transfer->transfers->first = transfer->next;
    if (transfer->next)
        transfer->next->previous = transfer->previous;
    if (lane && lane->calls-- == LANE_CALLS) {
        lane->next_open = origin->open_lanes;
        origin->open_lanes = lane;
    }
    curl_easy_cleanup(transfer->easy);
    authorities_release(transfer->authorities);
    client_certificate_release(transfer->certificate);
    free(transfer);
}

/* curl's own text names host and port, its code does not. It is used only while nothing of an answer can be in it. */
static const char *problem_of(const struct http_transfer *transfer, CURLcode code)
{
    const struct http_tls_turn *turn = &transfer->transfers->loop->turn;
    if (transfer->objection)
        return transfer->objection;
    if (code != CURLE_OK && turn->flooded == turn->number)
        return "the peer sends without end";
    if (code == CURLE_OK)
        return "no whole header";
    return transfer->call->may_be_sent || !transfer->problem[0] ? curl_easy_strerror(code) : transfer->problem;
}

static void on_transfer_done(CURL *easy, CURLcode code)
{
    struct http_transfer *transfer = NULL;
    long status = 0;
    curl_easy_getinfo(easy, CURLINFO_PRIVATE, &transfer);
    /* first: curl forgets some of it when the transfer is taken out */
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    http_lane_stop(transfer->lane, easy);
    struct http_call *call = transfer->call;
    /* curl accepts a header that a close cut off; and a 1xx at the end is an upgrade that was not requested. */
    bool is_answered =
        (code == CURLE_OK || transfer->is_enough) && transfer->header_is_whole && status >= 200 && status <= 999;
    char problem[CURL_ERROR_SIZE];
    snprintf(problem, sizeof(problem), "%s", problem_of(transfer, code));
    free_transfer(transfer);
    if (is_answered) {
        call->status = (int)status;
        http_call_answered(call);
    } else {
        http_call_failed(call, problem);
    }
}

/* ---- what comes back ---- */

static int on_request_starts(void *context, char *peer, char *local, int peer_port, int local_port)
{
    (void)peer, (void)local, (void)peer_port, (void)local_port;
    struct http_transfer *transfer = context;
    /* guard: nothing is sent over https after its time */
    if (http_call_is_late(transfer->call)) {
        transfer->objection = "its time was over before it was sent";
        return CURL_PREREQFUNC_ABORT;
    }
    /* guard: what must not be sent twice is not, over https */
    if (!http_call_may_resend(transfer->call)) {
        transfer->objection = "the connection broke, and the request must not be sent twice";
        return CURL_PREREQFUNC_ABORT;
    }
    transfer->objection = http_tls_begin_call(transfer->easy, transfer->tls.call_max, transfer->call->may_be_http2);
    if (transfer->objection)
        return CURL_PREREQFUNC_ABORT;
    transfer->header_is_whole = transfer->header_is_last = transfer->is_enough = false;
    /* guard: a second sending by libcurl is reported */
    http_call_leaves(transfer->call);
    return CURL_PREREQFUNC_OK;
}

static size_t on_body(char *bytes, size_t one, size_t length, void *context)
{
    (void)one;
    struct http_transfer *transfer = context;
    struct buf *answer = &transfer->call->answer;
    if (length > transfer->transfers->answer_max - answer->length || length > answer->max - answer->length) {
        transfer->objection = "the answer is too large";
        transfer->is_enough = transfer->call->status_is_enough;
        buf_wipe(answer);
        return 0;
    }
    if (!buf_put(answer, bytes, length)) {
        transfer->objection = "out of memory for the answer";
        return 0;
    }
    return length;
}

static void read_header(struct http_call *call, struct slice line)
{
    struct slice name, value;
    if (line.bytes[0] == ' ' || line.bytes[0] == '\t')
        http_call_read_folded(call);
    else if (http_split_header(line, &name, &value))
        http_call_read_header(call, name, value);
}

static size_t on_header(char *bytes, size_t one, size_t length, void *context)
{
    (void)one;
    struct http_transfer *transfer = context;
    struct http_call *call = transfer->call;
    transfer->header_bytes += length;
    if (transfer->header_bytes > HTTP_HEADER_MAX) {
        transfer->objection = "the answer's header is too large";
        return 0;
    }
    if (length == 0 || transfer->header_is_last) /* trailers, whatever they look like */
        return length;
    if (length >= 5 && memcmp(bytes, "HTTP/", 5) == 0) { /* another answer: forget the header of the interim one */
        http_call_begin_answer(call);
        transfer->header_is_whole = false;
    } else if (bytes[0] == '\r' || bytes[0] == '\n') {
        long status = 0;
        curl_easy_getinfo(transfer->easy, CURLINFO_RESPONSE_CODE, &status);
        transfer->header_is_whole = true;
        transfer->header_is_last = status >= 200;
    } else if (!transfer->header_is_whole) {
        read_header(call, (struct slice){.bytes = bytes, .length = length});
    }
    return length;
}

/* ---- transfers ---- */

#define SET(option, value) (curl_easy_setopt(easy, option, value) == CURLE_OK)

/* Authorities that were loaded before are handed over by http_tls_prepare(), and libcurl knows only their marker.
 * libcurl would read a file at a handshake, without a check whether it is complete, and remember it for a day. */
static bool set_authorities(CURL *easy, const struct http_transfer *transfer)
{
    const char *ca_file = transfer->transfers->ca_file;
    /* The bundle alone: with a folder beside it curl reads all certificates at every connection, for 15 ms. */
    /* guard: a call keeps the authorities that it began with */
    if (!transfer->authorities)
        return SET(CURLOPT_CAPATH, NULL) && (!ca_file || !ca_file[0] || SET(CURLOPT_CAINFO, ca_file));
    /* guard: a connection is not used again with other authorities than its own */
    return SET(CURLOPT_CAINFO, NULL) && SET(CURLOPT_CAPATH, transfer->authorities->marker);
}

/* Connections and TLS sessions with another certificate are not used: libcurl compares them. */
static bool set_certificate(CURL *easy, const struct http_transfer *transfer)
{
    const struct client_certificate *certificate = transfer->certificate;
    if (!certificate)
        return true;
    struct curl_blob chain = {
        .data = certificate->chain->bytes, .len = certificate->chain->length, .flags = CURL_BLOB_NOCOPY};
    struct curl_blob key = {.data = certificate->key.bytes, .len = certificate->key.length, .flags = CURL_BLOB_NOCOPY};
    return SET(CURLOPT_SSLCERT_BLOB, &chain) && SET(CURLOPT_SSLKEY_BLOB, &key);
}

static bool set_constants(CURL *easy, struct http_transfer *transfer)
{
    return SET(CURLOPT_PRIVATE, transfer) && SET(CURLOPT_HTTPHEADER, transfer->headers) &&
           SET(CURLOPT_PATH_AS_IS, 1L) && SET(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2) &&
           /* guard: a peer proves by whom it is known */
           /* guard: a peer proves its name */
           SET(CURLOPT_SSL_VERIFYPEER, 1L) && SET(CURLOPT_SSL_VERIFYHOST, 2L) && SET(CURLOPT_HTTP09_ALLOWED, 0L) &&
           set_authorities(easy, transfer) && set_certificate(easy, transfer) &&
           SET(CURLOPT_SSL_CTX_FUNCTION, http_tls_prepare) && SET(CURLOPT_SSL_CTX_DATA, &transfer->tls) &&
           /* callbacks */
           http_loop_adopt(transfer->transfers->loop, easy, &transfer->lane, transfer->problem) &&
           SET(CURLOPT_PREREQFUNCTION, on_request_starts) && SET(CURLOPT_PREREQDATA, transfer) &&
           SET(CURLOPT_WRITEFUNCTION, on_body) && SET(CURLOPT_WRITEDATA, transfer) &&
           SET(CURLOPT_HEADERFUNCTION, on_header) && SET(CURLOPT_HEADERDATA, transfer);
}

/* Lanes are filled up one after the other; when there may be no more of them, they get more calls than connections. */
static struct http_lane *choose_lane(const struct http_transfers *transfers, struct http_transfer_origin *origin)
{
    struct http_lane *lane = origin->open_lanes;
    if (lane)
        return lane;
    if (origin->lanes_count * LANE_CALLS >= transfers->connections_max && origin->lanes_count > 0) {
        origin->next_lane = (origin->next_lane + 1) % origin->lanes_count;
        return origin->lanes[origin->next_lane];
    }
    struct http_lane **lanes = realloc(origin->lanes, (size_t)(origin->lanes_count + 1) * sizeof(struct http_lane *));
    if (!lanes)
        return NULL;
    origin->lanes = lanes;
    lane = http_lane_new(transfers->loop, LANE_CALLS, on_transfer_done);
    if (lane) {
        lanes[origin->lanes_count++] = lane;
        origin->open_lanes = lane;
    }
    return lane;
}

static bool enter_lane(struct http_transfer *transfer)
{
    struct http_transfer_origin *origin = transfer->origin;
    struct http_lane *lane = choose_lane(transfer->transfers, origin);
    if (!lane)
        return false;
    transfer->lane = lane;
    if (++lane->calls == LANE_CALLS)
        origin->open_lanes = lane->next_open;
    return true;
}

/* NULL: out of memory. */
static struct http_transfer *new_transfer(struct http_transfers *transfers, struct http_transfer_origin *origin,
                                          struct http_call *call)
{
    struct http_transfer *transfer = calloc(1, sizeof(*transfer));
    if (!transfer)
        return NULL;
    transfer->transfers = transfers;
    transfer->origin = origin;
    transfer->call = call;
    transfer->authorities = authorities_hold(transfers->authorities);
    /* guard: a call keeps the certificate that it began with */
    transfer->certificate = client_certificate_hold(call->certificate);
    transfer->tls.turn = &transfers->loop->turn;
    transfer->tls.authorities = transfer->authorities;
    transfer->tls.call_max = HTTP_CALL_BYTES(transfers->answer_max);
    transfer->easy = curl_easy_init();
    transfer->next = transfers->first;
    if (transfers->first)
        transfers->first->previous = transfer;
    transfers->first = transfer;
    return transfer;
}

static void list_header(struct http_transfer *transfer, int *count, const char *header)
{
    struct curl_slist *item = &transfer->headers[*count];
    *item = (struct curl_slist){.data = (char *)header};
    if (*count > 0)
        item[-1].next = item;
    (*count)++;
}

static void list_headers(struct http_transfer *transfer, const struct http_call *call, bool has_body)
{
    int count = 0;
    bool typed = false;
    list_header(transfer, &count, "User-Agent: issuing");
    const char *line = call->lines.bytes;
    while ((line = http_call_next_line(call, line))) {
        list_header(transfer, &count, line);
        typed = typed || strncasecmp(line, "content-type:", 13) == 0;
    }
    if (has_body) {
        list_header(transfer, &count, "Expect:");
        if (!typed)
            list_header(transfer, &count, "Content-Type:"); /* else curl calls it a form */
    }
    if (call->secret_header)
        list_header(transfer, &count, call->secret_header);
}

static bool set_call(struct http_transfer *transfer, const struct http_call *call, bool has_body)
{
    CURL *easy = transfer->easy;
    const struct buf *body = &call->body;
    /* Over HTTP/2 calls share connections. */
    /* guard: HTTP/2 is not offered unless the call may use it */
    long version = call->may_be_http2 ? (long)CURL_HTTP_VERSION_2TLS : (long)CURL_HTTP_VERSION_1_1;
    bool done = SET(CURLOPT_HTTP_VERSION, version) && SET(CURLOPT_PIPEWAIT, call->may_be_http2 ? 1L : 0L) &&
                SET(CURLOPT_CURLU, call->origin->address) &&
                SET(CURLOPT_REQUEST_TARGET, call->lines.bytes + call->origin->text_length) &&
                SET(CURLOPT_TIMEOUT_MS, (long)call->timeout_ms);
    /* The time of the whole call ends its connecting too, unless that is over curl's own limit. */
    if (done && call->timeout_ms > CURL_CONNECT_MS)
        done = SET(CURLOPT_CONNECTTIMEOUT_MS, (long)call->timeout_ms);
    if (done && strcmp(call->method, "GET") != 0 && strcmp(call->method, "POST") != 0)
        done = SET(CURLOPT_CUSTOMREQUEST, call->method);
    if (done && has_body)
        done = SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body->length) &&
               SET(CURLOPT_POSTFIELDS, body->bytes ? body->bytes : "");
    return done;
}

#undef SET

/* ---- for http_client.c ---- */

void http_transfers_init(struct http_transfers *transfers, struct http_loop *loop, int connections_max,
                         size_t answer_max, const char *ca_file)
{
    *transfers = (struct http_transfers){
        .loop = loop, .connections_max = connections_max, .answer_max = answer_max, .ca_file = ca_file};
}

void http_transfers_trust(struct http_transfers *transfers, struct authorities *authorities)
{
    authorities_release(transfers->authorities);
    transfers->authorities = authorities_hold(authorities);
}

const char *http_transfer_start(struct http_transfers *transfers, struct http_transfer_origin *origin,
                                struct http_call *call)
{
    bool has_body = http_call_has_body(call);
    struct http_transfer *transfer = new_transfer(transfers, origin, call);
    if (!transfer)
        return "out of memory";
    list_headers(transfer, call, has_body);
    if (transfer->easy && set_constants(transfer->easy, transfer) && enter_lane(transfer) &&
        set_call(transfer, call, has_body) && http_lane_start(transfer->lane, transfer->easy))
        return NULL;
    free_transfer(transfer);
    return "out of memory";
}

void http_transfers_stop_all(struct http_transfers *transfers, const char *why)
{
    for (struct http_transfer *transfer = transfers->first, *next; transfer; transfer = next) {
        struct http_call *call = transfer->call;
        next = transfer->next;
        http_lane_stop(transfer->lane, transfer->easy);
        free_transfer(transfer);
        http_call_failed(call, why);
    }
}

void http_transfer_origin_done(struct http_transfer_origin *origin)
{
    free(origin->lanes);
    *origin = (struct http_transfer_origin){0};
}

void http_transfers_done(struct http_transfers *transfers)
{
    assert(!transfers->first);
    http_transfers_trust(transfers, NULL);
}
