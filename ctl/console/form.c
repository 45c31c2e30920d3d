/* See form.h. Left out: files (multipart/form-data), which no form here sends. */
#include "ctl/console/form.h"

#include <errno.h>
#include <stdlib.h>

#include "common/lib/base/utf8.h"
#include "common/lib/http_server/http_path.h"

/* Decodes one name or value to *at, and moves *at behind its NUL. A text never grows by decoding. */
static bool decode(struct slice text, char **at)
{
    char *start = *at;
    for (size_t i = 0; i < text.length; i++)
        start[i] = text.bytes[i] == '+' ? ' ' : text.bytes[i];
    struct slice copied = {start, text.length};
    if (!http_percent_decode(copied, start, text.length + 1) || !utf8_is(start, strlen(start)))
        return false;
    *at = start + strlen(start) + 1;
    return true;
}

static bool add(struct form *form, const char *name, const char *value, struct err *err)
{
    if (value[0] == '\0')
        return true;
    if (strcmp(name, "id") != 0 && form_get(form, name))
        return err_set(err, ERR_USAGE, "%.40s is given twice", name);
    if (form->count == FORM_FIELDS_MAX)
        return err_set(err, ERR_USAGE, "more than %d fields", FORM_FIELDS_MAX);
    form->fields[form->count].name = name;
    form->fields[form->count++].value = value;
    return true;
}

bool form_read(struct slice text, struct form *ret_form, struct err *err)
{
    struct http_query_pair pair;
    if (text.length > FORM_BYTES_MAX)
        return err_set(err, ERR_USAGE, "the form is larger than %zu bytes", FORM_BYTES_MAX);
    struct form form = {.bytes = malloc(2 * text.length + 2)}; /* a NUL behind each name and each value */
    if (!form.bytes)
        return err_set(err, ERR_MEMORY, "out of memory");
    char *at = form.bytes;
    while (http_query_next(&text, &pair)) {
        char *name = at;
        bool is_right = decode(pair.name, &at);
        char *value = at;
        is_right = is_right && decode(pair.value, &at);
        if (!is_right)
            err_set(err, ERR_USAGE, "a field is not percent-encoded UTF-8");
        if (!is_right || !add(&form, name, value, err)) {
            form_done(&form);
            return false;
        }
    }
    *ret_form = form;
    return true;
}

void form_done(struct form *form)
{
    free(form->bytes);
    *form = (struct form){.bytes = NULL};
}

const char *form_get(const struct form *form, const char *name)
{
    for (int i = 0; i < form->count; i++)
        if (strcmp(form->fields[i].name, name) == 0)
            return form->fields[i].value;
    return NULL;
}

bool form_number(const struct form *form, const char *name, int64_t min, int64_t max, int64_t otherwise,
                 int64_t *ret_number, struct err *err)
{
    const char *text = form_get(form, name);
    char *end = NULL;
    if (!text) {
        *ret_number = otherwise;
        return true;
    }
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || number < min || number > max)
        return err_set(err, ERR_USAGE, "%s must be a number from %lld to %lld", name, (long long)min, (long long)max);
    *ret_number = number;
    return true;
}
