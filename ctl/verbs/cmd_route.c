/* issuing-ctl route: the routes that are registered in the database, a delivery that tests one, and the operator's word
 * that ends one. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ctl/action.h"
#include "ctl/cluster.h"
#include "ctl/ctl.h"
#include "ctl/doctor/doctor.h"
#include "ctl/options.h"
#include "ctl/print.h"
#include "statements.h"

#define TEST_TIMEOUT_US INT64_C(30000000)
#define TEST_TIMEOUT_MAX_US INT64_C(3600000000)

/* ---- list ---- */

static struct json *route_json(const struct cluster_route *route)
{
    return JSON_OBJECT(json_text("type", route->type), json_time("since", route->since_us),
                       json_time("named_at", route->seen_us), json_text("named_by", route->worker),
                       json_number("workers", route->workers), json_flag("ordered", route->is_ordered),
                       json_number("open", route->open), json_number("ends_waiting", route->ends),
                       json_text("disagree", route->differs));
}

static void add_row(const struct cluster_route *route, struct table *table)
{
    char time[PRINT_TIME_SIZE], open[PRINT_NUMBER_SIZE];
    table_add(table, route->type);
    table_add(table, print_time(route->since_us, time));
    table_add(table, print_time(route->seen_us, time));
    table_add_number(table, route->workers);
    table_add(table, route->is_ordered ? "yes" : "no");
    snprintf(open, sizeof(open), "%lld%s", (long long)route->open, route->open >= CLUSTER_OPEN_MAX ? "+" : "");
    table_add(table, open);
    table_add_number(table, route->ends);
}

static bool print_routes(const struct ctl *ctl, const struct cluster *cluster, struct err *err)
{
    static const char *const heads[] = {"TYPE",    "SINCE", "LAST NAMED",   "WORKERS",
                                        "ORDERED", "OPEN",  "ENDS WAITING", NULL};
    struct table table;
    table_init(&table, heads);
    for (int i = 0; i < cluster->route_count; i++) {
        if (ctl->json)
            table_add_json(&table, route_json(&cluster->routes[i]));
        else
            add_row(&cluster->routes[i], &table);
    }
    bool whole = table_end(&table, err);
    if (!ctl->json && cluster->route_count == 0)
        fputs("No route is registered.\n", stderr);
    for (int i = 0; !ctl->json && i < cluster->route_count; i++)
        if (cluster->routes[i].differs) {
            printf("\nWorkers disagree on %s: ", cluster->routes[i].type);
            print_text(cluster->routes[i].differs, stdout);
            putchar('\n');
        }
    return whole;
}

static bool list(struct ctl *ctl, struct err *err)
{
    struct cluster cluster = {0};
    bool done =
        ctl_connect(ctl, err) && cluster_read_routes(ctl->db, &cluster, err) && print_routes(ctl, &cluster, err);
    cluster_done(&cluster);
    return done;
}

/* ---- remove ---- */

