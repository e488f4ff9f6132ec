// Package ledger makes records that are numbered per key, and checks what arrives
// of them: each once, each key in order.
package ledger

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace/millrace/topics"
)

// numberBytes is how much of a value holds its number.
const numberBytes = 8

// Maker makes records of the size and with the headers of events.
type Maker struct {
	// Topic is the logical topic.
	Topic string
	// Keys is how many keys the records share, in turn.
	Keys int
	// ValueBytes is the size of a value, at least 8.
	ValueBytes int

	next uint64
}

// Next returns the next record. Numbers begin at 0 and go through all keys.
func (m *Maker) Next() topics.Record {
	n := m.next
	m.next++
	key := fmt.Sprintf("key-%06d", n%uint64(m.Keys))
	id := uuid.NewString()
	value := binary.BigEndian.AppendUint64(make([]byte, 0, m.ValueBytes+len(id)), n)
	for len(value) < m.ValueBytes {
		value = append(value, id...)
	}
	return topics.Record{
		Topic: m.Topic, Key: []byte(key), Value: value[:max(m.ValueBytes, numberBytes)],
		Headers: []topics.Header{
			{Key: "ce_specversion", Value: []byte("1.0")},
			{Key: "ce_id", Value: []byte(id)},
			{Key: "ce_source", Value: []byte("/millrace")},
			{Key: "ce_type", Value: []byte("bench.event.made.v1")},
			{Key: "ce_time", Value: []byte("2026-01-02T03:04:05.678901Z")},
			{Key: "ce_subject", Value: []byte(key)},
			{Key: "content-type", Value: []byte("application/json")},
		},
	}
}

// Made is how many records were made.
func (m *Maker) Made() int { return int(m.next) }

// Ledger notes what arrives. It is safe for concurrent use.
type Ledger struct {
	mu sync.Mutex
	// last is the highest number by key, seen which numbers came.
	last map[string]uint64
	seen map[uint64]time.Time
	// records counts all, repeated counts those that came again.
	records, repeated, disordered int
	// began and ended are the times of the first and the last record of the lap,
	// and together how many came at once with the first.
	began, ended time.Time
	together     int
	changed      chan struct{}
}

// New returns an empty ledger.
func New() *Ledger {
	return &Ledger{last: map[string]uint64{}, seen: map[uint64]time.Time{}, changed: make(chan struct{})}
}

// Tail notes all records of a topic, from its beginning, until ctx ends.
func (l *Ledger) Tail(ctx context.Context, brokers []string, topic string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer client.Close()
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		now := time.Now()
		l.mu.Lock()
		fetches.EachRecord(func(r *kgo.Record) { l.note(r.Key, r.Value, now) })
		if !fetches.Empty() {
			close(l.changed)
			l.changed = make(chan struct{})
		}
		l.mu.Unlock()
	}
	return nil
}

func (l *Ledger) note(key, value []byte, now time.Time) {
	if len(value) < numberBytes {
		return
	}
	n := binary.BigEndian.Uint64(value)
	if _, again := l.seen[n]; again {
		l.repeated++
		return
	}
	if last, some := l.last[string(key)]; some && n < last {
		l.disordered++
	}
	l.last[string(key)] = n
	l.seen[n] = now
	if l.records++; l.began.IsZero() {
		l.began, l.together = now, 0
	}
	if now.Equal(l.began) {
		l.together++
	}
	l.ended = now
}

// Lap begins to measure anew: Lapsed counts from the next record.
func (l *Ledger) Lap() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.began, l.ended = time.Time{}, time.Time{}
}

// Lapsed returns when the first and the last record of this lap came, and how many
// came at once with the first: those were under way before the clock ran.
func (l *Ledger) Lapsed() (began, ended time.Time, together int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.began, l.ended, l.together
}

// Times returns when the records of some numbers came; zero for those that did not.
func (l *Ledger) Times(from, to int) []time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	times := make([]time.Time, 0, to-from)
	for n := from; n < to; n++ {
		times = append(times, l.seen[uint64(n)])
	}
	return times
}

// Wait waits until so many different records have come in all.
func (l *Ledger) Wait(ctx context.Context, n int) error {
	for {
		l.mu.Lock()
		got, changed := l.records, l.changed
		l.mu.Unlock()
		if got >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d records came: %w", got, n, context.Cause(ctx))
		}
	}
}

// Check says whether exactly the records up to n have come, and each key in order.
// Repetitions are allowed, where delivery is at least once, and counted.
func (l *Ledger) Check(n int) (repeated int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.records != n || l.disordered > 0 {
		return l.repeated, fmt.Errorf("%d of %d records came, %d out of order", l.records, n, l.disordered)
	}
	return l.repeated, nil
}
