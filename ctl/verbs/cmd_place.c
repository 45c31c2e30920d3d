/* issuing-ctl place: which server serves which place, and how places go to another one. The functions of the database
 * (migrations/schema/24_place.sql) decide; each step here is a commit, and the same command again goes on. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/base/clock.h"
#include "ctl/action.h"
#include "ctl/ctl.h"
#include "ctl/marks.h"
#include "ctl/options.h"
#include "ctl/place_servers.h"
#include "ctl/print.h"
#include "ctl/stop.h"
#include "statements.h"

#define WAIT_US 50000
#define WAIT_NOTE_MS 1000

/* What the command is about. */
struct request {
    int places[CONFIG_PLACES_MAX], count;
    const char *to;
    int64_t timeout_ms; /* for standbys to replay a step */
    struct action action;
};

/* Connects to that server of the place, as the owner of the tables. */
static bool become_owner(struct ctl *ctl, int host, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    int hosts;
    if (!ctl_connect_host(ctl, host, &hosts, err) ||
        !pg_sync_query(ctl->db, &sql_operator_migrate_state, NULL, &rows, err))
        return false;
    struct slice owner = pg_bytes(rows, 0, 2);
    if (!owner.bytes)
        return err_set(err, ERR_CONFIG, "this needs the owner of the tables, or a superuser, as migrate does");
    const struct pg_param as[] = {pg_param_text(owner.bytes, owner.length)};
    return pg_sync_query(ctl->db, &sql_operator_migrate_as, as, NULL, err);
}

/* One call that answers null, or why not. */
static bool call(struct ctl *ctl, const struct sql_statement *statement, const struct pg_param *params, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    if (!pg_sync_query(ctl->db, statement, params, &rows, err))
        return false;
    const char *why = pg_text(rows, 0, 0);
    return !why || err_set(err, ERR_REFUSED, "%s", why);
}

/* ---- move ---- */

/* Until no transaction runs that may have found the place at home. */
static bool wait_for_transactions(struct ctl *ctl, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    int64_t started_ms = clock_mono_ms();
    bool was_noted = false;
    if (!pg_sync_query(ctl->db, &sql_owner_place_transactions, NULL, &rows, err))
        return false;
    struct slice names = pg_bytes(rows, 0, 0);
    const struct pg_param params[] = {pg_param_text(names.bytes, names.length)};
    for (;;) {
        pg_rows_scope struct pg_rows *left = NULL;
        if (!pg_sync_query(ctl->db, &sql_owner_place_waits, params, &left, err))
            return false;
        /* guard: a move waits for transactions under way */
        if (pg_int8(left, 0, 0) == 0)
            return true;
        if (!was_noted && clock_mono_ms() - started_ms > WAIT_NOTE_MS) {
            fprintf(stderr,
                    "issuing-ctl: waiting for %" PRId64
                    " transactions that may write to place %d; end them, or end this "
                    "command and take the place back: issuing-ctl place take-back %d\n",
                    pg_int8(left, 0, 0), ctl->place, ctl->place);
            was_noted = true;
        }
        (void)stop_sleep_until(clock_mono_us() + WAIT_US);
    }
}

static int find_server(const struct place_servers *servers)
{
    for (int i = 0; i < servers->count; i++)
        if (place_server_serves(&servers->list[i]))
            return i;
    return -1;
}

/* The server that is its home, or that has given it to the same servers before. -1: there is none. */
static int find_giver(const struct place_servers *servers, const char *to)
{
    int giver = find_server(servers);
    for (int i = 0; i < servers->count && giver < 0; i++) {
        const struct place_server *server = &servers->list[i];
        if (server->is_there && !server->is_standby && strcmp(server->home, to) == 0 &&
            strcmp(server->left_by, server->name) == 0)
            giver = i;
    }
    return giver;
}

static bool check_taker(const struct place_servers *servers, const struct place_server *giver, const char *to,
                        struct err *err)
{
    for (int i = 0; i < servers->count; i++) {
        const struct place_server *server = &servers->list[i];
        if (!server->is_there || strcmp(server->name, to) != 0)
            continue;
        if (server->system != giver->system)
            return err_set(err, ERR_REFUSED, "\"%s\" at %s is not a replica of \"%s\": they are different clusters", to,
                           server->where, giver->name);
        if (server->is_standby)
            return true;
        if (strcmp(giver->home, to) != 0)
            return err_set(err, ERR_REFUSED,
                           "\"%s\" at %s is not a standby any more; places move while it is one, and it is "
                           "promoted then",
                           to, server->where);
        return true;
    }
    return err_set(err, ERR_REFUSED, "no server of database.url that answers is called \"%s\" (cluster_name)", to);
}

