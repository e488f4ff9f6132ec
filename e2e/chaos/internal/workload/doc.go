// Package workload is what goes on while a chaos run torments an installation, and
// what is read from it afterwards.
//
// Three things go on at once. Business transactions write facts, numbered per key,
// and enqueue an event for each in the same transaction; consumers of all three
// kinds append what they see to a ledger, each effect noted in a file first.
// Executions are asked for by the API under idempotency keys, again and again until
// the answer arrives. And some facts are poison: garbage that no consumer can
// decode, and entries that fail until they are cured; an operator cures and
// redrives them while everything goes on.
package workload

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
)

// schema is what the workload keeps beside Millrace's own tables. The ledger has no
// unique constraint on purpose: it is to show a doubled effect, not to prevent it.
const schema = `
CREATE TABLE IF NOT EXISTS chaos_facts (
    topic text NOT NULL, key text NOT NULL, seq bigint NOT NULL, event_id text NOT NULL, kind text NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (topic, key, seq));
CREATE TABLE IF NOT EXISTS chaos_ledger (
    place bigint GENERATED ALWAYS AS IDENTITY, consumer text NOT NULL, key text NOT NULL, seq bigint NOT NULL, event_id text NOT NULL,
    partition integer NOT NULL, "offset" bigint NOT NULL, epoch bigint NOT NULL, process text NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE INDEX IF NOT EXISTS chaos_ledger_event ON chaos_ledger (consumer, event_id);
CREATE TABLE IF NOT EXISTS chaos_cures (event_id text PRIMARY KEY);
CREATE TABLE IF NOT EXISTS chaos_drags (consumer text PRIMARY KEY, millis bigint NOT NULL);`

// Prepare makes the workload's tables.
func Prepare(ctx context.Context, db *pgxpool.Pool) error {
	if _, err := db.Exec(ctx, schema); err != nil {
		return fmt.Errorf("prepare workload: %w", err)
	}
	return nil
}
