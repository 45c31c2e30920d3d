/* See event.h.
 *
 * Invariants: every object has all members in the same order, null where there is nothing; a card number cannot be
 * here, since no statement of ctl reads one (and its role may not).
 * Left out: what will happen to the event (outlook.h). */
#include "ctl/event.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "ctl/row.h"
#include "statements.h"

#define FIELD(member) ROW_FIELD(struct event, member)
#define TIME(member) ROW_TIME(struct event, member)

static const struct row_field columns[] = {
    FIELD(id),
    FIELD(user_id),
    FIELD(kind),
    FIELD(status_text),
    FIELD(type),
    FIELD(retry_count),
    TIME(next_attempt_us),
    TIME(created_us),
    TIME(updated_us),
    TIME(completed_us),
    TIME(first_sent_us),
    TIME(deferred_since_us),
    TIME(lease_until_us),
    FIELD(lease_owner),
    FIELD(client_key),
    FIELD(reason_code),
    FIELD(reason_detail),
    FIELD(last_error),
    FIELD(replaces),
    FIELD(because),
    FIELD(outcome_unknown),
    FIELD(card_id_text),
    FIELD(last4),
    FIELD(exp_month),
    FIELD(exp_year),
    FIELD(card_status),
    TIME(now_us),
    FIELD(traceparent),
    FIELD(issuer_card_id),
    FIELD(held_behind_text),
    FIELD(result),
    TIME(number_erased_us),
    FIELD(replaced_last4),
    FIELD(replaced_status),
};
static_assert(ARRAY_SIZE(columns) == EVENT_REFUSED_COLUMN, "the refusal is behind the columns of the event");

bool event_is_card(const struct event *event)
{
    return !event->type || strcmp(event->type, OUTBOX_EVENT_TYPE) == 0;
}

const char *event_kind(const struct event *event)
{
    return event_is_card(event) ? event->kind : event->type;
}

bool event_read(const struct pg_rows *rows, int row, struct event *ret_event, struct err *err)
{
    struct event event = {.has_card = false};
    row_read(rows, row, columns, ARRAY_SIZE(columns), &event);
    const char *status = event.status_text ? event.status_text : "NULL", *trace = event.traceparent;
    if (!outbox_status_parse(status, strlen(status), &event.status))
        return err_set(err, ERR_DATABASE, "an event has the unknown status %s; is the schema newer than this program?",
                       status);
    event.has_card = event.card_id_text[0] != '\0';
    uuid_format(&event.id, event.id_text);
    trace_id_of((struct slice){trace, trace ? strlen(trace) : 0}, &event.id, event.trace_id);
    *ret_event = event;
    return true;
}

bool event_fetch(struct pg_sync *db, const struct uuid *ids, int count, struct pg_rows **ret_rows, struct err *err)
{
    struct buf buf;
    const struct pg_param params[] = {pg_array_of_uuids(&buf, ids, count)};
    bool done = buf.failed ? err_set(err, ERR_MEMORY, "out of memory")
                           : pg_sync_query(db, &sql_operator_events, params, ret_rows, err);
    buf_done(&buf);
    return done;
}

/* Another place may have it: this one says of itself only. */
static bool fail_missing(const struct uuid *id, struct err *err)
{
    char text[UUID_TEXT_SIZE];
    uuid_format(id, text);
    if (print_place() < 0)
        return err_set(err, ERR_NOT_FOUND, "there is no event %s", text);
    return err_set(err, ERR_NOT_FOUND, "there is no event %s in place %d", text, print_place());
}

bool event_find(struct pg_sync *db, const struct uuid *id, struct pg_rows **ret_rows, struct event *ret_event,
                struct err *err)
{
    struct pg_rows *rows = NULL;
    if (!event_fetch(db, id, 1, &rows, err))
        return false;
    if (pg_rows_count(rows) == 0) {
        pg_rows_free(rows);
        return fail_missing(id, err);
    }
    if (!event_read(rows, 0, ret_event, err)) {
        pg_rows_free(rows);
        return false;
    }
    *ret_rows = rows;
    return true;
}

