package verify_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/history"
	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/outbox"
	"github.com/millrace/millrace/internal/purge"
	"github.com/millrace/millrace/internal/verify"
	"github.com/millrace/millrace/topics"
)

func TestEverythingHolds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	report, err := verify.Run(t.Context(), w.pool, verify.Options{Settled: true})
	require.NoError(t, err)
	assert.True(t, report.OK(), report.Broken())
	assert.Len(t, report.Results, len(verify.Checks()))
	for _, r := range report.Results {
		assert.Equal(t, verify.Holds, r.Status, "%s: %v %v", r.Name, r.Findings, r.Err)
	}
	var states []string
	require.NoError(t, w.pool.QueryRow(t.Context(), `SELECT array_agg(DISTINCT state) FROM executions`).Scan(&states))
	assert.Subset(t, states, []string{"REQUESTED", "QUEUED", "SCHEDULED", "RUNNING", "COMPLETED", "FAILED", "CANCELLED"}, "the world that is judged")
}

// A stage between coordinator and workers writes tasks too: the same ones.
func TestATaskThatIsPassedOnIsTheSame(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tag, err := w.pool.Exec(t.Context(), `
		INSERT INTO outbox_events (id, shard, aggregate_type, aggregate_id, event_type, topic, partition_key, payload, headers)
		SELECT id, shard, aggregate_type, aggregate_id, event_type, 'execution_tasks_next', partition_key, payload, headers
		FROM outbox_events WHERE event_type = 'millrace.execution.task.v1'`)
	require.NoError(t, err)
	require.Positive(t, tag.RowsAffected())
	report, err := verify.Run(t.Context(), w.pool, verify.Options{})
	require.NoError(t, err)
	assert.True(t, report.OK(), report.Broken())
}

// Pods have their place among the versions of their execution, also after its end.
func TestPodsAreNoGapAndNoDisorder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tx, err := w.pool.Begin(t.Context())
	require.NoError(t, err)
	var id string
	var version int64
	require.NoError(t, tx.QueryRow(t.Context(), `UPDATE executions SET version = version + 1 WHERE id = `+one("COMPLETED")+` RETURNING id::text, version`).Scan(&id, &version))
	env, err := topics.NewEnvelope(topics.PodDeleted{Pod: topics.Pod{ExecutionID: id, Attempt: 1, PodID: "p", Namespace: "n", Name: "p"}, DeletedAt: time.Now()}, topics.WithSequence(version))
	require.NoError(t, err)
	require.NoError(t, outbox.Append(t.Context(), tx, outbox.Entry{AggregateType: "execution", AggregateID: id, Topic: topics.ExecutionEvents, Envelope: env, Version: version}))
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, w.publish(t.Context(), 1000))
	report, err := verify.Run(t.Context(), w.pool, verify.Options{Settled: true})
	require.NoError(t, err)
	assert.True(t, report.OK(), "%+v", report.Broken())
	for _, source := range []history.Source{history.Outbox, history.Log} {
		lives, err := history.Read(t.Context(), w.pool, source)
		require.NoError(t, err)
		assert.Empty(t, history.Judge(lives, history.Rules{}))
	}
}

func TestEmptyDatabaseHolds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.pool.Exec(t.Context(), `TRUNCATE executions, execution_outputs, outbox_events, event_log, execution_views, consumer_offsets,
		dead_letters, dead_letter_actions, admission_ledger, admission_feed`)
	require.NoError(t, err)
	report, err := verify.Run(t.Context(), w.pool, verify.Options{Settled: true})
	require.NoError(t, err)
	assert.True(t, report.OK(), report.Broken())
}

// one names an execution of the lived world that is in a state.
func one(state string) string {
	return `(SELECT id FROM executions WHERE state = '` + state + `' ORDER BY id DESC LIMIT 1)`
}

