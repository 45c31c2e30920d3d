-- A place on a Citus cluster: a distributed schema, whose tables are one shard each, on one node. Run for each place by
-- `issuing-ctl citus apply`, and by each later migrate behind the other files.
-- Citus plans each statement each time, which costs more than to run it. So what works on rows is a copy of its function in
-- a schema beside the place (issuing_p3_here), in which each table has the name of its shard: PostgreSQL plans it as
-- ever. The function of the place itself becomes one line that calls the copy, and Citus takes that call to the node
-- that has the place. All nodes have the same functions, and a shard keeps its name when the place moves.
--
-- What is not copied, the housekeeping above all, stays as it is. It changes tables, and that only the coordinator may.

SET LOCAL citus.enable_unsafe_triggers = on; -- each trigger works on rows of its own place
SET LOCAL citus.multi_shard_modify_mode = sequential;
SET LOCAL check_function_bodies = off; -- most nodes have no such shard

DO $do$
DECLARE
    place constant text := 'issuing'::regnamespace;
    here constant text := place || '_here';
    shard constant int8 := (SELECT d.shardid FROM pg_catalog.pg_dist_shard d
                            WHERE d.logicalrelid = (place || '.outbox_events')::regclass);
    -- What programs call. What else is copied follows from the texts.
    entries constant text[] := ARRAY[
        'accept', 'adopt', 'add_mark', 'ask_reconcile', 'ask_reissue', 'ask_reveal', 'cancel', 'claim', 'complete',
        'end_attempts', 'end_mark', 'end_executed_mark', 'fold_statistics', 'note_issuer_event', 'note_orphan',
        'put_mark_back',
        'rebuild_statistics', 'replay', 'resend', 'resolve', 'save', 'take_marks', 'take_number', 'what_waits',
        'withdraw_mark'];
    copied text[];
    more text[];
    tab record;
    f record;
    body text;
    definition text;
    statement text;
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO issuing_api, issuing_worker, issuing_operator', here);
    FOR tab IN
        SELECT c.relname AS name FROM pg_class c
        WHERE c.relnamespace = place::regnamespace AND c.relkind = 'r' AND c.relreplident = 'd'
          AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)
    LOOP
        EXECUTE format('ALTER TABLE %I.%I REPLICA IDENTITY FULL', place, tab.name);
    END LOOP;

    -- Microseconds since 1970. Ends that wait are taken in the order of their numbers: one that is told later has a higher
    -- one, whichever node's clock it was.
    EXECUTE format($f$
        CREATE OR REPLACE FUNCTION %1$I.number_row() RETURNS trigger
        LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
        AS $b$
        DECLARE
            us int8 := date_part('epoch', clock_timestamp()) * 1000000;
        BEGIN
            IF TG_ARGV[0] = 'id' THEN
                NEW.id := us;
            ELSE
                NEW.n := greatest(us, (SELECT max(t.n) + 1 FROM %2$s t WHERE t.refused IS NULL));
            END IF;
            RETURN NEW;
        END $b$ $f$, here, (SELECT format('%s.ends_to_tell_%s', place, d.shardid) FROM pg_catalog.pg_dist_shard d
                            WHERE d.logicalrelid = (place || '.ends_to_tell')::regclass));
    FOR tab IN SELECT * FROM (VALUES ('operator_actions', 'id'), ('ends_to_tell', 'n')) v (name, number)
               WHERE NOT EXISTS (SELECT FROM pg_trigger t
                                 WHERE t.tgrelid = format('%I.%I', place, v.name)::regclass AND t.tgname = 'number_row')
    LOOP
        EXECUTE format('CREATE TRIGGER number_row BEFORE INSERT ON %I.%I FOR EACH ROW EXECUTE FUNCTION %I.number_row(%L)',
                       place, tab.name, here, tab.number);
    END LOOP;

    copied := entries || ARRAY(SELECT p.proname::text FROM pg_proc p
                               WHERE p.pronamespace = place::regnamespace AND p.prorettype = 'trigger'::regtype);
    LOOP
        SELECT array_agg(DISTINCT c.proname::text) INTO more
        FROM pg_proc p JOIN pg_proc c ON c.pronamespace = p.pronamespace
        WHERE p.pronamespace = place::regnamespace AND p.proname = ANY (copied) AND c.proname <> ALL (copied)
          AND c.prosqlbody IS NULL -- else it has no table
          AND p.prosrc ~ ('\m' || c.proname || '\(');
        EXIT WHEN more IS NULL;
        copied := copied || more;
    END LOOP;

    FOR f IN
        SELECT p.oid, p.proname AS name, p.prosrc AS source, pg_get_functiondef(p.oid) AS definition,
               p.proname = ANY (entries) AS is_entry, p.prorettype = 'trigger'::regtype AS is_trigger,
               p.proretset AS is_set, pg_get_function_result(p.oid) AS result,
               pg_get_function_arguments(p.oid) AS arguments, format('%I.%I(%s)', here, p.proname, array_to_string(
                   ARRAY(SELECT format_type(t.type, NULL) FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY t (type, n)
                         ORDER BY t.n), ', ')) AS copy,
               (SELECT string_agg(format('quote_nullable($%s) || ''::%s''', t.n, format_type(t.type, NULL)),
                                  ' || '', '' || ' ORDER BY t.n)
                FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY t (type, n)) AS texts,
               EXISTS (SELECT FROM unnest(p.proargtypes::oid[]) t (type) JOIN pg_type y ON y.oid = t.type
                       WHERE y.typnamespace = place::regnamespace) AS has_own_type,
               (SELECT string_agg('$' || n, ', ' ORDER BY n) FROM generate_series(1, p.pronargs) n) AS numbers,
               p.proacl AS acl, p.proowner AS owner
        FROM pg_proc p WHERE p.pronamespace = place::regnamespace AND p.proname = ANY (copied)
    LOOP
        body := f.source;
        FOR tab IN
            SELECT c.relname AS name, n.nspname AS space,
                   CASE c.relkind WHEN 'v' THEN '(' || rtrim(pg_get_viewdef(c.oid), ';') || ')'
                                  ELSE format('%I.%I', n.nspname, c.relname || '_' || d.shardid) END AS stands_for
            FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
            LEFT JOIN pg_catalog.pg_dist_shard d ON d.logicalrelid = c.oid
            WHERE n.nspname IN (place, 'issuing') AND NOT c.relispartition
              AND (d.shardid IS NOT NULL OR c.relkind = 'v' AND n.nspname = place)
            ORDER BY c.relkind DESC -- views, since they name tables
        LOOP
            body := regexp_replace(body, format('\m(FROM|JOIN|INTO|UPDATE)(\s+\(*)(?:%s\.)?%s(?![\w.])', tab.space, tab.name),
                                   '\1\2' || tab.stands_for, 'g');
        END LOOP;
        body := regexp_replace(body, format('\m%s\.(%s)\(', place, array_to_string(copied, '|')), here || '.\1(', 'g');
        IF f.is_entry THEN
            body := regexp_replace(body, '\n\s*BEGIN\n', format(E'\nBEGIN\n    PERFORM issuing.stay_here(%s);\n', shard));
        END IF;
        IF body ~ '(INTO|UPDATE|DELETE FROM) issuing\.[a-z_]+_[0-9]' THEN
            RAISE EXCEPTION '%.% would write to one copy of a table that each node has', place, f.name;
        END IF;
        definition := replace(f.definition, f.source, body);
        definition := replace(definition, format('''pg_catalog'', ''%s'',', place),
                              format('''pg_catalog'', ''%s'', ''%s'',', here, place));
        IF f.is_trigger THEN
            EXECUTE definition;
            CONTINUE;
        END IF;
        definition := replace(definition, format('FUNCTION %s.%s(', place, f.name),
                              format('FUNCTION %s.%s(', here, f.name));
        definition := replace(definition, E'\nAS $function$',
                              E'\n SET citus.enable_manual_changes_to_shards TO on\nAS $function$');
        EXECUTE definition;
        IF f.acl IS NOT NULL THEN
            EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', f.copy);
        END IF;
        FOR statement IN
            SELECT format('GRANT EXECUTE ON FUNCTION %s TO %s', f.copy, x.grantee::regrole)
            FROM aclexplode(f.acl) x WHERE x.grantee NOT IN (0, f.owner)
        LOOP
            EXECUTE statement;
        END LOOP;
        CONTINUE WHEN NOT f.is_entry;
        PERFORM create_distributed_function(f.copy::regprocedure,
                                            colocate_with => place || '.outbox_events');
        -- A call in a transaction block is not taken anywhere, and stay_here refuses it.
        EXECUTE format('CREATE OR REPLACE FUNCTION %I.%I(%s) RETURNS %s LANGUAGE plpgsql
                        SET citus.function_opens_transaction_block = off AS %L',
                       place, f.name, f.arguments, f.result,
                       -- A type of ours has another number on each node, so its values go as text.
                       CASE WHEN f.has_own_type THEN
                                format('BEGIN RETURN QUERY EXECUTE ''SELECT * FROM %s.%s('' || %s || '')''; END', here,
                                       f.name, f.texts)
                            WHEN f.is_set THEN format('BEGIN RETURN QUERY SELECT * FROM %s.%s(%s); END', here, f.name,
                                                      f.numbers)
                            WHEN f.result = 'void' THEN format('BEGIN PERFORM FROM %s.%s(%s); END', here, f.name, f.numbers)
                            ELSE format('DECLARE result %s; BEGIN SELECT v INTO result FROM %s.%s(%s) v; RETURN result; END',
                                        f.result, here, f.name, f.numbers) END);
    END LOOP;

    -- The locks are those of another node.
    EXECUTE format('CREATE OR REPLACE FUNCTION %I.job_lock_holder(of_work text) RETURNS text LANGUAGE sql STABLE
                    RETURN NULL::text', place);

    -- A statement through Citus needs the values of its parameters.
    FOR f IN SELECT p.oid::regprocedure AS id FROM pg_proc p
             WHERE p.pronamespace IN (place::regnamespace, (SELECT n.oid FROM pg_namespace n WHERE n.nspname = 'issuing'))
               AND 'plan_cache_mode=force_generic_plan' = ANY (p.proconfig)
    LOOP
        EXECUTE format('ALTER FUNCTION %s RESET plan_cache_mode', f.id);
    END LOOP;
END
$do$;
