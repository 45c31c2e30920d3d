-- Proofs of the data: issuing-ctl prove.

-- Whether this is an id of the piece that begins at from_id and ends before to_id; null = without an end. It becomes a
-- part of the query that calls it, so that indexes are used.
CREATE OR REPLACE FUNCTION issuing.in_piece(id uuid, from_id uuid, to_id uuid) RETURNS bool
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN id >= coalesce(from_id, '00000000-0000-0000-0000-000000000000')
       AND id <= coalesce(to_id, 'ffffffff-ffff-ffff-ffff-ffffffffffff') AND (id < to_id) IS NOT FALSE;

-- The same of a time, by the times in these ids.
CREATE OR REPLACE FUNCTION issuing.at_in_piece(at timestamptz, from_id uuid, to_id uuid) RETURNS bool
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN at >= coalesce(issuing.uuid7_time(from_id), '-infinity')
       AND at <= coalesce(issuing.uuid7_time(to_id), 'infinity') AND (at < issuing.uuid7_time(to_id)) IS NOT FALSE;

-- Notes that a piece was read, from from_id (NULL = the beginning) to to_id (NULL = the end). False: it is not the next
-- piece of the proof that is under way, because another one has begun.
CREATE OR REPLACE FUNCTION issuing.note_proof(from_id uuid, to_id uuid, began_us int8, rows_broken int8) RETURNS bool
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    began timestamptz := timestamptz 'epoch' + began_us * interval '1 microsecond';
BEGIN
    UPDATE data_proofs p
    SET began_at = began, up_to = to_id, broken = rows_broken,
        proven_at = CASE WHEN to_id IS NULL THEN began ELSE p.proven_at END,
        proven_broken = CASE WHEN to_id IS NULL THEN rows_broken ELSE p.proven_broken END
    -- guard: a proof has no gap
    WHERE from_id IS NULL OR p.began_at = began AND p.up_to = from_id;
    RETURN FOUND;
END
$$;

REVOKE ALL ON FUNCTION issuing.note_proof FROM PUBLIC;
