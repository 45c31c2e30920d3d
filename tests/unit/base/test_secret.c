/* A key file that every user may read is a leak without a trace, and a newline that an editor added makes a key that
 * does not match. Both are noticed when the file is read, and no message contains its content. */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/lib/base/secret.h"
#include "tests/support/suite.h"

static char folder[64], path[96];

static void make_folder(void)
{
    snprintf(folder, sizeof(folder), "test_secret_XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/file", folder);
}

static void remove_folder(void)
{
    unlink(path);
    ck_assert_int_eq(rmdir(folder), 0);
}

static void write_file(const void *bytes, size_t length, mode_t mode)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, bytes, length), (ssize_t)length);
    ck_assert_int_eq(fchmod(fd, mode), 0);
    close(fd);
}

static void expect_content(const void *bytes, size_t length, const char *wanted, size_t wanted_length)
{
    struct secret secret;
    struct err err;
    write_file(bytes, length, 0600);
    ck_assert(secret_load(&secret, path, &err));
    ck_assert_uint_eq(secret.length, wanted_length);
    ck_assert_mem_eq(secret.bytes, wanted, wanted_length);
    ck_assert_int_eq(secret.bytes[secret.length], 0);
    secret_done(&secret);
    ck_assert_ptr_null(secret.bytes);
}

static void expect_refusal(const char *reason)
{
    struct secret secret = {.bytes = NULL, .length = 77};
    struct err err;
    ck_assert(!secret_load(&secret, path, &err));
    ck_assert_int_eq(err.kind, ERR_CONFIG);
    ck_assert_msg(strstr(err.message, reason) != NULL, "%s", err.message);
    ck_assert_ptr_nonnull(strstr(err.message, path));
    ck_assert_ptr_null(strstr(err.message, "hush"));
    ck_assert_uint_eq(secret.length, 77);
}

TEST(a_file_is_read_less_one_newline)
{
    expect_content("hush", 4, "hush", 4);
    expect_content("hush\n", 5, "hush", 4);
    expect_content("hush\r\n", 6, "hush", 4);
    expect_content("hush\n\n", 6, "hush\n", 5);
    expect_content("hush\r", 5, "hush\r", 5);
    expect_content("\0hu\nsh ", 7, "\0hu\nsh ", 7);
}

TEST(a_file_that_others_may_touch_is_refused)
{
    static const mode_t bad[] = {0604, 0602, 0601, 0644, 0666};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        write_file("hush", 4, bad[i]);
        expect_refusal("mode 06");
    }
    write_file("hush", 4, 0640);
    struct secret secret;
    struct err err;
    ck_assert(secret_load(&secret, path, &err));
    secret_done(&secret);
}

/* Whoever may write the file may choose the key, and can then act as every user, or read every card number. */
TEST(a_file_that_the_group_may_write_is_refused)
{
    static const mode_t bad[] = {0620, 0660, 0670};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        write_file("hush", 4, bad[i]);
        expect_refusal("lets others than its owner write it");
    }
}

/* Where we are root, the test runs as another user: the owner may be root or that user, and no third one. */
TEST(a_file_of_another_user_is_refused)
{
    static const struct {
        uid_t owner;
        bool is_good;
    } rows[] = {{0, true}, {4242, true}, {4243, false}};
    if (geteuid() != 0)
        return;
    ck_assert_int_eq(chmod(folder, 0755), 0);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        write_file("hush", 4, 0640);
        ck_assert_int_eq(chown(path, rows[i].owner, 4242), 0);
        int fd = open(folder, O_RDONLY | O_DIRECTORY);
        ck_assert_int_ge(fd, 0);
        pid_t child = fork();
        ck_assert_int_ge(child, 0);
        if (child == 0) {
            struct secret secret = {.bytes = NULL};
            struct err err;
            /* By its name alone: the way to this folder may be closed to that user. */
            if (fchdir(fd) != 0 || setgid(4242) != 0 || setuid(4242) != 0)
                _exit(2);
            bool is_good = secret_load(&secret, "file", &err);
            secret_done(&secret);
            if (!is_good && !strstr(err.message, "belongs to user 4243; the owner must be root or user 4242"))
                _exit(3);
            _exit(is_good ? 0 : 1);
        }
        close(fd);
        int status;
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == !rows[i].is_good, "owner %d: status %x",
                      (int)rows[i].owner, (unsigned int)status);
    }
}

TEST(a_file_of_the_largest_size_is_read_and_one_more_byte_is_refused)
{
    char *bytes = malloc(SECRET_FILE_MAX + 1);
    ck_assert_ptr_nonnull(bytes);
    memset(bytes, 'k', SECRET_FILE_MAX + 1);
    expect_content(bytes, SECRET_FILE_MAX, bytes, SECRET_FILE_MAX);
    write_file(bytes, SECRET_FILE_MAX + 1, 0600);
    expect_refusal("more than 65536 bytes");
    free(bytes);
}

TEST(what_is_no_file_with_content_is_refused)
{
    expect_refusal("No such file");
    write_file("\n", 1, 0600);
    expect_refusal("empty");
    unlink(path);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    expect_refusal("not a regular file");
    ck_assert_int_eq(rmdir(path), 0);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    expect_refusal("not a regular file");
}

TEST(equal_secrets_compare_equal_and_others_do_not)
{
    ck_assert(secret_equal("abc", 3, "abc", 3));
    ck_assert(secret_equal("", 0, "", 0));
    ck_assert(secret_equal(NULL, 0, NULL, 0));
    ck_assert(!secret_equal("abc", 3, "abd", 3));
    ck_assert(!secret_equal("abc", 3, "xbc", 3));
    ck_assert(!secret_equal("abc", 3, "abcd", 4));
    ck_assert(!secret_equal("abc", 3, "ab", 2));
    ck_assert(secret_equal("a\0b", 3, "a\0b", 3));
    ck_assert(!secret_equal("a\0b", 3, "a\0c", 3));
}

TEST(wiping_leaves_zeroes)
{
    unsigned char bytes[33];
    memset(bytes, 0xaa, sizeof(bytes));
    secret_wipe(bytes, 32);
    for (size_t i = 0; i < 32; i++)
        ck_assert_uint_eq(bytes[i], 0);
    ck_assert_uint_eq(bytes[32], 0xaa);
}

TEST(an_empty_secret_can_be_copied_and_freed_twice)
{
    struct secret secret;
    struct err err;
    ck_assert(secret_copy(&secret, NULL, 0, &err));
    ck_assert_uint_eq(secret.length, 0);
    ck_assert_int_eq(secret.bytes[0], 0);
    secret_done(&secret);
    secret_done(&secret);
    ck_assert_ptr_null(secret.bytes);
}

TEST(a_protected_process_leaves_no_core)
{
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        struct rlimit limit;
        secret_protect_process();
        bool safe = getrlimit(RLIMIT_CORE, &limit) == 0 && limit.rlim_cur == 0 && limit.rlim_max == 0 &&
                    prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 0;
        _exit(safe ? 0 : 1);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
}

TESTS_BETWEEN(secret, make_folder, remove_folder)
