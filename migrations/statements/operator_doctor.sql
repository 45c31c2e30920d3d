-- What `issuing-ctl doctor` asks of the database: rights, settings, locks, sessions, histories.

-- name: operator_doctor :one
-- why: the facts that doctor judges: settings and catalogue rows that every role may read. It touches no table of ours,
-- so it works on an empty database. A backend much older than the connection means that a pooler is in between.
SELECT current_setting('server_version_num')::int8,
       current_user::text,
       (SELECT r.rolsuper FROM pg_roles r WHERE r.rolname = current_user),
       pg_is_in_recovery(),
       -- What others have: this session has set its own.
       (SELECT s.reset_val FROM pg_settings s WHERE s.name = 'synchronous_commit'),
       current_setting('fsync'),
       current_setting('full_page_writes'),
       current_setting('autovacuum'),
       current_setting('track_counts'),
       current_setting('server_encoding'),
       clock_timestamp(),
       (SELECT coalesce((extract(epoch FROM clock_timestamp() - a.backend_start) * 1000000)::int8, 0)
        FROM pg_stat_activity a WHERE a.pid = pg_backend_pid()),
       (SELECT string_agg(coalesce(r.rolname, 'the database'), ', ' ORDER BY r.rolname)
        FROM pg_db_role_setting s LEFT JOIN pg_roles r ON r.oid = s.setrole
        WHERE s.setdatabase IN (0, (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()))
          AND EXISTS (SELECT FROM unnest(s.setconfig) AS o (setting)
                      WHERE o.setting ~* '^synchronous_commit=(off|false|no|0)$'
                          OR o.setting ~* '^synchronous_commit=local$'
                            AND current_setting('synchronous_standby_names') <> '')),
       current_database()::text,
       current_setting('synchronous_standby_names'),
       -- Only who may read statistics sees the states of others' connections.
       CASE WHEN pg_has_role('pg_read_all_stats', 'USAGE')
            THEN (SELECT count(*) FROM pg_stat_replication s WHERE s.sync_state IN ('sync', 'quorum')) END,
       current_setting('max_locks_per_transaction')::int8;

-- name: operator_doctor_jit :one
-- why: those of our roles for which JIT is not off, by what is set for the role, or for the role in this database,
-- which wins. NULL = none. A session of a program switches it off itself; people's do not. No lock.
SELECT string_agg(r.rolname, ', ' ORDER BY r.rolname)
FROM pg_roles r
WHERE r.rolname IN ('issuing_owner', 'issuing_api', 'issuing_worker', 'issuing_operator', 'issuing_viewer')
  AND coalesce((SELECT o.setting FROM pg_db_role_setting s CROSS JOIN unnest(s.setconfig) AS o (setting)
                WHERE s.setrole = r.oid
                  AND s.setdatabase IN (0, (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()))
                  AND o.setting ~* '^jit='
                ORDER BY s.setdatabase DESC LIMIT 1), '') !~* '^jit=(off|false|no|0)$';

