/* Calls over https, by libcurl: TLS, and HTTP/2 where the peer offers it.
 *
 * What would cost at each call is done once for many: an easy handle keeps whatever did not change since its last call;
 * calls are spread over lanes (http_loop.h). Between its calls an event owns nothing here.
 *
 * Invariants: a request may be sent from the point just before curl writes it (CURLOPT_PREREQFUNCTION), and that is
 * said at each sending. */
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

/* An easy handle with its constant options, used for one call after the other. */
struct http_slot {
    struct http_client *client;
    CURL *easy;
    struct http_call *call; /* NULL while free */
    struct http_lane *lane; /* of the call */
    const CURLU *address;   /* what curl knows of the last call: of its origin, */
    int64_t timeout_ms;     /* its time (0 = nothing yet), */
    bool is_get;            /* and its method */
    struct http_slot *next, *next_free;
    struct curl_slist headers[HTTP_CALL_HEADERS_MAX + OWN_HEADERS]; /* point to the call's texts; curl copies neither */
    const char *objection;                                          /* why a callback of ours ended the transfer */
    size_t header_bytes;
    bool header_is_whole;
    char problem[CURL_ERROR_SIZE];
};

/* ---- the end of a call ---- */

static void free_slot(struct http_slot *slot)
{
    struct http_client *client = slot->client;
    struct http_lane *lane = slot->lane;
    struct http_origin *origin = slot->call->origin;
    if (lane && lane->calls-- == LANE_CALLS) {
        lane->next_open = origin->open_lanes;
        origin->open_lanes = lane;
    }
    slot->lane = NULL;
    slot->call = NULL;
    slot->next_free = client->free_slots;
    client->free_slots = slot;
}

/* curl's own text names host and port, its code does not. It is used only while nothing of an answer can be in it. */
static const char *problem_of(const struct http_slot *slot, CURLcode code)
{
    if (slot->objection)
        return slot->objection;
    if (code == CURLE_OK)
        return "no whole header";
    return slot->call->may_be_sent || !slot->problem[0] ? curl_easy_strerror(code) : slot->problem;
}

