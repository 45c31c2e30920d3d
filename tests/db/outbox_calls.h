/* What the tests of the outbox's statements share: the sessions, a function for each statement, facts about an event,
 * and the statements without their fence. Tests run in processes of their own, one after the other, so the variables
 * belong to one test. */
#ifndef ISSUING_TEST_OUTBOX_CALLS_H
#define ISSUING_TEST_OUTBOX_CALLS_H

#include "common/lib/base/uuid7.h"
#include "statements.h"
#include "tests/db/database.h"

enum { LEASE_MS = 3600000, MANY = 64 };

extern struct pg_sync *owner, *worker, *other; /* the superuser; two of issuing_worker. Open during a test */

/* Empties the tables. */
void set_up(void);
void tear_down(void);

/* ---- the statements ---------------------------------------------------------------------------------------------- */

/* An event that was due `due_s` seconds ago. */
struct uuid add_event(const char *user, int due_s);

/* The column of outbox_claim that has the bookmark. */
#define CLAIM_BOOKMARK 28
/* The caller frees the rows. */
struct pg_rows *claim(struct pg_sync *db, const struct uuid *token, int64_t limit);
/* choice: as issuing.claim has it. */
struct pg_rows *claim_by(struct pg_sync *db, const struct uuid *token, int64_t limit, const char *choice);
/* The number of events in a claim's answer: its last row is the bookmark. */
int taken(const struct pg_rows *rows);
/* Claims all that is due; returns the number of events. */
int claim_all(const struct uuid *token);
/* Adds an event and claims it. */
struct uuid claimed_event(const char *user, struct uuid *ret_token);

/* One attempt's card. */
struct card {
    struct uuid event, token, id;
    const char *issuer_id;
    const char *number; /* NULL = not stored */
    const struct uuid *replaces;
};

/* The caller frees the rows. */
struct pg_rows *save(struct pg_sync *db, const struct card *cards, int count);
/* Returns the number of saved cards; *ret_id is the card of the last, and ret_id may be NULL. */
int save_one(const struct card *card, struct uuid *ret_id);

/* Return the number of changed events. */
int extend(const struct sql_statement *statement, const struct uuid *event, const struct uuid *token, int64_t lease_ms);
int mark(const struct sql_statement *statement, const struct uuid *event, const struct uuid *token, const char *code,
         const char *parameters);
int keep(const struct sql_statement *statement, const struct uuid *event, const struct uuid *token,
         const char *parameters);
#define HOLDER(number) "{\"cardholder\":\"ich_" number "\"}" /* parameters */

/* The end of one attempt. */
struct end {
    struct uuid event, token;
    const char *status;
    int64_t delay_ms;
    bool give_back, clear_sent, deferred, unknown, may_arrive;
    const char *reason_code, *cause, *card_status;
    const struct uuid *replaced;
    const char *parameters; /* JSON */
    const char *result;     /* JSON to keep */
};

/* Return the number of ended attempts. complete() and deliver() are the narrow statement for the usual ends. */
int finish_many(const struct end *ends, int count);
int finish(const struct end *end);
int complete(const struct uuid *event, const struct uuid *token);
int deliver(const struct uuid *event, const struct uuid *token, const char *result);
/* Adds an event, claims it and ends it. reason: NULL = none. */
struct uuid ended_event(const char *user, const char *status, const char *reason);

/* Calls a function by which operators act on an event; it must not refuse. more: its further arguments, "" or each with
 * a comma behind it. */
void act(const char *call, const struct uuid *event, const char *more);
/* Adds a mark of this event that a worker has, and ends it with this result. */
void end_mark(const struct uuid *event, const char *action, const char *result);

/* From the beginning of time to now, without a bookmark; returns the number of leases that were taken back. */
int sweep(struct pg_sync *db, int64_t limit);

/* ---- facts ------------------------------------------------------------------------------------------------------- */

/* The value of an expression over the event `e`. */
int64_t fact(const struct uuid *event, const char *expression);
/* The event is as its claim with this token left it. */
void expect_unchanged(const struct uuid *event, const struct uuid *token);

/* ---- without the fence ------------------------------------------------------------------------------------------- */

/* What the tests of the fence have to notice: a function without it, replaced in a transaction of the worker that the
 * test rolls back, and a statement without it, whose text the caller frees. */
void begin_without_fence(const char *function);
struct sql_statement without_fence(const struct sql_statement *statement);

#endif
