"""The guards of housekeeping, of locks that others might take, and of settings. As guards.py."""


HOUSEKEEPING_GUARDS = [
    dict(
        name="the user's lock comes first",
        file="migrations/schema/03_accept.sql",
        line="PERFORM pg_advisory_xact_lock(issuing.user_lock(user_ids[1], s.salt)) FROM lock_salt s;",
        becomes="            NULL;",
        test="db/accept_races",
    ),
    dict(
        name="the locks of a batch come first",
        file="migrations/schema/03_accept.sql",
        line="PERFORM pg_advisory_xact_lock(l.h)\n"
             "            FROM (SELECT issuing.user_lock(u.user_id, s.salt) AS h\n"
             "                  FROM unnest(user_ids) AS u (user_id), lock_salt s ORDER BY 1 OFFSET 0) AS l;",
        becomes="",
        test="db/accept_races",
    ),
    dict(
        name="no stranger can name a user's lock",
        file="migrations/schema/03_accept.sql",
        line="PERFORM pg_advisory_xact_lock(issuing.user_lock(user_ids[1], s.salt)) FROM lock_salt s;",
        becomes="            PERFORM pg_advisory_xact_lock(hashtextextended(user_ids[1], 4711));",
        test="db/acceptor",
    ),
    dict(
        name="one worker at a time does the housekeeping",
        file="migrations/schema/12_housekeeping.sql",
        line="IF NOT issuing.take_turn('housekeeping') THEN\n"
             "            RETURN QUERY SELECT 'busy', NULL, 0::int8, NULL, false;",
        becomes="        IF false THEN\n"
                "            RETURN QUERY SELECT 'busy', NULL, 0::int8, NULL, false;",
        test="db/housekeeping_partitions",
    ),
    dict(
        name="a turn that is kept is a failure",
        file="migrations/schema/12_housekeeping.sql",
        line="interval '90 s' THEN 'busy' ELSE 'failed' END,",
        becomes="interval '90 s' THEN 'busy' ELSE 'busy' END,",
        test="db/housekeeping_partitions",
    ),
    dict(
        name="a partition is made in UTC whatever the session says",
        file="migrations/schema/12_housekeeping.sql",
        line="new_to timestamptz) RETURNS void\n"
             "LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp\n"
             "SET datestyle = 'ISO, YMD' SET timezone = 'UTC'",
        becomes="new_to timestamptz) RETURNS void\n"
                "    LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp",
        test="db/housekeeping_partitions",
    ),
    dict(
        name="a promise is made in UTC whatever the session says",
        file="migrations/schema/12_housekeeping.sql",
        line="to_at timestamptz) RETURNS void\n"
             "LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp\n"
             "SET datestyle = 'ISO, YMD' SET timezone = 'UTC'",
        becomes="to_at timestamptz) RETURNS void\n"
                "    LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp",
        test="db/housekeeping_partitions",
    ),
    dict(
        name="a promised range begins after a day",
        file="migrations/schema/12_housekeeping.sql",
        line="CASE WHEN is_large THEN interval '1 day 15 minutes' ELSE",
        becomes="CASE WHEN is_large THEN interval '15 minutes' ELSE",
        test="db/housekeeping_partitions",
    ),
    dict(
        name="a plan that is not done in time is taken back",
        file="migrations/schema/12_housekeeping.sql",
        line="IF is_overdue OR now() > n.planned_at + interval '10 minutes'\n"
             "               OR n.from_at < now() + interval '12 hours' THEN",
        becomes="            IF false THEN",
        test="db/housekeeping_partitions",
    ),
    dict(
        name="a partition of a clock that was ahead is not what comes next",
        file="migrations/schema/12_housekeeping.sql",
        line="WHERE q.parent = kind.parent\n"
             "                             AND q.from_at <= now() + distance + kind.length + kind.length);",
        becomes="                           WHERE q.parent = kind.parent);",
        test="db/housekeeping_clock",
    ),
    dict(
        name="whoever a plan refuses withdraws it",
        file="migrations/schema/12_housekeeping.sql",
        line="PERFORM issuing.plan_end(of_parent);\n"
             "            withdrawn := withdrawn + 1;",
        becomes="                withdrawn := withdrawn + 1;",
        test="db/acceptor",
    ),
    dict(
        name="what the schema refuses is sent once more after the check",
        file="api/acceptor.c",
        line="    if (is_of_schema && !acceptance->was_checked) {",
        becomes="    if (false) {",
        test="db/acceptor",
    ),
    dict(
        name="an api that cannot accept finds out by itself when it can",
        file="api/accept_check.c",
        line="        uv_timer_start(&check->timer, on_timer, AGAIN_MS, 0);",
        becomes="        uv_timer_stop(&check->timer);",
        test="db/acceptor",
    ),
    dict(
        name="an api that cannot accept is not ready",
        file="common/daemon.c",
        line="    return daemon->why_not_ready && !daemon->are_modules_closed ? daemon->why_not_ready(daemon->context) : \"\";",
        becomes="    return \"\";",
        test="e2e/an api that the schema refuses is not ready until it works again",
    ),
    dict(
        name="what a look at nothing costs too does not narrow the next",
        file="worker/sweep_pace.c",
        line="rows_ms = cost_ms - empty_ms;",
        becomes="rows_ms = cost_ms;",
        test="unit/sweep_pace",
    ),
    dict(
        name="a walk of the sweep is faster than events age",
        file="worker/sweep_pace.c",
        line="        rest_ms = least(rest_ms, pace->width_ms / SPEED - cost_ms);",
        becomes="        rest_ms = least(rest_ms, REST_MOST_MS);",
        test="unit/sweep_pace",
    ),
    dict(
        name="a walk of the sweep ends with all that is left",
        file="worker/sweep_pace.c",
        line="|| now_ms - pace->began_ms >= pace->patience_ms)",
        becomes="|| now_ms < 0)",
        test="unit/sweep_pace",
    ),
    dict(
        name="migrate refuses a database that is not UTF8",
        file="ctl/verbs/cmd_migrate.c",
        line="    return strcmp(encoding, \"UTF8\") == 0 ||",
        becomes="    return encoding ||",
        test="e2e/a database that is not utf8 is refused",
    ),
]