// breaks says, for each assertion, how to break what it is about. The assertions
// in also see the same damage from where they stand.
func breaks() map[string]struct {
	sql  []string
	also []string
} {
	type damage = struct {
		sql  []string
		also []string
	}
	lastOf := func(state string) string {
		return `(SELECT max(seq) FROM outbox_events WHERE aggregate_type = 'execution' AND event_type NOT LIKE '%.task.v1' AND aggregate_id = ` + one(state) + `::text)`
	}
	return map[string]damage{
		"leases": {sql: []string{`UPDATE executions SET lease_expires_at = NULL WHERE id = ` + one("RUNNING")}},
		"offers": {sql: []string{`UPDATE executions SET offered_at = now() WHERE id = ` + one("RUNNING")}},
		"ends":   {sql: []string{`UPDATE executions SET finished_at = NULL WHERE id = ` + one("COMPLETED")}},
		"capacity": {sql: []string{
			`UPDATE executions SET slots = slots + 1 WHERE id = ` + one("COMPLETED"),
		}},
		"admission-books": {sql: []string{
			`UPDATE admission_ledger SET queued = queued + 1, running = running - 1 WHERE running > 0`,
		}},
		"flows-known": {sql: []string{`DELETE FROM admission_flows`}},
		"concurrency-keys": {
			sql:  []string{`UPDATE executions SET state = 'SCHEDULED' WHERE state = 'QUEUED' AND concurrency_key IS NOT NULL`},
			also: []string{"states-told", "views-agree", "admission-books"},
		},
		"due": {sql: []string{`UPDATE executions SET due_at = now() - interval '1 hour' WHERE id = ` + one("SCHEDULED")}},
		"events-complete": {
			sql: []string{`DELETE FROM event_log WHERE subject = ` + one("CANCELLED") + `::text AND sequence = 2`,
				`DELETE FROM outbox_events WHERE seq = ` + lastOf("CANCELLED")},
			also: []string{"states-told"},
		},
		"events-once": {
			sql: []string{`INSERT INTO outbox_events (id, shard, aggregate_type, aggregate_id, event_type, topic, headers, status, published_at)
				SELECT gen_random_uuid(), shard, aggregate_type, aggregate_id, event_type, topic, headers, status, published_at
				FROM outbox_events WHERE seq = ` + lastOf("COMPLETED")},
			also: []string{"outbox-order", "transitions-legal", "log-caught-up"},
		},
		"events-founded": {
			sql:  []string{`DELETE FROM executions WHERE id = ` + one("REQUESTED")},
			also: []string{"phantom-events"},
		},
		"tasks-issued": {sql: []string{`DELETE FROM outbox_events WHERE event_type LIKE '%.task.v1' AND aggregate_id = ` + one("RUNNING") + `::text`}},
		"transitions-legal": {
			sql: []string{
				`UPDATE event_log SET type = 'millrace.execution.started.v1' WHERE subject = ` + one("RUNNING") + `::text AND sequence = 3`,
				`UPDATE outbox_events SET event_type = 'millrace.execution.started.v1'
					WHERE event_type LIKE '%.scheduled.v1' AND aggregate_id = ` + one("RUNNING") + `::text`},
			also: []string{"tasks-issued"},
		},
		"ends-final": {
			sql: []string{`UPDATE executions SET state = 'REQUESTED', version = 3, finished_at = NULL, result = NULL WHERE id = ` + one("CANCELLED"),
				`UPDATE executions SET state = 'CANCELLED', finished_at = now(), result = '{}' WHERE version = 3 AND state = 'REQUESTED'`,
				`INSERT INTO event_log (topic_no, partition, "offset", type, source, event_id, subject, sequence, time, appended_at, headers)
				SELECT topic_no, partition, 5000, 'millrace.execution.cancel_requested.v1', source, gen_random_uuid()::text, subject, 3, time, appended_at, headers
				FROM event_log WHERE subject = ` + one("CANCELLED") + `::text AND sequence = 2`},
			also: []string{"positions-moved", "views-caught-up"},
		},
		"states-told": {
			sql:  []string{`UPDATE executions SET state = 'FAILED' WHERE id = ` + one("COMPLETED")},
			also: []string{"views-agree"},
		},
		"outbox-order": {
			sql: []string{`UPDATE outbox_events SET seq = -1 WHERE seq = ` + lastOf("COMPLETED")},
		},
		"log-order": {
			sql:  []string{`UPDATE event_log SET "offset" = "offset" + 10000 WHERE subject = ` + one("COMPLETED") + `::text AND sequence = 2`},
			also: []string{"positions-moved"},
		},
		"log-complete": {
			sql:  []string{`DELETE FROM event_log WHERE subject = ` + one("COMPLETED") + `::text AND sequence = 3`},
			also: []string{"log-caught-up"},
		},
		"output-whole": {sql: []string{`UPDATE execution_outputs SET start_offset = start_offset + 1 WHERE index = 1`}},
		"phantom-events": {
			sql: []string{`INSERT INTO event_log (topic_no, partition, "offset", type, source, event_id, subject, sequence, time, appended_at, headers)
				SELECT topic_no, partition, "offset" - 100000, type, source, gen_random_uuid()::text, subject, sequence, time, appended_at, headers
				FROM event_log WHERE subject = ` + one("COMPLETED") + `::text`},
		},
		"records-once": {
			sql: []string{`INSERT INTO event_log (topic_no, partition, "offset", type, source, event_id, subject, sequence, time, appended_at, headers)
				SELECT topic_no, partition, "offset" - 100000, type, source, event_id, subject, sequence, time, appended_at, headers
				FROM event_log WHERE subject = ` + one("COMPLETED") + `::text`},
		},
		"outbox-rows": {sql: []string{`UPDATE outbox_events SET published_at = NULL WHERE seq = ` + lastOf("COMPLETED")}},
		"publish-order": {
			sql: []string{`UPDATE outbox_events SET status = 'PENDING', published_at = NULL
				WHERE event_type LIKE '%.requested.v1' AND aggregate_id = ` + one("COMPLETED") + `::text`},
			also: []string{"outbox-drained"},
		},
		"outbox-drained": {sql: []string{`UPDATE outbox_events SET status = 'PENDING', published_at = NULL WHERE seq = ` + lastOf("COMPLETED")}},
		"log-caught-up": {sql: []string{`DELETE FROM event_log WHERE subject = ` + one("COMPLETED") + `::text
			AND sequence = (SELECT version FROM executions WHERE id = ` + one("COMPLETED") + `)`}},
		"positions": {sql: []string{`UPDATE consumer_offsets SET owner_epoch = 0 WHERE consumer_group = 'millrace-executions-view'`}},
		"positions-moved": {sql: []string{
			`UPDATE consumer_offsets SET next_offset = 0 WHERE consumer_group = 'millrace-recorder'`,
		}},
		"views-agree":     {sql: []string{`UPDATE execution_views SET attempt = attempt + 1 WHERE id = ` + one("FAILED") + `::text`}},
		"views-caught-up": {sql: []string{`UPDATE execution_views SET version = version - 1 WHERE id = ` + one("FAILED") + `::text`}},
		"dead-letters-accounted": {
			sql: []string{`DELETE FROM dead_letter_actions WHERE action = 'discard'`},
		},
		"redrives-sent": {sql: []string{`DELETE FROM outbox_events WHERE aggregate_type = 'redrive'`}},
	}
}

