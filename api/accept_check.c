/* See accept_check.h. */
#include "api/accept_check.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/lib/base/base.h"
#include "common/lib/base/log.h"
#include "statements.h"

#define AGAIN_MS 1000
#define EVERY_MS 20000 /* while nothing is known against it */
#define TIMEOUT_MS 5000

enum { COL_WITHDRAWN, COL_WHY_NOT };

bool accept_check_is_needed(const char sqlstate[6])
{
    /* Conflicts that pass; what the pool sees itself: no connection, a standby; what our own functions refuse. */
    static const char *const others[] = {"40", "08", "57P", "25006", "IS"};
    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        if (strncmp(sqlstate, others[i], strlen(others[i])) == 0)
            return false;
    /* guard: what refuses a request may refuse all */
    return sqlstate[0] != '\0';
}

static void note(struct accept_check *check, const char *sqlstate, const char *why_not)
{
    bool is_refused = accept_check_is_needed(sqlstate), was_refused = check->why_not[0] != '\0';
    snprintf(check->why_not, sizeof(check->why_not), "%s%s", is_refused ? "requests cannot be recorded: " : "",
             is_refused ? why_not : "");
    if (is_refused && !was_refused)
        log_error("the database refuses every request", LOG_TEXT("why", why_not));
    else if (was_refused && !is_refused)
        log_info("the database takes requests again");
}

static void on_timer(uv_timer_t *timer);

static void check_again(struct accept_check *check)
{
    /* guard: an api that cannot accept finds out by itself when it can */
    uv_timer_start(&check->timer, on_timer, check->why_not[0] ? AGAIN_MS : EVERY_MS, 0);
}

static void on_result(struct pg_query *query, const struct pg_query_result *result)
{
    struct accept_check *check = container_of(query, struct accept_check, query);
    check->is_in_flight = false;
    bool is_probe = query->statement == &sql_accept_probe;
    if (result->kind == PG_DONE) {
        int64_t withdrawn = pg_int8(result->rows, 0, COL_WITHDRAWN);
        const char *why_not = pg_text(result->rows, 0, COL_WHY_NOT);
        if (withdrawn > 0)
            log_warning("a plan of the housekeeping was in the way of requests and is withdrawn",
                        LOG_NUMBER("plans", withdrawn));
        check->is_wanted |= is_probe && why_not;
        if (!check->is_wanted)
            note(check, why_not ? why_not : "", why_not);
    } else if (result->kind == PG_REFUSED) {
        note(check, result->sqlstate, result->message);
    } /* else nothing is known: it stays as it is */
    if (check->is_wanted) {
        check->is_wanted = false;
        accept_check_start(check);
        return;
    }
    check_again(check);
    check->on_checked(check);
}

static void submit(struct accept_check *check, const struct sql_statement *statement)
{
    check->is_in_flight = true;
    check->query.statement = statement;
    check->query.timeout_ms = TIMEOUT_MS;
    check->query.is_slow = true;
    check->query.on_result = on_result;
    pg_pool_submit(check->pool, &check->query);
}

void accept_check_start(struct accept_check *check)
{
    if (check->query.statement == &sql_accept_probe)
        check->is_wanted |= check->is_in_flight;
    if (!check->is_in_flight)
        submit(check, &sql_accept_check);
}

static void on_timer(uv_timer_t *timer)
{
    struct accept_check *check = container_of(timer, struct accept_check, timer);
    if (check->is_in_flight)
        return;
    if (check->why_not[0])
        accept_check_start(check);
    else
        submit(check, &sql_accept_probe);
}

void accept_check_open(struct accept_check *check, uv_loop_t *loop)
{
    uv_timer_init(loop, &check->timer);
    check_again(check);
}

bool accept_check_is_idle(const struct accept_check *check)
{
    return !check->is_in_flight;
}

void accept_check_close(struct accept_check *check, struct closing *closing)
{
    assert(accept_check_is_idle(check));
    closing_handle(closing, &check->timer);
}
