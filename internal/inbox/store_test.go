package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/inbox"
	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/topics"
)

func TestTakeIncrementsTheEpochAndKeepsThePosition(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := pipeline.Partition{Group: "g", Topic: "marks", TopicID: topicID, Partition: 3}
	pos, err := b.store.Take(t.Context(), p)
	require.NoError(t, err)
	assert.Equal(t, pipeline.Position{Next: pipeline.NoOffset, Epoch: 1}, pos)
	_, err = b.store.Apply(t.Context(), pipeline.Work{Consumer: "c", Partition: p, Epoch: 1, Next: 42})
	require.NoError(t, err)
	pos, err = b.store.Take(t.Context(), p)
	require.NoError(t, err)
	assert.Equal(t, pipeline.Position{Next: 42, Epoch: 2}, pos)
	_, err = b.store.Apply(t.Context(), pipeline.Work{Consumer: "c", Partition: p, Epoch: 2, Next: 7})
	require.NoError(t, err)
	all, err := b.store.Positions(t.Context(), "g")
	require.NoError(t, err)
	assert.Equal(t, []inbox.PartitionPosition{{Partition: p, Position: pipeline.Position{Next: 42, Epoch: 2}}}, all,
		"a position never moves backwards by itself")
}

func TestReplacedTopicIsNotReadSilently(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := pipeline.Partition{Group: "g", Topic: "marks", TopicID: topicID}
	_, err := b.store.Take(t.Context(), p)
	require.NoError(t, err)
	_, err = b.store.Apply(t.Context(), pipeline.Work{Partition: p, Epoch: 1, Next: 10})
	require.NoError(t, err)
	replaced := p
	replaced.TopicID[0]++
	_, err = b.store.Take(t.Context(), replaced)
	want, ok := errors.AsType[*inbox.TopicReplacedError](err)
	require.True(t, ok, "%v", err)
	assert.EqualValues(t, 10, want.NextOffset)
	require.NoError(t, b.store.Seek(t.Context(), replaced, 0))
	pos, err := b.store.Take(t.Context(), replaced)
	require.NoError(t, err)
	assert.EqualValues(t, 0, pos.Next)
	require.Error(t, b.store.Seek(t.Context(), replaced, -2))
}

func TestEffectInboxOutboxAndPositionAreOneCommit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	typ, _ := topics.Lookup(topics.ExecutionStarted{}.EventType())
	fail := true
	o := b.own(t, pipeline.Consumer{
		Handle: pipeline.OnTx(func(ctx context.Context, tx pipeline.Tx, m mark) error {
			if err := insertMark(ctx, tx, m); err != nil {
				return err
			}
			if err := tx.Publish(ctx, typ.Example); err != nil {
				return err
			}
			if fail {
				return pipeline.Infrastructure(errors.New("half way"))
			}
			return nil
		}),
	})
	_, err := o.feed(t.Context(), 0, markRecord(t, "a"))
	require.Error(t, err)
	assert.Empty(t, b.effects(t))
	assert.Empty(t, b.strings(t, `SELECT event_id FROM processed_events`))
	assert.Empty(t, b.strings(t, `SELECT event_type FROM outbox_events`))
	assert.Equal(t, []string{"-1"}, b.strings(t, `SELECT next_offset::text FROM consumer_offsets`))
	assert.Zero(t, b.wakes.Load())

	fail = false
	outcomes, err := o.feed(t.Context(), 0, markRecord(t, "a"))
	require.NoError(t, err)
	assert.Equal(t, []middleware.Outcome{middleware.Done}, outcomes)
	assert.Equal(t, []string{"a"}, b.effects(t))
	assert.Equal(t, []string{"id-a"}, b.strings(t, `SELECT event_id FROM processed_events`))
	assert.Equal(t, []string{typ.Name}, b.strings(t, `SELECT event_type FROM outbox_events`))
	assert.Equal(t, []string{"1"}, b.strings(t, `SELECT next_offset::text FROM consumer_offsets`))
	assert.EqualValues(t, 1, b.wakes.Load())

	for _, at := range []int64{0, 1} { // the same offset, and the same event at another
		outcomes, err = o.feed(t.Context(), at, markRecord(t, "a"))
		require.NoError(t, err)
		assert.Equal(t, []middleware.Outcome{middleware.Duplicate}, outcomes)
	}
	assert.Equal(t, []string{"a"}, b.effects(t))
}

func TestFormerOwnerCommitsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := pipeline.Consumer{Handle: pipeline.OnBatchTx(insertMarks)}
	former := b.own(t, c)
	current := b.own(t, c)
	_, err := former.feed(t.Context(), 0, markRecord(t, "zombie"), topics.Record{Value: []byte("poison")})
	require.ErrorIs(t, err, pipeline.ErrFenced)
	_, err = current.feed(t.Context(), 0, markRecord(t, "a"))
	require.NoError(t, err)
	assert.Equal(t, []string{"a"}, b.effects(t))
	assert.Empty(t, b.strings(t, `SELECT reason FROM dead_letters`))
}

// A former owner that is in the middle of its transaction when the partition is
// taken either commits before the take or not at all.
func TestTakeWaitsForATransactionUnderWay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	inside, release := make(chan struct{}), make(chan struct{})
	c := pipeline.Consumer{Handle: pipeline.OnTx(func(ctx context.Context, tx pipeline.Tx, m mark) error {
		close(inside)
		<-release
		return insertMark(ctx, tx, m)
	})}
	former := b.own(t, c)
	done := make(chan error, 1)
	go func() { _, err := former.feed(t.Context(), 0, markRecord(t, "a")); done <- err }()
	<-inside
	taken := make(chan pipeline.Position, 1)
	go func() {
		pos, err := b.store.Take(t.Context(), pipeline.Partition{Group: "marker", Topic: "marks", TopicID: topicID, Partition: 3})
		assert.NoError(t, err)
		taken <- pos
	}()
	require.Eventually(t, func() bool {
		return len(b.strings(t, `SELECT pid::text FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`)) == 1
	}, eventually, tick)
	close(release)
	require.NoError(t, <-done)
	assert.EqualValues(t, 1, (<-taken).Next, "the new owner sees what the former one settled")
}

func TestConnectionLostUnderTheHandlerIsNotTheRecordsFault(t *testing.T) {
	t.Parallel()
	b := setup(t)
	kill := true
	o := b.own(t, pipeline.Consumer{Handle: pipeline.OnTx(func(ctx context.Context, tx pipeline.Tx, m mark) error {
		if kill {
			var pid int
			if err := tx.QueryRow(ctx, `SELECT pg_backend_pid()`).Scan(&pid); err != nil {
				return err
			}
			if _, err := b.pool.Exec(ctx, `SELECT pg_terminate_backend($1)`, pid); err != nil {
				return err
			}
		}
		if err := insertMark(ctx, tx, m); err != nil {
			return errors.New("the handler hides what happened")
		}
		return nil
	})})
	_, err := o.feed(t.Context(), 0, markRecord(t, "a"))
	require.Error(t, err)
	assert.Empty(t, b.strings(t, `SELECT reason FROM dead_letters`))
	kill = false
	_, err = o.feed(t.Context(), 0, markRecord(t, "a"))
	require.NoError(t, err)
	assert.Equal(t, []string{"a"}, b.effects(t))
}

func TestConstraintsAreTheRecordsFault(t *testing.T) {
	t.Parallel()
	b := setup(t)
	attempts := 0
	o := b.own(t, pipeline.Consumer{Handle: pipeline.OnTx(func(ctx context.Context, tx pipeline.Tx, m mark) error {
		attempts++
		if m.ID == "late" { // speaks at commit only
			_, err := tx.Exec(ctx, `INSERT INTO effects (id, once) VALUES ('x', 'same'), ('y', 'same')`)
			return err
		}
		return insertMark(ctx, tx, m)
	})})
	for at, id := range []string{"forbidden", "late"} {
		outcomes, err := o.feed(t.Context(), int64(at), markRecord(t, id))
		require.NoError(t, err)
		assert.Equal(t, []middleware.Outcome{middleware.DeadLettered}, outcomes)
	}
	assert.Equal(t, 2, attempts)
	assert.Equal(t, []string{"message", "message"}, b.strings(t, `SELECT class FROM dead_letters`))
	assert.Empty(t, b.effects(t))
}

