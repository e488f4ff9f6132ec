package inbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/outbox"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/pipeline"
)

// DB is what Store needs of a pool.
type DB interface {
	postgres.Beginner
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Store implements pipeline.Store over PostgreSQL. It is safe for concurrent use.
type Store struct {
	db    DB
	wake  func()
	relay *outbox.Handover
}

var _ pipeline.Store = (*Store)(nil)

// New returns a store over db. wake, which may be nil, is called after each
// commit that left something in the outbox; it must not block.
func New(db DB, wake func()) *Store {
	if wake == nil {
		wake = func() {}
	}
	return &Store{db: db, wake: wake}
}

// HandOver has what was committed handed to the relay of this process, which need
// not be woken then. It is called before the store is used.
func (s *Store) HandOver(relay *outbox.Handover) { s.relay = relay }

// TopicReplacedError reports that a consumer has a position in a topic of the
// same name but another identity: the topic was deleted and created again, or
// the broker's data were lost. Starting at either end of the new topic could
// skip or repeat events, so somebody must decide, with Seek.
type TopicReplacedError struct {
	Partition pipeline.Partition
	// Previous is the identity of the former topic, NextOffset the position there.
	Previous   [16]byte
	NextOffset int64
}

// Error names both topics and the way out.
func (e *TopicReplacedError) Error() string {
	return fmt.Sprintf("topic %s is not the one that group %s has read (id %s, now %s; position %d in partition %d): choose a new position with seek",
		e.Partition.Topic, e.Partition.Group, uuid.UUID(e.Previous), uuid.UUID(e.Partition.TopicID), e.NextOffset, e.Partition.Partition)
}

const selectReplaced = `
SELECT topic_id, next_offset FROM consumer_offsets o
WHERE consumer_group = $1 AND topic = $3 AND partition = $4 AND topic_id <> $2 AND next_offset >= 0
  AND NOT EXISTS (SELECT FROM consumer_offsets own
                  WHERE own.consumer_group = $1 AND own.topic_id = $2 AND own.partition = $4)
ORDER BY updated_at DESC LIMIT 1`

const takePartition = `
INSERT INTO consumer_offsets AS o (consumer_group, topic_id, topic, partition, owner_epoch)
VALUES ($1, $2, $3, $4, 1)
ON CONFLICT (consumer_group, topic_id, partition)
DO UPDATE SET owner_epoch = o.owner_epoch + 1, sought = false, topic = excluded.topic, updated_at = now()
RETURNING next_offset, owner_epoch`

// Take makes the caller the owner of p. It waits for a transaction of the former
// owner that is under way. A *TopicReplacedError means that p is not the
// partition that the group has read so far.
func (s *Store) Take(ctx context.Context, p pipeline.Partition) (pipeline.Position, error) {
	var pos pipeline.Position
	err := postgres.InTx(ctx, s.db, func(ctx context.Context, tx pgx.Tx) error {
		args := []any{p.Group, uuid.UUID(p.TopicID), p.Topic, p.Partition}
		replaced := &TopicReplacedError{Partition: p}
		var previous uuid.UUID
		err := tx.QueryRow(ctx, selectReplaced, args...).Scan(&previous, &replaced.NextOffset)
		if err == nil {
			replaced.Previous = previous
			return replaced
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		return tx.QueryRow(ctx, takePartition, args...).Scan(&pos.Next, &pos.Epoch)
	})
	if err != nil {
		return pipeline.Position{}, fmt.Errorf("take position: %w", err)
	}
	return pos, nil
}

// What lies between the new position and the old one stays in effect; reached says so
// to those who compare the effects with the log.
const seekPartition = `
INSERT INTO consumer_offsets AS o (consumer_group, topic_id, topic, partition, next_offset, owner_epoch, sought)
VALUES ($1, $2, $3, $4, $5, 1, true)
ON CONFLICT (consumer_group, topic_id, partition)
DO UPDATE SET next_offset = excluded.next_offset, owner_epoch = o.owner_epoch + 1, sought = true, topic = excluded.topic, updated_at = now(),
    reached = greatest(o.reached, o.next_offset)`

// Seek sets the position of a partition to next (pipeline.NoOffset: where a new
// consumer starts) and fences its owner, which notices with its next effect. It
// is the only thing that moves a position backwards.
func (s *Store) Seek(ctx context.Context, p pipeline.Partition, next int64) error {
	return postgres.InTx(ctx, s.db, func(ctx context.Context, tx pgx.Tx) error { return SeekIn(ctx, tx, p, next) })
}

// SeekIn is Store.Seek in the caller's transaction. It waits for a transaction of
// the owner that is under way.
func SeekIn(ctx context.Context, tx pgx.Tx, p pipeline.Partition, next int64) error {
	if next < pipeline.NoOffset {
		return fmt.Errorf("seek %s/%d: offset %d is negative", p.Topic, p.Partition, next)
	}
	if _, err := tx.Exec(ctx, seekPartition, p.Group, uuid.UUID(p.TopicID), p.Topic, p.Partition, next); err != nil {
		return fmt.Errorf("seek %s/%d: %w", p.Topic, p.Partition, err)
	}
	return nil
}

// PartitionPosition is the position of one partition.
type PartitionPosition struct {
	pipeline.Partition
	pipeline.Position
}

// Positions returns all positions of a group, by topic and partition.
func (s *Store) Positions(ctx context.Context, group string) ([]PartitionPosition, error) {
	rows, err := s.db.Query(ctx, `
SELECT topic, topic_id, partition, next_offset, owner_epoch FROM consumer_offsets
WHERE consumer_group = $1 ORDER BY topic, topic_id, partition`, group)
	if err != nil {
		return nil, fmt.Errorf("read positions: %w", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (PartitionPosition, error) {
		p := PartitionPosition{Partition: pipeline.Partition{Group: group}}
		var topicID uuid.UUID
		err := row.Scan(&p.Topic, &topicID, &p.Partition.Partition, &p.Next, &p.Epoch)
		p.TopicID = topicID
		return p, err
	})
	if err != nil {
		return nil, fmt.Errorf("read positions: %w", err)
	}
	return all, nil
}
