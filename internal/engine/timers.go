package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/jobs"
	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/workflow"
)

const (
	// WakeTimers is the signal with which the sweep of timers is woken: one is due before
	// it would look.
	WakeTimers = "workflow_timers"
	// WakeDefinitions is the signal that there is a new version of a definition:
	// definitions.WakeName.
	WakeDefinitions = "definitions"
	// timerPoll is how often the sweep looks whatever it knows, timerBatch how many timers
	// it takes at once, and timerRetry how long one is left alone that could not be fired.
	timerPoll  = 2 * time.Second
	timerBatch = 500
	timerRetry = time.Second
	// timersLease is held by the one process that sweeps.
	timersLease = "workflow-timers"
)

// Leases is lease.Manager.
type Leases interface {
	Run(ctx context.Context, name string, fn func(ctx context.Context, h *lease.Held) error) error
}

// RunTimers fires timers until ctx ends. Of the processes that run it one does it at a
// time. The engine of its process must run.
func (e *Engine) RunTimers(ctx context.Context, leases Leases) error {
	return leases.Run(ctx, timersLease, func(ctx context.Context, _ *lease.Held) error { return e.sweepTimers(ctx) })
}

// sweepTimers fires what is due, and waits for the next one.
func (e *Engine) sweepTimers(ctx context.Context) error {
	wakes, stop := e.config.Signals.Subscribe(WakeTimers)
	defer stop()
	uploads, stopUploads := e.config.Signals.Subscribe(WakeDefinitions)
	defer stopUploads()
	stuck := map[timerKey]time.Time{}
	for {
		wait, err := e.fireDue(ctx, stuck)
		if err != nil && ctx.Err() == nil {
			e.log.WarnContext(ctx, "timers of workflows cannot be fired", "error", err)
			wait = timerRetry
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-wakes:
		case <-uploads:
			if err := e.hasten(ctx); err != nil && ctx.Err() == nil {
				e.log.WarnContext(ctx, "what is owed is not hastened, it is tried when it is due", "error", err)
			}
		case <-timer.C:
		}
		timer.Stop()
	}
}

// fireDue fires what is due, the longest due first, and returns how long there is
// nothing to do. What cannot be fired is stuck: it is left alone for a moment, so that it
// does not keep the others from their turn.
func (e *Engine) fireDue(ctx context.Context, stuck map[timerKey]time.Time) (wait time.Duration, err error) {
	now := time.Now()
	maps.DeleteFunc(stuck, func(_ timerKey, until time.Time) bool { return now.After(until) })
	due, wait, err := e.dueTimers(ctx, timerBatch+len(stuck))
	if err != nil {
		return timerRetry, err
	}
	requests := map[timerKey]*request{}
	for _, key := range due {
		if _, skip := stuck[key]; !skip {
			requests[key] = e.timerRequest(key)
			e.queue.add(requests[key])
		}
	}
	for key, r := range requests {
		if failed := r.await(ctx); failed != nil {
			stuck[key] = time.Now().Add(timerRetry)
			err = failed
		}
	}
	if len(requests) > 0 && err == nil {
		return 0, nil
	}
	return min(wait, timerRetry), err
}

// dueTimers returns timers that are due, and how long it takes until the next one is.
func (e *Engine) dueTimers(ctx context.Context, limit int) ([]timerKey, time.Duration, error) {
	rows, err := e.config.Pool.Query(ctx, `
		SELECT instance_id, step, kind, index, extract(epoch FROM due_at - clock_timestamp())::float8
		FROM wf_timers WHERE due_at < clock_timestamp() + $2::interval ORDER BY due_at LIMIT $1`, limit, timerPoll)
	if err != nil {
		return nil, 0, fmt.Errorf("look for due timers: %w", err)
	}
	wait := timerPoll
	var due []timerKey
	var key timerKey
	var left float64
	_, err = pgx.ForEachRow(rows, []any{&key.instance, &key.step, &key.kind, &key.index, &left}, func() error {
		if left <= 0 {
			due = append(due, key)
		} else {
			// Rounded up: a sweep that comes a little early has to come again.
			wait = min(wait, time.Duration(left*float64(time.Second))+time.Millisecond)
		}
		return nil
	})
	if err != nil {
		return nil, 0, fmt.Errorf("look for due timers: %w", err)
	}
	return due, wait, nil
}

