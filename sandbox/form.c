/* See form.h. */
#include "sandbox/form.h"

#include <string.h>

#include "common/lib/http_server/http_path.h"

/* A plus sign that is meant is sent as %2B, so that the order of the two steps does not matter. */
static must_check bool decode(struct slice text, char *ret_text, size_t size)
{
    char spaced[3 * FORM_VALUE_SIZE];
    if (text.length > sizeof(spaced))
        return false;
    for (size_t i = 0; i < text.length; i++)
        spaced[i] = text.bytes[i] == '+' ? ' ' : text.bytes[i];
    return http_percent_decode((struct slice){.bytes = spaced, .length = text.length}, ret_text, size);
}

bool form_next(struct slice *rest, struct form_pair *ret_pair, bool *ret_wrong)
{
    struct http_query_pair pair;
    *ret_wrong = false;
    while (http_query_next(rest, &pair)) {
        if (!pair.name.length && !pair.has_value)
            continue;
        *ret_wrong = !decode(pair.name, ret_pair->name, sizeof(ret_pair->name)) ||
                     !decode(pair.value, ret_pair->value, sizeof(ret_pair->value));
        return !*ret_wrong;
    }
    return false;
}

bool form_is_element(const char *name, const char *object, struct slice *ret_element)
{
    size_t length = strlen(object), end = strlen(name);
    if (strncmp(name, object, length) != 0 || name[length] != '[' || end < length + 2 || name[end - 1] != ']')
        return false;
    *ret_element = (struct slice){.bytes = name + length + 1, .length = end - length - 2};
    return true;
}
