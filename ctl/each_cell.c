/* See each_cell.h.
 *
 * Invariants: a wrong command line ends everything before the first cell is changed; what is about an id changes
 * nothing unless exactly one cell owns it; a question is asked once, and the second run leaves alone what has changed
 * since it was counted.
 * Left out: the commands, and the names in front of the lines (lines.c). */
#include "ctl/each_cell.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/action.h"
#include "ctl/confirm.h"
#include "ctl/each_cell_find.h"
#include "ctl/lines.h"
#include "ctl/print.h"
#include "ctl/stop.h"

/* ---- what commands say ---- */

/* The first run, which only finds out what the command is about. */
static struct each_cell *first_run(const struct ctl *ctl)
{
    return ctl->each && !ctl->each->is_acting ? ctl->each : NULL;
}

bool each_cell_is_about_ids(const struct ctl *ctl, char **ids, int count)
{
    struct each_cell *each = first_run(ctl);
    if (!each || count == 0)
        return false;
    memcpy(each->ids, ids, (size_t)count * sizeof(*ids));
    each->id_count = count;
    return true;
}

bool each_cell_is_about_event(const struct ctl *ctl, const char *id)
{
    struct each_cell *each = first_run(ctl);
    if (each)
        each->event = id;
    return each && id;
}

bool each_cell_is_about_user(const struct ctl *ctl, const char *user)
{
    struct each_cell *each = first_run(ctl);
    if (each)
        each->user = user;
    return each && user;
}

bool each_cell_agrees(const struct ctl *ctl)
{
    struct each_cell *each = first_run(ctl);
    if (each)
        each->needs_all = true;
    return each;
}

bool each_cell_limit(const struct ctl *ctl, int64_t *limit)
{
    if (!ctl->each || *limit == 0)
        return true;
    /* guard: a limit holds for all cells together */
    *limit -= ctl->each->acted;
    return *limit > 0;
}

void each_cell_acted(const struct ctl *ctl, int64_t count)
{
    if (ctl->each)
        ctl->each->acted += count;
}

bool each_cell_counted(const struct ctl *ctl, int64_t *ret_matches, int64_t *ret_horizon_us)
{
    const struct each_cell *each = ctl->each;
    if (!each || !each->is_acting || !each->is_asked[each->at])
        return false;
    *ret_matches = each->matches[each->at];
    /* guard: one answer is for what was counted in all cells */
    *ret_horizon_us = each->horizon_us[each->at];
    return true;
}

/* ---- one cell ---- */

int each_cell_width(const struct ctl *ctl)
{
    const struct config *config = ctl->config;
    int longest = (int)strlen("CELL");
    for (int i = 0; i < config->cell_count; i++)
        if ((int)strlen(config->cells[i].name) > longest)
            longest = (int)strlen(config->cells[i].name);
    return longest;
}

/* Runs the command in one cell with a copy of its arguments, since a command sorts them. */
static int run_in(struct ctl *ctl, int cell, const struct ctl_command *command, char **arguments, int count)
{
    char **copy = calloc((size_t)count + 1, sizeof(*copy));
    struct err err;
    int code;
    ctl->each->at = cell;
    ctl->cell = &ctl->config->cells[cell];
    if (command->is_page && ctl->each->is_acting) {
        lines_name(ctl->cell->name);
        if (!ctl->json)
            printf("%-16s %s\n", "cell", ctl->cell->name);
    } else {
        lines_begin(ctl->cell->name, each_cell_width(ctl), ctl->json);
    }
    if (copy) {
        if (count > 0)
            memcpy(copy, arguments, (size_t)count * sizeof(*copy));
        code = command->run(ctl, copy, count);
    } else {
        err_set(&err, ERR_MEMORY, "out of memory");
        code = ctl_fail(&err);
    }
    lines_end();
    pg_sync_close(ctl->db);
    ctl->db = NULL;
    ctl->cell = NULL;
    free(copy);
    return code;
}

static int worse(int one, int other)
{
    return one > other ? one : other;
}