bool event_read_prospect(struct pg_sync *db, struct event *event, struct pg_rows **ret_rows, struct err *err)
{
    static const struct row_field more[] = {
        FIELD(cancel_code),    FIELD(held_end),       FIELD(held_end_code),  FIELD(lost_count),    TIME(last_sent_us),
        FIELD(replay_refused), FIELD(holder_status),  FIELD(first_text),     FIELD(first_status),  FIELD(waiting_count),
        FIELD(belongs_to),     FIELD(present_issuer), FIELD(deferral_count), FIELD(deferral_code),
    };
    const struct pg_param params[] = {pg_param_uuid(&event->id)};
    struct pg_rows *rows = NULL;
    if (!pg_sync_query(db, &sql_operator_prospect, params, &rows, err))
        return false;
    if (pg_rows_count(rows) == 0) {
        pg_rows_free(rows);
        return fail_missing(&event->id, err);
    }
    row_read(rows, 0, more, ARRAY_SIZE(more), event);
    *ret_rows = rows;
    return true;
}

static struct json_field card_field(const struct event *event)
{
    if (!event->has_card)
        return json_null("card");
    return json_tree(
        "card", JSON_OBJECT(json_text("id", event->card_id_text), json_text("last4", event->last4),
                            json_number("exp_month", event->exp_month), json_number("exp_year", event->exp_year),
                            json_text("status", event->card_status), json_text("issuer_card_id", event->issuer_card_id),
                            json_time("number_erased_at", event->number_erased_us)));
}

static struct json_field reason_field(const struct event *event)
{
    if (!event->reason_code)
        return json_null("reason");
    return json_tree("reason",
                     JSON_OBJECT(json_text("code", event->reason_code), json_text("detail", event->reason_detail)));
}

int64_t event_next_us(const struct event *event)
{
    return event->status == OUTBOX_PENDING && !event->held_behind_text[0] ? event->next_attempt_us : 0;
}

void event_page(const struct event *event, char ret_path[EVENT_PAGE_SIZE])
{
    snprintf(ret_path, EVENT_PAGE_SIZE, "/events/%s", event->id_text);
}

static const char *trace_link;

void event_set_trace_link(const char *link)
{
    trace_link = link;
}

void event_trace_url(const struct event *event, char ret_url[EVENT_TRACE_URL_SIZE])
{
    const char *place = trace_link ? strstr(trace_link, "{trace_id}") : NULL;
    ret_url[0] = '\0';
    if (place && event->traceparent && event->trace_id[0])
        snprintf(ret_url, EVENT_TRACE_URL_SIZE, "%.*s%s%s", (int)(place - trace_link), trace_link, event->trace_id,
                 place + strlen("{trace_id}"));
}

struct json *event_json(const struct event *event)
{
    char page[EVENT_PAGE_SIZE], trace_url[EVENT_TRACE_URL_SIZE];
    event_page(event, page);
    event_trace_url(event, trace_url);
    return JSON_OBJECT(
        json_text("id", event->id_text), json_text("user_id", event->user_id), json_text("kind", event->kind),
        json_text("replaces", event->replaces), json_text("because", event->because),
        json_text("event_type", event->type), json_text("status", event->status_text),
        json_number("retry_count", event->retry_count),
        json_time("next_attempt_at", event->status == OUTBOX_PENDING ? event_next_us(event) : event->next_attempt_us),
        json_time("created_at", event->created_us), json_time("updated_at", event->updated_us),
        json_time("completed_at", event->completed_us), reason_field(event), json_text("last_error", event->last_error),
        json_text("idempotency_key", event->client_key), json_text("traceparent", event->traceparent),
        json_text("trace_id", event->trace_id[0] ? event->trace_id : NULL),
        json_text("trace_url", trace_url[0] ? trace_url : NULL), json_text("lease_owner", event->lease_owner),
        json_time("lease_until", event->lease_until_us), json_time("first_sent_at", event->first_sent_us),
        json_flag("outcome_unknown", event->outcome_unknown), card_field(event),
        json_text("held_behind", event->held_behind_text[0] ? event->held_behind_text : NULL),
        print_document("kept_result", event->result), json_text("page", page));
}

