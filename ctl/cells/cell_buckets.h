/* Sets of buckets, as an operator writes and reads them: 17, 0-511, 3,5,8-9. Pure. */
#ifndef ISSUING_CTL_CELL_BUCKETS_H
#define ISSUING_CTL_CELL_BUCKETS_H

#include "common/base/base.h"
#include "common/base/err.h"

#define CELL_BUCKETS 1024

struct cell_buckets {
    bool has[CELL_BUCKETS];
    int count;
};

/* Adds what one argument names: numbers and ranges from 0 to 1023, separated by commas. ERR_USAGE: anything else, a
 * range that runs backwards, or a bucket that is named twice. */
must_check bool cell_buckets_add(struct cell_buckets *buckets, const char *text, struct err *err);
/* All arguments of a command. ERR_USAGE, also when there is none. */
must_check bool cell_buckets_read(char **arguments, int count, struct cell_buckets *ret_buckets, struct err *err);
void cell_buckets_put(struct cell_buckets *buckets, int bucket);
void cell_buckets_all(struct cell_buckets *buckets);
/* "17", "0-511", "3,5,8-9"; "none". A list that does not fit ends with ",...". */
#define CELL_BUCKETS_TEXT_SIZE 80
const char *cell_buckets_text(const struct cell_buckets *buckets, char ret_text[CELL_BUCKETS_TEXT_SIZE]);

#endif
