/* See from_issuer.h. */
#include "ctl/from_issuer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/lib/base/clock.h"
#include "ctl/action.h"
#include "ctl/marks.h"
#include "ctl/print.h"
#include "ctl/stop.h"
#include "statements.h"

#define SHOWN_MAX 1000 /* of the questions */

enum { LIST_IS_OVER, LIST_TROUBLE, LIST_PAGES, LIST_CARDS, LIST_IS_READ, LIST_BEGAN, LIST_COUNTS, LIST_QUESTIONS };

static const struct {
    const char *kind, *why;
} kinds[] = {
    {"no_event", "no event here: restore its request, or find out whose it is and close it there"},
    {"unsent", "its event is open and says that nothing was sent: let it run only while the issuer honours its key"},
    {"rejected", "its event is REJECTED: issuing-ctl reconcile ID cancels the card"},
    {"failed", "its event is FAILED: issuing-ctl reconcile ID"},
    {"other_card", "its request has another card here, or none: issuing-ctl reconcile ID, then close one there"},
    {"not_listed", "the issuer does not list this card of ours: issuing-ctl reconcile ID"},
};

static const struct {
    const char *word, *why;
    int code;
} refusals[] = {
    {"paused",
     "the issuer is paused, so it is not called; issuing-ctl resume issuer. Pausing core as well as the issuer "
     "beforehand keeps events from being sent",
     CTL_REFUSED},
    {"busy", "5 lists are asked for already; wait until they are over", CTL_AWAY},
};

struct from_issuer {
    struct ctl *ctl;
    struct uuid id;
    int64_t since_us;
    struct pg_rows *rows; /* the row of operator_listing; owned */
};

static bool ask(struct from_issuer *list, const struct moment *since, int64_t timeout_ms, const char *reason,
                const char **ret_refused, struct err *err)
{
    struct action action;
    pg_rows_scope struct pg_rows *rows = NULL;
    char time[PRINT_TIME_SIZE];
    struct pg_param params[2 + ACTION_PARAMS] = {pg_param_int8(since->is_ago ? -since->us : since->us),
                                                 pg_param_int8(timeout_ms)};
    if (!action_init(&action, reason ? reason : "reconcile --from-issuer", err))
        return false;
    action_params(&action, params + 2);
    if (!pg_sync_query(list->ctl->db, &sql_operator_ask_listing, params, &rows, err))
        return false;
    for (size_t i = 0; !pg_is_null(rows, 0, 0) && i < ARRAY_SIZE(refusals); i++)
        if (strcmp(pg_text(rows, 0, 0), refusals[i].word) == 0) {
            *ret_refused = refusals[i].why;
            list->ctl->code = refusals[i].code;
            return true;
        }
    list->id = pg_uuid(rows, 0, 1);
    list->since_us = pg_int8(rows, 0, 2);
    if (pg_bool(rows, 0, 3))
        fprintf(stderr, "Goes on with the list since %s that was asked for before.\n",
                print_time(list->since_us, time));
    return true;
}

static bool read_list(struct from_issuer *list, struct err *err)
{
    const struct pg_param params[] = {pg_param_uuid(&list->id)};
    pg_rows_free(list->rows);
    list->rows = NULL;
    return pg_sync_query(list->ctl->db, &sql_operator_listing, params, &list->rows, err) &&
           (pg_rows_count(list->rows) > 0 || err_set(err, ERR_NOT_FOUND, "the list was removed while it was read"));
}

/* *ret_is_over false: the time is over, or a signal came. */
static bool wait_for(struct from_issuer *list, int64_t timeout_ms, bool *ret_is_over, struct err *err)
{
    int64_t deadline_ms = clock_mono_ms() + timeout_ms, pause_ms = 0;
    bool shows = isatty(STDERR_FILENO), is_last = false;
    while (!is_last) {
        is_last = clock_mono_ms() >= deadline_ms || stop_is_requested();
        if (!read_list(list, err))
            return false;
        *ret_is_over = pg_bool(list->rows, 0, LIST_IS_OVER);
        if (shows)
            fprintf(stderr, "\r\033[K");
        if (*ret_is_over)
            return true;
        if (shows)
            fprintf(stderr, "%" PRId64 " cards on %" PRId64 " pages", pg_int8(list->rows, 0, LIST_CARDS),
                    pg_int8(list->rows, 0, LIST_PAGES));
        if (!is_last)
            marks_pause(&pause_ms);
    }
    return true;
}

