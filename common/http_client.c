/* Outgoing HTTP: one call, one fate. http_loop.c moves the sockets, this room what is said on them.
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
#define FIRST_ANSWER_ROOM 2048
#define OWN_HEADERS 3 /* Expect:, Content-Type:, the secret one */

/* An easy handle with its constant options, used for one call after the other. */
struct slot {
    struct http_client *client;
    CURL *easy;
    struct http_call *call; /* NULL while free */
    struct slot *next, *next_free;
    struct curl_slist headers[HTTP_CALL_HEADERS_MAX + OWN_HEADERS]; /* point to the call's texts; curl copies neither */
    const char *objection;                                          /* why a callback of ours ended the transfer */
    size_t header_bytes;
    bool header_is_whole;
    bool may_be_sent;
    char problem[CURL_ERROR_SIZE];
};

struct http_client {
    struct http_loop loop;
    uv_timer_t ender; /* ends calls that never started, and closes */
    size_t answer_max;
    struct slot *slots, *free_slots;
    struct http_call *unstarted, **unstarted_tail;
    bool closing;
    void (*on_closed)(void *context);
    void *on_closed_context;
};

/* ---- what curl frees is wiped ---- */

static void wiping_free(void *bytes)
{
    if (bytes)
        secret_wipe(bytes, malloc_usable_size(bytes));
    free(bytes);
}

