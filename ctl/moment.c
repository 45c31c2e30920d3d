/* See moment.h.
 *
 * Invariants: nothing is guessed: a text that has more than one reading (10:39, 20.11.2026) is refused.
 * Left out: local time zones, which differ between the operator and the servers, and words such as "yesterday". */
#include "ctl/moment.h"

#include <time.h>

#include "ctl/options.h"

#define US_PER_SECOND INT64_C(1000000)

/* Reads exactly `width` digits. */
static bool digits(const char **at, int width, int *ret_number)
{
    int number = 0;
    for (int i = 0; i < width; i++, (*at)++) {
        if (**at < '0' || **at > '9')
            return false;
        number = number * 10 + (**at - '0');
    }
    *ret_number = number;
    return true;
}

static bool read_date(const char **at, int64_t *ret_us)
{
    int year, month, day;
    if (!digits(at, 4, &year) || *(*at)++ != '-' || !digits(at, 2, &month) || *(*at)++ != '-' || !digits(at, 2, &day))
        return false;
    struct tm date = {.tm_year = year - 1900, .tm_mon = month - 1, .tm_mday = day};
    *ret_us = (int64_t)timegm(&date) * US_PER_SECOND;
    /* What the calendar does not have becomes another date. */
    return year >= 1970 && date.tm_mon == month - 1 && date.tm_mday == day;
}

static bool read_fraction(const char **at, int64_t *ret_us)
{
    int64_t unit = US_PER_SECOND / 10, us = 0;
    if (**at < '0' || **at > '9')
        return false;
    for (; **at >= '0' && **at <= '9'; (*at)++, unit /= 10)
        us += (**at - '0') * unit;
    *ret_us = us;
    return true;
}

static bool read_time(const char **at, int64_t *ret_us)
{
    int hour, minute, second = 0;
    int64_t fraction = 0;
    if (!digits(at, 2, &hour) || *(*at)++ != ':' || !digits(at, 2, &minute))
        return false;
    if (**at == ':') {
        (*at)++;
        if (!digits(at, 2, &second))
            return false;
        if (**at == '.') {
            (*at)++;
            if (!read_fraction(at, &fraction))
                return false;
        }
    }
    if (hour > 23 || minute > 59 || second > 60) /* 60: a leap second, which our clocks count as the next one */
        return false;
    *ret_us = ((int64_t)hour * 3600 + minute * 60 + second) * US_PER_SECOND + fraction;
    return true;
}

static bool read_offset(const char **at, int64_t *ret_us)
{
    int hour, minute;
    char sign = **at;
    if (sign == '\0')
        return true;
    (*at)++;
    if (sign == 'Z' || sign == 'z')
        return true;
    if ((sign != '+' && sign != '-') || !digits(at, 2, &hour) || *(*at)++ != ':' || !digits(at, 2, &minute))
        return false;
    if (hour > 23 || minute > 59)
        return false;
    *ret_us = (hour * INT64_C(60) + minute) * 60 * US_PER_SECOND * (sign == '+' ? 1 : -1);
    return true;
}

bool moment_parse(const char *text, struct moment *ret_moment)
{
    const char *at = text;
    int64_t ago_us, date_us, time_us = 0, offset_us = 0;
    if (options_duration(text, &ago_us)) {
        *ret_moment = (struct moment){.is_ago = true, .us = ago_us};
        return true;
    }
    if (!read_date(&at, &date_us))
        return false;
    if (*at == 'T' || *at == 't' || *at == ' ') {
        at++;
        if (!read_time(&at, &time_us) || !read_offset(&at, &offset_us))
            return false;
    }
    if (*at != '\0')
        return false;
    *ret_moment = (struct moment){.us = date_us + time_us - offset_us};
    return true;
}

int64_t moment_us(const struct moment *moment, int64_t now_us)
{
    return moment->is_ago ? now_us - moment->us : moment->us;
}
