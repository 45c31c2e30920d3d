-- What a worker tells about itself every few seconds, and what operators ask of it. Nothing here decides about a card.

-- name: heartbeat :many
-- why: the rows of this worker and of its targets, and the controls that it is to obey, one row for each target:
-- issuing.heartbeat explains locks, clocks and what is removed. $1 worker, $2 host, $3 process, $4 version, $5 age of
-- the process in ms, $6 events held, $7 slots, $8 whether it drains; of each target: $9 name, $10 state, $11 age of the
-- state in ms, $12 cause, $13 rests, $14 paused, $15 ms to the next call or null, $16 calls in flight, $17 waiting, $18
-- limit of calls, $19 last probe obeyed, $20 seconds to the end of its certificate or null. $21 what the workers must
-- have alike, a JSON object; $22 issuer.key_lifetime and $23 issuer.settle_time in ms: the least and the most of all
-- living workers come back.
SELECT target, is_paused, paused_by, paused_why, probe_number, is_noted, least_lifetime_ms, most_settle_ms
FROM issuing.heartbeat($1::text, $2::text, $3::int8, $4::text, $5::int8, $6::int8, $7::int8, $8::bool, $9::text[],
                       $10::text[], $11::int8[], $12::text[], $13::bool[], $14::bool[], $15::int8[], $16::int8[],
                       $17::int8[], $18::int8[], $19::int8[], $20::int8[], $21::text::jsonb, $22::int8, $23::int8);

-- name: heartbeat_routes :one
-- why: the types that this worker delivers: functions of the database act by them, and operators see them. $1 worker;
-- of each route: $2 event type, $3 whether it is ordered, $4 whether it has a look-up, $5 lifetime of its keys in ms,
-- $6 most attempts, $7 whether it signs; of each target that the worker has paused for all since the last note: $8
-- name, $9 why.
SELECT issuing.note_routes($1::text, $2::text[], $3::bool[], $4::bool[], $5::int8[], $6::int8[], $7::bool[],
                           $8::text[], $9::text[])::text;

-- name: heartbeat_leave :none
-- why: a worker that ends is gone at once and does not count as dead for a day. Its rows of targets go with it, and
-- what it said of routes counts no more; last_worker tells people when it was. A lock that somebody holds delays the
-- end of the worker by 1.5 s at most. $1 worker.
WITH gone AS (
    DELETE FROM issuing.workers w WHERE w.name = $1::text
    RETURNING w.name, w.host
), unsaid AS (
    DELETE FROM issuing.route_workers r WHERE r.worker = $1::text
)
INSERT INTO issuing.last_worker (name, host, ended_at)
SELECT g.name, g.host, clock_timestamp() FROM gone g
ON CONFLICT (is_only) DO UPDATE SET name = excluded.name, host = excluded.host, ended_at = excluded.ended_at;
