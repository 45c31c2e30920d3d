-- Why: what belongs to the end of a card request. Locks: none that matter.
SELECT 1;
