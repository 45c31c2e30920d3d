/* issuing-ctl keys: the file of keys that stored card numbers are encrypted with, and which key holds how many.
 *
 * Invariants: no part of a key is ever printed; a file that exists is only ever replaced as a whole (keyring.h); a key
 * that still holds numbers is not retired. Only rewrap and retire need the database. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/core/keyring.h"
#include "common/lib/config/config_value.h"
#include "ctl/ctl.h"
#include "ctl/options.h"
#include "ctl/places.h"
#include "ctl/print.h"
#include "ctl/rewrap.h"

static bool generate(struct ctl *ctl, const char *path, struct err *err)
{
    uint32_t key_id;
    if (!keyring_generate(path, &key_id, err))
        return false;
    if (ctl->json) {
        (void)!print_json(
            JSON_OBJECT(json_text("file", path), json_number("key_id", key_id), json_text("state", "active")), err);
        return true;
    }
    /* The units load credentials from there by themselves (LoadCredential=). */
    bool is_credential = strstr(path, "/credstore") != NULL;
    printf("Wrote %s (mode 0600) with the active key %" PRIu32 ".\n"
           "Next: %s; and keep a copy in a safe place:\n"
           "without it the stored card numbers cannot be read any more.\n",
           path, key_id,
           is_credential ? "start or reload the api and the worker, whose units load it from there"
                         : "set card.keys_file to it and let the api and the worker read it, nobody else");
    return true;
}

static bool rotate(struct ctl *ctl, const char *path, struct err *err)
{
    uint32_t new_id, old_id;
    if (!keyring_rotate(path, &new_id, &old_id, err))
        return false;
    if (ctl->json) {
        (void)!print_json(JSON_OBJECT(json_text("file", path), json_number("key_id", new_id),
                                      json_text("state", "active"), json_number("old_key_id", old_id)),
                          err);
        return true;
    }
    printf(
        "%s has the new active key %" PRIu32 "; key %" PRIu32 " only decrypts now.\n"
        "Next: keep a copy in a safe place; bring the file to the hosts of the api, then to those of the worker, and\n"
        "let the workers read it again; then `issuing-ctl keys rewrap`.\n",
        path, new_id, old_id);
    return true;
}

/* ---- status ---- */

/* One key of the file, or one that only records name. */
struct line {
    int64_t id; /* 0 = records of no known form */
    const char *state, *made_at, *meaning;
    int64_t records; /* -1 = not known */
};

static void add_line(const struct ctl *ctl, struct table *table, const struct line *line)
{
    static const struct json_field none = {.name = NULL};
    char share[32] = "";
    if (ctl->json) {
        table_add_json(table, JSON_OBJECT(line->id == 0 ? none : json_number("key_id", line->id),
                                          json_text("state", line->state), json_text("made_at", line->made_at),
                                          line->records < 0 ? none : json_number("records", line->records),
                                          json_number("seal_limit", KEYRING_SEALS_MAX)));
        return;
    }
    if (line->id != 0)
        table_add_number(table, line->id);
    else
        table_add(table, NULL);
    table_add(table, line->state);
    table_add(table, line->made_at);
    if (line->records >= 0) {
        table_add_number(table, line->records);
        snprintf(share, sizeof(share), "%.4f %%", 100.0 * (double)line->records / (double)KEYRING_SEALS_MAX);
    } else {
        table_add(table, NULL);
    }
    table_add(table, share);
    table_add(table, line->meaning);
}

static int64_t records_of(const struct pg_rows *counts, uint32_t key_id)
{
    for (int row = 0; row < pg_rows_count(counts); row++)
        if (!pg_is_null(counts, row, 0) && pg_int8(counts, row, 0) == key_id)
            return pg_int8(counts, row, 1);
    return 0;
}

static bool is_in_file(const struct keyring *keyring, int64_t key_id)
{
    for (size_t i = 0; i < keyring_count(keyring); i++)
        if (keyring_entry(keyring, i).id == key_id)
            return true;
    return false;
}

