package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/bench/internal/ledger"
	"github.com/millrace/millrace/bench/internal/servers"
	"github.com/millrace/millrace/internal/outbox"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/topics"
)

// fillChunk is how many events one statement writes.
const fillChunk = 1000

// track is one topic with what is written to it and what arrives.
type track struct {
	*bench
	maker  ledger.Maker
	ledger *ledger.Ledger
	stop   func()
}

// newTrack creates a topic and observes it.
func (b *bench) newTrack(ctx context.Context, name string) (*track, error) {
	topic, err := b.CreateTopic(ctx, name, b.partitions)
	if err != nil {
		return nil, err
	}
	t := &track{bench: b, maker: ledger.Maker{Topic: topic, Keys: b.keys, ValueBytes: b.valueBytes}, ledger: ledger.New()}
	ctx, cancel := context.WithCancel(ctx)
	var observing sync.WaitGroup
	observing.Go(func() {
		if err := t.ledger.Tail(ctx, b.Brokers, topic); err != nil {
			b.Log.ErrorContext(ctx, "observer ended", "error", err)
		}
	})
	t.stop = func() { cancel(); observing.Wait() }
	return t, nil
}

// entry is the next event as a row of the outbox.
func (t *track) entry() outbox.Entry {
	r := t.maker.Next()
	id, _ := r.Header("ce_id")
	return outbox.Entry{
		AggregateType: "bench", AggregateID: string(r.Key), Topic: topics.Topic(r.Topic),
		Envelope: topics.Envelope{ID: string(id), Type: "bench.event.made.v1"}, Record: &r,
	}
}

// fill writes a pass of events in one transaction.
func (t *track) fill(ctx context.Context) error {
	return postgres.InTx(ctx, t.pool, func(ctx context.Context, tx pgx.Tx) error {
		for left := t.events; left > 0; left -= fillChunk {
			entries := make([]outbox.Entry, min(left, fillChunk))
			for i := range entries {
				entries[i] = t.entry()
			}
			if err := outbox.Append(ctx, tx, entries...); err != nil {
				return err
			}
		}
		return nil
	})
}

// pass writes a pass of events and returns the rate at which they were drained, and
// what it took. The row is marked after its record is in Kafka: marked,
// if not nil, waits for that.
func (t *track) pass(ctx context.Context, fill, marked func(context.Context) error) (rate float64, spent servers.Spent, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, t.patience, errors.New("patience is over"))
	defer cancel()
	t.ledger.Lap()
	if err := fill(ctx); err != nil {
		return 0, spent, fmt.Errorf("fill: %w", err)
	}
	before := t.Meter()
	if err := t.ledger.Wait(ctx, t.maker.Made()); err != nil {
		return 0, spent, err
	}
	began, ended, together := t.ledger.Lapsed()
	if marked != nil {
		if err := marked(ctx); err != nil {
			return 0, spent, err
		}
		ended = time.Now()
	}
	return float64(t.events-together) / ended.Sub(began).Seconds(), t.SpentSince(before, t.events), nil
}

// marked waits until all rows of the last pass are marked. It looks for them by
// number: the index of open rows is what the idle transaction fills with entries
// that nobody can vacuum, and going through those is not to be measured here.
func (t *track) marked(ctx context.Context) error {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		var marked int
		err := t.pool.QueryRow(ctx, `
			SELECT count(published_at) FROM outbox_events WHERE seq > (SELECT last_value FROM outbox_events_seq) - $1`, t.events).Scan(&marked)
		if err != nil || marked >= t.events {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("wait until rows are marked, %d of %d are: %w", marked, t.events, context.Cause(ctx))
		}
	}
}
