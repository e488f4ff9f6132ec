package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/admission"
	"github.com/millrace/millrace/internal/crash"
	"github.com/millrace/millrace/internal/holds"
	"github.com/millrace/millrace/internal/limits"
	"github.com/millrace/millrace/topics"
)

// Admission is one round of admitting.
type Admission struct {
	Class string
	// Topic is where the tasks of the class go; empty means topics.ExecutionTasks.
	Topic topics.Topic
	// Admitter names who decides; it is recorded in the events.
	Admitter string
	// Cap bounds what may be in use at once, beyond what the workers announce; zero is
	// no bound of its own.
	Cap admission.Resources
	// Max is how many executions to admit at most in this round.
	Max int
	// Config says how to choose. Its Step is the store's.
	Config admission.Config
	// Fence is called first in the transaction and fails when the caller is no longer
	// the admitter of the class.
	Fence func(ctx context.Context, tx pgx.Tx) error
	// Memory is what the caller remembers of its earlier rounds under the same lease.
	// Nil reads everything anew.
	Memory *Memory
}

// Memory is what an admitter knows of the queue of its class. It is lost with every
// error, and then read anew. The zero value is ready to use; it is for one caller.
type Memory struct {
	queue *admission.Queue
	// feedFrom is the transaction from which on the feed has to be read.
	feedFrom string
	// holds are those that the queue was told of.
	holds []holds.Hold
	// askedAt is when the keys at which flows sleep were last read.
	askedAt time.Time
	// earlyAt is when the next execution that waits for its time may be admitted;
	// zero when none is known of.
	earlyAt time.Time
	// forgotAt is when empty flows were last dropped.
	forgotAt time.Time
}

// How often an admitter asks for what it is not told: whether others have given
// back, or operators reset, what flows sleep for; and drops empty flows.
const (
	askEvery    = time.Second
	forgetEvery = 10 * time.Minute
)

// Admitted is the outcome of one round.
type Admitted struct {
	// Executions is how many were admitted.
	Executions int
	// Free is how many slots were left after the round.
	Free int
	// More says that another round may admit more at once.
	More bool
	// Crowded says that something was left that only waits for room.
	Crowded bool
	// Wait is how long it takes until something that waits may go on by itself; zero
	// when that takes somebody's doing.
	Wait time.Duration
}

// Admit admits queued executions of a class, as package admission decides, as far as
// capacity and limits go. Executions with a concurrency key are admitted one at a
// time and in the order of submission.
func (s *Store) Admit(ctx context.Context, a Admission) (Admitted, error) {
	if a.Memory == nil {
		a.Memory = &Memory{}
	}
	a.Config.Step = s.policy.AgeingStep
	var r *admissionRound
	err := s.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		// Whatever a transaction that failed has done to the memory is not known.
		memory := *a.Memory
		*a.Memory = Memory{}
		r = &admissionRound{Admission: a, store: s, tx: tx, memory: memory, ledger: map[admission.FlowID]admission.Delta{}}
		return r.run(ctx)
	})
	if err != nil {
		return Admitted{}, fmt.Errorf("admit: %w", err)
	}
	*a.Memory = r.memory
	if r.out.Executions > 0 {
		crash.At("admitter.admitted")
	}
	if r.opened {
		// It may be one of another class, whose admitter sleeps.
		s.waker.Wake(WakeAdmission)
	}
	return r.out, nil
}

// admissionRound is one round on its way.
type admissionRound struct {
	Admission
	store  *Store
	tx     pgx.Tx
	memory Memory
	now    time.Time
	// opened is true when gates of concurrency keys were opened.
	opened bool
	// feedLeft is true when not all of the feed was read.
	feedLeft bool
	// ledger is what the round changes in it.
	ledger   map[admission.FlowID]admission.Delta
	picks    []admission.Pick
	oversize []admission.Pick
	// behind are executions that were picked and come after another one with their
	// concurrency key.
	behind  []string
	change  change
	buckets buckets
	missed  int
	out     Admitted
}

func (r *admissionRound) queue() *admission.Queue { return r.memory.queue }

func (r *admissionRound) run(ctx context.Context) error {
	if err := r.Fence(ctx, r.tx); err != nil {
		return err
	}
	if r.memory.queue == nil {
		if err := r.restore(ctx); err != nil {
			return fmt.Errorf("read flows: %w", err)
		}
		if err := r.recount(ctx); err != nil {
			return err
		}
	}
	if err := r.look(ctx); err != nil {
		return err
	}
	if err := r.ask(ctx); err != nil {
		return err
	}
	if err := r.choose(ctx); err != nil {
		return fmt.Errorf("choose: %w", err)
	}
	if err := r.verify(ctx); err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	return r.save(ctx)
}

