-- What of the server itself a gauge shows.

-- name: server_gauges :one
-- why: what holds vacuum and WAL back, as doctor names it: the age of the oldest snapshot, prepared transaction or slot
-- of the cluster and of the oldest row of this database, in transactions, and the WAL that the slot which is furthest
-- behind keeps, in bytes. Other sessions show their snapshot, not since when, to every role. Catalogues only. No lock.
SELECT coalesce(greatest((SELECT max(age(a.backend_xmin)) FROM pg_stat_activity a WHERE a.pid <> pg_backend_pid()),
                         (SELECT max(age(p.transaction)) FROM pg_prepared_xacts p),
                         (SELECT max(greatest(age(s.xmin), age(s.catalog_xmin))) FROM pg_replication_slots s)),
                0)::int8,
       (SELECT age(d.datfrozenxid)::int8 FROM pg_database d WHERE d.datname = current_database()),
       -- A standby has no end of its own.
       CASE WHEN pg_is_in_recovery() THEN 0
            ELSE (SELECT coalesce(max(pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn)), 0)::int8
                  FROM pg_replication_slots s) END;
