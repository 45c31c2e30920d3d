"""The ways in which the schema can lie on a Citus cluster, each as the SQL that makes it of a migrated database."""
from processes import ROOT

EXAMPLES = ROOT / "examples" / "citus"

# By the user, as all other rows of the user: what Citus calls row-based. Each key has to hold the user id then. Tables
# that have no user id stay on the coordinator.
BY_USER = """
\\i FUNCTIONS
SET search_path = pg_catalog, issuing, pg_temp;
SET client_min_messages = warning;
ALTER TABLE issuing.outbox_events DROP CONSTRAINT outbox_events_pkey, ADD PRIMARY KEY (user_id, id);
ALTER TABLE issuing.outbox_attempts DROP CONSTRAINT outbox_attempts_pkey,
    ADD PRIMARY KEY (user_id, event_id, lease_token);
ALTER TABLE issuing.cards DROP CONSTRAINT cards_one_per_request,
    ADD CONSTRAINT cards_one_per_request UNIQUE (user_id, request_id);
SELECT create_distributed_table('issuing.outbox_events', 'user_id', shard_count => 4);
SELECT create_distributed_table(t, 'user_id', colocate_with => 'issuing.outbox_events')
FROM unnest('{issuing.outbox_attempts, issuing.idempotency_keys, issuing.rate_limit_log, issuing.cards,
              issuing.card_reissues, issuing.number_reveals}'::text[]) AS t;
DO $$
DECLARE
    f regprocedure;
BEGIN
    FOR f IN SELECT p.oid FROM pg_proc p
             WHERE p.pronamespace = 'issuing'::regnamespace AND 'plan_cache_mode=force_generic_plan' = ANY (p.proconfig)
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET plan_cache_mode = force_custom_plan', f);
    END LOOP;
END
$$;
""".replace("FUNCTIONS", str(EXAMPLES / "functions.sql"))

LAYOUTS = {
    "local": "",  # the extension is there, and no table of ours is distributed
    "schema": "\\i %s\n" % (EXAMPLES / "distribute.sql"),
    "users": BY_USER,
}
