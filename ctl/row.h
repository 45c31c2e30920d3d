/* The rows of a result as structs: a table says which member each column goes into. */
#ifndef ISSUING_CTL_ROW_H
#define ISSUING_CTL_ROW_H

#include <stddef.h>

#include "common/lib/base/base.h"
#include "common/lib/pg/pg_result.h"

enum row_kind { ROW_KIND_TEXT, ROW_KIND_NUMBER, ROW_KIND_BOOL, ROW_KIND_TIME, ROW_KIND_UUID, ROW_KIND_UUID_TEXT };

/* A column; a table of these has them in the order of the statement. */
struct row_field {
    enum row_kind kind;
    size_t offset;
};

#define ROW_MEMBER(type, member) (((type *)0)->member)
/* The kind is that of the member: const char * (borrowed from the rows, NULL = null), int64_t (0), bool (false),
 * struct uuid (zeros), char[UUID_TEXT_SIZE] (""). */
#define ROW_FIELD(type, member)                                                                                          \
    {                                                                                                                    \
        _Generic(ROW_MEMBER(type, member), const char *: ROW_KIND_TEXT, int64_t: ROW_KIND_NUMBER, bool: ROW_KIND_BOOL, \
                 struct uuid: ROW_KIND_UUID, char *: ROW_KIND_UUID_TEXT), offsetof(type, member) \
    }
/* A timestamptz, into an int64_t: microseconds since 1970, 0 = null. */
#define ROW_TIME(type, member)                                                              \
    {                                                                                       \
        _Generic(ROW_MEMBER(type, member), int64_t : ROW_KIND_TIME), offsetof(type, member) \
    }

/* Fills these members of the struct; the others stay as they are. */
void row_read(const struct pg_rows *rows, int row, const struct row_field *fields, size_t count, void *ret_struct);

#endif