static bool print_moved(struct ctl *ctl, const struct request *request, struct err *err)
{
    if (!ctl->json) {
        printf("place %d: its home is \"%s\" from now on\n", ctl->place, request->to);
        return fflush(stdout) == 0 || err_set(err, ERR_SYSTEM, "standard output could not be written");
    }
    return print_json(JSON_OBJECT(json_number("place", ctl->place), json_text("home", request->to)), err);
}

static bool move_one(struct ctl *ctl, const struct request *request, const struct uuid *move, struct err *err)
{
    struct place_servers servers;
    struct pg_param first[2 + ACTION_PARAMS] = {pg_param_string(request->to), pg_param_uuid(NULL)};
    struct pg_param last[2 + ACTION_PARAMS] = {first[0], pg_param_uuid(move)};
    place_look(ctl, &servers);
    int giver = find_giver(&servers, request->to);
    if (giver < 0)
        return err_set(err, ERR_REFUSED, "no server that answers serves place %d: issuing-ctl place list", ctl->place);
    if (place_server_serves(&servers.list[giver]) && strcmp(servers.list[giver].name, request->to) == 0)
        return err_set(err, ERR_REFUSED, "\"%s\" at %s serves place %d already", request->to, servers.list[giver].where,
                       ctl->place);
    action_params(&request->action, first + 2);
    action_params(&request->action, last + 2);
    return check_taker(&servers, &servers.list[giver], request->to, err) && become_owner(ctl, giver, err) &&
           call(ctl, &sql_owner_place_move, first, err) && wait_for_transactions(ctl, err) &&
           /* the id of the move is behind all that was accepted */
           call(ctl, &sql_owner_place_move, last, err);
}

/* Until each server of the new home has the end of the move. */
static bool wait_for_taker(struct ctl *ctl, const struct request *request, const struct uuid *move, int64_t until_ms,
                           struct err *err)
{
    for (;;) {
        struct place_servers servers;
        const struct place_server *late = NULL;
        bool any = false;
        place_look(ctl, &servers);
        for (int i = 0; i < servers.count; i++) {
            const struct place_server *server = &servers.list[i];
            bool is_taker = server->is_there && strcmp(server->name, request->to) == 0;
            any |= is_taker;
            if (is_taker && !uuid_equal(&server->move, move))
                late = server;
        }
        /* guard: a server that lacks what was accepted is not to be promoted */
        if (any && !late)
            return true;
        if (clock_mono_ms() > until_ms && !any)
            return err_set(err, ERR_REFUSED,
                           "no server called \"%s\" answers any more: do not promote one before this command has seen "
                           "that it has the move of place %d; run it again, or take-back",
                           request->to, ctl->place);
        if (clock_mono_ms() > until_ms)
            return err_set(err, ERR_REFUSED,
                           "\"%s\" at %s has not replayed the move of place %d: do not promote it. See whether it "
                           "streams, on the timeline of the server that the place has left; then run this command "
                           "again, or take-back",
                           request->to, late->where, ctl->place);
        (void)stop_sleep_until(clock_mono_us() + WAIT_US);
    }
}

static bool move(struct ctl *ctl, const struct request *request, struct err *err)
{
    const struct uuid move = uuid4_make();
    for (int i = 0; i < request->count; i++) {
        ctl->place = request->places[i];
        if (!move_one(ctl, request, &move, err) || !print_moved(ctl, request, err))
            return false;
    }
    int64_t until_ms = clock_mono_ms() + request->timeout_ms;
    for (int i = 0; i < request->count; i++) {
        ctl->place = request->places[i];
        if (!wait_for_taker(ctl, request, &move, until_ms, err))
            return false;
    }
    if (!ctl->json)
        printf("\"%s\" has replayed it. Next: promote \"%s\". With Patroni, on one of its hosts:\n"
               "  patronictl -c /etc/patroni/config.yml edit-config %s --set standby_cluster=null --force\n",
               request->to, request->to, request->to);
    return true;
}

/* ---- take-back ---- */