// choose lets the queue pick executions, reading flows on where it needs that.
func (r *admissionRound) choose(ctx context.Context) error {
	q := r.queue()
	if err := r.read(ctx, q.Reads(readsPerRound)); err != nil {
		return err
	}
	for len(r.picks) < r.Max {
		p, choice := q.Next()
		switch choice {
		case admission.Chosen:
			r.picks = append(r.picks, p)
		case admission.Oversize:
			r.oversize = append(r.oversize, p)
		case admission.Hungry:
			if err := r.read(ctx, q.Reads(readsPerRound)); err != nil {
				return err
			}
		case admission.Done:
			return nil
		}
	}
	return nil
}

// verify locks what was picked and takes back what may not go through after all. The
// others are scheduled.
func (r *admissionRound) verify(ctx context.Context) error {
	if len(r.picks)+len(r.oversize) == 0 {
		return r.lockKeys(ctx, nil)
	}
	locked, err := r.lock(ctx)
	if err != nil {
		return err
	}
	r.setApart(locked)
	picks, turn, err := r.takeTurns(ctx, locked)
	if err != nil {
		return err
	}
	if err := r.lockKeys(ctx, picks); err != nil {
		return err
	}
	for _, p := range picks {
		l := locked[p.ID]
		if !r.spend(p) {
			r.undo(p, admission.Limited)
			continue
		}
		now := later(l.now, later(turn[p.ID], r.buckets.now))
		task, err := l.Schedule(now, r.Admitter, p.Reason, r.store.policy)
		if err != nil {
			return err
		}
		r.change.touch(l.Execution)
		r.change.tasks = append(r.change.tasks, task)
	}
	return nil
}

// isWaiting is true of a row, found by its id, that may be admitted. It is written so
// that no partial index of what waits fits: these are small most of the time, and then
// the plan that is made, and kept, reads all of a long queue for a few rows of it.
const isWaiting = `state || '' = 'QUEUED' AND waits + 0 = 0`

// lock locks the rows of what was picked. What is not in the answer was taken back.
func (r *admissionRound) lock(ctx context.Context) (map[string]loaded, error) {
	all := append(append([]admission.Pick(nil), r.picks...), r.oversize...)
	ids := make([]string, len(all))
	for i, p := range all {
		ids[i] = p.ID
	}
	rows, err := load(ctx, r.tx, `SELECT `+columns+` FROM executions
		WHERE id = ANY ($1::text[]::uuid[]) AND `+isWaiting+` ORDER BY id FOR UPDATE SKIP LOCKED`, ids)
	if err != nil {
		return nil, err
	}
	locked := make(map[string]loaded, len(rows))
	for _, l := range rows {
		locked[l.ID] = l
	}
	if len(locked) < len(all) {
		return locked, r.miss(ctx, locked, ids)
	}
	return locked, nil
}

// miss takes back the picks whose rows could not be locked. Those that still wait are
// being changed by somebody, who may yet leave them as they are.
func (r *admissionRound) miss(ctx context.Context, locked map[string]loaded, ids []string) error {
	rows, err := r.tx.Query(ctx, `SELECT id::text FROM executions
		WHERE id = ANY ($1::text[]::uuid[]) AND `+isWaiting, ids)
	if err != nil {
		return err
	}
	waiting := map[string]bool{}
	var id string
	if _, err := pgx.ForEachRow(rows, []any{&id}, func() error {
		waiting[id] = true
		return nil
	}); err != nil {
		return err
	}
	var kept []admission.Pick
	for _, p := range r.picks {
		_, have := locked[p.ID]
		switch {
		case have:
			kept = append(kept, p)
		case waiting[p.ID]:
			r.undo(p, admission.Busy)
		default:
			r.undo(p, admission.Gone)
		}
	}
	r.picks = kept
	var large []admission.Pick
	for _, p := range r.oversize {
		if _, have := locked[p.ID]; have {
			large = append(large, p)
		} else if waiting[p.ID] {
			r.queue().Return(p)
		}
	}
	r.oversize = large
	return nil
}

// setApart takes back picks that are no longer what they were when they were read:
// one that was moved in the queue is found at its new place, and one that was found
// at both is let through once.
func (r *admissionRound) setApart(locked map[string]loaded) {
	seen := make(map[string]bool, len(r.picks))
	kept := r.picks[:0]
	for _, p := range r.picks {
		if seen[p.ID] || !locked[p.ID].Rank.Equal(p.Rank) {
			r.undo(p, admission.Gone)
			continue
		}
		seen[p.ID] = true
		kept = append(kept, p)
	}
	r.picks = kept
}

