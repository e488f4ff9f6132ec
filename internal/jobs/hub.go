package jobs

import (
	"container/list"
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// contendedMin is how long waiting claims pause at least when others had locked what
	// there was.
	contendedMin = 3 * time.Millisecond
	// releaseTimeout bounds the giving back of jobs whose caller has gone.
	releaseTimeout = 10 * time.Second
)

// hub has claims wait for jobs, and has those that wait for the same types share
// statements. There is a lane for each set of types that somebody asks for.
//
// No wake-up is lost: a lane that is woken runs a statement after the wake-up, and the
// statement sees what was committed before. When it could not take all that there may
// be, because it had no more slots, it wakes another lane, or else other processes.
type hub struct {
	store *Store

	mu     sync.Mutex
	lanes  map[string]*lane
	closed bool
	// due is when jobs of a type that nobody may claim yet become due, the next of each.
	due map[string]dueTimer
	// quiet has the lanes for which there is nothing, with their types: see calm. It is only
	// kept while watching.
	quiet    map[string][]string
	watching bool
	// turn rotates types, so that none comes first for ever.
	turn int
	// arrivals numbers waiters.
	arrivals uint64
}

type dueTimer struct {
	at    time.Time
	timer *time.Timer
}

// lane is those who ask for the same set of types, first come, first served.
type lane struct {
	key   string
	types []string
	// waiters holds *waiter, the first to be served in front.
	waiters *list.List
	// running is true while a goroutine claims for the lane.
	running bool
	// dirty is true when there may be jobs that no statement has looked for yet.
	dirty bool
	// stale is set when somebody has told of a job since the last statement began.
	stale bool
	// retry looks again after a pause, at retryAt; nil: that is not asked for.
	retry   *time.Timer
	retryAt time.Time
}

type waiter struct {
	request ClaimRequest
	arrival uint64
	// patient waiters stay when there is nothing.
	patient bool
	// claiming is true while a statement may be getting jobs for it, gone when nobody
	// waits for these any more.
	claiming, gone bool
	lane           *lane
	place          *list.Element
	answer         chan answer
}

type answer struct {
	jobs []Job
	err  error
}

func newHub(s *Store) *hub {
	return &hub{store: s, lanes: make(map[string]*lane), quiet: make(map[string][]string), due: make(map[string]dueTimer)}
}

// claim waits in the lane of its types for an answer.
func (h *hub) claim(ctx context.Context, r ClaimRequest) ([]Job, error) {
	w := h.join(r)
	var over <-chan time.Time
	if r.Wait > 0 { // w.patient is the hub's from now on: a shutdown may just be ending it
		timer := time.NewTimer(r.Wait)
		defer timer.Stop()
		over = timer.C
	}
	for {
		select {
		case a := <-w.answer:
			return a.jobs, a.err
		case <-ctx.Done():
			return h.leave(ctx, w)
		case <-over:
			over = nil
			h.lose(w)
		}
	}
}

func (h *hub) join(r ClaimRequest) *waiter {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.lane(r.Types)
	h.arrivals++
	w := &waiter{request: r, arrival: h.arrivals, patient: r.Wait > 0 && !h.closed, lane: l, answer: make(chan answer, 1)}
	w.place = l.waiters.PushBack(w)
	h.look(l, w)
	return w
}

// lane returns the lane of some types. The caller holds the lock.
func (h *hub) lane(types []string) *lane {
	key := strings.Join(types, "\x00")
	l := h.lanes[key]
	if l == nil {
		l = &lane{key: key, types: types, waiters: list.New()}
		h.lanes[key] = l
	}
	return l
}

// lose ends the patience of a waiter: it takes what the statement brings that runs, or
// the next one.
func (h *hub) lose(w *waiter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w.patient = false
	// A lane that runs answers it when its statements have shown that there is nothing.
	if w.place != nil && !w.lane.running {
		h.answer(w, answer{}, outcomeEmpty)
	}
}

// leave takes a waiter away whose context has ended. Jobs that it was given already are
// its own; those that are on their way go back.
func (h *hub) leave(ctx context.Context, w *waiter) ([]Job, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case a := <-w.answer:
		return a.jobs, a.err
	default:
	}
	w.gone = true
	if !w.claiming {
		w.lane.remove(w)
	}
	return nil, ctx.Err()
}

