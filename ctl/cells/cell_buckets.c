/* See cell_buckets.h.
 *
 * Invariants: what can be read in two ways is refused, since a bucket too many is a pause for users who were not meant;
 * a bucket is counted once. */
#include "ctl/cells/cell_buckets.h"

#include <stdio.h>
#include <string.h>

/* One to four digits without a leading zero. NULL: there is no such number. */
static const char *read_number(const char *text, int *ret_number)
{
    size_t length = strspn(text, "0123456789");
    int number = 0;
    if (length == 0 || length > 4 || (length > 1 && text[0] == '0'))
        return NULL;
    for (size_t i = 0; i < length; i++)
        number = number * 10 + (text[i] - '0');
    *ret_number = number;
    return number < CELL_BUCKETS ? text + length : NULL;
}

void cell_buckets_put(struct cell_buckets *buckets, int bucket)
{
    if (!buckets->has[bucket])
        buckets->count++;
    buckets->has[bucket] = true;
}

void cell_buckets_all(struct cell_buckets *buckets)
{
    for (int bucket = 0; bucket < CELL_BUCKETS; bucket++)
        cell_buckets_put(buckets, bucket);
}

bool cell_buckets_add(struct cell_buckets *buckets, const char *text, struct err *err)
{
    const char *at = text;
    int first, last;
    do {
        at = read_number(at, &first);
        last = first;
        if (at && *at == '-')
            at = read_number(at + 1, &last);
        if (!at || last < first || (*at != '\0' && *at != ','))
            return err_set(err, ERR_USAGE, "\"%.40s\" is no bucket: 17, 0-511 or 3,5,8-9, from 0 to %d", text,
                           CELL_BUCKETS - 1);
        for (int bucket = first; bucket <= last; bucket++) {
            if (buckets->has[bucket])
                return err_set(err, ERR_USAGE, "bucket %d is named twice", bucket);
            cell_buckets_put(buckets, bucket);
        }
    } while (*at++ == ',');
    return true;
}

bool cell_buckets_read(char **arguments, int count, struct cell_buckets *ret_buckets, struct err *err)
{
    struct cell_buckets buckets = {.count = 0};
    for (int i = 0; i < count; i++)
        if (!cell_buckets_add(&buckets, arguments[i], err))
            return false;
    if (buckets.count == 0)
        return err_set(err, ERR_USAGE, "name the buckets: 17, 0-511 or 3,5,8-9");
    *ret_buckets = buckets;
    return true;
}

const char *cell_buckets_text(const struct cell_buckets *buckets, char ret_text[CELL_BUCKETS_TEXT_SIZE])
{
    size_t length = 0;
    ret_text[0] = '\0';
    for (int first = 0; first < CELL_BUCKETS; first++) {
        char range[32];
        int last = first;
        if (!buckets->has[first])
            continue;
        while (last + 1 < CELL_BUCKETS && buckets->has[last + 1])
            last++;
        if (last == first)
            snprintf(range, sizeof(range), "%s%d", length > 0 ? "," : "", first);
        else
            snprintf(range, sizeof(range), "%s%d-%d", length > 0 ? "," : "", first, last);
        if (length + strlen(range) + sizeof(",...") > CELL_BUCKETS_TEXT_SIZE) {
            memcpy(ret_text + length, ",...", sizeof(",..."));
            return ret_text;
        }
        memcpy(ret_text + length, range, strlen(range) + 1);
        length += strlen(range);
        first = last;
    }
    if (length == 0)
        memcpy(ret_text, "none", sizeof("none"));
    return ret_text;
}
