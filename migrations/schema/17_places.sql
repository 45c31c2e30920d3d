-- Where users are divided over places: what stands in `issuing` for all of them. Views over the tables of the places,
-- for reading; functions that find the place of an event or a user and call the function of the same name there. Run
-- after the places, and only where there are several.

-- The schema of a user: issuing_p0, issuing_p1, ..., or with one place `issuing` itself.
CREATE OR REPLACE FUNCTION issuing.place_of(user_id text) RETURNS int4
LANGUAGE sql STABLE SET search_path = pg_catalog, issuing, pg_temp
AS $$ SELECT issuing.bucket_of(user_id) * p.count / 1024 FROM places p $$;

-- The place itself, where this database serves it.
CREATE OR REPLACE FUNCTION issuing.here(of_place int4) RETURNS int4
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, issuing, pg_temp
AS $$
BEGIN
    IF NOT is_served(of_place) THEN
        RAISE EXCEPTION 'this database does not serve place %', of_place
            USING ERRCODE = 'ISPLC', HINT = 'issuing-ctl place list says which one does';
    END IF;
    RETURN of_place;
END
$$;

-- The first place that is served here: it says what no place can, and has the audit trail of what places share.
CREATE OR REPLACE FUNCTION issuing.first_place() RETURNS int4
LANGUAGE sql STABLE SET search_path = pg_catalog, issuing, pg_temp
AS $$ SELECT min(s.place)::int4 FROM place_states s WHERE is_served(s.place) $$;

-- The place of an event; the first one where there is no such event, so that it says so.
CREATE OR REPLACE FUNCTION issuing.place_of_event(event uuid) RETURNS int4
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
BEGIN
    RETURN coalesce((SELECT e.place FROM outbox_events e WHERE e.id = event), first_place());
END
$$;

CREATE OR REPLACE FUNCTION issuing.place_of_check(check_id uuid) RETURNS int4
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
BEGIN
    RETURN coalesce((SELECT c.place FROM marks c WHERE c.id = check_id), first_place());
END
$$;

-- `piece` once for each place that is served here, with P for its number, joined.
CREATE OR REPLACE FUNCTION issuing.for_places(piece text, joiner text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, issuing, pg_temp
AS $$
    SELECT string_agg(replace(piece, 'issuing_pP', 'issuing_p' || s.place), joiner ORDER BY s.place)
    FROM place_states s WHERE is_served(s.place)
$$;

-- The views. A sum where there is one row. `place` comes first: a column that a table gets later is the last one, and
-- only so can a view be replaced on which others depend.
DO $$
DECLARE
    tab record;
BEGIN
    FOR tab IN
        SELECT c.relname AS name, c.relkind IN ('r', 'p') AS has_place
        FROM pg_class c
        WHERE c.relnamespace = format('issuing_p%s', issuing.first_place())::regnamespace AND c.relkind IN ('r', 'p', 'v') AND NOT c.relispartition
          AND c.relname <> 'lock_salt'
    LOOP
        EXECUTE CASE tab.name
            WHEN 'ends_waiting' THEN
                'CREATE OR REPLACE VIEW issuing.ends_waiting AS SELECT sum(w.events)::int8 AS events, min(w.oldest_at) AS oldest_at
                 FROM (' || issuing.for_places('SELECT * FROM issuing_pP.ends_waiting', ' UNION ALL ') || ') w'
            ELSE
                format('CREATE OR REPLACE VIEW issuing.%I AS ', tab.name)
                || issuing.for_places(format('SELECT %st.* FROM issuing_pP.%I t',
                                             CASE WHEN tab.has_place THEN 'right(''issuing_pP'', -9)::int4 AS place, '
                                                  END, tab.name), ' UNION ALL ') END;
    END LOOP;
END
$$;

-- An action on what places share is in the audit trail of the first place.
CREATE OR REPLACE FUNCTION issuing.put_action() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
AS $$
BEGIN
    EXECUTE format('INSERT INTO issuing_p%s.operator_actions (event_id, actor, os_user, sudo_user, action, reason, before,
                                                              after)
                    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)', first_place())
    USING NEW.event_id, NEW.actor, NEW.os_user, NEW.sudo_user, NEW.action, NEW.reason, NEW.before, NEW.after;
    RETURN NEW;
END
$$;
CREATE OR REPLACE TRIGGER put_action INSTEAD OF INSERT ON issuing.operator_actions
    FOR EACH ROW EXECUTE FUNCTION issuing.put_action();

-- The functions of one event, one mark or one user, each with the expression that finds its place; and those of all
-- places, each with what is made of their results.
DO $$
DECLARE
    f record;
    call text;
    body text;