-- name: operator_doctor_logged :many
-- why: roles of ours whose statements are written to the server's log with what they are given, why, and how to end it.
-- What counts for a role is set for it in this database, for it, for the database, or for the server. No lock.
WITH set_for AS MATERIALIZED (
    SELECT r.oid AS role, split_part(o.setting, '=', 1) AS name, substr(o.setting, strpos(o.setting, '=') + 1) AS value,
           row_number() OVER (PARTITION BY r.oid, split_part(o.setting, '=', 1)
                              ORDER BY s.setrole = 0, s.setdatabase = 0) AS n
    FROM pg_roles r
    JOIN pg_db_role_setting s ON s.setrole IN (r.oid, 0)
        AND s.setdatabase IN (0, (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()))
    CROSS JOIN unnest(s.setconfig) AS o (setting)
), server AS MATERIALIZED (
    -- The session's own value says nothing of the server where it was set for this role.
    SELECT p.name, CASE WHEN p.source IN ('user', 'database user') THEN p.boot_val ELSE p.setting END AS value
    FROM pg_settings p WHERE p.name ~ 'log_'
), found AS (
    SELECT r.rolname AS role, v.name, v.reason, v.pattern,
           coalesce((SELECT f.value FROM set_for f WHERE f.role = r.oid AND f.name = v.name AND f.n = 1),
                    (SELECT g.value FROM server g WHERE g.name = v.name), '-1') AS most,
           coalesce((SELECT f.value FROM set_for f WHERE f.role = r.oid AND f.name = v.reason AND f.n = 1),
                    (SELECT g.value FROM server g WHERE g.name = v.reason)) AS reason_value
    FROM pg_roles r
    CROSS JOIN (VALUES ('log_parameter_max_length', 'log_statement', '^(mod|all)$'),
                       ('log_parameter_max_length', 'log_min_duration_statement', '^[0-9]'),
                       ('log_parameter_max_length', 'log_min_duration_sample', '^[0-9]'),
                       ('log_parameter_max_length', 'log_transaction_sample_rate', '[1-9]'),
                       ('log_parameter_max_length_on_error', 'log_min_error_statement', ''),
                       ('auto_explain.log_parameter_max_length', 'auto_explain.log_min_duration', '^[0-9]'))
               AS v (name, reason, pattern)
    WHERE r.rolname IN ('issuing_owner', 'issuing_api', 'issuing_worker', 'issuing_operator', 'issuing_viewer')
      -- PostgreSQL 15 does not have it: its auto_explain logs no values.
      AND (v.name !~ '^auto_explain' OR current_setting('server_version_num')::int8 >= 160000)
)
SELECT f.role::text, string_agg(format('%s = %s', f.reason, f.reason_value), ', '),
       format('as a superuser: ALTER ROLE %I SET %s = 0', f.role, f.name)
FROM found f
-- guard: doctor sees that values of our statements are logged
WHERE f.reason_value ~ f.pattern AND f.most !~ '^0+ *([kMGT]?B)?$'
GROUP BY f.role, f.name
ORDER BY 1, 3;

-- name: operator_doctor_disagree :many
-- why: what the living workers must have alike, and have not. No lock.
SELECT d.name, left(d.says, 600) FROM issuing.workers_disagree d ORDER BY d.name;

-- name: operator_doctor_collation :one
-- why: the version of the database's collation when its indexes were made, and the one that the host has now; NULL = it
-- has none. Catalogues only. No lock.
SELECT d.datcollversion, pg_database_collation_actual_version(d.oid)
FROM pg_database d WHERE d.datname = current_database();

-- name: operator_doctor_publications :one
-- why: tables of ours that a publication has and whose rows cannot be changed therefore, because they have neither a
-- primary key nor another replica identity; NULL = none. Catalogues only. No lock.
SELECT string_agg(DISTINCT c.oid::regclass::text, ', '), min(t.pubname)::text
FROM pg_publication_tables t
JOIN pg_publication p ON p.pubname = t.pubname AND (p.pubupdate OR p.pubdelete)
JOIN pg_class o ON o.oid = to_regclass(format('%I.%I', t.schemaname, t.tablename))
JOIN pg_class c ON c.oid = o.oid OR c.relispartition AND pg_partition_root(c.oid) = o.oid
WHERE t.schemaname ~ '^issuing(_p[0-9]+)?$' AND c.relkind = 'r' AND c.relreplident IN ('d', 'n')
  AND NOT (c.relreplident = 'd' AND EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary));

-- name: operator_doctor_holders :many
-- why: what holds vacuum or WAL back in this cluster: snapshots and prepared transactions that are older than $1 ms,
-- slots that hold rows or WAL and that nobody reads, or that are more than $4 bytes of WAL behind, tables whose oldest
-- row is older than $3 transactions. The time of another role's session is shown to those who may read statistics;
-- without it, its age in transactions counts ($2). Catalogues only. No lock.
SELECT 'snapshot', format('process %s of role %s, state %s', a.pid, coalesce(a.usename, '?'), coalesce(a.state, '?')),
       (extract(epoch FROM clock_timestamp() - a.xact_start) * 1000)::int8, age(a.backend_xmin)::int8, NULL::int8,
       'end it: SELECT pg_terminate_backend(PID)'
