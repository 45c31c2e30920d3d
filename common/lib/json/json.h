/* The only module that knows json-c: JSON documents as trees, which are assembled out of order (output of issuing-ctl).
 * Reading, hot paths and card numbers use json_value.h and json_writer.h instead. */
#ifndef ISSUING_JSON_H
#define ISSUING_JSON_H

#include "common/lib/base/base.h"
#include "common/lib/base/buf.h"
#include "common/lib/base/err.h"

struct json; /* a json-c object */

/* Strict (json_strict_check first). The result is owned: json_free. */
must_check bool json_parse(const char *text, size_t length, struct json **ret_json, struct err *err);
void json_free(struct json *json); /* accepts NULL; only for roots */
#define json_scope on_scope_end(json_freep)
void json_freep(struct json **json);

/* Building. Setters take ownership of `value`, abort never; a failed allocation leaves the member out and returns
 * false. */
struct json *json_new_object(void);
struct json *json_new_array(void);
struct json *json_new_text(const char *text);
struct json *json_new_integer(int64_t integer);
struct json *json_new_bool(bool value);
bool json_set(struct json *object, const char *name, struct json *value);    /* value NULL = JSON null */
bool json_set_text(struct json *object, const char *name, const char *text); /* NULL = null */
bool json_set_integer(struct json *object, const char *name, int64_t integer);
bool json_append(struct json *array, struct json *value);
/* One line, no spaces, slashes not escaped. */
bool json_write(const struct json *json, struct buf *out);

#endif
