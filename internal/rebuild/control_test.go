package rebuild

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/eventlog"
	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/topics"
)

// points are where tests interfere, in the order in which a rebuild passes them.
func points() []string {
	return []string{"preparing", "loading", "loaded", "indexing", "comparing", "snapshot", "catching_up", "swap"}
}

// once returns a hook that does something at the first passing of a point.
func once(point string, do func()) func(*Keeper) {
	var first sync.Once
	return func(k *Keeper) {
		k.at = func(at string) {
			if at == point {
				first.Do(do)
			}
		}
	}
}

func TestACancelledRebuildLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	for _, point := range points() {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.fill(800)
			b.all()
			b.exec(`UPDATE orders SET name = 'as it was'`)
			before := b.rows("orders")
			id := b.start(Order{Mode: ModeRebuild}).ID
			b.keeper(once(point, func() {
				_, err := b.store.Cancel(context.WithoutCancel(t.Context()), id.String())
				assert.NoError(t, err)
			}))
			s := b.ended(id)
			assert.Equal(t, Cancelled, s.State)
			assert.NotNil(t, s.FinishedAt)
			b.nothingLeft()
			assert.Equal(t, before, b.rows("orders"))
			_, err := b.store.Cancel(t.Context(), id.String())
			require.ErrorIs(t, err, ErrState)
			s = b.ended(b.start(Order{Mode: ModeRebuild}).ID)
			assert.Equal(t, Done, s.State, "another one can begin")
		})
	}
}

// A process that ends at any point leaves what another one goes on with. That of a
// process that is killed is the affair of the crash points of e2e.
func TestARebuildGoesOnInAnotherProcess(t *testing.T) {
	t.Parallel()
	for _, point := range points() {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.fill(800)
			b.all()
			b.exec(`UPDATE orders SET name = 'forged'`)
			live := b.live(2)
			defer live()
			id := b.start(Order{Mode: ModeRebuild}).ID
			reached := make(chan struct{})
			var stop func()
			stop = b.keeper(once(point, func() { close(reached); go stop() }))
			b.await(reached)
			stop()
			b.keeper()
			s := b.ended(id)
			assert.Equal(t, Done, s.State, s.Note)
			b.nothingLeft()
			live()
			b.requireUndisturbed()
		})
	}
}

func TestTwoProcessesWorkOnOneRebuildAtATime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fill(2000)
	b.all()
	var working, most atomic.Int32
	hook := func(k *Keeper) {
		k.at = func(point string) {
			if point == "preparing" {
				most.Add(working.Add(1))
			}
		}
	}
	b.keeper(hook)
	b.keeper(hook)
	id := b.start(Order{Mode: ModeRebuild}).ID
	_, err := b.store.Start(t.Context(), Order{Projection: b.model.Name, Mode: ModeVerify})
	require.ErrorIs(t, err, ErrBusy)
	assert.Equal(t, Done, b.ended(id).State)
	assert.EqualValues(t, 1, most.Load())
	b.requireUndisturbed()
}

func TestAPausedRebuildWaits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fill(2000)
	b.all()
	id := b.start(Order{Mode: ModeRebuild}).ID.String()
	paused := make(chan struct{})
	stop := b.keeper(once("loaded", func() {
		_, err := b.store.Pause(context.WithoutCancel(t.Context()), id)
		assert.NoError(t, err)
		close(paused)
	}))
	b.await(paused)
	stop() // whatever it was at has ended
	s, err := b.store.Get(t.Context(), id)
	require.NoError(t, err)
	assert.Equal(t, Paused, s.State)
	assert.Equal(t, Loading, s.Phase)
	_, err = b.store.Pause(t.Context(), id)
	require.ErrorIs(t, err, ErrState)
	_, err = b.store.Start(t.Context(), Order{Projection: b.model.Name, Mode: ModeVerify})
	require.ErrorIs(t, err, ErrBusy, "its shadow is still there")
	b.keeper()
	_, err = b.store.Resume(t.Context(), id)
	require.NoError(t, err)
	assert.Equal(t, Done, b.ended(s.ID).State)
	b.requireUndisturbed()
}

