package workload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/e2e/chaos/internal/check"
	"github.com/millrace/millrace/outbox"
	"github.com/millrace/millrace/topics"
)

const (
	writers        = 8
	keysPerWriter  = 8
	attemptTimeout = 10 * time.Second
	source         = "/chaos"
)

// Producer commits business transactions: facts and their events.
type Producer struct {
	// Facts and Commits count what was acknowledged; InDoubt counts commits that
	// failed and had been made nevertheless.
	Facts, Commits, InDoubt atomic.Int64

	rate  int64        // transactions per second, all writers together
	slow  atomic.Int64 // how many entries are still to be slow; see MakeSlow
	delay atomic.Int64 // and how slow, in ms
	pad   atomic.Int64 // the size of each entry in bytes; 0 is the usual one
	pools []*pgxpool.Pool
	next  map[string]int64 // by topic and key; each key has one writer

	mu    sync.Mutex
	acked []check.Fact
}

// NewProducer connects over all of the addresses, in turn.
func NewProducer(ctx context.Context, dsns []string, rate int) (*Producer, error) {
	p := &Producer{next: map[string]int64{}, rate: int64(max(1, rate))}
	return p, p.connect(ctx, dsns)
}

func (p *Producer) connect(ctx context.Context, dsns []string) error {
	for _, dsn := range dsns {
		config, err := pgxpool.ParseConfig(dsn)
		if err != nil {
			return errors.New("the DSN of the workload is not valid")
		}
		config.MaxConns = writers
		config.ConnConfig.ConnectTimeout = 3 * time.Second
		config.ConnConfig.RuntimeParams["application_name"] = "chaos-producer"
		pool, err := pgxpool.NewWithConfig(ctx, config)
		if err != nil {
			return err
		}
		p.pools = append(p.pools, pool)
	}
	return nil
}

// Close closes the connections.
func (p *Producer) Close() {
	for _, pool := range p.pools {
		pool.Close()
	}
}

// Resume goes on with a database that was restored: it reads how far each key had
// got, and forgets what was acknowledged and is not there. Nobody may write meanwhile.
func (p *Producer) Resume(ctx context.Context, db *pgxpool.Pool, dsns []string) error {
	p.Close()
	p.pools = nil
	if err := p.connect(ctx, dsns); err != nil {
		return err
	}
	facts, err := Facts(ctx, db)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.acked = nil
	clear(p.next)
	for _, f := range facts {
		at := lane(f.Topic, f.Key)
		p.next[at] = max(p.next[at], f.Seq)
		p.acked = append(p.acked, f.Fact)
	}
	return nil
}

// Acked returns what was acknowledged.
func (p *Producer) Acked() []check.Fact {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]check.Fact{}, p.acked...)
}

// MakeSlow has the next n entries keep their consumers busy for so long, whatever
// their context says.
func (p *Producer) MakeSlow(n int, d time.Duration) {
	p.delay.Store(d.Milliseconds())
	p.slow.Store(int64(n))
}

// MakeLarge has entries be of so many bytes; 0 is as usual again.
func (p *Producer) MakeLarge(bytes int) { p.pad.Store(int64(bytes)) }

