// go get github.com/jackc/pgx/v5. Where the database is: PGHOST, PGPORT, PGDATABASE, PGUSER, PGPASSWORD.
package main

import (
	"context"
	"encoding/json"
	"log"

	"github.com/jackc/pgx/v5"
)

func take(ctx context.Context, db *pgx.Conn, number, customer string, amount int64, currency string) error {
	payload, err := json.Marshal(map[string]any{"order": number, "amount": amount, "currency": currency})
	if err != nil {
		return err
	}
	tx, err := db.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx) // has no effect after the commit
	var event string
	err = tx.QueryRow(ctx, "SELECT issuing.enqueue('PAYMENT_CHARGE', $1, $2::text::jsonb)::text",
		customer, string(payload)).Scan(&event)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `INSERT INTO orders.orders (number, customer, amount, currency, charge_id)
		VALUES ($1, $2, $3, $4, $5)`, number, customer, amount, currency, event)
	if err != nil {
		return err
	}
	return tx.Commit(ctx)
}

func main() {
	ctx := context.Background()
	db, err := pgx.Connect(ctx, "")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close(ctx)
	if err := take(ctx, db, "A-1004", "alice", 1999, "EUR"); err != nil {
		log.Fatal(err)
	}
}
