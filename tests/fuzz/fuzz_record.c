/* Records of card numbers: none opens but one that was sealed, for its user and its card, with a key that is not
 * retired. */
#include <stdlib.h>

#include "common/core/card.h"
#include "common/core/keyring.h"
#include "tests/fuzz/fuzz.h"

#define KEYS                                                                       \
    "1 active 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n"  \
    "2 decrypt f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff000102030405060708090a0b0c0d0e0f\n" \
    "3 retired f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff101112131415161718191a1b1c1d1e1f\n"

static const struct uuid card = {.bytes = {1, 2, 3}};

static bool opens(const struct keyring *keyring, const char *user, const struct uuid *of, const void *record,
                  size_t length, char number[KEYRING_NUMBER_MAX + 1])
{
    struct err err = {.kind = ERR_NONE};
    uint32_t key;
    bool has_form = keyring_record_key(record, length, &key);
    if (keyring_open(keyring, user, of, record, length, number, &err)) {
        fuzz_expect(has_form && card_number_is_valid(number, strlen(number)));
        return true;
    }
    fuzz_expect(err.kind == ERR_NOT_FOUND || err.kind == ERR_REFUSED || err.kind == ERR_MALFORMED ||
                fuzz_memory_is_short);
    return false;
}

/* The bytes are the changes: of the record, its length, its user and its card. */
static void change(struct keyring *keyring, struct slice changes)
{
    static const char digits[] = "4000001234567899";
    unsigned char record[KEYRING_RECORD_MAX + 4] = {0}, original[sizeof(record)] = {0};
    char number[KEYRING_NUMBER_MAX + 1], user[] = "alice";
    size_t length;
    struct err err;
    struct uuid other = card;
    if (!keyring_seal(keyring, user, &card, digits, sizeof(digits) - 1, record, &length, &err)) {
        fuzz_expect(fuzz_memory_is_short);
        return;
    }
    memcpy(original, record, sizeof(record));
    size_t changed = length;
    for (size_t i = 0; i < changes.length; i++) {
        unsigned char byte = (unsigned char)(changes.bytes[i] - 'a');
        if (i == 0)
            changed = (length + byte) % (sizeof(record) + 1);
        else if (i == 1)
            user[0] = (char)(user[0] + (byte & 15));
        else if (i == 2)
            other.bytes[0] ^= byte;
        else if (i < 3 + sizeof(record))
            record[i - 3] ^= byte;
    }
    bool is_same =
        changed == length && user[0] == 'a' && other.bytes[0] == card.bytes[0] && memcmp(original, record, length) == 0;
    char *copy = fuzz_copy((struct slice){(const char *)record, changed});
    bool is_open = opens(keyring, user, &other, copy, changed, number);
    free(copy);
    fuzz_expect(is_same ? is_open || fuzz_memory_is_short : !is_open);
    if (is_open)
        fuzz_expect(strcmp(number, digits) == 0);
}

FUZZ(record)
{
    struct fuzz_file file = fuzz_file(SLICE(KEYS));
    struct keyring *keyring = NULL;
    struct err err;
    char number[KEYRING_NUMBER_MAX + 1];
    if (!keyring_load(file.path, &keyring, &err)) {
        fuzz_expect(fuzz_memory_is_short);
    } else if (fuzz_choose(in, 2) == 0) {
        change(keyring, (struct slice){in->bytes, in->length});
    } else {
        /* Not for alice: libFuzzer sees what change() compares, and has tried a record that was sealed there. */
        fuzz_expect(!opens(keyring, "bob", &card, in->bytes, in->length, number));
    }
    keyring_free(keyring);
    fuzz_file_done(&file);
}
