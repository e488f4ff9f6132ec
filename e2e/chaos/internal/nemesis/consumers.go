package nemesis

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace/millrace/e2e/chaos/internal/check"
	"github.com/millrace/millrace/e2e/chaos/internal/workload"
)

func consumerCases() []Case {
	return []Case{
		{ID: "F3", Title: "a record always fails where nothing may be skipped", Lane: Servers, act: block},
		{ID: "F4", Title: "records of all bad shapes arrive", Lane: Servers, act: feedCorpus},
	}
}

// never keeps no record whole.
func never(check.Logged) bool { return false }

// block commits an entry that always fails to a topic whose consumer blocks: its
// partition stalls and says so, the others go on; cured, it goes on in order.
func block(ctx context.Context, l *lane) error {
	tag := fmt.Sprintf("%x", l.rng.Uint32())
	quiet := l.alone()
	id, err := l.Producer.Commit(ctx, workload.Blocked, "blocked-"+tag, workload.Entry{Kind: workload.Poison})
	if err != nil {
		return nil
	}
	l.fault("an entry of blocked-%s fails", tag)
	for i := range 12 {
		if _, err := l.Producer.Commit(ctx, workload.Blocked, fmt.Sprintf("free-%s-%d", tag, i), workload.Entry{Kind: workload.Plain}); err != nil {
			break
		}
	}
	seen := until(ctx, 20*time.Second, "the partition is shown as stalled", func() (bool, error) { return l.stalled(ctx, workload.BlockedLedger, -1) })
	if seen != nil && quiet && l.alone() && ctx.Err() == nil {
		l.complain("%v", seen)
	}
	l.hold(ctx, time.Second, 4*time.Second)
	if n, err := workload.Count(ctx, l.World.DB, `SELECT count(*) FROM chaos_ledger WHERE consumer = $1 AND key LIKE $2`, workload.BlockedLedger, "free-"+tag+"-%"); err == nil &&
		n == 0 && quiet && l.alone() && ctx.Err() == nil {
		l.complain("an entry that fails holds up the other partitions as well")
	}
	heal, cancel := healing(ctx)
	defer cancel()
	l.note("blocked-%s is cured", tag)
	return until(heal, patience, "the cure is written", func() (bool, error) {
		_, err := l.World.DB.Exec(heal, `INSERT INTO chaos_cures VALUES ($1) ON CONFLICT DO NOTHING`, id)
		return err == nil, err
	})
}

// shape is one record of the corpus.
type shape struct {
	name string
	good bool
	// change makes it out of a sound record.
	change func(*kgo.Record)
}

func set(r *kgo.Record, name, value string) {
	for i := range r.Headers {
		if r.Headers[i].Key == name {
			r.Headers[i].Value = []byte(value)
			return
		}
	}
	r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
}

func drop(r *kgo.Record, name string) {
	kept := r.Headers[:0]
	for _, h := range r.Headers {
		if h.Key != name {
			kept = append(kept, h)
		}
	}
	r.Headers = kept
}

func shapes() []shape {
	value := func(v string) func(*kgo.Record) { return func(r *kgo.Record) { r.Value = []byte(v) } }
	return []shape{
		{"sound", true, func(*kgo.Record) {}},
		{"empty value", false, value("")},
		{"tombstone", false, func(r *kgo.Record) { r.Value = nil }},
		{"no key", true, func(r *kgo.Record) { r.Key = nil }},
		{"invalid UTF-8", false, value("\xff\xfe\x00{")},
		{"invalid JSON", false, value(`{"key": `)},
		{"another type of JSON", false, value(`{"key": 1, "seq": "one"}`)},
		{"NaN", false, value(`{"seq": NaN}`)},
		{"a huge number", false, value(`{"seq": 1e400}`)},
		{"nested 10 000 deep", false, value(strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000))},
		{"nearly 1 MB", false, value(strings.Repeat("\x00", 990_000))},
		{"no ce_id", false, func(r *kgo.Record) { drop(r, "ce_id") }},
		{"no ce_type", false, func(r *kgo.Record) { drop(r, "ce_type") }},
		{"no ce_source", false, func(r *kgo.Record) { drop(r, "ce_source") }},
		{"another specversion", false, func(r *kgo.Record) { set(r, "ce_specversion", "0.1") }},
		{"no time at all", false, func(r *kgo.Record) { set(r, "ce_time", "yesterday") }},
		{"a header twice", true, func(r *kgo.Record) {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: "x", Value: []byte{0}}, kgo.RecordHeader{Key: "x", Value: nil})
		}},
		{"1 000 headers", true, func(r *kgo.Record) {
			for range 1000 {
				r.Headers = append(r.Headers, kgo.RecordHeader{Key: "many", Value: []byte("x")})
			}
		}},
		{"a time in the future", true, func(r *kgo.Record) {
			set(r, "ce_time", "2199-01-01T00:00:00Z")
			r.Timestamp = time.Now().Add(30 * time.Minute)
		}},
		{"an id of 2 000 letters", false, func(r *kgo.Record) { set(r, "ce_id", strings.Repeat("i", 2000)) }},
		{"sound at the end", true, func(*kgo.Record) {}},
	}
}

// feedCorpus publishes each shape once, beside the outbox, and notes as facts what
// has to become of it.
func feedCorpus(ctx context.Context, l *lane) error {
	client, _, err := l.kafka()
	if err != nil {
		return err
	}
	defer client.Close()
	tag := fmt.Sprintf("%x", l.rng.Uint32())
	l.fault("publish a corpus of %d shapes", len(shapes()))
	heal, cancel := healing(ctx)
	defer cancel()
	for i, s := range shapes() {
		id := uuid.NewString()
		key := fmt.Sprintf("shape-%s-%d", tag, i)
		r := &kgo.Record{Topic: string(workload.Corpus), Key: []byte(key), Value: fmt.Appendf(nil, `{"key": %q, "seq": 1, "kind": "plain"}`, key)}
		for _, h := range [][2]string{
			{"ce_id", id}, {"ce_type", workload.EntryType}, {"ce_source", "/chaos/corpus"}, {"ce_specversion", "1.0"},
			{"ce_time", "2026-01-01T00:00:00Z"}, {"content-type", "application/json"},
		} {
			set(r, h[0], h[1])
		}
		s.change(r)
		set(r, workload.GarbageID, id)
		// The client repeats without doubling; what it gives up on in the end was never
		// taken, as far as can be told, so it is no fact.
		if err := client.ProduceSync(heal, r).FirstErr(); err != nil {
			return fmt.Errorf("publish %q: %w", s.name, err)
		}
		kind := workload.Garbage
		if s.good {
			kind = workload.Plain
		}
		err := until(heal, patience, "the fact is written", func() (bool, error) {
			_, err := l.World.DB.Exec(heal, `INSERT INTO chaos_facts (topic, key, seq, event_id, kind) VALUES ($1, $2, 1, $3, $4) ON CONFLICT DO NOTHING`,
				string(workload.Corpus), key, id, kind)
			return err == nil, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
