-- The issuer's list of its cards beside ours (issuing-ctl reconcile --from-issuer). The functions are in
-- migrations/schema/21_listings.sql; the role is issuing_worker, which has no right on the tables. Each statement may
-- run again: a page that is noted twice has no new card, and the token keeps two workers apart.

-- name: issuer_listing_take :many
-- why: leases the oldest list that somebody waits for. SKIP LOCKED: two workers never get the same one. $1 token, $2
-- lease in ms, $3 worker, $4 profile, $5 address, $6 ms after which it asks by itself, 0 = never.
SELECT id, since_us, after, is_listed
FROM issuing.take_listing($1::uuid, $2::int8, $3::text, $4::text, $5::text, $6::int8);

-- name: issuer_listing_note :one
-- why: a page, compared by the primary key of the events and cards_one_per_request, and the position of the next one,
-- in one transaction. Guarded by the token. $1 list, $2 token, $3 ids, $4 references, $5 whether each is live, $6 next,
-- $7 ms within which what changed is not a question, $8 lease in ms.
SELECT issuing.note_listed($1::uuid, $2::uuid, $3::text[], $4::uuid[], $5::bool[], $6::text, $7::int8, $8::int8);

-- name: issuer_listing_compare :one
-- why: cards of ours that the list lacks, a piece by cards_one_per_request. Guarded by the token. $1 list, $2 token, $3
-- as $7 above, $4 lease in ms.
SELECT issuing.compare_listed($1::uuid, $2::uuid, $3::int8, $4::int8);

-- name: issuer_listing_leave :many
-- why: the worker gives it away. Guarded by the token. $1 list, $2 token, $3 why, or null, $4 whether it ends.
SELECT issuing.leave_listing($1::uuid, $2::uuid, $3::text, $4::bool)::text;
