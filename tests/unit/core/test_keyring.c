/* A database dump must be worth nothing without the keys file, and an attacker who can write the database must not be
 * able to make one user read another's card by copying a record. A record therefore opens for its own row only, and not
 * after the change of any bit. The keys file is sometimes written by hand: a message about a fault names the line and
 * never shows the key. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/core/keyring.h"
#include "tests/support/suite.h"

#define KEY_A "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define KEY_B "F0F1F2F3F4F5F6F7F8F9FAFBFCFDFEFF000102030405060708090a0b0c0d0e0f"

static const struct uuid card = {.bytes = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}};
static const char number[] = "4000001234567899";

static char folder[64], path[128];
static struct err err;

static void set_up(void)
{
    snprintf(folder, sizeof(folder), "test_keyring.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/keys", folder);
    err = (struct err){.kind = ERR_NONE};
}

static void tear_down(void)
{
    unlink(path);
    ck_assert_int_eq(rmdir(folder), 0);
}

static void write_file_bytes(const char *text, size_t length)
{
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(text, 1, length, file), length);
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_int_eq(chmod(path, 0600), 0);
}

static struct keyring *load(const char *text)
{
    struct keyring *keyring = NULL;
    write_file_bytes(text, strlen(text));
    ck_assert_msg(keyring_load(path, &keyring, &err), "%s", err.message);
    return keyring;
}

static size_t seal(struct keyring *keyring, const char *user, unsigned char record[KEYRING_RECORD_MAX])
{
    size_t length = 0;
    ck_assert_msg(keyring_seal(keyring, user, &card, number, strlen(number), record, &length, &err), "%s", err.message);
    return length;
}

static void expect_refused(const struct keyring *keyring, const char *user, const struct uuid *card_id,
                           const unsigned char *record, size_t length, enum err_kind kind)
{
    char opened[KEYRING_NUMBER_MAX + 1] = "untouched";
    ck_assert(!keyring_open(keyring, user, card_id, record, length, opened, &err));
    ck_assert_msg(err.kind == kind, "%d instead of %d", (int)err.kind, (int)kind);
    ck_assert_str_eq(opened, "untouched");
}

TEST(a_sealed_number_opens_again)
{
    struct keyring *keyring = load("7 active " KEY_A "\n");
    ck_assert_uint_eq(keyring_active_id(keyring), 7);
    static const char digits[] = "1234567890123456789";
    for (size_t length = 12; length <= 19; length++) {
        unsigned char record[KEYRING_RECORD_MAX];
        size_t record_length = 0;
        char opened[KEYRING_NUMBER_MAX + 1];
        ck_assert(keyring_seal(keyring, "alice", &card, digits, length, record, &record_length, &err));
        ck_assert_uint_eq(record_length, 1 + 4 + 12 + length + 16);
        ck_assert_mem_eq(record, "\x01\x00\x00\x00\x07", 5);
        ck_assert_msg(keyring_open(keyring, "alice", &card, record, record_length, opened, &err), "%s", err.message);
        ck_assert_uint_eq(strlen(opened), length);
        ck_assert_mem_eq(opened, digits, length);
    }
    keyring_free(keyring);
}

TEST(what_is_no_card_number_is_not_sealed)
{
    static const char *const wrong[] = {"", "12345678901", "12345678901234567890", "4000 0012 3456 78",
                                        "400000123456789x"};
    struct keyring *keyring = load("7 active " KEY_A "\n");
    unsigned char record[KEYRING_RECORD_MAX];
    size_t length = 99;
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        ck_assert(!keyring_seal(keyring, "alice", &card, wrong[i], strlen(wrong[i]), record, &length, &err));
        ck_assert_int_eq(err.kind, ERR_MALFORMED);
        ck_assert_uint_eq(length, 99);
        ck_assert(!wrong[i][0] || !strstr(err.message, wrong[i]));
    }
    keyring_free(keyring);
}

TEST(a_record_opens_for_its_own_user_and_card_only)
{
    struct keyring *keyring = load("7 active " KEY_A "\n8 decrypt " KEY_B "\n");
    unsigned char record[KEYRING_RECORD_MAX];
    size_t length = seal(keyring, "alice", record);
    expect_refused(keyring, "alicf", &card, record, length, ERR_REFUSED);
    expect_refused(keyring, "alice ", &card, record, length, ERR_REFUSED);
    expect_refused(keyring, "alic", &card, record, length, ERR_REFUSED);
    expect_refused(keyring, "", &card, record, length, ERR_REFUSED);
    struct uuid other = card;
    other.bytes[15] ^= 1;
    expect_refused(keyring, "alice", &other, record, length, ERR_REFUSED);
    record[4] = 8; /* another key of the ring */
    expect_refused(keyring, "alice", &card, record, length, ERR_REFUSED);
    keyring_free(keyring);
}

