package retention

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/eventlog"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/topics"
)

// ninety is thirty with an event log of ninety days.
func ninety() Config {
	cfg := thirty()
	cfg.Events = 90 * day
	return cfg
}

func weekTable(date time.Time) string { return logWeeks().partition(logWeeks().begin(date)) }

// record writes records of a topic with the given times, from an offset on.
func (b *testBundle) record(topic string, offset int64, times ...time.Time) {
	b.t.Helper()
	var records []topics.Record
	for i, at := range times {
		env, err := topics.NewEnvelope(topics.ExecutionQueued{ExecutionID: "e", Attempt: 1, ResourceClass: "default", Priority: 3},
			topics.WithTime(at))
		require.NoError(b.t, err)
		r := env.Record(topic, []byte("e"))
		r.TopicID, r.Offset, r.Timestamp = [16]byte([]byte(fmt.Sprintf("%-16s", topic))), offset+int64(i), time.Now()
		records = append(records, r)
	}
	require.NoError(b.t, eventlog.Append(b.t.Context(), b.pool, records))
}

// weekOf is the partition in which a record is.
func (b *testBundle) weekOf(offset int64) string {
	b.t.Helper()
	found := b.column(fmt.Sprintf(`SELECT tableoid::regclass::text FROM event_log WHERE "offset" = %d`, offset))
	require.Len(b.t, found, 1)
	return found[0]
}

func (b *testBundle) logged() []string {
	b.t.Helper()
	return b.column(`SELECT l::text FROM event_log l ORDER BY topic_no, partition, "offset"`)
}

func TestTheEventLogHasWeeksFromTheStart(t *testing.T) {
	t.Parallel()
	b := setup(t, ninety())
	s := b.status()
	assert.Equal(t, WeeksAhead, s.AheadWeeks(), "nothing depends on a keeper having run")
	assert.Empty(t, missingWeeks(s, 90*day))
	report := b.keep()
	assert.Empty(t, report.Made)
	assert.Empty(t, report.Dropped)

	monday := logWeeks().begin(s.Now)
	assert.Equal(t, time.Monday, monday.Weekday())
	b.record("t", 0, monday.Add(-time.Microsecond), monday, s.Now.Add(-90*day),
		time.Unix(0, 0), time.Date(9999, 12, 31, 23, 0, 0, 0, time.UTC), time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC))
	assert.Equal(t, weekTable(monday.Add(-day)), b.weekOf(0), "a week ends when Monday begins")
	assert.Equal(t, weekTable(monday), b.weekOf(1))
	assert.Equal(t, weekTable(s.Now.Add(-90*day)), b.weekOf(2))
	for offset := range int64(3) {
		assert.Equal(t, "event_log_default", b.weekOf(3+offset), "times that producers make up")
	}
	assert.EqualValues(t, 3, b.keep().Status.Timeless)
	b.record("t", 0, monday.Add(-time.Microsecond), monday, s.Now.Add(-90*day), time.Unix(0, 0))
	assert.Len(t, b.logged(), 6, "a record has one time, so it is in one week, once")
}

func TestMissingWeeksAreMadeAndTheirRecordsMoved(t *testing.T) {
	t.Parallel()
	b := setup(t, ninety())
	now := b.status().Now
	times := []time.Time{now.Add(-5 * week), now, now.Add(week)}
	for _, at := range times {
		b.exec(`DROP TABLE ` + weekTable(at))
	}
	assert.Equal(t, -1, b.status().AheadWeeks())
	b.record("t", 0, times...)
	before := b.logged()
	report := b.keep()
	assert.ElementsMatch(t, []string{weekTable(times[0]), weekTable(times[1]), weekTable(times[2])}, report.Made)
	assert.Equal(t, WeeksAhead, report.Status.AheadWeeks())
	assert.Zero(t, report.Status.Timeless)
	assert.Equal(t, before, b.logged(), "moved and not changed")
	for i, at := range times {
		assert.Equal(t, weekTable(at), b.weekOf(int64(i)))
	}
	assert.Equal(t, b.column(`SELECT count(*)::text FROM pg_index WHERE indrelid = '`+weekTable(now)+`'::regclass`),
		b.column(`SELECT count(*)::text FROM pg_index WHERE indrelid = 'event_log'::regclass`), "with all indexes")
}

