/* issuing-ctl limits: why a user's card request is answered with 429, and when the next one passes.
 *
 * The limit is that of the configuration that issuing-ctl reads; where the api has another, it says otherwise. */
#include <inttypes.h>
#include <stdio.h>

#include "ctl/ctl.h"
#include "ctl/options.h"
#include "ctl/print.h"
#include "statements.h"

#define TRIES_SHOWN 20

struct limits {
    const char *user;
    int64_t count, window_ms;
    bool attempts_count;
    int64_t now_us, accepted, refused;
    int64_t frees_us; /* 0 = the next request passes */
    int64_t frees_s;  /* as Retry-After says it; 0 = the next request passes */
};

static bool read_limits(struct ctl *ctl, struct limits *limits, struct err *err)
{
    enum { NOW, ACCEPTED, REFUSED, FREES_AT };
    pg_rows_scope struct pg_rows *rows = NULL;
    const struct pg_param params[] = {pg_param_string(limits->user), pg_param_int8(limits->count),
                                      pg_param_int8(limits->window_ms), pg_param_bool(limits->attempts_count)};
    if (!pg_sync_query(ctl->db, &sql_operator_limits, params, &rows, err))
        return false;
    limits->now_us = pg_time_us(rows, 0, NOW);
    limits->accepted = pg_int8(rows, 0, ACCEPTED);
    limits->refused = pg_int8(rows, 0, REFUSED);
    limits->frees_us = pg_time_us(rows, 0, FREES_AT);
    int64_t left_us = limits->frees_us - limits->now_us;
    limits->frees_s = limits->frees_us == 0 ? 0 : left_us <= 1000000 ? 1 : (left_us + 999999) / 1000000;
    return true;
}

/* ---- JSON ---- */

static struct json *try_json(const struct pg_rows *rows, int row)
{
    struct uuid id = pg_uuid(rows, row, 2);
    char id_text[UUID_TEXT_SIZE];
    uuid_format(&id, id_text);
    return JSON_OBJECT(json_time("at", pg_time_us(rows, row, 0)), json_flag("accepted", pg_bool(rows, row, 1)),
                       json_text("event_id", pg_bool(rows, row, 1) ? id_text : NULL),
                       json_time("leaves_at", pg_time_us(rows, row, 3)));
}

static bool print_as_json(const struct limits *limits, const struct pg_rows *rows, struct err *err)
{
    struct json *tries = json_new_array();
    for (int row = 0; row < pg_rows_count(rows); row++)
        json_append(&tries, try_json(rows, row));
    return print_json(JSON_OBJECT(json_text("user_id", limits->user), json_number("limit", limits->count),
                                  json_number("window_ms", limits->window_ms),
                                  json_text("counts", limits->attempts_count ? "attempts" : "accepted"),
                                  json_number("accepted", limits->accepted), json_number("refused", limits->refused),
                                  json_flag("limited", limits->frees_s > 0), json_time("frees_at", limits->frees_us),
                                  json_number("retry_after_seconds", limits->frees_s), json_tree("tries", tries)),
                      err);
}

/* ---- text ---- */

static void print_sentences(const struct limits *limits)
{
    char span[PRINT_SPAN_SIZE], time[PRINT_TIME_SIZE];
    printf("A user may have %" PRId64 " card request%s accepted in %s%s.\n", limits->count,
           limits->count == 1 ? "" : "s", print_span(limits->window_ms * 1000, span),
           limits->attempts_count ? "; refused tries count too" : "");
    print_text(limits->user, stdout);
    printf(" has %" PRId64 " accepted and %" PRId64 " refused in this time.\n", limits->accepted, limits->refused);
    if (limits->frees_s == 0)
        puts("The next one is accepted.");
    else
        printf("The next one is answered with 429 until %s, for %" PRId64 " s from now%s.\n",
               print_time(limits->frees_us, time), limits->frees_s,
               limits->attempts_count ? ", if no try comes before" : "");
}

static bool print_tries(const struct limits *limits, const struct pg_rows *rows, struct err *err)
{
    static const char *const heads[] = {"AT", "TRY", "COUNTS UNTIL", "EVENT", NULL};
    struct table table;
    char time[PRINT_TIME_SIZE], id_text[UUID_TEXT_SIZE];
    table_init(&table, heads);
    for (int row = 0; row < pg_rows_count(rows); row++) {
        bool accepted = pg_bool(rows, row, 1);
        struct uuid id = pg_uuid(rows, row, 2);
        uuid_format(&id, id_text);
        table_add(&table, print_time(pg_time_us(rows, row, 0), time));
        table_add(&table, accepted ? "accepted" : "refused");
        table_add(&table, accepted || limits->attempts_count ? print_time(pg_time_us(rows, row, 3), time) : NULL);
        table_add(&table, accepted ? id_text : NULL);
    }
    if (pg_rows_count(rows) > 0)
        putchar('\n');
    return table_end(&table, err);
}

static bool show(struct ctl *ctl, struct limits *limits, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    const struct pg_param params[] = {pg_param_string(limits->user), pg_param_int8(limits->window_ms),
                                      pg_param_int8(TRIES_SHOWN)};
    if (!read_limits(ctl, limits, err) || !pg_sync_query(ctl->db, &sql_operator_limits_tries, params, &rows, err))
        return false;
    if (ctl->json)
        return print_as_json(limits, rows, err);
    print_sentences(limits);
    return print_tries(limits, rows, err);
}

static bool run_limits(struct ctl *ctl, char **arguments, int count, struct err *err)
{
    struct limits limits = {.count = ctl->config->limit.count,
                            .window_ms = ctl->config->limit.window_ms,
                            .attempts_count = ctl->config->limit.counts == LIMIT_COUNTS_ATTEMPTS};
    if (!options_read(OPTIONS_NONE, arguments, count, &count, err))
        return false;
    if (count != 1 || arguments[0][0] == '\0')
        return err_set(err, ERR_USAGE, "limits takes one user id");
    limits.user = arguments[0];
    return ctl_connect(ctl, err) && show(ctl, &limits, err);
}

const struct ctl_command ctl_limits = {
    .word = "limits",
    .usage = "USER",
    .summary = "why a user is answered with 429, and until when",
    .help =
        "Shows which card requests of a user count in the window of the rate limit, when the next one is accepted,\n"
        "and which ones were refused. The limit is limit.count, limit.window and limit.counts of the configuration\n"
        "that issuing-ctl reads: let the api have the same. At most one refused request a second is recorded.\n",
    .run = run_limits,
};
