/* Card numbers at rest, by OpenSSL's AES-256-GCM.
 *
 * Invariants: a ring has exactly one active key; ids are unique; a nonce is 12 random bytes for every seal, which for
 * one key is safe up to 2^32 seals (SP 800-38D, 8.3), so keys are rotated long before. No message holds a byte of a key
 * or of a number. A record opens only under the key, the user and the card it was sealed for.
 *
 * Left out: how the file is made and changed (keyring_file.c), sealing again with a newer key (the caller). */
#include "common/core/keyring.h"

#include <inttypes.h>
#include <limits.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/core/card.h"
#include "common/lib/base/random_pool.h"
#include "common/lib/base/slice.h"

#define KEY_SIZE 32
#define NONCE_SIZE 12
#define TAG_SIZE 16
#define RECORD_VERSION 1
#define PREFIX_SIZE (1 + 4 + NONCE_SIZE) /* version, key id, nonce */
#define RECORD_MIN (PREFIX_SIZE + CARD_NUMBER_MIN + TAG_SIZE)

struct key {
    struct keyring_entry entry;
    unsigned char bytes[KEY_SIZE];
};

struct keyring {
    EVP_CIPHER *cipher; /* looked up once: it costs more than a seal */
    const struct key *active;
    size_t count;
    struct key keys[KEYRING_KEYS_MAX];
};

/* ---- the file ---- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Takes the next word off the beginning of *line; length 0 at the end. */
static struct slice next_word(struct slice *line)
{
    const char *bytes = line->bytes, *end = line->bytes + line->length;
    while (bytes < end && is_blank(*bytes))
        bytes++;
    const char *start = bytes;
    while (bytes < end && !is_blank(*bytes))
        bytes++;
    *line = (struct slice){.bytes = bytes, .length = (size_t)(end - bytes)};
    return (struct slice){.bytes = start, .length = (size_t)(bytes - start)};
}

static bool parse_id(struct slice word, uint32_t *ret_id)
{
    int64_t id;
    if (!slice_number(word, 10, &id) || id == 0 || id > UINT32_MAX)
        return false;
    *ret_id = (uint32_t)id;
    return true;
}

static const char *const state_names[] = {
    [KEYRING_ACTIVE] = "active", [KEYRING_DECRYPT] = "decrypt", [KEYRING_RETIRED] = "retired"};

bool keyring_is_old(const struct keyring_entry *entry, int64_t now_s)
{
    struct tm made = {.tm_mday = 1};
    const char *end = strptime(entry->made_at, "%Y-%m-%dT%H:%M:%SZ", &made);
    return entry->state == KEYRING_ACTIVE && end && !*end &&
           now_s - (int64_t)timegm(&made) > (int64_t)KEYRING_DAYS_MAX * 86400;
}

const char *keyring_state_name(enum keyring_state state)
{
    return state_names[state];
}

static bool parse_state(struct slice word, enum keyring_state *ret_state)
{
    int state = slice_among(word, state_names, ARRAY_SIZE(state_names));
    if (state >= 0)
        *ret_state = (enum keyring_state)state;
    return state >= 0;
}

static const struct key *find_key(const struct keyring *keyring, uint32_t id)
{
    for (size_t i = 0; i < keyring->count; i++)
        if (keyring->keys[i].entry.id == id)
            return &keyring->keys[i];
    return NULL;
}

/* "# made TIME" behind a key; anything else there is a comment. mark: the first word, which begins with '#', if any. */
static void read_made(struct slice mark, struct slice rest, char ret_made_at[KEYRING_TIME_SIZE])
{
    struct slice word = mark.length == 1 ? next_word(&rest) : (struct slice){mark.bytes + 1, mark.length - 1};
    if (mark.length == 0 || word.length != 4 || memcmp(word.bytes, "made", 4) != 0)
        return;
    word = next_word(&rest);
    if (word.length >= KEYRING_TIME_SIZE)
        return;
    for (size_t i = 0; i < word.length; i++)
        if (!strchr("0123456789-:TZ", word.bytes[i]))
            return;
    memcpy(ret_made_at, word.bytes, word.length);
    ret_made_at[word.length] = '\0';
}

