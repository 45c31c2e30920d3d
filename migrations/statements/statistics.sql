-- The statistics follow the events: ../schema/16_statistics.sql. The role is issuing_worker.

-- name: statistics_fold :one
-- why: moves at most $1 changes into outbox_statistics. One worker of the cluster at a time, by a row of job_locks that
-- is tried and not waited for: issuing.fold_statistics. It may run again: what was moved is gone.
SELECT folded, refused, has_more
FROM issuing.fold_statistics($1::int8);
