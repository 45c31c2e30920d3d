/* See json_pointer.h. */
#include "common/core/issuer/json_pointer.h"

#include <assert.h>
#include <string.h>

#include "common/core/issuer/profile.h"

struct json_value json_at(struct json_value value, const char *pointer)
{
    if (!pointer)
        return (struct json_value){.kind = JSON_MISSING};
    while (*pointer && value.kind != JSON_MISSING) {
        char name[ISSUER_NAME_MAX + 1];
        size_t length = strcspn(++pointer, "/");
        assert(length < sizeof(name));
        memcpy(name, pointer, length);
        name[length] = '\0';
        value = json_member(value, name);
        pointer += length;
    }
    return value;
}

static bool is_among(const char *name, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

void json_at_each(struct json_value object, size_t count, const char *const *pointers, struct json_value *ret_values)
{
    const char *names[JSON_POINTERS_MAX] = {NULL};
    struct json_value values[JSON_POINTERS_MAX];
    size_t places[JSON_POINTERS_MAX], members = 0;
    assert(count <= JSON_POINTERS_MAX);
    for (size_t i = 0; i < count; i++) {
        bool is_member = pointers[i] && pointers[i][0] && !strchr(pointers[i] + 1, '/');
        if (is_member && !is_among(pointers[i] + 1, names, members)) { /* json_members() finds each name once */
            names[members] = pointers[i] + 1;
            places[members++] = i;
        } else {
            ret_values[i] = json_at(object, pointers[i]);
        }
    }
    json_members(object, members, names, values);
    for (size_t i = 0; i < members; i++)
        ret_values[places[i]] = values[i];
}

bool json_uuid(struct json_value value, struct uuid *ret_uuid)
{
    char text[UUID_TEXT_SIZE];
    size_t length;
    return json_string(value, text, sizeof(text), &length) && uuid_parse(text, length, ret_uuid);
}
