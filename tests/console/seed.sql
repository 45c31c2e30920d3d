-- A day of a small installation, for the browser tests and the pictures of docs/console.md: made-up users, made-up
-- times, the same on every run but for the clock. Run by the owner on a fresh, migrated database.
SELECT setseed(0.42);
SET search_path = pg_catalog, issuing, pg_temp;
-- Ends are written as workers would leave them; the trigger of reissues has nothing to do.
CREATE FUNCTION pg_temp.id_at(at timestamptz, n int) RETURNS uuid LANGUAGE sql AS $$
    SELECT (lpad(to_hex((extract(epoch FROM at) * 1000)::int8), 12, '0') || '7' || lpad(to_hex(n % 4096), 3, '0') || '8'
            || lpad(to_hex(n), 15, '0'))::uuid $$;
CREATE TEMP TABLE made AS
SELECT m.*, luck < 0.945 OR luck BETWEEN 0.985 AND 0.992 OR luck > 0.996 AS is_sent -- a card may have been made
FROM (SELECT n, at, pg_temp.id_at(at, n) AS id, 'user-' || lpad((n * 7919 % 1400)::text, 4, '0') AS user_id,
             random() AS luck, random() * random() * 4 + 0.15 AS took
      FROM (SELECT n, now() - interval '24 h' * (1 - (n / 2400.0))
                      - interval '30 min' * sin(n / 190.0) * (1 - n / 2400.0) AS at
            FROM generate_series(1, 2396) n) s) m;
INSERT INTO outbox_events (id, created_at, updated_at, completed_at, next_attempt_at, first_sent_at, last_sent_at,
       retry_count,
                           status, user_id, idempotency_key, payload, reason_code, reason_detail, last_error,
                                  lease_owner)
SELECT id, at, at + took * interval '1 s', at + took * interval '1 s', at,
       CASE WHEN is_sent THEN at + interval '20 ms' END, CASE WHEN is_sent THEN at + interval '20 ms' END,
       CASE WHEN luck < 0.9 THEN 1 ELSE 1 + (luck * 100)::int % 4 END,
       CASE WHEN luck < 0.945 THEN 'COMPLETED' WHEN luck < 0.985 THEN 'REJECTED' ELSE 'FAILED' END, user_id,
       'order-' || n, '{"kind": "new"}',
       CASE WHEN luck >= 0.945 THEN CASE WHEN luck < 0.972 THEN 'user_blocked' WHEN luck < 0.985 THEN 'issuer_refused'
            WHEN luck < 0.992 THEN 'attempts_exhausted' WHEN luck < 0.996 THEN 'issuer_http_418'
            ELSE 'issuer_key_expired' END END,
       CASE WHEN luck >= 0.945 THEN 'The card could not be issued.' END,
       CASE WHEN luck >= 0.985 THEN 'issuer_no_answer: no answer within 3 s' END, 'cards-1:4711'
FROM made;
INSERT INTO outbox_attempts (event_id, lease_token, started_at, ended_at, attempt, unknown, user_id, worker, step,
       outcome, code, detail)
SELECT e.id, gen_random_uuid(), e.created_at + (a - 1) * interval '2 s', e.created_at + (a - 1) * interval '2 s' +
       interval '310 ms', a,
       e.status = 'FAILED' AND e.first_sent_at IS NOT NULL, e.user_id, 'cards-' || (1 + a % 2) || ':4711',
       CASE WHEN e.status = 'COMPLETED' THEN 'link' ELSE 'issue' END,
       CASE WHEN a < e.retry_count THEN 'retry' ELSE lower(e.status) END,
       CASE WHEN a < e.retry_count AND e.first_sent_at IS NULL THEN 'issuer_unreachable'
            WHEN a < e.retry_count THEN 'issuer_no_answer' WHEN e.status <> 'COMPLETED' THEN e.reason_code END,
       CASE WHEN a < e.retry_count AND e.first_sent_at IS NOT NULL THEN 'no answer within 3 s' END
FROM outbox_events e CROSS JOIN LATERAL generate_series(1, e.retry_count) a;
INSERT INTO cards (id, request_id, created_at, exp_month, exp_year, user_id, issuer_card_id, last4)
SELECT gen_random_uuid(), e.id, e.completed_at, 11, 2029, e.user_id, 'crd_' || left(md5(e.id::text), 16),
       lpad((abs(hashtext(e.id::text)) % 10000)::text, 4, '0')
FROM outbox_events e WHERE e.status = 'COMPLETED';
-- What is open: a few that wait, two that are held.
INSERT INTO outbox_events (id, created_at, updated_at, next_attempt_at, retry_count, status, user_id,
       idempotency_key, payload, last_error,
                           lease_token, lease_until, lease_owner, first_sent_at, last_sent_at)