static void on_transfer_done(CURL *easy, CURLcode code)
{
    struct http_slot *slot = NULL;
    long status = 0;
    curl_easy_getinfo(easy, CURLINFO_PRIVATE, &slot);
    /* first: curl forgets some of it when the transfer is taken out */
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    http_lane_stop(slot->lane, easy);
    struct http_call *call = slot->call;
    const char *problem = problem_of(slot, code);
    free_slot(slot);
    /* curl is content with a header cut off by a close; and a 1xx at the end is an upgrade that nobody asked for. */
    if (code == CURLE_OK && slot->header_is_whole && status >= 200 && status <= 999) {
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
    struct http_slot *slot = context;
    http_call_leaves(slot->call);
    return CURL_PREREQFUNC_OK;
}

static size_t on_body(char *bytes, size_t one, size_t length, void *context)
{
    (void)one;
    struct http_slot *slot = context;
    struct buf *answer = &slot->call->answer;
    if (length > slot->client->options.answer_max - answer->length || length > answer->max - answer->length) {
        slot->objection = "the answer is too large";
        return 0;
    }
    if (!buf_put(answer, bytes, length)) {
        slot->objection = "out of memory for the answer";
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
    struct http_slot *slot = context;
    struct http_call *call = slot->call;
    slot->header_bytes += length;
    if (slot->header_bytes > HTTP_HEADER_MAX) {
        slot->objection = "the answer's header is too large";
        return 0;
    }
    if (length == 0)
        return 0;
    if (length >= 5 && memcmp(bytes, "HTTP/", 5) == 0) { /* a further answer: what an interim one said is void */
        call->retry_after_ms = -1;
        call->answer_is_json = false;
        slot->header_is_whole = false;
    } else if (bytes[0] == '\r' || bytes[0] == '\n') {
        slot->header_is_whole = true;
    } else if (!slot->header_is_whole) { /* later ones are trailers */
        read_header(call, (struct slice){.bytes = bytes, .length = length});
    }
    return length;
}

/* ---- slots ---- */

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

static bool set_constants(CURL *easy, struct http_slot *slot)
{
    bool has_ca_file = slot->client->options.ca_file && slot->client->options.ca_file[0];
    return http_transfer_set_common(easy, slot->problem) && SET(CURLOPT_PRIVATE, slot) &&
           SET(CURLOPT_HTTPHEADER, slot->headers) && SET(CURLOPT_PATH_AS_IS, 1L) &&
           SET(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2) && SET(CURLOPT_SSL_VERIFYPEER, 1L) &&
           SET(CURLOPT_SSL_VERIFYHOST, 2L) && SET(CURLOPT_HTTP09_ALLOWED, 0L) &&
           /* The bundle alone: with a folder beside it curl reads all certificates at every connection, for 15 ms. */
           SET(CURLOPT_CAPATH, NULL) && (!has_ca_file || SET(CURLOPT_CAINFO, slot->client->options.ca_file)) &&
           /* HTTP/2 where the peer offers it, and then calls share connections */
           SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2TLS) && SET(CURLOPT_PIPEWAIT, 1L) &&
           /* callbacks */
           http_loop_adopt(&slot->client->loop, easy, &slot->lane) && SET(CURLOPT_PREREQFUNCTION, on_request_starts) &&
           SET(CURLOPT_PREREQDATA, slot) && SET(CURLOPT_WRITEFUNCTION, on_body) && SET(CURLOPT_WRITEDATA, slot) &&
           SET(CURLOPT_HEADERFUNCTION, on_header) && SET(CURLOPT_HEADERDATA, slot);
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

static bool enter_lane(struct http_slot *slot)
{
    struct http_origin *origin = slot->call->origin;
    struct http_lane *lane = choose_lane(origin);
    if (!lane)
        return false;
    slot->lane = lane;
    if (++lane->calls == LANE_CALLS)
        origin->open_lanes = lane->next_open;
    return true;
}

static struct http_slot *take_slot(struct http_client *client)
{
    struct http_slot *slot = client->free_slots;
    if (slot) {
        client->free_slots = slot->next_free;
        return slot;
    }
    slot = calloc(1, sizeof(*slot));
    CURL *easy = slot ? curl_easy_init() : NULL;
    if (!easy) {
        free(slot);
        return NULL;
    }
    slot->client = client;
    slot->easy = easy;
    if (!set_constants(easy, slot)) {
        curl_easy_cleanup(easy);
        free(slot);
        return NULL;
    }
    slot->next = client->slots;
    client->slots = slot;
    return slot;
}

static void list_header(struct http_slot *slot, int *count, const char *header)
{
    struct curl_slist *item = &slot->headers[*count];
    *item = (struct curl_slist){.data = (char *)header};
    if (*count > 0)
        item[-1].next = item;
    (*count)++;
}

static void list_headers(struct http_slot *slot, const struct http_call *call, bool is_post)
{
    int count = 0;
    bool typed = false;
    const char *end = call->lines.bytes + call->lines.length;
    list_header(slot, &count, "User-Agent: issuing");
    for (const char *line = strchr(call->lines.bytes, '\0') + 1; line < end; line = strchr(line, '\0') + 1) {
        list_header(slot, &count, line);
        typed = typed || strncasecmp(line, "content-type:", 13) == 0;
    }
    if (is_post) {
        list_header(slot, &count, "Expect:");
        if (!typed)
            list_header(slot, &count, "Content-Type:"); /* else curl calls it a form */
    }
    if (call->secret_header)
        list_header(slot, &count, call->secret_header);
}

static bool set_call(struct http_slot *slot, const struct http_call *call, bool is_post)
{
    CURL *easy = slot->easy;
    const struct buf *body = &call->body;
    const struct http_origin *origin = call->origin;
    bool done = SET(CURLOPT_REQUEST_TARGET, call->lines.bytes + origin->text_length);
    if (done && slot->address != origin->address) {
        done = SET(CURLOPT_CURLU, origin->address);
        slot->address = done ? origin->address : NULL;
    }
    if (done && call->timeout_ms != slot->timeout_ms) {
        /* The time of the whole call ends its connecting too, unless that is over curl's own limit. */
        done = SET(CURLOPT_TIMEOUT_MS, (long)call->timeout_ms) &&
               SET(CURLOPT_CONNECTTIMEOUT_MS, call->timeout_ms > CURL_CONNECT_MS ? (long)call->timeout_ms : 0L);
        slot->timeout_ms = done ? call->timeout_ms : 0;
    }
    if (is_post) {
        slot->is_get = false;
        return done && SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body->length) &&
               SET(CURLOPT_POSTFIELDS, body->bytes ? body->bytes : "");
    }
    slot->is_get = done && (slot->is_get || SET(CURLOPT_HTTPGET, 1L));
    return slot->is_get;
}

#undef SET

/* ---- for http_client.c ---- */

const char *http_transfer_start(struct http_client *client, struct http_call *call)
{
    struct http_slot *slot = take_slot(client);
    if (!slot)
        return "out of memory";
    bool is_post = call->method[0] == 'P';
    slot->call = call;
    slot->objection = NULL;
    slot->header_bytes = 0;
    slot->header_is_whole = false;
    slot->problem[0] = '\0';
    list_headers(slot, call, is_post);
    if (enter_lane(slot) && set_call(slot, call, is_post) && http_lane_start(slot->lane, slot->easy))
        return NULL;
    free_slot(slot);
    return "out of memory";
}

void http_transfer_stop_all(struct http_client *client, const char *why)
{
    for (struct http_slot *slot = client->slots; slot; slot = slot->next) {
        struct http_call *call = slot->call;
        if (!call)
            continue;
        http_lane_stop(slot->lane, slot->easy);
        free_slot(slot);
        http_call_failed(call, why);
    }
}

/* The lanes stay, for whatever comes next. */
void http_transfer_leave(struct http_origin *origin)
{
    for (struct http_slot *slot = origin->client->slots; slot && origin->address; slot = slot->next)
        if (slot->address == origin->address)
            slot->address = NULL;
}

void http_transfer_done(struct http_client *client)
{
    for (struct http_slot *slot = client->slots, *next; slot; slot = next) {
        next = slot->next;
        curl_easy_cleanup(slot->easy);
        free(slot);
    }
    client->slots = NULL;
    for (struct http_origin *origin = client->origins; origin < client->origins + HTTP_ORIGINS_MAX; origin++) {
        free(origin->lanes);
        origin->lanes = NULL;
    }
}
