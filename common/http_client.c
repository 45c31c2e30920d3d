/* Outgoing HTTP: one call, one fate. http_loop.c moves the sockets, this room what is said on them.
 *
 * What would cost at each call is done once for many: a URL is split into the place, parsed once, and the rest, which
 * curl is told as the request's target; an easy handle keeps whatever did not change since its last call; calls are
 * spread over lanes (http_loop.h). Between its calls an event owns nothing here.
 *
 * Invariants: a call is in exactly one place: a slot, the list of unstarted ones, or its owner's hands; it ends once,
 * in end_call(), never below http_client_start(). HTTP_NOT_SENT is said only when curl never came to the point just
 * before it writes a request (CURLOPT_PREREQFUNCTION), during the whole call: when a kept connection turned out dead
 * and the second try was refused, the first may have been read, so that is HTTP_LOST. What curl frees is wiped, for its
 * buffers hold credentials and card numbers.
 *
 * Left out: redirects, cookies, proxies, files, decoding of Content-Encoding, a limit on parallel calls (the callers
 * have theirs). */
#include "common/http_client.h"

#include <assert.h>
#include <ctype.h>
#include <curl/curl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/clock.h"
#include "common/http_loop.h"
#include "common/http_values.h"
#include "common/secret.h"

#define HEADER_BYTES_MAX (32 * 1024) /* of one answer, interim answers included */
#define OWN_HEADERS 4                /* User-Agent, Expect:, Content-Type:, the secret one */
#define PLACES_MAX 8
#define CURL_CONNECT_MS 300000
#define LANE_CALLS 64
/* Nearly every answer comes in one piece of this size or less; what curl reads into is wiped after each call. */
#define READ_SIZE 1536L
#define UPLOAD_SIZE 16384L /* curl's least; with TLS it copies each request into one */

/* An easy handle with its constant options, used for one call after the other. */
struct slot {
    struct http_client *client;
    CURL *easy;
    struct http_call *call; /* NULL while free */
    struct place *place;    /* of the call */
    struct http_lane *lane; /* likewise */
    const CURLU *address;   /* what curl knows of the last call: of its place, */
    int64_t timeout_ms;     /* its time (0 = nothing yet), */
    bool is_get;            /* and its method */
    struct slot *next, *next_free;
    struct curl_slist headers[HTTP_CALL_HEADERS_MAX + OWN_HEADERS]; /* point to the call's texts; curl copies neither */
    const char *objection;                                          /* why a callback of ours ended the transfer */
    size_t header_bytes;
    bool header_is_whole;
    bool may_be_sent;
    char problem[CURL_ERROR_SIZE];
};

/* Scheme, host and port: what calls must share to share a connection. An idle one is given up for another. */
struct place {
    char *text; /* owned, as the URLs begin; NULL = unused */
    size_t text_length;
    CURLU *address; /* parsed once for all calls */
    bool is_https;
    int busy;
    struct http_lane *open_lanes; /* those with less than LANE_CALLS calls; the first is filled up first */
    struct http_lane **lanes;     /* owned */
    int lanes_count, next_lane;
};

struct http_client {
    struct http_loop loop;
    uv_timer_t ender; /* ends calls that never started, and closes */
    size_t answer_max;
    const char *ca_file;
    int lanes_max; /* of one place */
    struct place places[PLACES_MAX];
    struct slot *slots, *free_slots;
    struct http_call *unstarted, **unstarted_tail;
    bool closing;
    void (*on_closed)(void *context);
    void *on_closed_context;
};

/* ---- what curl frees is wiped ---- */

static void wiping_free(void *bytes)
{
    if (!bytes) /* most calls of curl's are such */
        return;
    secret_wipe(bytes, malloc_usable_size(bytes));
    free(bytes);
}

static void *wiping_realloc(void *old, size_t size)
{
    size_t old_size = old ? malloc_usable_size(old) : 0;
    if (old && size <= old_size)
        return old;
    void *bytes = malloc(size);
    if (bytes && old) {
        memcpy(bytes, old, old_size < size ? old_size : size);
        wiping_free(old);
    }
    return bytes;
}

static bool curl_ready;

static void init_curl(void)
{
    curl_ready =
        curl_global_init_mem(CURL_GLOBAL_DEFAULT, malloc, wiping_free, wiping_realloc, strdup, calloc) == CURLE_OK;
}

/* ---- the end of a call ---- */

static void on_ender(uv_timer_t *timer);

static void forget(struct buf *buf)
{
    buf_wipe(buf);
    buf_done(buf);
}

