-- Distributes a place: its tables become shards of one node. Run for each place by `issuing-ctl citus apply`.

SET LOCAL citus.enable_unsafe_triggers = on; -- each trigger works on rows of its own place
SET LOCAL citus.multi_shard_modify_mode = sequential;

-- A shard takes no number of a sequence: number_row gives them.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_dist_schema s WHERE s.schemaid = 'issuing'::regnamespace) THEN
        ALTER TABLE issuing.operator_actions ALTER id DROP DEFAULT;
    END IF;
END
$$;
SELECT pg_catalog.citus_schema_distribute('issuing'::regnamespace)
WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_dist_schema s WHERE s.schemaid = 'issuing'::regnamespace);
