-- Run at the end of every migrate: each role gets what its statements need and no more. Only the owner (or a superuser)
-- can grant. A function is named without its parameters, because no two have one name.
DO $$
DECLARE
    held record;
    given record;
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
    FOR given IN
        SELECT r.role, g.rights, g.things FROM (VALUES
            ('api worker operator viewer', 'USAGE', 'SCHEMA issuing'),
            ('api worker operator viewer', 'SELECT', 'issuing.schema_migration, issuing.place, issuing.outbox_events,
                issuing.workers, issuing.workers_disagree, issuing.worker_targets, issuing.target_controls,
                issuing.routes, issuing.ends_waiting, issuing.data_proofs'),
            ('api worker operator viewer', 'SELECT (id, request_id, created_at, updated_at, replaces, exp_month,
                exp_year, user_id, issuer_card_id, last4, status)', 'issuing.cards'),
            -- Accepting, and what a client may ask for.
            ('api', 'SELECT, INSERT', 'issuing.idempotency_keys, issuing.rate_limit_log'),
            ('api', 'INSERT (id, created_at, updated_at, next_attempt_at, user_id, idempotency_key, payload,
                traceparent, tracestate)', 'issuing.outbox_events'),
            ('api', 'SELECT', 'issuing.card_reissues, issuing.event_reissues, issuing.retentions,
                issuing.housekeeping_clock, issuing.lock_salt'),
            ('api', 'EXECUTE', 'FUNCTION issuing.ask_reveal, issuing.take_number, issuing.promise_retentions,
                issuing.note_issuer_event, issuing.repair_tries, issuing.withdraw_plans'),
            ('api worker', 'SELECT (began_at, ended_at, trouble, counts)', 'issuing.issuer_listings'),
            ('api worker', 'EXECUTE', 'FUNCTION issuing.check_history'),
            ('api', 'SELECT (at, refused)', 'issuing.statistics_changes'),
            -- Claims and ends.
            ('worker', 'UPDATE (status, retry_count, next_attempt_at, lease_token, lease_owner, lease_until,
                first_sent_at, deferred_since, last_sent_at, lost_count, deferral_count, deferral_code, held_end,
                held_end_code, cancel_code, reason_code, reason_detail, last_error, issuer_parameters, held_behind,
                sent_to, result, completed_at, updated_at)', 'issuing.outbox_events'),
            ('worker', 'SELECT, INSERT, UPDATE, DELETE', 'issuing.lost_events'),
            ('worker', 'INSERT, UPDATE, DELETE', 'issuing.workers, issuing.worker_targets'),
            ('worker', 'SELECT, INSERT', 'issuing.outbox_attempts'),
            -- guard: a worker reads no number
            ('worker', 'SELECT (issuer), INSERT, UPDATE (status, updated_at)', 'issuing.cards'),
            ('worker', 'SELECT', 'issuing.issuers, issuing.workers_living'),
            ('worker', 'SELECT, INSERT, UPDATE', 'issuing.last_worker'),
            ('worker', 'SELECT, DELETE', 'issuing.route_workers'),
            ('worker', 'INSERT (ended_at, ids, is_again)', 'issuing.end_notifications'),
            ('worker', 'SELECT (at, refused), INSERT', 'issuing.statistics_changes'),
            ('worker', 'EXECUTE', 'FUNCTION issuing.note_issuer, issuing.end_pauses, issuing.note_routes,
                issuing.claim_notifications, issuing.notifications_wait, issuing.notify_ends, issuing.lock_orders,
                issuing.try_orders, issuing.keep_rows, issuing.run_housekeeping, issuing.check_default_partitions,
                issuing.erase_numbers, issuing.forget_keys, issuing.fold_statistics, issuing.what_waits,
                issuing.asks_wait'),
            ('worker', 'EXECUTE', 'FUNCTION issuing.add_mark, issuing.take_marks, issuing.put_mark_back,
                issuing.note_orphan, issuing.end_mark, issuing.take_issuer_check,
                issuing.put_issuer_check_back, issuing.renew_issuer_check, issuing.end_issuer_check,
                issuing.take_listing, issuing.note_listed, issuing.compare_listed, issuing.leave_listing'),
            -- People.
            ('operator viewer', 'SELECT', 'issuing.outbox_attempts, issuing.operator_actions,
                issuing.idempotency_keys, issuing.rate_limit_log, issuing.card_reissues, issuing.event_reissues,
                issuing.partitions, issuing.marks, issuing.issuers, issuing.issuer_checks, issuing.issuer_listings,
                issuing.listed_cards, issuing.retentions, issuing.housekeeping_clock, issuing.ceilings,
                issuing.workers_living, issuing.last_worker, issuing.route_workers, issuing.route_workers_living,
                issuing.ends_refused, issuing.outbox_statistics, issuing.statistics_changes,
                issuing.statistics_waiting, issuing.senders, issuing.histories'),
            ('operator viewer', 'SELECT (issuer, number_erased_at)', 'issuing.cards'),
            ('operator viewer', 'SELECT (ended_at, ids)', 'issuing.end_notifications'),
            ('operator viewer', 'EXECUTE', 'FUNCTION issuing.number_keys, issuing.housekeeping_state,
                issuing.audit_settled, issuing.last_trial'),
            -- guard: what an operator could change by hand before is taken away
            -- Everything that an operator changes is changed by these, which write the audit row.
            ('operator', 'EXECUTE', 'FUNCTION issuing.replay, issuing.resend, issuing.cancel, issuing.resolve,
                issuing.adopt, issuing.ask_reconcile, issuing.ask_reissue, issuing.withdraw_mark,
                issuing.control_target, issuing.remove_route, issuing.ask_listing, issuing.ask_issuer_check,
                issuing.rebuild_statistics, issuing.note_proof, issuing.accept_history, issuing.change_sender'))
            AS g (roles, rights, things)
        CROSS JOIN LATERAL string_to_table(g.roles, ' ') AS r (role)
        WHERE to_regrole('issuing_' || r.role) IS NOT NULL
    LOOP
        EXECUTE format('GRANT %s ON %s TO issuing_%s', given.rights, given.things, given.role);
    END LOOP;
    -- Other services: what `issuing-ctl sender add` granted, also on functions that migrate has replaced.
    PERFORM issuing.grant_sender(s.role)
    -- guard: migrate grants nothing to a role that was created again
    FROM (SELECT DISTINCT r.role FROM issuing.senders r WHERE r.role_oid = to_regrole(quote_ident(r.role))) s;
END
$$;