TEST(the_key_id_is_bound_even_when_the_key_is_the_same)
{
    struct keyring *keyring = load("7 active " KEY_A "\n8 decrypt " KEY_A "\n");
    unsigned char record[KEYRING_RECORD_MAX];
    size_t length = seal(keyring, "alice", record);
    record[4] = 8;
    expect_refused(keyring, "alice", &card, record, length, ERR_REFUSED);
    keyring_free(keyring);
}

TEST(a_record_with_any_bit_flipped_or_byte_missing_does_not_open)
{
    struct keyring *keyring = load("7 active " KEY_A "\n");
    unsigned char record[KEYRING_RECORD_MAX], changed[KEYRING_RECORD_MAX + 1];
    size_t length = seal(keyring, "alice", record);
    for (size_t bit = 0; bit < length * 8; bit++) {
        memcpy(changed, record, length);
        changed[bit / 8] ^= (unsigned char)(1 << bit % 8);
        enum err_kind kind = bit < 8 ? ERR_MALFORMED : bit < 40 ? ERR_NOT_FOUND : ERR_REFUSED;
        expect_refused(keyring, "alice", &card, changed, length, kind);
    }
    memcpy(changed, record, length);
    changed[length] = 0;
    for (size_t shorter = 0; shorter < length; shorter++)
        expect_refused(keyring, "alice", &card, changed, shorter,
                       shorter < 1 + 4 + 12 + 12 + 16 ? ERR_MALFORMED : ERR_REFUSED);
    expect_refused(keyring, "alice", &card, changed, length + 1, ERR_REFUSED);
    keyring_free(keyring);
}

TEST(a_number_sealed_before_a_rotation_opens_until_its_key_is_retired)
{
    struct keyring *keyring = load("1 active " KEY_A "\n");
    unsigned char record[KEYRING_RECORD_MAX];
    char opened[KEYRING_NUMBER_MAX + 1];
    size_t length = seal(keyring, "alice", record);
    keyring_free(keyring);
    keyring = load("# rotated\n1 decrypt " KEY_A "\n\n2 active " KEY_B " # new\n");
    ck_assert_uint_eq(keyring_active_id(keyring), 2);
    ck_assert(keyring_open(keyring, "alice", &card, record, length, opened, &err));
    ck_assert_str_eq(opened, number);
    keyring_free(keyring);
    keyring = load("1 retired " KEY_A "\n2 active " KEY_B "\n");
    expect_refused(keyring, "alice", &card, record, length, ERR_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(err.message, "key 1"));
    keyring_free(keyring);
    keyring = load("2 active " KEY_B "\n");
    expect_refused(keyring, "alice", &card, record, length, ERR_NOT_FOUND);
    keyring_free(keyring);
}

static int compare_nonces(const void *left, const void *right)
{
    return memcmp(left, right, 12);
}

TEST(no_two_seals_share_a_nonce)
{
    static unsigned char nonces[5000][12];
    struct keyring *keyring = load("1 active " KEY_A "\n");
    for (size_t i = 0; i < ARRAY_SIZE(nonces); i++) {
        unsigned char record[KEYRING_RECORD_MAX];
        seal(keyring, "alice", record);
        memcpy(nonces[i], record + 5, 12);
    }
    qsort(nonces, ARRAY_SIZE(nonces), 12, compare_nonces);
    for (size_t i = 1; i < ARRAY_SIZE(nonces); i++)
        ck_assert_mem_ne(nonces[i - 1], nonces[i], 12);
    keyring_free(keyring);
}

