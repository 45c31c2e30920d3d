/* Which events a page or a bulk action is about: the filters of `issuing-ctl list` as fields of a form and as a part of
 * a URL. */
#ifndef ISSUING_CONSOLE_SELECTION_H
#define ISSUING_CONSOLE_SELECTION_H

#include "common/lib/base/buf.h"
#include "ctl/console/form.h"
#include "ctl/filter.h"

/* The filter borrows its texts from the form. Fields that are not filters are left alone. ERR_USAGE. */
must_check bool selection_read(const struct form *form, struct filter *ret_filter, struct err *err);
/* The inputs of a form, filled with what is set: those that are always shown; the others, folded away. */
void selection_write_common(struct buf *out, const struct form *form);
void selection_write_others(struct buf *out, const struct form *form);
/* Hidden inputs with the same filters. */
void selection_write_hidden(struct buf *out, const struct form *form);
/* "status=FAILED&code=x" ("" = no filter), for HTML. */
void selection_write_query(struct buf *out, const struct form *form);
/* The same as words: "status FAILED, code x". Nothing is written when there is no filter. The
 * status is left out where known_status, which may be NULL, says it already. */
void selection_write_words(struct buf *out, const struct form *form, const char *known_status);
bool selection_is_empty(const struct form *form, const char *known_status);

#endif
