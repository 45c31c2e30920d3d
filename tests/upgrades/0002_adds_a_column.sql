-- Why: the tests of migrate need an upgrade. Locks: ACCESS EXCLUSIVE on cards, for a moment.
ALTER TABLE issuing.cards ADD COLUMN colour text;