FROM pg_stat_activity a
WHERE a.backend_xmin IS NOT NULL AND a.pid <> pg_backend_pid()
  AND CASE WHEN a.xact_start IS NULL THEN age(a.backend_xmin) > $2::int8
           ELSE a.xact_start < clock_timestamp() - $1::int8 * interval '1 millisecond' END
UNION ALL
SELECT 'prepared', format('transaction %L of role %s in database %s', left(p.gid, 60), p.owner, p.database),
       (extract(epoch FROM clock_timestamp() - p.prepared) * 1000)::int8, age(p.transaction)::int8, NULL,
       'COMMIT PREPARED or ROLLBACK PREPARED, as its transaction manager says'
FROM pg_prepared_xacts p WHERE p.prepared < clock_timestamp() - $1::int8 * interval '1 millisecond'
UNION ALL
SELECT 'slot', format('%s%s', s.slot_name, CASE WHEN s.active THEN '' ELSE ', which nobody reads' END), NULL,
       coalesce(greatest(age(s.xmin), age(s.catalog_xmin)), 0)::int8,
       CASE WHEN NOT pg_is_in_recovery() THEN pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn)::int8 END,
       'start its reader, or SELECT pg_drop_replication_slot(NAME): the disk fills'
FROM pg_replication_slots s
WHERE s.wal_status IS DISTINCT FROM 'lost'
  AND (NOT s.active OR CASE WHEN NOT pg_is_in_recovery()
                            THEN pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn) > $4::int8 END)
UNION ALL
SELECT 'wraparound', c.oid::regclass::text, NULL, age(c.relfrozenxid)::int8, NULL,
       'VACUUM it, and see why autovacuum does not: PostgreSQL refuses to write in the end'
FROM pg_class c
WHERE c.relkind IN ('r', 't', 'm') AND age(c.relfrozenxid) > $3::int8
ORDER BY 4 DESC NULLS LAST
LIMIT 20;

-- name: operator_doctor_notifications :one
-- why: how full the queue of notifications is, in thousandths. One session that listens, anywhere in the cluster, and
-- does not end its transaction fills it. No lock.
SELECT ceil(pg_notification_queue_usage() * 1000)::int8;

-- name: operator_doctor_certificates :many
-- why: when the certificates of the targets end, as living workers saw them. No lock.
SELECT t.target, min(t.certificate_ends_at),
       floor(extract(epoch FROM min(t.certificate_ends_at) - clock_timestamp()) / 86400)::int8
FROM issuing.worker_targets t JOIN issuing.workers_living w ON w.name = t.worker
WHERE t.certificate_ends_at IS NOT NULL
GROUP BY t.target
ORDER BY 2;

-- name: operator_doctor_history :one
-- why: what programs have found missing here, and since when, while no operator has accepted it; nulls = nothing. No
-- lock.
SELECT string_agg(h.lost, '; ' ORDER BY h.lost_at), min(h.lost_at)
FROM issuing.histories h
WHERE h.lost_at IS NOT NULL AND h.accepted_at IS NULL;

-- name: operator_doctor_housekeeping :one
-- why: how long ago the housekeeping passed, who holds its lock, and plans that are late with who holds their tables.
-- No lock.
SELECT (extract(epoch FROM clock_timestamp() - h.passed_at) * 1000)::int8, h.holder, h.plans
FROM issuing.housekeeping_state() h;

-- name: operator_doctor_locks_seen :one
-- why: whether everybody may read the keys of locks (pg_locks), whether this role and the owner of the schema may, and
-- to which other databases of the cluster everybody may connect: pg_locks shows the keys there too, and what PUBLIC may
-- read there cannot be seen from here; NULL = to none. No lock.
SELECT EXISTS (SELECT FROM pg_proc p CROSS JOIN LATERAL aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) x
               WHERE p.oid = 'pg_lock_status()'::regprocedure AND x.grantee = 0),
       bool_and(has_function_privilege(r.oid, 'pg_lock_status()', 'EXECUTE')
                AND has_table_privilege(r.oid, 'pg_locks', 'SELECT')),
       (SELECT string_agg(d.datname, ', ' ORDER BY d.datname)
        FROM pg_database d CROSS JOIN LATERAL aclexplode(coalesce(d.datacl, acldefault('d', d.datdba))) x
        WHERE d.datallowconn AND d.datname <> current_database() AND x.grantee = 0 AND x.privilege_type = 'CONNECT')
