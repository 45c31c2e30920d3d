/* The loop goes on while a file does not answer: it asks from time to time whether everything was read. */
#include <check.h>
#include <pthread.h>
#include <time.h>

#include "common/lib/base/clock.h"
#include "common/lib/base/read_ahead.h"
#include "tests/support/suite.h"

static pthread_mutex_t mount = PTHREAD_MUTEX_INITIALIZER; /* held: it hangs */
static atomic_int reads;

static void read_mount(void *context)
{
    ck_assert_ptr_eq(context, &reads);
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += 20;
    ck_assert_int_eq(pthread_mutex_timedlock(&mount, &end), 0);
    reads++;
    pthread_mutex_unlock(&mount);
}

static struct read_ahead ahead = {.read = read_mount, .context = &reads};

static void wait_over(void)
{
    int64_t end_ms = clock_mono_ms() + 60000;
    while (!read_ahead_is_over(&ahead)) {
        ck_assert_int_lt(clock_mono_ms(), end_ms);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

TEST(a_file_that_does_not_answer_is_not_waited_for)
{
    ck_assert(!ahead.is_running);
    for (int round = 1; round <= 3; round++) {
        pthread_mutex_lock(&mount);
        read_ahead_start(&ahead);
        ck_assert(ahead.is_running);
        ck_assert_int_le(ahead.began_ms, clock_mono_ms());
        ck_assert(!read_ahead_is_over(&ahead));
        ck_assert(ahead.is_running);
        pthread_mutex_unlock(&mount);
        wait_over();
        ck_assert(!ahead.is_running);
        ck_assert_int_eq(reads, round);
    }
}

TEST(what_cannot_be_read_is_no_matter)
{
    read_ahead_file("/no/such/file");
    read_ahead_file("/");
    read_ahead_file("/proc/self/exe");
}

TESTS(read_ahead)