static const char *why_refused(const char *refused)
{
    static const struct {
        const char *word, *why;
    } words[] = {
        {"not_found", "no such route is registered: issuing-ctl route list"},
        {"living", "a living worker names it and would register it again: remove its section from the workers' "
                   "configuration first"},
        {"open", "events are open or notifications wait: let them be delivered, cancel them, or give --force"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        if (strcmp(words[i].word, refused) == 0)
            return words[i].why;
    return refused;
}

static bool report(const struct ctl *ctl, const char *type, const char *refused, struct err *err)
{
    const char *word = refused ? "refused" : "removed", *why = refused ? why_refused(refused) : NULL;
    if (!ctl->json) {
        print_result(type, word, why);
        return true;
    }
    return print_json(JSON_OBJECT(json_text("type", type), json_text("result", word), json_text("why", why)), err);
}

static bool remove_route(struct ctl *ctl, const char *type, bool is_forced, const struct action *action,
                         struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    struct pg_param params[2 + ACTION_PARAMS] = {pg_param_string(type), pg_param_bool(is_forced)};
    action_params(action, params + 2);
    if (!ctl_connect(ctl, err) || !pg_sync_query(ctl->db, &sql_operator_remove_route, params, &rows, err))
        return false;
    const char *refused = pg_text(rows, 0, 0);
    if (refused)
        ctl->code = CTL_REFUSED;
    return report(ctl, type, refused, err);
}

/* ---- test ---- */

static bool test_route(struct ctl *ctl, const char *type, const char *timeout, struct err *err)
{
    struct doctor doctor = {.ctl = ctl};
    int64_t timeout_us = TEST_TIMEOUT_US;
    bool is_answered = false;
    if (timeout && (!options_duration(timeout, &timeout_us) || timeout_us <= 0 || timeout_us > TEST_TIMEOUT_MAX_US))
        return err_set(err, ERR_USAGE, "--timeout needs a duration of at most an hour, such as 30s");
    if (!ctl_connect(ctl, err) ||
        !doctor_check_target(&doctor, type, NULL, false, timeout_us / 1000, &is_answered, err))
        return false;
    ctl->code = !is_answered ? CTL_AWAY : doctor.failures > 0 ? CTL_REFUSED : CTL_DONE;
    return !doctor.lost || err_set(err, ERR_MEMORY, "out of memory");
}

static bool run_route(struct ctl *ctl, char **arguments, int count, struct err *err)
{
    const char *reason = NULL, *timeout = NULL;
    bool is_forced = false;
    const struct option_spec specs[] = {{.name = "reason", .text = &reason},
                                        {.name = "timeout", .text = &timeout},
                                        {.name = "force", .flag = &is_forced},
                                        {.name = NULL}};
    struct action action;
    if (!options_read(specs, arguments, count, &count, err))
        return false;
    if (count == 1 && strcmp(arguments[0], "list") == 0 && !reason && !is_forced && !timeout)
        return list(ctl, err);
    if (count == 2 && strcmp(arguments[0], "test") == 0 && !reason && !is_forced)
        return test_route(ctl, arguments[1], timeout, err);
    if (count != 2 || strcmp(arguments[0], "remove") != 0 || timeout)
        return err_set(err, ERR_USAGE, "route takes list, or test or remove and a type");
    return action_init(&action, reason, err) && remove_route(ctl, arguments[1], is_forced, &action, err);
}

const struct ctl_command ctl_route = {
    .word = "route",
    .usage = "list | test TYPE [--timeout D] | remove TYPE [--force] --reason TEXT",
    .summary = "which types of events have a route; tests or ends one",
    .help =
        "A route is registered by the first worker whose configuration names it. It stays registered when its\n"
        "workers stop: events of its type wait, and where it is CARD_REQUEST_ENDED, ends are recorded for it. It\n"
        "leaves by `route remove`, or when no worker has named it for 30 days (issuing.retentions) and nothing\n"
        "of its type is open.\n\n"
        "list shows since when it is registered, when a worker named it last, how many living workers name it,\n"
        "whether it is ordered (one living worker says so), how many events are open (10000 at most), and how\n"
        "many ends of card requests wait to become events; below it, what workers disagree on.\n\n"
        "test lets a worker send one delivery of the type TEST, signed as the events are, and explains the answer.\n"
        "No event is made. Exit 75: no worker answered.\n\n"
        "remove is refused while a living worker names the route, and while events are open or notifications wait.\n\n"
        "  --timeout D    how long to wait for the worker, 30s otherwise\n"
        "  --force        remove it also then: its open events stay until a route takes them or they are\n"
        "                 cancelled; notifications that wait are given up\n"
        "  --reason TEXT  why; stored in operator_actions\n\n"
        "With --json each route is an object: type, since, named_at, named_by, workers, ordered, open,\n"
        "ends_waiting, disagree.\n",
    .run = run_route,
};
