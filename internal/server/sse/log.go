package sse

import (
	"context"
	"errors"

	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/topics"
)

// errGap is what a Log returns when it no longer holds what it was asked for.
var errGap = errors.New("the topic no longer holds the events")

// Log is the topic that streams are made of, read without a group.
type Log interface {
	// Bounds returns the first offset that each partition still has and the one
	// that the next record will get.
	Bounds(ctx context.Context) (start, end Position, err error)
	// Open returns a tail that begins at from, or at the end of the topic when from
	// is nil. It fails with an error that wraps errGap when from is not in the log.
	Open(ctx context.Context, from Position) (Tail, error)
}

// Tail reads records of a Log.
type Tail interface {
	// Position returns where it reads next.
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
func (l *KafkaLog) Bounds(ctx context.Context) (start, end Position, err error) {
	first, err := l.admin.StartOffsets(ctx, l.topic)
	if err != nil {
		return nil, nil, err
	}
	next, err := l.admin.EndOffsets(ctx, l.topic)
	if err != nil {
		return nil, nil, err
	}
	return l.position(first), l.position(next), nil
}

// Open implements Log.
func (l *KafkaLog) Open(ctx context.Context, from Position) (Tail, error) {
	tc := kafka.TailConfig{Topics: []string{l.topic}}
	if from != nil {
		offsets := make(map[int32]int64, len(from))
		for i, offset := range from {
			offsets[int32(i)] = offset
		}
		tc.Offsets = kafka.Offsets{l.topic: offsets}
	}
	tail, err := kafka.NewTail(ctx, l.config, tc)
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