FROM pg_roles r
WHERE r.rolname = current_user OR r.oid = (SELECT n.nspowner FROM pg_namespace n WHERE n.nspname = 'issuing');

-- name: operator_doctor_other_locks :many
-- why: sessions of other roles that hold advisory locks here, or that a session of ours has waited for longer than a
-- second. Since when they do what they do is shown to those who may read statistics. No lock.
WITH ours AS MATERIALIZED (
    SELECT r.oid FROM pg_roles r
    WHERE r.rolname IN ('issuing_owner', 'issuing_api', 'issuing_worker', 'issuing_operator', 'issuing_viewer')
), blocking AS MATERIALIZED (
    SELECT DISTINCT b.pid
    FROM pg_locks l
    JOIN pg_stat_activity a ON a.pid = l.pid AND a.usesysid IN (SELECT o.oid FROM ours o)
    CROSS JOIN LATERAL unnest(pg_blocking_pids(l.pid)) AS b (pid)
    WHERE NOT l.granted AND l.waitstart < clock_timestamp() - interval '1 second'
), holding AS MATERIALIZED (
    SELECT l.pid, count(*) AS locks
    FROM pg_locks l
    WHERE l.locktype = 'advisory' AND l.granted
      AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
    GROUP BY 1
)
SELECT a.pid::int8, a.usename::text, coalesce(a.xact_start, a.state_change), coalesce(h.locks, 0),
       EXISTS (SELECT FROM blocking b WHERE b.pid = a.pid)
FROM pg_stat_activity a
LEFT JOIN holding h ON h.pid = a.pid
WHERE (h.pid IS NOT NULL OR a.pid IN (SELECT b.pid FROM blocking b))
  AND a.usesysid NOT IN (SELECT o.oid FROM ours o) AND a.pid <> pg_backend_pid()
ORDER BY 5 DESC, 1
LIMIT 20;

-- name: operator_held :many
-- why: sessions that keep everybody from reading our tables: they have locked one exclusively, or somebody who wants to
-- waits for them. Since when is shown to those who may read statistics; to others since when somebody waits. Asked
-- before our tables are. Catalogues only. It waits for no lock.
WITH locked AS MATERIALIZED (
    SELECT coalesce(l.pid, 0) AS pid, l.granted, c.relname
    FROM pg_locks l
    JOIN pg_class c ON c.oid = l.relation AND c.relkind IN ('r', 'p')
    JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = 'issuing'
    WHERE l.mode = 'AccessExclusiveLock'
      AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
), holding AS MATERIALIZED (
    SELECT k.pid, k.relname FROM locked k WHERE k.granted
    UNION
    SELECT b.pid, k.relname FROM locked k CROSS JOIN LATERAL unnest(pg_blocking_pids(k.pid)) AS b (pid)
    WHERE NOT k.granted
)
SELECT h.pid::int8, a.usename::text,
       coalesce(min(a.xact_start), (SELECT min(w.waitstart) FROM pg_locks w
                                    WHERE NOT w.granted AND h.pid = ANY (pg_blocking_pids(w.pid)))),
       string_agg(h.relname, ', ' ORDER BY h.relname)
FROM holding h LEFT JOIN pg_stat_activity a ON a.pid = h.pid
WHERE h.pid <> pg_backend_pid()
GROUP BY h.pid, a.usename
ORDER BY 3 NULLS LAST, 1
LIMIT 20;

-- name: operator_roles :many
-- why: which of the five roles exist, whether one of them is a superuser (then none of its rights means anything), and
-- whether it may be missing. No lock.
SELECT w.name, r.rolname IS NOT NULL, coalesce(r.rolsuper, false), w.name = 'issuing_viewer'
FROM unnest(ARRAY['issuing_owner', 'issuing_api', 'issuing_worker', 'issuing_operator', 'issuing_viewer'])
    WITH ORDINALITY AS w (name, n)