// Every assertion is broken on purpose, and says so; those that the damage is not
// about hold on.
func TestEachAssertionSeesItsDamage(t *testing.T) {
	t.Parallel()
	all := breaks()
	for _, c := range verify.Checks() {
		damage, ok := all[c.Name]
		if !assert.True(t, ok, "%s has no test", c.Name) {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			for _, sql := range damage.sql {
				tag, err := w.pool.Exec(t.Context(), sql)
				require.NoError(t, err)
				require.Positive(t, tag.RowsAffected(), "nothing was damaged by %s", sql)
			}
			report, err := verify.Run(t.Context(), w.pool, verify.Options{Settled: true})
			require.NoError(t, err)
			var broken []string
			for _, r := range report.Results {
				require.NotEqual(t, verify.Undecided, r.Status, "%s: %v", r.Name, r.Err)
				if r.Status == verify.Broken {
					broken = append(broken, r.Name)
					for _, f := range r.Findings {
						t.Logf("%s: %s: %s", r.Name, f.Subject, f.Detail)
						assert.NotEmpty(t, f.Subject)
						assert.NotEmpty(t, f.Detail)
					}
				}
			}
			assert.ElementsMatch(t, append(damage.also, c.Name), broken)
			fault := slices.ContainsFunc(report.Results, func(r verify.Result) bool { return r.Status == verify.Broken && r.Kind == verify.Fault })
			assert.Equal(t, !fault, report.OK(), "notices are no faults")
		})
	}
	assert.Len(t, all, len(verify.Checks()))
}

// swapping is a database in which tables are replaced as soon as a run has its snapshot.
type swapping struct {
	*pgxpool.Pool
	swap func()
}

func (s swapping) BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error) {
	tx, err := s.Pool.BeginTx(ctx, o)
	return swappingTx{tx, s.swap}, err
}

type swappingTx struct {
	pgx.Tx
	swap func()
}

func (s swappingTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return swappingRow{s.Tx.QueryRow(ctx, sql, args...), s.swap}
}

type swappingRow struct {
	pgx.Row
	swap func()
}

func (s swappingRow) Scan(to ...any) error {
	defer s.swap()
	return s.Row.Scan(to...)
}

