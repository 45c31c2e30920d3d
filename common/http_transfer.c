/* Calls over https, by libcurl: TLS, and HTTP/2 where the peer offers it.
 *
 * A transfer has an easy handle of its own. A handle that served an earlier one keeps a pointer into that one's header
 * (curl/curl#11101, in libcurl 7.88): a peer that begins an answer with a folded line would crash us. Connections, names and
 * TLS sessions are kept elsewhere, by the lanes (http_loop.h) that the calls are spread over.
 *
 * Invariants: a request may be sent from the point just before curl writes it (CURLOPT_PREREQFUNCTION), and that is
 * said at each sending. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/clock.h"
#include "common/http_client_internal.h"
#include "common/http_values.h"

#define OWN_HEADERS 4 /* User-Agent, Expect:, Content-Type:, the secret one */
#define CURL_CONNECT_MS 300000
#define LANE_CALLS 64
/* Nearly every answer comes in one piece of this size or less; what curl reads into is wiped after each call. */
#define READ_SIZE 1536L
#define UPLOAD_SIZE 16384L /* curl's least; with TLS it copies each request into one */

struct http_transfer {
    struct http_client *client;
    struct http_transfer *next, *previous;
    CURL *easy;
    struct http_call *call;
    struct http_lane *lane;
    struct authorities *authorities;                                /* whom it trusts; NULL = as the options say */
    struct curl_slist headers[HTTP_CALL_HEADERS_MAX + OWN_HEADERS]; /* point to the call's texts; curl copies neither */
    const char *objection;                                          /* why a callback of ours ended the transfer */
    size_t header_bytes;
    bool header_is_whole;
    char problem[CURL_ERROR_SIZE];
};

/* ---- the end of a call ---- */

/* With its call out of its hands. */
static void free_transfer(struct http_transfer *transfer)
{
    struct http_origin *origin = transfer->call->origin;
    struct http_lane *lane = transfer->lane;
    if (transfer->previous)
        transfer->previous->next = transfer->next;
    else
        transfer->client->transfers = transfer->next;
    if (transfer->next)
        transfer->next->previous = transfer->previous;
    if (lane && lane->calls-- == LANE_CALLS) {
        lane->next_open = origin->open_lanes;
        origin->open_lanes = lane;
    }
    curl_easy_cleanup(transfer->easy);
    authorities_release(transfer->authorities);
    free(transfer);
}

/* curl's own text names host and port, its code does not. It is used only while nothing of an answer can be in it. */
static const char *problem_of(const struct http_transfer *transfer, CURLcode code)
{
    if (transfer->objection)
        return transfer->objection;
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
    /* curl is content with a header cut off by a close; and a 1xx at the end is an upgrade that nobody asked for. */
    bool is_answered = code == CURLE_OK && transfer->header_is_whole && status >= 200 && status <= 999;
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
    if (http_call_is_late(transfer->call)) {
        transfer->objection = "its time was over before it was sent";
        return CURL_PREREQFUNC_ABORT;
    }
    http_call_leaves(transfer->call);
    return CURL_PREREQFUNC_OK;
}

