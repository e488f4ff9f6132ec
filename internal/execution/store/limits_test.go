package store_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/limits"
	"github.com/millrace/millrace/topics"
)

func slow(name string, burst int) limits.Definition {
	return limits.Definition{Name: name, Per: limits.PerUser, Rate: limits.Rate{Tokens: 1, Per: time.Hour}, Burst: burst, Action: limits.Queue}
}

// One user's tokens are spent once each, whoever decides; nobody else waits for them.
func TestTokensAreSpentOnceByAllAdmitters(t *testing.T) {
	t.Parallel()
	b := setup(t)
	set := limitSet(t, slow("hourly", 100))
	classes := []string{"default", "gpu", "long"}
	var wg sync.WaitGroup
	for _, c := range classes {
		b.announceClass(c, 100)
		// More than there are tokens: whichever is first, something waits in each class.
		require.NoError(t, b.queueUnder(store.Rules{Limits: set}, b.submitN(101, user("ann"), class(c))...))
	}
	var admitted atomic.Int64
	for _, c := range classes {
		memory := &store.Memory{}
		wg.Go(func() {
			for range 101 {
				out, err := b.Admit(t.Context(), round(under(set), func(a *store.Admission) { a.Class, a.Memory, a.Max = c, memory, 1 }))
				assert.NoError(t, err)
				admitted.Add(int64(out.Executions))
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, 100, admitted.Load())
	assert.Equal(t, 100, b.count(`state = 'SCHEDULED'`))

	require.NoError(t, b.queueUnder(store.Rules{Limits: set}, b.submitN(2, user("bob"))...))
	out := b.admitted(round(under(set)))
	assert.Equal(t, 2, out.Executions, "another user has tokens of their own")
	assert.Greater(t, out.Wait, 59*time.Minute, "it is told when the next token comes")

	// An hour later.
	_, err := b.pool.Exec(t.Context(), `UPDATE limit_buckets SET tat_nanos = tat_nanos - 3600 * 1000000000::bigint`)
	require.NoError(t, err)
	assert.Equal(t, 1, b.admitted(round(under(set))).Executions)
	b.balanced()
}

// What fails after it has spent has spent nothing.
func TestARoundThatFailsSpendsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	set := limitSet(t, slow("hourly", 5))
	b.announceClass("default", 100)
	memory := &store.Memory{}
	b.queue(b.submitN(1, user("before"))...)
	require.Equal(t, 1, b.admitted(round(under(set), func(a *store.Admission) { a.Memory, a.Max = memory, 1 })).Executions)
	require.NoError(t, b.queueUnder(store.Rules{Limits: set}, b.submitN(9)...))
	fails := func() {
		_, err := b.Admit(t.Context(), round(under(set), func(a *store.Admission) { a.Memory = memory }))
		require.Error(t, err)
	}
	for _, table := range []string{"executions", "outbox_events", "limit_buckets", "admission_ledger"} {
		_, err := b.pool.Exec(t.Context(), fmt.Sprintf(`
			CREATE FUNCTION refuse_%[1]s() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$;
			CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON %[1]s FOR EACH ROW EXECUTE FUNCTION refuse_%[1]s()`, table))
		require.NoError(t, err)
		fails()
		_, err = b.pool.Exec(t.Context(), fmt.Sprintf(`DROP TRIGGER refuse ON %s`, table))
		require.NoError(t, err)
		b.balanced()
		assert.Equal(t, 1, b.count(`state <> 'QUEUED'`))
	}
	assert.Equal(t, 5, b.admitted(round(under(set), func(a *store.Admission) { a.Memory = memory })).Executions)
	assert.Zero(t, b.admitted(round(under(set), func(a *store.Admission) { a.Memory = memory })).Executions)
	b.balanced()
}

// A limit of concurrency counts the executions of all classes.
func TestConcurrencyCountsAcrossClasses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	set := limitSet(t, limits.Definition{Name: "two", Per: limits.PerTenant, Concurrency: 2})
	memory := map[string]*store.Memory{"default": {}, "gpu": {}}
	for c := range memory {
		b.announceClass(c, 10)
		require.NoError(t, b.queueUnder(store.Rules{Limits: set}, b.submitN(3, class(c))...))
	}
	admit := func(c string) int {
		return b.admitted(round(under(set), func(a *store.Admission) { a.Class, a.Memory = c, memory[c] })).Executions
	}
	require.Equal(t, 2, admit("default"))
	require.Zero(t, admit("gpu"))
	for _, e := range b.claim(2) {
		require.NoError(t, b.finish(e, executor.Result{Outcome: executor.Completed}))
	}
	require.Equal(t, 1, admit("default"), "it folds the ends, and has one more that waits")
	require.Eventually(t, func() bool { return admit("gpu") == 1 }, 30*time.Second, 100*time.Millisecond,
		"the other class's admitter finds out by itself")
	assert.Equal(t, 2, b.count(`state = 'SCHEDULED'`))
	assert.Zero(t, admit("gpu"))
	b.balanced()
}

// What ends is given back once: those that still run keep their places.
func TestConcurrencyGivesBackWhatHasEnded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	set := limitSet(t, limits.Definition{Name: "three", Per: limits.PerUser, Concurrency: 3})
	b.announceClass("default", 10)
	require.NoError(t, b.queueUnder(store.Rules{Limits: set}, b.submitN(8)...))
	memory := &store.Memory{}
	admit := func() int {
		return b.admitted(round(under(set), func(a *store.Admission) { a.Memory = memory })).Executions
	}
	require.Equal(t, 3, admit())
	running := b.claim(3)
	require.Len(t, running, 3)
	for _, e := range running {
		require.NoError(t, b.finish(e, executor.Result{Outcome: executor.Completed}))
		assert.Equal(t, 1, admit())
		assert.Zero(t, admit())
	}
	b.balanced()
}

