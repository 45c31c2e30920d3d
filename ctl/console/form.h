/* The fields of a URL's query or of a posted form (application/x-www-form-urlencoded), decoded. */
#ifndef ISSUING_CONSOLE_FORM_H
#define ISSUING_CONSOLE_FORM_H

#include "common/lib/base/base.h"
#include "common/lib/base/err.h"

#define FORM_FIELDS_MAX 256
#define FORM_BYTES_MAX ((size_t)64 * 1024)

struct form {
    char *bytes; /* owned: all names and values */
    struct {
        const char *name, *value;
    } fields[FORM_FIELDS_MAX];
    int count;
};

/* A field without a value is left out: a form sends every input, also those that were left empty. ERR_USAGE: too many
 * fields, a malformed escape, a NUL, invalid UTF-8, or the same name twice (only "id" may be repeated). */
must_check bool form_read(struct slice text, struct form *ret_form, struct err *err);
void form_done(struct form *form);
/* NULL: not given. */
const char *form_get(const struct form *form, const char *name);
/* A decimal number within [min, max]; `otherwise` where it was not given. ERR_USAGE. */
must_check bool form_number(const struct form *form, const char *name, int64_t min, int64_t max, int64_t otherwise,
                            int64_t *ret_number, struct err *err);

#endif