static size_t on_body(char *bytes, size_t one, size_t length, void *context)
{
    (void)one;
    struct http_transfer *transfer = context;
    struct buf *answer = &transfer->call->answer;
    if (length > transfer->client->options.answer_max - answer->length || length > answer->max - answer->length) {
        transfer->objection = "the answer is too large";
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
    if (!http_split_header(line, &name, &value))
        return;
    if (http_same_word(name, "retry-after"))
        call->retry_after_ms = http_retry_after_ms(value, clock_wall_us() / 1000);
    else if (http_same_word(name, "content-type"))
        call->answer_is_json = http_is_json(value);
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
    if (length == 0)
        return 0;
    if (length >= 5 && memcmp(bytes, "HTTP/", 5) == 0) { /* a further answer: what an interim one said is void */
        call->retry_after_ms = -1;
        call->answer_is_json = false;
        transfer->header_is_whole = false;
    } else if (bytes[0] == '\r' || bytes[0] == '\n') {
        transfer->header_is_whole = true;
    } else if (!transfer->header_is_whole) { /* later ones are trailers */
        read_header(call, (struct slice){.bytes = bytes, .length = length});
    }
    return length;
}

/* ---- transfers ---- */

#define SET(option, value) (curl_easy_setopt(easy, option, value) == CURLE_OK)

bool http_transfer_set_common(CURL *easy, char *problem)
{
    return SET(CURLOPT_NOSIGNAL, 1L) && SET(CURLOPT_VERBOSE, 0L) && SET(CURLOPT_ERRORBUFFER, problem) &&
           SET(CURLOPT_PROTOCOLS_STR, "http,https") && SET(CURLOPT_FOLLOWLOCATION, 0L) && SET(CURLOPT_PROXY, "") &&
           SET(CURLOPT_NOPROXY, "*") && /* else it looks for one in the environment each time */
           SET(CURLOPT_NETRC, (long)CURL_NETRC_IGNORED) && SET(CURLOPT_BUFFERSIZE, READ_SIZE) &&
           SET(CURLOPT_UPLOAD_BUFFERSIZE, UPLOAD_SIZE) && SET(CURLOPT_TCP_KEEPALIVE, 1L) &&
           /* a name server that hangs must not hold up the loop when the call's time is over */
           SET(CURLOPT_QUICK_EXIT, 1L);
}

/* Certificates that were read before are handed over as they are: a file would be read at a handshake, when nobody
 * watches whether it is whole, and remembered for a day. */
static bool set_authorities(CURL *easy, const struct http_transfer *transfer)
{
    const char *ca_file = transfer->client->options.ca_file;
    if (!transfer->authorities)
        return !ca_file || !ca_file[0] || SET(CURLOPT_CAINFO, ca_file);
    struct curl_blob blob = {
        .data = transfer->authorities->bytes, .len = transfer->authorities->length, .flags = CURL_BLOB_NOCOPY};
    return SET(CURLOPT_CAINFO_BLOB, &blob);
}

static bool set_constants(CURL *easy, struct http_transfer *transfer)
{
    return http_transfer_set_common(easy, transfer->problem) && SET(CURLOPT_PRIVATE, transfer) &&
           SET(CURLOPT_HTTPHEADER, transfer->headers) && SET(CURLOPT_PATH_AS_IS, 1L) &&
           SET(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2) && SET(CURLOPT_SSL_VERIFYPEER, 1L) &&
           SET(CURLOPT_SSL_VERIFYHOST, 2L) && SET(CURLOPT_HTTP09_ALLOWED, 0L) &&
           /* The bundle alone: with a folder beside it curl reads all certificates at every connection, for 15 ms. */
           SET(CURLOPT_CAPATH, NULL) && set_authorities(easy, transfer) &&
           /* HTTP/2 where the peer offers it, and then calls share connections */
           SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2TLS) && SET(CURLOPT_PIPEWAIT, 1L) &&
           /* callbacks */
           http_loop_adopt(&transfer->client->loop, easy, &transfer->lane) &&
           SET(CURLOPT_PREREQFUNCTION, on_request_starts) && SET(CURLOPT_PREREQDATA, transfer) &&
           SET(CURLOPT_WRITEFUNCTION, on_body) && SET(CURLOPT_WRITEDATA, transfer) &&
           SET(CURLOPT_HEADERFUNCTION, on_header) && SET(CURLOPT_HEADERDATA, transfer);
}

/* Lanes are filled up one after the other; when there may be no more of them, they get more calls than connections. */
static struct http_lane *choose_lane(struct http_origin *origin)
{
    struct http_client *client = origin->client;
    struct http_lane *lane = origin->open_lanes;
    if (lane)
        return lane;
    if (origin->lanes_count * LANE_CALLS >= client->options.connections_max && origin->lanes_count > 0) {
        origin->next_lane = (origin->next_lane + 1) % origin->lanes_count;
        return origin->lanes[origin->next_lane];
    }
    struct http_lane **lanes = realloc(origin->lanes, (size_t)(origin->lanes_count + 1) * sizeof(struct http_lane *));
    if (!lanes)
        return NULL;
    origin->lanes = lanes;
    lane = http_lane_new(&client->loop, LANE_CALLS, on_transfer_done);
    if (lane) {
        lanes[origin->lanes_count++] = lane;
        origin->open_lanes = lane;
    }
    return lane;
}

