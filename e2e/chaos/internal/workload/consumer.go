package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/app"
	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/executor/process"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/topics"
)

// Defects that can be planted in a consumer (the variable CHAOS_PLANT), to see
// that the checkers find them.
const (
	// PlantEarlyCommit moves the position before the effect.
	PlantEarlyCommit = "early-commit"
	// PlantOutside makes the effect outside of the transaction.
	PlantOutside = "outside-tx"
	// PlantNoInbox keeps no note of what was applied.
	PlantNoInbox = "no-inbox"
	// PlantSwallow passes over poison as if it were applied.
	PlantSwallow = "swallow-poison"
	// PlantUnordered hands the entries of a batch on in another order.
	PlantUnordered = "unordered"
)

// Plants returns the names of all of them.
func Plants() []string {
	return []string{PlantEarlyCommit, PlantOutside, PlantNoInbox, PlantSwallow, PlantUnordered}
}

// RunConsumer is the program of a consumer process: the workload's consumers,
// attached to the servers that the environment names. It returns when it is told to
// stop.
func RunConsumer() error {
	process.MaybeRunShim()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cfg, err := configs.Sources{
		Environ: withoutOurs(os.Environ()), Required: []string{"kafka.brokers", "postgres.dsn"},
	}.Load()
	if err != nil {
		return err
	}
	cfg.Roles = nil
	cfg.Admin.Listen, cfg.GRPC.Listen = "127.0.0.1:0", "127.0.0.1:0"
	notes, err := os.OpenFile(os.Getenv("CHAOS_NOTES"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer notes.Close()
	c := &consumer{name: os.Getenv("CHAOS_NAME"), plant: os.Getenv("CHAOS_PLANT"), notes: notes}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	return app.Run(ctx, cfg, app.Log(log),
		app.Consumer(c.ledgerTx), app.Consumer(c.ledgerBatch), app.Consumer(c.ledgerEach),
		app.Consumer(c.blocked), app.Consumer(c.corpus), app.Consumer(c.moved))
}

// withoutOurs leaves out what is not a setting of Millrace.
func withoutOurs(environ []string) []string {
	var kept []string
	for _, e := range environ {
		if len(e) < 6 || e[:6] != "CHAOS_" {
			kept = append(kept, e)
		}
	}
	return kept
}

// consumer is what the consumers of one process have in common.
type consumer struct {
	name, plant string
	notes       *os.File
}

func (c *consumer) ledgerTx(pool *pgxpool.Pool) pipeline.Consumer {
	return pipeline.Consumer{
		Name: LedgerTx, Topic: Ledger, Delivery: impatient(), GuardedByState: c.plant == PlantNoInbox,
		Handle: pipeline.OnTx(func(ctx context.Context, tx pipeline.Tx, e Entry) error {
			if err := c.apply(ctx, pool, tx, LedgerTx, []Entry{e}); err != nil {
				return err
			}
			return tx.Publish(ctx, pipeline.Outgoing{Event: Echoed{Key: e.Key, Seq: e.Seq}, Topic: Echo, AggregateType: "echo"})
		}),
	}
}

func (c *consumer) ledgerBatch(pool *pgxpool.Pool) pipeline.Consumer {
	return pipeline.Consumer{
		Name: LedgerBatch, Topic: Ledger, Delivery: impatient(), BatchSize: 64, GuardedByState: c.plant == PlantNoInbox,
		Handle: pipeline.OnBatchTx(func(ctx context.Context, tx pipeline.Tx, batch []Entry) error {
			return c.apply(ctx, pool, tx, LedgerBatch, batch)
		}),
	}
}

// ledgerEach has no transaction: its effect is the note.
func (c *consumer) ledgerEach(pool *pgxpool.Pool) pipeline.Consumer {
	return pipeline.Consumer{
		Name: LedgerEach, Topic: Ledger, Delivery: impatient(),
		Handle: pipeline.On(func(ctx context.Context, e Entry) error {
			if err := c.drag(ctx, pool, LedgerEach); err != nil {
				return err
			}
			if err := c.suffer(ctx, e, func() (bool, error) { return cured(ctx, pool, pipeline.Metadata(ctx).Envelope.ID) }); err != nil {
				return err
			}
			return c.note(LedgerEach, pipeline.Metadata(ctx), e)
		}),
	}
}

func (c *consumer) blocked(pool *pgxpool.Pool) pipeline.Consumer {
	delivery := undaunted()
	delivery.OnExhausted = pipeline.Block
	return pipeline.Consumer{
		Name: BlockedLedger, Topic: Blocked, Delivery: delivery,
		Handle: pipeline.OnTx(func(ctx context.Context, tx pipeline.Tx, e Entry) error {
			return c.apply(ctx, pool, tx, BlockedLedger, []Entry{e})
		}),
	}
}

func (c *consumer) corpus(pool *pgxpool.Pool) pipeline.Consumer {
	return pipeline.Consumer{
		Name: CorpusLedger, Topic: Corpus, Delivery: undaunted(),
		Handle: pipeline.OnTx(func(ctx context.Context, tx pipeline.Tx, e Entry) error {
			return c.apply(ctx, pool, tx, CorpusLedger, []Entry{e})
		}),
	}
}

func (c *consumer) moved(pool *pgxpool.Pool) pipeline.Consumer {
	return pipeline.Consumer{
		Name: MovedLedger, Topic: Moved, Delivery: impatient(),
		Handle: pipeline.OnTx(func(ctx context.Context, tx pipeline.Tx, e Entry) error {
			return c.apply(ctx, pool, tx, MovedLedger, []Entry{e})
		}),
	}
}

// impatient has failing records filed soon.
func impatient() pipeline.Delivery {
	return pipeline.Delivery{
		MaxAttempts: 3, Backoff: pipeline.Backoff{Initial: 50 * time.Millisecond, Max: 200 * time.Millisecond},
	}
}

// undaunted is impatient without a breaker, where most records are bad on purpose.
func undaunted() pipeline.Delivery {
	d := impatient()
	d.Breaker.Faults = -1
	return d
}

// querier and execer are a pool or a transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

type execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

func cured(ctx context.Context, q querier, eventID string) (bool, error) {
	var is bool
	err := q.QueryRow(ctx, `SELECT EXISTS (SELECT FROM chaos_cures WHERE event_id = $1)`, eventID).Scan(&is)
	return is, err
}

// drag takes the time that each entry is to take at the consumer; see Drag.
func (c *consumer) drag(ctx context.Context, pool *pgxpool.Pool, name string) error {
	var millis int64
	err := pool.QueryRow(ctx, `SELECT coalesce(max(millis), 0) FROM chaos_drags WHERE consumer = $1`, name).Scan(&millis)
	if err != nil || millis == 0 {
		return err
	}
	select {
	case <-time.After(time.Duration(millis) * time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// errPoison is what poison fails with.
var errPoison = errors.New("this entry is poison")

// suffer does what the kind of the entry asks for.
func (c *consumer) suffer(ctx context.Context, e Entry, cured func() (bool, error)) error {
	switch e.Kind {
	case Slow:
		select {
		case <-time.After(time.Duration(e.Millis) * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	case Stubborn:
		<-time.After(time.Duration(e.Millis) * time.Millisecond)
	case Poison:
		if c.plant == PlantSwallow {
			return nil
		}
		is, err := cured()
		if err != nil {
			return err
		}
		if !is {
			return pipeline.Permanent(errPoison)
		}
	}
	return nil
}

const insertEffects = `
INSERT INTO chaos_ledger (consumer, key, seq, event_id, partition, "offset", epoch, process)
SELECT $1, e.key, e.seq, e.event_id, $2, e.at, coalesce((
    SELECT owner_epoch FROM consumer_offsets WHERE consumer_group = $3 AND topic_id = $4 AND partition = $2), 0), $5
FROM unnest($6::text[], $7::bigint[], $8::text[], $9::bigint[]) WITH ORDINALITY AS e(key, seq, event_id, at, n)
ORDER BY e.n`

// apply appends the entries to the consumer's ledger, in tx, and notes them outside
// before.
func (c *consumer) apply(ctx context.Context, pool *pgxpool.Pool, tx pipeline.Tx, name string, batch []Entry) error {
	meta := pipeline.BatchMetadata(ctx)
	if len(meta) != len(batch) {
		return fmt.Errorf("%d entries come with the metadata of %d", len(batch), len(meta))
	}
	var keys, ids []string
	var seqs, offsets []int64
	for i, e := range batch {
		if c.plant == PlantUnordered {
			i = len(batch) - 1 - i
			e = batch[i]
		}
		id := meta[i].Envelope.ID
		if err := c.suffer(ctx, e, func() (bool, error) { return cured(ctx, tx, id) }); err != nil {
			return err
		}
		if c.plant == PlantSwallow && e.Kind == Poison {
			continue
		}
		if err := c.note(name, meta[i], e); err != nil {
			return err
		}
		keys, ids = append(keys, e.Key), append(ids, id)
		seqs, offsets = append(seqs, e.Seq), append(offsets, meta[i].Record.Offset)
	}
	at := meta[0].Record
	insert := func(ctx context.Context, db execer) error {
		_, err := db.Exec(ctx, insertEffects, name, at.Partition, meta[0].Group, at.TopicID, c.process(), keys, seqs, ids, offsets)
		return err
	}
	switch c.plant {
	case PlantOutside:
		return insert(ctx, pool)
	case PlantEarlyCommit:
		late := context.WithoutCancel(ctx)
		go func() {
			<-time.After(100 * time.Millisecond)
			_ = insert(late, pool)
		}()
		return nil
	default:
		return insert(ctx, tx)
	}
}

// process tells one process of a member from the next.
func (c *consumer) process() string { return fmt.Sprintf("%s/%d", c.name, os.Getpid()) }

// Note is one line of the log of effects.
type Note struct {
	Consumer  string `json:"consumer"`
	Key       string `json:"key"`
	Seq       int64  `json:"seq"`
	EventID   string `json:"event_id"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Process   string `json:"process"`
}

// note appends a line in one write, so that the lines of all processes stand in
// the order in which they were written.
func (c *consumer) note(name string, m pipeline.EventMetadata, e Entry) error {
	line, err := json.Marshal(Note{
		Consumer: name, Key: e.Key, Seq: e.Seq, EventID: m.Envelope.ID, Partition: m.Record.Partition, Offset: m.Record.Offset,
		Process: c.process(),
	})
	if err != nil {
		return err
	}
	_, err = c.notes.Write(append(line, '\n'))
	return err
}

var _ topics.Event = Entry{}
