package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/internal/crash"
	"github.com/millrace/millrace/topics"
)

// called is what came of one call of the publisher.
type called struct {
	rows []*row
	errs []error // one per row
	at   time.Time
	// stopped: the call was ended by our own shutdown.
	stopped bool
}

// gatherCall is how long the rows of a few lanes wait for a call that is under way,
// and for more of them: a call costs the broker far more than a record in it does.
const gatherCall = 5 * time.Millisecond

// callsAt is when the next call may begin. The zero time means at once.
func (e *engine) callsAt() time.Time {
	if e.calling > 0 && len(e.ready) < e.cfg.BatchSize/e.cfg.Calls {
		return e.calledAt.Add(gatherCall)
	}
	return time.Time{}
}

// startCalls hands rows to the publisher while there are any and calls are free.
func (e *engine) startCalls() {
	for e.calling < e.cfg.Calls && len(e.ready) > 0 {
		now := time.Now()
		if now.Before(e.unreachable.until) || now.Before(e.callsAt()) {
			return
		}
		rows, within := e.compose()
		if len(rows) == 0 {
			return
		}
		e.calling++
		e.calledAt = now
		e.metrics.batch.Observe(float64(len(rows)))
		go func() { e.calls <- e.call(rows, within) }()
	}
}

// compose takes the rows of one call from the lanes that are ready, the longest
// waiting first, and says how long the call may take: the shortest time for which
// one of their leases is sure to last.
func (e *engine) compose() (rows []*row, within time.Duration) {
	within = e.cfg.PublishTimeout
	size := 0
	var passed []*lane
	for len(e.ready) > 0 && len(rows) < e.cfg.BatchSize && size < e.cfg.MaxCallBytes {
		l := e.ready[0]
		e.ready = e.ready[1:]
		l.ready = false
		if len(l.rows) == 0 || l.waiting || l.shard.gone || l.shard.leaving {
			continue
		}
		left, live := l.shard.live()
		if !live {
			// Its lease is about to be renewed, or lost: look again later.
			passed = append(passed, l)
			continue
		}
		if l.rows[0].damage != nil {
			e.refuse(l)
			continue
		}
		within = min(within, left)
		run := l.run(e.cfg.BatchSize-len(rows), e.cfg.MaxCallBytes-size)
		l.rows = l.rows[len(run):]
		l.calling = len(run)
		l.shard.busy += len(run)
		for _, r := range run {
			size += r.bytes
		}
		rows = append(rows, run...)
	}
	for _, l := range passed {
		e.queue(l)
	}
	return rows, within
}

// refuse fails a row that cannot be turned into a record: no attempt can succeed.
func (e *engine) refuse(l *lane) {
	r := l.rows[0]
	l.rows = l.rows[1:]
	l.shard.busy++
	e.hold(l, rejection{row: r, reason: storable(r.damage.Error()), failed: true})
}

func (e *engine) call(rows []*row, within time.Duration) called {
	ctx, cancel := context.WithTimeout(e.ctx, within)
	defer cancel()
	records := make([]topics.Record, len(rows))
	for i, r := range rows {
		records[i] = r.record
	}
	crash.At("relay.publishing")
	errs := e.publishSafely(ctx, records)
	crash.At("relay.published")
	result := called{rows: rows, errs: errs, at: time.Now(), stopped: e.ctx.Err() != nil}
	if errs == nil {
		result.errs = make([]error, len(rows))
	}
	return result
}