// timerRequest fires a timer, if it is due by then, and removes its row. What does not
// fit the instance any more is removed too.
func (e *Engine) timerRequest(key timerKey) *request {
	n := needs{instance: key.instance, timer: &key}
	if key.kind == workflow.AttemptTimer {
		n.job = jobs.ID(key.instance, key.index) // where it is of a job, that is put up again
	}
	if key.kind == timerChild {
		n.child = &activityKey{key.instance, key.index}
	}
	return newRequest(n, func(ctx context.Context, u *unit) error { return u.fire(ctx, key) })
}

func (u *unit) fire(ctx context.Context, key timerKey) error {
	due, ok := u.timers[key]
	if _, moved := u.timerSet[key]; !ok || moved || u.timerUnset[key] || due.After(u.now) {
		return nil
	}
	l := u.instances[key.instance]
	if l == nil {
		u.unsetTimer(key)
		return nil
	}
	u.unsetTimer(key) // the instance may set it again
	var err error
	switch key.kind {
	case timerStart:
		err = u.begin(ctx, l)
	case timerCancel:
		in := workflow.Input{Kind: workflow.Cancel, Compensate: true, Reason: "the instance above it does not wait for it any more"}
		if key.index == cancelPurged {
			in.Compensate, in.Actor, in.Reason = false, "purge", "what is known of its user is erased"
		}
		err = u.advance(ctx, l, in)
	case timerNext:
		u.chainAgain(ctx, l, key.index)
	case timerChild:
		if child := u.children[activityKey{key.instance, key.index}]; child != nil {
			err = u.childEnded(ctx, l, child)
		}
	default:
		err = u.advance(ctx, l, workflow.Input{
			Kind: workflow.TimerFired, Timer: workflow.Timer{Step: key.step, Kind: key.kind, Index: key.index, DueAt: due},
		})
	}
	if err == nil {
		u.tally.fire(key.kind)
	}
	if errors.Is(err, ErrConflict) || errors.Is(err, ErrInvalid) {
		u.engine.log.DebugContext(ctx, "a timer was not needed any more", "instance_id", key.instance, "kind", key.kind, "error", err)
		return nil
	}
	return err
}

// begin starts an instance that was made without.
func (u *unit) begin(ctx context.Context, l *live) error {
	if l.state.Version != 0 {
		return nil
	}
	variables := l.state.Variables
	l.state = workflow.State{Variables: variables}
	u.tally.started++
	return u.advance(ctx, l, workflow.Input{Kind: workflow.Start, Actor: l.user})
}

// loadChildren reads the latest instance that each activity was.
func (u *unit) loadChildren(b *writes, keys []activityKey) {
	parents, activities := make([]uuid.UUID, len(keys)), make([]int32, len(keys))
	for i, k := range keys {
		parents[i], activities[i] = k.instance, int32(k.activity)
	}
	b.Queue(`
		SELECT `+instanceColumns+`
		FROM unnest($1::uuid[], $2::integer[]) AS u(parent, activity), LATERAL (
			SELECT * FROM wf_instances c WHERE c.parent_instance_id = u.parent AND c.parent_activity = u.activity
			ORDER BY c.parent_attempt DESC, c.id DESC LIMIT 1
		) AS i`, parents, activities).Query(func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, scanRow)
		for _, x := range found {
			u.children[activityKey{x.parent, x.parentActivity}] = x
		}
		return err
	})
}

// writeOrphans has the instances cancelled that were activities which nobody needs any
// more. They are not locked here: a row tells whoever sweeps, and this process at once.
func (u *unit) writeOrphans(b *writes) {
	if len(u.orphans) == 0 {
		return
	}
	parents, activities := make([]uuid.UUID, len(u.orphans)), make([]int32, len(u.orphans))
	for i, k := range u.orphans {
		parents[i], activities[i] = k.instance, int32(k.activity)
	}
	b.Queue(`
		INSERT INTO wf_timers (instance_id, step, kind, index, due_at)
		SELECT c.id, 0, $3, 0, $4
		FROM unnest($1::uuid[], $2::integer[]) AS u(parent, activity)
		JOIN wf_instances c ON c.parent_instance_id = u.parent AND c.parent_activity = u.activity
		WHERE c.ended_at IS NULL
		ORDER BY c.id
		ON CONFLICT DO NOTHING RETURNING instance_id`, parents, activities, string(timerCancel), u.now).Query(func(rows pgx.Rows) error {
		ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
		for _, id := range ids {
			u.follow = append(u.follow, u.engine.timerRequest(timerKey{instance: id, kind: timerCancel}))
		}
		return err
	})
}
