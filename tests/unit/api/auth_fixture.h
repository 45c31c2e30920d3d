/* What the tests of auth share: keys made once, tokens signed here, the files of one auth, and expect_accepted() and
 * expect_refused(). */
#ifndef ISSUING_AUTH_FIXTURE_H
#define ISSUING_AUTH_FIXTURE_H

#include <check.h>
#include <openssl/evp.h>

#include "api/auth.h"
#include "common/core/config/config.h"

#define NOW_S 1795176000LL
#define SECRET_TEXT "0123456789abcdef0123456789abcdef"
#define GOOD_CLAIMS "{\"sub\":\"alice\",\"exp\":1795176100}"

extern char folder[64], secret_path[96], jwks_path[96], user[AUTH_USER_SIZE];
extern struct config config;
extern struct auth *auth;
extern struct err open_err;
extern const char *why; /* the last token was refused */
extern EVP_PKEY *rsa, *other_rsa, *ec, *ed;
extern char text_of[400 * 1024]; /* the JWKS being built */

/* The returned texts of the next functions live in rings of some entries. */
const char *base64url(const unsigned char *bytes, size_t length);
const char *base64url_text(const char *text);
void sign_with(EVP_PKEY *key, const char *text, unsigned char *signature, size_t *length);
void der_to_raw(unsigned char *signature, size_t *length);
const char *join(const char *header, const char *claims, const char *signature);
/* header and claims as JSON; key NULL = HMAC with the secret. */
const char *token(EVP_PKEY *key, const char *header, const char *claims);
const char *hs256(const char *claims);
const char *number_of(EVP_PKEY *key, const char *name);
const char *coordinate_of(EVP_PKEY *key, const char *name);
const char *ed_bytes(EVP_PKEY *key);
void put_jwk(const char *jwk);
/* Each adds one JWK with further members (",..." or ""). */
void put_rsa(EVP_PKEY *key, const char *more);
void put_ec(EVP_PKEY *key, const char *curve, const char *more);
void put_ed(const char *bytes, const char *more);
void write_file(const char *path, const char *text);
void write_jwks(void);
void reopen(void);
bool check_value(const char *bytes, size_t length);
bool check_token(const char *text);
void expect_accepted(const char *text);
void expect_refused(const char *text, const char *because);
/* A case of the suite, for tests that share keys which are made once. */
TCase *auth_case(Suite *suite);

#endif
