-- Run at the end of every migrate: each role gets what its statements need and no more. Only the owner (or a superuser) can grant.
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'issuing_api') THEN
        GRANT USAGE ON SCHEMA public TO issuing_api;
        GRANT SELECT ON schema_migration TO issuing_api;
        GRANT SELECT, INSERT ON idempotency_keys, rate_limit_log TO issuing_api;
        GRANT SELECT ON outbox_events, cards, card_reissues TO issuing_api;
        GRANT INSERT (id, created_at, updated_at, next_attempt_at, user_id, idempotency_key, payload, traceparent) ON outbox_events TO issuing_api;
        GRANT INSERT (event_id, actor, action, reason, before, after) ON operator_actions TO issuing_api;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'issuing_worker') THEN
        GRANT USAGE ON SCHEMA public TO issuing_worker;
        GRANT SELECT ON schema_migration TO issuing_worker;
        GRANT SELECT ON outbox_events TO issuing_worker;
        GRANT UPDATE (status, retry_count, next_attempt_at, lease_token, lease_owner, lease_until, first_sent_at, deferred_since, cancel_code,
                      reason_code, reason_detail, last_error, completed_at, updated_at) ON outbox_events TO issuing_worker;
        GRANT SELECT, INSERT ON outbox_attempts TO issuing_worker;
        GRANT SELECT, INSERT ON cards TO issuing_worker;
        GRANT UPDATE (status, updated_at) ON cards TO issuing_worker;
        GRANT EXECUTE ON FUNCTION issuing_keep_house(interval, interval, interval, interval) TO issuing_worker;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'issuing_operator') THEN
        GRANT USAGE ON SCHEMA public TO issuing_operator;
        GRANT SELECT ON schema_migration, outbox_events, outbox_attempts, operator_actions, idempotency_keys, rate_limit_log, card_reissues,
            partitions TO issuing_operator;
        GRANT SELECT (id, request_id, created_at, updated_at, replaces, exp_month, exp_year, user_id, issuer_card_id, last4, status) ON cards
            TO issuing_operator;
        GRANT UPDATE (status, retry_count, next_attempt_at, updated_at, completed_at, reason_code, reason_detail, last_error, deferred_since)
            ON outbox_events TO issuing_operator;
        GRANT INSERT (event_id, actor, action, reason, before, after) ON operator_actions TO issuing_operator;
    END IF;
END
$$;
