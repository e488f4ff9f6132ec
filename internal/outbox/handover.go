package outbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/topics"
)

const (
	// maxHanded and maxHandedBytes bound what waits for the relay in a Handover. What
	// would be more is left for the relay to find in the table.
	maxHanded      = CallsDefault * BatchSizeDefault
	maxHandedBytes = MaxCallBytesDefault
)

// Handover is the short way from the transactions of this process to its relay:
// what was committed here goes to the relay from memory, and need not be read from
// the table. It is safe for concurrent use. See "The short way" in the package
// documentation.
type Handover struct {
	mu sync.Mutex
	// held are the shards that the relay would take something for.
	held    [Shards]bool
	rows    []*row
	bytes   int
	arrived chan struct{}
}

// NewHandover returns a handover. Give it to the relay (Deps) and to those who
// write.
func NewHandover() *Handover { return &Handover{arrived: make(chan struct{}, 1)} }

// Hand offers what a transaction has written, after its commit and before anything
// that only follows from it. It reports whether nothing is left to be done: if not,
// the caller wakes WakeName. It never blocks. A nil Handover takes nothing.
func (h *Handover) Hand(w *Written) (all bool) {
	if len(w.rows) == 0 {
		return !w.other
	}
	if h == nil {
		return false
	}
	all = !w.other
	h.mu.Lock()
	for _, r := range w.rows {
		if !h.held[r.shardNumber] || len(h.rows) >= maxHanded || h.bytes+r.bytes > maxHandedBytes {
			all = false
			continue
		}
		h.rows, h.bytes = append(h.rows, r), h.bytes+r.bytes
	}
	h.mu.Unlock()
	select {
	case h.arrived <- struct{}{}:
	default:
	}
	return all
}

// take returns what was handed since the last call.
func (h *Handover) take() []*row {
	h.mu.Lock()
	defer h.mu.Unlock()
	rows := h.rows
	h.rows, h.bytes = nil, 0
	return rows
}

// hold says for which shards something is taken. What waits goes with the last one.
func (h *Handover) hold(held [Shards]bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held = held
	if held == ([Shards]bool{}) {
		h.rows, h.bytes = nil, 0
	}
}

// Written is what one transaction has appended. The zero value is ready for use, by
// one transaction at a time.
type Written struct {
	rows []*row
	// last is the last entry with a version of each aggregate.
	last map[laneKey]*row
	// other: there are entries that only a scan finds.
	other bool
}

// Reset forgets everything: the transaction begins again.
func (w *Written) Reset() { *w = Written{} }

// Any reports whether anything was appended.
func (w *Written) Any() bool { return w.other || len(w.rows) > 0 }

type writtenKey struct{}

// Gathering returns a context in which Append notes what it writes in w. It is for
// the context of one transaction, and Append must be called on that transaction
// itself, not inside a savepoint that may be rolled back.
func Gathering(ctx context.Context, w *Written) context.Context {
	return context.WithValue(ctx, writtenKey{}, w)
}

func writtenFrom(ctx context.Context) *Written {
	w, _ := ctx.Value(writtenKey{}).(*Written)
	return w
}

// Queuer takes statements to be sent later: *pgx.Batch, or what holds one.
type Queuer interface {
	Queue(sql string, args ...any) *pgx.QueuedQuery
}

type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// gather writes entries and notes where they came to lie.
func (w *Written) gather(ctx context.Context, tx Execer, entries []Entry, c columns) error {
	read := func(rows pgx.Rows) error { return w.read(rows, entries, c) }
	switch x := tx.(type) {
	case Queuer:
		x.Queue(appendReturningSQL, c.arrays(nil)...).Query(read)
		return nil
	case querier:
		rows, err := x.Query(ctx, appendReturningSQL, c.arrays(nil)...)
		if err != nil {
			return err
		}
		return read(rows)
	default:
		w.other = true
		_, err := tx.Exec(ctx, appendSQL, c.arrays(nil)...)
		return err
	}
}

// read takes in the places of entries, in their order.
func (w *Written) read(rows pgx.Rows, entries []Entry, c columns) error {
	n := 0
	var seq int64
	var created time.Time
	_, err := pgx.ForEachRow(rows, []any{&seq, &created}, func() error {
		if n == len(entries) {
			return errors.New("more rows than entries came back")
		}
		w.note(entries[n], c, n, seq, created)
		n++
		return nil
	})
	if err == nil && n < len(entries) {
		err = fmt.Errorf("%d of %d rows came back", n, len(entries))
	}
	return err
}

// note adds an entry if the relay can know when its turn is: it has a version, or
// follows one that has in the same transaction.
func (w *Written) note(e Entry, c columns, n int, seq int64, created time.Time) {
	key := laneKey{e.AggregateType, e.AggregateID}
	r := &row{
		seq: seq, created: created, shardNumber: int(c.shards[n]), id: uuidText(c.ids[n]), lane: key, topic: e.Topic,
		version: e.Version, born: time.Now(),
		record: topics.Record{Key: c.keys[n], Value: c.payloads[n], Headers: c.records[n].Headers},
	}
	r.bytes = len(c.payloads[n]) + len(c.headers[n]) + len(c.keys[n])
	switch {
	case e.Version == 0 && w.last[key] == nil:
		w.other = true
		return
	case e.Version == 0:
		r.leader = w.last[key]
		r.version = r.leader.version
	case w.last == nil:
		w.last = map[laneKey]*row{key: r}
	default:
		w.last[key] = r
	}
	w.rows = append(w.rows, r)
}
