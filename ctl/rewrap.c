/* See rewrap.h.
 *
 * Invariants: a new record is opened and compared with the number before it replaces the old one; each batch is one
 * transaction with its audit row, so the command may be stopped at any time and run again; rows that another session
 * holds are left for the next pass. A card number is in memory only while its record is sealed, and is never printed.
 * Left out: any other role than the owner's, which the database refuses. */
#include "ctl/rewrap.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/lib/base/clock.h"
#include "common/lib/pg/pg_columns.h"
#include "ctl/action.h"
#include "ctl/stop.h"
#include "statements.h"

#define BATCH 500
#define PASSES_MAX 5
#define PASS_PAUSE_US 500000
#define NAMED_MAX 10
#define COLUMN_MAX (1024 * 1024) /* of one parameter */

enum { COL_ID, COL_USER, COL_RECORD, COL_LOOKED_USER, COL_LOOKED_CARD, COL_LEFT_OUT };

struct rewrap {
    struct ctl *ctl;
    struct keyring *keyring;
    struct action action;
    int64_t rate, total, started_us;
    struct rewrap_result *result;
    char *after_user; /* owned; NULL = from the beginning */
    struct uuid after_card;
    bool at_end;
    int64_t left_out;          /* in this pass */
    struct pg_columns columns; /* of the batch that is stored */
};

static void show_progress(const struct rewrap *rewrap, bool last)
{
    if (!isatty(STDERR_FILENO))
        return;
    if (last)
        fputs("\r\033[K", stderr);
    else
        fprintf(stderr, "\r%" PRId64 " of about %" PRId64 " sealed again", rewrap->result->done, rewrap->total);
}

/* Opens the record, seals the number with the active key, and opens the new record to compare. */
static bool reseal(struct rewrap *rewrap, const char *user, const struct uuid *card, struct slice old,
                   unsigned char ret_record[KEYRING_RECORD_MAX], size_t *ret_length, struct err *err)
{
    char number[KEYRING_NUMBER_MAX + 1], again[KEYRING_NUMBER_MAX + 1] = "";
    if (!keyring_open(rewrap->keyring, user, card, (const unsigned char *)old.bytes, old.length, number, err))
        return false;
    bool done = keyring_seal(rewrap->keyring, user, card, number, strlen(number), ret_record, ret_length, err) &&
                keyring_open(rewrap->keyring, user, card, ret_record, *ret_length, again, err) &&
                (strcmp(number, again) == 0 ||
                 err_set(err, ERR_SYSTEM, "a card number that was sealed again opened as another one"));
    secret_wipe(number, sizeof(number));
    secret_wipe(again, sizeof(again));
    return done || err_set(err, ERR_SYSTEM, "sealing with the active key does not work");
}

static void report_unreadable(struct rewrap *rewrap, const struct uuid *card, const struct err *why)
{
    char id[UUID_TEXT_SIZE];
    uuid_format(card, id);
    if (rewrap->result->unreadable++ < NAMED_MAX)
        fprintf(stderr, "issuing-ctl: card %s: %s\n", id, why->message);
}

/* Puts the rows that can be sealed into the columns. False: sealing itself does not work. */
static bool seal_rows(struct rewrap *rewrap, const struct pg_rows *rows, int count, int *ret_sealed, struct err *err)
{
    struct pg_columns *columns = &rewrap->columns;
    *ret_sealed = 0;
    pg_columns_start(columns);
    for (int row = 0; row < count; row++) {
        struct uuid card = pg_uuid(rows, row, COL_ID);
        struct slice user = pg_bytes(rows, row, COL_USER), old = pg_bytes(rows, row, COL_RECORD);
        unsigned char record[KEYRING_RECORD_MAX];
        size_t length = 0;
        if (!reseal(rewrap, user.bytes, &card, old, record, &length, err)) {
            if (err->kind != ERR_NOT_FOUND && err->kind != ERR_REFUSED && err->kind != ERR_MALFORMED)
                return false;
            report_unreadable(rewrap, &card, err);
            continue;
        }
        pg_columns_start_row(columns);
        pg_columns_add_uuid(columns, &card);
        pg_columns_add_slice(columns, user);
        pg_columns_add_bytea(columns, old.bytes, old.length);
        pg_columns_add_bytea(columns, record, length);
        pg_columns_set_scalar(columns, pg_param_string(rewrap->action.actor));
        ++*ret_sealed;
    }
    return true;
}

static bool store(struct rewrap *rewrap, int sealed, int64_t *ret_stored, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    struct pg_param params[PG_PARAMS_MAX];
    *ret_stored = 0;
    if (sealed == 0)
        return true;
    if (!pg_columns_finish(&rewrap->columns, params, sql_owner_rewrap_put.parameters))
        return err_set(err, ERR_MEMORY, "out of memory");
    if (!pg_sync_query(rewrap->ctl->db, &sql_owner_rewrap_put, params, &rows, err))
        return false;
    *ret_stored = pg_int8(rows, 0, 0);
    return true;
}

