package outbox

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace/millrace/topics"
)

const (
	// WakeName is the signal (postgres.Signals) with which the relay is woken. Wake
	// it after the commit of a transaction that called Append.
	WakeName = "outbox"
	// Shards is the number of virtual shards. It is part of the stored rows.
	Shards = 16
	// lockBuckets is how many advisory locks LockAggregate spreads aggregates over,
	// and lockClass what sets them apart from other advisory locks ("outb").
	lockBuckets = 1024
	lockClass   = 0x6f757462
)

// Execer runs a statement: a transaction of pgx, or anything like it.
type Execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// Entry is one event or record to be published.
type Entry struct {
	// AggregateType and AggregateID name what the entry belongs to and what it is
	// kept in order with. Required.
	AggregateType string
	AggregateID   string
	// Topic is the logical topic. Required.
	Topic topics.Topic
	// Envelope is the event; its trace context and correlation travel with it.
	// Required, unless Record is set.
	Envelope topics.Envelope
	// Key is the record's key. Nil means the aggregate's id.
	Key []byte
	// Version, when set, says that the event is the one that led the aggregate to this
	// version, counted from 1 without gaps, which is what Envelope.Sequence should say
	// as well. An entry without one belongs to the one before it of its aggregate, in
	// the same transaction. Versions make the short way possible; see Handover.
	Version int64
	// Record, when set, is published as it is, instead of Envelope: key, value and
	// headers byte-identical, for dead letters and replays. Of Envelope only ID and
	// Type are looked at, for the columns of these names. Key is ignored.
	Record *topics.Record
}

// ShardOf returns the shard of an aggregate: the first byte of the SHA-256 of its
// id, modulo Shards. In SQL: get_byte(sha256(convert_to(id, 'UTF8')), 0) % 16.
func ShardOf(aggregateID string) int {
	sum := sha256.Sum256([]byte(aggregateID))
	return int(sum[0]) % Shards
}

