-- What `place`, and a command that works in several places, ask and do.

-- name: operator_has_event :one
-- why: whether the event is in this place. No lock. $1 event.
SELECT EXISTS (SELECT FROM issuing.outbox_events e WHERE e.id = $1::uuid);

-- name: operator_place_state :many
-- why: what the server has of a place; no row where it has none. Its home, who gave it away, the server's own name,
-- whether it is a standby, what is open there, the cluster that it was made with, whether it is that place, and its
-- last move. A standby can be asked. No lock. $1 place, $2 places.
SELECT p.home, p.left_by, pg_catalog.current_setting('cluster_name'), pg_catalog.pg_is_in_recovery(),
       (SELECT count(*)::int8 FROM issuing.outbox_events e WHERE e.status IN ('PENDING', 'PROCESSING')),
       c.system_identifier, p.number = $1::int8 AND p.places = $2::int8, p.move
FROM issuing.place p, pg_catalog.pg_control_system() c;

-- name: operator_place_server :one
-- why: what the server is called: where it serves the place, its home. No lock.
SELECT pg_catalog.current_setting('cluster_name');

-- name: owner_place_become :one
-- why: at the end of each migrate: which of several databases this is. null = done, else why not. $1 place, $2 places.
SELECT issuing.become_place($1::int8::int4, $2::int8::int4);

-- name: owner_place_move :one
-- why: issuing.move_place. null = done, else why not. $1 cluster_name of the new home, $2 the id of the move, or null,
-- $3 to $6 who and why.
SELECT issuing.move_place($1::text, $2::uuid, $3::text, $4::text, $5::text, $6::text);

-- name: owner_place_take_back :one
-- why: issuing.take_place_back. null = done, else why not. $1 whether it is the last step, $2 to $5 who and why.
SELECT issuing.take_place_back($1::bool, $2::text, $3::text, $4::text, $5::text);

-- name: owner_place_transactions :one
-- why: who may have asked for the home before it changed: issuing.transactions_now.
SELECT array_to_string(issuing.transactions_now(), ' ');

-- name: owner_place_waits :one
-- why: how many of these transactions still run. $1 their names, with blanks between.
SELECT count(*)::int8
FROM unnest(issuing.transactions_now()) t WHERE t = ANY (string_to_array($1::text, ' '));
