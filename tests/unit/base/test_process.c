/* The story: memory that leaks, or descriptors that are never closed, shall be seen weeks before they end the process.
 * So the figures must be those of this process, and must move with it. */
#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "common/lib/base/process.h"
#include "tests/support/suite.h"

#define FILES 20
#define BYTES (32 << 20)

TEST(open_files_are_counted)
{
    struct process_figures before, after;
    int files[FILES];
    process_read(&before);
    for (int i = 0; i < FILES; i++)
        ck_assert_int_ge(files[i] = open("/dev/null", O_RDONLY | O_CLOEXEC), 0);
    process_read(&after);
    for (int i = 0; i < FILES; i++)
        (void)close(files[i]);
    ck_assert_int_ge(before.open_files, 3);
    ck_assert_int_eq(after.open_files, before.open_files + FILES);
    process_read(&after);
    ck_assert_int_eq(after.open_files, before.open_files);
}

TEST(the_limit_of_files_is_the_soft_one)
{
    struct rlimit limit;
    struct process_figures figures;
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = 123;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    process_read(&figures);
    ck_assert_int_eq(figures.files_max, 123);
}

TEST(memory_that_is_used_shows)
{
    struct process_figures before, after;
    process_read(&before);
    volatile char *bytes = malloc(BYTES);
    ck_assert_ptr_nonnull((void *)bytes);
    for (size_t i = 0; i < BYTES; i += 4096)
        bytes[i] = 1;
    process_read(&after);
    free((void *)bytes);
    ck_assert_int_ge(after.resident_bytes - before.resident_bytes, BYTES / 2);
    ck_assert_int_ge(after.virtual_bytes, after.resident_bytes);
}

TEST(time_of_the_processor_grows)
{
    struct process_figures before, after;
    process_read(&before);
    do {
        process_read(&after);
    } while (after.cpu_s < before.cpu_s + 0.02);
    ck_assert(before.cpu_s >= 0);
}

TEST(the_start_is_before_now_and_does_not_move)
{
    struct process_figures first, second;
    process_read(&first);
    process_read(&second);
    double now_s = (double)time(NULL);
    ck_assert(first.started_s <= now_s + 1 && first.started_s > now_s - 3600);
    ck_assert(!(first.started_s < second.started_s) && !(first.started_s > second.started_s));
}

TESTS(process)
