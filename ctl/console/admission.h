/* Which requests the console answers. A page may change what becomes of a card, so a request must come from a browser
 * of the person who started the console, and from a page of the console.
 *
 * - Host: a name that this console has drawn, "<random>.localhost", which browsers resolve to the loopback by
 *   themselves. Browsers send cookies to every port of a host, so on 127.0.0.1 every other program of this machine or
 *   of an ssh tunnel would get the console's. It also refuses foreign names that resolve to 127.0.0.1 (DNS rebinding).
 *   Only a console that is exposed to other machines has the address that it listens on as its Host.
 * - A token in a printed URL is good for one use within ADMISSION_TOKEN_MS, and only the newest one. It is exchanged
 *   for a session's cookie, in a redirect that takes it out of the URL.
 * - A session is one browser's. It ends ADMISSION_IDLE_MS after its last request that a person has made,
 *   ADMISSION_LONGEST_MS after its begin, or by logging out; of more than ADMISSION_SESSIONS the one that is idle
 *   longest.
 * - A POST must come from a form of this console: its Origin is this Host's, it has no foreign Sec-Fetch-Site, and it
 *   has the session's own secret.
 *
 * Pure but for the kernel's random bytes: `now_ms` is clock_mono_ms(). All secrets are 256 random bits, compared in
 * constant time, and wiped when they are over. */
#ifndef ISSUING_CONSOLE_ADMISSION_H
#define ISSUING_CONSOLE_ADMISSION_H

#include "common/lib/base/base.h"
#include "common/lib/base/err.h"
#include "common/lib/http_server/http_server.h"

#define ADMISSION_BYTES 32
#define ADMISSION_TEXT_SIZE (2 * ADMISSION_BYTES + 1)
#define ADMISSION_SESSIONS 8
#define ADMISSION_TOKEN_MS (2 * 60 * 1000)
#define ADMISSION_IDLE_MS (15 * 60 * 1000)
#define ADMISSION_LONGEST_MS (12 * 3600 * 1000)

struct session {
    char cookie[ADMISSION_TEXT_SIZE]; /* "" = there is none here */
    char form_secret[ADMISSION_TEXT_SIZE];
    int64_t begun_ms, used_ms;
};

struct admission {
    char host[128];      /* "<32 hex digits>.localhost"; exposed: of the listen address, "10.0.0.1", "[::1]" */
    int port;            /* 0 = any: behind a socket of the file system the console does not know it */
    bool is_any_address; /* exposed on all addresses: then every IP address with the port is a Host of it */
    char token[ADMISSION_TEXT_SIZE]; /* of the newest URL; "" = none */
    int64_t token_ends_ms;
    struct session sessions[ADMISSION_SESSIONS];
};

/* "127.0.0.1:8095", "[::1]:8095", "localhost:8095": whether only this machine can connect. */
bool admission_is_loopback(const char *listen);
/* listen: NULL = a socket of the file system. ERR_USAGE when it has no port; ERR_SYSTEM without random bytes. There is
 * no token yet. */
must_check bool admission_init(struct admission *admission, const char *listen, int port, struct err *err);
/* Makes a new token, which replaces the one before. */
must_check bool admission_new_token(struct admission *admission, int64_t now_ms, struct err *err);
/* "issuing_console_8095" */
void admission_cookie_name(const struct admission *admission, char *ret_name, size_t size);

/* text: of the header Host. */
bool admission_is_our_host(const struct admission *admission, struct slice text);
/* The value of `token` in the query is the newest one, and in time. */
bool admission_has_token(const struct admission *admission, const struct http_request *request, int64_t now_ms);
/* The token was used: it is over, and so is the session `old` of this browser (may be NULL). */
must_check bool admission_begin(struct admission *admission, struct session *old, int64_t now_ms,
                                struct session **ret_session, struct err *err);
/* The session of the request's cookie, NULL = none, or it is over. */
struct session *admission_session(struct admission *admission, const struct http_request *request, int64_t now_ms);
void admission_end(struct session *session);
/* NULL: a page of this console may have sent the POST, as far as its head says; else why it did not. Precondition: its
 * Host is one of the console's. */
const char *admission_judge_post(const struct http_request *request);
/* secret: NULL = none was sent. */
bool admission_has_form_secret(const struct session *session, const char *secret);
void admission_done(struct admission *admission); /* wipes */

#endif
