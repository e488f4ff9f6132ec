package replay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/crash"
	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/secret"
	"github.com/millrace/millrace/topics"
)

// run is one session at work. Its keeper starts it, tells it of changes, and ends it.
type run struct {
	keeper *Keeper
	held   *lease.Held
	log    *slog.Logger

	session Session
	pace    pace
	meter   meter
	// kept is when the cursor was last moved for nothing but what was passed over.
	kept time.Time

	// halt ends what may be interrupted: reading and waiting, never publishing.
	halt  context.CancelFunc
	going context.Context

	mu sync.Mutex
	// rate is what is wanted, changed tells of it.
	rate    float64
	changed chan struct{}
}

const (
	// keepEvery is how often the cursor is kept while nothing is chosen.
	keepEvery = time.Second
	// keepTimeout is how long keeping the cursor may take, also after a stop was asked for.
	keepTimeout = 10 * time.Second
	backoffMin  = 200 * time.Millisecond
	backoffMax  = 10 * time.Second
)

func (k *Keeper) newRun(ctx context.Context, held *lease.Held, s Session) *run {
	r := &run{
		keeper: k, held: held, session: s, rate: s.Rate, changed: make(chan struct{}, 1),
		log: k.log.With("session", s.ID.String()),
	}
	r.going, r.halt = context.WithCancel(ctx)
	return r
}

// setRate changes the rate of a session at work.
func (r *run) setRate(rate float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rate == rate {
		return
	}
	r.rate = rate
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

func (r *run) wantedRate() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rate
}

// work publishes until the session is over, is to pause, or the lease is lost. What
// keeps it from going on and may pass is waited out.
func (r *run) work(ctx context.Context) {
	defer r.halt()
	backoff := backoffMin
	for r.going.Err() == nil {
		began := r.session.Published
		err := r.attempt(ctx)
		switch {
		case err == nil || r.going.Err() != nil:
			return
		case errors.Is(err, lease.ErrLost):
			r.log.WarnContext(ctx, "a replay is left to another process", "cause", err)
			return
		case errors.Is(err, ErrGone):
			r.log.WarnContext(ctx, "a replay has stopped", "cause", err)
			if err := r.keeper.store.settle(ctx, r.held, r.session.ID, Stop, explain(err)); err == nil {
				return
			}
		default:
			if r.session.Published > began {
				backoff = backoffMin
			}
			r.log.WarnContext(ctx, "a replay cannot go on now, it will be repeated", "cause", err, "retry_in", backoff)
			r.keeper.metrics.faults.Inc()
			r.keeper.store.note(ctx, r.session.ID, "waits: "+explain(err))
		}
		r.sleep(backoff)
		backoff = min(backoff*2, backoffMax)
	}
}

// explain is an error as people may see it.
func explain(err error) string {
	const most = 1000
	t := text(secret.Redact(err.Error()))
	if len(t) > most {
		t = text(t[:most])
	}
	return t
}

// sleep waits, until the session is to end.
func (r *run) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-r.going.Done():
	case <-timer.C:
	}
}

// attempt goes on where the session stands in the database: what this process thinks
// may be out of date, after an error, or never have been true.
func (r *run) attempt(ctx context.Context) error {
	s, err := r.keeper.store.take(ctx, r.held, r.session.ID)
	if err != nil || s.State != Running {
		return err
	}
	r.session = s
	r.pace.set(s.Rate, time.Now())
	feed, err := r.keeper.store.cfg.Sources[s.Source].Open(r.going, s.Filter, s.Cursor)
	if err != nil {
		return err
	}
	defer feed.Close()
	return r.publishAll(ctx, newMerge(feed, s.Cursor))
}

// publishAll publishes chunk by chunk. It returns nil when nothing is left to do here.
func (r *run) publishAll(ctx context.Context, m *merge) error {
	var skipped int64 // since the cursor was kept
	for {
		if !r.await() {
			return nil
		}
		b := batch{next: r.session.Cursor, over: true} // if all that was wanted is published
		if n := r.size(); n > 0 {
			var err error
			if b, err = m.nextBatch(r.going, n); r.going.Err() != nil {
				return nil
			}
			if err != nil {
				return err
			}
		}
		skipped += b.skipped
		if len(b.records) == 0 && !b.over && time.Since(r.kept) < keepEvery {
			continue
		}
		b.skipped, skipped = skipped, 0
		sent, err := r.publish(ctx, b.records)
		if err != nil {
			return err
		}
		more, err := r.advance(ctx, b, sent)
		if err != nil || !more {
			return err
		}
	}
}

