/* Card numbers at rest: AES-256-GCM under a key with an id, with the row as additional data (NIST SP 800-38D).
 *
 * Record: version (1 byte), key id (4, big endian), nonce (12, random), ciphertext, tag (16). Additional data: "issuing
 * card number v1", key id, user id, card id, each with its length, so that a record copied to another row or user does
 * not open.
 *
 * The keys file has lines `<id> <state> <64 hex digits>`; the state is active (exactly one), decrypt or retired. '#'
 * starts a comment; "# made TIME" behind a key is the time of its creation. */
#ifndef ISSUING_KEYRING_H
#define ISSUING_KEYRING_H

#include "common/lib/base/base.h"
#include "common/lib/base/err.h"
#include "common/lib/base/secret.h"
#include "common/lib/base/uuid7.h"

struct keyring;

#define KEYRING_NUMBER_MAX 19 /* CARD_NUMBER_MAX */
#define KEYRING_RECORD_MAX (1 + 4 + 12 + KEYRING_NUMBER_MAX + 16)
#define KEYRING_KEYS_MAX 256
#define KEYRING_SEALS_MAX (INT64_C(1) << 32) /* of one key with random nonces: SP 800-38D, 8.3 */
#define KEYRING_DAYS_MAX 365                 /* a usual cryptoperiod; SP 800-57 part 1 allows two years at most */
#define KEYRING_TIME_SIZE 24                 /* "2026-11-20T10:39:57Z" and its NUL */

enum keyring_state { KEYRING_ACTIVE, KEYRING_DECRYPT, KEYRING_RETIRED };

/* The public facts about a key. */
struct keyring_entry {
    uint32_t id;
    enum keyring_state state;
    char made_at[KEYRING_TIME_SIZE]; /* from "# made TIME" on its line; "" = there is none */
};

must_check bool keyring_load(const char *path, struct keyring **ret_keyring, struct err *err);
/* Replaces *keyring, which is freed, unless the file cannot be used: then *keyring stays. Numbers that are being stored
 * were sealed with the old active key, so a file in which that key is missing or retired, or in which a key has
 * changed, cannot be used. *keyring NULL = there was no ring before. */
must_check bool keyring_load_over(const char *path, struct keyring **keyring, struct err *err);
void keyring_free(struct keyring *keyring); /* wipes */
uint32_t keyring_active_id(const struct keyring *keyring);
/* Keys in the order of the file. */
size_t keyring_count(const struct keyring *keyring);
struct keyring_entry keyring_entry(const struct keyring *keyring, size_t index);
/* Whether that key encrypts and is older than KEYRING_DAYS_MAX, so that another one should replace it. A key whose time
 * is not in the file is not old. */
bool keyring_is_old(const struct keyring_entry *entry, int64_t now_s);
const char *keyring_state_name(enum keyring_state state);
/* Whether records of that key can be opened: the key exists and is not retired. */
bool keyring_can_open(const struct keyring *keyring, uint32_t key_id);
/* false: the record has no known form. */
bool keyring_record_key(const unsigned char *record, size_t length, uint32_t *ret_key_id);
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
/* Change an existing file: a new active key, the old one then only decrypts; or a decrypt key becomes retired. All
 * other lines stay as they are. The file is replaced as a whole (a new file beside it, synced, renamed; same mode and
 * owner), so that readers see the old or the new one, and a failure leaves the old one. Two changes at once wait for
 * each other, up to 10 s. ERR_REFUSED: a symbolic link, more than one name, another owner's, no such key, the active
 * one. */
must_check bool keyring_rotate(const char *path, uint32_t *ret_new_id, uint32_t *ret_old_id, struct err *err);
must_check bool keyring_retire(const char *path, uint32_t key_id, struct err *err);

#endif
