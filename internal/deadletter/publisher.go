package deadletter

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/topics"
)

// RecordPublisher publishes records as they are; see pipeline.RecordPublisher.
type RecordPublisher interface {
	PublishRecords(ctx context.Context, records []topics.Record) []error
}

// Publisher publishes records, letters that are larger than their topic allows
// among them: such a letter is filed whole in dead_letters first, and a reference
// to the row is published in its place. The rest goes through as it is. It is safe
// for concurrent use.
type Publisher struct {
	next     RecordPublisher
	db       postgres.Beginner
	tooLarge func(error) bool
}

// NewPublisher returns a publisher in front of next. tooLarge tells the errors that
// say so.
func NewPublisher(next RecordPublisher, db postgres.Beginner, tooLarge func(error) bool) *Publisher {
	return &Publisher{next, db, tooLarge}
}

// PublishRecords implements RecordPublisher.
func (p *Publisher) PublishRecords(ctx context.Context, records []topics.Record) []error {
	errs := p.next.PublishRecords(ctx, records)
	failed := 0
	for i, err := range errs {
		if err != nil && p.tooLarge(err) {
			errs[i] = p.refer(ctx, records[i], err)
		}
		if errs[i] != nil {
			failed++
		}
	}
	if failed == 0 {
		return nil
	}
	return errs
}

// refer publishes a reference in place of a letter. What is no letter, or a
// reference already, stays too large.
func (p *Publisher) refer(ctx context.Context, r topics.Record, cause error) error {
	l, err := middleware.ParseLetter(r)
	if err != nil || l.StoredID != "" {
		return cause
	}
	id, err := p.store(ctx, l)
	if err != nil {
		return fmt.Errorf("store a dead letter that is too large for its topic: %w", err)
	}
	for _, err := range p.next.PublishRecords(ctx, []topics.Record{l.Reference(r.Topic, id.String())}) {
		if err != nil {
			return err
		}
	}
	return nil
}

// store files the letter, unless its consumer has, and returns its id.
func (p *Publisher) store(ctx context.Context, l *middleware.Letter) (id uuid.UUID, err error) {
	err = postgres.InTx(ctx, p.db, func(ctx context.Context, tx pgx.Tx) error {
		if err := File(ctx, tx, l); err != nil {
			return err
		}
		return tx.QueryRow(ctx, `SELECT id FROM dead_letters
			WHERE consumer = $1 AND topic_id = $2 AND partition = $3 AND "offset" = $4`,
			text(l.Consumer), uuid.UUID(l.Original.TopicID), l.Original.Partition, l.Original.Offset).Scan(&id)
	})
	return id, err
}