// size is how many events to publish next.
func (r *run) size() int {
	n := r.pace.chunk()
	if r.session.Max > 0 {
		n = min(n, int(min(r.session.Max-r.session.Published, maxChunk)))
	}
	return n
}

// await waits until the next events are due, by whatever rate is wanted then. It
// reports false when the session is to end here.
func (r *run) await() bool {
	for {
		now := time.Now()
		r.pace.set(r.wantedRate(), now)
		wait := r.pace.wait(now)
		if wait <= 0 {
			return r.going.Err() == nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-r.going.Done():
			timer.Stop()
			return false
		case <-r.changed:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// sent is what became of a chunk.
type sent struct {
	published int
	refused   []Refused
}

// publish publishes a chunk, all of it: what fails for a reason that may pass is sent
// again. A lease that is no longer to be relied on keeps it from beginning; what is on
// its way then arrives or not, and is published once more by whoever goes on.
func (r *run) publish(ctx context.Context, records []topics.Record) (sent, error) {
	var out sent
	if len(records) == 0 {
		return out, nil
	}
	if r.held.Remaining() <= 0 {
		return out, fmt.Errorf("publish: %w", lease.ErrLost)
	}
	emitted := make([]topics.Record, len(records))
	for i, rec := range records {
		emitted[i] = r.session.emit(rec)
	}
	crash.At("replay.publishing")
	todo := indices(len(records))
	for backoff := backoffMin; ; backoff = min(backoff*2, backoffMax) {
		failed, err := r.send(ctx, records, emitted, todo, &out)
		if len(failed) == 0 {
			break
		}
		r.keeper.metrics.faults.Inc()
		r.keeper.store.note(ctx, r.session.ID, "waits: "+explain(err))
		r.log.WarnContext(ctx, "a replay cannot publish now, it will be repeated", "cause", err, "retry_in", backoff)
		r.sleep(backoff)
		if r.going.Err() != nil || r.held.Remaining() <= 0 {
			return out, fmt.Errorf("publish to %s: %w", r.session.Target.Topic, err)
		}
		todo = failed
	}
	out.published = len(records) - len(out.refused)
	crash.At("replay.published")
	return out, nil
}

// send publishes some records of a chunk, and returns those that have to be sent again,
// and why.
func (r *run) send(ctx context.Context, records, emitted []topics.Record, todo []int, out *sent) (failed []int, last error) {
	some := make([]topics.Record, len(todo))
	for i, at := range todo {
		some[i] = emitted[at]
	}
	for i, err := range r.keeper.cfg.Publisher.PublishRecords(ctx, some) {
		switch {
		case err == nil:
		case r.keeper.cfg.IsRejected(err):
			rec := records[todo[i]]
			out.refused = append(out.refused, Refused{rec.Topic, rec.Partition, rec.Offset, explain(err)})
		default:
			failed, last = append(failed, todo[i]), err
		}
	}
	return failed, last
}

func indices(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// advance keeps how far the session is, and reports whether it goes on.
func (r *run) advance(ctx context.Context, b batch, s sent) (more bool, err error) {
	now := time.Now()
	r.pace.published(s.published, now)
	next := r.session
	next.Cursor = b.next
	next.Published += int64(s.published)
	next.Skipped += b.skipped
	next.Refused += int64(len(s.refused))
	next.Refusals = append(next.Refusals[:len(next.Refusals):len(next.Refusals)], s.refused...)
	next.Refusals = next.Refusals[:min(len(next.Refusals), maxRefusals)]
	next.Speed = r.meter.count(s.published, now)
	over := b.over || next.Max > 0 && next.Published >= next.Max
	// A stop that was asked for meanwhile does not undo what has been published.
	keeping, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepTimeout)
	defer cancel()
	state, err := r.keeper.store.advance(keeping, r.held, next, over)
	if err != nil {
		return false, err
	}
	r.session, r.kept = next, now
	r.keeper.metrics.count(s, b.skipped)
	if s.published > 0 {
		crash.At("replay.advanced")
	}
	if over && state == Done {
		r.log.InfoContext(ctx, "a replay is done", "published", next.Published, "refused", next.Refused)
	}
	return state == Running && !over, nil
}