// A rebuild brings a shadow up to date and puts it in the place of the views, all in one
// transaction: a run that has begun sees nothing of that, neither the shadow before it was
// up to date.
func TestARebuildEndsUnderARun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.pool.Exec(t.Context(), `CREATE TABLE shadow (LIKE execution_views INCLUDING ALL); INSERT INTO shadow SELECT * FROM execution_views;
		UPDATE shadow SET version = version - 1`)
	require.NoError(t, err)
	replace := func() error {
		return pgx.BeginFunc(t.Context(), w.pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), `SET LOCAL lock_timeout = '50ms'; UPDATE shadow SET version = version + 1;
				ALTER TABLE execution_views RENAME TO former; ALTER TABLE shadow RENAME TO execution_views`)
			return err
		})
	}
	var during error
	report, err := verify.Run(t.Context(), swapping{w.pool, func() { during = replace() }}, verify.Options{Settled: true})
	require.NoError(t, err)
	assert.True(t, report.OK(), report.Broken())
	require.ErrorContains(t, during, "lock timeout", "the rebuild waits for the run")

	require.NoError(t, replace(), "and goes on behind it")
	report, err = verify.Run(t.Context(), w.pool, verify.Options{Settled: true})
	require.NoError(t, err)
	assert.True(t, report.OK(), report.Broken())
}

// What an execution takes is counted in each resource, in ledger and feed.
func TestTheBooksCountEveryResource(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	broken := func() []string {
		report, err := verify.Run(t.Context(), w.pool, verify.Options{Only: []string{"capacity", "admission-books", "flows-known"}})
		require.NoError(t, err)
		var names []string
		for _, r := range report.Results {
			if r.Status == verify.Broken {
				names = append(names, r.Name)
			}
		}
		return names
	}
	ids, err := w.submit(t.Context(), 3, func(r *topics.Request) {
		r.Priority, r.User = 5, "ada"
		r.Requirements = topics.Requirements{Slots: 2, CPUMillis: 500, MemoryBytes: 1 << 31}
	})
	require.NoError(t, err)
	claimed, err := w.advance(t.Context(), ids, 2)
	require.NoError(t, err)
	require.Len(t, claimed, 1)
	require.Empty(t, broken(), "one runs, two are scheduled, and the feed has what the ledger has not")

	for _, column := range []string{"queued", "running", "slots", "cpu_millis", "memory_bytes", "gpus"} {
		for _, table := range []string{"admission_ledger", "admission_feed"} {
			_, err := w.pool.Exec(t.Context(), `INSERT INTO admission_feed (resource_class, flow, queued, running, slots, cpu_millis, memory_bytes, gpus)
				SELECT 'default', flow, 0, 0, 0, 0, 0, 0 FROM executions WHERE id = $1::text::uuid`, ids[0])
			require.NoError(t, err)
			change := func(by int) {
				tag, err := w.pool.Exec(t.Context(), `UPDATE `+table+` SET `+column+` = `+column+` + $2
					WHERE ctid = (SELECT min(ctid) FROM `+table+` WHERE flow = (SELECT flow FROM executions WHERE id = $1::text::uuid))`, ids[0], by)
				require.NoError(t, err)
				require.EqualValues(t, 1, tag.RowsAffected())
			}
			change(1)
			assert.Equal(t, []string{"admission-books"}, broken(), "%s of %s", column, table)
			change(-1)
		}
	}
	require.Empty(t, broken())
	_, err = w.pool.Exec(t.Context(), `UPDATE executions SET memory_bytes = 1 WHERE id = $1::text::uuid`, ids[2])
	require.NoError(t, err)
	assert.Equal(t, []string{"capacity", "admission-books"}, broken())
}

// A history of which retention has taken the beginning is no fault.
func TestHistoriesWithoutABeginning(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.pool.Exec(t.Context(), `WITH gone AS (SELECT min(time) + (max(time) - min(time)) / 2 AS at FROM event_log), a AS (
		DELETE FROM event_log USING gone WHERE time < gone.at)
		DELETE FROM outbox_events USING gone WHERE created_at < gone.at`)
	require.NoError(t, err)
	report, err := verify.Run(t.Context(), w.pool, verify.Options{})
	require.NoError(t, err)
	assert.True(t, report.OK(), report.Broken())
}

