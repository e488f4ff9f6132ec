package rebuild

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/eventlog"
	"github.com/millrace/millrace/topics"
)

// Partition is one partition of the topic that a projection reads, by the broker's
// identity of the topic: one that was made anew is another one.
type Partition struct {
	TopicID   [16]byte
	Partition int32
}

// comparePartitions orders partitions.
func comparePartitions(a, b Partition) int {
	return cmp.Or(bytes.Compare(a.TopicID[:], b.TopicID[:]), cmp.Compare(a.Partition, b.Partition))
}

// Span is what a source holds of a partition: the offsets from From on, up to but
// not including To.
type Span struct {
	From, To int64
	// Former says that the partition is of a topic that was replaced by one of the same
	// name: nothing comes to it any more.
	Former bool
}

// Vector holds an offset per partition: all before it.
type Vector map[Partition]int64

// partitions are those of the vector, in their order.
func (v Vector) partitions() []Partition {
	return slices.SortedFunc(maps.Keys(v), comparePartitions)
}

// Source is a history that projections are rebuilt from.
type Source interface {
	// Spans returns what there is of each partition of a topic, those of former
	// topics of the name among them.
	Spans(ctx context.Context, db Querier, topic string) (map[Partition]Span, error)
	// Read calls each for the records of a partition from one offset on and below
	// another, in order. When it returns nil there are no others.
	Read(ctx context.Context, db Querier, topic string, p Partition, from, to int64, each func(topics.Record) error) error
	// Horizon is since when the source holds all events of the topic; zero: since the
	// beginning. Known is false when it holds nothing of it.
	Horizon(ctx context.Context, db Querier, topic string) (since time.Time, known bool, err error)
}

// Querier reads: a pool or a transaction.
type Querier = eventlog.Querier

// EventLog is the event log as a source.
type EventLog struct {
	// RecorderGroups are the consumer groups whose positions say up to where the log of a
	// topic is complete.
	RecorderGroups []string
}

// Of what the recorder has a position, but holds nothing, is no part of it.
const spansSQL = `
SELECT o.topic_id, o.partition, coalesce(p.first_offset, o.next_offset), o.next_offset,
    o.topic_id <> first_value(o.topic_id) OVER (ORDER BY o.updated_at DESC, o.topic_id)
FROM consumer_offsets o
LEFT JOIN event_log_topics t ON t.topic = o.topic AND t.topic_id = o.topic_id
LEFT JOIN event_log_partitions p ON p.topic_no = t.no AND p.partition = o.partition
WHERE o.consumer_group = ANY($1) AND o.topic = $2 AND o.next_offset >= 0`

// Spans implements Source.
func (l EventLog) Spans(ctx context.Context, db Querier, topic string) (map[Partition]Span, error) {
	rows, err := db.Query(ctx, spansSQL, l.RecorderGroups, topic)
	spans := make(map[Partition]Span)
	if err == nil {
		var id uuid.UUID
		var p int32
		var s Span
		_, err = pgx.ForEachRow(rows, []any{&id, &p, &s.From, &s.To, &s.Former}, func() error {
			spans[Partition{id, p}] = s
			return nil
		})
	}
	if err != nil {
		return nil, fmt.Errorf("look up what is recorded of %s: %w", topic, err)
	}
	return spans, nil
}

// Read implements Source.
func (l EventLog) Read(ctx context.Context, db Querier, topic string, p Partition, from, to int64, each func(topics.Record) error) error {
	return eventlog.Read(ctx, db, eventlog.Stretch{Topic: topic, TopicID: p.TopicID, Partition: p.Partition, From: from, To: to}, each)
}

// Horizon implements Source.
func (l EventLog) Horizon(ctx context.Context, db Querier, topic string) (time.Time, bool, error) {
	return eventlog.Horizon(ctx, db, topic)
}
