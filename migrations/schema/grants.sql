-- Run at the end of every migrate: each role gets what its statements need and no more. Only the owner (or a superuser)
-- can grant.
DO $$
DECLARE
    held record;
BEGIN
    -- What was granted before and is not in this list is taken back. What other roles were granted is not touched.
    FOR held IN
        SELECT DISTINCT c.oid::regclass AS tab, a.grantee::regrole AS role
        FROM pg_class c
        CROSS JOIN LATERAL (SELECT x.grantee FROM aclexplode(c.relacl) x
                            UNION SELECT x.grantee FROM pg_attribute t CROSS JOIN LATERAL aclexplode(t.attacl) x
                                  WHERE t.attrelid = c.oid AND NOT t.attisdropped) a
        WHERE c.relnamespace = 'issuing'::regnamespace AND c.relowner <> a.grantee
          AND a.grantee IN (SELECT r.oid FROM pg_roles r
                            WHERE r.rolname IN ('issuing_api', 'issuing_worker', 'issuing_operator', 'issuing_viewer'))
    LOOP
        -- guard: what an older release granted is taken back
        EXECUTE format('REVOKE ALL ON %s FROM %s', held.tab, held.role);
    END LOOP;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'issuing_api') THEN
        GRANT USAGE ON SCHEMA issuing TO issuing_api;
        GRANT SELECT ON issuing.schema_migration, issuing.place TO issuing_api;
        GRANT SELECT, INSERT ON issuing.idempotency_keys, issuing.rate_limit_log TO issuing_api;
        GRANT SELECT ON issuing.outbox_events, issuing.card_reissues, issuing.event_reissues TO issuing_api;
        GRANT SELECT (id, request_id, created_at, updated_at, replaces, exp_month, exp_year, user_id, issuer_card_id,
            last4, status) ON issuing.cards
            TO issuing_api;
        GRANT INSERT (id, created_at, updated_at, next_attempt_at, user_id, idempotency_key, payload,
            traceparent, tracestate) ON issuing.outbox_events TO issuing_api;
        GRANT EXECUTE ON FUNCTION issuing.ask_reveal(uuid, text, int8[], int8), issuing.take_number(uuid),
            issuing.promise_retentions(interval, interval),
            issuing.note_issuer_event(bytea, uuid, text) TO issuing_api;
        GRANT SELECT ON issuing.retentions, issuing.housekeeping_clock TO issuing_api;
        GRANT SELECT ON issuing.workers, issuing.workers_disagree, issuing.worker_targets, issuing.target_controls,
            issuing.routes,
            issuing.ends_waiting, issuing.data_proofs TO issuing_api;
        GRANT SELECT (at, refused) ON issuing.statistics_changes TO issuing_api;
        GRANT SELECT (began_at, ended_at, trouble, counts) ON issuing.issuer_listings TO issuing_api;
        GRANT EXECUTE ON FUNCTION issuing.repair_tries(text), issuing.withdraw_plans(timestamptz) TO issuing_api;
        GRANT SELECT ON issuing.lock_salt TO issuing_api;
        GRANT EXECUTE ON FUNCTION issuing.check_history(uuid, text, int8, int8) TO issuing_api;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'issuing_worker') THEN
        GRANT USAGE ON SCHEMA issuing TO issuing_worker;
        GRANT SELECT ON issuing.schema_migration, issuing.place TO issuing_worker;
        GRANT SELECT ON issuing.outbox_events TO issuing_worker;
        GRANT UPDATE (status, retry_count, next_attempt_at, lease_token, lease_owner, lease_until, first_sent_at,
                      deferred_since, last_sent_at, lost_count, deferral_count, deferral_code, held_end, held_end_code,
                      cancel_code, reason_code, reason_detail, last_error, issuer_parameters, held_behind, sent_to,
                      result, completed_at, updated_at)
            ON issuing.outbox_events TO issuing_worker;
        GRANT SELECT, INSERT, UPDATE, DELETE ON issuing.lost_events TO issuing_worker;
        GRANT SELECT, INSERT ON issuing.outbox_attempts TO issuing_worker;
        -- guard: a worker reads no number
        GRANT SELECT (id, request_id, created_at, updated_at, replaces, exp_month, exp_year, user_id, issuer_card_id,
            last4, status, issuer), INSERT
            ON issuing.cards TO issuing_worker;
        GRANT SELECT ON issuing.issuers TO issuing_worker;
        GRANT SELECT (began_at, ended_at, trouble, counts) ON issuing.issuer_listings TO issuing_worker;
        GRANT EXECUTE ON FUNCTION issuing.note_issuer(text, text) TO issuing_worker;
        GRANT EXECUTE ON FUNCTION issuing.end_pauses() TO issuing_worker;
        GRANT UPDATE (status, updated_at) ON issuing.cards TO issuing_worker;
        GRANT SELECT, INSERT, UPDATE, DELETE ON issuing.workers, issuing.worker_targets TO issuing_worker;
        GRANT SELECT ON issuing.workers_living, issuing.workers_disagree TO issuing_worker;
        GRANT SELECT, INSERT, UPDATE ON issuing.last_worker TO issuing_worker;
        GRANT SELECT ON issuing.target_controls TO issuing_worker;
        GRANT SELECT ON issuing.routes, issuing.ends_waiting, issuing.data_proofs TO issuing_worker;
        GRANT SELECT, DELETE ON issuing.route_workers TO issuing_worker;
        GRANT INSERT (ended_at, ids, is_again) ON issuing.end_notifications TO issuing_worker;
        GRANT EXECUTE ON FUNCTION
            issuing.note_routes(text, text[], bool[], bool[], int8[], int8[], bool[], text[], text[]),
            issuing.claim_notifications(uuid, int8, int8, text, bool), issuing.notifications_wait() TO issuing_worker;
        GRANT EXECUTE ON FUNCTION issuing.keep_rows(interval, interval, interval), issuing.check_default_partitions(),
            issuing.erase_numbers(interval),
            issuing.run_housekeeping(interval, interval, interval, interval) TO issuing_worker;
        GRANT EXECUTE ON FUNCTION issuing.lock_orders(text[], text[], bool), issuing.try_orders(text, text[])
            TO issuing_worker;
        GRANT EXECUTE ON FUNCTION issuing.add_mark(uuid, text),
            issuing.put_mark_back(uuid, uuid, int8, text), issuing.note_orphan(uuid, uuid), issuing.end_mark(uuid,
                uuid, int8, text, text)
            TO issuing_worker;
        GRANT EXECUTE ON FUNCTION issuing.take_marks(uuid, int8, int8, text, text[]),
            issuing.end_executed_mark(uuid, uuid, int8, text) TO issuing_worker;
        GRANT EXECUTE ON FUNCTION issuing.take_issuer_check(uuid, int8, text, text[]),
            issuing.put_issuer_check_back(uuid, uuid), issuing.renew_issuer_check(uuid, uuid, int8),
            issuing.end_issuer_check(uuid, uuid, text, jsonb) TO issuing_worker;
        GRANT EXECUTE ON FUNCTION issuing.take_listing(uuid, int8, text, text, text, int8),
            issuing.note_listed(uuid, uuid, text[], uuid[], bool[], text, int8, int8),
            issuing.compare_listed(uuid, uuid, int8, int8), issuing.leave_listing(uuid, uuid, text, bool)
            TO issuing_worker;
        GRANT SELECT (at, refused), INSERT ON issuing.statistics_changes TO issuing_worker;
        GRANT EXECUTE ON FUNCTION issuing.forget_keys() TO issuing_worker;
        GRANT EXECUTE ON FUNCTION issuing.check_history(uuid, text, int8, int8) TO issuing_worker;
        GRANT EXECUTE ON FUNCTION issuing.fold_statistics(int8), issuing.notify_ends(uuid[], timestamptz),
            issuing.what_waits(text[]), issuing.asks_wait() TO issuing_worker;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'issuing_operator') THEN
        GRANT USAGE ON SCHEMA issuing TO issuing_operator;
        GRANT SELECT ON issuing.schema_migration, issuing.place, issuing.outbox_events, issuing.outbox_attempts,
            issuing.operator_actions, issuing.idempotency_keys, issuing.rate_limit_log, issuing.card_reissues,
            issuing.partitions, issuing.marks, issuing.event_reissues TO issuing_operator;
        GRANT SELECT (id, request_id, created_at, updated_at, replaces, exp_month, exp_year, user_id, issuer_card_id,
            last4, status, issuer, number_erased_at) ON issuing.cards
            TO issuing_operator;
        GRANT SELECT ON issuing.issuers TO issuing_operator;
        GRANT EXECUTE ON FUNCTION issuing.number_keys(), issuing.housekeeping_state(), issuing.audit_settled()
            TO issuing_operator;
        -- guard: what an operator could change by hand before is taken away
        -- Everything that an operator changes is changed by these, which write the audit row.
        GRANT EXECUTE ON FUNCTION issuing.replay(uuid, int8, text, text, text, text),
            issuing.resend(uuid, int8, text, text, text, text),
            issuing.cancel(uuid, int8, text, text, text, text, text),
            issuing.resolve(uuid, int8, bool, int8, text, text, text, text, text), issuing.ask_reconcile(uuid, int8,
                text, text, text, text),
            issuing.ask_reissue(uuid, int8, text, text, text, text, text), issuing.withdraw_mark(uuid)
            TO issuing_operator;
        GRANT EXECUTE ON FUNCTION issuing.adopt(uuid, int8, int2, int8, text, text, text, text) TO issuing_operator;
        GRANT SELECT ON issuing.retentions, issuing.housekeeping_clock, issuing.ceilings TO issuing_operator;
        GRANT SELECT ON issuing.workers, issuing.workers_living, issuing.workers_disagree, issuing.worker_targets,
            issuing.target_controls, issuing.routes, issuing.last_worker TO issuing_operator;
        GRANT SELECT ON issuing.route_workers, issuing.route_workers_living, issuing.ends_waiting, issuing.ends_refused
            TO issuing_operator;
        GRANT EXECUTE ON FUNCTION issuing.control_target(text, text, text, text, text, text, int8) TO issuing_operator;
        GRANT EXECUTE ON FUNCTION issuing.remove_route(text, bool, text, text, text, text) TO issuing_operator;
        GRANT SELECT ON issuing.issuer_checks, issuing.issuer_listings, issuing.listed_cards TO issuing_operator;
        GRANT EXECUTE ON FUNCTION issuing.ask_listing(int8, int8, text, text, text, text) TO issuing_operator;
        GRANT EXECUTE ON FUNCTION issuing.last_trial() TO issuing_operator;
        GRANT EXECUTE ON FUNCTION issuing.ask_issuer_check(text, text, bool, int8, text, text, text, text)
            TO issuing_operator;
        GRANT SELECT ON issuing.outbox_statistics, issuing.statistics_changes TO issuing_operator;
        GRANT EXECUTE ON FUNCTION issuing.rebuild_statistics(int8, text, text, text, text) TO issuing_operator;
        GRANT SELECT ON issuing.senders, issuing.data_proofs, issuing.statistics_waiting TO issuing_operator;
        GRANT SELECT (ended_at, ids) ON issuing.end_notifications TO issuing_operator;
        GRANT EXECUTE ON FUNCTION issuing.note_proof(uuid, uuid, int8, int8) TO issuing_operator;
        GRANT SELECT ON issuing.histories TO issuing_operator;
        GRANT EXECUTE ON FUNCTION issuing.accept_history(text, text, text, text) TO issuing_operator;
        GRANT EXECUTE ON FUNCTION issuing.change_sender(text, text, text, text, text, text, text) TO issuing_operator;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'issuing_viewer') THEN
        GRANT USAGE ON SCHEMA issuing TO issuing_viewer;
        GRANT SELECT ON issuing.schema_migration, issuing.place, issuing.outbox_events, issuing.outbox_attempts,
            issuing.operator_actions, issuing.idempotency_keys, issuing.rate_limit_log, issuing.card_reissues,
            issuing.partitions, issuing.marks, issuing.event_reissues TO issuing_viewer;
        GRANT SELECT (id, request_id, created_at, updated_at, replaces, exp_month, exp_year, user_id, issuer_card_id,
            last4, status, issuer, number_erased_at) ON issuing.cards
            TO issuing_viewer;
        GRANT SELECT ON issuing.issuers TO issuing_viewer;
        GRANT EXECUTE ON FUNCTION issuing.number_keys(), issuing.housekeeping_state(), issuing.last_trial(),
            issuing.audit_settled() TO issuing_viewer;
        GRANT SELECT ON issuing.retentions, issuing.housekeeping_clock, issuing.ceilings TO issuing_viewer;
        GRANT SELECT ON issuing.workers, issuing.workers_living, issuing.workers_disagree, issuing.worker_targets,
            issuing.target_controls, issuing.routes, issuing.last_worker TO issuing_viewer;
        GRANT SELECT ON issuing.route_workers, issuing.route_workers_living, issuing.ends_waiting, issuing.ends_refused
            TO issuing_viewer;
        GRANT SELECT ON issuing.issuer_checks, issuing.issuer_listings, issuing.listed_cards TO issuing_viewer;
        GRANT SELECT ON issuing.outbox_statistics, issuing.statistics_changes TO issuing_viewer;
        GRANT SELECT ON issuing.senders, issuing.data_proofs, issuing.statistics_waiting TO issuing_viewer;
        GRANT SELECT (ended_at, ids) ON issuing.end_notifications TO issuing_viewer;
        GRANT SELECT ON issuing.histories TO issuing_viewer;
    END IF;
    -- Other services: what `issuing-ctl sender add` granted, also on functions that migrate has replaced.
    PERFORM issuing.grant_sender(s.role)
    -- guard: migrate grants nothing to a role that was created again
    FROM (SELECT DISTINCT r.role FROM issuing.senders r WHERE r.role_oid = to_regrole(quote_ident(r.role))) s;
END
$$;