/* The next batch begins behind the last row of this one. */
static bool advance_cursor(struct rewrap *rewrap, const struct pg_rows *rows, int last, struct err *err)
{
    const char *user = pg_text(rows, last, COL_LOOKED_USER);
    rewrap->at_end = !user;
    rewrap->left_out += pg_int8(rows, last, COL_LEFT_OUT);
    if (!user)
        return true;
    char *copy = strdup(user);
    if (!copy)
        return err_set(err, ERR_MEMORY, "out of memory");
    free(rewrap->after_user);
    rewrap->after_user = copy;
    rewrap->after_card = pg_uuid(rows, last, COL_LOOKED_CARD);
    return true;
}

static bool process_batch(struct rewrap *rewrap, int64_t *ret_stored, struct err *err)
{
    const char *user = rewrap->after_user;
    int64_t most = rewrap->rate > 0 && rewrap->rate < BATCH ? rewrap->rate : BATCH;
    const struct pg_param from[] = {
        pg_param_string(user),
        user ? pg_param_uuid(&rewrap->after_card) : pg_param_null(),
        pg_param_int8(keyring_active_id(rewrap->keyring)),
        pg_param_int8(most),
    };
    pg_rows_scope struct pg_rows *rows = NULL;
    int sealed;
    if (!pg_sync_query(rewrap->ctl->db, &sql_owner_rewrap_take, from, &rows, err))
        return false;
    int last = pg_rows_count(rows) - 1;
    return seal_rows(rewrap, rows, last, &sealed, err) && store(rewrap, sealed, ret_stored, err) &&
           pg_sync_query(rewrap->ctl->db, &sql_operator_migrate_commit, NULL, NULL, err) &&
           advance_cursor(rewrap, rows, last, err);
}

static bool run_batch(struct rewrap *rewrap, struct err *err)
{
    int64_t stored = 0;
    struct err ignored;
    if (!pg_sync_query(rewrap->ctl->db, &sql_operator_migrate_begin, NULL, NULL, err))
        return false;
    if (!process_batch(rewrap, &stored, err)) {
        (void)!pg_sync_query(rewrap->ctl->db, &sql_operator_migrate_rollback, NULL, NULL, &ignored);
        return false;
    }
    rewrap->result->done += stored;
    return true;
}

/* All cards once, from the first to the last. */
static bool run_pass(struct rewrap *rewrap, struct err *err)
{
    free(rewrap->after_user);
    rewrap->after_user = NULL;
    rewrap->at_end = false;
    rewrap->left_out = 0;
    rewrap->result->unreadable = 0;
    while (!rewrap->at_end && !stop_is_requested()) {
        if (!run_batch(rewrap, err))
            return false;
        show_progress(rewrap, false);
        if (rewrap->rate > 0 && !stop_sleep_until(rewrap->started_us + rewrap->result->done * 1000000 / rewrap->rate))
            break;
    }
    return true;
}

bool rewrap_count(struct ctl *ctl, struct pg_rows **ret_rows, struct err *err)
{
    return pg_sync_query(ctl->db, &sql_operator_number_keys, NULL, ret_rows, err);
}

static bool count_left(struct rewrap *rewrap, int64_t *ret_left, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    int64_t active = keyring_active_id(rewrap->keyring);
    if (!rewrap_count(rewrap->ctl, &rows, err))
        return false;
    *ret_left = 0;
    for (int row = 0; row < pg_rows_count(rows); row++)
        if (pg_is_null(rows, row, 0) || pg_int8(rows, row, 0) != active)
            *ret_left += pg_int8(rows, row, 1);
    return true;
}

static bool run_passes(struct rewrap *rewrap, struct err *err)
{
    if (!count_left(rewrap, &rewrap->total, err))
        return false;
    for (int pass = 0; pass < PASSES_MAX && !stop_is_requested(); pass++) {
        if (pass > 0 && !stop_sleep_until(clock_mono_us() + PASS_PAUSE_US))
            break;
        if (!run_pass(rewrap, err))
            return false;
        if (rewrap->left_out == 0)
            break;
    }
    return count_left(rewrap, &rewrap->result->left, err);
}

bool rewrap_run(struct ctl *ctl, struct keyring *keyring, int64_t rate, struct rewrap_result *ret_result,
                struct err *err)
{
    struct rewrap rewrap = {.ctl = ctl, .keyring = keyring, .rate = rate, .result = ret_result};
    *ret_result = (struct rewrap_result){.left = -1};
    if (!action_init(&rewrap.action, "sealed with the active key", err))
        return false;
    pg_columns_init(&rewrap.columns, COLUMN_MAX);
    stop_watch();
    rewrap.started_us = clock_mono_us();
    bool done = run_passes(&rewrap, err);
    show_progress(&rewrap, true);
    ret_result->is_stopped = stop_is_requested();
    free(rewrap.after_user);
    pg_columns_done(&rewrap.columns);
    return done;
}
