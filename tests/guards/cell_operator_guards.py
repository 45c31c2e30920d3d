"""The guards of operators who have several cells."""

CELL_OPERATOR_GUARDS = [
    dict(
        name="a program does not use the database of another cell",
        file="common/pg/pg_pool_slots.c",
        line="    slot->is_right_cell = name && strcmp(name, pool->options.cell) == 0;\n",
        becomes="    slot->is_right_cell = true;\n",
        test="e2e/the database of another cell is not used",
    ),
    dict(
        name="an operator does not act in the database of another cell",
        file="ctl/main.c",
        line="            return !ctl->cell || check_cell_name(ctl, err);\n",
        becomes="            return true;\n",
        test="e2e/the database of another cell is not used",
    ),
    dict(
        name="an operator acts on no copy of an event",
        file="ctl/each_cell_find.c",
        line="        if (!state || strcmp(state, owners[i]) == 0)\n",
        becomes="        if (owners[i])\n",
        test="e2e/an event is shown and changed only in the cell that owns its user",
    ),
    dict(
        name="a key is retired when every cell agrees",
        file="ctl/each_cell.c",
        line="    if (code != CTL_DONE) {\n        fprintf(stderr, \"issuing-ctl: nothing was changed: every cell must agree\\n\");\n",
        becomes="    if (code == CTL_USAGE) {\n        fprintf(stderr, \"issuing-ctl: nothing was changed: every cell must agree\\n\");\n",
        test="e2e/a key is retired only when no cell needs it",
    ),
    dict(
        name="one answer is for what was counted in all cells",
        file="ctl/each_cell.c",
        line="    *ret_horizon_us = each->horizon_us[each->at];\n",
        becomes="    *ret_horizon_us = INT64_MAX;\n",
        test="e2e/a bulk action asks once with the sum and leaves alone what came later",
    ),
    dict(
        name="a limit holds for all cells together",
        file="ctl/each_cell.c",
        line="    *limit -= ctl->each->acted;\n",
        becomes="",
        test="e2e/a bulk action asks once with the sum and leaves alone what came later",
    ),
    dict(
        name="a user of another cell is no failure of the database",
        file="common/daemon.c",
        line="    if (strncmp(sqlstate, \"IS\", 2) == 0)\n",
        becomes="    if (false)\n",
        test="e2e/users of another cell get 503 and the database counts as well",
    ),
]