// publishSafely turns a panic, and an answer of the wrong length, into errors that
// say nothing about the records: they are sent again.
func (e *engine) publishSafely(ctx context.Context, records []topics.Record) (errs []error) {
	all := func(err error) []error {
		errs := make([]error, len(records))
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	defer func() {
		if p := recover(); p != nil {
			errs = all(fmt.Errorf("publisher panicked: %v", p))
		}
	}()
	errs = e.publisher.PublishRecords(ctx, records)
	if errs != nil && len(errs) != len(records) {
		return all(fmt.Errorf("publisher answered for %d of %d records", len(errs), len(records)))
	}
	return errs
}

// published sorts out what came of a call, lane by lane.
func (e *engine) published(c called) {
	var down error
	succeeded := 0
	for start := 0; start < len(c.rows); {
		end := start + 1
		for end < len(c.rows) && c.rows[end].lane == c.rows[start].lane {
			end++
		}
		n, err := e.publishedRun(c.rows[start:end], c.errs[start:end], c.at)
		succeeded += n
		if err != nil {
			down = err
		}
		start = end
	}
	switch {
	case c.stopped:
	case down != nil:
		if succeeded > 0 {
			e.unreachable.wait = 0
		}
		e.unreachable.fault(e.ctx, e.log, down)
		e.metrics.faults.Inc()
		e.metrics.unreachable.Set(1)
	case succeeded > 0:
		e.unreachable.recovered(e.ctx, e.log)
		e.metrics.unreachable.Set(0)
	}
}

// publishedRun deals with the rows of one lane. Behind a row that was not
// published no row of the lane counts as published, whatever the publisher says of
// it. It returns how many were, and the error that kept one from being sent.
func (e *engine) publishedRun(rows []*row, errs []error, at time.Time) (succeeded int, down error) {
	s := rows[0].shard
	if s.gone {
		return 0, nil
	}
	l := e.lanes[rows[0].lane]
	l.calling = 0
	for i, r := range rows {
		if errs[i] == nil {
			if e.todo.empty() {
				e.markDue = time.Now().Add(e.cfg.MarkDelay)
			}
			e.todo.published = append(e.todo.published, r)
			e.metrics.published.WithLabelValues(string(r.topic)).Inc()
			e.metrics.latency.Observe(at.Sub(r.born).Seconds())
			succeeded++
			continue
		}
		rest := rows[i:]
		if e.isRejected(errs[i]) {
			s.busy -= len(rest) - 1
			for _, behind := range rest[1:] {
				e.unknow(behind.seq)
			}
			e.reject(l, r, errs[i])
			return succeeded, nil
		}
		s.busy -= len(rest)
		if s.leaving {
			for _, behind := range rest {
				e.unknow(behind.seq)
			}
		} else {
			l.rows = append(append(make([]*row, 0, len(rest)+len(l.rows)), rest...), l.rows...)
		}
		down = errs[i]
		break
	}
	e.queue(l)
	e.tidy(l)
	e.finishLeaving(s)
	return succeeded, down
}

// reject notes that the broker refused a row: its lane waits from now on.
func (e *engine) reject(l *lane, r *row, err error) {
	attempts := r.attempts + 1
	e.metrics.rejected.WithLabelValues(string(r.topic)).Inc()
	e.hold(l, rejection{
		row: r, reason: storable(err.Error()),
		failed: attempts >= e.cfg.MaxAttempts,
		delay:  e.cfg.retryDelay(attempts),
	})
}

func (e *engine) hold(l *lane, r rejection) {
	l.waiting, l.unwritten, l.blockedSince = true, true, r.row.created
	e.dropWaiting(l)
	e.todo.rejected = append(e.todo.rejected, r)
}

// markAt is when to write down what has become of rows. What was published can wait
// a little for more, since the price of a mark is that of the statement and its
// commit rather than that of its rows; nothing waits for it, but a relay that takes
// over publishes once more what is not written down.
func (e *engine) markAt() time.Time {
	waits := len(e.todo.rejected) == 0 && len(e.todo.published) < e.cfg.BatchSize/2
	for _, s := range e.shards {
		waits = waits && !s.leaving
	}
	if waits && e.markDue.After(e.markNext) {
		return e.markDue
	}
	return e.markNext
}

// startMark writes down what has become of rows, if there are any.
func (e *engine) startMark() {
	if e.marking || e.todo.empty() || time.Now().Before(e.markAt()) {
		return
	}
	order := e.todo
	order.era, order.after = e.view.era, e.view.here()
	e.todo = markOrder{}
	e.marking = true
	go func() {
		if e.beforeMark != nil {
			if err := e.beforeMark(e.ctx); err != nil {
				e.marks <- marked{order: order, err: err}
				return
			}
		}
		e.marks <- mark(e.ctx, e.pool, order)
	}()
}

// marked deals with what came of a mark.
func (e *engine) marked(m marked) {
	if m.err != nil {
		// Marking twice does no harm: it touches rows only that are still pending.
		e.todo.published = append(m.order.published, e.todo.published...)
		e.todo.rejected = append(m.order.rejected, e.todo.rejected...)
		for s := range e.shardsOf(m.order) {
			if s.gone {
				e.todo = e.todo.without(s)
			}
		}
		if e.ctx.Err() == nil {
			e.markNext = time.Now().Add(e.database.fault(e.ctx, e.log, m.err))
		}
		return
	}
	crash.At("relay.marked")
	e.database.recovered(e.ctx, e.log)
	e.view.pledged(m.order.era, m.xid, m.order.after)
	for s := range e.shardsOf(m.order) {
		if !s.gone && !m.valid[s.number] {
			e.log.WarnContext(e.ctx, "outbox shard was taken over", "shard", s.number, "token", s.held.Token())
			e.abandon(s)
		}
	}
	for _, r := range m.order.published {
		e.retire(r)
	}
	for _, r := range m.order.rejected {
		e.retire(r.row)
		e.rejectionWritten(r)
	}
	for s := range e.shardsOf(m.order) {
		e.finishLeaving(s)
	}
}

func (e *engine) shardsOf(o markOrder) map[*shard]bool {
	shards := make(map[*shard]bool, Shards)
	for _, r := range o.published {
		shards[r.shard] = true
	}
	for _, r := range o.rejected {
		shards[r.row.shard] = true
	}
	return shards
}

// retire forgets a row that has been written down; when a scan is under way, only
// after that, because it may have seen the row as it was before.
func (e *engine) retire(r *row) {
	if r.shard.gone {
		return
	}
	r.shard.busy--
	if e.scanning {
		e.retired = append(e.retired, r.seq)
		return
	}
	e.unknow(r.seq)
}

func (e *engine) rejectionWritten(r rejection) {
	if r.row.shard.gone {
		return
	}
	if l := e.lanes[r.row.lane]; l != nil {
		l.unwritten, l.writtenAt = false, e.scanCount
	}
	attrs := []any{"event_id", r.row.id, "seq", r.row.seq, "topic", r.row.topic,
		"aggregate_type", r.row.lane.kind, "aggregate_id", r.row.lane.id, "attempts", r.row.attempts + 1, "error", r.reason}
	if r.failed {
		e.metrics.failed.WithLabelValues(string(r.row.topic)).Inc()
		e.metrics.failedRows.Inc()
		e.log.ErrorContext(e.ctx, "outbox event failed, its aggregate waits until it is resolved", attrs...)
		return
	}
	e.log.WarnContext(e.ctx, "outbox event was rejected", append(attrs, "retry_in", r.delay)...)
	e.schedule.sweepBy(time.Now().Add(r.delay))
}

// outage is the state of something that can be unreachable: when to try again,
// and whether it was said in the log.
type outage struct {
	what     string
	wait     time.Duration
	until    time.Time
	reported bool
}

const (
	outageWaitMin = 50 * time.Millisecond
	outageWaitMax = 5 * time.Second
)

// fault notes a failure and returns how long to wait: 50 ms, 100 ms ... 5 s.
func (o *outage) fault(ctx context.Context, log logger, err error) time.Duration {
	o.wait = min(max(o.wait*2, outageWaitMin), outageWaitMax)
	o.until = time.Now().Add(o.wait)
	if !o.reported && !errors.Is(err, context.Canceled) {
		o.reported = true
		log.WarnContext(ctx, "outbox relay waits", "for", o.what, "error", err)
	}
	return o.wait
}

func (o *outage) recovered(ctx context.Context, log logger) {
	if o.reported {
		log.InfoContext(ctx, "outbox relay goes on", "after", o.what)
	}
	o.wait, o.until, o.reported = 0, time.Time{}, false
}