// What ran while a limit was not in force counts once it is.
func TestALimitThatComesIntoForceCountsWhatRuns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	set := limitSet(t, limits.Definition{Name: "two", Per: limits.PerUser, Concurrency: 2})
	b.announceClass("default", 10)
	require.NoError(t, b.queueUnder(store.Rules{Limits: set}, b.submitN(6)...))
	require.Equal(t, 2, b.admitted(round(under(set))).Executions)
	// Not in force for a while: both end uncounted, and three more begin.
	for _, e := range b.claim(2) {
		require.NoError(t, b.finish(e, executor.Result{Outcome: executor.Completed}))
	}
	require.Equal(t, 3, b.admitted(round(func(a *store.Admission) { a.Max = 3 })).Executions)
	// In force again.
	require.Zero(t, b.admitted(round(under(set))).Executions)
	claimed := b.claim(3)
	require.Len(t, claimed, 3)
	require.NoError(t, b.finish(claimed[0], executor.Result{Outcome: executor.Completed}))
	assert.Zero(t, b.admitted(round(under(set))).Executions, "two still run")
	require.NoError(t, b.finish(claimed[1], executor.Result{Outcome: executor.Completed}))
	assert.Equal(t, 1, b.admitted(round(under(set))).Executions)
	b.balanced()
}

// No more wait than may, however many transactions queue at once.
func TestDepthIsExact(t *testing.T) {
	t.Parallel()
	b := setup(t)
	rules := store.Rules{UserDepth: 10, TotalDepth: 25}
	var wg sync.WaitGroup
	for _, name := range []string{"ann", "bob", "cec", "ann", "bob", "cec"} {
		ids := b.submitN(12, user(name))
		wg.Go(func() {
			for _, id := range ids {
				assert.NoError(t, b.queueUnder(rules, id))
			}
		})
	}
	wg.Wait()
	assert.Equal(t, 25, b.count(`state = 'QUEUED'`))
	for _, name := range []string{"ann", "bob", "cec"} {
		assert.LessOrEqual(t, b.count(`state = 'QUEUED' AND user_name = '`+name+`'`), 10)
	}
	assert.Equal(t, 47, b.count(`state = 'REJECTED'`))
	b.announceClass("default", 4)
	b.admit(0)
	more := b.submitN(30, user("dan"))
	require.NoError(t, b.queueUnder(rules, more...))
	assert.Equal(t, 25, b.count(`state = 'QUEUED'`), "what was admitted waits no more")
	assert.Equal(t, 4, b.count(`state = 'QUEUED' AND user_name = 'dan'`))
}

// A user who asks for little does not wait for one who asks for everything.
func TestANoisyNeighbourTakesNobodysTurn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.announceClass("default", 10)
	b.queue(b.submitN(500, user("noisy"))...)
	b.queue(b.submitN(5, user("quiet"))...)
	require.Equal(t, 10, b.admitted(round()).Executions)
	assert.Equal(t, 5, b.count(`state = 'SCHEDULED' AND user_name = 'quiet'`))
}

// Weights say who gets how much of what is free.
func TestWeights(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.announceClass("default", 12)
	b.queue(b.submitN(30, user("gold"))...)
	b.queue(b.submitN(30, user("tin"))...)
	out := b.admitted(round(func(a *store.Admission) {
		a.Config.Weight = func(_, user string) float64 { return map[string]float64{"gold": 3, "tin": 1}[user] }
	}))
	require.Equal(t, 12, out.Executions)
	assert.Equal(t, 9, b.count(`state = 'SCHEDULED' AND user_name = 'gold'`))
}

// What no worker could run is set apart until one could, and holds up nobody.
func TestWhatIsTooLargeWaitsApart(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.announceClass("default", 4)
	large := func(r *topics.Request) { r.Requirements = topics.Requirements{Slots: 8}; r.Priority = 5 }
	b.queue(b.submitN(3, large)...)
	b.queue(b.submitN(2)...)
	memory := &store.Memory{}
	again := func() int { return b.admitted(round(func(a *store.Admission) { a.Memory = memory })).Executions }
	require.Equal(t, 2, again())
	assert.Equal(t, 3, b.count(`waits = 3`))
	b.balanced()
	b.announceClass("default", 18)
	assert.Equal(t, 2, again())
	assert.Zero(t, b.count(`waits = 3`))
	b.balanced()
}