LEFT JOIN pg_roles r ON r.rolname = w.name
ORDER BY w.n;

-- name: operator_rights :many
-- why: rights that differ from those of grants.sql, missing or too many, of our roles and of PUBLIC. Needs the schema.
-- No lock. $1 what grants.sql grants, as embed_schema.py lists it.
WITH listed AS MATERIALIZED (
    SELECT r.oid AS role, w.value ->> 1 AS kind, w.value ->> 2 AS name, w.value ->> 3 AS col, w.value ->> 4 AS granted
    FROM jsonb_array_elements($1::text::jsonb) w
    JOIN pg_roles r ON r.rolname = w.value ->> 0 AND NOT r.rolsuper
), wanted AS MATERIALIZED (
    SELECT l.*, CASE l.kind WHEN 'table' THEN to_regclass(l.name)::oid
                            WHEN 'function' THEN to_regproc(l.name)::oid
                            ELSE to_regnamespace(l.name)::oid END AS thing
    FROM listed l
), has AS MATERIALIZED (
    SELECT x.grantee AS role, 'table' AS kind, NULL::text AS col, x.privilege_type AS granted, c.oid AS thing
    FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) x
    -- guard: doctor sees a right too many
    WHERE c.relnamespace = 'issuing'::regnamespace AND x.grantee <> c.relowner
    UNION
    SELECT x.grantee, 'table', t.attname, x.privilege_type, c.oid
    FROM pg_class c JOIN pg_attribute t ON t.attrelid = c.oid AND NOT t.attisdropped
    CROSS JOIN LATERAL aclexplode(t.attacl) x
    WHERE c.relnamespace = 'issuing'::regnamespace AND x.grantee <> c.relowner
    UNION
    SELECT x.grantee, 'function', NULL, x.privilege_type, p.oid
    FROM pg_proc p CROSS JOIN LATERAL aclexplode(p.proacl) x
    WHERE p.pronamespace = 'issuing'::regnamespace AND x.grantee NOT IN (p.proowner, 0)
    UNION
    SELECT x.grantee, 'schema', NULL, x.privilege_type, n.oid
    FROM pg_namespace n CROSS JOIN LATERAL aclexplode(n.nspacl) x
    WHERE n.nspname = 'issuing' AND x.grantee <> n.nspowner
)
SELECT (SELECT r.rolname FROM pg_roles r WHERE r.oid = w.role)::text, w.name, w.col, w.granted, true
FROM wanted w
WHERE NOT EXISTS (SELECT FROM has h WHERE h.role = w.role AND h.kind = w.kind AND h.thing = w.thing
                  AND h.granted = w.granted
                  AND h.col IS NOT DISTINCT FROM w.col)
UNION ALL
SELECT CASE WHEN h.role = 0 THEN 'PUBLIC' ELSE r.rolname END,
       CASE h.kind WHEN 'table' THEN h.thing::regclass::text
                   WHEN 'function' THEN h.thing::regprocedure::text
                   ELSE h.thing::regnamespace::text END,
       h.col, h.granted, false
FROM has h
LEFT JOIN pg_roles r ON r.oid = h.role
WHERE (h.role = 0 OR r.rolname IN ('issuing_api', 'issuing_worker', 'issuing_operator', 'issuing_viewer')
       AND NOT r.rolsuper)
  AND NOT EXISTS (SELECT FROM wanted w WHERE w.role = h.role AND w.kind = h.kind AND w.thing = h.thing
                  AND w.granted = h.granted
                  AND w.col IS NOT DISTINCT FROM h.col)
ORDER BY 5, 1, 2, 3, 4
LIMIT 50;