func TestAMigrationThatComesBetweenIsNoticed(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"loaded", "comparing", "swap"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.fill(400)
			b.all()
			id := b.start(Order{Mode: ModeRebuild}).ID
			b.keeper(once(point, func() {
				_, err := b.pool.Exec(context.WithoutCancel(t.Context()), `
					ALTER TABLE orders ADD COLUMN added text NOT NULL DEFAULT 'x';
					DROP INDEX orders_by_name; CREATE INDEX orders_added ON orders (added);`)
				assert.NoError(t, err)
			}))
			s := b.ended(id)
			require.Equal(t, Done, s.State, s.Note)
			assert.EqualValues(t, 1, b.count(`SELECT count(*) FROM pg_indexes WHERE indexname = 'orders_added'`))
			assert.Zero(t, b.count(`SELECT count(*) FROM pg_indexes WHERE indexname = 'orders_by_name'`))
			assert.Positive(t, b.count(`SELECT count(*) FROM orders WHERE added = 'x'`))
			b.nothingLeft()
		})
	}
}

func TestTheSwapWaitsForReadersAndLetsOthersPass(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fill(400)
	b.all()
	reader, err := b.pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = reader.Exec(t.Context(), `SELECT count(*) FROM items`)
	require.NoError(t, err)
	id := b.start(Order{Mode: ModeRebuild}).ID
	b.keeper()
	require.Eventually(t, func() bool { return b.get(id).Note == "waits for those who read the tables" }, eventually, tick)
	b.fill(40)
	b.all() // between its attempts everybody passes
	require.NoError(t, reader.Rollback(t.Context()))
	assert.Equal(t, Done, b.ended(id).State)
	b.requireUndisturbed()
}

func TestARebuildThatWouldThrowMuchAwayIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fill(400)
	b.all()
	b.exec(`INSERT INTO orders (id, history_from) SELECT 'phantom' || n, now() FROM generate_series(1, 200) AS n`)
	id := b.start(Order{Mode: ModeRebuild}).ID
	stop := b.keeper()
	s := b.ended(id)
	stop()
	assert.Equal(t, Failed, s.State)
	assert.Contains(t, s.Note, "rebuild with force")
	assert.EqualValues(t, 200, *s.Surplus)
	b.nothingLeft()
	assert.EqualValues(t, 200, b.count(`SELECT count(*) FROM orders WHERE id LIKE 'phantom%'`))
	b.rebuilt(Order{Mode: ModeRebuild, Force: true})
	b.requireUndisturbed()
}

func TestWhatCannotBeginSaysWhy(t *testing.T) {
	t.Parallel()
	b := setup(t)
	start := func(o Order) error {
		if o.Projection == "" {
			o.Projection = b.model.Name
		}
		o.Mode = ModeRebuild
		_, err := b.store.Start(t.Context(), o)
		return err
	}
	require.ErrorIs(t, start(Order{}), ErrNoHistory)
	require.ErrorIs(t, start(Order{Projection: "nobody"}), ErrNoProjection)
	require.ErrorIs(t, start(Order{Source: "tape"}), ErrNoSource)
	b.fill(40)
	b.all()
	b.store.cfg.Room = func(int64) (int64, bool) { return 10, true }
	require.ErrorIs(t, start(Order{}), ErrNoRoom)
	b.store.cfg.Room = nil
	b.exec(`CREATE VIEW of_orders AS SELECT id FROM orders`)
	require.ErrorIs(t, start(Order{}), ErrUnfit)
	require.ErrorContains(t, start(Order{}), "the view of_orders")
	b.exec(`DROP VIEW of_orders`)
	b.exec(`CREATE TABLE parts (order_id text REFERENCES orders)`)
	require.ErrorContains(t, start(Order{}), "the foreign key parts_order_id_fkey")
	for _, id := range []string{"x", "00000000-0000-7000-8000-000000000000"} {
		_, err := b.store.Get(t.Context(), id)
		require.ErrorIs(t, err, ErrNotFound)
	}
	_, err := b.store.List(t.Context(), "nobody", 10)
	require.ErrorIs(t, err, ErrNoProjection)
	_, err = b.store.Projection(t.Context(), "nobody")
	require.ErrorIs(t, err, ErrNoProjection)
}

