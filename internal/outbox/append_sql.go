package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// SQLExecer runs a statement by way of database/sql: *sql.Tx, with any driver for
// PostgreSQL.
type SQLExecer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// The locks are taken in the order of their numbers, so that transactions which
// lock several aggregates at once do not deadlock.
const lockBucketsSQL = `
	SELECT pg_advisory_xact_lock($1::integer, b.bucket)
	FROM (SELECT bucket FROM unnest(string_to_array($2::text, ',')::integer[]) AS u(bucket) ORDER BY bucket OFFSET 0) AS b`

// As appendSQL, for one row, and with arguments that every driver can send.
const appendRowSQL = `
	INSERT INTO outbox_events (` + columnList + `)
	SELECT nextval('outbox_events_seq'), $1::uuid, $2::smallint, $3::text, $4::text, $5::text, $6::text, $7::bytea, $8::bytea, $9::bytea
	FROM (SELECT pg_current_xact_id() AS xid OFFSET 0) AS tx WHERE tx.xid IS NOT NULL`

// LockEntries does what LockAggregate does, for all aggregates of some entries.
// Called once in a transaction, it does not deadlock with others of its kind.
func LockEntries(ctx context.Context, tx Execer, entries ...Entry) error {
	if len(entries) == 0 {
		return nil
	}
	if _, err := tx.Exec(ctx, lockBucketsSQL, lockClass, bucketsOf(entries)); err != nil {
		return fmt.Errorf("lock aggregates: %w", err)
	}
	return nil
}

// LockEntriesSQL is LockEntries for database/sql.
func LockEntriesSQL(ctx context.Context, tx SQLExecer, entries ...Entry) error {
	if len(entries) == 0 {
		return nil
	}
	if _, err := tx.ExecContext(ctx, lockBucketsSQL, lockClass, bucketsOf(entries)); err != nil {
		return fmt.Errorf("lock aggregates: %w", err)
	}
	return nil
}

func bucketsOf(entries []Entry) string {
	buckets := make([]int, len(entries))
	for i, e := range entries {
		buckets[i] = LockBucket(e.AggregateID)
	}
	slices.Sort(buckets)
	var list []string
	for _, b := range slices.Compact(buckets) {
		list = append(list, strconv.Itoa(b))
	}
	return strings.Join(list, ",")
}

// AppendSQL is Append for database/sql: one statement per entry.
func AppendSQL(ctx context.Context, tx SQLExecer, entries ...Entry) error {
	c, err := columnsOf(entries)
	if err != nil {
		return fmt.Errorf("append to outbox: %w", err)
	}
	for i := range entries {
		_, err := tx.ExecContext(ctx, appendRowSQL, c.uuid(i), c.shards[i], c.aggregateTypes[i], c.aggregateIDs[i],
			c.eventTypes[i], c.topics[i], bytesOrNull(c.keys[i]), bytesOrNull(c.payloads[i]), c.headers[i])
		if err != nil {
			return fmt.Errorf("append to outbox: %w", err)
		}
	}
	return nil
}

// bytesOrNull keeps drivers from taking a slice that is nil for an empty one.
func bytesOrNull(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}
