-- Why: operators and reveals. Locks: none that matter.
SELECT 1;
