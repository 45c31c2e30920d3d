/* Parameters in binary format: scalars and one-dimensional arrays. Pure: no libpq.
 *
 * Every statement casts its parameters ($1::uuid[]), so the server knows the type that these bytes have. */
#ifndef ISSUING_PG_PARAM_H
#define ISSUING_PG_PARAM_H

#include "common/lib/base/base.h"
#include "common/lib/base/buf.h"
#include "common/lib/base/uuid7.h"

#define PG_PARAMS_MAX 24

struct pg_param {
    const void *bytes; /* NULL = SQL NULL */
    int length;
    unsigned char inline_bytes[16]; /* int8, bool, uuid: then bytes is NULL and inline_length > 0 */
    int inline_length;
};

struct pg_param pg_param_null(void);
struct pg_param pg_param_text(const char *bytes, size_t length); /* borrowed; bytes NULL = SQL NULL; also bytea */
struct pg_param pg_param_string(const char *text);               /* terminated; borrowed; NULL = SQL NULL */
struct pg_param pg_param_int8(int64_t value);
struct pg_param pg_param_bool(bool value);
struct pg_param pg_param_uuid(const struct uuid *uuid);

/* Element types, by the OIDs of pg_type. */
enum pg_type { PG_BOOL = 16, PG_BYTEA = 17, PG_INT8 = 20, PG_TEXT = 25, PG_UUID = 2950 };

/* An array under construction in a buf of the caller: pg_array_start(), pg_array_add*(), then pg_array_param(), which
 * borrows from the buf. A failed append is remembered in buf->failed. */
struct pg_array {
    struct buf *buf;
    uint32_t count;
    bool has_null;
};

void pg_array_start(struct pg_array *array, struct buf *buf, enum pg_type type); /* resets buf */
void pg_array_add(struct pg_array *array, const void *bytes, size_t length);     /* text, bytea; bytes NULL = null */
void pg_array_add_string(struct pg_array *array, const char *text);              /* terminated; NULL = null */
void pg_array_add_int8(struct pg_array *array, int64_t value);
void pg_array_add_bool(struct pg_array *array, bool value);
void pg_array_add_uuid(struct pg_array *array, const struct uuid *uuid); /* NULL = null */
struct pg_param pg_array_param(struct pg_array *array);
/* An array of these in `buf`, which this begins, and which the caller frees when the parameter is used. */
struct pg_param pg_array_of_uuids(struct buf *buf, const struct uuid *ids, int count);

#endif