// What is purged, with its events still in the outbox and coming in once more, is no
// fault; nor is it a moment before.
func TestHoldsWhilePurging(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	leases := lease.NewManager(w.pool, "test", time.Minute, slog.New(slog.DiscardHandler))
	h, err := leases.Acquire(t.Context(), purge.LeaseName)
	require.NoError(t, err)
	purges := purge.New(purge.Config{Pool: w.pool, Retention: purge.Retention{Executions: time.Nanosecond}, Letters: w.letters})
	holds := func(when string) {
		t.Helper()
		report, err := verify.Run(t.Context(), w.pool, verify.Options{Settled: true})
		require.NoError(t, err)
		assert.True(t, report.OK(), "%s: %s", when, report.Broken())
		for _, r := range report.Results {
			if r.Name == "phantom-events" {
				assert.Equal(t, verify.Holds, r.Status, "%s: %v", when, r.Findings)
			}
		}
	}
	_, err = w.pool.Exec(t.Context(), `CREATE TABLE before AS SELECT * FROM event_log; CREATE TABLE views_before AS SELECT * FROM execution_views`)
	require.NoError(t, err)
	erased, err := purges.Retire(t.Context(), h)
	require.NoError(t, err)
	require.EqualValues(t, 3, erased[purge.Executions], "those that have ended")
	holds("with its events in the outbox")
	_, err = w.pool.Exec(t.Context(), `INSERT INTO event_log SELECT * FROM before ON CONFLICT DO NOTHING;
		INSERT INTO execution_views SELECT * FROM views_before ON CONFLICT DO NOTHING`)
	require.NoError(t, err)
	holds("when its topic was read again")
	erased, err = purges.Retire(t.Context(), h)
	require.NoError(t, err)
	require.Positive(t, erased[purge.Events])
	require.Positive(t, erased[purge.Views])
	holds("afterwards")

	p, _, err := purges.Create(t.Context(), purge.Request{User: "anonymous", Reason: "test"})
	require.NoError(t, err)
	for {
		_, err := w.pool.Exec(t.Context(), `UPDATE purges SET next_at = clock_timestamp() WHERE state = 'RUNNING'`)
		require.NoError(t, err)
		more, err := purges.Advance(t.Context(), h)
		require.NoError(t, err)
		if !more {
			break
		}
		holds("between two chunks")
	}
	p, err = purges.Get(t.Context(), p.ID.String())
	require.NoError(t, err)
	assert.Equal(t, purge.Waiting, p.State, "some run")
}

