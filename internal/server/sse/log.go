package sse

import (
	"context"
	"errors"

	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/topics"
)

// errGap is what a Log returns when it no longer holds what it was asked for.
var errGap = errors.New("the topic no longer holds the events")

// Bounds say what a Log holds.
type Bounds struct {
	// ID is the broker's identity of the topic.
	ID [16]byte
	// Start is the first offset that each partition still has, End the one that its
	// next record will get.
	Start, End Position
}

// Log is the topic that streams are made of, read without a group.
type Log interface {
	Bounds(ctx context.Context) (Bounds, error)
	// Open returns a tail that begins at from. It fails with an error that wraps
	// errGap when from is not in the log.
	Open(ctx context.Context, from Position) (Tail, error)
}

// Tail reads records of a Log.
type Tail interface {
	// Position returns where it reads next: behind the last record that each of Run
	// has taken, and what follows it that is no record. It may be called while Run
	// runs.
	Position() Position
	// Run calls each for each record until ctx ends (nil) or something fails. An
	// error of each is returned as it is.
	Run(ctx context.Context, each func(topics.Record) error) error
	Close()
}

// KafkaLog is the Log over a Kafka topic.
type KafkaLog struct {
	config kafka.Config
	admin  *kafka.Admin
	topic  string
}

// NewKafkaLog returns the log of the topic with this physical name.
func NewKafkaLog(config kafka.Config, admin *kafka.Admin, topic string) *KafkaLog {
	return &KafkaLog{config: config, admin: admin, topic: topic}
}

// Bounds implements Log.
func (l *KafkaLog) Bounds(ctx context.Context) (Bounds, error) {
	found, err := l.admin.ListTopics(ctx, l.topic)
	if err != nil {
		return Bounds{}, err
	}
	first, err := l.admin.StartOffsets(ctx, l.topic)
	if err != nil {
		return Bounds{}, err
	}
	next, err := l.admin.EndOffsets(ctx, l.topic)
	if err != nil {
		return Bounds{}, err
	}
	return Bounds{ID: found[0].ID, Start: l.position(first), End: l.position(next)}, nil
}

// Open implements Log.
func (l *KafkaLog) Open(ctx context.Context, from Position) (Tail, error) {
	offsets := make(map[int32]int64, len(from))
	for i, offset := range from {
		offsets[int32(i)] = offset
	}
	tail, err := kafka.NewTail(ctx, l.config, kafka.TailConfig{
		Topics: []string{l.topic}, Offsets: kafka.Offsets{l.topic: offsets},
	})
	if err != nil {
		return nil, gap(err)
	}
	return &kafkaTail{log: l, tail: tail}, nil
}

// position turns offsets into a Position: partitions are numbered from 0 without
// gaps.
func (l *KafkaLog) position(offsets kafka.Offsets) Position {
	var p Position
	for partition, offset := range offsets[l.topic] {
		p.advance(int(partition), offset)
	}
	return p
}

type kafkaTail struct {
	log  *KafkaLog
	tail *kafka.Tail
}

func (t *kafkaTail) Position() Position { return t.log.position(t.tail.Positions()) }
func (t *kafkaTail) Close()             { t.tail.Close() }

func (t *kafkaTail) Run(ctx context.Context, each func(topics.Record) error) error {
	return gap(t.tail.Run(ctx, each))
}

// gap marks the errors that mean that events are gone.
func gap(err error) error {
	var outOfRange *kafka.OutOfRangeError
	if errors.As(err, &outOfRange) || errors.Is(err, kafka.ErrTopicReplaced) {
		return errors.Join(errGap, err)
	}
	return err
}
