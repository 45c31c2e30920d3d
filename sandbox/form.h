/* Reads application/x-www-form-urlencoded: the body of a form, or a query with names such as created[gte]. */
#ifndef ISSUING_SANDBOX_FORM_H
#define ISSUING_SANDBOX_FORM_H

#include "common/lib/base/base.h"

#define FORM_NAME_SIZE 128
#define FORM_VALUE_SIZE 1024

struct form_pair {
    char name[FORM_NAME_SIZE]; /* "metadata[memo]" */
    char value[FORM_VALUE_SIZE];
};

/* Takes the next pair off *rest, decoded ("+" is a space). At the end: false, and *ret_wrong is false. A pair that
 * cannot be decoded or is too long: false, and *ret_wrong is true. */
must_check bool form_next(struct slice *rest, struct form_pair *ret_pair, bool *ret_wrong);
/* "metadata[memo]": whether the name is an element of `object`, and the name of that element: "memo". */
must_check bool form_is_element(const char *name, const char *object, struct slice *ret_element);

#endif