-- name: operator_access :many
-- why: settings that let code of others run in our name, or let a role do more than its own rights allow: owners, the
-- search_path of functions and roles, who may call functions that run as the owner, memberships. One row for each
-- fault: whether it is only a warning, what, and how to repair it. Catalogues only. No lock.
WITH ours AS MATERIALIZED (
    SELECT n.oid, n.nspowner AS owner, r.rolname AS owner_name, r.rolsuper
    FROM pg_namespace n JOIN pg_roles r ON r.oid = n.nspowner
    WHERE n.nspname = 'issuing'
), roles AS MATERIALIZED (
    SELECT r.* FROM pg_roles r
    WHERE r.rolname IN ('issuing_owner', 'issuing_api', 'issuing_worker', 'issuing_operator', 'issuing_viewer')
), programs AS MATERIALIZED (
    SELECT r.* FROM roles r WHERE r.rolname <> 'issuing_owner' AND NOT r.rolsuper
), settings AS MATERIALIZED (
    SELECT s.setrole AS role, s.setdatabase, u.setting
    FROM pg_db_role_setting s CROSS JOIN LATERAL unnest(s.setconfig) AS u (setting)
    WHERE s.setdatabase IN (0, (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()))
), things AS MATERIALIZED (
    SELECT c.oid::regclass::text AS name, c.relowner AS owner FROM pg_class c JOIN ours o ON c.relnamespace = o.oid
    WHERE c.relkind <> 'i' AND c.relkind <> 'I'
    UNION ALL SELECT p.oid::regprocedure::text, p.proowner FROM pg_proc p JOIN ours o ON p.pronamespace = o.oid
    UNION ALL SELECT p.oid::regoperator::text, p.oprowner FROM pg_operator p JOIN ours o ON p.oprnamespace = o.oid
    UNION ALL SELECT t.oid::regtype::text, t.typowner FROM pg_type t JOIN ours o ON t.typnamespace = o.oid
    UNION ALL SELECT c.collname, c.collowner FROM pg_collation c JOIN ours o ON c.collnamespace = o.oid
    UNION ALL SELECT c.opcname, c.opcowner FROM pg_opclass c JOIN ours o ON c.opcnamespace = o.oid
), faults AS (
    SELECT 1 AS n, false AS is_warning,
           format('%s belongs to %s and not to %s', t.name, pg_get_userbyid(t.owner), o.owner_name) AS what,
           'ALTER ... OWNER TO the owner of the schema, or drop it: it may run as any role that uses the schema'
               AS fix
    FROM things t CROSS JOIN ours o WHERE t.owner <> o.owner
    UNION ALL
    SELECT 0, false, format('the schema issuing belongs to %s%s', o.owner_name,
                            CASE WHEN o.rolsuper THEN ', a superuser' ELSE '' END),
           'let it and all that is in it belong to issuing_owner, and no superuser'
    FROM ours o
    WHERE o.rolsuper
       OR o.owner_name <> 'issuing_owner' AND EXISTS (SELECT FROM pg_roles r WHERE r.rolname = 'issuing_owner')
    UNION ALL
    SELECT 3, false, format('%s may create in the schema issuing', coalesce(r.rolname, 'PUBLIC')),
           'REVOKE CREATE ON SCHEMA issuing FROM it'
    FROM ours o JOIN pg_namespace s ON s.oid = o.oid CROSS JOIN LATERAL aclexplode(s.nspacl) x
    LEFT JOIN pg_roles r ON r.oid = x.grantee
    WHERE x.privilege_type = 'CREATE' AND x.grantee <> s.nspowner
    UNION ALL
    SELECT 4, false, format('%s has no fixed search_path', p.oid::regprocedure),
           'run issuing-ctl migrate, or ALTER FUNCTION ... SET search_path = pg_catalog, issuing, pg_temp'
    FROM pg_proc p CROSS JOIN ours o
    WHERE (p.pronamespace = o.oid OR p.prosecdef AND p.proowner = o.owner)
      AND NOT coalesce(p.proconfig && ARRAY['search_path=pg_catalog, issuing, pg_temp',
                                                'search_path=pg_catalog, pg_temp'], false)
      AND p.prosqlbody IS NULL -- parsed when it was made
    UNION ALL
    SELECT 5, false, format('everybody may call %s, which runs as %s', p.oid::regprocedure, o.owner_name),
           'REVOKE ALL ON FUNCTION ... FROM PUBLIC'
    FROM pg_proc p CROSS JOIN ours o
    WHERE p.prosecdef AND p.proowner = o.owner
      -- guard: doctor sees a function of the owner that everybody may call
      AND (p.proacl IS NULL OR EXISTS (SELECT FROM aclexplode(p.proacl) x WHERE x.grantee = 0))
    UNION ALL
    SELECT 6, false, format('%s is a member of %s', r.rolname, m.rolname),
           format('REVOKE %I FROM %I: the role can do all that the other can', m.rolname, r.rolname)
    FROM programs r CROSS JOIN ours o
    JOIN pg_roles m ON m.oid <> r.oid AND pg_has_role(r.oid, m.oid, 'MEMBER')
        AND (m.rolsuper OR m.oid = o.owner OR m.rolname ~ '^issuing_(owner|api|worker|operator|viewer)$'
             OR m.rolname IN ('pg_read_all_data', 'pg_write_all_data', 'pg_read_server_files', 'pg_write_server_files',
                              'pg_execute_server_program'))
    WHERE NOT (r.rolname = 'issuing_operator' AND m.rolname = 'issuing_viewer')
    UNION ALL
    SELECT 7, false, format('%s may %s', r.rolname, w.what), format('ALTER ROLE %I %s', r.rolname, w.fix)
    FROM programs r
    CROSS JOIN LATERAL (VALUES (r.rolcreaterole, 'make and change roles', 'NOCREATEROLE'),
                               (r.rolreplication, 'read all data as a replica', 'NOREPLICATION'),
                               (r.rolbypassrls, 'pass by row security', 'NOBYPASSRLS')) AS w (is_so, what, fix)
    WHERE w.is_so
    UNION ALL
    SELECT 8, false, format('%s can read encrypted card numbers in %s', r.rolname, t.name),
           'REVOKE it; numbers are for issuing.take_number only'
    FROM programs r
    CROSS JOIN (VALUES ('issuing.cards'), ('public.cards')) AS t (name)
    JOIN pg_attribute a ON a.attrelid = to_regclass(t.name) AND a.attname = 'number_record'
    WHERE has_column_privilege(r.oid, a.attrelid, a.attnum, 'SELECT')
    UNION ALL
    SELECT 9, false, format('the trigger %s of %s is switched off', t.tgname, t.tgrelid::regclass),
           'ALTER TABLE ... ENABLE TRIGGER'
    FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN ours o ON o.oid = c.relnamespace
    WHERE t.tgenabled = 'D'
    UNION ALL
    SELECT 10, false,
           'issuing.cards has lost cards_one_per_request: two cards of one request could be stored',
           'ALTER TABLE issuing.cards ADD CONSTRAINT cards_one_per_request UNIQUE (request_id)'
    FROM pg_class c JOIN ours o ON o.oid = c.relnamespace
    WHERE c.relname = 'cards' AND c.relkind IN ('r', 'p')
      AND NOT EXISTS (SELECT FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
                      WHERE i.indrelid = c.oid AND x.relname = 'cards_one_per_request' AND i.indisunique
                        AND i.indisvalid)
    UNION ALL
    SELECT 11, v.setting IS NULL, format('%s: %s', r.rolname, coalesce(v.setting, 'no search_path is set')),
           format('ALTER ROLE %I SET search_path = pg_catalog, issuing, pg_temp (migrate does it as a superuser)',
                  r.rolname)
    FROM roles r
    LEFT JOIN LATERAL (
        SELECT s.setting FROM settings s WHERE s.role = r.oid AND s.setting LIKE 'search_path=%'
        ORDER BY s.setting = 'search_path=pg_catalog, issuing, pg_temp' LIMIT 1) v ON true
    WHERE v.setting IS DISTINCT FROM 'search_path=pg_catalog, issuing, pg_temp'
    UNION ALL
    SELECT 12, true, 'everybody may create in the schema public',
           'REVOKE CREATE ON SCHEMA public FROM PUBLIC: what others create there may be found before what they mean'
    FROM pg_namespace n CROSS JOIN LATERAL aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) x
    WHERE n.nspname = 'public' AND x.grantee = 0 AND x.privilege_type = 'CREATE'
    UNION ALL
    SELECT 13, true,
           format('everybody may %s', CASE x.privilege_type WHEN 'CONNECT' THEN 'connect to this database'
                                                            ELSE 'make temporary tables in this database' END),
           format('REVOKE %s ON DATABASE %I FROM PUBLIC%s', x.privilege_type, d.datname,
                  CASE x.privilege_type WHEN 'CONNECT' THEN ', and GRANT CONNECT to those who need it: '
                                                            || 'who connects can hold locks that requests wait for' END)
    FROM pg_database d CROSS JOIN LATERAL aclexplode(coalesce(d.datacl, acldefault('d', d.datdba))) x
    -- guard: doctor reports that everybody may connect
    WHERE d.datname = current_database() AND x.grantee = 0 AND x.privilege_type IN ('CONNECT', 'TEMPORARY')
    UNION ALL
    SELECT 14, r.rolname = 'issuing_viewer', format('%s may not connect to this database', r.rolname),
           format('GRANT CONNECT ON DATABASE %I TO %I', current_database(), r.rolname)
    FROM roles r
    WHERE NOT r.rolsuper
      -- guard: doctor reports that a role may not connect
      AND NOT has_database_privilege(r.oid, current_database(), 'CONNECT')
    UNION ALL
    -- A role may change its own settings, and they outlive the program that did it. search_path, synchronous_commit and
    -- jit are checked elsewhere.
    SELECT 15, s.setting !~ '^default_transaction_(isolation|read_only)=',
           format('%s has a setting that migrate has not given it: %s', r.rolname, s.setting),
           format('ALTER ROLE %I%s RESET %s, unless you mean it', r.rolname,
                  CASE WHEN s.setdatabase <> 0 THEN format(' IN DATABASE %I', current_database()) END,
                  split_part(s.setting, '=', 1))
    FROM roles r JOIN settings s ON s.role = r.oid
    WHERE s.setting !~ '^(search_path|synchronous_commit|jit)='
      AND s.setting !~ '^(auto_explain\.)?log_parameter_max_length(_on_error)?=0$'
      AND NOT (r.rolname IN ('issuing_api', 'issuing_worker')
               AND s.setting IN ('statement_timeout=15s', 'idle_in_transaction_session_timeout=15s'))
)
SELECT f.is_warning, f.what, f.fix FROM faults f ORDER BY f.is_warning, f.n, f.what LIMIT 50;

