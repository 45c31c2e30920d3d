/* One event: what it is, what happens next and why, what happened so far (the story of `issuing-ctl explain`), and the
 * actions that fit it. */
#include <inttypes.h>
#include <stdio.h>

#include "ctl/console/console.h"
#include "ctl/console/html.h"
#include "ctl/console/page.h"
#include "ctl/explain/story.h"
#include "ctl/explain/story_json.h"

#define LINES_MAX 500

static void write_fact(struct buf *out, const char *name, const char *value)
{
    if (value && value[0])
        html_put(out, "<div><dt>{}</dt><dd>{}</dd></div>\n", 2, name, value);
}

static void write_when(struct buf *out, const char *name, int64_t wall_us)
{
    if (wall_us == 0)
        return;
    html_put(out, "<div><dt>{}</dt><dd>", 1, name);
    html_time(out, wall_us);
    buf_put_text(out, "</dd></div>\n");
}

static void write_card(struct buf *out, const struct event *event)
{
    if (event->has_card) {
        html_put(out, "<div><dt>Card</dt><dd>ends in {}, {}, until ", 2, event->last4, event->card_status);
        buf_put_format(out, "%02" PRId64 "/%" PRId64 "</dd></div>\n", event->exp_month, event->exp_year);
        write_fact(out, "Card id", event->card_id_text);
        write_fact(out, "Card id at the issuer", event->issuer_card_id);
        write_when(out, "Number erased", event->number_erased_us);
    } else if (event->outcome_unknown && !event_is_card(event)) {
        buf_put_text(out, "<div><dt>Outcome</dt><dd>unknown: the receiver may have executed it</dd></div>\n");
    } else if (event->outcome_unknown) {
        buf_put_text(out, "<div><dt>Card</dt><dd>unknown: the issuer may have made one, and none is stored here</dd>"
                          "</div>\n");
    }
    if (event->replaces) {
        html_put(out, "<div><dt>Replaces card</dt><dd>{}", 1, event->replaces);
        if (event->replaced_last4)
            html_put(out, ", ends in {}, {}", 2, event->replaced_last4, event->replaced_status);
        if (event->because)
            html_put(out, ", because it is {}", 1, event->because);
        buf_put_text(out, "</dd></div>\n");
    }
}

static void write_holder(struct buf *out, const struct event *event)
{
    if (event->held_behind_text[0])
        html_put(out, "<div><dt>Held behind</dt><dd><a class=\"id\" href=\"/events/{}\">{}</a></dd></div>\n", 2,
                 event->held_behind_text, event->held_behind_text);
    if (event->first_text[0] && strcmp(event->first_text, event->held_behind_text) != 0)
        html_put(out,
                 "<div><dt>First that must end</dt><dd><a class=\"id\" href=\"/events/{}\">{}</a>, {}</dd></div>\n", 3,
                 event->first_text, event->first_text, event->first_status);
}

static void write_trace(struct buf *out, const struct event *event)
{
    char url[EVENT_TRACE_URL_SIZE];
    event_trace_url(event, url);
    if (url[0])
        html_put(out, "<div><dt>Trace id</dt><dd><a class=\"id\" href=\"{}\" rel=\"noreferrer\">{}</a></dd></div>\n", 2,
                 url, event->trace_id);
    else
        write_fact(out, "Trace id", event->trace_id);
}

static void write_facts(struct buf *out, const struct event *event)
{
    char attempts[24];
    snprintf(attempts, sizeof(attempts), "%" PRId64, event->retry_count);
    buf_put_text(out,
                 "<section aria-labelledby=\"facts-title\"><h2 id=\"facts-title\">Facts</h2>\n<dl class=\"facts\">\n"
                 "<div><dt>Status</dt><dd>");
    html_status(out, event->status_text);
    buf_put_text(out, "</dd></div>\n");
    if (event->reason_code) {
        html_put(out, "<div><dt>Reason</dt><dd><code>{}</code> {}</dd></div>\n", 2, event->reason_code,
                 event->reason_detail);
    }
    buf_put_text(out, "<div><dt>User</dt><dd><a href=\"/events?user=");
    html_url(out, event->user_id);
    html_put(out, "\">{}</a></dd></div>\n", 1, event->user_id);
    write_fact(out, "Type", event->type);
    write_fact(out, "Kind", event->kind);
    write_holder(out, event);
    write_fact(out, "Attempts", attempts);
    write_card(out, event);
    write_when(out, "Created", event->created_us);
    write_when(out, "Updated", event->updated_us);
    write_when(out, "Ended", event->completed_us);
    write_when(out, "Next attempt", event_next_us(event));
    write_when(out, "First sent", event->first_sent_us);
    write_when(out, "Lease until", event->lease_until_us);
    write_fact(out, event->status == OUTBOX_PROCESSING ? "Held by" : "Last held by", event->lease_owner);
    write_fact(out, "Last error", event->last_error);
    write_fact(out, "Kept result", event->result);
    write_fact(out, "Client's key", event->client_key);
    write_trace(out, event);
    buf_put_text(out, "</dl></section>\n");
}

