-- The tables and the role of the example. Run by a superuser, or by a role that may create roles and schemas; may be
-- run again. What lets the role send its events is `issuing-ctl sender add orders PAYMENT_CHARGE --reason TEXT`.

DO $$ BEGIN
    CREATE ROLE orders LOGIN; -- pg_hba.conf says how it logs in
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
END $$;

DO $$ BEGIN
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO orders', current_database());
END $$;

CREATE SCHEMA IF NOT EXISTS orders;

CREATE TABLE IF NOT EXISTS orders.orders (
    number    text PRIMARY KEY,
    customer  text NOT NULL,
    amount    int8 NOT NULL CHECK (amount > 0), -- in the smallest unit of the currency
    currency  text NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
    taken_at  timestamptz NOT NULL DEFAULT now(),
    -- The event that charges this order. One event charges one order.
    charge_id uuid NOT NULL UNIQUE,
    -- How the charge ended, copied from the event, which is removed after outbox.retention.
    state     text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'charged', 'refused')),
    reason    text,
    result    jsonb,
    is_counted boolean NOT NULL DEFAULT false -- in orders.analytics
);
CREATE INDEX IF NOT EXISTS orders_pending ON orders.orders (charge_id) WHERE state = 'pending';
CREATE INDEX IF NOT EXISTS orders_uncounted ON orders.orders (number) WHERE state = 'charged' AND NOT is_counted;

-- What each customer has paid: follows the charges, some seconds late, and nothing decides by it. An order is in
-- orders.orders or it is not; here it is counted once, later.
CREATE TABLE IF NOT EXISTS orders.analytics (
    customer text NOT NULL,
    currency text NOT NULL,
    orders   int8 NOT NULL,
    amount   numeric NOT NULL,
    PRIMARY KEY (customer, currency)
);

-- What became of a charge. issuing.end_of shows a service the events of the types that it may send, and no others.
CREATE OR REPLACE FUNCTION orders.charge_of(event uuid) RETURNS TABLE (state text, reason text, result jsonb)
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
    AS $$
    SELECT CASE e.status WHEN 'COMPLETED' THEN 'charged' WHEN 'REJECTED' THEN 'refused' WHEN 'FAILED' THEN 'in question'
                         ELSE 'pending' END,
           e.reason_code, e.result
    FROM issuing.end_of(event) e
    $$;

GRANT USAGE ON SCHEMA orders TO orders;
GRANT SELECT, INSERT ON orders.orders TO orders;
GRANT UPDATE (state, reason, result, is_counted) ON orders.orders TO orders;
GRANT SELECT, INSERT, UPDATE ON orders.analytics TO orders;