// answer ends a waiter's wait. The caller holds the lock.
func (h *hub) answer(w *waiter, a answer, outcome string) {
	w.lane.remove(w)
	w.answer <- a
	h.store.metrics.answered(outcome)
}

func (l *lane) remove(w *waiter) {
	if w.place != nil {
		l.waiters.Remove(w.place)
		w.place = nil
	}
}

// start has a lane look for jobs. The caller holds the lock.
func (h *hub) start(l *lane) {
	l.dirty = true
	if !l.running {
		l.running = true
		go h.run(l)
	}
}

// run claims for a lane until nobody waits or there is nothing.
func (h *hub) run(l *lane) {
	for {
		h.mu.Lock()
		if !l.dirty || l.waiters.Len() == 0 {
			more := l.dirty
			h.stop(l)
			h.mu.Unlock()
			if more {
				h.passOn(l)
			}
			return
		}
		l.dirty, l.stale = false, false
		delete(h.quiet, l.key)
		group, workers, leases := l.group()
		h.turn++
		types := rotated(l.types, h.turn)
		last := h.arrivals
		h.mu.Unlock()

		o, err := h.store.take(types, workers, leases)
		h.settle(l, group, last, len(workers), o, err)
	}
}

// stop ends the running of a lane, and the lane when nobody waits in it. The caller holds
// the lock.
func (h *hub) stop(l *lane) {
	l.running, l.dirty = false, false
	h.drop(l)
}

// drop forgets a lane that nobody waits in. The caller holds the lock.
func (h *hub) drop(l *lane) {
	if l.running || l.waiters.Len() > 0 {
		return
	}
	delete(h.lanes, l.key)
	if l.retry != nil {
		l.retry.Stop()
	}
}

// group returns the first waiters and one slot for each job that they ask for.
func (l *lane) group() (group []*waiter, workers []string, leases []int32) {
	for e := l.waiters.Front(); e != nil && len(workers) < MaxJobs; e = e.Next() {
		w := e.Value.(*waiter)
		w.claiming = true
		group = append(group, w)
		for range min(w.request.Max, MaxJobs-len(workers)) {
			workers, leases = append(workers, w.request.WorkerID), append(leases, int32(w.request.Lease.Milliseconds()))
		}
	}
	return group, workers, leases
}

func rotated(types []string, by int) []string {
	n := by % len(types)
	return slices.Concat(types[n:], types[:n])
}

// settle deals what a statement has brought to the waiters that it ran for.
func (h *hub) settle(l *lane, group []*waiter, last uint64, asked int, o outcome, err error) {
	full := err == nil && len(o.jobs) == asked
	var orphans []Job
	h.mu.Lock()
	from, next := 0, 0
	for _, w := range group {
		w.claiming = false
		from += w.request.Max
		var own []Job
		for next < len(o.jobs) && o.jobs[next].slot < from {
			own = append(own, o.jobs[next].Job)
			next++
		}
		switch {
		case w.gone:
			orphans = append(orphans, own...)
			l.remove(w)
		case len(own) > 0:
			h.answer(w, answer{jobs: own}, outcomeClaimed)
		}
	}
	if !full {
		// There is no more, so whoever came before the statement has had its turn.
		h.tell(l, last, o, err)
	}
	l.dirty = l.dirty || full
	if err == nil {
		h.calm(l, o)
	}
	h.later(l, o)
	h.mu.Unlock()

	h.store.metrics.claimed(o.jobs)
	if len(orphans) > 0 {
		h.giveBack(orphans)
	}
}

// tell answers those who do not wait any longer, or everybody with an error.
func (h *hub) tell(l *lane, last uint64, o outcome, err error) {
	outcome := outcomeEmpty
	switch {
	case err != nil:
		outcome = outcomeFailed
	case o.contended:
		outcome = outcomeContended
	}
	for e := l.waiters.Front(); e != nil; {
		w := e.Value.(*waiter)
		e = e.Next()
		if w.arrival <= last && (err != nil || !w.patient) {
			h.answer(w, answer{err: err}, outcome)
		}
	}
}

// later has a lane look again soon when others had locked what there was, or a limit
// lets something through after a while. The caller holds the lock.
func (h *hub) later(l *lane, o outcome) {
	if l.waiters.Len() == 0 {
		return
	}
	pause := o.again
	if o.contended {
		pause = contendedMin + rand.N(2*contendedMin)
	}
	at := time.Now().Add(pause)
	switch {
	case pause <= 0:
	case l.retry == nil:
		l.retryAt = at
		l.retry = time.AfterFunc(pause, func() { h.nudge(l) })
	case at.Before(l.retryAt):
		l.retryAt = at
		l.retry.Reset(pause)
	}
}

