package trigger

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/trigger"
	"github.com/millrace/millrace/internal/trigger/report"
)

// errEnded is why a member is run again whose source has returned without being told to.
var errEnded = errors.New("the source ended by itself")

// runMember runs one member for as long as this process has it, whatever becomes of its
// definition.
func (s *Supervisor) runMember(ctx context.Context, slot lease.Slot, held *lease.Held) {
	seat, err := seatOf(slot)
	if err != nil {
		s.cfg.Log.ErrorContext(ctx, "a member of a trigger cannot be run", "slot", slot.Name, "error", err)
		<-ctx.Done()
		return
	}
	var m *member
	for ctx.Err() == nil {
		e := s.book.get(seat.UID)
		if e == nil {
			<-ctx.Done() // it was deleted, and the slot is about to go
			break
		}
		if seat.Member >= report.Seats(e.stored) { // switched off, and the slot is about to go
			select {
			case <-ctx.Done():
			case <-e.current.Done():
			}
			continue
		}
		m = s.open(seat, e, held)
		m.run(ctx)
	}
	if m != nil {
		s.close(m, errors.Is(context.Cause(ctx), lease.ErrWithdrawn))
	}
}

// open begins a revision of a member.
func (s *Supervisor) open(seat report.Seat, e *entry, held *lease.Held) *member {
	after := time.Duration(e.stored.AlertAfter)
	if e.compiled != nil {
		after = time.Duration(e.compiled.AlertAfter)
	}
	if after <= 0 {
		after = alertAfter
	}
	m := &member{s: s, entry: e, seat: seat, backoff: s.cfg.BackoffMin}
	m.line = s.cfg.Reports.Open(report.Member{Trigger: e.stored, Number: seat.Member, AlertAfter: after, Lease: held})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines[seat] = m
	return m
}

func (s *Supervisor) close(m *member, gone bool) {
	s.mu.Lock()
	if s.lines[m.seat] == m {
		delete(s.lines, m.seat)
	}
	s.mu.Unlock()
	m.line.Close(gone)
}

// member is one revision of a trigger, run by this process.
type member struct {
	s       *Supervisor
	entry   *entry
	seat    report.Seat
	line    *report.Line
	backoff time.Duration

	mu sync.Mutex
	// failed is what it failed with last, until it says that it runs.
	failed *trigger.MemberReport
	last   trigger.MemberReport
	// turn counts the runs of the source: what an earlier one says does not count.
	turn int
}

// run runs the source until there is another revision or ctx ends.
func (m *member) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(m.entry.current, cancel)()
	log := m.s.cfg.Log.With("trigger", m.entry.stored.ID, "member", m.seat.Member, "revision", m.entry.stored.Revision)
	if m.entry.err != nil {
		m.fail(trigger.Cause{
			Code: "invalid_definition", Message: "the definition cannot be run: " + m.entry.err.Error(),
			Hint: "apply one that can; `millrace triggers lint` says what is wrong with it",
		}, 0)
		log.ErrorContext(ctx, "trigger cannot be run", "error", m.entry.err)
		<-ctx.Done()
		return
	}
	m.tell(0, trigger.MemberReport{State: trigger.StateStarting})
	log.DebugContext(ctx, "member of a trigger begins")
	for ctx.Err() == nil {
		began := time.Now()
		err := m.once(ctx)
		if ctx.Err() != nil {
			break
		}
		if time.Since(began) > m.s.cfg.BackoffMax {
			m.backoff = m.s.cfg.BackoffMin
		}
		m.restarting(ctx, err)
	}
	log.DebugContext(ctx, "member of a trigger has stopped")
}

// once runs the source once. A panic is an error.
func (m *member) once(ctx context.Context) error {
	done := make(chan struct{})
	defer close(done)
	defer context.AfterFunc(ctx, func() { m.watchStop(ctx, done) })()
	m.mu.Lock()
	m.turn++
	turn := m.turn
	m.mu.Unlock()
	defer func() { // what a goroutine says that was left behind counts no more
		m.mu.Lock()
		m.turn++
		m.mu.Unlock()
	}()
	source := m.s.cfg.Sources[m.entry.stored.Type]
	err := Guard(func() error {
		return source.Run(ctx, m.entry.compiled, m.seat.Member, func(r trigger.MemberReport) { m.tell(turn, r) })
	})
	if err == nil {
		err = errEnded
	}
	return err
}

// watchStop tells when a source does not stop although it was told to. It keeps its lease,
// so that nobody else begins meanwhile.
func (m *member) watchStop(ctx context.Context, done <-chan struct{}) {
	timer := time.NewTimer(stopPatience)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		m.s.cfg.Log.WarnContext(ctx, "member of a trigger does not stop", "trigger", m.entry.stored.ID, "member", m.seat.Member, "since", stopPatience)
	}
}

// restarting says why the source ended, and waits until it is to be run again.
func (m *member) restarting(ctx context.Context, err error) {
	panicked, isPanic := errors.AsType[*PanicError](err)
	log := m.s.cfg.Log.With("trigger", m.entry.stored.ID, "member", m.seat.Member, "error", err, "next_try_in", m.backoff)
	if isPanic {
		m.s.metrics.restarted(m.entry.stored.ID, "panic")
		log.ErrorContext(ctx, "trigger panicked, it will be tried again", "stack", string(panicked.Stack))
	} else {
		m.s.metrics.restarted(m.entry.stored.ID, "error")
		log.WarnContext(ctx, "trigger failed, it will be tried again")
	}
	// A part of it at random: what broke all triggers is not to be met by all at once.
	wait := m.backoff - rand.N(m.backoff/10+1)
	m.fail(causeOf(err), wait)
	m.backoff = min(m.backoff*2, m.s.cfg.BackoffMax)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// fail reports that the source does not run. wait is when it does again; 0 is never.
func (m *member) fail(cause trigger.Cause, wait time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	r := trigger.MemberReport{State: trigger.StateError, Cause: &cause, Since: now, Attempts: 1, Notes: m.last.Notes, Effective: m.last.Effective}
	if m.failed != nil {
		r.Since, r.Attempts = m.failed.Since, m.failed.Attempts+1
	}
	if wait > 0 {
		r.NextTry = now.Add(wait)
	}
	m.failed = &r
	m.report(r)
}

// tell passes on what the source says of itself in one of its turns.
func (m *member) tell(turn int, r trigger.MemberReport) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if turn != m.turn {
		return
	}
	switch {
	case r.State == trigger.StateRunning:
		m.failed = nil
	case r.State == trigger.StateStarting && m.failed != nil:
		// It is an error until it runs, or it would seem to be well each time it is tried.
		r.State, r.Cause, r.Since, r.Attempts = m.failed.State, m.failed.Cause, m.failed.Since, m.failed.Attempts
	}
	if r.Since.IsZero() && r.State == m.last.State {
		r.Since = m.last.Since
	}
	if r.Since.IsZero() {
		r.Since = time.Now()
	}
	if r.Effective == nil {
		r.Effective = m.entry.compiled.Settings()
	}
	m.report(r)
}

// report notes and passes on a report; the lock is held.
func (m *member) report(r trigger.MemberReport) {
	m.last = r
	m.line.Report(r)
}
