/* See confirm.h.
 *
 * Invariants: a script never waits for an answer; what cannot be read as yes is no.
 * Left out: what the answer no means, which the command says. */
#include "ctl/confirm.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "ctl/each_cell.h"
#include "ctl/pick.h"
#include "ctl/print.h"
#include "ctl/stop.h"

#define ANSWER_MAX 16

bool confirm_count(struct pg_sync *db, const struct filter *filter, int64_t most, int64_t *ret_count,
                   int64_t *ret_horizon_us, struct err *err)
{
    struct pick pick;
    struct pick_row found;
    int64_t count = 0, horizon_us;
    if (!pick_open(&pick, db, filter, false, err))
        return false;
    horizon_us = pick.now_us;
    while (!pick_is_over(&pick) && (most == 0 || count < most) && !stop_is_requested()) {
        pg_rows_scope struct pg_rows *rows = NULL;
        if (!pick_read(&pick, db, &rows, err))
            return false;
        for (int row = 0; row < pg_rows_count(rows) && (most == 0 || count < most); row++) {
            if (!pick_row(rows, row, &found))
                continue;
            count++;
            horizon_us = found.updated_us > horizon_us ? found.updated_us : horizon_us;
        }
    }
    *ret_count = count;
    *ret_horizon_us = horizon_us;
    return true;
}

/* By read(2), because a signal must end the wait, and stdio would go on. */
static bool read_answer(char ret_answer[ANSWER_MAX])
{
    size_t length = 0;
    char byte;
    while (!stop_is_requested() && read(STDIN_FILENO, &byte, 1) == 1 && byte != '\n')
        if (length + 1 < ANSWER_MAX)
            ret_answer[length++] = byte;
    ret_answer[length] = '\0';
    return !stop_is_requested();
}

/* Somebody sits there who can answer. */
static bool is_terminal(void)
{
    /* guard: a script is never asked */
    return isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
}

bool confirm_ask(const char *question)
{
    char answer[ANSWER_MAX];
    if (!is_terminal())
        return true;
    fprintf(stderr, "%s [y/N] ", question);
    fflush(stderr);
    return read_answer(answer) && (strcasecmp(answer, "y") == 0 || strcasecmp(answer, "yes") == 0);
}

enum confirm_answer confirm_many(const struct ctl *ctl, const char *verb, int64_t count, const char *status,
                                 const char *behind, int64_t horizon_us)
{
    struct each_cell *each = ctl->each;
    char question[200], number[PRINT_NUMBER_SIZE];
    if (!is_terminal() || (each && each->is_acting))
        return CONFIRM_YES;
    if (each) {
        each->is_asked[each->at] = true;
        each->matches[each->at] = count;
        each->horizon_us[each->at] = horizon_us;
        snprintf(each->verb, sizeof(each->verb), "%s", verb);
        snprintf(each->status, sizeof(each->status), "%s", status);
        snprintf(each->behind, sizeof(each->behind), "%s", behind);
        return CONFIRM_LATER;
    }
    snprintf(question, sizeof(question), "%s %s %s event%s%s?", verb, print_number(count, number), status,
             count == 1 ? "" : "s", behind);
    return confirm_ask(question) ? CONFIRM_YES : CONFIRM_NO;
}