/* "issuing-ctl: 2 of 3 cells are done; eu-2: away (exit 75)". */
static void print_failures(const struct ctl *ctl, const int *codes, const bool *has_run)
{
    int runs = 0, done = 0;
    for (int i = 0; i < ctl->config->cell_count; i++) {
        runs += has_run[i];
        done += has_run[i] && codes[i] == CTL_DONE;
    }
    if (done == runs)
        return;
    fflush(stdout);
    fprintf(stderr, "issuing-ctl: %d of %d cells done;", done, runs);
    for (int i = 0; i < ctl->config->cell_count; i++)
        if (has_run[i] && codes[i] != CTL_DONE)
            fprintf(stderr, " %s: %s (exit %d)", ctl->config->cells[i].name,
                    codes[i] == CTL_AWAY     ? "away, or no answer in time"
                    : codes[i] == CTL_CONFIG ? "configuration"
                                             : "failed or refused",
                    codes[i]);
    fputc('\n', stderr);
}

/* ---- what is about ids or a user ---- */

/* The arguments without the ids that do not live in this cell, which were found with them. */
static int keep_arguments(const struct each_cell *each, const struct found *found, int cell, char **arguments,
                          int count, char **ret_kept)
{
    int kept = 0;
    for (int i = 0; i < count; i++) {
        bool is_elsewhere = false;
        for (int j = 0; j < each->id_count; j++)
            is_elsewhere =
                is_elsewhere || (each->ids[j] == arguments[i] && (found[j].owner_count != 1 || found[j].owner != cell));
        if (!is_elsewhere)
            ret_kept[kept++] = arguments[i];
    }
    return kept;
}

static int report_unfound(struct ctl *ctl, const struct found *found, const char *id)
{
    char what[80], why[400];
    struct err err;
    snprintf(what, sizeof(what), "event %.60s", id);
    int code = found_code(ctl, found, what, why, sizeof(why));
    if (code == CTL_DONE)
        return code;
    if (ctl->each->id_count > 1)
        return action_report(ctl, id, ACTION_REFUSED, NULL, why, &err) ? code : ctl_fail(&err);
    err_set(&err, ERR_REFUSED, "%s", why);
    (void)ctl_fail(&err);
    return code;
}

static int run_where_ids_are(struct ctl *ctl, const struct ctl_command *command, char **arguments, int count)
{
    char **ids = ctl->each->ids;
    struct found *found = NULL;
    struct err err;
    char **kept = calloc((size_t)count + 1, sizeof(*kept));
    int code = CTL_DONE;
    if (!kept || !find_events(ctl, ids, ctl->each->id_count, &found, &err)) {
        if (!kept)
            err_set(&err, ERR_MEMORY, "out of memory");
        free(kept);
        return ctl_fail(&err);
    }
    for (int i = 0; i < ctl->each->id_count; i++)
        code = worse(code, report_unfound(ctl, &found[i], ids[i]));
    ctl->each->is_acting = true;
    for (int cell = 0; cell < ctl->config->cell_count && !stop_is_requested(); cell++) {
        bool has_some = false;
        for (int i = 0; i < ctl->each->id_count; i++)
            has_some = has_some || (found[i].owner_count == 1 && found[i].owner == cell);
        if (has_some)
            code = worse(
                code, run_in(ctl, cell, command, kept, keep_arguments(ctl->each, found, cell, arguments, count, kept)));
    }
    free(found);
    free(kept);
    return code;
}

static int run_where_user_is(struct ctl *ctl, const struct ctl_command *command, const struct found *found,
                             const char *what, char **arguments, int count)
{
    char why[400];
    struct err err;
    int code = found_code(ctl, found, what, why, sizeof(why));
    ctl->each->is_acting = true;
    if (code == CTL_DONE)
        return run_in(ctl, found->owner, command, arguments, count);
    err_set(&err, ERR_REFUSED, "%s", why);
    (void)ctl_fail(&err);
    return code;
}

/* ---- in every cell ---- */

static int run_everywhere(struct ctl *ctl, const struct ctl_command *command, char **arguments, int count)
{
    int codes[CONFIG_CELLS_MAX] = {0}, worst = CTL_DONE;
    bool has_run[CONFIG_CELLS_MAX] = {false};
    for (int cell = 0; cell < ctl->config->cell_count; cell++) {
        if (stop_is_requested()) {
            fprintf(stderr, "issuing-ctl: stopped before the cell %s\n", ctl->config->cells[cell].name);
            worst = worse(worst, CTL_REFUSED);
            break;
        }
        codes[cell] = run_in(ctl, cell, command, arguments, count);
        has_run[cell] = true;
        worst = worse(worst, codes[cell]);
        if (codes[cell] == CTL_USAGE ||
            (!ctl->each->is_acting && (ctl->each->id_count > 0 || ctl->each->event || ctl->each->user)))
            return codes[cell];
    }
    print_failures(ctl, codes, has_run);
    return worst;
}