static void write_next(struct buf *out, const struct event *event, const struct outlook *outlook)
{
    html_put(out,
             "<section class=\"next\" aria-labelledby=\"next-title\"><h2 id=\"next-title\">What happens next</h2>\n"
             "<p><strong>{}</strong>",
             1, outlook_action_text(outlook->action));
    if (outlook->at_us > event->now_us && outlook->action != OUTLOOK_WAIT) {
        buf_put_text(out, " at ");
        html_time(out, outlook->at_us);
        buf_put_text(out, ", in ");
        html_span(out, outlook->at_us - event->now_us);
    }
    buf_put_text(out, ".</p>\n<p>");
    html_sentence(out, outlook->why);
    buf_put_text(out, "</p></section>\n");
}

static void write_button(struct buf *out, const struct event *event, const char *verb, const char *text)
{
    html_put(out,
             "<form action=\"/bulk\" class=\"inline\"><input type=\"hidden\" name=\"id\" value=\"{}\">"
             "<button name=\"verb\" value=\"{}\">{} ...</button></form>\n",
             3, event->id_text, verb, text);
}

/* The peer that a look-up of this event would ask; NULL: it cannot be looked up, or a worker works on it. */
static const char *lookup_peer(const struct event *event, const struct cluster_route *route)
{
    if (event->status == OUTBOX_PENDING || event->status == OUTBOX_PROCESSING)
        return NULL;
    return event_is_card(event) ? "the issuer" : route && route->has_lookup ? "the receiver" : NULL;
}

static void write_actions(struct page *page, const struct event *event, const struct cluster_route *route)
{
    struct buf *out = page->out;
    const char *peer = lookup_peer(event, route);
    if (!page->console->may_act || event->status == OUTBOX_PROCESSING ||
        (!peer && event->status != OUTBOX_FAILED && event->status != OUTBOX_PENDING))
        return;
    buf_put_text(out, "<section aria-labelledby=\"act-title\"><h2 id=\"act-title\">Act</h2>\n");
    if (event->status == OUTBOX_FAILED || event->status == OUTBOX_PENDING) {
        buf_put_text(out, "<p class=\"buttons\">");
        if (event->status == OUTBOX_FAILED) {
            write_button(out, event, "replay", "Replay");
            write_button(out, event, "resolve", "Resolve");
        } else {
            write_button(out, event, "cancel", "Cancel");
        }
        buf_put_text(out, "</p>\n<p class=\"hint\">Each first shows a preview, and asks for a reason.</p>\n");
    }
    if (peer)
        page_ask_write_form(page, event->id_text, false, peer);
    if (event->status == OUTBOX_FAILED && !event->has_card && event_is_card(event))
        page_ask_write_form(page, event->id_text, true, peer);
    buf_put_text(out, "</section>\n");
}

/* ---- the past ---- */

/* The begin of a line of the story. */
static void begin_line(struct buf *out, const char *element, int64_t wall_us)
{
    buf_put_text(out, element);
    html_time(out, wall_us);
    buf_put_text(out, " <div><p>");
}

static void write_attempt(struct buf *out, const struct event *event, const struct pg_rows *rows, int row)
{
    char words[STORY_WORDS_SIZE], meaning[OUTLOOK_CODE_SIZE];
    const char *code = pg_text(rows, row, CODE), *detail = pg_text(rows, row, DETAIL);
    story_outcome(rows, row, words);
    begin_line(out, "<li class=\"attempt\">", pg_time_us(rows, row, ENDED_AT));
    buf_put_format(out, "Attempt %" PRId64 " by ", pg_int8(rows, row, ATTEMPT));
    html_put(out, "{} {}</p>", 2, pg_text(rows, row, WORKER), words);
    if (code) {
        outlook_code(event, code, meaning);
        html_put(out, "<p><code>{}</code> {}</p>", 2, code, meaning);
    }
    if (detail && detail[0])
        html_put(out, "<p class=\"detail\">{}</p>", 1, detail);
    if (story_becomes_unknown(rows, row))
        html_put(out, "<p><strong>From here on {}.</strong></p>", 1, story_unknown_words(event));
    buf_put_text(out, "</div></li>\n");
}

