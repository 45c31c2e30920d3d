-- Run at the end of every migrate: each role gets what its statements need and no more. Only the owner (or a superuser) can grant.
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'issuing_api') THEN
        GRANT USAGE ON SCHEMA issuing TO issuing_api;
        GRANT SELECT ON issuing.schema_migration TO issuing_api;
        GRANT SELECT, INSERT ON issuing.idempotency_keys, issuing.rate_limit_log TO issuing_api;
        GRANT SELECT ON issuing.outbox_events, issuing.cards, issuing.card_reissues TO issuing_api;
        GRANT INSERT (id, created_at, updated_at, next_attempt_at, user_id, idempotency_key, payload, traceparent) ON issuing.outbox_events TO issuing_api;
        GRANT INSERT (event_id, actor, action, reason, before, after) ON issuing.operator_actions TO issuing_api;
        GRANT SELECT ON issuing.retentions, issuing.house_clock TO issuing_api;
        GRANT EXECUTE ON FUNCTION issuing.mend_tries(text) TO issuing_api;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'issuing_worker') THEN
        GRANT USAGE ON SCHEMA issuing TO issuing_worker;
        GRANT SELECT ON issuing.schema_migration TO issuing_worker;
        GRANT SELECT ON issuing.outbox_events TO issuing_worker;
        GRANT UPDATE (status, retry_count, next_attempt_at, lease_token, lease_owner, lease_until, first_sent_at, deferred_since, cancel_code,
                      reason_code, reason_detail, last_error, completed_at, updated_at) ON issuing.outbox_events TO issuing_worker;
        GRANT SELECT, INSERT ON issuing.outbox_attempts TO issuing_worker;
        GRANT SELECT, INSERT ON issuing.cards TO issuing_worker;
        GRANT UPDATE (status, updated_at) ON issuing.cards TO issuing_worker;
        GRANT EXECUTE ON FUNCTION issuing.keep_rows(interval, interval, interval), issuing.check_rest(),
            issuing.keep_house(interval, interval, interval, interval) TO issuing_worker;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'issuing_operator') THEN
        GRANT USAGE ON SCHEMA issuing TO issuing_operator;
        GRANT SELECT ON issuing.schema_migration, issuing.outbox_events, issuing.outbox_attempts, issuing.operator_actions, issuing.idempotency_keys, issuing.rate_limit_log, issuing.card_reissues,
            issuing.partitions TO issuing_operator;
        GRANT SELECT (id, request_id, created_at, updated_at, replaces, exp_month, exp_year, user_id, issuer_card_id, last4, status) ON cards
            TO issuing_operator;
        GRANT UPDATE (status, retry_count, next_attempt_at, updated_at, completed_at, reason_code, reason_detail, last_error, deferred_since)
            ON issuing.outbox_events TO issuing_operator;
        GRANT INSERT (event_id, actor, action, reason, before, after) ON issuing.operator_actions TO issuing_operator;
        GRANT SELECT ON issuing.retentions, issuing.house_clock TO issuing_operator;
    END IF;
END
$$;
