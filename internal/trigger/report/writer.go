package report

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/internal/trigger"
)

const (
	// gather is how long changes are gathered before they are written together.
	gather = 50 * time.Millisecond
	// progressEvery is how often mere progress is written, and retryEvery when a write that
	// failed is repeated.
	progressEvery = time.Second
	retryEvery    = time.Second
	// callTimeout bounds each call of the database.
	callTimeout = 3 * time.Second
	// closeTimeout bounds how long the end of a line is waited for.
	closeTimeout = 2 * time.Second
	// chunk is how many members share a transaction.
	chunk = 200
)

// Lease is what a member is held under; *lease.Held is one.
type Lease interface {
	Name() string
	Token() int64
}

// Member is a member of a trigger, in the hands of this process.
type Member struct {
	Trigger trigger.Stored
	Number  int
	// AlertAfter is how long it may stand before somebody is told.
	AlertAfter time.Duration
	Lease      Lease
}

// Seat names a member of a trigger, whoever has it.
type Seat struct {
	UID    string
	Member int
}

func (m Member) seat() Seat { return Seat{m.Trigger.UID, m.Number} }

// Writer writes what the members in this process say of themselves. It is safe for
// concurrent use.
type Writer struct {
	pool *pgxpool.Pool
	log  *slog.Logger

	// Either holds one when something is to be written, soon or some time.
	urgent, progress chan struct{}

	mu    sync.Mutex
	lines map[Seat]*Line
}

// NewWriter returns a writer; it writes while Run runs. A nil log discards.
func NewWriter(pool *pgxpool.Pool, log *slog.Logger) *Writer {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Writer{
		pool: pool, log: log, urgent: make(chan struct{}, 1), progress: make(chan struct{}, 1),
		lines: make(map[Seat]*Line),
	}
}

// Line is what one member writes on.
type Line struct {
	w      *Writer
	member Member

	// Under the writer's lock.
	report trigger.MemberReport
	dirty  bool
	closed bool // nothing more is said
	gone   bool // and the member is not there any more
	ended  chan struct{}

	// row and partitions are what the tables have: changed by the flush alone, under the
	// lock. A nil row is one that is there with what is not known.
	row        encoded
	partitions map[place]encoded
}

type place struct {
	topic     string
	partition int32
}

// Open begins to report a member. What is reported of it through an earlier line counts no
// more.
func (w *Writer) Open(m Member) *Line {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := &Line{w: w, member: m, ended: make(chan struct{})}
	if old := w.lines[m.seat()]; old != nil {
		l.inherit(old)
		w.forget(old)
	}
	w.lines[m.seat()] = l
	return l
}

// inherit notes what the line before may have left in the tables, so that it is removed
// unless it is reported again.
func (l *Line) inherit(old *Line) {
	if old.member.Lease.Token() != l.member.Lease.Token() {
		return
	}
	l.partitions = make(map[place]encoded)
	for at := range old.partitions {
		l.partitions[at] = nil
	}
	for _, p := range old.report.Partitions {
		l.partitions[place{p.Topic, p.Partition}] = nil
	}
}

// Report says how the member is doing. It does not block, and keeps r, which the caller
// must not change any more. After Close it does nothing.
func (l *Line) Report(r trigger.MemberReport) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	if l.closed {
		return
	}
	wake := l.w.progress
	if changed(l.report, r) {
		wake = l.w.urgent
	}
	l.report, l.dirty = r, true
	select {
	case wake <- struct{}{}:
	default:
	}
}

// Last returns what was reported last.
func (l *Line) Last() trigger.MemberReport {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	return l.report
}

// Close ends the line, before the lease is given back, and waits until what was said last
// is written, or closeTimeout. The tables keep it for the next owner, unless the member is
// gone for good.
func (l *Line) Close(gone bool) {
	w := l.w
	w.mu.Lock()
	l.closed, l.gone = true, gone
	w.mu.Unlock()
	select {
	case w.urgent <- struct{}{}:
	default:
	}
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	select {
	case <-l.ended:
	case <-timer.C:
		w.mu.Lock()
		defer w.mu.Unlock()
		w.forget(l)
	}
}

// forget ends a line; the lock is held.
func (w *Writer) forget(l *Line) {
	l.closed, l.dirty = true, false
	if w.lines[l.member.seat()] != l {
		return
	}
	delete(w.lines, l.member.seat())
	close(l.ended)
}

// changed reports whether there is more to tell than progress.
func changed(a, b trigger.MemberReport) bool {
	if a.State != b.State || a.Attempts != b.Attempts || !a.NextTry.Equal(b.NextTry) || !sameCause(a.Cause, b.Cause) ||
		len(a.Notes) != len(b.Notes) || len(a.Partitions) != len(b.Partitions) {
		return true
	}
	for i, p := range a.Partitions {
		q := b.Partitions[i]
		if p.Topic != q.Topic || p.Partition != q.Partition || p.State != q.State || p.Attempts != q.Attempts || !sameCause(p.Cause, q.Cause) {
			return true
		}
	}
	return false
}

func sameCause(a, b *trigger.Cause) bool { return a == b || a != nil && b != nil && *a == *b }

// Run writes until ctx ends, and returns nil then. What fails because PostgreSQL is away is
// repeated until it is back.
func (w *Writer) Run(ctx context.Context) error {
	var due <-chan time.Time
	var at time.Time
	within := func(d time.Duration) {
		if t := time.Now().Add(d); due == nil || t.Before(at) {
			due, at = time.After(d), t
		}
	}
	failing := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.urgent:
			if failing {
				within(retryEvery)
			} else {
				within(gather)
			}
		case <-w.progress:
			within(progressEvery)
		case <-due:
			due = nil
			err := w.flush(ctx)
			if ctx.Err() != nil {
				return nil
			}
			switch {
			case err != nil && !failing:
				w.log.WarnContext(ctx, "the state of triggers is not written, it will be repeated", "error", err)
			case err == nil && failing:
				w.log.InfoContext(ctx, "the state of triggers is written again")
			}
			if failing = err != nil; failing {
				within(retryEvery)
			}
		}
	}
}
