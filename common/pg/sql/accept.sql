-- name: accept_batch :many
-- why: one call is one transaction for a whole batch. Locks, order and races are explained in
-- migrations/0006_accept.sql; the function is in 0018_cells.sql.
SELECT verdict, event_id, created_at, used, oldest_at, frees_at, decided_at
FROM issuing.accept($1::uuid[], $2::text[], $3::text[], $4::bytea[], $5::text[], $6::text[],
                    $7::int8, $8::int8 * interval '1 millisecond', $9::bool, $10::int8 * interval '1 millisecond');
