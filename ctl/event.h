/* An event as a command shows it: read from a row; written as JSON, as a row of a table, or as a page. */
#ifndef ISSUING_CTL_EVENT_H
#define ISSUING_CTL_EVENT_H

#include <stdio.h>

#include "common/core/outbox.h"
#include "common/lib/base/base.h"
#include "common/lib/base/trace.h"
#include "common/lib/base/uuid7.h"
#include "common/lib/json/json.h"
#include "common/lib/pg/pg_sync.h"
#include "ctl/print.h"

/* The columns of every statement of operator_events.sql that returns events; event.c has their order. Times in
 * microseconds since 1970, 0 = none; texts are borrowed from the rows, NULL = none. */
struct event {
    struct uuid id;
    char id_text[UUID_TEXT_SIZE];
    const char *user_id;
    const char *kind;
    const char *status_text;
    enum outbox_status status;
    const char *type;
    int64_t retry_count;
    int64_t next_attempt_us, created_us, updated_us, completed_us, first_sent_us, deferred_since_us, lease_until_us;
    const char *lease_owner;
    const char *client_key;
    const char *reason_code, *reason_detail;
    const char *last_error;
    const char *replaces; /* card id, of a reissue */
    const char *because;  /* why that card is replaced: a word of outbox_reissue_reason_name() */
    bool outcome_unknown; /* the issuer may have made a card, and we hold none; the receiver may have executed it */
    bool has_card;
    char card_id_text[UUID_TEXT_SIZE];
    const char *last4;
    int64_t exp_month, exp_year;
    const char *card_status;
    int64_t number_erased_us;                     /* 0 = it was not */
    int64_t now_us;                               /* of the database, when it answered */
    const char *traceparent;                      /* of the client */
    char trace_id[TRACE_ID_SIZE];                 /* what its calls and the lines of the logs name; "" = left out */
    const char *issuer_card_id;                   /* what the issuer calls the card */
    char held_behind_text[UUID_TEXT_SIZE];        /* the event that must end before this one; "" = none */
    const char *result;                           /* the answer that a route with keep_result has kept, JSON */
    const char *replaced_last4, *replaced_status; /* of the card that is replaced; NULL in what an action returns */
    /* Read by event_read_prospect() only: what decides about the next attempt. */
    const char *replay_refused;           /* why a replay would be refused as it is now; NULL = it would not */
    const char *cancel_code;              /* the card will be cancelled, and the event ends REJECTED with this code */
    const char *held_end, *held_end_code; /* the end that waits until no create can arrive any more (flow.h) */
    int64_t lost_count;                   /* attempts in a row that were lost with their worker */
    int64_t deferral_count;               /* in a row for the same cause, deferral_code */
    const char *deferral_code;            /* or an operator's act since; NULL = neither */
    int64_t last_sent_us;                 /* from when on the settling time counts */
    const char *holder_status;            /* of the event held_behind; NULL = there is none, or it is gone */
    char first_text[UUID_TEXT_SIZE];      /* held back: the first of its user and type that must end; "" = none */
    const char *first_status;             /* of that one */
    const char *belongs_to, *present_issuer; /* "profile at address"; NULL = it belongs to the present one */
    int64_t waiting_count; /* of an ordered type: events of its user that come after it; 1000 at most */
};

/* Of the statements that act on an event, behind its columns: why it was refused, NULL = it was done. */
#define EVENT_REFUSED_COLUMN 34

/* A card request; every other event is delivered by a route, if there is one. */
bool event_is_card(const struct event *event);
/* What the event is, in a word: "new", "reissue", or its type. NULL: a card request whose payload says neither. */
const char *event_kind(const struct event *event);
/* ERR_DATABASE when the status is none of outbox.h: a schema of another release. */
must_check bool event_read(const struct pg_rows *rows, int row, struct event *ret_event, struct err *err);
/* Reads one event. *ret_rows is owned by the caller; the event borrows from it. ERR_NOT_FOUND. */
must_check bool event_find(struct pg_sync *db, const struct uuid *id, struct pg_rows **ret_rows,
                           struct event *ret_event, struct err *err);
/* Adds to an event that was read what decides about its next attempt; *ret_rows as above. ERR_NOT_FOUND. */
must_check bool event_read_prospect(struct pg_sync *db, struct event *event, struct pg_rows **ret_rows,
                                    struct err *err);
/* Events by their ids, in that order; an id that does not exist is left out. */
must_check bool event_fetch(struct pg_sync *db, const struct uuid *ids, int count, struct pg_rows **ret_rows,
                            struct err *err);

#define EVENT_PAGE_SIZE (sizeof("/events/") + UUID_TEXT_SIZE)

/* When a PENDING event is tried next; 0 = it is not PENDING, or it comes when the event that holds it back ends. */
int64_t event_next_us(const struct event *event);
/* Its page of the console. */
void event_page(const struct event *event, char ret_path[EVENT_PAGE_SIZE]);
#define EVENT_TRACE_URL_SIZE 4200
/* trace.link, which must live as long as events are shown; NULL = none. */
void event_set_trace_link(const char *link);
/* The page of the client's trace; "" = the client gave none, or there is no trace.link. */
void event_trace_url(const struct event *event, char ret_url[EVENT_TRACE_URL_SIZE]);
/* The event as --json shows it (docs/run.md); the caller may add members and prints it. NULL: out of memory. */
struct json *event_json(const struct event *event);
extern const char *const event_heads[];
void event_add_row(const struct event *event, struct table *table);
/* One line a fact. */
void event_print(const struct event *event, FILE *out);

#endif