static void write_action(struct buf *out, const struct pg_rows *rows, int row)
{
    const char *words = story_action_words(pg_text(rows, row, ACTION));
    const char *role = pg_text(rows, row, DB_ROLE);
    begin_line(out, "<li class=\"action\">", pg_time_us(rows, row, AT));
    html_put(out, "{} {}{}{}</p><p class=\"detail\">{}</p></div></li>\n", 5, words ? words : pg_text(rows, row, ACTION),
             pg_text(rows, row, ACTOR), role ? " as " : "", role, pg_text(rows, row, REASON));
}

static void write_more(struct buf *out, const struct pg_rows *attempts, int more, int last)
{
    buf_put_format(
        out, "<li class=\"attempt more\"><span></span> <div><p>and %d more that ended like this, the last at ", more);
    html_time(out, pg_time_us(attempts, last, ENDED_AT));
    buf_put_text(out, "</p></div></li>\n");
}

static void write_past(struct buf *out, const struct story *story)
{
    const struct pg_rows *attempts = story->attempts, *actions = story->actions;
    int attempt = pg_rows_count(attempts) - 1, action = 0, lines = 0;
    buf_put_text(out, "<section aria-labelledby=\"past-title\"><h2 id=\"past-title\">What happened</h2>\n"
                      "<ol class=\"story\">\n");
    begin_line(out, "<li>", story->event.created_us);
    html_put(out, "{}</p></div></li>\n", 1, event_is_card(&story->event) ? "Accepted" : "Recorded");
    while ((attempt >= 0 || action < pg_rows_count(actions)) && lines++ < LINES_MAX) {
        int64_t action_us = action < pg_rows_count(actions) ? pg_time_us(actions, action, AT) : INT64_MAX;
        if (attempt < 0 || action_us < pg_time_us(attempts, attempt, ENDED_AT)) {
            write_action(out, actions, action++);
            continue;
        }
        write_attempt(out, &story->event, attempts, attempt);
        int more = story_like_this(attempts, attempt, action_us);
        if (more > 1) {
            attempt -= more;
            write_more(out, attempts, more, attempt);
        }
        attempt--;
    }
    if (story->event.status == OUTBOX_PROCESSING) {
        begin_line(out, "<li>", story->event.updated_us);
        html_put(out, "Taken by {}</p></div></li>\n", 1, story->event.lease_owner);
    }
    buf_put_text(out, "</ol>\n");
    if (lines > LINES_MAX)
        html_put(
            out,
            "<p class=\"notice\">Only the first lines are shown: <code>issuing-ctl explain {}</code> prints all.</p>\n",
            1, story->event.id_text);
    buf_put_text(out, "</section>\n");
}

static bool read_story(struct page *page, struct story *story, struct err *err)
{
    struct uuid id;
    if (!uuid_parse(page->segment, strlen(page->segment), &id))
        return err_set(err, ERR_NOT_FOUND, "%.60s is not an event id", page->segment);
    return story_read(page->console->ctl, &id, story, err);
}

bool page_event_json(struct page *page, struct err *err)
{
    struct story story = {.event_rows = NULL};
    bool is_written = read_story(page, &story, err);
    if (is_written) {
        struct json *object = event_json(&story.event);
        story_json(&object, &story);
        is_written = (object && json_write(object, page->out)) || err_set(err, ERR_MEMORY, "out of memory");
        json_free(object);
    }
    page->is_json = is_written;
    story_done(&story);
    return is_written;
}

bool page_event(struct page *page, struct err *err)
{
    struct story story = {.event_rows = NULL};
    struct buf *out = page->out;
    bool is_read = read_story(page, &story, err);
    if (is_read) {
        const struct event *event = &story.event;
        html_put(out, "<h1 class=\"event\">{} <code>{}</code></h1>\n<div class=\"columns event\">\n<div>\n", 2,
                 event->kind && strcmp(event->kind, "reissue") == 0 ? "Replacement card" : "Event", event->id_text);
        is_read = page_ask_write_result(page, err);
        write_next(out, event, &story.outlook);
        write_actions(page, event, event->type ? cluster_find_route(&story.cluster, event->type) : NULL);
        write_past(out, &story);
        buf_put_text(out, "</div>\n");
        write_facts(out, event);
        html_put(out, "</div>\n<p class=\"hint\"><a href=\"/events/{}/json\">All of it as JSON</a></p>\n", 1,
                 event->id_text);
    }
    story_done(&story);
    return is_read;
}