static const char *meaning_of(const struct keyring_entry *entry, int64_t records)
{
    switch (entry->state) {
    case KEYRING_ACTIVE:
        return records > KEYRING_SEALS_MAX / 2     ? "encrypts and decrypts; ROTATE: half of its seals are used"
               : keyring_is_old(entry, time(NULL)) ? "encrypts and decrypts; ROTATE: it is older than a year"
                                                   : "encrypts new numbers, and decrypts";
    case KEYRING_DECRYPT:
        return records == 0 ? "holds no number any more: it may be retired"
                            : "decrypts numbers that were stored under it";
    case KEYRING_RETIRED:
        break;
    }
    return records > 0 ? "NOT USED ANY MORE, but holds numbers that nobody can read" : "not used any more";
}

/* counts NULL = not known. */
static bool print_keys(const struct ctl *ctl, const struct keyring *keyring, const struct pg_rows *counts,
                       struct err *err)
{
    static const char *const heads[] = {"KEY", "STATE", "MADE", "RECORDS", "OF 2^32", "MEANING", NULL};
    struct table table;
    table_init(&table, heads);
    for (size_t i = 0; i < keyring_count(keyring); i++) {
        struct keyring_entry entry = keyring_entry(keyring, i);
        int64_t records = counts ? records_of(counts, entry.id) : -1;
        add_line(ctl, &table,
                 &(struct line){.id = entry.id,
                                .state = keyring_state_name(entry.state),
                                .made_at = entry.made_at[0] ? entry.made_at : NULL,
                                .meaning = meaning_of(&entry, records),
                                .records = records});
    }
    for (int row = 0; counts && row < pg_rows_count(counts); row++) {
        int64_t id = pg_int8(counts, row, 0);
        if (!is_in_file(keyring, id))
            add_line(ctl, &table,
                     &(struct line){.id = id,
                                    .state = "missing",
                                    .meaning = id ? "NOT IN THE FILE: nobody can read its numbers with it"
                                                  : "records of an unknown form",
                                    .records = pg_int8(counts, row, 1)});
    }
    return table_end(&table, err);
}

/* Of status and rewrap. */
struct keys_request {
    const char *path;
    int64_t rate;
};

static bool status(struct ctl *ctl, void *context, struct err *err)
{
    const struct keys_request *request = context;
    struct keyring *keyring = NULL;
    pg_rows_scope struct pg_rows *counts = NULL;
    if (!keyring_load(request->path, &keyring, err))
        return false;
    if (!ctl_connect(ctl, err) || !rewrap_count(ctl, &counts, err)) {
        fputs("issuing-ctl: records are not counted: ", stderr);
        print_text(err->message, stderr);
        fputc('\n', stderr);
    }
    bool whole = print_keys(ctl, keyring, counts, err);
    keyring_free(keyring);
    return whole;
}

/* ---- rewrap, retire ---- */

static void report_rewrap(struct ctl *ctl, const struct keyring *keyring, const struct rewrap_result *result)
{
    uint32_t active = keyring_active_id(keyring);
    if (ctl->json) {
        (void)!print_json(JSON_OBJECT(json_number("key_id", active), json_number("rewrapped", result->done),
                                      json_number("unreadable", result->unreadable), json_number("left", result->left)),
                          NULL);
    } else {
        printf("%" PRId64 " card numbers are sealed again with key %" PRIu32 "; %" PRId64
               " are left with other keys.\n",
               result->done, active, result->left);
    }
    fflush(stdout);
    if (result->is_stopped)
        fputs("issuing-ctl: stopped; run the same command again for the rest\n", stderr);
    else if (result->unreadable > 0)
        fprintf(stderr, "issuing-ctl: %" PRId64 " cannot be opened with these keys\n", result->unreadable);
    else if (result->left > 0)
        fputs("issuing-ctl: a worker still seals with another key: let it read the keys file again, then repeat this "
              "command\n",
              stderr);
    ctl->code = result->is_stopped || result->left > 0 ? CTL_REFUSED : CTL_DONE;
}

static bool rewrap(struct ctl *ctl, void *context, struct err *err)
{
    const struct keys_request *request = context;
    struct keyring *keyring = NULL;
    struct rewrap_result result;
    if (!keyring_load(request->path, &keyring, err))
        return false;
    bool done = ctl_connect(ctl, err) && rewrap_run(ctl, keyring, request->rate, &result, err);
    if (done)
        report_rewrap(ctl, keyring, &result);
    keyring_free(keyring);
    if (!done && err_is_sqlstate(err, "42501"))
        err_set(err, ERR_CONFIG, "only the owner of the tables may read stored records: connect as issuing_owner");
    return done;
}

