"""The guards of cells: what keeps a user in one cell, and the test that proves each line. As guards.py."""


CELL_GUARDS = [
    dict(
        name="acceptance looks whether the user's bucket is here",
        file="migrations/schema/03_accept.sql",
        line="WHEN barred[a.n] IS NOT NULL THEN barred[a.n]",
        becomes="",
        test="db/cells",
    ),
    dict(
        name="whoever passes the gate holds the bucket's lock",
        file="migrations/schema/15_cells.sql",
        line="SELECT b.bucket, pg_try_advisory_xact_lock_shared(4713, b.bucket) AS is_free",
        becomes="SELECT b.bucket, true AS is_free",
        test="db/cells_races",
    ),
    dict(
        name="an insert of another service holds the bucket's lock",
        file="migrations/schema/15_cells.sql",
        line="is_free bool := pg_try_advisory_xact_lock_shared(4713, of_user);",
        becomes="        is_free bool := true;",
        test="db/cells_races",
    ),
    dict(
        name="a claim holds the lock of claims",
        file="migrations/schema/04_claim.sql",
        line="PERFORM pg_advisory_xact_lock_shared(4713, -1);",
        becomes="",
        test="db/cells_races",
    ),
    dict(
        name="whoever parks a bucket waits for the claims under way",
        file="migrations/schema/15_cells.sql",
        line="PERFORM pg_advisory_xact_lock(4713, -1);",
        becomes="",
        test="db/cells_races",
    ),
    dict(
        name="no claim with an old snapshot",
        file="migrations/schema/04_claim.sql",
        line="RAISE EXCEPTION 'issuing.claim needs READ COMMITTED, not %',",
        becomes="        RAISE WARNING 'issuing.claim needs READ COMMITTED, not %',",
        test="db/cells_races",
    ),
    dict(
        name="a read of what does not exist is refused where the bucket is not",
        file="migrations/statements/requests.sql",
        line="AND (SELECT NOT EXISTS (SELECT FROM issuing.cell_buckets) OR issuing.demand_here($2::text));\n"
             "\n"
             "-- name: request_list",
        becomes="  AND (SELECT NOT EXISTS (SELECT FROM issuing.cell_buckets)\n"
                "       OR e.user_id IS NOT NULL AND issuing.demand_here($2::text));\n"
                "\n"
                "-- name: request_list",
        test="db/cells",
    ),
    dict(
        name="the mover waits for those who have passed the gate",
        file="migrations/schema/15_cells.sql",
        line="PERFORM pg_advisory_xact_lock(4713, of_bucket);",
        becomes="",
        test="db/cells_races",
    ),
    dict(
        name="a transaction with an old snapshot locks the row of the bucket",
        file="migrations/schema/15_cells.sql",
        line="WHERE c.bucket = of_user FOR SHARE;",
        becomes="WHERE c.bucket = of_user;",
        test="db/cells_races",
    ),
    dict(
        name="a transaction from before the cell passes no gate",
        file="migrations/schema/15_cells.sql",
        line="IF NOT FOUND THEN\n"
             "            RAISE EXCEPTION 'the database became a cell",
        becomes="            IF false THEN\n"
                "                RAISE EXCEPTION 'the database became a cell",
        test="db/cells_races",
    ),
    dict(
        name="no claim takes an event of a bucket that is in another cell",
        file="migrations/schema/04_claim.sql",
        line="AND (NOT is_cell OR (SELECT b.state FROM",
        becomes="          AND (true OR (SELECT b.state FROM",
        test="db/cells",
    ),
    dict(
        name="a claim passes over events that are parked",
        file="migrations/schema/04_claim.sql",
        line="= inserted)\n"
             "          AND (parked IS NULL OR issuing.bucket_of(e.user_id) <> ALL (parked))",
        becomes="= inserted)",
        test="db/cells",
    ),
    dict(
        name="the claim of an ordered type passes over events that are parked",
        file="migrations/schema/04_claim.sql",
        line="AND e.status = 'PENDING' AND e.lost_count < 2\n"
             "            AND (parked IS NULL OR issuing.bucket_of(e.user_id) <> ALL (parked))",
        becomes="                AND e.status = 'PENDING' AND e.lost_count < 2",
        test="db/cells",
    ),
    dict(
        name="the bookmark follows what a claim has looked at",
        file="migrations/schema/04_claim.sql",
        line="FROM due h;",
        becomes="    FROM held h;",
        test="db/cells",
    ),
    dict(
        name="a sweep moves no bookmark back to events that are parked",
        file="migrations/statements/outbox.sql",
        line="AND issuing.bucket_of(e.user_id) <> ALL (coalesce((SELECT issuing.cell_parked()), '{}'))",
        becomes="",
        test="db/cells",
    ),
    dict(
        name="a mark that is parked hides no other",
        file="migrations/schema/10_marks.sql",
        line="OR issuing.bucket_of(e.user_id) = ANY (parked)",
        becomes="",
        test="db/cells",
    ),
    dict(
        name="a bucket is not closed while attempts are under way",
        file="migrations/schema/15_cells.sql",
        line="AND issuing.cell_busy(of_bucket) > 0 THEN",
        becomes="           AND false THEN",
        test="db/cells_races",
    ),
    dict(
        name="a bucket is not closed while attempts are under way behind a backlog",
        file="migrations/schema/15_cells.sql",
        line="WHERE e.due_at IS NOT NULL AND e.status = 'PROCESSING';",
        becomes="            WHERE false;",
        test="db/cells_races",
    ),
    dict(
        name="a mark that a worker has keeps its bucket open",
        file="migrations/schema/15_cells.sql",
        line="WHERE p.finished_at IS NULL AND p.lease_token IS NOT NULL AND p.due_at > now()",
        becomes="WHERE false",
        test="db/cells_races",
    ),
    dict(
        name="the scan for users waits for those who wrote before the list",
        file="migrations/schema/15_cells.sql",
        line="AND l.virtualtransaction = ANY (writers)) LOOP",
        becomes="                      AND false) LOOP",
        test="db/cells_races",
    ),
    dict(
        name="who writes while a bucket is listed is recorded",
        file="migrations/schema/15_cells.sql",
        line="PERFORM issuing.cell_note_users(users);",
        becomes="            NULL;",
        test="db/cells",
    ),
    dict(
        name="an insert of another service records its user",
        file="migrations/schema/15_cells.sql",
        line="PERFORM issuing.cell_note_users(ARRAY[NEW.user_id]);",
        becomes="            NULL;",
        test="db/cells",
    ),
    dict(
        name="a step is of its move",
        file="migrations/schema/15_cells.sql",
        line="ELSIF (b.move_id = move AND b.state = ANY (befores)) IS NOT TRUE THEN",
        becomes="        ELSIF (b.state = ANY (befores)) IS NOT TRUE THEN",
        test="db/cells_races",
    ),
    dict(
        name="a step is of its state",
        file="migrations/schema/15_cells.sql",
        line="ELSIF (b.move_id = move AND b.state = ANY (befores)) IS NOT TRUE THEN",
        becomes="        ELSIF (b.move_id = move) IS NOT TRUE THEN",
        test="db/cells_races",
    ),
    dict(
        name="a read is refused where the bucket is not",
        file="migrations/schema/15_cells.sql",
        line="ELSIF found_state IN ('gone', 'away') THEN\n"
             "        RAISE EXCEPTION 'the bucket of this user is in another cell' USING ERRCODE = 'IS002';\n"
             "    END IF;\n"
             "    RETURN true;",
        becomes="        END IF;\n"
                "        RETURN true;",
        test="db/cells",
    ),
    dict(
        name="a number is shown only where the bucket is",
        file="migrations/schema/11_numbers.sql",
        line="PERFORM issuing.demand_open(holder);",
        becomes="",
        test="db/cells",
    ),
    dict(
        name="the keys move with their bucket",
        file="migrations/schema/15_cells.sql",
        line="(4, 'idempotency_keys', users || ' JOIN issuing.idempotency_keys t ON t.user_id = u.user_id'),",
        becomes="",
        test="db/cells_moves",
    ),
    dict(
        name="the tries of the limit move with their bucket",
        file="migrations/schema/15_cells.sql",
        line="(5, 'rate_limit_log', users || ' JOIN issuing.rate_limit_log t ON t.user_id = u.user_id'),",
        becomes="",
        test="db/cells_moves",
    ),
    dict(
        name="an event that is copied takes no place of a card",
        file="migrations/schema/08_enqueue.sql",
        line="OR NEW.status = 'REJECTED' OR issuing.cell_is_copy(NEW.user_id) THEN",
        becomes="           OR NEW.status = 'REJECTED' THEN",
        test="db/cells_moves",
    ),
    dict(
        name="only the owner copies into a bucket that arrives",
        file="migrations/schema/15_cells.sql",
        line="AND pg_has_role(coalesce(nullif(current_setting('role'), 'none'), session_user)::name,",
        becomes="           AND pg_has_role(session_user,",
        test="db/cells_moves",
    ),
    dict(
        name="rows that are being copied are not counted",
        file="migrations/schema/14_statistics.sql",
        line="AND (arriving IS NULL OR issuing.bucket_of(e.user_id) <> ALL (arriving))) g",
        becomes="                ) g",
        test="db/cells_moves",
    ),
    dict(
        name="what leaves a cell leaves its statistics",
        file="migrations/schema/15_cells.sql",
        line="deleted := issuing.cell_delete(of_bucket, most, true);",
        becomes="        deleted := issuing.cell_delete(of_bucket, most, false);",
        test="db/cells_moves",
    ),
    dict(
        name="a settled partition that gets rows is judged anew",
        file="migrations/schema/15_cells.sql",
        line="UPDATE partitions p SET settled_at = NULL, still_open = '{}'\n"
             "    WHERE p.settled_at IS NOT NULL AND p.parent IN",
        becomes="        UPDATE partitions p SET settled_at = NULL, still_open = '{}'\n"
                "        WHERE false AND p.parent IN",
        test="db/cells_moves",
    ),
    dict(
        name="cells whose clocks differ exchange no bucket",
        file="migrations/schema/15_cells.sql",
        line="IF abs(extract(epoch FROM clock_timestamp() - source_clock)) > 1 THEN",
        becomes="        IF false THEN",
        test="db/cells_moves",
    ),
    dict(
        name="a cell has only users of its buckets from its beginning",
        file="migrations/schema/15_cells.sql",
        line="IF strays > 0 THEN",
        becomes="            IF false THEN",
        test="db/cells",
    ),
]
