/* See places.h. */
#include "ctl/places.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/base/uuid7.h"
#include "common/lib/config/config_value.h"
#include "ctl/print.h"
#include "statements.h"

#define ALL (-1)
#define NOWHERE (-1)

/* ret_place: a number, or ALL. */
static bool read_wanted(const struct config *config, const char *wanted, int64_t *ret_place, struct err *err)
{
    *ret_place = config->database.place == CONFIG_NO_PLACE ? ALL : config->database.place;
    if (!wanted)
        return true;
    if (strcmp(wanted, "all") == 0) {
        *ret_place = ALL;
        return true;
    }
    if (config_value_integer(wanted, 0, config->database.places - 1, ret_place, err))
        return true;
    return err_set(err, ERR_USAGE, "--place %.20s: there are %" PRId64 " places, 0 to %" PRId64 ", or all", wanted,
                   config->database.places, config->database.places - 1);
}

static void enter(struct ctl *ctl, int place)
{
    pg_sync_close(ctl->db);
    ctl->db = NULL;
    ctl->place = place;
}

static bool find_event(struct ctl *ctl, const char *argument, int *ret_place, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    struct uuid id;
    if (!uuid_parse(argument, strlen(argument), &id))
        return true;
    const struct pg_param params[] = {pg_param_uuid(&id)};
    if (!pg_sync_query(ctl->db, &sql_operator_has_event, params, &rows, err))
        return false;
    if (pg_bool(rows, 0, 0))
        *ret_place = ctl->place;
    return true;
}

/* Whether there is an event among the arguments, and each is found. */
static bool are_found(char **arguments, int count, const int *events)
{
    bool has_event = false;
    for (int i = 0; i < count; i++) {
        struct uuid id;
        bool is_id = uuid_parse(arguments[i], strlen(arguments[i]), &id);
        if (is_id && events[i] == NOWHERE)
            return false;
        has_event |= is_id;
    }
    return has_event;
}

/* events: for each argument the place that has this event, or NOWHERE. are_there: which places can be asked. One that
 * cannot is a failure, unless the others have all that is wanted. */
static int find_events(struct ctl *ctl, char **arguments, int count, int *events, bool *are_there)
{
    int places = (int)ctl->config->database.places, code = CTL_DONE;
    struct err errs[CONFIG_PLACES_MAX];
    for (int place = 0; place < places; place++) {
        enter(ctl, place);
        are_there[place] = ctl_connect(ctl, &errs[place]);
        for (int i = 0; i < count && are_there[place]; i++)
            are_there[place] = find_event(ctl, arguments[i], &events[i], &errs[place]);
    }
    if (are_found(arguments, count, events))
        return CTL_DONE;
    for (int place = 0; place < places; place++)
        if (!are_there[place])
            code = ctl_worse(code, ctl_fail(&errs[place]));
    return code;
}

static void announce(struct ctl *ctl, int place)
{
    enter(ctl, place);
    fprintf(stderr, "issuing-ctl: place %d\n", place);
    print_set_place(place);
}

static bool run_in(struct ctl *ctl, int place, char **arguments, int count, struct err *err)
{
    announce(ctl, place);
    ctl->code = CTL_DONE;
    bool done = ctl->command->run(ctl, arguments, count, err);
    fflush(stdout);
    return done;
}

/* Those that are events of another place are left out. false: only such arguments are there, and nothing is to do. */
static bool choose(char **arguments, int count, const int *events, int place, char **ret_given, int *ret_count)
{
    bool has_others = false, has_own = false;
    *ret_count = 0;
    for (int i = 0; i < count; i++) {
        has_own |= events[i] == place;
        has_others |= events[i] != NOWHERE && events[i] != place;
        /* guard: an event is given to the place that has it */
        if (events[i] == NOWHERE || events[i] == place)
            ret_given[(*ret_count)++] = arguments[i];
    }
    return has_own || !has_others;
}

static bool run_in_each(struct ctl *ctl, char **arguments, int count, struct err *err)
{
    bool are_there[CONFIG_PLACES_MAX];
    int *events = calloc((size_t)count + 1, sizeof(*events)), code = CTL_DONE;
    char **given = calloc((size_t)count + 1, sizeof(*given));
    if (!events || !given) {
        free(events);
        free(given);
        return err_set(err, ERR_MEMORY, "out of memory");
    }
    memset(are_there, true, sizeof(are_there));
    ctl->is_in_each = true;
    for (int i = 0; i < count; i++)
        events[i] = NOWHERE;
    if (!ctl->command->is_before_schema)
        code = find_events(ctl, arguments, count, events, are_there);
    for (int place = 0; place < ctl->config->database.places && code != CTL_USAGE; place++) {
        int left;
        if (!are_there[place] || !choose(arguments, count, events, place, given, &left))
            continue;
        int of_this = run_in(ctl, place, given, left, err) ? ctl->code : ctl_fail(err);
        code = of_this == CTL_USAGE ? of_this : ctl_worse(code, of_this);
    }
    free(events);
    free(given);
    ctl->code = code;
    return true;
}

bool places_run(struct ctl *ctl, const char *wanted, char **arguments, int count, struct err *err)
{
    const struct ctl_command *command = ctl->command;
    int64_t place;
    if (command->ignores_config)
        return command->run(ctl, arguments, count, err);
    if (!read_wanted(ctl->config, wanted, &place, err))
        return false;
    if (command->in_places == CTL_AS_A_WHOLE && wanted)
        return err_set(err, ERR_USAGE, "%s goes through the places itself: it takes no --place", command->word);
    if (command->in_places == CTL_AS_A_WHOLE || ctl->config->database.places == 1)
        return command->run(ctl, arguments, count, err);
    if (place == ALL && command->in_places == CTL_IN_ONE)
        return err_set(err, ERR_USAGE, "%s works in one of the %" PRId64 " places: --place N", command->word,
                       ctl->config->database.places);
    if (place != ALL)
        return run_in(ctl, (int)place, arguments, count, err);
    ctl->is_over_all = command->in_places == CTL_OVER_ALL;
    return ctl->is_over_all ? command->run(ctl, arguments, count, err) : run_in_each(ctl, arguments, count, err);
}

void places_each(struct ctl *ctl, bool (*run)(struct ctl *ctl, void *context, struct err *err), void *context)
{
    int code = CTL_DONE;
    for (int place = 0; place < ctl->config->database.places; place++) {
        struct err err;
        if (ctl->config->database.places > 1)
            announce(ctl, place);
        ctl->code = CTL_DONE;
        int of_this = run(ctl, context, &err) ? ctl->code : ctl_fail(&err);
        fflush(stdout);
        code = ctl_worse(code, of_this);
    }
    ctl->code = code;
}
