/* One page on its way: what was asked for, and what is written. A page is a function of the table in router.c. */
#ifndef ISSUING_CONSOLE_PAGE_H
#define ISSUING_CONSOLE_PAGE_H

#include "common/lib/base/buf.h"
#include "common/lib/base/err.h"
#include "ctl/console/form.h"

#define PAGE_BYTES_MAX ((size_t)8 * 1024 * 1024)
#define PAGE_LOCATION_SIZE 512

struct console;
struct session;

#define LOG_OUT_PATH "/log-out"

struct page {
    struct console *console;
    struct session *session; /* of the browser that asks */
    struct form *form;       /* of the query, or of what was posted */
    char segment[64];        /* the {part} of the path; "" = none */
    struct buf *out;         /* the main part of the page */
    const char *title;       /* text; static or in `segment` */
    const char *place;       /* the entry of the navigation that it belongs to: "/events" */
    int refresh_s;           /* the parts with an id and data-live are fetched again after this time; 0 = never */
    int status;              /* 200 */
    bool is_json;            /* `out` is the whole answer, not a page */
    char location[PAGE_LOCATION_SIZE]; /* not "": answered with 303 and this path */
};

/* Each writes its main part, or fills *err: ERR_NOT_FOUND, ERR_USAGE and ERR_REFUSED are for the reader to correct,
 * ERR_AWAY and ERR_DATABASE say that the database did not answer, or not in time. What was written before is
 * dropped. */
must_check bool page_overview(struct page *page, struct err *err);
must_check bool page_events(struct page *page, struct err *err);
must_check bool page_event(struct page *page, struct err *err);
must_check bool page_event_json(struct page *page, struct err *err);
must_check bool page_ask(struct page *page, struct err *err); /* POST */
must_check bool page_targets(struct page *page, struct err *err);
must_check bool page_control(struct page *page, struct err *err); /* POST */
must_check bool page_preview(struct page *page, struct err *err);
must_check bool page_start(struct page *page, struct err *err); /* POST */
must_check bool page_jobs(struct page *page, struct err *err);
must_check bool page_job(struct page *page, struct err *err);
must_check bool page_stop(struct page *page, struct err *err); /* POST */
must_check bool page_audit(struct page *page, struct err *err);
must_check bool page_places(struct page *page, struct err *err);
must_check bool page_statistics(struct page *page, struct err *err);

/* Of page_ask, for the page of the event: a form, and what became of the mark in the URL, where there is one. */
void page_ask_write_form(struct page *page, const char *id, bool is_reissue, const char *peer);
must_check bool page_ask_write_result(struct page *page, struct err *err);

/* ---- what all pages have: head, navigation, foot (layout.c) ---- */

/* The whole document around page->out. */
void layout_write(struct buf *document, const struct page *page);
/* A document of its own, for a visitor who is not admitted: no navigation, nothing of the database. */
void layout_notice(struct buf *document, const char *title, const char *why);
/* The main part of a page that could not be made. */
void layout_error(struct page *page, const struct err *err);
/* A form that the reader must correct (ERR_USAGE, ERR_REFUSED): writes why, and the caller writes the form's page, with
 * what was typed, below it. False, and nothing is written: another error. */
must_check bool layout_refused(struct page *page, const struct err *err);
/* Beginning of a form that changes something, with its secret. */
void layout_post(struct page *page, const char *action);

#endif