// takeTurns takes back the picks whose concurrency keys are taken.
func (r *admissionRound) takeTurns(ctx context.Context, locked map[string]loaded) ([]admission.Pick, map[string]time.Time, error) {
	queued := make([]loaded, len(r.picks))
	for i, p := range r.picks {
		queued[i] = locked[p.ID]
	}
	turn, err := takeTurns(ctx, r.tx, queued)
	if err != nil {
		return nil, nil, err
	}
	kept := r.picks[:0]
	for i, p := range r.picks {
		_, first := turn.heads[p.ID]
		switch {
		case first || queued[i].Request.ConcurrencyKey == "":
			kept = append(kept, p)
		case turn.behind[p.ID]:
			r.behind = append(r.behind, p.ID)
			r.undo(p, admission.Gone)
		default:
			r.undo(p, admission.Busy)
		}
	}
	return kept, turn.heads, nil
}

func (r *admissionRound) undo(p admission.Pick, why admission.Missed) {
	r.missed++
	r.queue().Undo(p, why)
}

// lockKeys locks the states of the keys that the picks spend from, and of those from
// which something was given back.
func (r *admissionRound) lockKeys(ctx context.Context, picks []admission.Pick) error {
	var keys []limits.Key
	for _, p := range picks {
		keys = append(keys, p.Keys...)
	}
	released := r.queue().Released()
	for key := range released {
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil
	}
	var err error
	if r.buckets, err = lockBuckets(ctx, r.tx, keys); err != nil {
		return err
	}
	for key, n := range released {
		r.buckets.all[key].InUse = max(r.buckets.all[key].InUse-n, 0)
	}
	return nil
}

// spend takes what a pick needs from all of its keys, or from none.
func (r *admissionRound) spend(p admission.Pick) bool {
	after := make([]admission.Bucket, 0, len(p.Keys))
	for _, key := range p.Keys {
		limit, inForce := r.Config.Limits.Lookup(key.Limit)
		if !inForce {
			continue
		}
		b := *r.buckets.all[key]
		if _, ok := admission.Spend(limit, &b, r.buckets.now); !ok {
			return false
		}
		after = append(after, b)
	}
	for _, b := range after {
		*r.buckets.all[b.Key] = b
	}
	return true
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// save writes what was decided.
func (r *admissionRound) save(ctx context.Context) error {
	q := r.queue()
	admitted, err := deltas(r.change.executions)
	if err != nil {
		return err
	}
	for at, d := range admitted {
		r.book(at.flow, d)
	}
	q.Know(r.buckets.list())
	q.End()
	r.change.admitting, r.change.tasksTo = true, r.Topic
	err = inBatch(ctx, r.tx, func(b statements) error {
		if err := saveLedger(ctx, b, r.Class, r.ledger); err != nil {
			return fmt.Errorf("save ledger: %w", err)
		}
		if err := r.buckets.save(ctx, b); err != nil {
			return fmt.Errorf("save buckets: %w", err)
		}
		if err := r.barLarge(ctx, b); err != nil {
			return fmt.Errorf("set large executions apart: %w", err)
		}
		if err := shutGates(ctx, b, r.behind); err != nil {
			return fmt.Errorf("shut gates: %w", err)
		}
		return r.change.write(ctx, b)
	})
	if err != nil {
		return err
	}
	r.finish()
	if r.out.Executions > 0 {
		crash.At("admitter.admitting")
	}
	return nil
}

// book adds a change of the ledger to be saved.
func (r *admissionRound) book(flow admission.FlowID, d admission.Delta) {
	sum := r.ledger[flow]
	sum.Flow = flow
	sum.Queued += d.Queued
	sum.Running += d.Running
	sum.Used = sum.Used.Plus(d.Used)
	r.ledger[flow] = sum
}

// barLarge takes what no worker can run out of what may be admitted, until there are
// other workers.
func (r *admissionRound) barLarge(ctx context.Context, tx statements) error {
	if len(r.oversize) == 0 {
		return nil
	}
	ids := make([]string, len(r.oversize))
	for i, p := range r.oversize {
		ids[i] = p.ID
	}
	_, err := tx.Exec(ctx, `UPDATE executions SET waits = 3 WHERE id = ANY ($1::text[]::uuid[])`, ids)
	return err
}

func (r *admissionRound) finish() {
	q := r.queue()
	free := q.Free()[admission.Slots]
	r.out = Admitted{
		Executions: len(r.change.executions),
		Free:       int(max(free, 0)),
		Crowded:    q.Crowded(),
		More:       r.feedLeft || free > 0 && (len(r.picks) >= r.Max || r.missed > 0),
	}
	if next := earlier(q.NextAt(), r.memory.earlyAt); !next.IsZero() {
		r.out.Wait = max(next.Sub(r.now), time.Millisecond)
	}
}
