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

/* A member of an object that is made. */
struct json_field {
    const char *name;   /* NULL = none: it is left out */
    struct json *value; /* owned */
    bool is_null;       /* JSON null; else a value of NULL is an allocation that failed */
};
struct json_field json_text(const char *name, const char *text); /* NULL = null */
struct json_field json_number(const char *name, int64_t number);
struct json_field json_flag(const char *name, bool value);
struct json_field json_time(const char *name, int64_t wall_us);    /* RFC 3339 with microseconds; 0 = null */
struct json_field json_tree(const char *name, struct json *value); /* takes it; NULL = it could not be made */
struct json_field json_null(const char *name);

/* An object with these members, in this order. NULL: out of memory. */
#define JSON_OBJECT(...)                                     \
    json_object_of((const struct json_field[]){__VA_ARGS__}, \
                   sizeof((const struct json_field[]){__VA_ARGS__}) / sizeof(struct json_field))
struct json *json_object_of(const struct json_field *fields, size_t count);
struct json *json_new_array(void);
struct json *json_new_text(const char *text);
/* One more member, one more element, which they take in any case. On failure the whole is freed and NULL from then on,
 * so that only the code that writes it must check for NULL. */
void json_add(struct json **object, struct json_field field);
void json_append(struct json **array, struct json *value); /* value NULL = it could not be made */
/* One line, no spaces, slashes not escaped. NULL is the JSON null. */
bool json_write(const struct json *json, struct buf *out);

#endif
