/* Writes one JSON text into a buffer, member by member, on one line and without spaces.
 *
 *     struct json_writer writer = json_writer_of(&out);
 *     json_open_object(&writer, NULL);
 *     json_add_text(&writer, "status", "PENDING");
 *     json_close_object(&writer);
 *
 * `name` is the member's name in an object, NULL for an element of an array and for the outermost value. The writer
 * puts the commas and escapes names and texts. It does not check that objects and arrays are closed in order. A failed
 * allocation, or a text beyond the buffer's maximum, is sticky in the buffer (buf.h): check `out->failed` once at the
 * end. */
#ifndef ISSUING_JSON_WRITER_H
#define ISSUING_JSON_WRITER_H

#include "common/lib/base/base.h"
#include "common/lib/base/buf.h"
#include "common/lib/base/uuid7.h"

struct json_writer {
    struct buf *out;  /* borrowed */
    bool needs_comma; /* before the next member or element */
};

/* A writer that appends to `out`. */
struct json_writer json_writer_of(struct buf *out);
void json_open_object(struct json_writer *writer, const char *name);
void json_close_object(struct json_writer *writer);
void json_open_array(struct json_writer *writer, const char *name);
void json_close_array(struct json_writer *writer);
void json_add_text(struct json_writer *writer, const char *name, const char *text);    /* NULL = null */
void json_add_slice(struct json_writer *writer, const char *name, struct slice bytes); /* bytes NULL = null */
void json_add_integer(struct json_writer *writer, const char *name, int64_t integer);
void json_add_bool(struct json_writer *writer, const char *name, bool value);
void json_add_null(struct json_writer *writer, const char *name);
void json_add_uuid(struct json_writer *writer, const char *name, const struct uuid *uuid);
/* RFC 3339, UTC, with microseconds; since 1970. */
void json_add_time(struct json_writer *writer, const char *name, int64_t wall_us);
/* Text that is JSON already, written as it is. */
void json_add_json(struct json_writer *writer, const char *name, struct slice json);

#endif