static void end_call(struct http_call *call)
{
    forget(&call->lines);
    forget(&call->body);
    call->took_us = clock_mono_us() - call->took_us;
    call->client = NULL;
    call->next = NULL;
    call->on_done(call); /* may free the call or start it again */
}

static void end_unstarted(struct http_client *client, struct http_call *call, const char *why)
{
    call->fate = HTTP_NOT_SENT;
    snprintf(call->error, sizeof(call->error), "%s", why);
    *client->unstarted_tail = call;
    client->unstarted_tail = &call->next;
    uv_timer_start(&client->ender, on_ender, 0, 0);
}

/* curl's own text names host and port, its code does not. Used only while nothing of an answer can be in it. */
static void say_problem(struct http_call *call, const char *text)
{
    snprintf(call->error, sizeof(call->error), "%.*s", (int)sizeof(call->error) - 1, text);
    for (char *c = call->error; *c; c++)
        if (iscntrl((unsigned char)*c))
            *c = '?';
}

static void judge(struct slot *slot, CURLcode code, const char *closing)
{
    struct http_call *call = slot->call;
    long status = 0;
    curl_easy_getinfo(slot->easy, CURLINFO_RESPONSE_CODE, &status);
    /* curl is content with a header cut off by a close; and a 1xx at the end is an upgrade that nobody asked for. */
    if (!closing && code == CURLE_OK && slot->header_is_whole && status >= 200 && status <= 999) {
        call->fate = HTTP_ANSWERED;
        call->status = (int)status;
        return;
    }
    call->fate = slot->may_be_sent ? HTTP_LOST : HTTP_NOT_SENT;
    forget(&call->answer);
    call->answer_is_json = false;
    call->retry_after_ms = -1;
    if (closing)
        say_problem(call, closing);
    else if (slot->objection)
        say_problem(call, slot->objection);
    else if (code == CURLE_OK)
        say_problem(call, "no whole header");
    else if (slot->may_be_sent || !slot->problem[0])
        say_problem(call, curl_easy_strerror(code));
    else
        say_problem(call, slot->problem);
}

static void free_slot(struct slot *slot)
{
    struct http_client *client = slot->client;
    struct http_lane *lane = slot->lane;
    if (lane && lane->calls-- == LANE_CALLS) {
        lane->next_open = slot->place->open_lanes;
        slot->place->open_lanes = lane;
    }
    slot->place->busy--;
    slot->lane = NULL;
    slot->call = NULL;
    slot->next_free = client->free_slots;
    client->free_slots = slot;
}

static void end_slot(struct slot *slot, CURLcode code, const char *closing)
{
    struct http_call *call = slot->call;
    judge(slot, code, closing); /* first: curl forgets some of it when the transfer is taken out */
    http_lane_stop(slot->lane, slot->easy);
    free_slot(slot);
    end_call(call);
}

static void on_transfer_done(CURL *easy, CURLcode code)
{
    struct slot *slot = NULL;
    curl_easy_getinfo(easy, CURLINFO_PRIVATE, &slot);
    end_slot(slot, code, NULL);
}

/* ---- what comes back ---- */

static int on_request_starts(void *context, char *peer, char *local, int peer_port, int local_port)
{
    (void)peer, (void)local, (void)peer_port, (void)local_port;
    struct slot *slot = context;
    slot->call->was_resent = slot->may_be_sent;
    slot->may_be_sent = true;
    return CURL_PREREQFUNC_OK;
}

