"""The guards, and the test that proves each: the line as it stands, and what the mutant has instead. `line` must be in the file exactly once."""

GUARDS = [
    # ---- acceptance ----
    dict(
        name="the user's lock comes first",
        file="migrations/0002_accept.sql",
        line="""    PERFORM pg_advisory_xact_lock(l.h)
    FROM (SELECT hashtextextended(u.user_id, 4711) AS h FROM unnest(user_ids) AS u (user_id) ORDER BY 1 OFFSET 0) AS l;
""",
        becomes="",
        test="db/accept",
    ),
    dict(
        name="acceptance only under READ COMMITTED",
        file="migrations/0002_accept.sql",
        line="IF current_setting('transaction_isolation') <> 'read committed' THEN",
        becomes="IF false THEN",
        test="db/accept",
    ),
    dict(
        name="the limit counts what is in the window",
        file="migrations/0002_accept.sql",
        line="WHEN w.counted >= limit_count THEN 'limited'",
        becomes="WHEN w.counted > limit_count THEN 'limited'",
        test="db/accept",
    ),
    dict(
        name="another body under the same key is refused",
        file="migrations/0002_accept.sql",
        line="WHEN k.fingerprint = a.fingerprint THEN 'replayed'",
        becomes="WHEN k.fingerprint IS NOT NULL THEN 'replayed'",
        test="db/accept",
    ),
    dict(
        name="a run after an unknown COMMIT finds its own key",
        file="migrations/0002_accept.sql",
        line="WHEN k.event_id = a.id THEN 'accepted'",
        becomes="WHEN false THEN 'accepted'",
        test="db/accept",
    ),
    # ---- the lease token ----
    dict(
        name="the end of an attempt names its token",
        file="migrations/0003_attempts.sql",
        line="        WHERE e.id = a.id AND e.lease_token = a.token\n        RETURNING e.id, e.user_id, e.retry_count",
        becomes="        WHERE e.id = a.id\n        RETURNING e.id, e.user_id, e.retry_count",
        test="db/outbox",
    ),
    dict(
        name="a save names its token",
        file="migrations/0003_attempts.sql",
        line="        WHERE e.lease_token = a.token\n        ORDER BY e.id",
        becomes="        WHERE true\n        ORDER BY e.id",
        test="db/outbox",
    ),
    dict(
        name="a longer lease names its token",
        file="common/sql/outbox.sql",
        line="WHERE e.id = a.id AND e.lease_token = a.token\nRETURNING e.id;",
        becomes="WHERE e.id = a.id\nRETURNING e.id;",
        test="db/outbox",
    ),
    dict(
        name="the attempt is counted when it is claimed",
        file="migrations/0003_attempts.sql",
        line="retry_count = e.retry_count + 1, lease_token",
        becomes="retry_count = e.retry_count, lease_token",
        test="db/outbox",
    ),
    dict(
        name="a claim notes that something may be sent",
        file="migrations/0003_attempts.sql",
        line="first_sent_at = coalesce(e.first_sent_at, now())",
        becomes="first_sent_at = e.first_sent_at",
        test="db/outbox",
    ),
    dict(
        name="one card a request",
        file="migrations/0001_outbox.sql",
        line="    CONSTRAINT cards_one_per_request UNIQUE (request_id)\n",
        becomes="    CONSTRAINT cards_one_per_request UNIQUE (request_id, id)\n",
        test="db/outbox",
    ),
    # ---- the call that must not happen twice ----
    dict(
        name="the issuer's key is the event id on every attempt",
        file="worker/issuer.c",
        line='snprintf(call->headers[0], HTTP_CALL_HEADER_SIZE, "Idempotency-Key: %s", id);\n    snprintf(call->headers[1], '
        'HTTP_CALL_HEADER_SIZE, "Content-Type: application/json");',
        becomes='static int sends;\n    snprintf(call->headers[0], HTTP_CALL_HEADER_SIZE, "Idempotency-Key: %s-%d", id, sends++);\n'
        '    snprintf(call->headers[1], HTTP_CALL_HEADER_SIZE, "Content-Type: application/json");',
        test="e2e/E2E_KEY",
    ),
    dict(
        name="past its lifetime a key is never sent again",
        file="worker/flow.c",
        line="    return age_ms >= lifetime_ms - margin_ms;",
        becomes="    return age_ms < 0 && lifetime_ms < margin_ms;",
        test="unit/flow",
    ),
    dict(
        name="UNKNOWN is sticky",
        file="worker/flow.c",
        line="        .clear_sent = !flow->unknown && !flow->is_saved,",
        becomes="        .clear_sent = !flow->is_saved,",
        test="e2e/E2E_STICKY",
    ),
    dict(
        name="no end state over UNKNOWN without a look-up",
        file="worker/flow.c",
        line="    bool is_open = flow->unknown && !flow->is_saved;",
        becomes="    bool is_open = false;",
        test="e2e/E2E_EXHAUSTED",
    ),
    dict(
        name="core-api is asked before the issuer",
        file="worker/flow.c",
        line="    flow->step = flow->is_saved ? STEP_LINK : STEP_CHECK;",
        becomes="    flow->step = flow->is_saved ? STEP_LINK : STEP_ISSUE;\n    flow->checked_ms = clock_mono_ms();",
        test="e2e/E2E_INELIGIBLE",
    ),
    dict(
        name="a deferral gives the attempt back",
        file="migrations/0003_attempts.sql",
        line="            retry_count = e.retry_count - CASE WHEN a.give_back THEN 1 ELSE 0 END,\n",
        becomes="",
        test="db/outbox",
    ),
    dict(
        name="enough failures in a row open the breaker",
        file="worker/breaker.c",
        line="        if (++breaker->failures >= breaker->failures_max)",
        becomes="        if (++breaker->failures < 0)",
        test="unit/breaker",
    ),
    dict(
        name="a card with another reference is not ours",
        file="worker/issuer.c",
        line="        !uuid_equal(&reference, event_id))",
        becomes="        event_id == NULL)",
        test="unit/issuer",
    ),
    dict(
        name="5xx is UNKNOWN",
        file="worker/outcome.c",
        line="        out.kind = OUTCOME_UNKNOWN;\n        out.advice = ADVICE_RETRY;",
        becomes="        out.kind = OUTCOME_NOT_EXECUTED;\n        out.advice = ADVICE_RETRY;",
        test="unit/issuer",
    ),
    # ---- what keeps a secret, and what keeps strangers out ----
    dict(
        name="a record is bound to its row",
        file="common/keyring.c",
        line="        {card_id->bytes, sizeof(card_id->bytes)},\n",
        becomes="        {card_id->bytes, 0},\n",
        test="unit/keyring",
    ),
    dict(
        name="the algorithm belongs to the key",
        file="api/auth.c",
        line="            if (auth->keys.keys[i].algorithm != header->algorithm)\n                continue;\n",
        becomes="",
        test="unit/auth",
    ),
    dict(
        name="Content-Length and Transfer-Encoding exclude each other",
        file="common/http_head.c",
        line="    if (encodings > 0 && lengths > 0)\n",
        becomes="    if (encodings > 1 && lengths > 1)\n",
        test="unit/http_server",
    ),
    dict(
        name="a member may stand in an object once",
        file="common/json_strict.c",
        line="                    compare_names(scan, &names[i], &names[j]) == 0)",
        becomes="                    compare_names(scan, &names[i], &names[j]) > 9)",
        test="unit/json_strict",
    ),
]
