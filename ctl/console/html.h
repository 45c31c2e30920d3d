/* Writes HTML. Text of others (user ids, reasons, details) gets into a page through these functions only, and is shown
 * as text, with any content. Pure: a failed append is remembered in the buf. */
#ifndef ISSUING_CONSOLE_HTML_H
#define ISSUING_CONSOLE_HTML_H

#include "common/lib/base/base.h"
#include "common/lib/base/buf.h"

/* Text, for an element or for a quoted attribute: & < > " ' are escaped; invalid UTF-8, control characters and those
 * that turn the direction of text become U+FFFD, and a line end or a tab a blank. NULL and "" write nothing. */
void html_text(struct buf *out, const char *text);
/* A clause as a sentence: with a capital letter and a full stop. */
void html_sentence(struct buf *out, const char *text);
/* Markup of our own, with text at each "{}": html_put(out, "<td>{}</td>", 1, text). The texts are `const char *`, NULL
 * = "". The markup is a literal. */
void html_put(struct buf *out, const char *markup, int count, ...);
/* Text for a part of a URL's query: percent-encoded, which needs no escapes in HTML. */
void html_url(struct buf *out, const char *text);

void html_number(struct buf *out, int64_t number); /* "12 345", with narrow no-break spaces */
/* <time datetime="...">2026-11-20 10:39:57</time>, UTC; "-" for 0. */
void html_time(struct buf *out, int64_t wall_us);
void html_span(struct buf *out, int64_t us); /* "3 min 20 s" */
/* Begins a table that scrolls by itself where the window is narrower; `what` names it. caption: NULL = that name, for
 * people who cannot see the table. heads: "Type|#Pending", with # before those of numbers. Rows and html_table_end
 * follow. */
void html_table(struct buf *out, const char *what, const char *caption, const char *heads);
void html_heads(struct buf *out, const char *heads); /* the cells of such a head alone */
void html_cell_number(struct buf *out, int64_t number);
void html_cell_time(struct buf *out, int64_t wall_us);
void html_table_end(struct buf *out);
/* Begins a part of a page with its heading, which refreshes itself. */
void html_section(struct buf *out, const char *id, const char *heading);
/* A state: sign and word, so that its colour carries no meaning alone. */
void html_pill(struct buf *out, const char *class, const char *sign, const char *word);
/* The status of an event as such. */
void html_status(struct buf *out, const char *status);
/* A hidden field, with a line end. */
void html_hidden(struct buf *out, const char *name, const char *value);
/* A field of a form of filters, of at most `most` characters; its id is "prefix-name". */
void html_field(struct buf *out, const char *prefix, const char *name, const char *label, const char *value,
                const char *hint, const char *most);

#endif