/* In all places. */
static bool count_records(struct ctl *ctl, uint32_t key_id, int64_t *ret_records, struct err *err)
{
    *ret_records = 0;
    for (ctl->place = 0; ctl->place < ctl->config->database.places; ctl->place++) {
        pg_rows_scope struct pg_rows *counts = NULL;
        if (!ctl_connect(ctl, err) || !rewrap_count(ctl, &counts, err))
            return false;
        *ret_records += records_of(counts, key_id);
    }
    return true;
}

static bool retire(struct ctl *ctl, const char *id_text, const char *path, struct err *err)
{
    int64_t records, id;
    if (id_text[0] == '0' || !config_value_integer(id_text, 1, UINT32_MAX, &id, err))
        return err_set(err, ERR_USAGE, "keys retire needs the id of a key");
    if (!count_records(ctl, (uint32_t)id, &records, err))
        return false;
    /* guard: a key that holds numbers is not retired */
    if (records > 0)
        return err_set(err, ERR_REFUSED,
                       "key %" PRId64 " still holds %" PRId64 " card numbers: issuing-ctl keys rewrap first", id,
                       records);
    if (!keyring_retire(path, (uint32_t)id, err))
        return false;
    if (!ctl->json)
        printf("Key %" PRId64 " is retired. When all programs have read the file its line may be removed.\n", id);
    return true;
}

static bool run_with_file(struct ctl *ctl, const char *verb, const char *id, const char *path, int64_t rate,
                          struct err *err)
{
    struct keys_request request = {path ? path : ctl->config->card.keys_file, rate};
    if (!request.path)
        return err_set(err, ERR_CONFIG, "card.keys_file is not set; name the file");
    if (id)
        return retire(ctl, id, request.path, err);
    places_each(ctl, strcmp(verb, "status") == 0 ? status : rewrap, &request);
    return true;
}

static bool run_keys(struct ctl *ctl, char **arguments, int count, struct err *err)
{
    int64_t rate = 0;
    const struct option_spec specs[] = {{.name = "rate", .number = &rate, .min = 1, .max = 1000000}, {.name = NULL}};
    if (!options_read(specs, arguments, count, &count, err))
        return false;
    const char *verb = count > 0 ? arguments[0] : "";
    bool is_rewrap = strcmp(verb, "rewrap") == 0;
    if (rate != 0 && !is_rewrap)
        return err_set(err, ERR_USAGE, "--rate belongs to keys rewrap");
    if (count == 2 && strcmp(verb, "generate") == 0)
        return generate(ctl, arguments[1], err);
    if (count == 2 && strcmp(verb, "rotate") == 0)
        return rotate(ctl, arguments[1], err);
    if ((count == 1 || count == 2) && (is_rewrap || strcmp(verb, "status") == 0))
        return run_with_file(ctl, verb, NULL, count == 2 ? arguments[1] : NULL, rate, err);
    if ((count == 2 || count == 3) && strcmp(verb, "retire") == 0)
        return run_with_file(ctl, verb, arguments[1], count == 3 ? arguments[2] : NULL, 0, err);
    return err_set(err, ERR_USAGE, "keys takes generate FILE, rotate FILE, status, rewrap or retire ID");
}

const struct ctl_command ctl_keys = {
    .word = "keys",
    .usage = "generate FILE | rotate FILE | status [FILE] | rewrap [FILE] [--rate N] | retire ID [FILE]",
    .summary = "the keys that stored card numbers are encrypted with",
    .help =
        "generate FILE    writes a new keys file with one active key, mode 0600; an existing file is never touched\n"
        "rotate FILE      adds a new active key; the old one only decrypts from then on, and no key is lost. The\n"
        "                 file is replaced as a whole, by its owner or root\n"
        "status [FILE]    lists the keys of the file and their states, not the keys; where the database is\n"
        "                 reachable, how many card numbers each holds, of the 2^32 that one key may seal at most\n"
        "rewrap [FILE]    seals card numbers of other keys again with the active one. As issuing_owner; may be\n"
        "                 stopped and repeated at any time, also while api and worker run. Exit 1 when some are left\n"
        "  --rate N       at most N a second\n"
        "retire ID [FILE] marks a key as not used any more; refused while it holds card numbers\n\n"
        "FILE is card.keys_file where it is not given. The order of a roll-out is in docs/run.md.\n",
    .run = run_keys,
    .in_places = CTL_AS_A_WHOLE,
};
