package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/internal/jobs"
	"github.com/millrace/millrace/internal/outbox"
	"github.com/millrace/millrace/internal/postgres"
)

const (
	// unitTimeout bounds a transaction, locks included; doubtTimeout how long to look for
	// what became of one.
	unitTimeout  = 30 * time.Second
	doubtTimeout = 60 * time.Second
	// instanceKey is the constraint that instances of one id violate.
	instanceKey = "wf_instances_pkey"
	// attempts is how often a transaction is run that failed for no fault of its own.
	attempts = 5
)

// execute runs requests in one transaction and answers each once it is committed. When
// it fails because of what is in it, halves are run on their own, down to the one whose
// fault it is.
func (e *Engine) execute(ctx context.Context, batch []*request) {
	outcome, err := e.transact(ctx, batch)
	switch {
	case err == nil:
		e.finish(ctx, batch, outcome)
	case len(batch) > 1 && !postgres.IsInfrastructure(err):
		e.log.DebugContext(ctx, "a transaction of the engine is run in halves", "requests", len(batch), "error", err)
		e.execute(ctx, batch[:len(batch)/2])
		e.execute(ctx, batch[len(batch)/2:])
	default:
		if postgres.IsConstraint(err) {
			err = fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		for _, r := range batch {
			r.reply(fmt.Errorf("engine: %w", err))
		}
	}
}

// outcome is a transaction that was committed.
type outcome struct {
	unit    *unit
	written *written
	// errs are the requests' own, in their order.
	errs []error
	// doubtful are what attempts before have queued of which nothing was heard.
	doubtful []jobs.Queued
}

// transact runs a transaction until it is committed, or cannot be.
func (e *Engine) transact(ctx context.Context, batch []*request) (o outcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, doubtTimeout)
	defer cancel()
	began := time.Now()
	defer func() { e.metrics.transaction.WithLabelValues("workflow").Observe(time.Since(began).Seconds()) }()
	e.metrics.size.Observe(float64(len(batch)))
	var doubtful []jobs.Queued
	for attempt := 1; ; attempt++ {
		o, err = e.attempt(ctx, batch)
		o.doubtful = doubtful
		if errors.Is(err, postgres.ErrInDoubt) {
			if err = e.resolve(ctx, o.unit, err); err == nil {
				e.config.Signals.Wake(outbox.WakeName)
				return o, nil
			}
			if o.unit.xid == "" { // nobody knows yet
				doubtful = append(doubtful, o.written.jobs)
			}
		}
		if err != nil {
			e.config.Jobs.Abandoned(o.written.jobs)
		}
		if constraint, ok := postgres.UniqueViolation(err); ok && constraint == instanceKey {
			// Somebody has started an instance under that id since, or we have without knowing.
			o.unit.looks()
			err = fmt.Errorf("%w: %w", errAborted, err)
		}
		if err == nil || attempt == attempts || !errors.Is(err, errAborted) && !postgres.Repeatable(err) {
			return o, err
		}
		e.metrics.repeated.Inc()
		if postgres.Backoff(ctx, attempt) != nil {
			return o, err
		}
	}
}

// errAborted says that a transaction whose commit was in doubt has not been committed.
var errAborted = errors.New("the transaction was rolled back")

// resolve finds out what became of a transaction: nil means that it is committed. What
// was to be handed on after the commit is found by those who poll.
func (e *Engine) resolve(ctx context.Context, u *unit, doubt error) error {
	e.log.WarnContext(ctx, "a commit of the engine is in doubt", "error", doubt)
	if u.xid == "" {
		// It only started instances, whose ids are there or not: the next attempt looks.
		u.looks()
		return fmt.Errorf("%w: %w", errAborted, doubt)
	}
	switch outcome, err := postgres.Resolve(ctx, e.config.Pool, u.xid); {
	case err != nil:
		return err
	case outcome == postgres.Committed:
		return nil
	default:
		return fmt.Errorf("%w: %w", errAborted, doubt)
	}
}

// attempt runs the transaction once. After ErrInDoubt the outcome is what it would be.
func (e *Engine) attempt(ctx context.Context, batch []*request) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, unitTimeout)
	defer cancel()
	u := newUnit(e)
	u.batch = batch
	o := outcome{unit: u, written: &written{}}
	tx, err := postgres.Pipeline(ctx, e.config.Pool)
	if err != nil {
		return o, err
	}
	defer tx.End()
	u.send = func(ctx context.Context, b *writes) error { return tx.Send(ctx, &b.Batch) }
	w := wantedBy(batch)
	if now, ok := e.clock.now(); ok && w.none() {
		u.now = now
	} else {
		if err := u.read(ctx, w); err != nil {
			return o, err
		}
	}
	if o.errs, err = u.judge(ctx, batch); err != nil {
		return o, err
	}
	if !u.dirty() {
		return o, nil
	}
	var b writes
	if err := u.write(ctx, &b, o.written); err != nil {
		return o, err
	}
	u.committing()
	if err := tx.Commit(ctx, &b.Batch, 0); err != nil {
		return o, err
	}
	u.passedCommit()
	return o, nil
}

// read sends what locks and loads rows.
func (u *unit) read(ctx context.Context, w wanted) error {
	var b writes
	u.load(&b, w)
	sent := time.Now()
	if err := u.send(ctx, &b); err != nil {
		return err
	}
	if w.locks() {
		u.engine.metrics.locked.Observe(time.Since(sent).Seconds())
	}
	u.engine.clock.note(u.now, sent)
	return u.plans(ctx)
}

// judge does the requests one after the other. Errors are theirs; the last one is of the
// unit.
func (u *unit) judge(ctx context.Context, batch []*request) ([]error, error) {
	errs := make([]error, len(batch))
	for i, r := range batch {
		u.current = r
		errs[i] = r.run(ctx, u)
		u.settle(ctx)
		if u.fault != nil {
			return nil, u.fault
		}
	}
	return errs, nil
}

// finish hands on what a committed transaction has written, and answers its requests.
func (e *Engine) finish(ctx context.Context, batch []*request, o outcome) {
	u := o.unit
	e.committed(u, o.written, o.doubtful...)
	for i, r := range batch {
		r.reply(o.errs[i])
	}
	e.followUp(ctx, u)
}

// committed tells whoever waits for what a unit has written.
func (e *Engine) committed(u *unit, w *written, doubtful ...jobs.Queued) {
	if w.outbox.Any() && !e.config.Handover.Hand(&w.outbox) {
		e.config.Signals.Wake(outbox.WakeName)
	}
	e.config.Jobs.Committed(w.jobs, doubtful...)
	for _, id := range u.ended {
		e.watch.ended(id)
	}
	for _, due := range u.timerSet {
		if due.Before(u.now.Add(timerPoll)) {
			e.config.Signals.Wake(WakeTimers)
			break
		}
	}
	e.metrics.count(&u.tally)
}

// followUp asks for what a committed transaction owes to other instances. There is a row
// for each, so what finds no room is done by the sweep of timers.
func (e *Engine) followUp(_ context.Context, u *unit) {
	for _, r := range u.follow {
		e.queue.add(r)
	}
}
