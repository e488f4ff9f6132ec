package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/history"
	"github.com/millrace/millrace/internal/history/linear"
	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/topics"
)

// Concurrent clients do to the executions whatever can be done to them, over
// connections that break in the middle of commits, while leases are taken from
// workers and admitters that do not know it. Everything that they are told must be
// explained by the models of package linear.
func TestAnswersAreThoseOfTheModels(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			r := ride(t, seed, "")
			require.NoError(t, linear.CheckLeases(r.leases(), time.Minute))
			require.NoError(t, linear.CheckCapacity(r.capacity(), rideLimit, time.Minute))
			assert.Empty(t, history.Judge(r.history, history.Rules{
				Capacity: map[string]history.Resources{"default": {Slots: rideLimit}}, Settled: true,
			}))
		})
	}
}

// The models find the defects that they are there for.
func TestModelsFindPlantedDefects(t *testing.T) {
	t.Parallel()
	for defect, check := range map[string]func(r *rideLog) error{
		unchecked:     func(r *rideLog) error { return linear.CheckLeases(r.leases(), time.Minute) },
		admittedTwice: func(r *rideLog) error { return linear.CheckLeases(r.leases(), time.Minute) },
		freedTwice:    func(r *rideLog) error { return linear.CheckCapacity(r.capacity(), rideLimit, time.Minute) },
	} {
		t.Run(defect, func(t *testing.T) {
			t.Parallel()
			require.ErrorContains(t, check(ride(t, 7, defect)), "no order explains")
		})
	}
}

// The defects that can be planted.
const (
	unchecked     = "the attempt of a report is not checked"
	admittedTwice = "an attempt is admitted twice"
	freedTwice    = "capacity is freed twice"
)

const (
	rideExecutions = 40
	// rideLimit is the configured limit of the class; the workers announce 3 to 6
	// slots each.
	rideLimit = 9
	// rideAttempts is after how many attempts an execution is left alone, so that it
	// comes to its end.
	rideAttempts = 5
	rideLease    = "admitter:default"
)

// rideLog is everything that was noted of a run.
type rideLog struct {
	t       *testing.T
	defect  string
	seed    uint64
	store   *store.Store
	pool    *pgxpool.Pool // over connections that break
	sound   *bench        // over sound ones
	clock   *linear.Recorder
	history history.History
	done    atomic.Bool
	// planted says that the defect has been made once.
	planted atomic.Bool

	mu     sync.Mutex
	ids    []string
	refs   []store.Ref        // of all claims that there ever were
	told   map[store.Ref]bool // those whose worker was told
	doubts map[string][]span  // claims of workers that were told nothing
	rounds map[string]span
	sweeps []span
	frees  []freeing
	uses   []use
	holds  map[int][]*lease.Held // by client
	// memories are what each client remembers under each of its leases.
	memories map[*lease.Held]*store.Memory
	inFlow   int
}

// span is the time of a call, and what it is known by.
type span struct {
	client         int
	call, returned int64
	outcome        linear.Outcome
	token          int64
}

// freeing is a call that may have freed what an execution held: a report about an
// attempt, or a cancel, whose attempt is 0.
type freeing struct {
	span
	id      string
	attempt int
}

type use struct {
	span
	use linear.Use
}

// ride lets the clients loose on a database of their own until all executions have
// ended.
func ride(t *testing.T, seed uint64, defect string) *rideLog {
	t.Helper()
	dsn := testenv.Database(t, postgres.MigrateDSN)
	breaks := &breaker{rng: rand.New(rand.NewPCG(seed, 1)), odds: 12}
	r := &rideLog{
		t: t, defect: defect, seed: seed, clock: linear.NewRecorder(), rounds: map[string]span{},
		told: map[store.Ref]bool{}, doubts: map[string][]span{}, holds: map[int][]*lease.Held{}, memories: map[*lease.Held]*store.Memory{},
		sound: openBench(t, dsn), pool: breaks.open(t, dsn),
	}
	policy := execution.DefaultPolicy()
	policy.LeaseRetryBackoff, policy.MaxDeliveries = 0, 100
	r.store = store.New(r.pool, noWaker{}, policy)
	r.clients()
	r.readHistory()
	return r
}

