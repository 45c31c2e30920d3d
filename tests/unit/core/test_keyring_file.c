/* The story: a key has leaked and is replaced at night, by two people who do not know of each other, on a disk that is
 * full. Whatever happens, every key that was in the file is in the file, one of them is active, and readers never see
 * half a file. */
#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/core/keyring.h"
#include "tests/support/suite.h"

#define KEY_A "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define KEY_B "F0F1F2F3F4F5F6F7F8F9FAFBFCFDFEFF000102030405060708090a0b0c0d0e0f"
#define TEXT                                   \
    "# of the year\n"                          \
    "  7\tactive " KEY_A " # made by hand\n\n" \
    "3 retired " KEY_B "\n"                    \
    "70 decrypt " KEY_B " # the one of before"

static const struct uuid card = {.bytes = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}};
static const char number[] = "4000001234567899";

static char folder[64], path[128], new_path[140], other[128];
static struct err err;

static void set_up(void)
{
    snprintf(folder, sizeof(folder), "test_keyring_file.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/keys", folder);
    snprintf(new_path, sizeof(new_path), "%s.new", path);
    snprintf(other, sizeof(other), "%s/other", folder);
    err = (struct err){.kind = ERR_NONE};
}

/* Also checks that nothing else was left in the folder. */
static void tear_down(void)
{
    unlink(path);
    unlink(other);
    ck_assert_int_eq(rmdir(folder), 0);
}

static void write_file(const char *text)
{
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_int_eq(chmod(path, 0640), 0);
}

static char *read_file(void)
{
    static char text[SECRET_FILE_MAX + 1];
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    ck_assert_int_eq(fclose(file), 0);
    return text;
}

static struct keyring *load(void)
{
    struct keyring *keyring = NULL;
    ck_assert_msg(keyring_load(path, &keyring, &err), "%s", err.message);
    return keyring;
}

static void rotate(uint32_t new_id, uint32_t old_id)
{
    uint32_t is_new = 0, is_old = 0;
    ck_assert_msg(keyring_rotate(path, &is_new, &is_old, &err), "%s", err.message);
    ck_assert_uint_eq(is_new, new_id);
    ck_assert_uint_eq(is_old, old_id);
}

static void expect_refused(enum err_kind kind, const char *what)
{
    uint32_t new_id = 77, old_id = 88;
    ck_assert(!keyring_rotate(path, &new_id, &old_id, &err));
    ck_assert_msg(err.kind == kind, "%d: %s", (int)err.kind, err.message);
    ck_assert_msg(strstr(err.message, what) != NULL, "%s", err.message);
    ck_assert_uint_eq(new_id, 77);
    ck_assert_uint_eq(old_id, 88);
    ck_assert_int_eq(access(new_path, F_OK), -1);
}

TEST(a_rotation_adds_a_key_and_changes_one_word)
{
    write_file(TEXT);
    rotate(71, 7);
    static const char expected[] = "# of the year\n"
                                   "  7\tdecrypt " KEY_A " # made by hand\n\n"
                                   "3 retired " KEY_B "\n"
                                   "70 decrypt " KEY_B " # the one of before\n"
                                   "71 active ";
    const char *text = read_file();
    ck_assert_msg(strncmp(text, expected, strlen(expected)) == 0, "%s", text);
    struct keyring *keyring = load();
    ck_assert_uint_eq(keyring_count(keyring), 4);
    ck_assert_uint_eq(keyring_active_id(keyring), 71);
    ck_assert_str_eq(keyring_entry(keyring, 0).made_at, "");
    ck_assert_uint_eq(strlen(keyring_entry(keyring, 3).made_at), strlen("2026-11-20T10:39:57Z"));
    ck_assert(keyring_can_open(keyring, 7) && keyring_can_open(keyring, 71));
    ck_assert(!keyring_can_open(keyring, 3) && !keyring_can_open(keyring, 99));
    keyring_free(keyring);
}

