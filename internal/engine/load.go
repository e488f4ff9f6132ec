package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// writes is a batch of statements that also takes those of whoever expects a transaction.
type writes struct{ pgx.Batch }

// Exec puts a statement into the batch. What becomes of it shows when the batch is sent.
func (w *writes) Exec(_ context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	w.Queue(sql, args...)
	return pgconn.CommandTag{}, nil
}

// clockSQL begins every transaction that reads. Its statements look up some rows by their
// keys, in tables that may have grown a thousandfold since a plan was made for them: what
// reads a table from end to end, or hashes it, is never right. For the same reason a plan is
// as good for one row as for a hundred; to make one anew for each length of the arrays
// costs more than to carry it out.
const clockSQL = `SELECT clock_timestamp(), pg_current_xact_id()::text,
	set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
	set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
	set_config('plan_cache_mode', 'force_generic_plan', true)`

// foreignClockSQL is clockSQL for a transaction that others use too.
const foreignClockSQL = `SELECT clock_timestamp(), pg_current_xact_id()::text, '', '', '', '', ''`

// lockSQL locks instances in the order of their ids: those named, those of jobs, and those
// that wait for a signal under a key.
const lockSQL = `
	SELECT ` + instanceColumns + `
	FROM (
			SELECT unnest($1::uuid[]) AS id
			UNION SELECT j.instance_id FROM unnest($2::uuid[]) AS u(id) JOIN jobs j ON j.id = u.id
			UNION SELECT w.instance_id FROM unnest($3::text[], $4::text[]) AS u(signal, key)
				JOIN wf_waits w ON w.signal = u.signal AND w.correlation_key = u.key
		) AS wanted JOIN wf_instances i ON i.id = wanted.id
	ORDER BY i.id FOR UPDATE OF i`

// wanted are the rows that the requests of a unit need, each once.
type wanted struct {
	instances, jobs   []uuid.UUID
	timers            []timerKey
	children          []activityKey
	tasks             []taskKey
	waits             []signalKey
	signals, existing []uuid.UUID
}

func wantedBy(requests []*request) wanted {
	var w wanted
	for _, r := range requests {
		n := r.needs
		if n.instance != uuid.Nil {
			w.instances = append(w.instances, n.instance)
		}
		if n.job != uuid.Nil {
			w.jobs = append(w.jobs, n.job)
		}
		if n.timer != nil {
			w.timers = append(w.timers, *n.timer)
		}
		if n.child != nil {
			w.children = append(w.children, *n.child)
		}
		if n.task != "" {
			w.tasks = append(w.tasks, taskKey{n.instance, n.task})
		}
		if n.wait != nil {
			w.waits = append(w.waits, *n.wait)
		}
		if n.signal != uuid.Nil {
			w.signals = append(w.signals, n.signal)
		}
		if n.exists != uuid.Nil {
			w.existing = append(w.existing, n.exists)
		}
	}
	slices.SortFunc(w.jobs, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	w.jobs = slices.Compact(w.jobs)
	return w
}

// none reports whether there is nothing to read or lock.
func (w wanted) none() bool {
	return len(w.instances) == 0 && len(w.jobs) == 0 && len(w.timers) == 0 && len(w.waits) == 0 && len(w.existing) == 0
}

// locks reports whether rows of instances are locked.
func (w wanted) locks() bool { return len(w.instances) > 0 || len(w.jobs) > 0 || len(w.waits) > 0 }

// load queues the statements that lock and read what is wanted. Each sees what was
// committed when it begins, so what is read after the locks is as it is under them.
func (u *unit) load(b *writes, w wanted) {
	sql := clockSQL
	if u.foreign {
		sql = foreignClockSQL
	}
	b.Queue(sql).QueryRow(func(r pgx.Row) error {
		var off string
		return r.Scan(&u.now, &u.xid, &off, &off, &off, &off, &off)
	})
	if w.locks() {
		names, keys := make([]string, len(w.waits)), make([]string, len(w.waits))
		for i, k := range w.waits {
			names[i], keys[i] = k.signal, k.key
		}
		b.Queue(lockSQL, w.instances, w.jobs, names, keys).Query(u.readInstances)
	}
	if len(w.jobs) > 0 {
		u.engine.config.Jobs.Lock(&b.Batch, w.jobs, u.jobs)
	}
	if len(w.timers) > 0 {
		u.loadTimers(b, w.timers)
	}
	if len(w.children) > 0 {
		u.loadChildren(b, w.children)
	}
	if len(w.tasks) > 0 {
		u.loadTasks(b, w.tasks)
	}
	if len(w.waits) > 0 {
		u.loadWaits(b, w.waits)
	}
	if len(w.signals) > 0 {
		u.loadSignals(b, w.signals)
	}
	if len(w.existing) > 0 {
		b.Queue(`SELECT `+instanceColumns+` FROM unnest($1::uuid[]) AS u(id) JOIN wf_instances i ON i.id = u.id`, w.existing).Query(func(rows pgx.Rows) error {
			found, err := pgx.CollectRows(rows, scanRow)
			for _, x := range found {
				u.existing[x.id] = x
			}
			return err
		})
	}
}

func (u *unit) readInstances(rows pgx.Rows) error {
	found, err := pgx.CollectRows(rows, scanRow)
	if err != nil {
		return err
	}
	for _, x := range found {
		u.instances[x.id] = &live{row: x, stored: x.state.Variables}
	}
	return nil
}

// plans finds the plans of the instances that were loaded.
func (u *unit) plans(ctx context.Context) error {
	for _, l := range u.instances {
		plan, _, err := u.engine.config.Plans.Plan(ctx, l.definition, l.definitionVersion)
		if err != nil {
			return fmt.Errorf("plan of instance %s (%s, version %d): %w", l.id, l.definition, l.definitionVersion, err)
		}
		l.plan = plan
		u.now = later(u.now, l.updatedAt)
	}
	u.now = u.now.UTC()
	return nil
}

// later returns the later one of two times: the clock of the database may have been set
// back, and what happened to an instance is to be in order all the same.
func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// loadTimers reads the timers that requests are about. Their instances are locked.
func (u *unit) loadTimers(b *writes, keys []timerKey) {
	a := timerColumns(keys)
	b.Queue(`
		SELECT t.instance_id, t.step, t.kind, t.index, t.due_at
		FROM unnest($1::uuid[], $2::integer[], $3::text[], $4::integer[]) AS u(instance_id, step, kind, index)
		JOIN wf_timers t USING (instance_id, step, kind, index)`, a.ids, a.steps, a.kinds, a.indexes).Query(func(rows pgx.Rows) error {
		var k timerKey
		var due time.Time
		_, err := pgx.ForEachRow(rows, []any{&k.instance, &k.step, &k.kind, &k.index, &due}, func() error {
			u.timers[k] = due
			return nil
		})
		return err
	})
}

// raw returns a JSON text, nil for none.
func raw(s *string) json.RawMessage {
	if s == nil {
		return nil
	}
	return json.RawMessage(*s)
}
