-- Why: who may insert which events. Locks: none that matter.
SELECT 1;
