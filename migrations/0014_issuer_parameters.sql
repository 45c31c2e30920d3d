-- What an issuer must be told of the user of an event (holder, product): kept from the first attempt that leaves an
-- outcome unknown, since a repeat under the same key must be the same request, and a look-up may need the holder after
-- core-api has forgotten the user.

ALTER TABLE issuing.outbox_events
    ADD COLUMN issuer_parameters jsonb
        CHECK (jsonb_typeof(issuer_parameters) = 'object' AND pg_column_size(issuer_parameters) <= 4096);
