/* Batched writes of attempts: many events in one statement and one commit, each guarded by its own lease token.
 *
 * Each write ends exactly once, from the loop. The batches are those of common/lib/pg/pg_batch.h: one whose outcome is
 * unknown is sent again until its lease is over, since each of these statements may be repeated. */
#ifndef ISSUING_WRITER_H
#define ISSUING_WRITER_H

#include <string.h>

#include "common/core/card.h"
#include "common/core/keyring.h"
#include "common/core/outbox.h"
#include "common/lib/base/again.h"
#include "common/lib/base/base.h"
#include "common/lib/base/err.h"
#include "common/lib/pg/pg_batch.h"
#include "worker/base/worker_env.h"

enum write_kind {
    WRITE_SAVE,
    WRITE_EXTEND,
    WRITE_KEEP,
    WRITE_MARK,
    WRITE_END,
    WRITE_COMPLETE, /* as WRITE_END, by a statement that is cheaper: see write_end_kind() */
    WRITE_KINDS,
};

enum write_result {
    WRITE_DONE,
    WRITE_FENCED,   /* the lease is lost: 0 rows, no effect */
    WRITE_GIVEN_UP, /* not written before the lease ended, or refused by the database (see `why`) */
};

struct write_save {
    struct uuid card_id; /* in: ours; out: the stored card's */
    const char *issuer_card_id;
    char last4[CARD_LAST4_SIZE];
    int exp_month, exp_year;
    unsigned char record[KEYRING_RECORD_MAX];
    size_t record_length; /* 0 = number not stored */
    bool is_reissue;
    struct uuid replaces;
};

struct write_end {
    enum outbox_status status; /* PENDING = another attempt after delay_ms */
    int64_t delay_ms;
    bool give_back;       /* a deferral: the attempt is not counted */
    bool clear_sent;      /* nothing was ever sent that may have arrived */
    bool may_arrive;      /* a create or delivery of this attempt may still be on its way */
    const char *held_end; /* static: the end that waits for late creates or deliveries; NULL = none */
    char held_end_code[OUTBOX_REASON_CODE_SIZE];
    bool deferred;                             /* in an unbroken row of 409/425 */
    bool unknown;                              /* for the attempt's row */
    char reason_code[OUTBOX_REASON_CODE_SIZE]; /* REJECTED, FAILED */
    char last_error[300];                      /* "" = null */
    const char *step, *outcome;                /* static texts */
    char cause[OUTBOX_REASON_CODE_SIZE];       /* "" = null */
    char detail[200];
    int64_t took_ms;
    const char *card_status; /* static; NULL = leave */
    bool replaces;           /* a reissue, completed: the old card becomes `replaced`; else: it becomes `cancelled` */
    struct uuid replaced;
};

/* How the end of an attempt is written. Nearly all ends are WRITE_COMPLETE, a completion with the link or the delivery
 * and nothing else: no card to mark as replaced or cancelled, and no send that may still arrive. */
static inline enum write_kind write_end_kind(const struct write_end *end)
{
    bool is_plain = end->status == OUTBOX_COMPLETED &&
                    (strcmp(end->step, "link") == 0 || strcmp(end->step, "deliver") == 0) && !end->unknown &&
                    !end->detail[0] && !end->cause[0] && !end->clear_sent && !end->replaces && !end->card_status &&
                    !end->may_arrive;
    return is_plain ? WRITE_COMPLETE : WRITE_END;
}

struct write_op {
    enum write_kind kind;
    struct uuid event_id, token;
    int64_t deadline_ms;     /* monotonic: the lease's end */
    struct write_save *save; /* WRITE_SAVE */
    const char *cancel_code; /* WRITE_MARK */
    /* WRITE_KEEP, WRITE_MARK, WRITE_END: issuer parameters, as JSON, for the event to keep; NULL = none */
    const char *parameters;
    const struct write_end *end; /* WRITE_END, WRITE_COMPLETE */
    /* WRITE_END, WRITE_COMPLETE: the answer that the event keeps, at most 8 KiB; NULL = none. What the database cannot
     * store as JSON is left out, and the event ends all the same. */
    const char *result;
    void (*on_written)(struct write_op *op, enum write_result result, const char *why);
    /* private */
    struct pg_batch_item item;
    struct again_item again; /* waits for the lock of its order */
    bool has_row;            /* the statement has written this event */
};

struct writer;

/* on_final: an event has reached a final status: wake those who wait for it. */
must_check bool writer_open(const struct worker_env *env, void (*on_final)(void *context), void *context,
                            struct writer **ret_writer, struct err *err);
void writer_submit(struct writer *writer, struct write_op *op);
/* Precondition: every write has ended. on_closed from the loop; the writer is freed before it. */
void writer_close(struct writer *writer, void (*on_closed)(void *context), void *context);

#endif