TEST(a_malformed_file_is_refused_with_its_line_and_without_its_keys)
{
    static const struct {
        const char *text;
        const char *fault;
    } rows[] = {
        {"# nothing\n\n", "no active key"},
        {"1 decrypt " KEY_A "\n", "no active key"},
        {"1 active " KEY_A "\n2 active " KEY_B "\n", ":2: a second active key"},
        {"1 active " KEY_A "\n\n1 decrypt " KEY_B "\n", ":3: key id 1 is there twice"},
        {"x active " KEY_A "\n", ":1: the key id"},
        {"0 active " KEY_A "\n", ":1: the key id"},
        {"-1 active " KEY_A "\n", ":1: the key id"},
        {"4294967296 active " KEY_A "\n", ":1: the key id"},
        {"99999999999999999999 active " KEY_A "\n", ":1: the key id"},
        {KEY_A "\n", ":1: the key id"},
        {"1 Active " KEY_A "\n", ":1: the state"},
        {"1 activ " KEY_A "\n", ":1: the state"},
        {"1 " KEY_A " active\n", ":1: the state"},
        {"1\n", ":1: the state"},
        {"1 active\n", ":1: the key must be"},
        {"1 active " KEY_A "0\n", ":1: the key must be"},
        {"1 active 00\n", ":1: the key must be"},
        {"1 active g00102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n", ":1: the key must be"},
        {"1 active 0x0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n", ":1: the key must be"},
        {"1 active " KEY_A " " KEY_B "\n", ":1: something follows"},
        {"\xef\xbb\xbf"
         "1 active " KEY_A "\n",
         ":1: the key id"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct keyring *keyring = NULL;
        write_file_bytes(rows[i].text, strlen(rows[i].text));
        ck_assert_msg(!keyring_load(path, &keyring, &err), "row %zu was taken", i);
        ck_assert_ptr_null(keyring);
        ck_assert_int_eq(err.kind, ERR_CONFIG);
        ck_assert_msg(strstr(err.message, rows[i].fault), "row %zu: %s", i, err.message);
        ck_assert_msg(!strstr(err.message, "00102030405"), "row %zu shows the key", i);
    }
    static const char with_nul[] = "1 active " KEY_A "\n2\0decrypt " KEY_B "\n";
    struct keyring *keyring = NULL;
    write_file_bytes(with_nul, sizeof(with_nul) - 1);
    ck_assert(!keyring_load(path, &keyring, &err));
    ck_assert_ptr_nonnull(strstr(err.message, ":2:"));
}

TEST(blanks_tabs_crlf_and_a_missing_last_newline_are_fine)
{
    struct keyring *keyring = load("\r\n  # a\r\n \t1\tdecrypt  " KEY_A "\t\r\n  4294967295 active " KEY_B);
    ck_assert_uint_eq(keyring_active_id(keyring), 4294967295u);
    unsigned char record[KEYRING_RECORD_MAX];
    seal(keyring, "alice", record);
    ck_assert_mem_eq(record, "\x01\xff\xff\xff\xff", 5);
    keyring_free(keyring);
}

TEST(more_keys_than_the_ring_holds_are_refused)
{
    static char text[40000];
    size_t length = 0;
    for (int i = 1; i <= 257; i++)
        length += (size_t)snprintf(text + length, sizeof(text) - length, "%d %s " KEY_A "\n", i,
                                   i == 1 ? "active" : "decrypt");
    struct keyring *keyring = NULL;
    write_file_bytes(text, length);
    ck_assert(!keyring_load(path, &keyring, &err));
    ck_assert_ptr_nonnull(strstr(err.message, ":257: more than 256 keys"));
}

TEST(a_file_that_everybody_may_read_is_refused)
{
    write_file_bytes("1 active " KEY_A "\n", strlen("1 active " KEY_A "\n"));
    struct keyring *keyring = NULL;
    ck_assert_int_eq(chmod(path, 0644), 0);
    ck_assert(!keyring_load(path, &keyring, &err));
    ck_assert_int_eq(err.kind, ERR_CONFIG);
    ck_assert_int_eq(chmod(path, 0640), 0);
    ck_assert(keyring_load(path, &keyring, &err));
    keyring_free(keyring);
    unlink(path);
    ck_assert(!keyring_load(path, &keyring, &err));
    ck_assert_int_eq(err.kind, ERR_CONFIG);
}

TEST(a_generated_file_is_private_loads_and_is_never_overwritten)
{
    uint32_t id = 0;
    mode_t before = umask(0);
    ck_assert_msg(keyring_generate(path, &id, &err), "%s", err.message);
    umask(before);
    struct stat status;
    ck_assert_int_eq(stat(path, &status), 0);
    ck_assert_uint_eq(status.st_mode & 07777, 0600);
    struct keyring *keyring = NULL;
    ck_assert_msg(keyring_load(path, &keyring, &err), "%s", err.message);
    ck_assert_uint_eq(keyring_active_id(keyring), id);
    unsigned char record[KEYRING_RECORD_MAX];
    char opened[KEYRING_NUMBER_MAX + 1];
    size_t length = seal(keyring, "alice", record);

    uint32_t other_id = 12345;
    ck_assert(!keyring_generate(path, &other_id, &err));
    ck_assert_int_eq(err.kind, ERR_REFUSED);
    ck_assert_uint_eq(other_id, 12345);
    keyring_free(keyring);
    ck_assert(keyring_load(path, &keyring, &err));
    ck_assert(keyring_open(keyring, "alice", &card, record, length, opened, &err));
    keyring_free(keyring);

    unlink(path);
    ck_assert(keyring_generate(path, &id, &err));
    ck_assert(keyring_load(path, &keyring, &err));
    expect_refused(keyring, "alice", &card, record, length, ERR_REFUSED); /* another key */
    keyring_free(keyring);
}

TEST(an_active_key_is_old_after_a_year)
{
    static const int64_t made_s = 1704067200; /* 2024-01-01T00:00:00Z */
    static const struct {
        struct keyring_entry entry;
        int days;
        bool is_old;
    } rows[] = {
        {{.made_at = "2024-01-01T00:00:00Z"}, 365, false},
        {{.made_at = "2024-01-01T00:00:00Z"}, 366, true},
        {{.made_at = "2024-01-01T00:00:00Z"}, -400, false},
        {{.made_at = ""}, 4000, false},
        {{.made_at = "2024-01-01"}, 4000, false},
        {{.made_at = "2024-01-01T00:00:00Z0"}, 4000, false},
        {{.state = KEYRING_DECRYPT, .made_at = "2024-01-01T00:00:00Z"}, 4000, false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        ck_assert_msg(keyring_is_old(&rows[i].entry, made_s + rows[i].days * 86400LL) == rows[i].is_old, "%zu", i);
}

TEST(a_link_is_not_followed_when_a_file_is_made)
{
    char target[160];
    uint32_t id = 0;
    snprintf(target, sizeof(target), "%s/elsewhere", folder);
    ck_assert_int_eq(symlink(target, path), 0);
    ck_assert(!keyring_generate(path, &id, &err));
    ck_assert_int_eq(access(target, F_OK), -1);
    unlink(path);
    snprintf(target, sizeof(target), "%s/no/such/folder", folder);
    ck_assert(!keyring_generate(target, &id, &err));
    ck_assert_int_eq(err.kind, ERR_SYSTEM);
}

/* ---- a file that is read again ---- */

static bool load_over(const char *text, struct keyring **keyring)
{
    err = (struct err){.kind = ERR_NONE};
    write_file_bytes(text, strlen(text));
    return keyring_load_over(path, keyring, &err);
}

static bool opens(struct keyring *keyring, const unsigned char *record, size_t length)
{
    char opened[KEYRING_NUMBER_MAX + 1];
    return keyring_open(keyring, "alice", &card, record, length, opened, &err) && strcmp(opened, number) == 0;
}

TEST(a_new_active_key_seals_and_the_old_one_opens_still)
{
    struct keyring *keyring = NULL;
    unsigned char old[KEYRING_RECORD_MAX], fresh[KEYRING_RECORD_MAX];
    ck_assert(load_over("1 active " KEY_A "\n", &keyring));
    size_t old_length = seal(keyring, "alice", old);
    ck_assert(load_over("1 decrypt " KEY_A "\n2 active " KEY_B "\n", &keyring));
    ck_assert_uint_eq(keyring_active_id(keyring), 2);
    size_t length = seal(keyring, "alice", fresh);
    ck_assert(opens(keyring, old, old_length));
    ck_assert(opens(keyring, fresh, length));
    ck_assert(load_over("1 retired " KEY_A "\n2 active " KEY_B "\n", &keyring)); /* nothing is being sealed with it */
    ck_assert(!opens(keyring, old, old_length));
    ck_assert(opens(keyring, fresh, length));
    keyring_free(keyring);
}

TEST(a_file_without_the_key_in_use_leaves_the_old_ring_in_force)
{
    static const char *const files[] = {"",
                                        "2 active " KEY_B "\n",
                                        "1 retired " KEY_A "\n2 active " KEY_B "\n",
                                        "1 active " KEY_B "\n",
                                        "1 decrypt " KEY_B "\n2 active " KEY_A "\n",
                                        "1 active " KEY_A " rest\n"};
    struct keyring *keyring = NULL;
    unsigned char record[KEYRING_RECORD_MAX];
    ck_assert(load_over("1 active " KEY_A "\n", &keyring));
    size_t length = seal(keyring, "alice", record);
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        struct keyring *before = keyring;
        ck_assert_msg(!load_over(files[i], &keyring), "%zu", i);
        ck_assert_int_eq(err.kind, ERR_CONFIG);
        ck_assert_ptr_null(strstr(err.message, "0001"));
        ck_assert_ptr_eq(keyring, before);
        ck_assert(opens(keyring, record, length));
    }
    keyring_free(keyring);
}

TESTS_BETWEEN(keyring, set_up, tear_down)