/* Whether each other server can serve the place no more, when it is promoted or as it is. */
static bool are_others_safe(struct ctl *ctl, const struct place_servers *servers, int giver, bool is_forced,
                            bool *ret_wait, struct err *err)
{
    *ret_wait = false;
    for (int i = 0; i < servers->count; i++) {
        const struct place_server *server = &servers->list[i];
        if (i == giver)
            continue;
        if (!server->is_there && !is_forced)
            return err_set(err, ERR_REFUSED,
                           "%s cannot be asked whether it serves place %d (%s); --force says that it "
                           "never will",
                           server->where, ctl->place, server->why);
        /* guard: a place that another server serves is not taken back */
        if (place_server_serves(server))
            return err_set(err, ERR_REFUSED, "\"%s\" at %s serves place %d", server->name, server->where, ctl->place);
        /* A standby that has not replayed the first step could still be promoted into the place. */
        *ret_wait = *ret_wait || (server->is_there && server->is_standby && strcmp(server->home, server->name) == 0 &&
                                  strcmp(server->name, servers->list[giver].name) != 0);
    }
    return true;
}

/* The primary that gave the place away; -1 = there is none. */
static int find_leaver(const struct place_servers *servers)
{
    for (int i = 0; i < servers->count; i++) {
        const struct place_server *server = &servers->list[i];
        if (server->is_there && !server->is_standby && server->left_by[0] && strcmp(server->left_by, server->name) == 0)
            return i;
    }
    return -1;
}

static bool take_back_one(struct ctl *ctl, const struct request *request, bool is_forced, struct err *err)
{
    struct place_servers servers;
    struct pg_param first[1 + ACTION_PARAMS] = {pg_param_bool(false)}, last[1 + ACTION_PARAMS] = {pg_param_bool(true)};
    int64_t until_ms = clock_mono_ms() + request->timeout_ms;
    bool must_wait;
    action_params(&request->action, first + 1);
    action_params(&request->action, last + 1);
    place_look(ctl, &servers);
    int giver = find_leaver(&servers), server = find_server(&servers);
    if (giver < 0 && server >= 0) {
        if (!ctl->json)
            printf("place %d: \"%s\" serves it, and nothing is to be taken back\n", ctl->place,
                   servers.list[server].name);
        return true;
    }
    if (giver < 0)
        return err_set(err, ERR_REFUSED, "no server that answers has given place %d away: issuing-ctl place list",
                       ctl->place);
    if (!are_others_safe(ctl, &servers, giver, is_forced, &must_wait, err))
        return false;
    if (!become_owner(ctl, giver, err) || !call(ctl, &sql_owner_place_take_back, first, err))
        return false;
    do {
        place_look(ctl, &servers);
        if (!are_others_safe(ctl, &servers, giver, is_forced, &must_wait, err))
            return false;
        if (must_wait && clock_mono_ms() > until_ms)
            return err_set(err, ERR_REFUSED,
                           "a standby has not replayed yet that place %d has no home; run the same command again",
                           ctl->place);
        if (must_wait)
            (void)stop_sleep_until(clock_mono_us() + WAIT_US);
    } while (must_wait);
    if (!become_owner(ctl, giver, err) || !call(ctl, &sql_owner_place_take_back, last, err))
        return false;
    if (!ctl->json)
        printf("place %d: \"%s\" serves it again\n", ctl->place, servers.list[giver].name);
    return true;
}

/* ---- list ---- */

/* For people and programs. */
static const char *state_of(const struct place_server *server)
{
    return !server->is_there                         ? "away"
           : strcmp(server->home, server->name) != 0 ? (server->is_standby ? "standby elsewhere" : "elsewhere")
           : server->is_standby                      ? "standby"
                                                     : "served";
}

static struct json *server_json(const struct ctl *ctl, const struct place_server *server)
{
    return JSON_OBJECT(
        json_number("place", ctl->place), json_text("server", server->where), json_text("name", server->name),
        json_text("state", state_of(server)), json_text("home", server->home),
        json_text("left_by", server->left_by[0] ? server->left_by : NULL),
        json_number("open_events", server->open_events), json_text("why", server->why[0] ? server->why : NULL));
}

static void add_server(const struct ctl *ctl, struct table *table, const struct place_server *server)
{
    if (ctl->json) {
        table_add_json(table, server_json(ctl, server));
        return;
    }
    table_add_number(table, ctl->place);
    table_add(table, server->where);
    table_add(table, server->name);
    table_add(table, state_of(server));
    table_add(table, server->home);
    if (server->is_there)
        table_add_number(table, server->open_events);
    else
        table_add(table, NULL);
}

