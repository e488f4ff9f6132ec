package workload

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/internal/client"
)

// Operator looks after the dead letters, as a person would.
type Operator struct {
	// Redriven counts the letters that were given to their consumers again.
	Redriven atomic.Int64

	db      *pgxpool.Pool
	clients func() []*client.Client
}

// NewOperator acts by the API.
func NewOperator(db *pgxpool.Pool, clients func() []*client.Client) *Operator {
	return &Operator{db: db, clients: clients}
}

// Run cures some of the poison and redrives it, every few seconds until ctx ends.
func (o *Operator) Run(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		// What fails here is done at the end.
		_, _ = o.db.Exec(ctx, `INSERT INTO chaos_cures SELECT event_id FROM chaos_facts WHERE kind = 'poison' AND seq % 2 = 0 ON CONFLICT DO NOTHING`)
		_ = o.redrive(ctx, client.Redrive{Filter: &client.DeadLetterFilter{Type: EntryType, Class: "handler"}, Reason: "some are cured"})
	}
}

func (o *Operator) redrive(ctx context.Context, r client.Redrive) error {
	var last error
	for _, c := range o.clients() {
		result, err := c.Redrive(ctx, r)
		if err == nil {
			o.Redriven.Add(int64(result.Redriven))
			return nil
		}
		last = err
	}
	return last
}

// Use has it look at another database. It must not run.
func (o *Operator) Use(db *pgxpool.Pool) { o.db = db }

// Cure cures all poison.
func (o *Operator) Cure(ctx context.Context) error {
	_, err := o.db.Exec(ctx, `INSERT INTO chaos_cures SELECT event_id FROM chaos_facts WHERE kind = 'poison' ON CONFLICT DO NOTHING`)
	return err
}

// RedriveAll redrives every open letter of an entry that can be decoded, by name
// and whatever the count of its replays.
func (o *Operator) RedriveAll(ctx context.Context) error {
	ids, err := o.open(ctx, `class = 'handler'`)
	if err != nil {
		return err
	}
	for len(ids) > 0 {
		n := min(len(ids), 500)
		if err := o.redrive(ctx, client.Redrive{IDs: ids[:n], Force: true, Reason: "all are cured"}); err != nil {
			return fmt.Errorf("redrive: %w", err)
		}
		ids = ids[n:]
	}
	return nil
}

// DiscardGarbage discards every open letter that can never be applied.
func (o *Operator) DiscardGarbage(ctx context.Context) error {
	ids, err := o.open(ctx, `class = 'message'`)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if _, err := o.clients()[0].Discard(ctx, id, "garbage of the chaos run"); err != nil {
			return fmt.Errorf("discard: %w", err)
		}
	}
	return nil
}

func (o *Operator) open(ctx context.Context, where string) ([]string, error) {
	return texts(ctx, o.db, `SELECT id::text FROM dead_letters WHERE status = 'OPEN' AND `+where+` ORDER BY id`)
}