// Run writes until ctx ends.
func (p *Producer) Run(ctx context.Context, seed uint64) {
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() { p.write(ctx, i, rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
	all.Wait()
}

func (p *Producer) write(ctx context.Context, writer int, rng *rand.Rand) {
	for {
		pause := time.Duration(float64(writers) / float64(p.rate) * float64(time.Second) * (0.5 + rng.Float64()))
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		keys := rng.Perm(keysPerWriter)[:1+rng.IntN(3)]
		batch := make([]fact, len(keys))
		for i, k := range keys {
			batch[i] = p.draw(Ledger, fmt.Sprintf("key-%d-%d", writer, k), p.kind(rng))
		}
		if !p.commit(ctx, batch, rng) {
			return
		}
	}
}

// fact is one to be committed.
type fact struct {
	check.Fact
	topic topics.Topic
	entry Entry
}

func (p *Producer) kind(rng *rand.Rand) Entry {
	e := Entry{Kind: Plain, Pad: strings.Repeat("x", 50+rng.IntN(300))}
	switch n := rng.IntN(2000); {
	case n < 8:
		e.Kind = Poison
	case n < 12:
		e.Kind = Garbage
	case n < 16:
		e.Kind, e.Millis = Slow, int64(200+rng.IntN(1500))
	case n < 18:
		e.Kind, e.Millis = Stubborn, int64(200+rng.IntN(1500))
	case n < 24:
		e.Pad = strings.Repeat("y", 20_000)
	case p.slow.Load() > 0 && p.slow.Add(-1) >= 0:
		e.Kind, e.Millis = Stubborn, p.delay.Load()
	}
	if size := p.pad.Load(); size > 0 {
		e.Pad = strings.Repeat("z", int(size))
	}
	return e
}

func (p *Producer) draw(topic topics.Topic, key string, e Entry) fact {
	p.mu.Lock()
	defer p.mu.Unlock()
	e.Key, e.Seq = key, p.next[lane(topic, key)]+1
	id, err := uuid.NewV7()
	if err != nil {
		panic(err) // the source of random numbers is broken
	}
	return fact{
		Fact:  check.Fact{Key: key, Seq: e.Seq, EventID: id.String(), Poison: e.Kind == Poison, Garbage: e.Kind == Garbage},
		topic: topic, entry: e,
	}
}

func lane(topic topics.Topic, key string) string { return string(topic) + "/" + key }

// Commit writes one fact, however often that takes.
func (p *Producer) Commit(ctx context.Context, topic topics.Topic, key string, e Entry) (eventID string, err error) {
	f := p.draw(topic, key, e)
	if !p.commit(ctx, []fact{f}, rand.New(rand.NewPCG(0, 0))) {
		return "", ctx.Err()
	}
	return f.EventID, nil
}

// commit tries until the facts are committed; false says that ctx ended first, and
// that nobody knows. A commit whose answer was lost is found by the key of the
// facts: the next try meets what the one before has left.
func (p *Producer) commit(ctx context.Context, batch []fact, rng *rand.Rand) bool {
	for try := 0; ; try++ {
		err := p.try(ctx, p.pools[rng.IntN(len(p.pools))], batch)
		var pg *pgconn.PgError
		there := errors.As(err, &pg) && pg.Code == "23505" && pg.TableName == "chaos_facts"
		if there {
			p.InDoubt.Add(1)
		}
		if err == nil || there {
			p.acknowledge(batch)
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(time.Duration(50+rng.IntN(200)) * time.Millisecond):
		}
	}
}

func (p *Producer) acknowledge(batch []fact) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range batch {
		p.next[lane(f.topic, f.Key)] = f.Seq
		p.acked = append(p.acked, f.Fact)
	}
	p.Commits.Add(1)
	p.Facts.Add(int64(len(batch)))
}

func (p *Producer) try(ctx context.Context, pool *pgxpool.Pool, batch []fact) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		entries := make([]outbox.Entry, len(batch))
		for i, f := range batch {
			_, err := tx.Exec(ctx, `INSERT INTO chaos_facts (topic, key, seq, event_id, kind) VALUES ($1, $2, $3, $4, $5)`,
				string(f.topic), f.Key, f.Seq, f.EventID, f.entry.Kind)
			if err != nil {
				return err
			}
			if entries[i], err = f.outbox(); err != nil {
				return err
			}
		}
		return outbox.Append(ctx, tx, entries...)
	})
}

func (f fact) outbox() (outbox.Entry, error) {
	env, err := topics.NewEnvelope(f.entry, topics.WithID(f.EventID), topics.WithSource(source))
	if err != nil {
		return outbox.Entry{}, err
	}
	e := outbox.Entry{AggregateType: "ledger", AggregateID: f.Key, Topic: f.topic, Envelope: env}
	if f.Garbage {
		e.Record = f.garbage(env)
	}
	return e, nil
}

// garbage is a record that no consumer can decode, in one of three ways.
func (f fact) garbage(env topics.Envelope) *topics.Record {
	r := env.Record(string(f.topic), []byte(f.Key))
	switch f.Seq % 3 {
	case 0: // data that break off
		r.Value = r.Value[:len(r.Value)/2]
	case 1: // no event at all
		r.Headers = []topics.Header{{Key: "content-type", Value: []byte("application/octet-stream")}}
		r.Value = []byte{0xff, 0xfe, 0x00, 0x80}
	default: // of another version, with a header that occurs twice
		for i := range r.Headers {
			if r.Headers[i].Key == "ce_specversion" {
				r.Headers[i].Value = []byte("9.9")
			}
		}
		r.Headers = append(r.Headers, topics.Header{Key: "twice", Value: []byte{1}}, topics.Header{Key: "twice"})
	}
	r.Headers = append(r.Headers, topics.Header{Key: GarbageID, Value: []byte(f.EventID)})
	return &r
}