SELECT pg_temp.id_at(now() - n * interval '9 s', 3000 + n), now() - n * interval '9 s', now() - n * interval '4 s',
       now() + interval '1 h', 1, CASE WHEN n <= 2 THEN 'PROCESSING' ELSE 'PENDING' END, 'user-9' || n, 'order-9' ||
              n, '{"kind": "new"}',
       CASE WHEN n > 2 THEN 'breaker_open: calls are paused' END, CASE WHEN n <= 2 THEN gen_random_uuid() END,
       CASE WHEN n <= 2 THEN now() + interval '1 h' END, CASE WHEN n <= 2 THEN 'cards-1:4711' END,
       CASE WHEN n > 9 THEN now() - interval '1 min' END, CASE WHEN n > 9 THEN now() - interval '1 min' END
FROM generate_series(1, 14) n;
-- Texts of others that try to be markup.
INSERT INTO outbox_events (id, created_at, updated_at, completed_at, status, user_id, idempotency_key, payload,
       reason_code, reason_detail, last_error)
VALUES (pg_temp.id_at(now() - interval '2 min', 4000), now() - interval '2 min', now() - interval '119 s', now() -
       interval '119 s', 'FAILED',
        '<script>document.title="owned"</script>', '"><img src=x onerror=alert(1)>', '{"kind": "\"''<b>"}',
               'payload_invalid',
        E'a "quoted" <b>detail</b> & \u202Ereversed\u0001', E'<svg onload=alert(1)>\n''x''');
-- Workers and targets: one issuer that fails for one of two workers, and a worker that died.
INSERT INTO workers (name, host, pid, version, started_at, seen_at, in_flight, slots)
VALUES ('cards-1:4711', 'cards-1', 4711, '0.1.0', now() - interval '3 d', now(), 2, 128),
       ('cards-2:4711', 'cards-2', 4711, '0.1.0', now() - interval '5 h', now(), 0, 128),
       ('cards-3:812', 'cards-3', 812, '0.1.0', now() - interval '6 d', now() - interval '41 min', 17, 128);
INSERT INTO worker_targets (worker, target, state, since, cause, is_resting, is_paused, next_at, in_flight, waiting,
       call_limit)
SELECT w, t, CASE WHEN w = 'cards-2:4711' AND t = 'issuer' THEN 'open' ELSE 'closed' END, now() - interval '4 min',
       CASE WHEN w = 'cards-2:4711' AND t = 'issuer' THEN 'issuer_no_answer' END, false, false,
       CASE WHEN w = 'cards-2:4711' AND t = 'issuer' THEN now() + interval '1 h' END, CASE WHEN w = 'cards-1:4711'
              THEN 2 ELSE 0 END, 0, 64
FROM unnest(ARRAY['cards-1:4711', 'cards-2:4711']) w
CROSS JOIN unnest(ARRAY['issuer', 'core', 'CARD_REQUEST_ENDED']) t;
-- Ends are told; three of them wait for an operator.
INSERT INTO routes (event_type, is_ordered, has_lookup, key_lifetime_ms, max_attempts, is_signed, worker, seen_at)
VALUES ('CARD_REQUEST_ENDED', true, false, 86400000, 10, true, 'cards-1:4711', now());
INSERT INTO route_workers (event_type, worker, is_ordered, has_lookup, key_lifetime_ms, max_attempts, is_signed,
       seen_at)
VALUES ('CARD_REQUEST_ENDED', 'cards-1:4711', true, false, 86400000, 10, true, now());
SET ROLE issuing_owner;
INSERT INTO outbox_events (id, event_type, created_at, updated_at, completed_at, status, user_id, payload, reason_code,
       last_error)
SELECT pg_temp.id_at(now() - n * interval '1 h', 5000 + n), 'CARD_REQUEST_ENDED', now() - n * interval '1 h',
       now() - n * interval '59 min', now() - n * interval '59 min', 'FAILED', 'user-80' || n, '{"n": 1}',
       'outcome_unknown', 'route_no_answer: no answer within 3 s'
FROM generate_series(1, 3) n;
RESET ROLE;
INSERT INTO operator_actions (at, event_id, actor, action, reason, before, after, db_role, os_user)
SELECT now() - (20 - n) * interval '47 min', (SELECT e.id FROM outbox_events e WHERE e.failed_at IS NOT NULL ORDER BY
       e.id OFFSET n LIMIT 1),
       CASE WHEN n % 3 = 0 THEN 'marta' ELSE 'jonas' END, CASE WHEN n % 4 = 3 THEN 'resolve' ELSE 'replay' END,
       CASE WHEN n % 4 = 3 THEN 'ticket 812: the user has another card' ELSE 'the issuer is back' END,
              '{"status": "FAILED"}',
       CASE WHEN n % 4 = 3 THEN '{"status": "REJECTED"}'::jsonb ELSE '{"status": "PENDING"}' END, 'issuing_operator',
       CASE WHEN n % 3 = 0 THEN 'marta' ELSE 'jonas' END
FROM generate_series(1, 19) n;
INSERT INTO outbox_statistics SELECT * FROM count_events('-infinity');
ANALYZE;
