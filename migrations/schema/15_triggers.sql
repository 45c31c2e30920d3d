-- The triggers of the outbox, and the first partitions. Run once, in a new database: a trigger that is replaced locks
-- its table against writers. PostgreSQL reads the text of WHEN anew in every statement that inserts, and a long one
-- costs an eighth of an acceptance: so the conditions are in the functions, and WHEN says in few words which rows need
-- no look.

-- False at once for the rows of clients. The owner's name is only the shorter way: where it is no longer right, the
-- function finds the owner.
DO $$
BEGIN
    -- guard: a key of a client hides no type from the table's checks
    EXECUTE format('CREATE TRIGGER outbox_events_range BEFORE INSERT ON issuing.outbox_events
                        FOR EACH ROW WHEN ((NEW.idempotency_key IS NULL OR NEW.event_type <> %L
                                            OR pg_column_size(NEW.payload) > 8192) AND CURRENT_USER <> %L)
                        EXECUTE FUNCTION issuing.refuse_row()', 'CARD_ISSUE',
                   (SELECT pg_get_userbyid(c.relowner) FROM pg_class c
                    WHERE c.oid = 'issuing.outbox_events'::regclass));
END
$$;
CREATE TRIGGER outbox_events_reissue AFTER INSERT ON issuing.outbox_events
    FOR EACH ROW WHEN (NEW.payload ->> 'replaces' IS NOT NULL) EXECUTE FUNCTION issuing.reissue_once();
CREATE TRIGGER outbox_attempts_lost AFTER INSERT ON issuing.outbox_attempts
    FOR EACH ROW WHEN (NEW.outcome = 'lost') EXECUTE FUNCTION issuing.follow_lost();

-- For the default configuration; the worker makes all others. Keys and tries have a week more ahead: an api that runs
-- for days before there is a worker would fill `_rest` instead.
SELECT issuing.partition_add(p.parent, h.hour + p.from_at, h.hour + p.to_at)
FROM (VALUES ('outbox_events', interval '0', interval '15 days'),
             ('idempotency_keys', '0', '25 hours'), ('idempotency_keys', '25 hours', '25 hours 7 days'),
             ('rate_limit_log', '0', '2 hours'), ('rate_limit_log', '2 hours', '2 hours 7 days'))
         AS p (parent, from_at, to_at),
     (SELECT date_trunc('hour', now()) AS hour) h;