/* "eu-1 1,000, eu-2 204" */
static int64_t sum_asked(const struct ctl *ctl, char *ret_parts, size_t size)
{
    const struct each_cell *each = ctl->each;
    int64_t sum = 0;
    size_t length = 0;
    char number[PRINT_NUMBER_SIZE];
    ret_parts[0] = '\0';
    for (int i = 0; i < ctl->config->cell_count; i++) {
        if (!each->is_asked[i])
            continue;
        sum += each->matches[i];
        if (length < size)
            length += (size_t)snprintf(ret_parts + length, size - length, "%s%s %s", length > 0 ? ", " : "",
                                       ctl->config->cells[i].name, print_number(each->matches[i], number));
    }
    return sum;
}

/* Asks once for all cells, and acts in those that have something to act on. */
static int ask_and_act(struct ctl *ctl, const struct ctl_command *command, int code, char **arguments, int count)
{
    struct each_cell *each = ctl->each;
    char parts[1200], question[1700], number[PRINT_NUMBER_SIZE];
    int64_t sum = sum_asked(ctl, parts, sizeof(parts));
    snprintf(question, sizeof(question), "%s %s %s event%s%s in all cells (%s)%s?", each->verb,
             print_number(sum, number), each->status, sum == 1 ? "" : "s", each->behind, parts,
             code == CTL_DONE ? "" : ", and none in the cells that failed");
    if (stop_is_requested() || !confirm_ask(question)) {
        fprintf(stderr, "%sNothing was changed.\n", stop_is_requested() ? "\n" : "");
        return worse(code, CTL_REFUSED);
    }
    each->is_acting = true;
    for (int cell = 0; cell < ctl->config->cell_count && !stop_is_requested(); cell++)
        if (each->is_asked[cell])
            code = worse(code, run_in(ctl, cell, command, arguments, count));
    return code;
}

static int act_if_all_agree(struct ctl *ctl, const struct ctl_command *command, int code, char **arguments, int count)
{
    /* guard: a key is retired when every cell agrees */
    if (code != CTL_DONE) {
        fprintf(stderr, "issuing-ctl: nothing was changed: every cell must agree\n");
        return code;
    }
    ctl->each->is_acting = true;
    return run_in(ctl, 0, command, arguments, count);
}

static bool is_any_asked(const struct each_cell *each)
{
    for (int i = 0; i < CONFIG_CELLS_MAX; i++)
        if (each->is_asked[i])
            return true;
    return false;
}

static int run_second(struct ctl *ctl, const struct ctl_command *command, int code, char **arguments, int count)
{
    struct each_cell *each = ctl->each;
    struct found user, *event = NULL;
    char what[120];
    struct err err;
    if (each->needs_all)
        return act_if_all_agree(ctl, command, code, arguments, count);
    if (is_any_asked(each))
        return ask_and_act(ctl, command, code, arguments, count);
    if (each->user) {
        snprintf(what, sizeof(what), "user %.80s", each->user);
        return find_user(ctl, each->user, &user, &err) ? run_where_user_is(ctl, command, &user, what, arguments, count)
                                                       : ctl_fail(&err);
    }
    if (!each->event)
        return code;
    char *one[] = {(char *)(uintptr_t)each->event};
    if (!find_events(ctl, one, 1, &event, &err))
        return ctl_fail(&err);
    each->is_acting = true;
    code = event->owner_count == 1 ? run_in(ctl, event->owner, command, arguments, count)
                                   : run_everywhere(ctl, command, arguments, count);
    free(event);
    return code;
}

int each_cell_run(struct ctl *ctl, const struct ctl_command *command, char **arguments, int count)
{
    struct each_cell each = {.ids = calloc((size_t)count + 1, sizeof(*each.ids))};
    struct err err;
    if (!each.ids) {
        err_set(&err, ERR_MEMORY, "out of memory");
        return ctl_fail(&err);
    }
    ctl->each = &each;
    int code = run_everywhere(ctl, command, arguments, count);
    if (code != CTL_USAGE && each.id_count > 0)
        code = run_where_ids_are(ctl, command, arguments, count);
    else if (code != CTL_USAGE)
        code = run_second(ctl, command, code, arguments, count);
    if (code != CTL_USAGE && command->after_all)
        code = worse(code, command->after_all(ctl));
    free(each.ids);
    ctl->each = NULL;
    return code;
}