-- name: operator_retention :one
-- why: for how long the database keeps what $1 names, in ms: doctor compares it with the configuration. No lock.
SELECT (SELECT (extract(epoch FROM r.kept) * 1000)::int8 FROM issuing.retentions r WHERE r.name = $1::text);

-- name: operator_inserters :many
-- why: roles that are not ours and may insert into the table of events, or into a table of that name in `public`, by a
-- right of their own: what they insert may be of any type but our own. Catalogues only. No lock.
SELECT coalesce(r.rolname::text, 'PUBLIC'), min(c.oid::regclass::text)
FROM pg_class c
CROSS JOIN LATERAL (SELECT x.grantee, x.privilege_type FROM aclexplode(c.relacl) x
                    UNION
                    SELECT x.grantee, x.privilege_type
                    FROM pg_attribute t CROSS JOIN LATERAL aclexplode(t.attacl) x WHERE t.attrelid = c.oid) a
LEFT JOIN pg_roles r ON r.oid = a.grantee
WHERE (c.oid IN (to_regclass('issuing.outbox_events'), to_regclass('public.outbox_events'))
       OR c.oid IN (SELECT i.inhrelid FROM pg_inherits i WHERE i.inhparent = to_regclass('issuing.outbox_events')))
  AND a.privilege_type = 'INSERT' AND a.grantee <> c.relowner
  AND coalesce(r.rolname, '') NOT IN ('issuing_owner', 'issuing_api')
GROUP BY 1
ORDER BY 1
LIMIT 20;

-- name: operator_role_names :many
-- why: the roles that a mistyped name may mean. No lock.
SELECT r.rolname::text FROM pg_roles r WHERE r.rolname !~ '^pg_' LIMIT 10000;
