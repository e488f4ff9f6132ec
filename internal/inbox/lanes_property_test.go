package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/deadletter"
	"github.com/millrace/millrace/internal/delivery"
	"github.com/millrace/millrace/internal/inbox"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/topics"
)

// crash is what a transaction of a faultyDB dies of, once.
type crash uint8

const (
	noCrash crash = iota
	atBegin
	atStatement
	beforeCommit
	afterCommit
	crashes
)

var errCrash = errors.New("crash")

// faultyDB breaks one transaction at a chosen place.
type faultyDB struct {
	*pgxpool.Pool
	next crash
	// statements is how many succeed before atStatement strikes.
	statements int
}

func (d *faultyDB) take(c crash) bool {
	if d.next != c {
		return false
	}
	d.next = noCrash
	return true
}

func (d *faultyDB) BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error) {
	if d.take(atBegin) {
		return nil, errCrash
	}
	tx, err := d.Pool.BeginTx(ctx, o)
	return &faultyTx{Tx: tx, db: d}, err
}

type faultyTx struct {
	pgx.Tx
	db *faultyDB
}

func (t *faultyTx) strikes() bool {
	if t.db.next != atStatement {
		return false
	}
	if t.db.statements--; t.db.statements >= 0 {
		return false
	}
	return t.db.take(atStatement)
}

func (t *faultyTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if t.strikes() {
		return pgconn.CommandTag{}, errCrash
	}
	return t.Tx.Exec(ctx, sql, args...)
}

func (t *faultyTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	results := t.Tx.SendBatch(ctx, b)
	if t.strikes() {
		return brokenResults{results}
	}
	return results
}

// brokenResults are those of statements that were carried out.
type brokenResults struct{ pgx.BatchResults }

func (r brokenResults) Close() error { return errors.Join(r.BatchResults.Close(), errCrash) }

func (t *faultyTx) Commit(ctx context.Context) error {
	if t.db.take(beforeCommit) {
		return errors.Join(errCrash, t.Tx.Rollback(ctx))
	}
	err := t.Tx.Commit(ctx)
	if err == nil && t.db.take(afterCommit) {
		return errCrash
	}
	return err
}

// world is one run of the property: a log, two processes, and an operator.
type world struct {
	*clinic
	rt    *rapid.T
	db    *faultyDB
	store pipeline.LaneStore
	log   []topics.Record
	// discarded are the ids that the operator gave up.
	discarded map[string]bool
	owners    [2]*process
	current   int
	// finished says that there are no more faults.
	finished bool
}

// process has a processor, maybe the partition, and maybe a lane.
type process struct {
	processor *pipeline.Processor
	epoch     int64
	at        int64
	lane      *pipeline.Lane
}

func (w *world) take(i int) {
	p := w.owners[i]
	start, epoch, err := p.processor.Assigned(context.Background(), "marks", topicID, 3, -1)
	if err != nil {
		return // the crash struck; it does not own the partition
	}
	p.epoch, p.at, w.current = epoch, max(start, 0), i
}

// feed has a process handle what comes next for it, whether it is the owner or not.
func (w *world) feed(i int) {
	p := w.owners[i]
	size := rapid.IntRange(1, 6).Draw(w.rt, "size")
	if p.epoch == 0 || p.at >= int64(len(w.log)) {
		return
	}
	records := w.log[p.at:min(p.at+int64(size), int64(len(w.log)))]
	d := &delivery.Delivery{Group: "marker", Topic: "marks", TopicID: topicID, Partition: 3, Epoch: p.epoch, Try: 1, Records: records}
	_, err := p.processor.Process(context.Background(), d)
	switch {
	case err == nil:
		require.Equal(w.rt, w.current, i, "a former owner settled something")
		p.at += int64(len(records))
	case !errors.Is(err, errCrash):
		require.ErrorIs(w.rt, err, pipeline.ErrFenced)
	}
}

// step has a process do one thing with a lane.
func (w *world) step(i int) {
	p := w.owners[i]
	if p.lane == nil {
		lane, ok, err := w.store.ClaimLane(context.Background(), groups(), time.Hour)
		require.NoError(w.rt, err)
		if ok {
			p.lane = &lane
		}
		return
	}
	_, done, err := p.processor.Drain(context.Background(), w.store, *p.lane)
	switch {
	case errors.Is(err, pipeline.ErrFenced):
		p.lane = nil
		return
	case err != nil:
		require.ErrorIs(w.rt, err, errCrash)
	case !done:
		return
	}
	if rapid.Bool().Draw(w.rt, "dies with the lease") {
		_, err := w.pool.Exec(context.Background(), `UPDATE parked_lanes SET leased_until = now() - interval '1 s' WHERE id = $1`, p.lane.ID)
		require.NoError(w.rt, err)
	} else {
		_ = w.store.LeaveLane(context.Background(), *p.lane, err, 0)
		// Fenced, or broken: then the lease ends by itself.
		_, err := w.pool.Exec(context.Background(), `UPDATE parked_lanes SET leased_until = NULL, next_try_at = now() WHERE id = $1 AND token = $2`, p.lane.ID, p.lane.Token)
		require.NoError(w.rt, err)
	}
	p.lane = nil
}

// expire lets others take the lanes that are leased, whose holders go on.
func (w *world) expire() {
	_, err := w.pool.Exec(context.Background(), `UPDATE parked_lanes SET leased_until = now() - interval '1 s' WHERE leased_until IS NOT NULL`)
	require.NoError(w.rt, err)
}

