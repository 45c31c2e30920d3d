/* The charges of the stand-in for a payment service, by Idempotency-Key. Without HTTP: route.c makes orders of calls
 * and answers of results. A key is known for key_lifetime_ms from the first call that was executed, or began, under it;
 * the first answer is kept as long. A call with the same key that comes later charges a SECOND time, which the charge
 * counts. That a key was charged is known for ever. Pure: the caller passes the time. Only charges_reset() removes
 * rows. */
#ifndef ISSUING_SANDBOX_CHARGES_H
#define ISSUING_SANDBOX_CHARGES_H

#include "common/lib/base/base.h"
#include "common/lib/base/buf.h"
#include "sandbox/ledger.h"

/* Borrowed texts; all valid until charges_reset(). */
struct charge {
    const char *key, *user_id;
    const char *body;     /* of the kept answer; NULL = none is kept */
    int status;           /* of the kept answer; 0 = the key is unknown, or a call with it is being executed */
    uint64_t fingerprint; /* of the call that the key belongs to */
    int64_t known_ms;     /* when the key became known; -1 = it is not known */
    int64_t executed_ms;  /* the first execution; meaningless without one */
    uint32_t executions;  /* more than one is what must never be */
    uint32_t calls;       /* that arrived with this key, also those that failed */
    bool is_late;         /* the first execution was a late one */
};

struct charge_order {
    struct slice key, user_id, body;
    uint64_t fingerprint;
    bool is_late;
};

struct charges;

must_check struct charges *charges_new(int64_t key_lifetime_ms);
void charges_free(struct charges *charges);
must_check bool charges_reset(struct charges *charges);

/* The charge of that key, made when the key is new; NULL = out of memory. */
must_check struct charge *charges_of(struct charges *charges, struct slice key, struct slice user_id);
/* One more call with this key arrived. */
void charges_note_call(struct charges *charges, struct charge *charge);
/* NULL = no call with this key ever arrived. */
struct charge *charges_find(const struct charges *charges, struct slice key);
/* LEDGER_MADE: the call is executed, and charges_keep() must follow; SAME: the kept answer is to be given again;
 * MISMATCH: the key belongs to another call; REFUSED: a call with this key is running, and this one is another.
 * holds_key: this is the call that is running. */
enum ledger_result charges_execute(struct charges *charges, struct charge *charge, const struct charge_order *order,
                                   bool holds_key, int64_t now_ms);
/* The first call with a key is running from now on. Nothing happens if the key is known. */
void charges_begin_work(struct charges *charges, struct charge *charge, uint64_t fingerprint, int64_t now_ms);
must_check bool charges_is_known(const struct charges *charges, const struct charge *charge, int64_t now_ms);
/* Keeps an answer under the key. False: out of memory. */
must_check bool charges_keep(struct charges *charges, struct charge *charge, uint64_t fingerprint, int status,
                             struct slice body, int64_t now_ms);

/* For charges_file.c: how many executions happened before this process began. */
void charges_restore(struct charges *charges, struct charge *charge, uint32_t executions, int64_t now_ms);

/* Which charges a report shows. */
struct charges_range {
    const char *key, *user_id; /* NULL = any */
    size_t from, limit;
};

/* {"charges":[...],"keys":n,"executions":n,"executed_twice":n,"calls":n,"truncated":bool}, in the order of the keys'
 * first calls. The counts are of all. */
bool charges_write(const struct charges *charges, const struct charges_range *range, struct buf *out);

#endif