/* Parses one line. An error message contains no byte of it. */
static bool read_line(struct keyring *keyring, struct slice line, const char *path, int number, struct err *err)
{
    struct slice id = next_word(&line);
    if (id.length == 0 || id.bytes[0] == '#')
        return true;
    if (keyring->count == KEYRING_KEYS_MAX)
        return err_set(err, ERR_CONFIG, "%s:%d: more than %d keys", path, number, KEYRING_KEYS_MAX);
    struct key *key = &keyring->keys[keyring->count];
    if (!parse_id(id, &key->entry.id))
        return err_set(err, ERR_CONFIG, "%s:%d: the key id must be a number from 1 to %" PRIu32, path, number,
                       UINT32_MAX);
    if (find_key(keyring, key->entry.id))
        return err_set(err, ERR_CONFIG, "%s:%d: key id %" PRIu32 " is there twice", path, number, key->entry.id);
    if (!parse_state(next_word(&line), &key->entry.state))
        return err_set(err, ERR_CONFIG, "%s:%d: the state must be active, decrypt or retired", path, number);
    if (slice_read_hex(next_word(&line), key->bytes, KEY_SIZE) != KEY_SIZE)
        return err_set(err, ERR_CONFIG, "%s:%d: the key must be %d hex digits", path, number, 2 * KEY_SIZE);
    struct slice rest = next_word(&line);
    if (rest.length > 0 && rest.bytes[0] != '#')
        return err_set(err, ERR_CONFIG, "%s:%d: something follows the key", path, number);
    read_made(rest, line, key->entry.made_at);
    if (key->entry.state == KEYRING_ACTIVE && keyring->active)
        return err_set(err, ERR_CONFIG, "%s:%d: a second active key (the first is %" PRIu32 ")", path, number,
                       keyring->active->entry.id);
    if (key->entry.state == KEYRING_ACTIVE)
        keyring->active = key;
    keyring->count++;
    return true;
}

static bool read_lines(struct keyring *keyring, struct slice text, const char *path, struct err *err)
{
    for (int number = 1; text.length > 0; number++)
        if (!read_line(keyring, slice_take(&text, '\n'), path, number, err))
            return false;
    if (!keyring->active)
        return err_set(err, ERR_CONFIG, "%s: no active key", path);
    return true;
}

bool keyring_load(const char *path, struct keyring **ret_keyring, struct err *err)
{
    struct secret file = {.bytes = NULL};
    if (!secret_load(&file, path, err))
        return false;
    struct keyring *keyring = calloc(1, sizeof(*keyring));
    bool done = keyring != NULL;
    if (done)
        keyring->cipher = EVP_CIPHER_fetch(NULL, "AES-256-GCM", NULL);
    if (!done)
        err_set(err, ERR_MEMORY, "out of memory for a key ring");
    else if (!keyring->cipher)
        done = err_set(err, ERR_SYSTEM, "OpenSSL has no AES-256-GCM");
    else
        done = read_lines(keyring, (struct slice){.bytes = (char *)file.bytes, .length = file.length}, path, err);
    secret_done(&file);
    if (!done) {
        keyring_free(keyring);
        return false;
    }
    *ret_keyring = keyring;
    return true;
}

static bool follows(const struct keyring *fresh, const struct keyring *old, const char *path, struct err *err)
{
    for (size_t i = 0; i < old->count; i++) {
        const struct key *was = &old->keys[i], *is = find_key(fresh, was->entry.id);
        if (is && !secret_equal(is->bytes, KEY_SIZE, was->bytes, KEY_SIZE))
            return err_set(err, ERR_CONFIG, "%s: key %" PRIu32 " is another one than before", path, was->entry.id);
        /* guard: the key in use stays in the ring */
        /* guard: a ring in use keeps its active key */
        if (was == old->active && (!is || is->entry.state == KEYRING_RETIRED))
            return err_set(err, ERR_CONFIG, "%s: key %" PRIu32 " is still in use and %s; make it decrypt first", path,
                           was->entry.id, is ? "retired" : "missing");
    }
    return true;
}

bool keyring_load_over(const char *path, struct keyring **keyring, struct err *err)
{
    struct keyring *fresh = NULL;
    if (!keyring_load(path, &fresh, err))
        return false;
    if (*keyring && !follows(fresh, *keyring, path, err)) {
        keyring_free(fresh);
        return false;
    }
    keyring_free(*keyring);
    *keyring = fresh;
    return true;
}

void keyring_free(struct keyring *keyring)
{
    if (!keyring)
        return;
    EVP_CIPHER_free(keyring->cipher);
    secret_wipe(keyring, sizeof(*keyring));
    free(keyring);
}

uint32_t keyring_active_id(const struct keyring *keyring)
{
    return keyring->active->entry.id;
}

size_t keyring_count(const struct keyring *keyring)
{
    return keyring->count;
}

struct keyring_entry keyring_entry(const struct keyring *keyring, size_t index)
{
    return keyring->keys[index].entry;
}

bool keyring_can_open(const struct keyring *keyring, uint32_t key_id)
{
    const struct key *key = find_key(keyring, key_id);
    return key && key->entry.state != KEYRING_RETIRED;
}

/* ---- records ---- */

static void put_u32(unsigned char out[4], uint32_t value)
{
    out[0] = (unsigned char)(value >> 24);
    out[1] = (unsigned char)(value >> 16);
    out[2] = (unsigned char)(value >> 8);
    out[3] = (unsigned char)value;
}