func TestDeadLetterIsFiledWithThePosition(t *testing.T) {
	t.Parallel()
	b := setup(t)
	o := b.own(t, pipeline.Consumer{Handle: pipeline.OnBatchTx(insertMarks)})
	poison := topics.Record{
		Key: []byte{0xff, 0}, Value: []byte("\x00\xff"),
		Headers: []topics.Header{{Key: "h", Value: []byte{0xfe}}, {Key: "h", Value: nil}, {Key: "", Value: []byte{}}},
	}
	outcomes, err := o.feed(t.Context(), 5, markRecord(t, "a"), poison, markRecord(t, "b"))
	require.NoError(t, err)
	assert.Equal(t, []middleware.Outcome{middleware.Done, middleware.DeadLettered, middleware.Done}, outcomes)
	assert.Equal(t, []string{"a", "b"}, b.effects(t))
	assert.Equal(t, []string{"8"}, b.strings(t, `SELECT next_offset::text FROM consumer_offsets`))
	assert.Equal(t, []string{"id-a", "id-b"}, b.strings(t, `SELECT event_id FROM processed_events ORDER BY 1`))
	var key, value []byte
	var names, values [][]byte
	require.NoError(t, b.pool.QueryRow(t.Context(),
		`SELECT key, value, header_keys, header_values FROM dead_letters WHERE "offset" = 6 AND status = 'OPEN'`).Scan(&key, &value, &names, &values))
	assert.Equal(t, poison.Key, key)
	assert.Equal(t, poison.Value, value)
	assert.Equal(t, [][]byte{[]byte("h"), []byte("h"), {}}, names)
	assert.Equal(t, [][]byte{{0xfe}, nil, {}}, values)
	assert.Equal(t, []string{"dead_letters"}, b.strings(t, `SELECT topic FROM outbox_events WHERE partition_key = '\xff00' AND payload = '\x00ff'`))
	assert.EqualValues(t, 1, b.wakes.Load())

	again, err := o.feed(t.Context(), 5, markRecord(t, "a"), poison, markRecord(t, "b"))
	require.NoError(t, err)
	assert.Equal(t, []middleware.Outcome{middleware.Duplicate, middleware.Duplicate, middleware.Duplicate}, again)
	assert.Len(t, b.strings(t, `SELECT reason FROM dead_letters`), 1)
	assert.Len(t, b.strings(t, `SELECT topic FROM outbox_events`), 1)
}

func TestHandlersCanReachPgxButNotEndTheTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	o := b.own(t, pipeline.Consumer{Handle: pipeline.OnTx(func(ctx context.Context, tx pipeline.Tx, m mark) error {
		raw, ok := pipeline.PgxTx(tx)
		require.True(t, ok)
		require.ErrorIs(t, raw.Commit(ctx), pipeline.ErrTxManaged)
		require.ErrorIs(t, raw.Rollback(ctx), pipeline.ErrTxManaged)
		_, err := tx.CopyFrom(ctx, pgx.Identifier{"effects"}, []string{"id"}, pgx.CopyFromRows([][]any{{m.ID}, {m.ID + "2"}}))
		return err
	})})
	_, err := o.feed(t.Context(), 0, markRecord(t, "a"))
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "a2"}, b.effects(t))
}

// A dead letter and its redrive in one batch: the first lies below the position,
// which must not make the second a repetition.
func TestRedriveBehindItsDeadLetterInOneBatch(t *testing.T) {
	t.Parallel()
	b := setup(t)
	mended := false
	o := b.own(t, pipeline.Consumer{Handle: pipeline.OnBatchTx(func(ctx context.Context, tx pipeline.Tx, batch []mark) error {
		if !mended {
			return pipeline.Permanent(errors.New("bug"))
		}
		return insertMarks(ctx, tx, batch)
	})})
	_, err := o.feed(t.Context(), 0, markRecord(t, "a"))
	require.NoError(t, err)
	mended = true
	outcomes, err := o.feed(t.Context(), 0, markRecord(t, "a"), markRecord(t, "a"), markRecord(t, "a"))
	require.NoError(t, err)
	assert.Equal(t, []middleware.Outcome{middleware.Duplicate, middleware.Done, middleware.Duplicate}, outcomes)
	assert.Equal(t, []string{"a"}, b.effects(t))
}

