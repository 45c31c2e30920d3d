/* Preloaded into a program of a story (LD_PRELOAD), so that its clocks can be set from outside while it runs: what a
 * step by NTP, a clock that is hours wrong, and a suspended machine do to it.
 *
 * The file that TEST_CLOCK_FILE names holds three numbers of 64 bits, nanoseconds to be added to the real, the
 * monotonic and the boot-time clock. It is mapped, so the next call sees a step, in forked processes too, and a call
 * is safe in a signal handler, where PostgreSQL makes some (libfaketime reads and parses its file at each call, and
 * leaves semaphores behind). Timers of the kernel go on by the kernel's clocks: that is what a step does to them.
 *
 *   step of the wall clock:     real
 *   a suspended machine:        real and boot-time, while monotonic stands still
 *
 * Leaves out: sleeping until a point of time (clock_nanosleep, pthread_cond_timedwait), file times. */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct offsets {
    _Atomic int64_t real_ns, monotonic_ns, boottime_ns;
};

static const struct offsets *offsets;

__attribute__((constructor)) static void map_offsets(void)
{
    const char *path = getenv("TEST_CLOCK_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *mapped = mmap(NULL, sizeof(*offsets), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED)
        offsets = mapped;
}

static int64_t offset_of(clockid_t clock)
{
    if (!offsets)
        return 0;
    switch (clock) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
    case CLOCK_TAI:
        return atomic_load(&offsets->real_ns);
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_COARSE:
    case CLOCK_MONOTONIC_RAW:
        return atomic_load(&offsets->monotonic_ns);
    case CLOCK_BOOTTIME:
        return atomic_load(&offsets->boottime_ns);
    default:
        return 0;
    }
}

int clock_gettime(clockid_t clock, struct timespec *at)
{
    if (syscall(SYS_clock_gettime, clock, at) != 0)
        return -1;
    int64_t offset_ns = offset_of(clock);
    int64_t nanoseconds = at->tv_nsec + offset_ns % 1000000000;
    at->tv_sec += offset_ns / 1000000000;
    if (nanoseconds < 0 || nanoseconds >= 1000000000) {
        int64_t carry = nanoseconds < 0 ? -1 : 1;
        at->tv_sec += carry;
        nanoseconds -= carry * 1000000000;
    }
    at->tv_nsec = nanoseconds;
    return 0;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0)
        return -1;
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *ret_time)
{
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0)
        return -1;
    if (ret_time)
        *ret_time = now.tv_sec;
    return now.tv_sec;
}
