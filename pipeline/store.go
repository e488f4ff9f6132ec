package pipeline

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/topics"
)

// NoOffset is the position of a consumer that has not settled any record.
const NoOffset int64 = -1

// Partition is one partition as one consumer group sees it. TopicID is part of
// it: a topic that was deleted and created again is another one.
type Partition struct {
	Group     string
	Topic     string
	TopicID   [16]byte
	Partition int32
}

// Position is where an owner of a partition starts, and under which epoch its
// effects count.
type Position struct {
	// Next is the offset of the first record that is not settled, or NoOffset.
	Next  int64
	Epoch int64
}

// Store keeps positions, inbox and effects of OnTx and OnBatchTx consumers. It
// is implemented over PostgreSQL; other implementations are for tests.
type Store interface {
	// Take makes the caller the owner of the partition: it increments the epoch,
	// which fences all former owners, and returns the position.
	Take(ctx context.Context, p Partition) (Position, error)

	// Apply settles the entries of w in one transaction, or changes nothing. It
	// returns what became of each. It returns an error that wraps ErrFenced when
	// w.Epoch is no longer that of the owner. After an error it is not known
	// whether the transaction was committed, if the error came from the commit; the
	// next Apply of the same entries finds out and reports them as Repeated.
	Apply(ctx context.Context, w Work) ([]Verdict, error)
}

// Work is what is settled in one transaction.
type Work struct {
	Consumer  string
	Partition Partition
	Epoch     int64
	// Entries ascend by offset. There may be none, when only the position moves.
	Entries []Entry
	// Next is the position afterwards. The position never moves backwards.
	Next int64
	// Effect applies the entries that are fresh, by index in ascending order. It is
	// not called when none is. Errors are returned as they are.
	Effect func(ctx context.Context, tx StoreTx, fresh []int) error
	// DeadLetterTopic is where letters are published.
	DeadLetterTopic topics.Topic
	// Lane is the lane that the entries waited in, and Epoch its token; zero when
	// they come from the partition. With it no position moves: what lies between From
	// and Next leaves the lane. Where something lies below From, which was put there
	// after the records were read, everything stays: it comes first.
	Lane int64
	From int64
	// Parking says what becomes of entries behind a letter.
	Parking Parking
}

// Parking is the part of a consumer's Delivery that a store needs. What waits in
// a lane that is open keeps its order whatever it says.
type Parking struct {
	// Open says that a letter with a key opens a lane for it.
	Open bool
	// PerKey and Total are the most events that may wait in one lane, and in all
	// lanes of one partition. Zero is no limit.
	PerKey, Total int
}

// Entry is one record to settle: either an event to apply or a letter to file.
type Entry struct {
	Offset int64
	// Record is the record itself, of which a store keeps a copy when it parks it.
	// Do not change it.
	Record *topics.Record
	// Identity is the event's key in the inbox; nil when the consumer keeps none,
	// or when the record has no identity.
	Identity *Identity
	// Letter, if set, is filed as a dead letter; nothing is applied, and no inbox
	// row written.
	Letter *middleware.Letter
	// With, if set, is called for a Letter that is filed by this transaction and no
	// earlier one, in the transaction. Its error undoes everything.
	With func(ctx context.Context, tx StoreTx) error
	// RedriveOf names the dead letter whose redrive brought the record, or is empty.
	// Once the record is processed the letter is resolved.
	RedriveOf string
}

// Identity is what makes an event the same event for a consumer, wherever it
// lies. A replay session is a repetition of its own.
type Identity struct {
	Source, ID, Session string
}

// Verdict says what became of an entry.
type Verdict uint8

// The verdicts.
const (
	Fresh    Verdict = iota // settled by this transaction
	Repeated                // settled before
	Parked                  // waits in the lane of its key
)

// Resolver is a Store that can be told of dead letters whose redriven records an On
// consumer has processed. Those of the others are told by Entry.RedriveOf.
type Resolver interface {
	// Resolve marks the letters, by their ids, as resolved.
	Resolve(ctx context.Context, consumer string, letters []string) error
}

// StoreTx is a transaction of the store as the runtime sees it. If it has a
// method PgxTx() (pgx.Tx, bool), the function of that name uses it.
type StoreTx interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
	CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error)
	// Append puts events into the outbox.
	Append(ctx context.Context, events ...OutboxEvent) error
}

// RecordPublisher publishes records as they are. It returns nil when every record
// is durable, else one entry per record, nil for those that are. The transport's
// publisher is one.
type RecordPublisher interface {
	PublishRecords(ctx context.Context, records []topics.Record) []error
}