// Records without effect pass without a transaction each, and the position
// catches up when the router asks for it.
func TestIdlePositionCatchesUp(t *testing.T) {
	t.Parallel()
	b := setup(t)
	o := b.own(t, pipeline.Consumer{Handle: pipeline.OnTx(insertMark)})
	position := func() string { return b.strings(t, `SELECT next_offset::text FROM consumer_offsets`)[0] }
	unknown := topics.Envelope{ID: "1", Source: "/s", Type: "unknown.v1"}.Record("marks", nil)
	for at := range int64(10) {
		_, err := o.feed(t.Context(), at, unknown)
		require.NoError(t, err)
	}
	assert.Equal(t, "1", position(), "the first is written, so that the position is known")
	require.NoError(t, o.processor.FlushIdle(t.Context()))
	assert.Equal(t, "10", position())
	_, err := o.feed(t.Context(), 1200, unknown)
	require.NoError(t, err)
	assert.Equal(t, "1201", position(), "the lag is bounded")
	_, err = o.feed(t.Context(), 1201, unknown)
	require.NoError(t, err)
	b.own(t, pipeline.Consumer{Handle: pipeline.OnTx(insertMark)})
	require.NoError(t, o.processor.FlushIdle(t.Context()), "a former owner gives up quietly")
	assert.Equal(t, "1201", position())
}

func TestPositionThatTheDatabaseLostIsReadAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	o := b.own(t, pipeline.Consumer{Handle: pipeline.OnTx(insertMark)})
	assert.EqualValues(t, -1, o.start, "a new consumer starts where From says")
	start, _, err := o.processor.Assigned(t.Context(), "marks", topicID, 3, 500)
	require.NoError(t, err)
	assert.EqualValues(t, 0, start, "kafka's position is not believed when the database has none")
}

// Somebody has set the group's offset in Kafka, or removed it: the position in the
// database counts, and the status says so.
func TestResetInKafkaIsNoticed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	o := b.own(t, pipeline.Consumer{Handle: pipeline.OnTx(insertMark)})
	_, err := o.feed(t.Context(), 49_999, markRecord(t, "a"))
	require.NoError(t, err)
	for committed, notice := range map[int64]string{
		50_000: "", 49_000: "", 50_900: "",
		0:      "the group's offset in kafka was 0 although it has read up to 50000: it was reset",
		90_000: "the group's offset in kafka was 90000 although it has read up to 50000: it was reset",
		-1:     "the group had no offset in kafka although it has read up to 50000: it was deleted or has expired",
	} {
		start, _, err := o.processor.Assigned(t.Context(), "marks", topicID, 3, committed)
		require.NoError(t, err)
		assert.EqualValues(t, 50_000, start)
		assert.Equal(t, notice, o.processor.Status().Notices[3])
	}
	o.processor.Released(3)
	assert.Empty(t, o.processor.Status().Notices)
}

