-- The trail of operators' actions: `issuing-ctl audit`.

-- name: operator_actions_of :many
-- why: what operators did to one event, in order; operator_actions_event. No lock. $1 event.
SELECT o.at, o.actor, o.action, o.reason, o.before::text, o.after::text, o.db_role, o.os_user, o.sudo_user
FROM issuing.operator_actions o
WHERE o.event_id = $1::uuid
ORDER BY o.id
LIMIT 10000;

-- part: audit_columns
-- The columns of ctl/audit/audit.c, in its order, but the last two.
s.id, s.at, s.event_id, s.actor, s.action, s.reason, s.db_role, s.os_user, s.sudo_user, s.before::text, s.after::text,
s.before ->> 'status', s.after ->> 'status', coalesce(s.after ->> 'target', s.before ->> 'target'), s.batch,
s.batch_scope,

-- part: audit_window
-- $1 since and $2 before, in us since 1970; $3 the id before which it goes on within $2. Null = any.
($1::int8 IS NULL OR o.at >= timestamptz 'epoch' + $1::int8 * interval '1 microsecond')
AND ($2::int8 IS NULL OR o.at <= timestamptz 'epoch' + $2::int8 * interval '1 microsecond')
-- guard: a walk over the audit goes on among the actions of one time
AND ($3::int8 IS NULL OR o.at < timestamptz 'epoch' + $2::int8 * interval '1 microsecond' OR o.id < $3::int8)

-- part: audit_own
o.id, o.at, o.event_id, o.actor, o.action, o.reason, o.db_role, o.os_user, o.sudo_user, o.before, o.after, o.batch,
o.batch_scope

-- part: audit_wanted
-- $4 actor, $5 action.
($4::text IS NULL OR $4::text IN (o.actor, o.os_user, o.sudo_user, o.db_role))
AND ($5::text IS NULL OR o.action = $5::text)

-- name: operator_audit :many
-- why: one step of a walk over the actions, newest first, by operator_actions_at. Looks at no more than $8, because
-- card numbers that users were shown are many. Returns the first $6 that match; and, unless there were more than $6,
-- the last one that was looked at, whose last but one column is false where it does not match. The last column of the
-- last row says whether nothing is left. Where $9, a bulk action of one actor matches once, with its newest row: newer
-- ones that earlier steps looked at are found by operator_actions_batch. No join with the rows themselves: it would
-- read the whole table. No lock. $1 to $3 audit_window, $6 how many to return, $7 also card numbers, $8 how many to
-- look at, $10 until, in us or null.
SELECT
-- insert: audit_columns
       -- guard: a walk over the audit ends only where all actions were looked at
       s.matches, s.n = s.looked AND s.looked < $8::int8
FROM (SELECT m.*, row_number() OVER w AS n, count(*) FILTER (WHERE m.matches) OVER w AS hits, count(*) OVER () AS looked
      FROM (SELECT f.*,
                   f.is_wanted
                   -- guard: a bulk action is one line of the audit
                   AND CASE WHEN f.batch IS NULL OR NOT $9::bool THEN true
                            WHEN f.in_batch > 1 THEN false
                            ELSE $3::int8 IS NULL OR (
                                SELECT o.id FROM issuing.operator_actions o
                                WHERE o.batch = f.batch AND o.db_role = f.db_role AND o.actor = f.actor
                                  AND o.action = f.action
                                  AND (o.at, o.id) >= (timestamptz 'epoch' + $2::int8 * interval '1 microsecond',
                                                       $3::int8)
                                  AND ($10::int8 IS NULL
                                       OR o.at <= timestamptz 'epoch' + $10::int8 * interval '1 microsecond')
                                LIMIT 1) IS NULL END AS matches
            FROM (SELECT
-- insert: audit_own
                         , row_number() OVER (PARTITION BY o.batch, o.db_role, o.actor, o.action
                                              ORDER BY o.at DESC, o.id DESC) AS in_batch,
-- insert: audit_wanted
                         AND ($7::bool OR o.action NOT IN ('number_revealed', 'number_refused')) AS is_wanted
                  FROM (SELECT * FROM issuing.operator_actions o
                        WHERE
-- insert: audit_window
                        ORDER BY o.at DESC, o.id DESC
                        LIMIT $8::int8) o) f
            OFFSET 0) m -- PostgreSQL 15 makes no plan of a window over the sub-select of `matches`
      WINDOW w AS (ORDER BY m.at DESC, m.id DESC ROWS UNBOUNDED PRECEDING)) s
