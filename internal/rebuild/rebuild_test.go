package rebuild

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/inbox"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/topics"
)

func TestVerifyOfAHealthyProjectionFindsNothingAndChangesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fill(2000)
	b.all()
	before := b.rows("orders")
	s := b.rebuilt(Order{Mode: ModeVerify})
	n, compared := s.Differences()
	assert.True(t, compared)
	assert.Zero(t, n)
	assert.EqualValues(t, len(before)+len(b.rows("items")), *s.Rows)
	assert.Equal(t, *s.Rows, *s.RowsBuilt)
	assert.EqualValues(t, 2000, s.Passed)
	assert.EqualValues(t, 2000, s.Total)
	assert.Equal(t, before, b.rows("orders"))
}

func TestWhatIsWrongIsFoundByVerifyAndMendedByRebuild(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fill(2000)
	b.all()
	b.exec(`UPDATE orders SET name = 'forged' WHERE id = 'o0007'`)
	b.exec(`DELETE FROM orders WHERE id = 'o0009'`)
	b.exec(`INSERT INTO orders (id, name, history_from) VALUES ('phantom', 'nobody''s', now())`)
	b.exec(`UPDATE items SET payload = '{"forged": "` + string(make20k()) + `"}' WHERE order_id = 'o0003' AND n = 2`)

	s := b.rebuilt(Order{Mode: ModeVerify})
	assert.EqualValues(t, 1, *s.Missing)
	assert.EqualValues(t, 1, *s.Surplus)
	assert.EqualValues(t, 2, *s.Different)
	list, err := b.store.Differences(t.Context(), s.ID.String(), 0, 10)
	require.NoError(t, err)
	require.Len(t, list, 4)
	byKind := map[Kind][]Difference{}
	for _, d := range list {
		byKind[d.Kind] = append(byKind[d.Kind], d)
	}
	assert.JSONEq(t, `{"id": "o0009"}`, string(byKind[Missing][0].Key))
	assert.JSONEq(t, `{"id": "phantom"}`, string(byKind[Surplus][0].Key))
	assert.JSONEq(t, `{"id": "o0007"}`, string(byKind[Different][0].Key))
	assert.JSONEq(t, `{"name": {"table": "forged", "history": "order 43"}}`, string(byKind[Different][0].Columns))
	assert.JSONEq(t, `{"order_id": "o0003", "n": 2}`, string(byKind[Different][1].Key))
	assert.Less(t, len(byKind[Different][1].Columns), 3000, "what is long is cut")
	rest, err := b.store.Differences(t.Context(), s.ID.String(), 3, 10)
	require.NoError(t, err)
	assert.Len(t, rest, 1)

	before := s.ID.String()
	s = b.rebuilt(Order{Mode: ModeRebuild})
	n, _ := s.Differences()
	assert.EqualValues(t, 4, n, "a rebuild says what it mended")
	list, err = b.store.Differences(t.Context(), before, 0, 10)
	require.NoError(t, err)
	assert.Empty(t, list, "those of one that is over are not kept")
	b.requireUndisturbed()
	s = b.rebuilt(Order{Mode: ModeVerify})
	n, _ = s.Differences()
	assert.Zero(t, n)
}

func make20k() []byte {
	text := make([]byte, 20_000)
	for i := range text {
		text[i] = 'x'
	}
	return text
}

// TestARebuildWhileEverythingGoesOn is case J2: nothing that happens meanwhile is
// lost, whatever the consumer and the recorder are at when the tables are swapped.
func TestARebuildWhileEverythingGoesOn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fill(1000)
	b.all()
	b.exec(`UPDATE orders SET name = 'forged'`)
	stop := b.live(5)
	defer stop()
	for range 3 {
		s := b.rebuilt(Order{Mode: ModeRebuild})
		assert.Equal(t, Finished, s.Phase)
	}
	s := b.rebuilt(Order{Mode: ModeVerify})
	n, compared := s.Differences()
	assert.True(t, compared)
	assert.Zero(t, n, "the tables are compared at one place in the topic, however busy it is")
	stop()
	b.requireUndisturbed()
}