BEGIN
    FOR f IN
        SELECT w.find, w.fold, p.proname AS name, pg_get_function_arguments(p.oid) AS arguments,
               pg_get_function_result(p.oid) AS result,
               p.proretset AS is_set, p.provolatile AS volatility, p.prosecdef AS is_definer,
               (SELECT string_agg('$' || n, ', ' ORDER BY n) FROM generate_series(1, p.pronargs) n) AS numbers,
               (SELECT string_agg(format_type(t, NULL), ', ' ORDER BY n)
                FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY AS a (t, n)) AS types,
               -- A row of another place is one of the first place by its text.
               coalesce((SELECT string_agg(format(CASE WHEN t.typtype = 'c' THEN '%I::text::' || o.schema || '.%I'
                                                       ELSE '%I' END, a.name, t.typname), ', ' ORDER BY a.n)
                         FROM unnest(p.proargnames, p.proargmodes, p.proallargtypes)
                                  WITH ORDINALITY a (name, mode, type, n)
                         JOIN pg_type t ON t.oid = a.type WHERE a.mode = 't'), '*') AS columns
        FROM (VALUES ('replay', 'place_of_event($1)', NULL), ('cancel', 'place_of_event($1)', NULL),
                     ('resend', 'place_of_event($1)', NULL), ('resolve', 'place_of_event($1)', NULL),
                     ('adopt', 'place_of_event($1)', NULL),
                     ('ask_reconcile', 'place_of_event($1)', NULL), ('ask_reissue', 'place_of_event($1)', NULL),
                     ('end_of', 'place_of_event($1)', NULL), ('withdraw_mark', 'place_of_check($1)', NULL),
                     ('issuer_of_card', 'here(place_of($1))', NULL),
                     ('enqueue', 'here(coalesce(place_of($2), first_place()))', NULL),
                     ('retention_now', 'first_place()', NULL),
                     ('free_held', NULL, 'SELECT bool_or(v) FROM (%s) u (v)'),
                     ('route_is_open', NULL, 'SELECT bool_or(v) FROM (%s) u (v)'),
                     ('give_up_ends', NULL, 'SELECT sum(v)::int8 FROM (%s) u (v)'),
                     ('make_one_due', NULL, 'SELECT FROM (%s) u (v)'),
                     ('count_events', NULL, '%s'),
                     ('number_keys', NULL, 'SELECT u.key_id, sum(u.records)::int8 FROM (%s) u GROUP BY 1 ORDER BY 1'),
                     ('rebuild_statistics', NULL, 'SELECT max(u.refused), sum(u.corrected)::int8 FROM (%s) u'),
                     ('housekeeping_state', NULL, 'SELECT min(u.passed_at), string_agg(u.holder, '', ''),
                                                   string_agg(u.plans, '', '') FROM (%s) u'))
                 AS w (name, find, fold)
        CROSS JOIN (SELECT format('issuing_p%s', issuing.first_place()) AS schema) o
        JOIN pg_proc p ON p.proname = w.name AND p.pronamespace = o.schema::regnamespace
    LOOP
        IF f.find IS NOT NULL THEN
            call := format('EXECUTE format(%L, %s)', format('SELECT %s FROM issuing_p%%s.%I(%s)', f.columns, f.name,
                                                               f.numbers), f.find);
            body := CASE WHEN f.is_set THEN 'RETURN QUERY ' || call || ' USING ' || f.numbers
                         ELSE call || ' INTO result USING ' || f.numbers END;
        ELSE
            call := format(f.fold, issuing.for_places(format(CASE WHEN f.is_set THEN 'SELECT * FROM issuing_pP.%I(%s)'
                                                                  ELSE 'SELECT issuing_pP.%I(%s)' END,
                                                             f.name, f.numbers), ' UNION ALL '));
            body := CASE WHEN f.is_set THEN 'RETURN QUERY ' || call
                         WHEN f.result = 'void' THEN 'PERFORM ' || substr(call, 8)
                         ELSE 'result := (' || call || ')' END;
        END IF;
        -- What names a type of another place, since the first one has left.
        IF EXISTS (SELECT FROM pg_proc o
                   WHERE o.oid = to_regprocedure(format('issuing.%I(%s)', f.name, f.types))
                     AND pg_get_function_result(o.oid) <> f.result) THEN
            EXECUTE format('DROP FUNCTION issuing.%I(%s)', f.name, f.types);
        END IF;
        EXECUTE format('CREATE OR REPLACE FUNCTION issuing.%I(%s) RETURNS %s LANGUAGE plpgsql %s %s
                        SET search_path = pg_catalog, issuing, pg_temp AS %L',
                       f.name, f.arguments, f.result,
                       CASE f.volatility WHEN 'v' THEN 'VOLATILE' ELSE 'STABLE' END,
                       CASE WHEN f.is_definer THEN 'SECURITY DEFINER' ELSE 'SECURITY INVOKER' END,
                       '#variable_conflict use_column' || E'\n'
                       || CASE WHEN f.is_set OR f.result = 'void' THEN '' ELSE 'DECLARE result ' || f.result || '; ' END
                       || 'BEGIN ' || body || ';'
                       || CASE WHEN f.is_set OR f.result = 'void' THEN '' ELSE ' RETURN result;' END || ' END');
    END LOOP;
END
$$;

-- As many events as there are payloads: those of each place by one call there. The ids are in the order of the arrays.
CREATE OR REPLACE FUNCTION issuing.enqueue_many(
    type text, user_ids text[], payloads jsonb[], keys text[] DEFAULT NULL, run_at timestamptz DEFAULT NULL,
    caller issuing.caller DEFAULT CURRENT_USER)
RETURNS uuid[]
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    part record;
    made uuid[];
    ids uuid[] := array_fill(NULL::uuid, ARRAY[coalesce(cardinality(payloads), 0)]);
BEGIN
    PERFORM check_sender(caller, type), check_many(type, user_ids, payloads, keys, run_at);
    FOR part IN
        SELECT here(coalesce(place_of(u.user_id), first_place())) AS place, array_agg(u.user_id ORDER BY u.n) AS user_ids,
               array_agg(payloads[u.n] ORDER BY u.n) AS payloads, array_agg(keys[u.n] ORDER BY u.n) AS keys,
               array_agg(u.n ORDER BY u.n) AS numbers
        FROM unnest(user_ids) WITH ORDINALITY AS u (user_id, n) GROUP BY 1 ORDER BY 1
    LOOP
        EXECUTE format('SELECT issuing_p%s.enqueue_many($1, $2, $3, $4, $5, $6)', part.place) INTO made
        USING type, part.user_ids, part.payloads, part.keys, run_at, caller;
        FOR i IN 1..cardinality(made) LOOP
            ids[part.numbers[i]] := made[i];
        END LOOP;
    END LOOP;
    RETURN ids;
END
$$;

-- One step of sealing again, place by place: see rewrap_take of a place.
CREATE OR REPLACE FUNCTION issuing.rewrap_take(after_user text, after_card uuid, active int8, most int8)
RETURNS TABLE (id uuid, user_id text, number_record bytea, looked_at_user text, looked_at_card uuid, left_out int8)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    at_place int4 := CASE WHEN after_user IS NULL THEN first_place() ELSE here(place_of(after_user)) END;
    left_in_all int8 := 0;
BEGIN
    LOOP
        FOR id, user_id, number_record, looked_at_user, looked_at_card, left_out IN
            EXECUTE format('SELECT * FROM issuing_p%s.rewrap_take($1, $2, $3, $4)', at_place)
            USING after_user, after_card, active, most
        LOOP
            IF id IS NOT NULL THEN
                RETURN NEXT;
            END IF;
        END LOOP;
        left_in_all := left_in_all + left_out;
        EXIT WHEN looked_at_card IS NOT NULL;
        at_place := (SELECT min(s.place) FROM place_states s WHERE s.place > at_place AND is_served(s.place));
        EXIT WHEN at_place IS NULL;
        after_user := NULL;
        after_card := NULL;
    END LOOP;
    left_out := left_in_all;
    RETURN NEXT;
END
$$;

CREATE OR REPLACE FUNCTION issuing.rewrap_put(ids uuid[], user_ids text[], old_records bytea[], new_records bytea[],
    who text) RETURNS int8
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    part record;
    stored int8;
    stored_in_all int8 := 0;
BEGIN
    FOR part IN
        SELECT here(place_of(a.user_id)) AS place, array_agg(a.id) AS ids, array_agg(a.user_id) AS user_ids,
               array_agg(a.old_record) AS old_records, array_agg(a.new_record) AS new_records
        FROM unnest(ids, user_ids, old_records, new_records) AS a (id, user_id, old_record, new_record)
        GROUP BY 1 ORDER BY 1
    LOOP
        EXECUTE format('SELECT issuing_p%s.rewrap_put($1, $2, $3, $4, $5)', part.place) INTO stored
        USING part.ids, part.user_ids, part.old_records, part.new_records, who;
        stored_in_all := stored_in_all + stored;
    END LOOP;
    RETURN stored_in_all;
END
$$;

-- grants.sql gives what it gives on the functions of the first place.
DO $$
DECLARE
    ours regprocedure;
BEGIN
    FOR ours IN
        SELECT p.oid FROM pg_proc p
        WHERE p.pronamespace = 'issuing'::regnamespace
          AND (p.proname IN ('place_of_event', 'place_of_check', 'for_places', 'put_action')
               OR EXISTS (SELECT FROM pg_proc o
                          WHERE o.proname = p.proname AND o.pronamespace = format('issuing_p%s', issuing.first_place())::regnamespace))
    LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', ours);
    END LOOP;
END
$$;
