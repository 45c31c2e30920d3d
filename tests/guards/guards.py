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
        file="common/sql/outbox.sql",
        line="    WHERE e.id = a.id AND e.lease_token = a.token\n    RETURNING e.id, e.user_id, e.retry_count",
        becomes="    WHERE e.id = a.id\n    RETURNING e.id, e.user_id, e.retry_count",
        test="db/outbox",
    ),
    dict(
        name="a save names its token",
        file="common/sql/outbox.sql",
        line="    WHERE e.lease_token = a.token\n    ORDER BY e.id",
        becomes="    WHERE true\n    ORDER BY e.id",
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
        file="common/sql/outbox.sql",
        line="retry_count = e.retry_count + 1, lease_token",
        becomes="retry_count = e.retry_count, lease_token",
        test="db/outbox",
    ),
    dict(
        name="a claim notes that something may be sent",
        file="common/sql/outbox.sql",
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
    # ---- what keeps a secret ----
    dict(
        name="a record is bound to its row",
        file="common/keyring.c",
        line="PLACEHOLDER",
        becomes="",
        test="unit/keyring",
    ),
]
