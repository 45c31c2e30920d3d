-- Accepting requests, and trying whether that works.

-- name: accept_batch :many
-- why: one call is one transaction for a whole batch. Locks, order and races are explained in
-- migrations/schema/03_accept.sql.
SELECT verdict, event_id, created_at, used, oldest_at, frees_at, decided_at, issuing.acknowledged()
FROM issuing.accept($1::uuid[], $2::text[], $3::text[], $4::bytea[], $5::text[], $6::text[], $7::text[],
                    $8::int8, $9::int8 * interval '1 millisecond', $10::bool, $11::int8 * interval '1 millisecond');

-- name: accept_check :one
-- why: after a request was refused for a reason of the schema: withdraws the plans of the housekeeping, which may
-- refuse everybody, then accepts a request and takes it back. One transaction: the second sees what the first did.
-- Waits for locks as long as a request may wait.
SELECT issuing.withdraw_plans('infinity'), issuing.try_accept();

-- name: accept_probe :one
-- why: now and then, while nothing was refused: an api that records nothing is to know it before it is asked. Accepts a
-- request and takes it back. Before, it withdraws the plans of the housekeeping whose range begins before the next
-- probe: no worker did, and they would refuse whatever is not a client's request too.
-- guard: a plan that no worker takes back refuses nobody while an api runs
SELECT issuing.withdraw_plans(clock_timestamp() + interval '1 minute'), issuing.try_accept();