static size_t on_body(char *bytes, size_t one, size_t length, void *context)
{
    (void)one;
    struct slot *slot = context;
    struct buf *answer = &slot->call->answer;
    if (length > slot->client->answer_max - answer->length || length > answer->max - answer->length) {
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
    struct slot *slot = context;
    struct http_call *call = slot->call;
    slot->header_bytes += length;
    if (slot->header_bytes > HEADER_BYTES_MAX) {
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

/* ---- places ---- */

/* Where the scheme, host and port of a URL end; 0 = it is none of ours. */
static size_t place_length(const char *url, bool *ret_is_https)
{
    *ret_is_https = strncasecmp(url, "https://", 8) == 0;
    if (!*ret_is_https && strncasecmp(url, "http://", 7) != 0)
        return 0;
    size_t scheme = *ret_is_https ? 8 : 7, host = strcspn(url + scheme, "/?#");
    return host > 0 && url[scheme + host] == '/' ? scheme + host : 0;
}

/* The lanes stay, for whatever comes next. */
static void leave_place(struct http_client *client, struct place *place)
{
    assert(place->busy == 0);
    for (struct slot *slot = client->slots; slot && place->address; slot = slot->next)
        if (slot->address == place->address)
            slot->address = NULL;
    curl_url_cleanup(place->address);
    free(place->text);
    place->address = NULL;
    place->text = NULL;
}

static const char *enter_place(struct http_client *client, struct place *place, const char *url, size_t length,
                               bool is_https)
{
    place->text = strndup(url, length);
    place->text_length = length;
    place->is_https = is_https;
    place->address = curl_url();
    if (!place->text || !place->address) {
        leave_place(client, place);
        return "out of memory";
    }
    if (curl_url_set(place->address, CURLUPART_URL, place->text, 0) != CURLUE_OK) {
        leave_place(client, place);
        return "not an address of HTTP";
    }
    return NULL;
}

/* Returns why there is none, or NULL. */
static const char *find_place(struct http_client *client, const char *url, struct place **ret_place)
{
    bool is_https;
    size_t length = place_length(url, &is_https);
    if (length == 0)
        return "not an address of HTTP";
    struct place *unused = NULL;
    for (struct place *place = client->places; place < client->places + PLACES_MAX; place++) {
        if (place->text && place->text_length == length && memcmp(place->text, url, length) == 0) {
            *ret_place = place;
            return NULL;
        }
        if (place->busy == 0 && (!unused || (unused->text && !place->text)))
            unused = place;
    }
    if (!unused)
        return "too many addresses at once";
    leave_place(client, unused);
    *ret_place = unused;
    return enter_place(client, unused, url, length, is_https);
}

/* ---- slots ---- */

#define SET(option, value) (curl_easy_setopt(easy, option, value) == CURLE_OK)

static bool set_constants(CURL *easy, struct slot *slot)
{
    bool has_ca_file = slot->client->ca_file && slot->client->ca_file[0];
    return SET(CURLOPT_PRIVATE, slot) && SET(CURLOPT_NOSIGNAL, 1L) && SET(CURLOPT_VERBOSE, 0L) &&
           SET(CURLOPT_ERRORBUFFER, slot->problem) && SET(CURLOPT_HTTPHEADER, slot->headers) &&
           SET(CURLOPT_BUFFERSIZE, READ_SIZE) && SET(CURLOPT_UPLOAD_BUFFERSIZE, UPLOAD_SIZE) &&
           /* where it may go */
           SET(CURLOPT_PROTOCOLS_STR, "http,https") && SET(CURLOPT_FOLLOWLOCATION, 0L) && SET(CURLOPT_PROXY, "") &&
           SET(CURLOPT_NOPROXY, "*") && /* else it looks for one in the environment each time */
           SET(CURLOPT_NETRC, (long)CURL_NETRC_IGNORED) && SET(CURLOPT_PATH_AS_IS, 1L) &&
           SET(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2) && SET(CURLOPT_SSL_VERIFYPEER, 1L) &&
           SET(CURLOPT_SSL_VERIFYHOST, 2L) && SET(CURLOPT_HTTP09_ALLOWED, 0L) &&
           /* The bundle alone: with a folder beside it curl reads all certificates at every connection, for 15 ms. */
           SET(CURLOPT_CAPATH, NULL) && (!has_ca_file || SET(CURLOPT_CAINFO, slot->client->ca_file)) &&
           /* HTTP/2 where TLS offers it, 1.1 in clear text */
           SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2TLS) && SET(CURLOPT_TCP_KEEPALIVE, 1L) &&
           /* a name server that hangs must not hold up the loop when the call's time is over */
           SET(CURLOPT_QUICK_EXIT, 1L) &&
           /* callbacks */
           http_loop_adopt(&slot->client->loop, easy, &slot->lane) && SET(CURLOPT_PREREQFUNCTION, on_request_starts) &&
           SET(CURLOPT_PREREQDATA, slot) && SET(CURLOPT_WRITEFUNCTION, on_body) && SET(CURLOPT_WRITEDATA, slot) &&
           SET(CURLOPT_HEADERFUNCTION, on_header) && SET(CURLOPT_HEADERDATA, slot);
}

/* Lanes are filled up one after the other; when there may be no more of them, they get more calls than connections. */
static struct http_lane *choose_lane(struct http_client *client, struct place *place)
{
    struct http_lane *lane = place->open_lanes;
    if (lane)
        return lane;
    if (place->lanes_count == client->lanes_max) {
        place->next_lane = (place->next_lane + 1) % place->lanes_count;
        return place->lanes[place->next_lane];
    }
    struct http_lane **lanes = realloc(place->lanes, (size_t)(place->lanes_count + 1) * sizeof(struct http_lane *));
    if (!lanes)
        return NULL;
    place->lanes = lanes;
    lane = http_lane_new(&client->loop, LANE_CALLS);
    if (lane) {
        lanes[place->lanes_count++] = lane;
        place->open_lanes = lane;
    }
    return lane;
}

static bool enter_lane(struct slot *slot)
{
    struct place *place = slot->place;
    struct http_lane *lane = choose_lane(slot->client, place);
    if (!lane)
        return false;
    slot->lane = lane;
    if (++lane->calls == LANE_CALLS)
        place->open_lanes = lane->next_open;
    return true;
}

static struct slot *take_slot(struct http_client *client)
{
    struct slot *slot = client->free_slots;
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

static void list_header(struct slot *slot, int *count, const char *header)
{
    struct curl_slist *item = &slot->headers[*count];
    *item = (struct curl_slist){.data = (char *)header};
    if (*count > 0)
        item[-1].next = item;
    (*count)++;
}

/* curl would write a line break as it is. */
static bool has_break(const char *text, size_t length)
{
    return memchr(text, '\n', length) || memchr(text, '\r', length);
}

/* Returns what is wrong with them, or NULL. */
static const char *list_headers(struct slot *slot, struct http_call *call, bool is_post)
{
    int count = 0;
    bool typed = false;
    const struct buf *lines = &call->lines;
    const char *end = lines->bytes + lines->length;
    list_header(slot, &count, "User-Agent: issuing");
    for (const char *line = strchr(lines->bytes, '\0') + 1; line < end; line = strchr(line, '\0') + 1) {
        if (count > HTTP_CALL_HEADERS_MAX)
            return "too many headers";
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
    bool breaks = has_break(lines->bytes, lines->length) ||
                  (call->secret_header && has_break(call->secret_header, strlen(call->secret_header)));
    return breaks ? "a header with a line break" : NULL;
}

/* It goes into the request line as it is. */
static bool is_target(const char *target)
{
    for (const char *byte = target; *byte; byte++)
        if (*byte <= 0x20 || *byte >= 0x7f || *byte == '#')
            return false;
    return *target == '/';
}

static bool set_call(struct slot *slot, struct http_call *call, bool is_post)
{
    CURL *easy = slot->easy;
    const struct buf *body = &call->body;
    int64_t timeout_ms = call->timeout_ms < 1 ? 1 : call->timeout_ms; /* 0 would mean for ever */
    struct place *place = slot->place;
    bool done = SET(CURLOPT_REQUEST_TARGET, call->lines.bytes + place->text_length);
    if (done && slot->address != place->address) {
        /* In clear text there is nothing to share, so waiting for another call's connection is only late. */
        done = SET(CURLOPT_CURLU, place->address) && SET(CURLOPT_PIPEWAIT, place->is_https ? 1L : 0L);
        slot->address = done ? place->address : NULL;
    }
    if (done && timeout_ms != slot->timeout_ms) {
        /* The time of the whole call ends its connecting too, unless that is over curl's own limit. */
        done = SET(CURLOPT_TIMEOUT_MS, (long)timeout_ms) &&
               SET(CURLOPT_CONNECTTIMEOUT_MS, timeout_ms > CURL_CONNECT_MS ? (long)timeout_ms : 0L);
        slot->timeout_ms = done ? timeout_ms : 0;
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

/* ---- the room's own calls ---- */

void http_call_init(struct http_call *call, size_t answer_max)
{
    memset(call, 0, sizeof(*call));
    buf_init(&call->lines, HTTP_CALL_TEXT_MAX);
    buf_init(&call->body, HTTP_CALL_TEXT_MAX);
    buf_init(&call->answer, answer_max);
    call->retry_after_ms = -1;
}

void http_call_done(struct http_call *call)
{
    assert(!call->client);
    forget(&call->lines);
    forget(&call->body);
    forget(&call->answer);
}

void http_call_make(struct http_call *call, const char *method)
{
    assert(!call->client);
    call->method = method;
    buf_reset(&call->lines);
    buf_reset(&call->body);
}

void http_call_end_line(struct http_call *call)
{
    buf_put_byte(&call->lines, '\0');
}

bool http_call_is_made(const struct http_call *call)
{
    return !call->lines.failed && !call->body.failed;
}

void http_call_forget(struct http_call *call)
{
    forget(&call->answer);
}

/* Returns why it did not start, or NULL. */
static const char *start_call(struct http_client *client, struct http_call *call)
{
    if (client->closing)
        return "the client is closing";
    if (!http_call_is_made(call))
        return "out of memory";
    if (call->lines.length == 0 || call->lines.bytes[call->lines.length - 1] != '\0')
        return "not an address of HTTP";
    struct place *place = NULL;
    const char *why = find_place(client, call->lines.bytes, &place);
    if (why)
        return why;
    struct slot *slot = take_slot(client);
    if (!slot)
        return "out of memory";
    slot->place = place;
    place->busy++;
    slot->objection = NULL;
    slot->header_bytes = 0;
    slot->header_is_whole = false;
    slot->may_be_sent = false;
    slot->problem[0] = '\0';
    slot->call = call;
    bool is_post = call->method[0] == 'P';
    if (!is_target(call->lines.bytes + place->text_length))
        why = "not an address of HTTP";
    else
        why = list_headers(slot, call, is_post);
    if (!why && (!enter_lane(slot) || !set_call(slot, call, is_post) || !http_lane_start(slot->lane, slot->easy)))
        why = "out of memory";
    if (why)
        free_slot(slot);
    return why;
}

void http_client_start(struct http_client *client, struct http_call *call)
{
    assert(!call->client && call->on_done);
    assert(strcmp(call->method, "GET") == 0 || strcmp(call->method, "POST") == 0);
    forget(&call->answer);
    call->client = client;
    call->next = NULL;
    call->status = 0;
    call->retry_after_ms = -1;
    call->answer_is_json = false;
    call->was_resent = false;
    call->error[0] = '\0';
    call->took_us = clock_mono_us(); /* until the end: when it started */
    const char *why = start_call(client, call);
    if (why)
        end_unstarted(client, call, why);
}

static void on_loop_closed(struct http_loop *loop)
{
    struct http_client *client = container_of(loop, struct http_client, loop);
    void (*on_closed)(void *context) = client->on_closed;
    void *context = client->on_closed_context;
    free(client);
    on_closed(context);
}

static void on_ender_closed(uv_handle_t *handle)
{
    struct http_client *client = container_of((uv_timer_t *)handle, struct http_client, ender);
    for (struct slot *slot = client->slots, *next; slot; slot = next) {
        next = slot->next;
        curl_easy_cleanup(slot->easy);
        free(slot);
    }
    client->slots = NULL;
    for (struct place *place = client->places; place < client->places + PLACES_MAX; place++) {
        leave_place(client, place);
        free(place->lanes);
    }
    http_loop_close(&client->loop, on_loop_closed);
}

static void on_ender(uv_timer_t *timer)
{
    struct http_client *client = container_of(timer, struct http_client, ender);
    struct http_call *call = client->unstarted, *next;
    client->unstarted = NULL;
    client->unstarted_tail = &client->unstarted;
    for (; call; call = next) {
        next = call->next;
        end_call(call);
    }
    if (!client->closing) /* asked after the calls ended: one of them may have closed the client */
        return;
    for (struct slot *slot = client->slots; slot; slot = slot->next)
        if (slot->call)
            end_slot(slot, CURLE_OK, "the client is closing");
    if (!client->unstarted) /* else the timer runs again */
        uv_close((uv_handle_t *)timer, on_ender_closed);
}

void http_client_close(struct http_client *client, void (*on_closed)(void *context), void *context)
{
    assert(!client->closing);
    client->closing = true;
    client->on_closed = on_closed;
    client->on_closed_context = context;
    uv_timer_start(&client->ender, on_ender, 0, 0);
}

bool http_client_open(uv_loop_t *loop, const struct http_client_options *options, struct http_client **ret_client,
                      struct err *err)
{
    static uv_once_t once = UV_ONCE_INIT;
    uv_once(&once, init_curl);
    if (!curl_ready)
        return err_set(err, ERR_SYSTEM, "libcurl does not start");
    struct http_client *client = calloc(1, sizeof(*client));
    if (!client)
        return err_set(err, ERR_MEMORY, "out of memory for the HTTP client");
    if (!http_loop_open(&client->loop, loop, on_transfer_done, err)) {
        free(client);
        return false;
    }
    client->answer_max = options->answer_max;
    client->ca_file = options->ca_file;
    client->lanes_max = (options->connections_max + LANE_CALLS - 1) / LANE_CALLS;
    client->unstarted_tail = &client->unstarted;
    uv_timer_init(loop, &client->ender);
    *ret_client = client;
    return true;
}