WHERE s.hits <= $6::int8 AND (s.matches OR s.n = s.looked)
ORDER BY s.n;

-- part: audit_few
-- All that match are read and sorted. Between the two parts: by which index.
SELECT
-- insert: audit_columns
       true, count(*) OVER () < $6::int8
FROM (SELECT
-- insert: audit_own
      FROM issuing.operator_actions o
      WHERE
-- insert: audit_wanted
        AND
-- insert: audit_window
        AND

-- part: audit_few_end
      ORDER BY o.at DESC, o.id DESC
      LIMIT $6::int8) s
ORDER BY s.at DESC, s.id DESC;

-- name: operator_audit_event :many
-- why: the same for the actions on one event, by operator_actions_event: all of them are looked at, those of one event
-- are few. No lock. $1 to $3 audit_window, $6 how many to return, $7 event.
-- insert: audit_few
            o.event_id = $7::uuid
-- insert: audit_few_end

-- name: operator_audit_batch :many
-- why: the same for the actions of one bulk action, by operator_actions_batch. No lock. $1 to $3 audit_window, $6 how
-- many to return, $7 batch.
-- insert: audit_few
            o.batch = $7::uuid
-- insert: audit_few_end

-- name: operator_batch :one
-- why: what one bulk action of one actor did, and what its events are now: operator_actions_batch, then the primary key
-- of the newest $5 events. No lock. $1 batch, $2 database role, $3 actor, $4 action.
SELECT count(*)::int8, min(o.at), max(o.at),
       (SELECT string_agg(t.events || ' ' || t.status, ', ' ORDER BY t.events DESC, t.status)
        FROM (SELECT coalesce(e.status, 'removed') AS status, count(*) AS events
              FROM (SELECT n.event_id FROM issuing.operator_actions n
                    WHERE n.batch = $1::uuid AND n.db_role = $2::text AND n.actor = $3::text AND n.action = $4::text
                      AND n.event_id IS NOT NULL
                    ORDER BY n.at DESC, n.id DESC
                    LIMIT $5::int8) n
              LEFT JOIN issuing.outbox_events e ON e.id = n.event_id
              GROUP BY 1) t)
FROM issuing.operator_actions o
WHERE o.batch = $1::uuid AND o.db_role = $2::text AND o.actor = $3::text AND o.action = $4::text;

-- name: operator_audit_settled :one
-- why: up to where the trail is decided, before it is exported: issuing.audit_settled. It waits up to 3 s for those
-- that write. No lock.
SELECT a.number, a.held, a.kept_from, a.asked_at FROM issuing.audit_settled() a;

-- name: operator_audit_begin :one
-- why: the number behind which a chain begins: before the first action since then, or before all. operator_actions_at.
-- No lock. $1 since, in us since 1970, or null; $2 up to where the trail is decided.
SELECT CASE WHEN $1::int8 IS NULL THEN 0
            ELSE coalesce((SELECT min(o.id) - 1 FROM issuing.operator_actions o
                           WHERE o.at >= timestamptz 'epoch' + $1::int8 * interval '1 microsecond'), $2::int8) END;

-- name: operator_audit_by_id :many
-- why: the next actions in the order of their numbers, which never changes up to $2; operator_actions_id. No lock. $1
-- behind which number, $2 up to which, $3 how many.
SELECT
-- insert: audit_columns
       true, false
FROM issuing.operator_actions s
WHERE s.id > $1::int8 AND s.id <= $2::int8
ORDER BY s.id
LIMIT $3::int8;
