"""The guards of a move as a whole: what goes along, in which order the steps come, and what is refused meanwhile. The
story that proves each has programs, clients and the ledger of the sandbox in it. As guards.py."""

SQL, STEPS, TRANSIT = "migrations/schema/15_cells.sql", "ctl/cells/cell_steps.c", "ctl/cells/cell_transit.c"


def left_out(table, line, test):
    """A table that is neither copied nor compared."""
    return dict(name="%s move with their users" % table, file=SQL, line=line,
                becomes=line.replace("u.user_id'", "NULL'").replace("e.id'", "NULL'"), test=test)


CELL_STORY_GUARDS = [
    left_out("keys", "issuing.idempotency_keys t ON t.user_id = u.user_id'",
             "e2e/keys keep their answers while their bucket moves there and back"),
    left_out("limit rows", "issuing.rate_limit_log t ON t.user_id = u.user_id'",
             "e2e/the limit counts what was accepted in the other cell"),
    left_out("cards", "issuing.cards t ON t.user_id = u.user_id'",
             "e2e/a card is shown replaced and revealed in its new cell"),
    left_out("reissues", "issuing.card_reissues t ON t.user_id = u.user_id'",
             "e2e/a card is replaced once though its user asks in both cells"),
    left_out("reveals", "issuing.number_reveals t ON t.user_id = u.user_id'",
             "e2e/the bound of reveals holds over both cells"),
    left_out("marks", "issuing.peer_checks t ON t.event_id = e.id'",
             "e2e/marks that wait are done in the other cell"),
    dict(
        name="a user who writes while the bucket is listed is recorded",
        file="migrations/schema/15_cells.sql",
        line="PERFORM issuing.cell_note_users(users);",
        becomes="            PERFORM 1;",
        test="e2e/a user who first comes during the move goes along",
    ),
    dict(
        name="a claim that began before the drain is waited for",
        file="migrations/schema/15_cells.sql",
        line="PERFORM pg_advisory_xact_lock(4713, -1);",
        becomes="",
        test="e2e/a claim that began before the move is awaited",
    ),
    dict(
        name="a move waits for attempts under way",
        file=TRANSIT,
        line="        if (busy == 0)\n            return true;",
        becomes="        if (busy >= 0)\n            return err_set(err, ERR_REFUSED, \"busy\") || busy == 0;",
        test="e2e/a move waits for the attempts under way",
    ),
    dict(
        name="the source leaves before the destination has the bucket",
        file=STEPS,
        line="        return CELL_STEP_LEAVE;",
        becomes="        return CELL_STEP_ARRIVE;",
        test="e2e/each step of a move answers as the page says and a repeat is a replay",
    ),
    dict(
        name="a bucket that has left is not read in its old cell",
        file="migrations/statements/requests.sql",
        line="AND e.user_id = $2::text AND e.event_type = 'CARD_ISSUE'\n"
             "  AND (SELECT NOT EXISTS (SELECT FROM issuing.cell_buckets) OR issuing.demand_here($2::text));",
        becomes="AND e.user_id = $2::text AND e.event_type = 'CARD_ISSUE';",
        test="e2e/each step of a move answers as the page says and a repeat is a replay",
    ),
    dict(
        name="an undo waits for the copy under way",
        file="migrations/statements/cells.sql",
        line="AND b.state = 'arriving' AND b.move_id = $2::uuid FOR UPDATE)",
        becomes="AND b.state = 'arriving' AND b.move_id = $2::uuid)",
        test="e2e/a mover that slept in its copy does no harm after an undo",
    ),
    dict(
        name="ended events are counted where they are",
        file="migrations/schema/15_cells.sql",
        line="PERFORM issuing.cell_count(events, 1);",
        becomes="        PERFORM issuing.cell_count(events, 0);",
        test="e2e/ended events are counted once over all cells",
    ),
    dict(
        name="the router is told of each bucket as it arrives",
        file=TRANSIT,
        line="    transit->report->unrouted = cell_router_flip(router, transit->bucket, transit->destination->name);\n",
        becomes="    transit->report->unrouted = 0;\n",
        test="e2e/each bucket is told to the router before the next one moves",
    ),
    dict(
        name="a closed source is opened when the destination dies",
        file=TRANSIT,
        line="    if (state == CELL_CLOSED && !has_session(transit->destination) && transit->wish == CELL_WISH_MOVE) {",
        becomes="    if (state == CELL_CLOSED && transit->is_hasty && transit->wish == CELL_WISH_MOVE) {",
        test="e2e/a source that is closed is opened at once when the destination dies",
    ),
    dict(
        name="an undo needs no destination to open the source",
        file=TRANSIT,
        line="    if (can_open(transit) && !has_session(destination)) {",
        becomes="    if (can_open(transit) && has_session(destination)) {",
        test="e2e/an undo opens the source while the destination is away",
    ),
    dict(
        name="numbers of a bucket that moves are not sealed again",
        file="ctl/rewrap.c",
        line="        if (is_barred(rewrap, verdicts, row))\n",
        becomes="        if (is_barred(rewrap, verdicts, row) && rewrap->rate < 0)\n",
        test="e2e/card numbers of a bucket that moves are sealed again after it has moved",
    ),
    dict(
        name="verify compares a copy whose source is closed",
        file="ctl/cells/cell_verify.c",
        line="    return state == CELL_CLOSED || state == CELL_GONE;",
        becomes="    return state == CELL_GONE;",
        test="e2e/verify names the table in which an unfinished copy differs",
    ),
]