// Clocks go on: for a keeper months later there are weeks to make and weeks to drop.
func TestWeeksFollowTheClock(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 10, 15, 0, 0, 0, time.UTC) // a Tuesday
	monday := time.Date(2026, 3, 9, 0, 0, 0, 0, time.UTC)
	s := Status{Now: now}
	var all []time.Time
	for _, m := range missingWeeks(s, 30*day) {
		all = append(all, m.date)
		assert.Equal(t, m.date.Equal(monday), m.present)
	}
	assert.Equal(t, []time.Time{monday.Add(-5 * week), monday.Add(-4 * week), monday.Add(-3 * week), monday.Add(-2 * week), monday.Add(-week),
		monday, monday.Add(week), monday.Add(2 * week)}, all)
	s.Now = monday.Add(-time.Minute)
	list := missingWeeks(s, 0)
	require.Len(t, list, 3)
	assert.Equal(t, []making{{monday.Add(-week), true}, {monday, true}, {monday.Add(week), false}}, list, "about to begin")
}

func TestWeeksAreDroppedWhenTheyAreOver(t *testing.T) {
	t.Parallel()
	cfg := ninety()
	cfg.Events = 21 * day
	b := setup(t, cfg)
	now := b.status().Now
	old, kept := now.Add(-50*day), now.Add(-21*day)
	b.record("old", 0, old, now)
	b.record("young", 0, kept, time.Unix(0, 0))
	b.record("late", 7, now)
	b.exec(`UPDATE event_log SET recorded_at = $1 WHERE time < '2000-01-01'`, now.Add(-22*day))
	b.record("young", 2, time.Unix(1, 0))

	report := b.keep()
	for _, name := range report.Dropped {
		date, err := time.Parse(nameLayout, name[len("event_log_"):])
		require.NoError(t, err)
		assert.False(t, date.Add(week).After(now.Add(-21*day)), "%s still holds events that are to be kept", name)
	}
	assert.Contains(t, report.Dropped, weekTable(old))
	assert.Equal(t, []string{"late 7", "old 1", "young 0", "young 2"},
		b.column(`SELECT topic || ' ' || "offset" FROM event_log JOIN event_log_topics ON no = topic_no ORDER BY 1`))
	assert.Empty(t, b.keep().Dropped)

	horizon := func(topic string) (time.Time, bool) {
		since, known, err := eventlog.Horizon(t.Context(), b.pool, topic)
		require.NoError(t, err)
		return since, known
	}
	since, known := horizon("old")
	assert.True(t, known)
	assert.True(t, since.Equal(logWeeks().begin(old).Add(week)), "what was dropped is missing: %s", since)
	since, known = horizon("young")
	assert.True(t, known)
	assert.True(t, since.IsZero(), "nothing of the topic was dropped")
	since, known = horizon("late")
	assert.True(t, known)
	assert.WithinDuration(t, now, since, 10*time.Minute, "the topic was older than its log")
	_, known = horizon("none")
	assert.False(t, known)
}

func TestWithoutRetentionTheEventLogIsKept(t *testing.T) {
	t.Parallel()
	b := setup(t, thirty())
	b.record("t", 0, b.status().Now.Add(-85*day))
	assert.Empty(t, b.keep().Dropped)
	assert.Len(t, b.logged(), 1)
}

// Records are appended while their week is taken away and made, by several keepers at
// once, again and again.
func TestRecordingGoesOnWhileWeeksAreMade(t *testing.T) {
	t.Parallel()
	b := setup(t, ninety())
	now := b.status().Now
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var written atomic.Int64
	wg.Go(func() {
		for ctx.Err() == nil {
			b.record("t", written.Load(), now)
			written.Add(1)
		}
	})
	for range 4 {
		tx, err := b.pool.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), `LOCK TABLE ONLY event_log IN ACCESS EXCLUSIVE MODE;
			ALTER TABLE event_log DETACH PARTITION `+weekTable(now)+`;
			INSERT INTO event_log SELECT * FROM `+weekTable(now)+`; DROP TABLE `+weekTable(now))
		require.NoError(t, err)
		require.NoError(t, tx.Commit(t.Context()))
		before := written.Load()
		require.Eventually(t, func() bool { return written.Load() > before }, time.Minute, time.Millisecond)
		require.Eventually(t, func() bool {
			var keepers sync.WaitGroup
			for range 2 {
				keepers.Go(func() { _, _ = b.keeper.Keep(t.Context()) })
			}
			keepers.Wait()
			return b.status().AheadWeeks() == WeeksAhead
		}, time.Minute, time.Millisecond)
	}
	stop()
	wg.Wait()
	assert.Zero(t, b.status().Timeless)
	assert.Len(t, b.logged(), int(written.Load()))
}