const char *const event_heads[] = {"ID",      "STATUS",       "KIND", "USER",   "TRIES",
                                   "CREATED", "NEXT ATTEMPT", "CARD", "REASON", NULL};

void event_add_row(const struct event *event, struct table *table)
{
    char time[PRINT_TIME_SIZE], held[sizeof("held behind ") + UUID_TEXT_SIZE];
    bool is_held = event->held_behind_text[0] && event->status == OUTBOX_PENDING;
    snprintf(held, sizeof(held), "held behind %s", event->held_behind_text);
    table_add(table, event->id_text);
    table_add(table, event->status_text);
    table_add(table, event_kind(event));
    table_add(table, event->user_id);
    table_add_number(table, event->retry_count);
    table_add(table, print_time(event->created_us, time));
    table_add(table, event_next_us(event) != 0 ? print_time(event_next_us(event), time) : NULL);
    table_add(table, event->has_card ? event->last4 : event->outcome_unknown ? "unknown" : NULL);
    table_add(table, event->reason_code                ? event->reason_code
                     : is_held                         ? held
                     : event->status == OUTBOX_PENDING ? event->last_error
                                                       : NULL);
}

static void print_fact(const char *name, const char *value, FILE *out)
{
    if (!value || !value[0])
        return;
    fprintf(out, "%-16s ", name);
    print_text(value, out);
    fputc('\n', out);
}

static void print_when(const char *name, int64_t wall_us, FILE *out)
{
    char time[PRINT_TIME_SIZE];
    if (wall_us != 0)
        print_fact(name, print_time(wall_us, time), out);
}

static void print_replaced(const struct event *event, FILE *out)
{
    print_fact("replaces card", event->replaces, out);
    if (event->replaces && event->replaced_last4)
        fprintf(out, "%-16s .... %s, %s\n", "", event->replaced_last4, event->replaced_status);
    print_fact("because it is", event->because, out);
}

void event_print(const struct event *event, FILE *out)
{
    char page[EVENT_PAGE_SIZE], trace_url[EVENT_TRACE_URL_SIZE];
    event_page(event, page);
    event_trace_url(event, trace_url);
    print_fact("event", event->id_text, out);
    print_fact("console's page", page, out);
    print_fact("user", event->user_id, out);
    print_fact("kind", event->kind, out);
    print_replaced(event, out);
    if (!event_is_card(event))
        print_fact("type", event->type, out);
    print_fact("status", event->status_text, out);
    if (event->reason_code)
        print_fact("reason", event->reason_code, out);
    print_fact("", event->reason_code ? event->reason_detail : NULL, out);
    fprintf(out, "%-16s %" PRId64 "\n", "tries", event->retry_count);
    print_when("created", event->created_us, out);
    print_when("updated", event->updated_us, out);
    print_when("ended", event->completed_us, out);
    print_when("next attempt", event_next_us(event), out);
    print_when("lease until", event->lease_until_us, out);
    print_fact(event->status == OUTBOX_PROCESSING ? "held by" : "last held by", event->lease_owner, out);
    print_when("first sent", event->first_sent_us, out);
    if (event->held_behind_text[0])
        print_fact("held behind", event->held_behind_text, out);
    if (event->outcome_unknown)
        print_fact("outcome",
                   event_is_card(event) ? "unknown: the issuer may have made a card, and none is stored here"
                                        : "unknown: the receiver may have executed it",
                   out);
    print_fact("kept result", event->result, out);
    print_fact("last error", event->last_error, out);
    print_fact("client's key", event->client_key, out);
    print_fact("traceparent", event->traceparent, out);
    if (trace_url[0])
        print_fact("its trace", trace_url, out);
    if (event->has_card) {
        print_fact("card", event->card_id_text, out);
        fprintf(out, "%-16s .... %s, until %02" PRId64 "/%" PRId64 ", %s\n", "", event->last4, event->exp_month,
                event->exp_year, event->card_status);
        print_fact("issuer's card id", event->issuer_card_id, out);
        print_when("number erased", event->number_erased_us, out);
    }
}
