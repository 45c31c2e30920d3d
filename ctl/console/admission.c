/* See admission.h. Left out: who the person is. The console acts with the rights of the database role, and in the name
 * of the user who started it. */
#include "ctl/console/admission.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "common/base/ip_address.h"
#include "common/base/secret.h"
#include "common/http_server/http_path.h"

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
    struct slice host = host_of((struct slice){listen, strlen(listen)});
    *admission = (struct admission){.port = port};
    if (host.length == 0 || host.length >= sizeof(admission->host))
        return err_set(err, ERR_USAGE, "--listen needs an address and a port, such as 127.0.0.1:8095");
    memcpy(admission->host, host.bytes, host.length);
    admission->is_any_address = slice_is(host, "*") || slice_is(host, "0.0.0.0") || slice_is(host, "[::]");
    return draw(admission->token, err) && draw(admission->cookie, err) && draw(admission->form_secret, err);
}

bool admission_next_token(struct admission *admission, struct err *err)
{
    secret_wipe(admission->token, sizeof(admission->token)); /* an empty one is equal to nothing */
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

/* "127.0.0.1:8095" of text; a port that HTTP leaves out is 80. */
static bool is_ours(const struct admission *admission, struct slice text)
{
    char port[16];
    struct ip_address address;
    struct slice host = host_of(text);
    bool has_port = host.length > 0 && host.bytes[host.length - 1] != ':' && text.bytes[text.length - 1] != ']';
    snprintf(port, sizeof(port), ":%d", admission->port);
    if (!has_port)
        host = text;
    if (has_port ? !slice_is((struct slice){text.bytes + host.length, text.length - host.length}, port)
                 : admission->port != 80)
        return false;
    if (slice_is_nocase(host, "localhost") || slice_is(host, "127.0.0.1") || slice_is(host, "[::1]") ||
        slice_is_nocase(host, admission->host))
        return true;
    return admission->is_any_address && ip_address_parse(host, &address);
}

bool admission_is_our_host(const struct admission *admission, struct slice host)
{
    return host.length > 0 && is_ours(admission, host);
}

bool admission_has_token(const struct admission *admission, const struct http_request *request)
{
    char given[ADMISSION_TEXT_SIZE];
    bool is_it = http_query_text(request->query, "token", given, sizeof(given)) &&
                 same(admission->token, (struct slice){given, strlen(given)});
    secret_wipe(given, sizeof(given));
    return is_it;
}

/* Looks at every cookie of that name: another program on this host may have set one for a longer path. */
bool admission_has_cookie(const struct admission *admission, const struct http_request *request)
{
    char name[40];
    bool found = false;
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
            found = same(admission->cookie, (struct slice){pair.bytes + start, pair.length - start}) || found;
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

bool admission_has_form_secret(const struct admission *admission, const char *secret)
{
    return secret && same(admission->form_secret, (struct slice){secret, strlen(secret)});
}