TEST(what_was_sealed_before_a_rotation_opens_after_it)
{
    unsigned char record[KEYRING_RECORD_MAX];
    char opened[KEYRING_NUMBER_MAX + 1];
    size_t length = 0;
    uint32_t id = 0;
    ck_assert(keyring_generate(path, &id, &err));
    struct keyring *keyring = load();
    ck_assert(keyring_seal(keyring, "alice", &card, number, strlen(number), record, &length, &err));
    ck_assert(keyring_record_key(record, length, &id));
    ck_assert_uint_eq(id, 1);
    ck_assert(!keyring_record_key(record, 44, &id));
    rotate(2, 1);
    rotate(3, 2);
    ck_assert_msg(keyring_load_over(path, &keyring, &err), "%s", err.message);
    ck_assert_uint_eq(keyring_active_id(keyring), 3);
    ck_assert(keyring_open(keyring, "alice", &card, record, length, opened, &err));
    ck_assert_str_eq(opened, number);
    keyring_free(keyring);
}

TEST(no_two_keys_are_the_same)
{
    write_file(TEXT);
    rotate(71, 7);
    rotate(72, 71);
    char *text = read_file(), *first = strstr(text, "71 decrypt "), *second = strstr(text, "72 active ");
    ck_assert_ptr_nonnull(first);
    ck_assert_ptr_nonnull(second);
    ck_assert_int_ne(memcmp(first + 11, second + 10, 64), 0);
}

TEST(mode_and_owner_stay)
{
    struct stat before, after;
    write_file(TEXT);
    if (geteuid() == 0)
        ck_assert_int_eq(chown(path, 12345, 23456), 0);
    ck_assert_int_eq(stat(path, &before), 0);
    rotate(71, 7);
    ck_assert_int_eq(stat(path, &after), 0);
    ck_assert_uint_eq(after.st_mode & 07777, 0640);
    ck_assert_uint_eq(after.st_uid, before.st_uid);
    ck_assert_uint_eq(after.st_gid, before.st_gid);
    ck_assert_uint_ne(after.st_ino, before.st_ino); /* replaced as a whole */
}

TEST(the_file_of_another_user_is_not_changed)
{
    if (geteuid() != 0)
        return; /* only root can make the file of another user */
    write_file(TEXT);
    ck_assert_int_eq(chown(path, 12345, 23456), 0);
    ck_assert_int_eq(chmod(path, 0660), 0);
    ck_assert_int_eq(chmod(folder, 0777), 0);
    /* From inside: the folders above may be closed to others. */
    uint32_t new_id = 77, old_id = 88;
    ck_assert_int_eq(chdir(folder), 0);
    ck_assert_int_eq(setegid(23456), 0);
    ck_assert_int_eq(seteuid(12346), 0);
    bool done = keyring_rotate("keys", &new_id, &old_id, &err);
    ck_assert_int_eq(seteuid(0), 0);
    ck_assert_int_eq(setegid(0), 0);
    ck_assert_int_eq(chdir(".."), 0);
    ck_assert(!done);
    ck_assert_msg(err.kind == ERR_REFUSED && strstr(err.message, "another user"), "%s", err.message);
    ck_assert_str_eq(read_file(), TEXT);
}

TEST(a_link_is_refused_and_what_it_names_stays)
{
    write_file(TEXT);
    ck_assert_int_eq(rename(path, other), 0);
    ck_assert_int_eq(symlink("other", path), 0);
    expect_refused(ERR_REFUSED, "symbolic link");
    ck_assert_str_eq(read_file(), TEXT);
    unlink(path);
    ck_assert_int_eq(link(other, path), 0);
    expect_refused(ERR_REFUSED, "more than one name");
    ck_assert_str_eq(read_file(), TEXT);
    unlink(path);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    expect_refused(ERR_REFUSED, "not a regular file");
    ck_assert_int_eq(rmdir(path), 0);
    expect_refused(ERR_CONFIG, "No such file");
}

