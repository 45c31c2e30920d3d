/* Batched, guarded writes of attempts: many events per statement and commit, each with its own fence (the lease token).
 *
 * An operation waits for the next free batch of its kind (natural batching: no timer), is written, and ends exactly
 * once, from the loop. A batch whose
 * connection was lost or that met a passing fault runs again until its lease is over: every statement here may be
 * repeated. One that is
 * refused for good is split, so that a bad row does not hurt its neighbours. */
#ifndef ISSUING_WRITER_H
#define ISSUING_WRITER_H

#include <uv.h>

#include "common/base.h"
#include "common/card.h"
#include "common/err.h"
#include "common/keyring.h"
#include "common/outbox.h"
#include "common/pg_pool.h"

enum write_kind {
    WRITE_SAVE,
    WRITE_EXTEND,
    WRITE_MARK,
    WRITE_END,
    WRITE_COMPLETE, /* the writer's own word for a WRITE_END as nearly all are; do not put it */
    WRITE_KINDS,
};

enum write_result {
    WRITE_DONE,
    WRITE_FENCED,   /* the lease is lost: 0 rows, no effect */
    WRITE_GIVEN_UP, /* not written before the lease ended, or refused by the database (`why` says so) */
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
    bool may_arrive;      /* a create of this attempt may still be on its way */
    const char *held_end; /* static: the end that waits for late creates; NULL = none */
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
    bool replaces;           /* completed reissue: the old card becomes `replaced` */
    struct uuid replaced;
};

struct write_op {
    enum write_kind kind;
    struct uuid event_id, token;
    int64_t deadline_ms;         /* monotonic: the lease's end */
    struct write_save *save;     /* WRITE_SAVE */
    const char *cancel_code;     /* WRITE_MARK */
    const struct write_end *end; /* WRITE_END */
    void (*on_written)(struct write_op *op, enum write_result result, const char *why);
    /* private */
    struct write_op *next;
    bool may_be_written; /* an earlier run's COMMIT is unknown */
    bool matched;
};

struct writer;

struct writer_options {
    uv_loop_t *loop;
    struct pg_pool *pool;
    const char *worker_name;
    int64_t lease_ms;
    void (*on_final)(void *context); /* some event reached a final status: others may be told */
    void *context;
};

must_check bool writer_open(const struct writer_options *options, struct writer **ret_writer, struct err *err);
void writer_put(struct writer *writer, struct write_op *op);
/* Wants an empty writer (every operation ended). on_closed from the loop; the writer is freed after it. */
void writer_close(struct writer *writer, void (*on_closed)(void *context), void *context);

#endif