// clients runs them all to the end.
func (r *rideLog) clients() {
	r.t.Helper()
	var all sync.WaitGroup
	deadline := time.AfterFunc(5*time.Minute, func() { r.done.Store(true) })
	defer deadline.Stop()
	submitted := make(chan struct{})
	client := 0
	start := func(fn func(client int, rng *rand.Rand)) {
		client++
		n := client
		all.Go(func() {
			rng := rand.New(rand.NewPCG(r.seed, uint64(100+n)))
			fn(n, rng)
		})
	}
	start(func(n int, rng *rand.Rand) { r.submitAll(n, rng); close(submitted) })
	loop := func(times int, fn func(client int, rng *rand.Rand)) {
		for range times {
			start(func(n int, rng *rand.Rand) {
				for !r.done.Load() {
					fn(n, rng)
				}
			})
		}
	}
	loop(2, r.queueSome)
	loop(2, r.admitRound)
	loop(3, r.work)
	loop(2, r.sweep)
	loop(1, r.harm)
	loop(1, r.cancel)
	loop(2, r.read)
	<-submitted
	for !r.done.Load() {
		var open int
		err := r.sound.pool.QueryRow(r.t.Context(), `SELECT count(*) FROM executions WHERE finished_at IS NULL AND state NOT IN ('COMPLETED')`).Scan(&open)
		r.done.CompareAndSwap(false, err != nil || open == 0)
	}
	all.Wait()
	for _, mine := range r.holds {
		for _, h := range mine {
			_ = h.Release(r.t.Context()) // most are lost
		}
	}
}

// note notes a call on one execution.
func (r *rideLog) note(client int, call int64, c linear.Call, a linear.Answer) {
	r.clock.Note(client, call, c, a, r.clock.Now())
}

func (r *rideLog) submitAll(client int, rng *rand.Rand) {
	for n := 0; n < rideExecutions; {
		var batch []topics.Request
		for range min(1+rng.IntN(4), rideExecutions-n) {
			batch = append(batch, request(func(req *topics.Request) {
				req.IdempotencyKey = fmt.Sprint("ride-", n)
				req.Requirements.Slots = 1 + rng.IntN(3)
				req.Priority = 1 + rng.IntN(5)
				req.Retry = topics.Retry{MaxAttempts: 100, Backoff: 1}
				if rng.IntN(4) == 0 {
					req.ConcurrencyKey = fmt.Sprint("key-", rng.IntN(3))
				}
			}))
			n++
		}
		call := r.clock.Now()
		var results []store.Submitted
		for err := errors.New("not yet"); err != nil && !r.done.Load(); {
			results, err = r.store.Submit(r.t.Context(), batch) // a commit in doubt is found by its key
		}
		for _, s := range results {
			if !assert.NoError(r.t, s.Err) {
				continue
			}
			r.note(client, call, linear.Call{Kind: linear.Submit, Execution: s.Execution.ID}, linear.Answer{Outcome: linear.Accepted})
			r.mu.Lock()
			r.ids = append(r.ids, s.Execution.ID)
			r.mu.Unlock()
		}
	}
}