TEST(a_file_that_cannot_be_used_is_not_changed)
{
    static const char broken[] = "1 decrypt " KEY_A "\n";
    write_file(broken);
    expect_refused(ERR_CONFIG, "no active key");
    ck_assert_str_eq(read_file(), broken);
    write_file("4294967295 active " KEY_A "\n");
    expect_refused(ERR_REFUSED, "no room");
    static char text[40000];
    size_t length = 0;
    for (int i = 1; i <= KEYRING_KEYS_MAX; i++)
        length += (size_t)snprintf(text + length, sizeof(text) - length, "%d %s " KEY_A "\n", i,
                                   i == 1 ? "active" : "decrypt");
    write_file(text);
    expect_refused(ERR_REFUSED, "no room");
    ck_assert_str_eq(read_file(), text);
}

TEST(a_full_disk_leaves_the_old_file)
{
    struct rlimit limit;
    write_file(TEXT);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = 100; /* the write then fails with EFBIG instead of ENOSPC */
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    expect_refused(ERR_SYSTEM, "keys.new");
    limit.rlim_cur = limit.rlim_max;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    ck_assert_str_eq(read_file(), TEXT);
    rotate(71, 7);
}

TEST(what_a_killed_rotation_left_is_no_obstacle)
{
    write_file("half of");
    ck_assert_int_eq(rename(path, new_path), 0);
    write_file(TEXT);
    rotate(71, 7);
    ck_assert_int_eq(access(new_path, F_OK), -1);
}

TEST(rotations_at_once_lose_no_key)
{
    enum { PEOPLE = 4, TIMES = 10 };
    pid_t children[PEOPLE];
    write_file(TEXT);
    for (int i = 0; i < PEOPLE; i++) {
        children[i] = fork();
        ck_assert_int_ge(children[i], 0);
        if (children[i] == 0) {
            uint32_t new_id, old_id;
            bool done = true;
            for (int n = 0; n < TIMES; n++)
                done = keyring_rotate(path, &new_id, &old_id, &err) && done;
            _exit(done ? 0 : 1);
        }
    }
    /* A reader sees whole files only. */
    for (int n = 0; n < 100; n++)
        keyring_free(load());
    for (int i = 0; i < PEOPLE; i++) {
        int status = -1;
        ck_assert_int_eq(waitpid(children[i], &status, 0), children[i]);
        ck_assert_int_eq(status, 0);
    }
    struct keyring *keyring = load();
    ck_assert_uint_eq(keyring_count(keyring), 3 + PEOPLE * TIMES);
    ck_assert_uint_eq(keyring_active_id(keyring), 70 + PEOPLE * TIMES);
    keyring_free(keyring);
}

TEST(a_key_is_retired_unless_it_is_the_active_one)
{
    write_file(TEXT);
    ck_assert_msg(keyring_retire(path, 70, &err), "%s", err.message);
    struct keyring *keyring = load();
    ck_assert_uint_eq(keyring_count(keyring), 3);
    ck_assert(!keyring_can_open(keyring, 70));
    ck_assert(keyring_can_open(keyring, 7));
    keyring_free(keyring);
    ck_assert(!keyring_retire(path, 7, &err));
    ck_assert_int_eq(err.kind, ERR_REFUSED);
    ck_assert(!keyring_retire(path, 8, &err));
    ck_assert_int_eq(err.kind, ERR_REFUSED);
}

TEST(a_ring_in_use_keeps_its_active_key_and_its_keys_as_they_are)
{
    write_file("7 active " KEY_A "\n");
    struct keyring *keyring = load();
    static const char *const unusable[] = {"8 active " KEY_B "\n", "7 retired " KEY_A "\n8 active " KEY_B "\n",
                                           "7 active " KEY_B "\n", "nonsense\n"};
    for (size_t i = 0; i < ARRAY_SIZE(unusable); i++) {
        write_file(unusable[i]);
        ck_assert(!keyring_load_over(path, &keyring, &err));
        ck_assert_int_eq(err.kind, ERR_CONFIG);
        ck_assert_uint_eq(keyring_active_id(keyring), 7);
    }
    write_file("7 decrypt " KEY_A "\n8 active " KEY_B "\n");
    ck_assert_msg(keyring_load_over(path, &keyring, &err), "%s", err.message);
    ck_assert_uint_eq(keyring_active_id(keyring), 8);
    keyring_free(keyring);
}

TESTS_BETWEEN(keyring_file, set_up, tear_down)