func TestASwapLeavesNoTraceInTheSchema(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fill(400)
	b.all()
	schemas := func() (out []string) {
		for _, table := range []string{"orders", "items"} {
			s, err := readSchema(t.Context(), b.pool, table)
			require.NoError(t, err)
			out = append(out, s.String())
		}
		return out
	}
	before := schemas()
	b.rebuilt(Order{Mode: ModeRebuild})
	assert.Equal(t, before, schemas())
	b.rebuilt(Order{Mode: ModeRebuild, KeepOld: time.Hour})
	assert.Equal(t, before, schemas())
	assert.Contains(t, before[0], "autovacuum_vacuum_threshold=77")

	// What a later migration does by name still works.
	b.exec(`DROP INDEX orders_by_name`)
	b.exec(`DROP INDEX "Orders of a name that is so long that a suffix makes it too long"`)
	b.exec(`DROP STATISTICS orders_together`)
	b.exec(`ALTER TABLE orders DROP CONSTRAINT orders_changes_check`)
	b.exec(`ALTER TABLE items DROP CONSTRAINT items_key, DROP CONSTRAINT items_payload_once`)
	b.exec(`REVOKE SELECT ON orders FROM PUBLIC`)
}

func TestReplacedTablesAreKeptForAsLongAsAsked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fill(400)
	b.all()
	b.exec(`UPDATE orders SET name = 'forged'`)
	s := b.rebuilt(Order{Mode: ModeRebuild, KeepOld: time.Hour})
	require.NotNil(t, s.OldUntil)
	assert.Positive(t, b.count(`SELECT count(*) FROM orders__replaced WHERE name = 'forged'`))
	assert.Zero(t, b.count(`SELECT count(*) FROM orders WHERE name = 'forged'`))
	b.rebuilt(Order{Mode: ModeRebuild, KeepOld: time.Hour})
	assert.Zero(t, b.count(`SELECT count(*) FROM orders__replaced WHERE name = 'forged'`), "the last ones are kept")

	b.exec(`UPDATE projection_rebuilds SET old_until = now() WHERE old_until IS NOT NULL`)
	b.keeper()
	require.Eventually(t, func() bool {
		return b.count(`SELECT count(*) FROM pg_class WHERE relname LIKE '%\_\_replaced'`) == 0
	}, eventually, tick)
	assert.Zero(t, b.count(`SELECT count(*) FROM projection_rebuilds WHERE old_until IS NOT NULL`))
}

func TestRecordsThatCannotBeAppliedAreLeftOutAndCounted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fill(200)
	b.publish(1, happened{Order: "o-bad", Name: "panic"}, began)
	b.publish(2, happened{Order: ""}, began)
	b.fill(200)
	b.all()
	b.publish(3, happened{Order: "o-negative", Changes: -1}, began)
	b.fill(300)
	b.recordAll()
	// The consumer would have made it a dead letter.
	b.taken(Partition{topicID, 3}, b.model.Group)
	for _, p := range b.partitions() {
		b.exec(`UPDATE consumer_offsets r SET next_offset = w.next_offset FROM consumer_offsets w
			WHERE r.consumer_group = $1 AND w.consumer_group = $2 AND w.topic_id = r.topic_id AND w.partition = r.partition`, b.model.Group, recorderGroup)
		_ = p
	}
	s := b.rebuilt(Order{Mode: ModeRebuild, Force: true})
	assert.EqualValues(t, 3, s.Skipped)
	assert.Contains(t, s.SkippedFirst, "offset ")
	assert.Zero(t, b.count(`SELECT count(*) FROM orders WHERE id = 'o-negative'`))
	b.mu.Lock()
	p := Partition{topicID, 3}
	b.records[p] = slices.DeleteFunc(b.records[p], func(r topics.Record) bool { return string(r.Key) == "o-negative" })
	b.mu.Unlock()
	b.requireUndisturbed()
}

func TestWhatIsOlderThanTheLogIsCarriedOver(t *testing.T) {
	t.Parallel()
	b := setup(t)
	old := began.Add(-30 * 24 * time.Hour)
	b.publish(0, happened{Order: "ancient", Name: "from before", Changes: 1}, old)
	b.publish(0, happened{Order: "lasting", Name: "goes on", Changes: 1}, old)
	b.all()
	// The log no longer has that time.
	b.exec(`DELETE FROM event_log`)
	b.exec(`UPDATE event_log_topics SET dropped_before = $1`, old.Add(24*time.Hour))
	b.publish(0, happened{Order: "lasting", Ended: "DONE", Changes: 2}, began)
	b.publish(0, happened{Order: "young", Name: "new", Changes: 1}, began)
	b.all()
	b.exec(`INSERT INTO orders (id, name, history_from) VALUES ('phantom', 'nobody''s', now())`)

	s := b.rebuilt(Order{Mode: ModeVerify})
	assert.EqualValues(t, 2, *s.Carried)
	assert.Equal(t, [3]int64{0, 1, 0}, [3]int64{*s.Missing, *s.Surplus, *s.Different}, "what the log cannot know is no difference")
	require.NotNil(t, s.Horizon)
	b.rebuilt(Order{Mode: ModeRebuild})
	b.requireUndisturbed()
}

