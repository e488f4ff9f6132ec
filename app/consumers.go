package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/internal/consumers"
	"github.com/millrace/millrace/internal/inbox"
	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/pipeline"
)

// newConsumerAgent is what this process tells about its consumers.
func newConsumerAgent(pool *pgxpool.Pool, signals *postgres.Signals, log *slog.Logger) *consumers.Agent {
	host, _ := os.Hostname()
	instance := fmt.Sprintf("%s-%d-%s", host, os.Getpid(), uuid.NewString()[:8])
	return consumers.NewAgent(consumers.AgentConfig{Pool: pool, Signals: signals, Instance: instance, Log: log})
}

// isFenced recognises a delivery that was refused because of its epoch.
func isFenced(err error) bool { return errors.Is(err, pipeline.ErrFenced) }

// changes tells the agent what the transport tells.
type changes struct{ agent *consumers.Agent }

// PartitionChanged implements kafka.Observer.
func (c changes) PartitionChanged(kafka.PartitionStatus) { c.agent.Changed() }

// consumerTransport is a subscriber as an agent sees it.
type consumerTransport struct{ driver }

// Assignments implements consumers.Transport.
func (t consumerTransport) Assignments() []consumers.Assignment {
	statuses := t.Status()
	list := make([]consumers.Assignment, len(statuses))
	for i, s := range statuses {
		list[i] = consumers.Assignment{
			Topic: s.Topic, Partition: s.Partition, Epoch: s.Epoch, Paused: s.Paused,
			Stalled: s.State == kafka.StateStalled, Stopped: s.State == kafka.StateStopped,
			Since: s.Since, Cause: s.Cause, Code: causeCode(s.Cause), Offset: s.Offset, Key: s.Key,
			Tries: s.Attempts, NextTry: s.NextTry, Position: s.Position, Committed: s.Committed, End: s.HighWatermark,
		}
	}
	return list
}

// causeCode names the causes that have a way out of their own.
func causeCode(err error) string {
	if _, replaced := errors.AsType[*inbox.TopicReplacedError](err); replaced || errors.Is(err, kafka.ErrTopicReplaced) {
		return consumers.CodeTopicReplaced
	}
	if _, outside := errors.AsType[*kafka.OutOfRangeError](err); outside {
		return consumers.CodeOffsetOutOfRange
	}
	return ""
}

// consumerBroker is Kafka as the status of consumers asks it.
type consumerBroker struct{ admin *kafka.Admin }

// Topics implements consumers.Broker.
func (b consumerBroker) Topics(ctx context.Context, names []string) (map[string]consumers.Topic, error) {
	topics, err := b.admin.FindTopics(ctx, names...)
	if err != nil {
		return nil, err
	}
	found := make(map[string]consumers.Topic, len(topics))
	for _, t := range topics {
		found[t.Name] = consumers.Topic{ID: t.ID, Partitions: t.Partitions}
	}
	return found, nil
}

// Starts implements consumers.Broker.
func (b consumerBroker) Starts(ctx context.Context, topic string) (map[int32]int64, error) {
	offsets, err := b.admin.StartOffsets(ctx, topic)
	return offsets[topic], err
}

// Ends implements consumers.Broker.
func (b consumerBroker) Ends(ctx context.Context, topics []string) (map[string]map[int32]int64, error) {
	if len(topics) == 0 {
		return nil, nil // none would mean all
	}
	return b.admin.EndOffsets(ctx, topics...)
}

// After implements consumers.Broker.
func (b consumerBroker) After(ctx context.Context, topic string, t time.Time) (map[int32]int64, error) {
	offsets, err := b.admin.OffsetsAfter(ctx, t, topic)
	return offsets[topic], err
}

// Groups implements consumers.Broker.
func (b consumerBroker) Groups(ctx context.Context, groups []string) (map[string][]consumers.GroupPartition, error) {
	lags, err := b.admin.Lags(ctx, groups...)
	if err != nil {
		return nil, err
	}
	all := make(map[string][]consumers.GroupPartition, len(lags))
	for group, partitions := range lags {
		for _, p := range partitions {
			all[group] = append(all[group], consumers.GroupPartition{
				Topic: p.Topic, Partition: p.Partition, Committed: p.Committed, Owned: p.Member != ""})
		}
	}
	return all, nil
}

// Commit implements consumers.Broker.
func (b consumerBroker) Commit(ctx context.Context, group, topic string, offsets map[int32]int64) error {
	err := b.admin.CommitFor(ctx, group, topic, offsets)
	if errors.Is(err, kafka.ErrGroupLive) {
		return consumers.ErrGroupLive
	}
	return err
}