static bool list(struct ctl *ctl, struct err *err)
{
    static const char *const heads[] = {"PLACE", "SERVER", "NAME", "STATE", "HOME", "OPEN", NULL};
    struct table table;
    int served[CONFIG_PLACES_MAX] = {0};
    table_init(&table, heads);
    for (int place = 0; place < ctl->config->database.places; place++) {
        struct place_servers servers;
        ctl->place = place;
        place_look(ctl, &servers);
        for (int i = 0; i < servers.count; i++) {
            add_server(ctl, &table, &servers.list[i]);
            served[place] += place_server_serves(&servers.list[i]);
        }
    }
    bool whole = table_end(&table, err);
    fflush(stdout);
    for (int place = 0; place < ctl->config->database.places; place++)
        if (served[place] != 1) {
            fprintf(stderr, "issuing-ctl: place %d: %s\n", place,
                    served[place] == 0 ? "no server that answers serves it" : "two servers serve it");
            ctl->code = CTL_REFUSED;
        }
    return whole;
}

/* ---- the command ---- */

/* "2" or "2,3". */
static bool read_places(const struct ctl *ctl, const char *text, struct request *request, struct err *err)
{
    int64_t last = ctl->config->database.places - 1;
    do {
        char *end;
        bool is_number = *text >= '0' && *text <= '9';
        unsigned long place = strtoul(text, &end, 10);
        if (!is_number || place > (unsigned long)last || (*end != ',' && *end != '\0') ||
            request->count == CONFIG_PLACES_MAX)
            return err_set(err, ERR_USAGE, "the places are N or N,M, from 0 to %" PRId64, last);
        request->places[request->count++] = (int)place;
        text = *end == ',' ? end + 1 : NULL;
    } while (text);
    return true;
}

static bool take_back(struct ctl *ctl, const struct request *request, bool is_forced, struct err *err)
{
    for (int i = 0; i < request->count; i++) {
        ctl->place = request->places[i];
        if (!take_back_one(ctl, request, is_forced, err))
            return false;
    }
    return true;
}

static bool run_place(struct ctl *ctl, char **arguments, int count, struct err *err)
{
    const char *reason = NULL, *timeout = NULL;
    bool is_forced = false;
    struct request request = {.count = 0};
    const struct option_spec specs[] = {{.name = "reason", .text = &reason},
                                        {.name = "to", .text = &request.to},
                                        {.name = "force", .flag = &is_forced},
                                        {.name = "timeout", .text = &timeout},
                                        {.name = NULL}};
    if (!options_read(specs, arguments, count, &count, err) || !marks_timeout(timeout, &request.timeout_ms, err))
        return false;
    const char *verb = count > 0 ? arguments[0] : "";
    bool is_move = strcmp(verb, "move") == 0 && count == 2 && request.to && !is_forced;
    bool is_take_back = strcmp(verb, "take-back") == 0 && count == 2 && !request.to;
    bool is_list = strcmp(verb, "list") == 0 && count == 1 && !reason && !request.to && !is_forced;
    if (!is_move && !is_take_back && !is_list)
        return err_set(err, ERR_USAGE,
                       "place takes: list; move N,M --to SCOPE --reason TEXT; take-back N,M --reason TEXT");
    if (ctl->config->database.places == 1)
        return err_set(err, ERR_REFUSED, "there is one place: database.places is 1");
    if (is_list)
        return list(ctl, err);
    return read_places(ctl, arguments[1], &request, err) && action_init(&request.action, reason, err) &&
           (is_move ? move(ctl, &request, err) : take_back(ctl, &request, is_forced, err));
}

const struct ctl_command ctl_place = {
    .word = "place",
    .usage = "list | move N,M --to SCOPE --reason TEXT | take-back N,M [--force] --reason TEXT",
    .summary = "which server serves which place; moves places to other servers",
    .help = "Places go to servers that are standbys of their home (docs/scaling.md). No row is copied. Run it as a\n"
            "superuser, or as the owner of the tables. If a command was killed, run it again: it continues.\n\n"
            "  list           each place on each server of database.url; exit 1 if a place is not served by one\n"
            "  move N,M       from now on the home of these places is SCOPE, the cluster_name of a standby; waits for\n"
            "                 transactions under way, and until SCOPE has replayed the move and may be promoted.\n"
            "                 Meanwhile users of these places get 503\n"
            "  take-back N,M  the server that they left serves them again, if no other one does\n"
            "  --force        a server that cannot be asked is gone for ever\n"
            "  --timeout D    how long standbys may take to replay a step, 60s otherwise\n"
            "  --reason TEXT  why; stored in operator_actions\n\n"
            "Refused: exit 1.\n",
    .run = run_place,
    .in_places = CTL_AS_A_WHOLE,
};