// An order to dead-letter is filed in one transaction with the letter and the
// position, or comes to nothing.
func TestOrderedDeadLetter(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.pool.Exec(t.Context(), `CREATE TABLE orders (n int CHECK (n > 0))`)
	require.NoError(t, err)
	refuse := true
	o := b.own(t, pipeline.Consumer{
		Delivery: pipeline.Delivery{OnExhausted: pipeline.Block, MaxAttempts: 1},
		Handle: pipeline.OnBatchTx(func(ctx context.Context, tx pipeline.Tx, batch []mark) error {
			for _, m := range batch {
				if m.ID == "b" && refuse {
					return errors.New("no")
				}
			}
			return insertMarks(ctx, tx, batch)
		}),
	})
	done := make(chan error, 1)
	order := func(offset int64, n int, until time.Time) pipeline.DeadLetterOrder {
		return pipeline.DeadLetterOrder{
			Partition: 3, Offset: offset, Actor: "ada", Reason: "known", Until: until, Done: func(err error) { done <- err },
			InTx: func(ctx context.Context, tx pipeline.StoreTx) error {
				_, err := tx.Exec(ctx, `INSERT INTO orders VALUES ($1)`, n)
				if err != nil {
					return fmt.Errorf("%w: %w", pipeline.ErrOrderLapsed, err)
				}
				return nil
			},
		}
	}
	later := time.Now().Add(time.Hour)
	feed := func() ([]middleware.Outcome, error) {
		return o.feed(t.Context(), 5, markRecord(t, "a"), markRecord(t, "b"), markRecord(t, "c"))
	}
	require.ErrorIs(t, o.processor.OrderDeadLetter(order(6, 1, later)), pipeline.ErrNotBlocked, "it is not stalled")
	_, err = feed()
	require.Error(t, err)
	require.EqualValues(t, 6, o.processor.Status().Stalls[0].Offset)
	require.ErrorIs(t, o.processor.OrderDeadLetter(order(5, 1, later)), pipeline.ErrNotBlocked)

	// One that lapsed, and one that is refused in the transaction.
	require.NoError(t, o.processor.OrderDeadLetter(order(6, 1, time.Now())))
	_, err = feed()
	require.Error(t, err)
	require.ErrorIs(t, <-done, pipeline.ErrOrderLapsed)
	require.NoError(t, o.processor.OrderDeadLetter(order(6, -1, later)))
	_, err = feed()
	require.Error(t, err)
	require.ErrorIs(t, <-done, pipeline.ErrOrderLapsed)
	assert.Empty(t, b.strings(t, `SELECT reason FROM dead_letters`))
	// One whose partition goes to another process. (The transaction was that of the
	// whole batch, so the next try finds out again which record is to blame.)
	_, err = feed()
	require.Error(t, err)
	require.NoError(t, o.processor.OrderDeadLetter(order(6, 1, later)))
	o.processor.Released(3)
	require.ErrorIs(t, <-done, pipeline.ErrOrderLapsed)
	// One that comes too late.
	_, err = feed()
	require.Error(t, err)
	require.NoError(t, o.processor.OrderDeadLetter(order(6, 1, later)))
	_, err = o.feed(t.Context(), 9, markRecord(t, "z"))
	require.NoError(t, err)
	require.ErrorIs(t, <-done, pipeline.ErrNotBlocked)
	assert.Empty(t, b.strings(t, `SELECT n::text FROM orders`))
}

func TestOrderedDeadLetterIsOneCommit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	o := b.own(t, pipeline.Consumer{
		Delivery: pipeline.Delivery{OnExhausted: pipeline.Block, MaxAttempts: 1},
		Handle:   pipeline.OnTx(func(context.Context, pipeline.Tx, mark) error { return errors.New("no") }),
	})
	_, err := o.feed(t.Context(), 5, markRecord(t, "a"))
	require.Error(t, err)
	done := make(chan error, 1)
	require.NoError(t, o.processor.OrderDeadLetter(pipeline.DeadLetterOrder{
		Partition: 3, Offset: 5, Actor: "ada", Reason: "known", Until: time.Now().Add(time.Hour), Done: func(err error) { done <- err },
		InTx: func(ctx context.Context, tx pipeline.StoreTx) error {
			var letters, next int64
			err := tx.QueryRow(ctx, `SELECT (SELECT count(*) FROM dead_letters), (SELECT next_offset FROM consumer_offsets)`).Scan(&letters, &next)
			assert.EqualValues(t, 1, letters)
			assert.EqualValues(t, 6, next)
			return err
		},
	}))
	outcomes, err := o.feed(t.Context(), 5, markRecord(t, "a"))
	require.NoError(t, err)
	assert.Equal(t, []middleware.Outcome{middleware.DeadLettered}, outcomes)
	require.NoError(t, <-done)
	assert.Equal(t, []string{"handler dead-lettered by ada: known (before: no)"}, b.strings(t, `SELECT class || ' ' || reason FROM dead_letters`))
}
