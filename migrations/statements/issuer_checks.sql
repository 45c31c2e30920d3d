-- Checks of operators: "is the issuer, or the receiver of a route, reached as it should be?" (issuing-ctl doctor
-- --issuer, route test). The functions are in migrations/schema/20_issuers.sql; the role is issuing_worker, which has
-- no right on the table. Each statement may run again: the token makes all runs but the first ineffective.

-- name: issuer_check_take :many
-- why: leases the oldest check that waits, under a token, by issuer_checks_open. SKIP LOCKED: two workers never get the
-- same one. $1 token, $2 lease in ms, $3 worker, $4 targets that it may call.
SELECT id, user_id, target, creates
FROM issuing.take_issuer_check($1::uuid, $2::int8, $3::text, $4::text[]);

-- name: issuer_check_renew :one
-- why: before each call of a trial. Guarded by the token. $1 check, $2 token, $3 lease in ms.
SELECT issuing.renew_issuer_check($1::uuid, $2::uuid, $3::int8);

-- name: issuer_check_put_back :many
-- why: the worker drains, or the target is paused. Guarded by the token. $1 check, $2 token.
SELECT issuing.put_issuer_check_back($1::uuid, $2::uuid)::text;

-- name: issuer_check_end :one
-- why: the findings, for the operator who waits. Guarded by the token. $1 check, $2 token, $3 result, $4 findings.
SELECT issuing.end_issuer_check($1::uuid, $2::uuid, $3::text, $4::text::jsonb);
