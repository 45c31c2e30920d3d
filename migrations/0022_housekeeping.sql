-- Why: housekeeping, locks and settings. Locks: none that matter.
SELECT 1;
