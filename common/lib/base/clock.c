/* The only module that reads the kernel's clocks.
 *
 * Invariants: the monotonic clock never goes back unless a test freezes it there, and it counts the time during which
 * the machine was suspended, since leases and the issuer's keys run out meanwhile; a formatted time always has 27
 * characters, so years outside 0000-9999 are shown as the nearest end.
 * Left out: time zones and parsing; nothing here needs them. */
#include "common/lib/base/clock.h"

#include <stdatomic.h>
#include <time.h>

#define US_PER_SECOND 1000000LL
#define SECONDS_PER_DAY 86400LL
#define FIRST_SECOND (-62167219200LL) /* 0000-01-01T00:00:00Z */
#define LAST_SECOND 253402300799LL    /* 9999-12-31T23:59:59Z */

static bool frozen;
static int64_t frozen_wall_us, frozen_mono_us, advanced_us;

static int64_t read_us(clockid_t id)
{
    struct timespec now;
    clock_gettime(id, &now);
    return (int64_t)now.tv_sec * US_PER_SECOND + now.tv_nsec / 1000;
}

int64_t clock_wall_us(void)
{
    return frozen ? frozen_wall_us : read_us(CLOCK_REALTIME) + advanced_us;
}

/* CLOCK_MONOTONIC stands still during a suspension, CLOCK_BOOTTIME does not. Not every sandbox offers the latter; the
 * choice is made once, since the two differ. */
static clockid_t mono_id(void)
{
    static atomic_int chosen = -1;
    int id = chosen;
    struct timespec now;
    if (id < 0)
        /* guard: the time of a suspension counts */
        chosen = id = clock_gettime(CLOCK_BOOTTIME, &now) == 0 ? CLOCK_BOOTTIME : CLOCK_MONOTONIC;
    return id;
}

int64_t clock_mono_us(void)
{
    return frozen ? frozen_mono_us : read_us(mono_id()) + advanced_us;
}

int64_t clock_mono_ms(void)
{
    return clock_mono_us() / 1000;
}

static char *put_digits(char *out, int64_t value, int width)
{
    for (int i = width - 1; i >= 0; i--) {
        out[i] = (char)('0' + value % 10);
        value /= 10;
    }
    return out + width;
}

/* By hand since gmtime_r(3) takes the lock of the time zone at every call, and every answer carries two times. The
 * calendar is Howard Hinnant's civil_from_days ("chrono-Compatible Low-Level Date Algorithms"): years start in
 * March. */
void clock_format(int64_t wall_us, char ret_text[CLOCK_RFC3339_SIZE])
{
    int64_t seconds = wall_us / US_PER_SECOND, us = wall_us % US_PER_SECOND;
    if (us < 0) {
        seconds--;
        us += US_PER_SECOND;
    }
    if (seconds < FIRST_SECOND) {
        seconds = FIRST_SECOND;
        us = 0;
    } else if (seconds > LAST_SECOND) {
        seconds = LAST_SECOND;
        us = US_PER_SECOND - 1;
    }
    int64_t day_second = (seconds % SECONDS_PER_DAY + SECONDS_PER_DAY) % SECONDS_PER_DAY;
    int64_t days = (seconds - day_second) / SECONDS_PER_DAY + 719468; /* since 0000-03-01 */
    int64_t era = (days >= 0 ? days : days - 146096) / 146097;
    int64_t day_of_era = days - era * 146097;
    int64_t year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int64_t shifted_month = (5 * day_of_year + 2) / 153; /* 0 = March */
    int64_t month = shifted_month < 10 ? shifted_month + 3 : shifted_month - 9;
    char *out = put_digits(ret_text, year_of_era + era * 400 + (month <= 2), 4);
    *out++ = '-';
    out = put_digits(out, month, 2);
    *out++ = '-';
    out = put_digits(out, day_of_year - (153 * shifted_month + 2) / 5 + 1, 2);
    *out++ = 'T';
    out = put_digits(out, day_second / 3600, 2);
    *out++ = ':';
    out = put_digits(out, day_second / 60 % 60, 2);
    *out++ = ':';
    out = put_digits(out, day_second % 60, 2);
    *out++ = '.';
    out = put_digits(out, us, 6);
    *out++ = 'Z';
    *out = '\0';
}

void clock_freeze(int64_t wall_us, int64_t mono_us)
{
    frozen_wall_us = wall_us;
    frozen_mono_us = mono_us;
    frozen = true;
}

void clock_advance(int64_t us)
{
    advanced_us += us;
}

void clock_release(void)
{
    frozen = false;
    advanced_us = 0;
}
