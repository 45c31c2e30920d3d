/* Which requests the console answers. A page may change what becomes of a card, so a request must come from the browser
 * of the person who started the console, and from a page of the console.
 *
 * - Host: the address that is listened on, or another name of the loopback, with the port. So a foreign name that
 *   resolves to 127.0.0.1 (DNS rebinding) is refused.
 * - The token in the printed URL is good for one use and is exchanged for a cookie, in a redirect that takes it out of
 *   the URL. Both are 256 random bits.
 * - The cookie's name has the port, because browsers send cookies to every port of a host.
 * - A POST must be a form of ours: the Origin is this Host's, no foreign Sec-Fetch-Site, and the form's own secret.
 *
 * Pure but for admission_init and admission_next_token, which ask the kernel for random bytes. Secrets are compared in
 * constant time. */
#ifndef ISSUING_CONSOLE_ADMISSION_H
#define ISSUING_CONSOLE_ADMISSION_H

#include "common/base/base.h"
#include "common/base/err.h"
#include "common/http_server/http_server.h"

#define ADMISSION_BYTES 32
#define ADMISSION_TEXT_SIZE (2 * ADMISSION_BYTES + 1)

struct admission {
    char host[128]; /* of the listen address, without the port: "127.0.0.1", "[::1]" */
    int port;
    bool is_any_address; /* listens on all addresses: then every IP address with the port is a Host of ours */
    char token[ADMISSION_TEXT_SIZE];  /* of the URL */
    char cookie[ADMISSION_TEXT_SIZE]; /* of the session */
    char form_secret[ADMISSION_TEXT_SIZE];
};

/* "127.0.0.1:8095", "[::1]:8095", "localhost:8095": whether only this machine can connect. */
bool admission_is_loopback(const char *listen);
/* ERR_USAGE when listen has no port; ERR_SYSTEM without random bytes. */
must_check bool admission_init(struct admission *admission, const char *listen, int port, struct err *err);
/* The token was used: the next one. */
must_check bool admission_next_token(struct admission *admission, struct err *err);
/* "issuing_console_8095" */
void admission_cookie_name(const struct admission *admission, char *ret_name, size_t size);

bool admission_is_our_host(const struct admission *admission, struct slice host);
/* The value of `token` in the query is the one of the printed URL. */
bool admission_has_token(const struct admission *admission, const struct http_request *request);
bool admission_has_cookie(const struct admission *admission, const struct http_request *request);
/* NULL: a POST that a page of ours may have sent, so far as its head says; else why not. Its Host is one of ours. */
const char *admission_judge_post(const struct http_request *request);
/* secret: NULL = none was sent. */
bool admission_has_form_secret(const struct admission *admission, const char *secret);
void admission_done(struct admission *admission); /* wipes */

#endif