static bool report(const struct from_issuer *list, const struct pg_rows *rows, int row, struct err *err)
{
    const char *kind = pg_text(rows, row, 0), *reference = pg_text(rows, row, 1), *card = pg_text(rows, row, 2);
    const char *why = "";
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
        if (strcmp(kinds[i].kind, kind) == 0)
            why = kinds[i].why;
    if (!list->ctl->json) {
        printf("%s  %s: the issuer's card ", reference, kind);
        print_text(card, stdout);
        printf("; %s\n", why);
        return true;
    }
    return print_json(JSON_OBJECT(json_text("id", reference), json_text("result", kind),
                                  json_text("issuer_card_id", card), json_text("why", why)),
                      err);
}

/* The counts, {"ok": 1, "no_event": 2}, as people read them: ok 1, no_event 2. */
static void write_counts(const char *json, char *ret_text, size_t size)
{
    size_t length = 0;
    for (; *json && length + 1 < size; json++)
        if (!strchr("{}\":", *json))
            ret_text[length++] = *json;
    ret_text[length] = '\0';
}

/* The last line: what the list came to. */
static bool report_end(const struct from_issuer *list, bool is_over, const char *trouble, struct err *err)
{
    const struct pg_rows *rows = list->rows;
    int64_t questions = pg_int8(rows, 0, LIST_QUESTIONS), cards = pg_int8(rows, 0, LIST_CARDS);
    char since[PRINT_TIME_SIZE], began[PRINT_TIME_SIZE], id[UUID_TEXT_SIZE], counts_text[256];
    bool is_whole = is_over && !trouble;
    uuid_format(&list->id, id);
    if (list->ctl->json)
        return print_json(JSON_OBJECT(print_document("counts", pg_text(rows, 0, LIST_COUNTS)), json_text("listing", id),
                                      json_flag("is_whole", is_whole), json_time("since", list->since_us),
                                      json_time("up_to", is_whole ? pg_int8(rows, 0, LIST_BEGAN) : 0),
                                      json_number("cards", cards), json_number("questions", questions),
                                      json_text("trouble", trouble)),
                          err);
    fflush(stdout);
    write_counts(pg_text(rows, 0, LIST_COUNTS), counts_text, sizeof(counts_text));
    if (is_whole)
        fprintf(stderr,
                "%" PRId64 " cards since %s compared up to %s, %" PRId64 " to look into (%s). Nothing was changed.\n",
                cards, print_time(list->since_us, since), print_time(pg_int8(rows, 0, LIST_BEGAN), began), questions,
                counts_text);
    else if (is_over)
        fprintf(stderr,
                "issuing-ctl: not compared: %s. Where an issuer cannot list its cards, export them there and look each "
                "reference up by issuing-ctl show\n",
                trouble);
    else
        fprintf(stderr,
                "issuing-ctl: not compared in time: %" PRId64 " cards on %" PRId64 " pages%s%s; the same command goes "
                "on there within a day%s\n",
                cards, pg_int8(rows, 0, LIST_PAGES), trouble ? ", then " : "", trouble ? trouble : "",
                pg_int8(rows, 0, LIST_PAGES) > 0 ? "" : "; issuing-ctl workers shows whether a worker runs");
    return true;
}

static bool run(struct from_issuer *list, const struct moment *since, int64_t timeout_ms, const char *reason,
                struct err *err)
{
    const char *refused = NULL;
    bool is_over = false;
    pg_rows_scope struct pg_rows *questions = NULL;
    stop_watch();
    if (!ask(list, since, timeout_ms, reason, &refused, err))
        return false;
    if (refused) {
        fprintf(stderr, "issuing-ctl: %s\n", refused);
        return true;
    }
    if (!wait_for(list, timeout_ms, &is_over, err))
        return false;
    const char *trouble = pg_text(list->rows, 0, LIST_TROUBLE);
    const struct pg_param params[] = {pg_param_uuid(&list->id), pg_param_int8(SHOWN_MAX)};
    if (is_over && !pg_sync_query(list->ctl->db, &sql_operator_listing_questions, params, &questions, err))
        return false;
    for (int row = 0; is_over && row < pg_rows_count(questions); row++)
        if (!report(list, questions, row, err))
            return false;
    list->ctl->code = !is_over                                                ? CTL_AWAY
                      : trouble || pg_int8(list->rows, 0, LIST_QUESTIONS) > 0 ? CTL_REFUSED
                                                                              : CTL_DONE;
    return report_end(list, is_over, trouble, err);
}

bool from_issuer_run(struct ctl *ctl, const struct moment *since, int64_t timeout_ms, const char *reason,
                     struct err *err)
{
    struct from_issuer list = {.ctl = ctl};
    bool done = run(&list, since, timeout_ms, reason, err);
    pg_rows_free(list.rows);
    return done;
}
