-- A payload of more than 64 KiB: the event says where it is. Beside orders.sql, whose role sends the events. Run by a
-- superuser, or by the owner of the schema orders; may be run again. Then `issuing-ctl sender add orders
-- INVOICE_DOCUMENT --reason TEXT`.

CREATE TABLE IF NOT EXISTS orders.documents (
    id       uuid PRIMARY KEY DEFAULT gen_random_uuid(), -- whoever knows it may read the document
    event_id uuid NOT NULL,
    content  bytea NOT NULL
);

GRANT SELECT, INSERT, DELETE ON orders.documents TO orders;
