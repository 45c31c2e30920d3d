// npm install pg. Where the database is: PGHOST, PGPORT, PGDATABASE, PGUSER, PGPASSWORD.
const { Client } = require('pg')

async function take ({ number, customer, amount, currency }) {
  const db = new Client()
  await db.connect()
  await db.query('BEGIN')
  const event = await db.query("SELECT issuing.enqueue('PAYMENT_CHARGE', $1, $2) AS id",
    [customer, { order: number, amount, currency }])
  await db.query(`INSERT INTO orders.orders (number, customer, amount, currency, charge_id)
    VALUES ($1, $2, $3, $4, $5)`, [number, customer, amount, currency, event.rows[0].id])
  await db.query('COMMIT')
  await db.end()
}

take({ number: 'A-1002', customer: 'alice', amount: 1999, currency: 'EUR' })
