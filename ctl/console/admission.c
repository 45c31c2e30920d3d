/* See admission.h. Left out: who the person is. The console acts with the rights of the database role, and in the name
 * of the user who started it. */
#include "ctl/console/admission.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "common/lib/base/ip_address.h"
#include "common/lib/base/secret.h"
#include "common/lib/http_server/http_path.h"

static bool draw(char ret_text[ADMISSION_TEXT_SIZE], struct err *err)
{
    unsigned char bytes[ADMISSION_BYTES];
    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
        return err_set(err, ERR_SYSTEM, "the kernel gave no random bytes");
    for (size_t i = 0; i < sizeof(bytes); i++)
        snprintf(ret_text + 2 * i, 3, "%02x", bytes[i]);
    secret_wipe(bytes, sizeof(bytes));
    return true;
}

static bool same(const char *secret, struct slice given)
{
    size_t length = strlen(secret);
    return length > 0 && secret_equal(secret, length, given.bytes, given.length);
}

/* The part before the last colon: "127.0.0.1", "[::1]". */
static struct slice host_of(struct slice text)
{
    const char *colon = text.length > 0 ? memrchr(text.bytes, ':', text.length) : NULL;
    return (struct slice){text.bytes, colon ? (size_t)(colon - text.bytes) : 0};
}

bool admission_is_loopback(const char *listen)
{
    struct slice host = host_of((struct slice){listen, strlen(listen)});
    struct ip_address address;
    if (slice_is_nocase(host, "localhost") || slice_is(host, "[::1]"))
        return true;
    return ip_address_parse(host, &address) && ip_address_is_v4(&address) && address.bytes[12] == 127;
}

bool admission_init(struct admission *admission, const char *listen, int port, struct err *err)
{
    char drawn[ADMISSION_TEXT_SIZE];
    *admission = (struct admission){.port = port};
    if (!listen || admission_is_loopback(listen)) {
        if (!draw(drawn, err))
            return false;
        snprintf(admission->host, sizeof(admission->host), "%.32s.localhost", drawn);
        return true;
    }
    struct slice host = host_of((struct slice){listen, strlen(listen)});
    if (host.length == 0 || host.length >= sizeof(admission->host))
        return err_set(err, ERR_USAGE, "--listen needs an address and a port, such as 127.0.0.1:8095");
    memcpy(admission->host, host.bytes, host.length);
    admission->is_any_address = slice_is(host, "*") || slice_is(host, "0.0.0.0") || slice_is(host, "[::]");
    return true;
}

bool admission_new_token(struct admission *admission, int64_t now_ms, struct err *err)
{
    secret_wipe(admission->token, sizeof(admission->token)); /* an empty one is equal to nothing */
    admission->token_ends_ms = now_ms + ADMISSION_TOKEN_MS;
    return draw(admission->token, err);
}

void admission_done(struct admission *admission)
{
    secret_wipe(admission, sizeof(*admission));
}

void admission_cookie_name(const struct admission *admission, char *ret_name, size_t size)
{
    snprintf(ret_name, size, "issuing_console_%d", admission->port);
}

static bool is_number(struct slice text)
{
    for (size_t i = 0; i < text.length; i++)
        if (text.bytes[i] < '0' || text.bytes[i] > '9')
            return false;
    return text.length > 0;
}

/* "<name>:8095" of text; a port that HTTP leaves out is 80. */
bool admission_is_our_host(const struct admission *admission, struct slice text)
{
    char port[16];
    struct ip_address address;
    if (text.length == 0)
        return false;
    struct slice host = host_of(text);
    bool has_port = host.length > 0 && host.bytes[host.length - 1] != ':' && text.bytes[text.length - 1] != ']';
    struct slice given = {text.bytes + host.length + 1, has_port ? text.length - host.length - 1 : 0};
    snprintf(port, sizeof(port), "%d", admission->port);
    if (!has_port)
        host = text;
    if (admission->port == 0 ? has_port && !is_number(given)
                             : (has_port ? !slice_is(given, port) : admission->port != 80))
        return false;
    /* guard: the console answers under its own name only */
    return slice_is_nocase(host, admission->host) || (admission->is_any_address && ip_address_parse(host, &address));
}

bool admission_has_token(const struct admission *admission, const struct http_request *request, int64_t now_ms)
{
    char given[ADMISSION_TEXT_SIZE];
    bool is_it = http_query_text(request->query, "token", given, sizeof(given)) &&
                 /* guard: the token of a URL is good for two minutes */
                 same(admission->token, (struct slice){given, strlen(given)}) && now_ms < admission->token_ends_ms;
    secret_wipe(given, sizeof(given));
    return is_it;
}

/* ---- sessions ---- */

void admission_end(struct session *session)
{
    secret_wipe(session, sizeof(*session));
}

