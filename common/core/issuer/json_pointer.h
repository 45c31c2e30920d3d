/* Where a table says that a value is: JSON pointers (RFC 6901) of members only, whose names have no '~' in them. */
#ifndef ISSUING_ISSUER_JSON_POINTER_H
#define ISSUING_ISSUER_JSON_POINTER_H

#include "common/lib/base/base.h"
#include "common/lib/base/uuid7.h"
#include "common/lib/json/json_value.h"

#define JSON_POINTERS_MAX 9

/* "" is the value itself. JSON_MISSING: there is none, or pointer is NULL. */
struct json_value json_at(struct json_value value, const char *pointer);
/* The same for several pointers, at most JSON_POINTERS_MAX; members of `object` itself are found in one walk. */
void json_at_each(struct json_value object, size_t count, const char *const *pointers, struct json_value *ret_values);
/* False: the value is not a text, or not the text of a UUID. */
must_check bool json_uuid(struct json_value value, struct uuid *ret_uuid);

#endif
