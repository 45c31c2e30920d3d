/* Card numbers at rest: AES-256-GCM under a key with an id, the row bound as additional data (NIST SP 800-38D).
 *
 * Record: version(1) key_id(4, big endian) nonce(12, random) ciphertext tag(16). AAD: "issuing card number v1", key id,
 * user id, card id,
 * each with its length, so that a record copied to another row or user does not open. The keys file holds `<id> <state>
 * <64 hex digits>` lines,
 * state active (exactly one), decrypt or retired; '#' starts a comment. Only this room, common/token.c and api/auth*.c
 * know OpenSSL. */
#ifndef ISSUING_KEYRING_H
#define ISSUING_KEYRING_H

#include "common/base.h"
#include "common/err.h"
#include "common/secret.h"
#include "common/uuid7.h"

struct keyring;

#define KEYRING_RECORD_MAX (1 + 4 + 12 + 19 + 16)
#define KEYRING_NUMBER_MAX 19

must_check bool keyring_load(const char *path, struct keyring **ret_keyring, struct err *err);
/* Takes the place of *keyring, which is freed, unless the file cannot be used: then *keyring stays. What is being stored
 * was sealed with the old active key, so a file in which that key is missing or retired, or in which a key has changed,
 * cannot be used. *keyring NULL = nothing was there before. */
must_check bool keyring_load_over(const char *path, struct keyring **keyring, struct err *err);
void keyring_free(struct keyring *keyring); /* wipes */
uint32_t keyring_active_id(const struct keyring *keyring);
/* number: 12-19 digits. The record is KEYRING_RECORD_MAX at most. */
must_check bool keyring_seal(struct keyring *keyring, const char *user_id, const struct uuid *card_id,
                             const char *number, size_t number_length, unsigned char ret_record[KEYRING_RECORD_MAX],
                             size_t *ret_length, struct err *err);
/* ret_number: NUL-terminated; the caller wipes it. ERR_NOT_FOUND: unknown or retired key id; ERR_REFUSED: the tag does
 * not fit. */
must_check bool keyring_open(const struct keyring *keyring, const char *user_id, const struct uuid *card_id,
                             const unsigned char *record, size_t length, char ret_number[KEYRING_NUMBER_MAX + 1],
                             struct err *err);
/* Writes a new file with one active key, mode 0600, O_EXCL: never overwrites. */
must_check bool keyring_generate(const char *path, uint32_t *ret_key_id, struct err *err);

#endif