// some draws known executions.
func (r *rideLog) some(rng *rand.Rand, n int) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ids []string
	for range min(n, len(r.ids)) {
		ids = append(ids, r.ids[rng.IntN(len(r.ids))])
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// readHistory reads the events when all is over.
func (r *rideLog) readHistory() {
	r.t.Helper()
	var err error
	r.history, err = history.Read(r.t.Context(), r.sound.pool, history.Outbox)
	require.NoError(r.t, err)
	if r.defect == "" {
		for _, l := range r.history.Lives {
			require.True(r.t, l.State.Terminal(), "%s is %s when the time is over", l.ID, l.State)
		}
	} else {
		require.True(r.t, r.planted.Load(), "there was no occasion for the defect")
	}
}

// madeBy names the round of an admission: its number within the run.
func (r *rideLog) madeBy(e history.Event) (span, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.rounds[e.Admitter]
	return s, ok
}

// sweptAt returns the time of the sweeps that may have made an event.
func (r *rideLog) sweptAt(e history.Event) span {
	const tolerance = int64(50 * time.Millisecond)
	at := r.clock.At(e.At)
	found := span{call: linear.Forever, outcome: linear.Accepted}
	for _, s := range r.sweeps {
		if s.call-tolerance <= at && at-tolerance <= s.returned { // which may be Forever
			found.client, found.call, found.returned = s.client, min(found.call, s.call), max(found.returned, s.returned)
		}
	}
	return found
}

// leases is the history for the model of leases: what was noted, and from the events
// what rounds and sweeps did to each execution.
func (r *rideLog) leases() []operation {
	ops := r.clock.Operations()
	for _, l := range r.history.Lives {
		for i, e := range l.Events {
			c := linear.Call{Execution: l.ID, Attempt: e.Attempt}
			var when span
			switch {
			case e.Type == history.Scheduled:
				s, ok := r.madeBy(e)
				require.True(r.t, ok, "nobody called for the admission by %q", e.Admitter)
				c.Kind, when = linear.Admit, s
			case e.Type == history.Expired && i+1 < len(l.Events):
				c.Kind, c.Leads, when = linear.Expire, leads(l.Events[i+1]), r.sweptAt(e)
			case e.Type == history.Requeued && e.Cause == "start_limit":
				c.Kind, c.Attempt, c.Leads, when = linear.Expire, e.Attempt-1, execution.Queued, r.sweptAt(e)
			case e.Type == history.Started && !r.told[store.Ref{ID: l.ID, Attempt: e.Attempt}]:
				c.Kind, c.Worker, when = linear.Claim, e.Worker, r.doubtful(e)
			default:
				continue
			}
			require.NotEqual(r.t, linear.Forever, when.call, "no call made event %d of %s", e.Sequence, l.ID)
			ops = append(ops, operation{ClientId: when.client, Call: when.call, Input: c, Output: linear.Answer{Outcome: linear.Accepted}, Return: when.returned})
		}
	}
	return ops
}

// doubtful is the time of the claims that may have led to an event although their
// worker was not told.
func (r *rideLog) doubtful(e history.Event) span {
	found := span{call: linear.Forever, returned: linear.Forever}
	for _, s := range r.doubts[e.Worker] {
		found.client, found.call = s.client, min(found.call, s.call)
	}
	return found
}

func leads(e history.Event) execution.State {
	to, _ := execution.StateAfter("millrace.execution." + e.Type + ".v1")
	return to
}

// capacity is the history for the model of capacity.
func (r *rideLog) capacity() []operation {
	var ops []operation
	add := func(s span, u linear.Use) {
		ops = append(ops, operation{ClientId: s.client, Call: s.call, Input: u, Output: linear.Told{Outcome: s.outcome}, Return: s.returned})
	}
	for _, u := range r.uses {
		add(u.span, u.use)
	}
	admitted := map[string]map[string]int64{}
	for _, l := range r.history.Lives {
		for i, e := range l.Events {
			if e.Type != history.Scheduled {
				continue
			}
			if admitted[e.Admitter] == nil {
				admitted[e.Admitter] = map[string]int64{}
			}
			admitted[e.Admitter][fmt.Sprint(l.ID, "/", e.Attempt)] = l.Needs().Slots
			for _, later := range l.Events[i+1:] {
				if later.Final() || later.Type == history.Requeued {
					add(r.freedBy(l, e.Attempt, later), linear.Use{Kind: linear.Freed, Executions: map[string]int64{fmt.Sprint(l.ID, "/", e.Attempt): 0}})
					break
				}
			}
		}
	}
	for name, executions := range admitted {
		s := r.rounds[name]
		s.outcome = linear.Accepted // the events say so
		add(s, linear.Use{Kind: linear.Admission, Token: s.token, Executions: executions})
	}
	return ops
}

// freedBy finds the call whose event freed an attempt: the one that was told so, or
// else all the time within which it may have been one that was told nothing.
func (r *rideLog) freedBy(l *history.Life, attempt int, e history.Event) span {
	const tolerance = int64(50 * time.Millisecond)
	found := r.sweptAt(e)
	for _, f := range r.frees {
		switch {
		case f.id != l.ID, f.attempt == 0 && e.Type != history.Cancelled, f.attempt != 0 && f.attempt != attempt,
			f.call > r.clock.At(e.At)+tolerance:
		case f.outcome == linear.Accepted:
			return f.span
		default:
			found.call, found.returned = min(found.call, f.call), linear.Forever
		}
	}
	require.NotEqual(r.t, linear.Forever, found.call, "no call made %s of %s", e.Type, l.ID)
	return found
}

// known reports whether an error says for certain that nothing happened.
func known(err error) bool {
	return err == nil || errors.Is(err, execution.ErrTerminal) || errors.Is(err, execution.ErrStaleAttempt) ||
		errors.Is(err, execution.ErrIllegal) || strings.Contains(err.Error(), lease.ErrLost.Error())
}

func (r *rideLog) ctx() context.Context { return r.t.Context() }