func TestARebuildIsAdvisedWhenTheDeclarationHasChanged(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fill(400)
	b.all()
	status := func() Status {
		t.Helper()
		s, err := b.store.Projection(t.Context(), b.model.Name)
		require.NoError(t, err)
		return s
	}
	assert.False(t, status().RebuildAdvised())
	assert.Nil(t, status().Last)
	b.store.cfg.Models[0].Version = "another"
	require.NoError(t, b.store.Register(t.Context()))
	assert.True(t, status().RebuildAdvised())
	b.rebuilt(Order{Mode: ModeVerify})
	assert.True(t, status().RebuildAdvised(), "nothing was changed")
	s := b.rebuilt(Order{Mode: ModeRebuild})
	now := status()
	assert.False(t, now.RebuildAdvised())
	assert.Equal(t, s.ID, now.Last.ID)
	require.Len(t, now.Tables, 2)
	assert.Positive(t, now.Tables[0].Bytes)
	all, err := b.store.Projections(t.Context())
	require.NoError(t, err)
	assert.Len(t, all, 1)
	sessions, err := b.store.List(t.Context(), b.model.Name, 10)
	require.NoError(t, err)
	require.Len(t, sessions, 2)
	assert.Equal(t, s.ID, sessions[0].ID)

	// Tables without rows were built by nobody.
	b.exec(`TRUNCATE orders, items`)
	b.store.cfg.Models[0].Version = "yet another"
	require.NoError(t, b.store.Register(t.Context()))
	assert.False(t, status().RebuildAdvised())
}

// topicItself is the topic of a bench as a source: what Kafka has.
type topicItself struct {
	b     *bench
	start Vector
	since time.Time
	down  atomic.Int32 // so many reads fail
}

func (s *topicItself) Spans(context.Context, Querier, string) (map[Partition]Span, error) {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	spans := map[Partition]Span{}
	for p, records := range s.b.records {
		spans[p] = Span{From: s.start[p], To: int64(len(records))}
	}
	return spans, nil
}

func (s *topicItself) Read(_ context.Context, _ Querier, _ string, p Partition, from, to int64, each func(topics.Record) error) error {
	if s.down.Add(-1) >= 0 {
		return Later(fmt.Errorf("no broker"))
	}
	s.b.mu.Lock()
	records := s.b.records[p][from:to]
	s.b.mu.Unlock()
	for _, r := range records {
		if err := each(r); err != nil {
			return err
		}
	}
	return nil
}

func (s *topicItself) Horizon(context.Context, Querier, string) (time.Time, bool, error) {
	return s.since, true, nil
}

func TestARebuildFromTheTopicItself(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fill(800)
	source := &topicItself{b: b}
	source.down.Store(2)
	b.store.cfg.Sources[FromKafka] = source
	stop := b.live(3) // nothing of the log is used
	defer stop()
	b.rebuilt(Order{Mode: ModeRebuild, Source: FromKafka})
	stop()
	b.requireUndisturbed()

	// A redrive is for the consumer that failed.
	for _, target := range []string{"somebody-else", "x, " + b.model.Name} {
		env := topics.Envelope{ID: target, Source: "/shop", Type: "shop.order.changed", Time: began, Subject: "t",
			Data: fmt.Appendf(nil, `{"order": "for %s", "changes": 1}`, target), DataContentType: "application/json"}
		r := env.Record(topic, []byte("t"))
		r.Headers = append(r.Headers, topics.Header{Key: middleware.HeaderTarget, Value: []byte(target)})
		b.put(0, r, began)
	}
	b.exec(`UPDATE consumer_offsets SET next_offset = next_offset + 2 WHERE consumer_group = $1 AND partition = 0`, b.model.Group)
	b.rebuilt(Order{Mode: ModeRebuild, Source: FromKafka})
	assert.EqualValues(t, 1, b.count(`SELECT count(*) FROM orders WHERE id LIKE 'for %'`))
	assert.EqualValues(t, 1, b.count(`SELECT count(*) FROM orders WHERE id LIKE '%`+b.model.Name+`'`))
}

func TestReadingALogPartitionByPartition(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fill(40)
	b.recordAll()
	p := Partition{topicID, 1}
	var got []topics.Record
	stretch := eventlog.Stretch{Topic: topic, TopicID: topicID, Partition: 1, From: 2, To: 9}
	require.NoError(t, eventlog.Read(t.Context(), b.pool, stretch, func(r topics.Record) error { got = append(got, r); return nil }))
	require.Len(t, got, 7)
	for i, r := range got {
		want := b.records[p][i+2]
		assert.Equal(t, want.Offset, r.Offset)
		assert.Equal(t, want.Headers, r.Headers)
		assert.Equal(t, want.Value, r.Value)
		assert.Equal(t, want.Key, r.Key)
		assert.True(t, want.Timestamp.Equal(r.Timestamp))
	}
	failed := eventlog.Read(t.Context(), b.pool, stretch, func(topics.Record) error { return pgx.ErrTooManyRows })
	require.ErrorIs(t, failed, pgx.ErrTooManyRows)
}
