/* --cell all: one command in every cell, one after the other. A cell that is away or refuses does not stop the others.
 *
 * A command runs in each cell as it would by itself. Three kinds say more, before they do anything; ctl->each is NULL
 * without --cell all, and then each of the functions below does nothing:
 * - what is about ids or one user runs only where these live: each_cell_is_about_ids(), each_cell_is_about_user();
 * - what asks before it acts on many events asks once, with the sum over all cells: confirm_many() (confirm.h);
 * - what all cells must agree to acts only then: each_cell_agrees(). */
#ifndef ISSUING_CTL_EACH_CELL_H
#define ISSUING_CTL_EACH_CELL_H

#include "common/base/base.h"
#include "common/base/err.h"
#include "ctl/ctl.h"

#define EACH_CELL_TEXT_SIZE 64

struct each_cell {
    int at;         /* the cell at work, in config->cells */
    bool is_acting; /* the second run: what was asked was answered with yes */
    /* of the question */
    bool is_asked[CONFIG_CELLS_MAX];
    int64_t matches[CONFIG_CELLS_MAX], horizon_us[CONFIG_CELLS_MAX];
    char verb[EACH_CELL_TEXT_SIZE], status[EACH_CELL_TEXT_SIZE], behind[EACH_CELL_TEXT_SIZE];
    bool needs_all; /* what all cells must agree to */
    int64_t acted;  /* events, of what --limit allows */
    /* What the command is about; the texts are borrowed from its arguments. id_count 0: no ids. */
    char **ids; /* owned, as many as there are arguments */
    int id_count;
    const char *event, *user; /* NULL = none */
};

/* How many characters the names of cells take in front of the lines. */
int each_cell_width(const struct ctl *ctl);
/* Runs the command in every cell. The exit code is the worst one. arguments are left as they are. */
int each_cell_run(struct ctl *ctl, const struct ctl_command *command, char **arguments, int count);

/* True: the command returns CTL_DONE, and is run again in the cells that have the ids, each with its own. The ids were
 * checked. */
must_check bool each_cell_is_about_ids(const struct ctl *ctl, char **ids, int count);
/* The same for the value of an option; where no cell has the event, all are asked. */
must_check bool each_cell_is_about_event(const struct ctl *ctl, const char *id);
must_check bool each_cell_is_about_user(const struct ctl *ctl, const char *user);
/* True: the command returns CTL_DONE, and is run again, once, when every cell has said so. */
must_check bool each_cell_agrees(const struct ctl *ctl);
/* How many events the command may still act on; limit 0 = any number. False: none, all of them are done. */
must_check bool each_cell_limit(const struct ctl *ctl, int64_t *limit);
void each_cell_acted(const struct ctl *ctl, int64_t count);
/* In the second run what was counted for the question. False: nothing was. */
must_check bool each_cell_counted(const struct ctl *ctl, int64_t *ret_matches, int64_t *ret_horizon_us);

#endif
