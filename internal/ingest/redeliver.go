package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/internal/deadletter"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/trigger"
	"github.com/millrace/millrace/topics"
)

const (
	redeliveryPoll  = 5 * time.Second
	redeliveryChunk = 50
	redeliveryFirst = time.Second
	redeliveryLast  = time.Minute
)

// RedelivererConfig is what a Redeliverer works with. All but Log is required.
type RedelivererConfig struct {
	Pool    *pgxpool.Pool
	Signals *postgres.Signals
	Creator Creator
	// Find returns a trigger by its id, enabled or not; nil: there is none.
	Find func(ctx context.Context, id string) (*trigger.Compiled, error)
	// Decode makes the message that a record of a cluster is, as its source does.
	Decode func(cluster string, r topics.Record) Message
	Log    *slog.Logger
}

// Redeliverer gives redriven dead letters of triggers to Create. Any number of processes may
// run one: what two take at once is made once. A trigger that is blocked is tried again
// after 1, 2, 4 ... 60 s, while those of others go on.
type Redeliverer struct {
	cfg RedelivererConfig
	// waits are the consumers that are tried again later.
	waits map[string]*wait
}

// wait is when to try again.
type wait struct {
	until time.Time
	next  time.Duration
}

// NewRedeliverer returns a Redeliverer.
func NewRedeliverer(cfg RedelivererConfig) *Redeliverer {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Redeliverer{cfg: cfg, waits: map[string]*wait{}}
}

// Run redelivers until ctx ends.
func (r *Redeliverer) Run(ctx context.Context) error {
	wakes, stop := r.cfg.Signals.Subscribe(deadletter.DirectWakeName)
	defer stop()
	ticker := time.NewTicker(redeliveryPoll)
	defer ticker.Stop()
	for {
		more, err := r.Redeliver(ctx)
		if err != nil && ctx.Err() == nil {
			r.cfg.Log.WarnContext(ctx, "dead letters of triggers were not redelivered, it will be repeated", "error", err)
		}
		if more && err == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-wakes:
		case <-ticker.C:
		}
	}
}

// Redeliver does what is to be done now, and reports whether there may be more.
func (r *Redeliverer) Redeliver(ctx context.Context) (more bool, err error) {
	now := time.Now()
	var waiting []string
	for consumer, w := range r.waits {
		if now.Before(w.until) {
			waiting = append(waiting, consumer)
		}
	}
	found, err := deadletter.Redeliveries(ctx, r.cfg.Pool, waiting, redeliveryChunk)
	if err != nil {
		return false, err
	}
	stopped := map[string]bool{}
	for _, d := range found {
		consumer := d.Letter.Consumer
		if stopped[consumer] {
			continue
		}
		err := r.redeliver(ctx, d)
		if blocked, ok := errors.AsType[*BlockedError](err); ok {
			r.cfg.Log.InfoContext(ctx, "a redrive of a dead letter waits", "consumer", consumer, "letter", d.Letter.ID, "code", blocked.Cause.Code, "cause", blocked.Cause.Message)
			stopped[consumer] = true
			r.later(consumer, now)
			continue
		}
		if err != nil {
			return false, err
		}
		delete(r.waits, consumer)
	}
	return len(found) == redeliveryChunk, nil
}

// later puts off the letters of a consumer.
func (r *Redeliverer) later(consumer string, now time.Time) {
	w := r.waits[consumer]
	if w == nil {
		w = &wait{next: redeliveryFirst}
		r.waits[consumer] = w
	}
	w.until = now.Add(w.next)
	w.next = min(2*w.next, redeliveryLast)
}

func (r *Redeliverer) redeliver(ctx context.Context, d deadletter.Redelivery) error {
	id, ours := strings.CutPrefix(d.Letter.Consumer, "trigger.")
	if !ours {
		return deadletter.HandBack(ctx, r.cfg.Pool, d.Letter.ID, "no consumer of this name takes records directly")
	}
	t, err := r.cfg.Find(ctx, id)
	if err != nil {
		return fmt.Errorf("find trigger %s: %w", id, err)
	}
	if t == nil {
		return deadletter.HandBack(ctx, r.cfg.Pool, d.Letter.ID, fmt.Sprintf("trigger %s is not there: apply it again, then redrive", id))
	}
	_, err = r.cfg.Creator.Create(ctx, t, []Message{r.message(d)})
	return err
}

// message is what a redelivery gives to Create.
func (r *Redeliverer) message(d deadletter.Redelivery) Message {
	l := d.Letter
	record := l.Current
	record.Topic, record.TopicID, record.Partition, record.Offset = l.Record.Topic, l.Record.TopicID, l.Record.Partition, l.Record.Offset
	record.Timestamp = l.Record.Timestamp
	m := r.cfg.Decode(l.Cluster, record)
	m.Letter = l.ID.String()
	if d.EventID != "" {
		m.Forced, m.Identity = true, "redrive:"+d.EventID
	}
	return m
}