// Of executions before the time nothing is said; of those after it the same as ever.
func TestSince(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	run := func(since time.Time) verify.Report {
		report, err := verify.Run(t.Context(), w.pool, verify.Options{Settled: true, Since: since})
		require.NoError(t, err)
		return report
	}
	lived, later := time.Now().Add(-24*time.Hour), time.Now().Add(2*time.Hour)
	assert.True(t, run(lived).OK(), run(lived).Broken())
	for _, sql := range []string{
		`DELETE FROM event_log WHERE sequence = 3 AND subject = ` + one("COMPLETED") + `::text`,
		`UPDATE execution_outputs SET start_offset = start_offset + 1 WHERE index = 1`,
		`UPDATE execution_views SET version = version - 1`,
		`DELETE FROM outbox_events WHERE event_type LIKE '%.task.v1'`,
		`UPDATE outbox_events SET published_at = NULL`,
	} {
		_, err := w.pool.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	var broken []string
	for _, r := range run(lived).Results {
		if r.Failed() {
			broken = append(broken, r.Name)
		}
	}
	assert.Subset(t, broken, []string{"log-complete", "output-whole", "views-caught-up", "tasks-issued", "outbox-rows"})
	assert.True(t, run(later).OK(), run(later).Broken())
}

func TestSkippedEventsAreNoGap(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := one("COMPLETED") + `::text`
	for _, sql := range []string{
		`DELETE FROM event_log WHERE sequence = 3 AND subject = ` + id,
		`UPDATE outbox_events SET status = 'SKIPPED', published_at = NULL WHERE event_type LIKE '%.scheduled.v1' AND aggregate_id = ` + id,
		`INSERT INTO outbox_actions (actor, action, reason, events, aggregate_type, aggregate_id) SELECT 'ann', 'skip', 'test', 1, 'execution', ` + id,
	} {
		_, err := w.pool.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	report, err := verify.Run(t.Context(), w.pool, verify.Options{Settled: true})
	require.NoError(t, err)
	assert.True(t, report.OK(), report.Broken())
}

// While executions are submitted, run and published, every run holds.
func TestHoldsWhileEverythingMoves(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, stop := context.WithCancel(t.Context())
	var working sync.WaitGroup
	work := func(round func() error) {
		working.Go(func() {
			for ctx.Err() == nil {
				if err := round(); err != nil && ctx.Err() == nil {
					t.Errorf("work: %v", err)
					return
				}
			}
		})
	}
	for range 2 {
		work(func() error {
			ids, err := w.submit(ctx, 4, func(r *topics.Request) { r.ConcurrencyKey = "two" })
			if err != nil {
				return err
			}
			claimed, err := w.advance(ctx, ids, 4)
			for _, e := range claimed {
				err = errors.Join(err, w.finish(ctx, e, executor.Completed, "text", "more"))
			}
			return err
		})
	}
	work(func() error { return w.publish(ctx, 7) })
	var events int
	for range 20 {
		report, err := verify.Run(ctx, w.pool, verify.Options{Timeout: 2 * time.Minute})
		require.NoError(t, err)
		if !assert.True(t, report.OK(), report.Broken()) {
			break
		}
		require.NoError(t, w.pool.QueryRow(ctx, `SELECT count(*) FROM outbox_events`).Scan(&events))
	}
	stop()
	working.Wait()
	t.Logf("%d events", events)
}

func TestOptions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()

	report, err := verify.Run(ctx, w.pool, verify.Options{Only: []string{"outbox-drained", "leases"}})
	require.NoError(t, err)
	require.Len(t, report.Results, 2)
	assert.Equal(t, "outbox-drained", report.Results[0].Name, "named ones run, settled or not")
	assert.WithinDuration(t, time.Now(), report.At, time.Hour)

	_, err = verify.Run(ctx, w.pool, verify.Options{Only: []string{"no-such"}})
	require.ErrorIs(t, err, verify.ErrUnknownCheck)
	assert.ErrorContains(t, err, "no-such")

	_, err = w.pool.Exec(ctx, `UPDATE executions SET lease_expires_at = NULL, slots = 9`)
	require.NoError(t, err)
	report, err = verify.Run(ctx, w.pool, verify.Options{Only: []string{"capacity"}, Rows: 2})
	require.NoError(t, err)
	assert.Len(t, report.Results[0].Findings, 2)
	assert.True(t, report.Results[0].More)
	assert.Contains(t, report.Broken(), "capacity: broken")

	report, err = verify.Run(ctx, w.pool, verify.Options{Timeout: time.Nanosecond})
	require.NoError(t, err)
	assert.False(t, report.OK(), "what was not decided is no success")
	assert.Equal(t, verify.Undecided, report.Results[0].Status)
	assert.Contains(t, report.Broken(), "the time of the run is over")
}

// What one assertion runs into does not keep the next ones from being asked.
func TestOneThatCannotBeAsked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.pool.Exec(t.Context(), `DROP TABLE execution_views`)
	require.NoError(t, err)
	report, err := verify.Run(t.Context(), w.pool, verify.Options{})
	require.NoError(t, err)
	for _, r := range report.Results {
		if r.Name != "views-agree" {
			assert.Equal(t, verify.Holds, r.Status, r.Name)
			continue
		}
		var answer *pgconn.PgError
		assert.Equal(t, verify.Undecided, r.Status)
		assert.ErrorAs(t, r.Err, &answer)
	}
	assert.False(t, report.OK())
}

// A lock that somebody holds for long is waited for no longer than the run may take.
func TestLockedTableIsUndecided(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tx, err := w.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), `LOCK TABLE dead_letters IN ACCESS EXCLUSIVE MODE`)
	require.NoError(t, err)
	report, err := verify.Run(t.Context(), w.pool, verify.Options{Only: []string{"dead-letters-accounted", "leases"}, Timeout: 300 * time.Millisecond})
	require.NoError(t, err)
	assert.Equal(t, verify.Undecided, report.Results[0].Status)
}

func TestNamesAndSentences(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, c := range verify.Checks() {
		assert.Regexp(t, `^[a-z]+(-[a-z]+)*$`, c.Name)
		assert.False(t, seen[c.Name], c.Name)
		assert.Regexp(t, `^[A-Z].*\.$`, c.Sentence)
		seen[c.Name] = true
	}
	// The state machine in the SQL is the one of the code.
	legal := strings.Join(strings.Fields(verify.Checks()[slices.IndexFunc(verify.Checks(), func(c verify.Check) bool {
		return c.Name == "transitions-legal"
	})].SQL), " ")
	for _, tr := range execution.Transitions() {
		assert.Contains(t, legal, "('"+string(tr.From)+"', '"+tr.Event+"')")
	}
}