// Somebody who reads for long delays the making of a week, and nothing else.
func TestReadersDelayWeeks(t *testing.T) {
	t.Parallel()
	b := setup(t, ninety())
	now := b.status().Now
	b.exec(`DROP TABLE ` + weekTable(now.Add(week)))
	tx, err := b.pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT count(*) FROM event_log`)
	require.NoError(t, err)
	report := b.keep()
	assert.Equal(t, []Held{{weekTable(now.Add(week)), InUse}}, report.Held)
	b.record("t", 0, now.Add(week))
	require.NoError(t, tx.Rollback(t.Context()))
	assert.Equal(t, []string{weekTable(now.Add(week))}, b.keep().Made)
	assert.Equal(t, weekTable(now.Add(week)), b.weekOf(0))
}

// beforeWeeks is the last schema with an event log in one piece.
const beforeWeeks = 20261121120200

func TestTheMigrationToWeeksKeepsWhatIsThere(t *testing.T) {
	t.Parallel()
	b := setupOn(t, testenv.Database(t, nil), ninety())
	_, err := postgres.Migrate(t.Context(), b.pool)
	require.NoError(t, err)
	require.NoError(t, postgres.MigrateDown(t.Context(), b.pool, beforeWeeks))
	b.exec(`INSERT INTO event_log (topic, topic_id, partition, "offset", key, type, source, event_id, subject, sequence, time, appended_at, headers, value)
		SELECT CASE WHEN n % 7 = 0 THEN 'orders' ELSE 'execution_events' END, md5((n % 3)::text)::uuid, n % 4, n, CASE WHEN n % 5 > 0 THEN '\x00ff'::bytea END,
			CASE WHEN n % 2 = 0 THEN 'type.v1' END, CASE WHEN n % 2 = 0 THEN '/s' END, CASE WHEN n % 2 = 0 THEN 'id' || n END, 'subject-' || n % 9, n % 10,
			CASE n % 11 WHEN 0 THEN '1970-01-01Z' WHEN 1 THEN '9999-12-31Z' ELSE now() - make_interval(days => n) END,
			now() - make_interval(days => n), '\x01', CASE WHEN n % 3 > 0 THEN '\x0001'::bytea END
		FROM generate_series(0, 199) AS n`)
	const old = `SELECT concat_ws('|', topic, topic_id, partition, "offset", coalesce(key::text, '-'), coalesce(type, '-'), coalesce(source, '-'),
		coalesce(event_id, '-'), subject, sequence, time, appended_at, headers, coalesce(value::text, '-'), recorded_at) FROM event_log`
	before := b.column(old + ` ORDER BY 1`)
	_, err = postgres.Migrate(t.Context(), b.pool)
	require.NoError(t, err)
	assert.Equal(t, before, b.column(old+` JOIN event_log_topics ON no = topic_no ORDER BY 1`))
	logs, err := eventlog.Logs(t.Context(), b.pool)
	require.NoError(t, err)
	assert.NotEmpty(t, logs)
	var first int
	require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT count(*) FROM event_log_partitions p
		WHERE first_offset <> (SELECT min("offset") FROM event_log l WHERE l.topic_no = p.topic_no AND l.partition = p.partition)`).Scan(&first))
	assert.Zero(t, first)
	require.NoError(t, postgres.MigrateDown(t.Context(), b.pool, beforeWeeks))
	assert.Equal(t, before, b.column(old+` ORDER BY 1`))
	_, err = postgres.Migrate(t.Context(), b.pool)
	require.NoError(t, err)
}