func (h *hub) nudge(l *lane) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l.retry = nil
	if h.lanes[l.key] == l && l.waiters.Len() > 0 {
		h.start(l)
	}
}

// passOn has somebody else look for jobs of a lane's types, of which there may be more
// than the lane can take: another lane, or else another process.
func (h *hub) passOn(l *lane) {
	for _, t := range l.types {
		if h.wakeBut(t, 1, l) == 0 {
			h.store.signals.Wake(typeWakePrefix + t)
		}
	}
}

// wake wakes as many of those who wait for a type as it takes for n jobs, and returns
// how many jobs they can take.
func (h *hub) wake(jobType string, n int) int { return h.wakeBut(jobType, n, nil) }

func (h *hub) wakeBut(jobType string, n int, but *lane) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stir(jobType)
	var asking []*lane
	for _, l := range h.lanes {
		l.stale = l.stale || slices.Contains(l.types, jobType)
		if l != but && l.waiters.Len() > 0 && slices.Contains(l.types, jobType) {
			asking = append(asking, l)
		}
	}
	slices.SortFunc(asking, func(a, b *lane) int { return int(a.first()) - int(b.first()) })
	room := 0
	for _, l := range asking {
		if room >= n {
			break
		}
		h.start(l)
		room += l.room(n - room)
	}
	return room
}

func (l *lane) first() uint64 { return l.waiters.Front().Value.(*waiter).arrival }

// room is how many jobs those who wait can take, counted up to enough.
func (l *lane) room(enough int) int {
	room := 0
	for e := l.waiters.Front(); e != nil && room < enough; e = e.Next() {
		room += e.Value.(*waiter).request.Max
	}
	return room
}

// wakeAll has every lane look that somebody waits in.
func (h *hub) wakeAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.quiet)
	for _, l := range h.lanes {
		l.stale = true
		if l.waiters.Len() > 0 {
			h.start(l)
		}
	}
}

// heard takes the signals of other processes.
func (h *hub) heard(name string) {
	jobType := strings.TrimPrefix(name, typeWakePrefix)
	if jobType == "" {
		h.wakeAll()
		return
	}
	// How many there are is not said; who finds more than it can take wakes the next.
	h.wake(jobType, 1)
}

// dueAt notes that a job of a type can be claimed from a time on.
func (h *hub) dueAt(jobType string, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	known, ok := h.due[jobType]
	if h.closed || ok && !at.Before(known.at) {
		return
	}
	if ok {
		known.timer.Stop()
	}
	h.due[jobType] = dueTimer{at, time.AfterFunc(time.Until(at)+time.Millisecond, func() { h.isDue(jobType, at) })}
}

func (h *hub) isDue(jobType string, at time.Time) {
	h.mu.Lock()
	if h.due[jobType].at.Equal(at) {
		delete(h.due, jobType)
	}
	h.mu.Unlock()
	h.store.Woken([]string{jobType})
}

// giveBack releases jobs that were claimed for callers who had gone by then.
func (h *hub) giveBack(list []Job) {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	holders := make([]Holder, len(list))
	for i, j := range list {
		holders[i] = Holder{JobID: j.ID, WorkerID: j.WorkerID, Token: j.Token}
	}
	if err := h.store.Release(ctx, holders); err != nil {
		h.store.log.WarnContext(ctx, "jobs of a caller that has gone could not be given back, their leases will run out", "jobs", len(list), "error", err)
	}
}

// close answers those who wait, and keeps everybody from waiting.
func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for t, d := range h.due {
		d.timer.Stop()
		delete(h.due, t)
	}
	for _, l := range h.lanes {
		for e := l.waiters.Front(); e != nil; {
			w := e.Value.(*waiter)
			e = e.Next()
			w.patient = false
			if !l.running {
				h.answer(w, answer{}, outcomeEmpty)
			}
		}
		if !l.running {
			h.stop(l)
		}
	}
}

// waiting counts those whose claims have found nothing so far.
func (h *hub) waiting() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, l := range h.lanes {
		if !l.running {
			n += l.waiters.Len()
		}
	}
	return n
}
