/* What all pages have: head, navigation, foot, and the page of an error. */
#ifndef ISSUING_CONSOLE_LAYOUT_H
#define ISSUING_CONSOLE_LAYOUT_H

#include "common/lib/base/buf.h"
#include "common/lib/base/err.h"
#include "ctl/console/page.h"

/* The whole document around page->out. */
void layout_write(struct buf *document, const struct page *page);
/* A document of its own, for who is not admitted: no navigation, nothing of the database. */
void layout_notice(struct buf *document, const char *title, const char *why);
/* The main part of a page that could not be made. */
void layout_error(struct page *page, const struct err *err);
/* A form that the reader must correct (ERR_USAGE, ERR_REFUSED): writes why, and the caller writes the form's page, with
 * what was typed, below it. False, and nothing is written: another error. */
must_check bool layout_refused(struct page *page, const struct err *err);
/* Beginning of a form that changes something, with its secret. */
void layout_post(struct page *page, const char *action);

#endif