static void *wiping_realloc(void *old, size_t size)
{
    void *bytes = malloc(size);
    if (bytes && old) {
        size_t old_size = malloc_usable_size(old);
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

static void end_call(struct http_call *call)
{
    for (int i = 0; i < HTTP_CALL_HEADERS_MAX && call->headers[i][0]; i++)
        secret_wipe(call->headers[i], strlen(call->headers[i]));
    call->took_us = clock_mono_us() - call->took_us;
    call->client = NULL;
    call->slot = NULL;
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
    buf_wipe(&call->answer);
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
    slot->call = NULL;
    slot->next_free = slot->client->free_slots;
    slot->client->free_slots = slot;
}

static void end_slot(struct slot *slot, CURLcode code, const char *closing)
{
    struct http_call *call = slot->call;
    judge(slot, code, closing); /* first: curl forgets some of it when the transfer is taken out */
    http_loop_stop(&slot->client->loop, slot->easy);
    free_slot(slot);
    end_call(call);
}

static void on_transfer_done(struct http_loop *loop, CURL *easy, CURLcode code)
{
    (void)loop;
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
    /* Room for nearly every answer at once; buf grows by copy and wipe. */
    if (answer->capacity == 0)
        (void)buf_reserve(answer, answer->max < FIRST_ANSWER_ROOM ? answer->max : FIRST_ANSWER_ROOM);
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

/* ---- slots ---- */

#define SET(option, value) (curl_easy_setopt(easy, option, value) == CURLE_OK)

static bool set_constants(CURL *easy, struct slot *slot)
{
    return SET(CURLOPT_PRIVATE, slot) && SET(CURLOPT_NOSIGNAL, 1L) && SET(CURLOPT_VERBOSE, 0L) &&
           SET(CURLOPT_ERRORBUFFER, slot->problem) && SET(CURLOPT_USERAGENT, "issuing") &&
           /* where it may go */
           SET(CURLOPT_PROTOCOLS_STR, "http,https") && SET(CURLOPT_FOLLOWLOCATION, 0L) && SET(CURLOPT_PROXY, "") &&
           SET(CURLOPT_NETRC, (long)CURL_NETRC_IGNORED) && SET(CURLOPT_PATH_AS_IS, 1L) &&
           SET(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2) && SET(CURLOPT_SSL_VERIFYPEER, 1L) &&
           SET(CURLOPT_SSL_VERIFYHOST, 2L) && SET(CURLOPT_HTTP09_ALLOWED, 0L) &&
           /* The bundle alone: with a folder beside it curl reads all certificates at every connection, for 15 ms. */
           SET(CURLOPT_CAPATH, NULL) &&
           /* HTTP/2 where TLS offers it, 1.1 in clear text */
           SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2TLS) && SET(CURLOPT_TCP_KEEPALIVE, 1L) &&
           /* a name server that hangs must not hold up the loop when the call's time is over */
           SET(CURLOPT_QUICK_EXIT, 1L) &&
           /* callbacks */
           http_loop_adopt(&slot->client->loop, easy) && SET(CURLOPT_PREREQFUNCTION, on_request_starts) &&
           SET(CURLOPT_PREREQDATA, slot) && SET(CURLOPT_WRITEFUNCTION, on_body) && SET(CURLOPT_WRITEDATA, slot) &&
           SET(CURLOPT_HEADERFUNCTION, on_header) && SET(CURLOPT_HEADERDATA, slot);
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

static bool list_header(struct slot *slot, int *count, const char *header)
{
    if (strpbrk(header, "\r\n")) /* curl would write it as it is */
        return false;
    struct curl_slist *item = &slot->headers[*count];
    *item = (struct curl_slist){.data = (char *)header};
    if (*count > 0)
        item[-1].next = item;
    (*count)++;
    return true;
}

static bool list_headers(struct slot *slot, struct http_call *call)
{
    int count = 0;
    bool typed = false;
    if (!list_header(slot, &count, "Expect:"))
        return false;
    for (int i = 0; i < HTTP_CALL_HEADERS_MAX && call->headers[i][0]; i++) {
        if (!list_header(slot, &count, call->headers[i]))
            return false;
        typed = typed || strncasecmp(call->headers[i], "content-type:", 13) == 0;
    }
    if (!typed && !list_header(slot, &count, "Content-Type:")) /* else curl calls it a form */
        return false;
    return !call->secret_header || list_header(slot, &count, call->secret_header);
}

static bool set_call(struct slot *slot, struct http_call *call)
{
    CURL *easy = slot->easy;
    long timeout_ms = call->timeout_ms < 1 ? 1 : (long)call->timeout_ms; /* 0 would mean for ever */
    bool is_post = strcmp(call->method, "POST") == 0;
    bool done = SET(CURLOPT_URL, call->url) && SET(CURLOPT_HTTPHEADER, slot->headers) &&
                SET(CURLOPT_TIMEOUT_MS, timeout_ms) && SET(CURLOPT_CONNECTTIMEOUT_MS, timeout_ms) &&
                /* In clear text there is nothing to share, so waiting for another call's connection is only late. */
                SET(CURLOPT_PIPEWAIT, strncasecmp(call->url, "https:", 6) == 0 ? 1L : 0L);
    if (is_post)
        return done && SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)(call->body ? call->body_length : 0)) &&
               SET(CURLOPT_POSTFIELDS, call->body ? call->body : "") && SET(CURLOPT_POST, 1L);
    return done && SET(CURLOPT_HTTPGET, 1L);
}

#undef SET

/* ---- the room's own calls ---- */

void http_call_init(struct http_call *call, size_t answer_max)
{
    memset(call, 0, sizeof(*call));
    buf_init(&call->answer, answer_max);
    call->retry_after_ms = -1;
}

void http_call_done(struct http_call *call)
{
    assert(!call->client);
    buf_wipe(&call->answer);
    buf_done(&call->answer);
}

void http_client_start(struct http_client *client, struct http_call *call)
{
    assert(!call->client && call->on_done);
    assert(strcmp(call->method, "GET") == 0 || strcmp(call->method, "POST") == 0);
    buf_wipe(&call->answer);
    call->client = client;
    call->next = NULL;
    call->status = 0;
    call->retry_after_ms = -1;
    call->answer_is_json = false;
    call->was_resent = false;
    call->error[0] = '\0';
    call->took_us = clock_mono_us(); /* until the end: when it started */
    if (client->closing) {
        end_unstarted(client, call, "the client is closing");
        return;
    }
    struct slot *slot = take_slot(client);
    if (!slot) {
        end_unstarted(client, call, "out of memory");
        return;
    }
    slot->objection = NULL;
    slot->header_bytes = 0;
    slot->header_is_whole = false;
    slot->may_be_sent = false;
    slot->problem[0] = '\0';
    const char *why = NULL;
    if (!list_headers(slot, call))
        why = "a header with a line break";
    else if (!set_call(slot, call))
        why = "out of memory";
    slot->call = call;
    if (!why && http_loop_start(&client->loop, slot->easy)) {
        call->slot = slot;
        return;
    }
    free_slot(slot);
    end_unstarted(client, call, why ? why : "out of memory");
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

bool http_client_open(uv_loop_t *loop, int connections_max, size_t answer_max, struct http_client **ret_client,
                      struct err *err)
{
    static uv_once_t once = UV_ONCE_INIT;
    uv_once(&once, init_curl);
    if (!curl_ready)
        return err_set(err, ERR_SYSTEM, "libcurl does not start");
    struct http_client *client = calloc(1, sizeof(*client));
    if (!client)
        return err_set(err, ERR_MEMORY, "out of memory for the HTTP client");
    if (!http_loop_open(&client->loop, loop, connections_max, on_transfer_done, err)) {
        free(client);
        return false;
    }
    client->answer_max = answer_max;
    client->unstarted_tail = &client->unstarted;
    uv_timer_init(loop, &client->ender);
    *ret_client = client;
    return true;
}