// operate decides about one open letter.
func (w *world) operate(curable bool) bool {
	list, err := w.letters.List(context.Background(), deadletter.Filter{Statuses: []deadletter.Status{deadletter.Open}}, deadletter.Page{})
	require.NoError(w.rt, err)
	if len(list.Letters) == 0 {
		return false
	}
	l := list.Letters[rapid.IntRange(0, len(list.Letters)-1).Draw(w.rt, "letter")]
	id := w.idOf(l.Record.Offset)
	if rapid.IntRange(0, 3).Draw(w.rt, "discard") == 0 || l.Record.Key == nil {
		require.NoError(w.rt, w.letters.Discard(context.Background(), l.ID.String(), "ada", "x"))
		w.discarded[id] = true
		return true
	}
	if curable {
		w.cure(id)
	}
	result, err := w.letters.Redrive(context.Background(), deadletter.Redrive{IDs: []string{l.ID.String()}, Terms: deadletter.Terms{Force: true, Actor: "ada"}})
	require.NoError(w.rt, err)
	require.Equal(w.rt, 1, result.Redriven)
	return true
}

func (w *world) idOf(offset int64) string {
	e, err := topics.DecodeRecord(w.log[offset])
	require.NoError(w.rt, err)
	return e.ID[len("id-"):]
}

// Whatever fails, is redriven, discarded, crashes or loses its partition or lane:
// each key's events take effect in the order of the log, each once, all but those
// that were discarded.
func TestLanesProperty(t *testing.T) {
	t.Parallel()
	c := newClinic(t)
	db := &faultyDB{Pool: c.pool}
	inner := inbox.New(db, nil)
	rapid.Check(t, func(rt *rapid.T) {
		_, err := c.pool.Exec(context.Background(),
			`TRUNCATE effects, processed_events, consumer_offsets, dead_letters, dead_letter_actions, parked_events, parked_lanes, outbox_events`)
		require.NoError(rt, err)
		db.next, c.sick = noCrash, make(map[string]bool)
		w := &world{clinic: c, rt: rt, db: db, discarded: make(map[string]bool)}
		w.store = &meddler{LaneStore: inner, meddle: func(pipeline.Work) {
			if w.finished {
				return
			}
			switch rapid.IntRange(0, 5).Draw(rt, "meddle") {
			case 0:
				w.operate(true)
			case 1:
				w.expire()
			}
		}}
		consumer := rapid.SampledFrom([]func() pipeline.Consumer{c.one, c.batch}).Draw(rt, "kind")()
		consumer.GuardedByState = rapid.Bool().Draw(rt, "guarded")
		for i := range w.owners {
			w.owners[i] = &process{processor: c.processor(t, w.store, consumer)}
		}
		w.write(t, rapid.IntRange(1, 25).Draw(rt, "records"))
		w.take(0)
		for range rapid.IntRange(0, 60).Draw(rt, "actions") {
			if rapid.IntRange(0, 4).Draw(rt, "crashes") == 0 {
				db.next = crash(rapid.IntRange(int(atBegin), int(crashes)-1).Draw(rt, "crash"))
				db.statements = rapid.IntRange(0, 6).Draw(rt, "statements")
			}
			who := rapid.IntRange(0, 1).Draw(rt, "who")
			switch rapid.SampledFrom([]string{"feed", "feed", "feed", "step", "step", "step", "operate", "take", "expire", "again"}).Draw(rt, "action") {
			case "feed":
				w.feed(who)
			case "step":
				w.step(who)
			case "operate":
				w.operate(rapid.Bool().Draw(rt, "curable"))
			case "take":
				w.take(who)
			case "expire":
				w.expire()
			case "again":
				w.owners[who].at = rapid.Int64Range(0, w.owners[who].at).Draw(rt, "from")
			}
		}
		w.finish()
		w.check()
	})
}

// write fills the log; about one record in five is sick.
func (w *world) write(t testing.TB, n int) {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s%02d", rapid.SampledFrom([]string{"a", "a", "b", "-"}).Draw(w.rt, "key"), i)
		if rapid.IntRange(0, 4).Draw(w.rt, "sick") == 0 {
			w.sick[ids[i]] = true
		}
	}
	w.log = keyed(t, ids...)
	for i := range w.log {
		w.log[i].Topic, w.log[i].TopicID, w.log[i].Partition, w.log[i].Offset = "marks", topicID, 3, int64(i)
	}
}

// finish brings everything to its end without further faults.
func (w *world) finish() {
	w.db.next, w.finished = noCrash, true
	w.take(0)
	for w.owners[0].at < int64(len(w.log)) {
		w.feed(0)
	}
	for {
		w.expire()
		require.NoError(w.rt, drainAll(context.Background(), w.store, w.owners[1].processor))
		if !w.operate(true) {
			break
		}
	}
	require.NoError(w.rt, drainAll(context.Background(), w.store, w.owners[1].processor))
}

func (w *world) check() {
	var left int
	require.NoError(w.rt, w.pool.QueryRow(context.Background(), `SELECT count(*) FROM parked_lanes`).Scan(&left))
	require.Zero(w.rt, left, "a lane is left")
	rows, err := w.pool.Query(context.Background(), `SELECT id FROM effects ORDER BY n`)
	require.NoError(w.rt, err)
	effects, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(w.rt, err)
	got, want := map[string][]string{}, map[string][]string{}
	for _, id := range effects {
		got[id[:1]] = append(got[id[:1]], id)
	}
	for i := range w.log {
		if id := w.idOf(int64(i)); !w.discarded[id] {
			want[id[:1]] = append(want[id[:1]], id)
		}
	}
	require.Equal(w.rt, want, got)
}
