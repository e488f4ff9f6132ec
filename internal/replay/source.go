package replay

import (
	"context"
	"errors"
	"time"

	"github.com/millrace/millrace/topics"
)

// Source is where sessions read.
type Source interface {
	// Begin returns where a session of the filter begins and ends, as things are now. The
	// filter names topics. A topic of which there is nothing makes the error wrap
	// ErrNothingThere.
	Begin(ctx context.Context, f Filter) (Cursor, error)
	// Count returns how many records there are from the cursor on, or at least most of
	// them when there are more. Not exact: no more than that. A most of 0 counts all.
	Count(ctx context.Context, f Filter, c Cursor, most int64) (n int64, exact bool, err error)
	// Open returns what reads on from the cursor.
	Open(ctx context.Context, f Filter, c Cursor) (Feed, error)
}

// Feed reads the partitions of a cursor, each in the order of its offsets.
type Feed interface {
	// Fetch brings what comes next of at least one of the partitions, which are numbered
	// as in the cursor: of some of them, or of others that it has anyway. It waits until
	// there is something to tell, and returns nil when ctx ends. An error that wraps
	// ErrGone is one that waiting does not mend.
	Fetch(ctx context.Context, partitions []int) ([]Piece, error)
	Close()
}

// Piece is what a Feed brings of one partition: the records that the filter chooses,
// and where the partition goes on.
type Piece struct {
	Partition int
	Records   []topics.Record
	// Skipped is how many records were read and not chosen.
	Skipped int64
	// Next is behind all that was looked at.
	Next int64
	// Over says that nothing follows before the end.
	Over bool
}

// ErrNothingThere: the source has nothing of a topic.
var ErrNothingThere = errors.New("there is nothing to replay")

// ErrGone: what is to be read next is not there any more.
var ErrGone = errors.New("what is to be replayed is gone")

// Broker is what Kafka is asked.
type Broker interface {
	// Topics returns the topics of those names that exist.
	Topics(ctx context.Context, names ...string) (map[string]Topic, error)
	// Starts and Ends are the first offsets that there are, and those behind the last.
	Starts(ctx context.Context, topic string) (map[int32]int64, error)
	Ends(ctx context.Context, topic string) (map[int32]int64, error)
	// After returns the offsets of the first records at or after a time, or the ends.
	After(ctx context.Context, topic string, t time.Time) (map[int32]int64, error)
	// Committed returns what a group has committed in a topic, by partition.
	Committed(ctx context.Context, group, topic string) (map[int32]int64, error)
	// Read returns a reader that begins at the cursor's places. It brings records as they
	// are; control records and gaps move its places.
	Read(ctx context.Context, c Cursor) (Reader, error)
}

// Topic is what the broker says about a topic.
type Topic struct {
	ID         [16]byte
	Partitions int
}

// Reader reads stretches of partitions in the order of their offsets.
type Reader interface {
	// Next brings records of partitions, by their number in the cursor, those that are
	// wanted first of all. It waits for at least one piece.
	Next(ctx context.Context, wanted []int) ([]Piece, error)
	Close()
}