static bool enter_lane(struct http_transfer *transfer)
{
    struct http_origin *origin = transfer->call->origin;
    struct http_lane *lane = choose_lane(origin);
    if (!lane)
        return false;
    transfer->lane = lane;
    if (++lane->calls == LANE_CALLS)
        origin->open_lanes = lane->next_open;
    return true;
}

/* NULL: out of memory. */
static struct http_transfer *new_transfer(struct http_client *client, struct http_call *call)
{
    struct http_transfer *transfer = calloc(1, sizeof(*transfer));
    if (!transfer)
        return NULL;
    transfer->client = client;
    transfer->call = call;
    transfer->authorities = authorities_hold(client->authorities);
    transfer->easy = curl_easy_init();
    transfer->next = client->transfers;
    if (client->transfers)
        client->transfers->previous = transfer;
    client->transfers = transfer;
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

static void list_headers(struct http_transfer *transfer, const struct http_call *call, bool is_post)
{
    int count = 0;
    bool typed = false;
    const char *end = call->lines.bytes + call->lines.length;
    list_header(transfer, &count, "User-Agent: issuing");
    for (const char *line = strchr(call->lines.bytes, '\0') + 1; line < end; line = strchr(line, '\0') + 1) {
        list_header(transfer, &count, line);
        typed = typed || strncasecmp(line, "content-type:", 13) == 0;
    }
    if (is_post) {
        list_header(transfer, &count, "Expect:");
        if (!typed)
            list_header(transfer, &count, "Content-Type:"); /* else curl calls it a form */
    }
    if (call->secret_header)
        list_header(transfer, &count, call->secret_header);
}

static bool set_call(struct http_transfer *transfer, const struct http_call *call, bool is_post)
{
    CURL *easy = transfer->easy;
    const struct buf *body = &call->body;
    bool done = SET(CURLOPT_CURLU, call->origin->address) &&
                SET(CURLOPT_REQUEST_TARGET, call->lines.bytes + call->origin->text_length) &&
                SET(CURLOPT_TIMEOUT_MS, (long)call->timeout_ms);
    if (done && call->method[0] == 'D')
        done = SET(CURLOPT_CUSTOMREQUEST, "DELETE");
    /* The time of the whole call ends its connecting too, unless that is over curl's own limit. */
    if (done && call->timeout_ms > CURL_CONNECT_MS)
        done = SET(CURLOPT_CONNECTTIMEOUT_MS, (long)call->timeout_ms);
    if (done && call->method[0] == 'D')
        done = SET(CURLOPT_CUSTOMREQUEST, call->method);
    if (done && is_post)
        done = SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body->length) &&
               SET(CURLOPT_POSTFIELDS, body->bytes ? body->bytes : "");
    return done;
}

#undef SET

/* ---- for http_client.c ---- */

const char *http_transfer_start(struct http_client *client, struct http_call *call)
{
    bool is_post = call->method[0] == 'P';
    struct http_transfer *transfer = new_transfer(client, call);
    if (!transfer)
        return "out of memory";
    list_headers(transfer, call, is_post);
    if (transfer->easy && set_constants(transfer->easy, transfer) && enter_lane(transfer) &&
        set_call(transfer, call, is_post) && http_lane_start(transfer->lane, transfer->easy))
        return NULL;
    free_transfer(transfer);
    return "out of memory";
}

void http_transfer_stop_all(struct http_client *client, const char *why)
{
    for (struct http_transfer *transfer = client->transfers, *next; transfer; transfer = next) {
        struct http_call *call = transfer->call;
        next = transfer->next;
        http_lane_stop(transfer->lane, transfer->easy);
        free_transfer(transfer);
        http_call_failed(call, why); /* neither starts another nor ends one: the client is closing */
    }
}

void http_transfer_done(struct http_client *client)
{
    assert(!client->transfers);
    for (struct http_origin *origin = client->origins; origin < client->origins + HTTP_ORIGINS_MAX; origin++) {
        free(origin->lanes);
        origin->lanes = NULL;
    }
}
