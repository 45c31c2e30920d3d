-- Why: what operators do, as functions that write the audit row themselves. Locks: none. Older programs: their statements go on.
SELECT 1;