static uint32_t get_u32(const unsigned char *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

/* Returns how many bytes it wrote. */
static size_t put_part(unsigned char *out, const void *bytes, size_t length)
{
    put_u32(out, (uint32_t)length);
    memcpy(out + 4, bytes, length);
    return 4 + length;
}

static bool add_bytes(EVP_CIPHER_CTX *cipher, const void *bytes, size_t length)
{
    int written;
    return length <= INT_MAX && EVP_CipherUpdate(cipher, NULL, &written, bytes, (int)length) == 1;
}

/* The additional data of a record. Each part follows its length, so that "ab" + "c" is not "a" + "bc". */
static bool add_context(EVP_CIPHER_CTX *cipher, uint32_t key_id, const char *user_id, const struct uuid *card_id)
{
    static const char purpose[] = "issuing card number v1";
    unsigned char id[4], before[4 + sizeof(purpose) + 4 + sizeof(id) + 4], behind[4 + sizeof(card_id->bytes)];
    size_t user_length = strlen(user_id);
    put_u32(id, key_id);
    size_t length = put_part(before, purpose, sizeof(purpose) - 1);
    length += put_part(before + length, id, sizeof(id));
    put_u32(before + length, (uint32_t)user_length);
    /* guard: a record is bound to its row */
    size_t behind_length = put_part(behind, card_id->bytes, sizeof(card_id->bytes));
    return add_bytes(cipher, before, length + 4) && add_bytes(cipher, user_id, user_length) &&
           add_bytes(cipher, behind, behind_length);
}

bool keyring_seal(struct keyring *keyring, const char *user_id, const struct uuid *card_id, const char *number,
                  size_t number_length, unsigned char ret_record[KEYRING_RECORD_MAX], size_t *ret_length,
                  struct err *err)
{
    if (!card_number_is_valid(number, number_length))
        return err_set(err, ERR_MALFORMED, "a card number must be %d to %d digits", CARD_NUMBER_MIN, CARD_NUMBER_MAX);
    const struct key *key = keyring->active;
    unsigned char record[KEYRING_RECORD_MAX], *nonce = record + 5, *sealed = record + PREFIX_SIZE;
    record[0] = RECORD_VERSION;
    put_u32(record + 1, key->entry.id);
    random_pool_take(nonce, NONCE_SIZE);
    EVP_CIPHER_CTX *cipher = EVP_CIPHER_CTX_new();
    int length = 0, rest = 0;
    bool done = cipher && EVP_EncryptInit_ex2(cipher, keyring->cipher, key->bytes, nonce, NULL) == 1 &&
                add_context(cipher, key->entry.id, user_id, card_id) &&
                EVP_EncryptUpdate(cipher, sealed, &length, (const unsigned char *)number, (int)number_length) == 1 &&
                EVP_EncryptFinal_ex(cipher, sealed + length, &rest) == 1 &&
                EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_GET_TAG, TAG_SIZE, sealed + number_length) == 1;
    EVP_CIPHER_CTX_free(cipher);
    if (!done)
        return err_set(err, ERR_MEMORY, "a card number could not be encrypted");
    *ret_length = PREFIX_SIZE + number_length + TAG_SIZE;
    memcpy(ret_record, record, *ret_length);
    return true;
}

bool keyring_record_key(const unsigned char *record, size_t length, uint32_t *ret_key_id)
{
    if (length < RECORD_MIN || length > KEYRING_RECORD_MAX || record[0] != RECORD_VERSION)
        return false;
    *ret_key_id = get_u32(record + 1);
    return true;
}

bool keyring_open(const struct keyring *keyring, const char *user_id, const struct uuid *card_id,
                  const unsigned char *record, size_t length, char ret_number[KEYRING_NUMBER_MAX + 1], struct err *err)
{
    uint32_t id = 0;
    if (!keyring_record_key(record, length, &id))
        return err_set(err, ERR_MALFORMED, "a stored card number has an unknown form");
    const struct key *key = find_key(keyring, id);
    if (!key || key->entry.state == KEYRING_RETIRED)
        return err_set(err, ERR_NOT_FOUND, "key %" PRIu32 " is %s", id, key ? "retired" : "not in the key ring");
    const unsigned char *sealed = record + PREFIX_SIZE;
    size_t number_length = length - PREFIX_SIZE - TAG_SIZE;
    unsigned char number[KEYRING_NUMBER_MAX + 1], tag[TAG_SIZE];
    memcpy(tag, sealed + number_length, TAG_SIZE);
    int written = 0, rest = 0;
    EVP_CIPHER_CTX *cipher = EVP_CIPHER_CTX_new();
    bool ready = cipher && EVP_DecryptInit_ex2(cipher, keyring->cipher, key->bytes, record + 5, NULL) == 1 &&
                 EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_SET_TAG, TAG_SIZE, tag) == 1 &&
                 add_context(cipher, id, user_id, card_id) &&
                 EVP_DecryptUpdate(cipher, number, &written, sealed, (int)number_length) == 1;
    /* Only the last step checks the tag; before it `number` must not be used. */
    bool fits = ready && EVP_DecryptFinal_ex(cipher, number + written, &rest) == 1;
    EVP_CIPHER_CTX_free(cipher);
    if (fits) {
        memcpy(ret_number, number, number_length);
        ret_number[number_length] = '\0';
    }
    secret_wipe(number, sizeof(number));
    if (!ready)
        return err_set(err, ERR_MEMORY, "a stored card number could not be decrypted");
    return fits || err_set(err, ERR_REFUSED, "a stored card number is another card's or user's, or was changed");
}