// What is early becomes due by itself, at its time.
func TestWhatIsEarlyBecomesDue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.announceClass("default", 4)
	b.queue(b.submitN(2, func(r *topics.Request) { r.NotBefore = new(time.Now().Add(time.Hour)) })...)
	memory := &store.Memory{}
	out := b.admitted(round(func(a *store.Admission) { a.Memory = memory }))
	require.Zero(t, out.Executions)
	assert.InDelta(t, time.Hour, out.Wait, float64(10*time.Minute))
	_, err := b.pool.Exec(t.Context(), `UPDATE executions SET ready_at = ready_at - interval '1 hour'`)
	require.NoError(t, err)
	assert.Equal(t, 2, b.admitted(round(func(a *store.Admission) { a.Memory = memory })).Executions)
	b.balanced()
}

// A transaction that began early and commits late is not overlooked.
func TestTheFeedForgetsNoLateTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.announceClass("default", 10)
	b.queue(b.submitN(1)...) // whoever is the first in a flow makes it, and others wait for that
	b.admit(0)
	late, soon := b.submitN(1), b.submitN(1)
	tx, err := b.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	require.NoError(t, b.Queue(t.Context(), tx, late, store.Rules{}))
	b.queue(soon...)
	memory := &store.Memory{}
	again := func() int { return b.admitted(round(func(a *store.Admission) { a.Memory = memory })).Executions }
	require.Equal(t, 1, again())
	require.Zero(t, again())
	require.NoError(t, tx.Commit(t.Context()))
	assert.Equal(t, 1, again())
	b.balanced()
}

// Who is no longer the admitter decides nothing, and whoever takes over decides on.
func TestAFencedAdmitterDecidesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.announceClass("default", 10)
	b.queue(b.submitN(8)...)
	before := &store.Memory{}
	require.Equal(t, 3, b.admitted(round(func(a *store.Admission) { a.Memory, a.Max = before, 3 })).Executions)
	require.Equal(t, 2, b.admitted(round(func(a *store.Admission) { a.Memory, a.Max = &store.Memory{}, 2 })).Executions)
	lost := fmt.Errorf("the lease is another's")
	_, err := b.Admit(t.Context(), round(func(a *store.Admission) {
		a.Memory = before
		a.Fence = func(context.Context, pgx.Tx) error { return lost }
	}))
	require.ErrorIs(t, err, lost)
	assert.Equal(t, 5, b.count(`state = 'SCHEDULED'`))
	assert.Equal(t, 3, b.admitted(round(func(a *store.Admission) { a.Memory = before })).Executions, "it has read everything anew")
	b.balanced()
}

// Flows and buckets that nothing is in do not stay for ever, and come back when they
// are needed.
func TestEmptyFlowsAndFullBucketsAreSwept(t *testing.T) {
	t.Parallel()
	b := setup(t)
	set := limitSet(t, slow("hourly", 2))
	rules := store.Rules{Limits: set}
	b.announceClass("default", 10)
	require.NoError(t, b.queueUnder(rules, b.submitN(1, user("gone"))...))
	require.NoError(t, b.queueUnder(rules, b.submitN(3, user("here"))...))
	require.Equal(t, 3, b.admitted(round(under(set))).Executions)
	for _, e := range b.claim(10) {
		require.NoError(t, b.finish(e, executor.Result{Outcome: executor.Completed}))
	}
	age := func() {
		t.Helper()
		_, err := b.pool.Exec(t.Context(), `UPDATE admission_ledger SET updated_at = updated_at - interval '2 hours'`)
		require.NoError(t, err)
		_, err = b.pool.Exec(t.Context(), `UPDATE limit_buckets SET updated_at = updated_at - interval '2 hours',
			tat_nanos = CASE WHEN key LIKE '%gone' THEN tat_nanos - 7200 * 1000000000::bigint ELSE tat_nanos END`)
		require.NoError(t, err)
	}
	rows := func(table string) (n int) {
		t.Helper()
		require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT count(*) FROM `+table).Scan(&n))
		return n
	}
	b.admitted(round(under(set)))
	age()
	memory := &store.Memory{}
	b.admitted(round(under(set), func(a *store.Admission) { a.Memory = memory }))
	assert.Equal(t, 1, rows("admission_flows"), "where something waits, or not long ago did")
	assert.Equal(t, 1, rows("limit_buckets"), "what is not full is remembered")

	require.NoError(t, b.queueUnder(rules, b.submitN(3, user("gone"))...))
	assert.Equal(t, 2, b.admitted(round(under(set), func(a *store.Admission) { a.Memory = memory })).Executions, "a burst of two")
	assert.Equal(t, 2, rows("limit_buckets"))
	b.balanced()
}