static bool is_over(const struct session *session, int64_t now_ms)
{
    /* guard: a session that is idle ends */
    /* guard: a session ends after twelve hours */
    return now_ms >= session->used_ms + ADMISSION_IDLE_MS || now_ms >= session->begun_ms + ADMISSION_LONGEST_MS;
}

/* One that is free or over, else the one that is idle longest. */
static struct session *place_for_one(struct admission *admission, int64_t now_ms)
{
    struct session *place = &admission->sessions[0];
    for (int i = 0; i < ADMISSION_SESSIONS; i++) {
        struct session *session = &admission->sessions[i];
        if (!session->cookie[0] || is_over(session, now_ms))
            return session;
        if (session->used_ms < place->used_ms)
            place = session;
    }
    return place;
}

bool admission_begin(struct admission *admission, struct session *old, int64_t now_ms, struct session **ret_session,
                     struct err *err)
{
    struct session *session = old ? old : place_for_one(admission, now_ms);
    /* guard: the token of the console's URL is good once */
    secret_wipe(admission->token, sizeof(admission->token));
    admission_end(session);
    session->begun_ms = session->used_ms = now_ms;
    *ret_session = session;
    if (draw(session->cookie, err) && draw(session->form_secret, err))
        return true;
    admission_end(session);
    return false;
}

static struct session *find_session(struct admission *admission, struct slice cookie, int64_t now_ms)
{
    struct session *found = NULL;
    for (int i = 0; i < ADMISSION_SESSIONS; i++)
        if (same(admission->sessions[i].cookie, cookie))
            found = &admission->sessions[i];
    if (!found || !is_over(found, now_ms))
        return found;
    admission_end(found);
    return NULL;
}

/* Looks at every cookie of that name: another program on this host may have set one for a longer path. */
struct session *admission_session(struct admission *admission, const struct http_request *request, int64_t now_ms)
{
    char name[40];
    struct session *found = NULL;
    admission_cookie_name(admission, name, sizeof(name));
    for (int i = 0; i < request->header_count; i++) {
        if (!slice_is_nocase(request->headers[i].name, "cookie"))
            continue;
        struct slice rest = request->headers[i].value;
        while (rest.length > 0) {
            const char *end = memchr(rest.bytes, ';', rest.length);
            struct slice pair = {rest.bytes, end ? (size_t)(end - rest.bytes) : rest.length};
            size_t taken = pair.length + (end ? 1 : 0);
            rest = (struct slice){rest.bytes + taken, rest.length - taken};
            while (pair.length > 0 && pair.bytes[0] == ' ')
                pair = (struct slice){pair.bytes + 1, pair.length - 1};
            const char *equals = pair.length > 0 ? memchr(pair.bytes, '=', pair.length) : NULL;
            if (!equals || !slice_is((struct slice){pair.bytes, (size_t)(equals - pair.bytes)}, name))
                continue;
            size_t start = (size_t)(equals - pair.bytes) + 1;
            struct session *session =
                find_session(admission, (struct slice){pair.bytes + start, pair.length - start}, now_ms);
            found = session ? session : found;
        }
    }
    return found;
}

const char *admission_judge_post(const struct http_request *request)
{
    int origins, sites;
    struct slice host = http_header(request, "host", NULL);
    struct slice origin = http_header(request, "origin", &origins);
    struct slice site = http_header(request, "sec-fetch-site", &sites);
    struct slice type = http_header(request, "content-type", NULL);
    const size_t scheme = strlen("http://");
    bool is_same_origin = sites == 1 && slice_is(site, "same-origin");
    if (origins > 1 || sites > 1 || (sites == 1 && !is_same_origin))
        return "the form was sent by a page of another origin";
    /* Under "Referrer-Policy: no-referrer" a browser names no origin, also for a page of the same one. */
    if (origins == 1 && slice_is(origin, "null")) {
        if (!is_same_origin)
            return "the form was sent by a page without an origin";
    } else if (origins == 1 &&
               (origin.length != scheme + host.length || strncasecmp(origin.bytes, "http://", scheme) != 0 ||
                strncasecmp(origin.bytes + scheme, host.bytes, host.length) != 0)) {
        return "the form was sent by a page of another origin";
    }
    const char *end = type.length > 0 ? memchr(type.bytes, ';', type.length) : NULL;
    if (!slice_is_nocase((struct slice){type.bytes, end ? (size_t)(end - type.bytes) : type.length},
                         "application/x-www-form-urlencoded"))
        return "only forms are taken here (application/x-www-form-urlencoded)";
    return NULL;
}

bool admission_has_form_secret(const struct session *session, const char *secret)
{
    return secret && same(session->form_secret, (struct slice){secret, strlen(secret)});
}