func TestASeekBackIsNoticed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fill(800)
	b.all()
	p := Partition{topicID, 2}
	seek := func() {
		require.NoError(t, postgres.InTx(t.Context(), b.pool, func(ctx context.Context, tx pgx.Tx) error {
			return inbox.SeekIn(ctx, tx, b.part(p), 10)
		}))
	}
	seek()
	waits := make(chan struct{}, 100)
	b.keeper(func(k *Keeper) {
		k.at = func(point string) {
			if point == "waiting" {
				select {
				case waits <- struct{}{}:
				default:
				}
			}
		}
	})
	s := b.start(Order{Mode: ModeVerify})
	b.await(waits)
	assert.Contains(t, b.get(s.ID).Note, "has passed offset 200 of partition 2 again; it is at 10")
	b.all()
	s = b.ended(s.ID)
	n, compared := s.Differences()
	assert.True(t, compared)
	assert.Zero(t, n)

	// A rebuild does not wait: it brings the tables to where the log is.
	seek()
	s = b.ended(b.start(Order{Mode: ModeRebuild}).ID)
	assert.Equal(t, Done, s.State, s.Note)
	assert.Contains(t, s.Note, "not compared")
	b.requireUndisturbed()
	assert.EqualValues(t, 10, b.position(p), "nothing is skipped")
	s = b.start(Order{Mode: ModeVerify})
	b.await(waits)
	b.all()
	n, compared = b.ended(s.ID).Differences()
	assert.True(t, compared)
	assert.Zero(t, n)
}

func TestWhereTheRecorderIsBehindTheConsumerGoesBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fill(800)
	b.all()
	b.fill(80)
	for _, p := range b.partitions() {
		b.consume(p, 500)
	}
	p := Partition{topicID, 1}
	assert.EqualValues(t, 220, b.position(p))
	epoch := b.count(`SELECT owner_epoch FROM consumer_offsets WHERE consumer_group = $1 AND partition = 1`, b.model.Group)
	stop := b.keeper(func(k *Keeper) {
		k.at = func(point string) {
			if point == "waiting" { // for the comparison only
				b.exec(`UPDATE consumer_offsets SET next_offset = 200, reached = -1 WHERE consumer_group = $1`, b.model.Group)
			}
			if point == "swap" {
				b.exec(`UPDATE consumer_offsets SET next_offset = 220 WHERE consumer_group = $1`, b.model.Group)
			}
		}
	})
	s := b.ended(b.start(Order{Mode: ModeRebuild}).ID)
	stop()
	assert.Equal(t, Done, s.State, s.Note)
	assert.EqualValues(t, 200, b.position(p), "where the log ends")
	assert.Greater(t, b.count(`SELECT owner_epoch FROM consumer_offsets WHERE consumer_group = $1 AND partition = 1`, b.model.Group), epoch, "owners take their partitions anew")
	b.all()
	b.requireUndisturbed()
}

func TestATopicThatWasMadeAnew(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fill(400)
	b.all()
	former := b.topicID
	b.topicID = [16]byte{9}
	for i := range 100 {
		h := anEvent(i)
		h.Order = "anew-" + h.Order
		b.publish(int32(i%5), h, began.Add(time.Minute)) // a partition more than before
	}
	b.all()
	s := b.rebuilt(Order{Mode: ModeVerify})
	n, _ := s.Differences()
	assert.Zero(t, n)
	b.rebuilt(Order{Mode: ModeRebuild})
	b.requireUndisturbed()

	// One that was replaced before there was a recorder: nobody knows which rows it made.
	b.exec(`DELETE FROM event_log`)
	b.exec(`DELETE FROM event_log_partitions`)
	b.exec(`DELETE FROM event_log_topics WHERE topic_id <> $1`, b.topicID)
	b.exec(`DELETE FROM consumer_offsets WHERE consumer_group = $1`, recorderGroup)
	b.mu.Lock()
	kept := b.records
	b.records = map[Partition][]topics.Record{}
	for p, records := range kept {
		if p.TopicID != former {
			b.records[p] = records
		}
	}
	b.mu.Unlock()
	b.recordAll()
	b.records = kept
	s = b.rebuilt(Order{Mode: ModeRebuild})
	assert.Positive(t, *s.Carried)
	b.requireUndisturbed()
}