// LockAggregate serialises transactions that append entries for an aggregate which
// has no row to lock: it takes the place of that row lock. The lock is held until
// the transaction ends. Aggregates share 1024 locks, so a transaction that locks
// several must do so in the order of LockBucket, or run the risk of a deadlock.
func LockAggregate(ctx context.Context, tx Execer, aggregateID string) error {
	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1::integer, $2::integer)`, lockClass, LockBucket(aggregateID)); err != nil {
		return fmt.Errorf("lock aggregate %s: %w", aggregateID, err)
	}
	return nil
}

// LockBucket returns which of the 1024 locks LockAggregate takes for an id.
func LockBucket(aggregateID string) int {
	sum := sha256.Sum256([]byte(aggregateID))
	return (int(sum[1])<<8 | int(sum[2])) % lockBuckets
}

// columnList is what an entry fills, in the order of every statement that writes.
const columnList = `seq, id, shard, aggregate_type, aggregate_id, event_type, topic, partition_key, payload, headers`

// appendSQL is the one statement that writes entries: arrays, one per column, and
// the buckets to lock, in the order of their numbers, so that transactions which
// lock several at once do not deadlock. No buckets, no locks.
//
// The locks are held and the transaction has an id before it draws a number; the
// one makes seq the order of commit per aggregate, on the other the relay's floor
// relies (see the package documentation). OFFSET 0 and the reference to tx keep the
// planner from dropping or moving either, and nextval is evaluated row by row in
// the order of the arrays.
//
// Each argument may be an array or its text, since drivers of database/sql differ
// in the former.
const appendSQL = `
	INSERT INTO outbox_events (` + columnList + `)
	SELECT nextval('outbox_events_seq'), e.id, e.shard, e.aggregate_type, e.aggregate_id, e.event_type, e.topic, e.key, e.payload, e.headers
	FROM (
			SELECT pg_current_xact_id() AS xid, (
				SELECT count(pg_advisory_xact_lock($10::integer, b.bucket))
				FROM (SELECT bucket FROM unnest($11::integer[]) AS u(bucket) ORDER BY bucket OFFSET 0) AS b
			) AS locks OFFSET 0
		) AS tx,
		LATERAL (
			SELECT * FROM unnest($1::uuid[], $2::smallint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bytea[], $8::bytea[], $9::bytea[])
				WITH ORDINALITY AS u(id, shard, aggregate_type, aggregate_id, event_type, topic, key, payload, headers, place)
			WHERE tx.xid IS NOT NULL AND tx.locks IS NOT NULL
			ORDER BY place
		) AS e`

// appendReturningSQL also returns where the entries came to lie, in their order.
const appendReturningSQL = appendSQL + ` RETURNING seq, created_at`

// Append writes entries in the caller's transaction, in one statement; their order
// becomes the order of publishing per aggregate. After the commit the caller wakes
// WakeName.
//
// Before calling, the caller must hold the row lock of every aggregate named (it
// has inserted, updated or selected the row for update in this transaction), or
// have called LockAggregate. Otherwise entries of one aggregate written by two
// transactions at once are published in any order.
func Append(ctx context.Context, tx Execer, entries ...Entry) error {
	return appendEntries(ctx, tx, entries, nil)
}

// LockAndAppend is Append for aggregates that have no row to lock: the same
// statement takes the locks of LockAggregate first. Called once in a transaction,
// it does not deadlock with others of its kind.
func LockAndAppend(ctx context.Context, tx Execer, entries ...Entry) error {
	return appendEntries(ctx, tx, entries, bucketsOf(entries))
}

func appendEntries(ctx context.Context, tx Execer, entries []Entry, buckets []int32) error {
	if len(entries) == 0 {
		return nil
	}
	c, err := columnsOf(entries)
	if err != nil {
		return fmt.Errorf("append to outbox: %w", err)
	}
	if err := write(ctx, tx, entries, c, buckets); err != nil {
		return fmt.Errorf("append to outbox: %w", err)
	}
	return nil
}

func write(ctx context.Context, tx Execer, entries []Entry, c columns, buckets []int32) error {
	if w := writtenFrom(ctx); w != nil {
		versioned := func(e Entry) bool { return e.Version > 0 }
		if buckets == nil && slices.ContainsFunc(entries, versioned) {
			return w.gather(ctx, tx, entries, c)
		}
		w.other = true
	}
	_, err := tx.Exec(ctx, appendSQL, c.arrays(buckets)...)
	return err
}

// bucketsOf returns the locks of all aggregates of some entries, each once.
func bucketsOf(entries []Entry) []int32 {
	buckets := make([]int32, len(entries))
	for i, e := range entries {
		buckets[i] = int32(LockBucket(e.AggregateID))
	}
	slices.Sort(buckets)
	return slices.Compact(buckets)
}

func (e Entry) validate() error {
	for _, text := range []struct{ name, value string }{
		{"aggregate type", e.AggregateType}, {"aggregate id", e.AggregateID}, {"topic", string(e.Topic)},
	} {
		if text.value == "" {
			return fmt.Errorf("the %s is empty", text.name)
		}
		if err := storableText(text.name, text.value); err != nil {
			return err
		}
	}
	if e.Record != nil {
		return nil
	}
	return e.Envelope.Validate()
}

// storableText refuses what a column of type text does not take. PostgreSQL would
// refuse it as well, and take the caller's transaction down with it.
func storableText(name, value string) error {
	if !utf8.ValidString(value) || strings.ContainsRune(value, 0) {
		return fmt.Errorf("the %s %q is not UTF-8 without zero bytes", name, value)
	}
	return nil
}

// rowID is the id of the event when that is a UUID, as on all that Millrace
// writes, else a new one: the event's own id is among the headers anyway.
func (e Entry) rowID() (uuid.UUID, error) {
	if id, err := uuid.Parse(e.Envelope.ID); err == nil {
		return id, nil
	}
	return uuid.NewV7()
}

func (e Entry) record() topics.Record {
	if e.Record != nil {
		return *e.Record
	}
	key := e.Key
	if key == nil {
		key = []byte(e.AggregateID)
	}
	return e.Envelope.Record(string(e.Topic), key)
}
