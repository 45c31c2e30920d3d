-- name: accept_batch :many
-- why: one call is one transaction for a whole batch; the locks, the order and the races are explained in migrations/0002_accept.sql.
SELECT verdict, event_id, created_at, used, oldest_at, frees_at, decided_at, backend
FROM issuing_accept($1::uuid[], $2::text[], $3::text[], $4::bytea[], $5::text[], $6::text[],
                    $7::int8, $8::int8 * interval '1 millisecond', $9::bool, $10::int8 * interval '1 millisecond',
                    $11::bool);

-- name: accept_flush :one
-- why: behind an accept_batch that committed without waiting for the disk (flush_later). It locks nothing and reads nothing: one record in the log,
-- so that its commit waits for the disk, and for the standbys that count, with all that was committed before it. The caller compares the
-- process with the batch's: behind a pooler this may be another session, on a server that has crashed meanwhile and lost the batch.
SELECT pg_backend_pid()::int8 FROM pg_logical_emit_message(true, 'issuing', '');
