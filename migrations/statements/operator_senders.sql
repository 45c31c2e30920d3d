-- Services that may send events: `issuing-ctl sender`.

-- name: operator_sender :one
-- why: adds or removes a role that may send events of a type, with its audit row: issuing.change_sender. null = done,
-- else why not. $1 action, $2 role, $3 type, $4 actor, $5 user of the operating system, $6 SUDO_USER, $7 reason.
SELECT issuing.change_sender($1::text, $2::text, $3::text, $4::text, $5::text, $6::text, $7::text);

-- name: operator_senders :many
-- why: who may send which type; whether a role of this name is there, whether it is the one that was added, and whether
-- it may connect where it logs in. No lock.
SELECT s.role, s.event_type, s.added_at, to_regrole(quote_ident(s.role)) IS NOT NULL,
       s.role_oid IS NOT DISTINCT FROM to_regrole(quote_ident(s.role))::oid,
       (r.rolcanlogin AND NOT has_database_privilege(r.oid, current_database(), 'CONNECT')) IS NOT TRUE
FROM issuing.senders s LEFT JOIN pg_roles r ON r.rolname = s.role
ORDER BY s.event_type, s.role;
