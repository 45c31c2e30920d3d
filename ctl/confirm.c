/* See confirm.h.
 *
 * Invariants: a script never waits for an answer; what cannot be read as yes is no.
 * Left out: what the answer no means, which the command says. */
#include "ctl/confirm.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "common/lib/base/clock.h"
#include "ctl/pick.h"
#include "ctl/print.h"
#include "ctl/stop.h"

#define ANSWER_MAX 16

bool confirm_count(struct pg_sync *db, const struct filter *filter, int64_t most, int64_t limit_ms, int64_t *ret_count,
                   int64_t *ret_horizon_us, bool *ret_has_more, struct err *err)
{
    struct pick pick;
    struct pick_row found;
    int64_t count = 0, horizon_us;
    if (!pick_open(&pick, db, filter, false, err))
        return false;
    horizon_us = pick.now_us;
    int64_t begun_ms = clock_mono_ms();
    while (!pick_is_over(&pick) && (most == 0 || count < most) && !stop_is_requested() &&
           (limit_ms == 0 || clock_mono_ms() - begun_ms <= limit_ms)) {
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
    *ret_has_more = !pick_is_over(&pick);
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

bool confirm_many(const char *verb, int64_t count, const char *status, const char *behind)
{
    char answer[ANSWER_MAX], number[PRINT_NUMBER_SIZE];
    if (!is_terminal())
        return true;
    fprintf(stderr, "%s %s %s event%s%s? [y/N] ", verb, print_number(count, number), status, count == 1 ? "" : "s",
            behind);
    fflush(stderr);
    return read_answer(answer) && (strcasecmp(answer, "y") == 0 || strcasecmp(answer, "yes") == 0);
}
