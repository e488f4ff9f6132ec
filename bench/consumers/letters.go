package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/millrace/millrace/bench/internal/frame"
	"github.com/millrace/millrace/bench/internal/ledger"
	"github.com/millrace/millrace/bench/internal/measure"
	"github.com/millrace/millrace/bench/internal/relays"
	"github.com/millrace/millrace/bench/internal/servers"
	filer "github.com/millrace/millrace/handlers/deadletter"
	"github.com/millrace/millrace/internal/deadletter"
	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/topics"
)

// letters is what the part with the dead letters found. Rates are per second.
type letters struct {
	Letters int `json:"letters"`
	// Filed is from the topic into the table, Redriven from the table into the
	// outbox, Published from the call of the redrive to Kafka.
	Filed      float64       `json:"filed_per_s"`
	Filing     servers.Spent `json:"filing_spent"`
	Redriven   float64       `json:"redriven_per_s"`
	Redriving  servers.Spent `json:"redriving_spent"`
	Published  float64       `json:"published_per_s"`
	Publishing servers.Spent `json:"published_spent"`
}

func (b *bench) measureLetters(ctx context.Context) (frame.Part, error) {
	topic, err := b.CreateTopic(ctx, "letters", b.partitions)
	if err != nil {
		return nil, err
	}
	dead, err := b.CreateTopic(ctx, "dead_letters", b.partitions)
	if err != nil {
		return nil, err
	}
	naming := topics.Naming{topics.DeadLetters: dead}
	records := make([]topics.Record, b.letters)
	maker := ledger.Maker{Topic: topic, Keys: b.keys, ValueBytes: b.valueBytes}
	for i := range records {
		records[i] = b.letter(maker.Next(), i).Record(dead)
	}
	if err := b.publish(ctx, records); err != nil {
		return nil, err
	}
	l := &letters{Letters: b.letters}
	if err := b.file(ctx, l, naming, dead); err != nil {
		return nil, fmt.Errorf("file: %w", err)
	}
	if err := b.redrive(ctx, l, naming, topic); err != nil {
		return nil, fmt.Errorf("redrive: %w", err)
	}
	return l, nil
}

// letter is what an On consumer would file of a record, had it read it.
func (b *bench) letter(r topics.Record, place int) *middleware.Letter {
	r.Partition, r.Offset = int32(place%b.partitions), int64(place)
	r.TopicID[0] = 1
	now := time.Now().UTC()
	return &middleware.Letter{
		Consumer: "bench", Group: "bench", Original: r, EventType: "bench.event.made.v1", Class: middleware.HandlerFault,
		Reason: "call the shop: connection refused", Error: "call the shop: connection refused",
		ErrorType: "*fmt.wrapError", CauseType: "syscall.Errno", Cause: "connection refused",
		Attempts: 5, FirstFailure: now.Add(-time.Second), LastFailure: now,
	}
}

func (b *bench) file(ctx context.Context, l *letters, naming topics.Naming, dead string) error {
	before := b.Meter()
	err := b.consume(ctx, naming, filer.New(), func(ctx context.Context) error {
		var err error
		l.Filed, err = b.rateUntil(ctx, l.Letters,
			`SELECT coalesce(sum(greatest(next_offset, 0)), 0)::bigint FROM consumer_offsets WHERE topic = $1`, dead)
		return err
	})
	if err != nil {
		return err
	}
	l.Filing = b.SpentSince(before, l.Letters)
	var filed, open int
	if err := b.Pool.QueryRow(ctx, `SELECT count(*), count(*) FILTER (WHERE status = 'OPEN' AND consumer = 'bench') FROM dead_letters`).
		Scan(&filed, &open); err != nil {
		return err
	}
	if filed != l.Letters || open != filed {
		return fmt.Errorf("%d letters were filed as %d, %d of them open", l.Letters, filed, open)
	}
	return nil
}

func (b *bench) redrive(ctx context.Context, l *letters, naming topics.Naming, topic string) (err error) {
	stop, err := relays.Start(ctx, b.Run, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	admin, err := kafka.NewAdmin(b.Kafka())
	if err != nil {
		return err
	}
	defer admin.Close()
	watch := ledger.New()
	watching, stopWatching := context.WithCancel(ctx)
	var observing sync.WaitGroup
	observing.Go(func() { _ = watch.Tail(watching, b.Brokers, topic) })
	defer func() { stopWatching(); observing.Wait() }()

	store := deadletter.New(deadletter.Config{Pool: b.Pool, Naming: naming, TopicNames: func(ctx context.Context) ([]string, error) {
		found, err := admin.ListTopics(ctx)
		names := make([]string, len(found))
		for i, t := range found {
			names[i] = t.Name
		}
		return names, err
	}})
	before, began := b.Meter(), time.Now()
	if err := b.runJob(ctx, store, l.Letters); err != nil {
		return err
	}
	l.Redriven, l.Redriving = float64(l.Letters)/time.Since(began).Seconds(), b.SpentSince(before, l.Letters)
	waiting, cancel := context.WithTimeoutCause(ctx, b.patience, errors.New("patience is over"))
	defer cancel()
	if err := watch.Wait(waiting, l.Letters); err != nil {
		return err
	}
	_, ended, _ := watch.Lapsed()
	l.Published, l.Publishing = float64(l.Letters)/ended.Sub(began).Seconds(), b.SpentSince(before, l.Letters)
	_, err = watch.Check(l.Letters)
	return err
}

// runJob redrives all letters as one job, as the role maintenance does.
func (b *bench) runJob(ctx context.Context, store *deadletter.Store, letters int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, b.patience, errors.New("patience is over"))
	defer cancel()
	job, err := store.Start(ctx, deadletter.Order{Terms: deadletter.Terms{Actor: "bench", Reason: "bench"}})
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	var keeping sync.WaitGroup
	defer func() { stop(); keeping.Wait() }()
	keeper := deadletter.NewKeeper(store, lease.NewManager(b.Pool, "keeper", 0, b.Log), deadletter.KeeperConfig{}, b.Log)
	keeping.Go(func() { _ = keeper.Run(running) })
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for job.FinishedAt.IsZero() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("redrive: %w", context.Cause(ctx))
		}
		if job, err = store.Job(ctx, job.ID.String()); err != nil {
			return err
		}
	}
	if job.Redriven != int64(letters) {
		return fmt.Errorf("%d of %d letters were redriven, %d refused: %s %s", job.Redriven, letters, job.Refused, job.State, job.Note)
	}
	return nil
}

// Print implements frame.Part.
func (l *letters) Print(w io.Writer) {
	fmt.Fprintf(w, "Dead letters: %d, each filed and redriven once, in order for its key\n", l.Letters)
	measure.Table(w,
		append([]string{"way", "letters/s"}, servers.SpentHeading()...),
		append([]string{"dead-letter topic -> table", fmt.Sprintf("%.0f", l.Filed)}, l.Filing.Cells()...),
		append([]string{"table -> outbox", fmt.Sprintf("%.0f", l.Redriven)}, l.Redriving.Cells()...),
		append([]string{"table -> outbox -> Kafka", fmt.Sprintf("%.0f", l.Published)}, l.Publishing.Cells()...),
	)
}
