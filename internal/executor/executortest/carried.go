package executortest

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/executor"
)

// carriedTests is what is asked of executors whose work outlives its worker.
func carriedTests() []remoteTest {
	return []remoteTest{
		{"work outlives its worker", carriedByAnother},
		{"work outlives a shutdown and a lost lease", carriedAfterTheEnd},
		{"the end is read though the worker died before it told", carriedEnd},
		{"whoever was superseded keeps away", carriedFence},
		{"taking over starts nothing, whatever gets lost", carriedDoubt},
		{"who cancels what was taken over ends it", carriedStop},
		{"work ends at its run limit without any worker", carriedLimit},
		{"that work was ended at its run limit is read though the worker died before it told", carriedLimitEnd},
		{"what is settled is gone", carriedSettled},
		{"settling leaves alone what came after", carriedSettledLate},
	}
}

// next is the attempt after one that has lost its worker.
func next(of executor.Task) executor.Task {
	of.First = of.Origin()
	of.Attempt++
	return of
}

// waitOutput waits until an attempt has written as much as another one, and returns what
// that other one had.
func waitOutput(t *testing.T, a, as *Attempt) string {
	t.Helper()
	before := as.Stdout()
	require.Eventually(t, func() bool { return len(a.Stdout()) > len(before) }, Patience, 5*time.Millisecond)
	return before
}

func carriedByAnother(t *testing.T, r Remote) {
	side := r.Side(t)
	first, kill := side.Worker()
	one := task(r.Stubborn)
	a := StartTask(t, first, one, longLease)
	a.WaitStdout(t, "beat")
	kill()
	second, _ := side.Worker()
	two := next(one)
	b := StartTask(t, second, two, longLease)
	before := waitOutput(t, b, a)
	assert.True(t, strings.HasPrefix(b.Stdout(), before), "the output begins where the work did")
	assert.Equal(t, []int{1}, side.Running(one.ExecutionID))
	assert.Equal(t, 1, side.Started(one.ExecutionID))

	// The lease of the dead worker ends, and nothing else does.
	a.Lease.Extend(0)
	assert.Equal(t, executor.Abandoned, a.Wait(t).Outcome)
	waitOutput(t, b, b)
	assert.Equal(t, []int{1}, side.Running(one.ExecutionID))
	assert.Equal(t, 1, side.Started(one.ExecutionID))
	assert.Empty(t, side.Overlapped())
}

func carriedAfterTheEnd(t *testing.T, r Remote) {
	for name, end := range map[string]func(*Attempt){
		"shutdown":   func(a *Attempt) { a.Cancel(executor.ErrShutdown) },
		"lost":       func(a *Attempt) { a.Cancel(executor.ErrLeaseLost) },
		"lease ends": func(a *Attempt) { a.Lease.Extend(0) },
	} {
		side := r.Side(t)
		first, _ := side.Worker()
		one := task(r.Beat)
		a := StartTask(t, first, one, longLease)
		a.WaitStdout(t, "beat")
		end(a)
		assert.Equal(t, executor.Abandoned, a.Wait(t).Outcome, name)
		assert.Equal(t, []int{1}, side.Running(one.ExecutionID), name)
		second, _ := side.Worker()
		b := StartTask(t, second, next(one), longLease)
		before := waitOutput(t, b, a)
		assert.True(t, strings.HasPrefix(b.Stdout(), before), name)
		assert.Equal(t, 1, side.Started(one.ExecutionID), name)
	}
}

// The worker dies with the result in its hands: nothing is recorded, and nothing settled.
func carriedEnd(t *testing.T, r Remote) {
	for _, c := range []struct {
		name    string
		spec    []byte
		outcome executor.Outcome
		reason  string
	}{
		{"succeeded", r.Succeed, executor.Completed, ""},
		{"failed", r.Fail, executor.Failed, r.FailReason},
	} {
		side := r.Side(t)
		first, kill := side.Worker()
		one := task(c.spec)
		a := StartTask(t, first, one, longLease)
		a.Wait(t)
		kill()
		require.Empty(t, side.Running(one.ExecutionID), c.name)
		second, _ := side.Worker()
		b := StartTask(t, second, next(one), longLease)
		result := b.Wait(t)
		assert.Equal(t, c.outcome, result.Outcome, "%s: %s", c.name, result.Message)
		assert.Equal(t, c.reason, result.Reason, c.name)
		assert.Equal(t, a.Stdout(), b.Stdout(), c.name)
		assert.Equal(t, a.Stderr(), b.Stderr(), c.name)
		assert.Equal(t, 1, side.Started(one.ExecutionID), c.name)
	}
}

// A worker that was only slow comes back after another one has taken over.
func carriedFence(t *testing.T, r Remote) {
	side := r.Side(t)
	first, _ := side.Worker()
	one := task(r.Beat)
	a := StartTask(t, first, one, longLease)
	a.WaitStdout(t, "beat")
	second, _ := side.Worker()
	b := StartTask(t, second, next(one), longLease)
	waitOutput(t, b, a)

	late := StartTask(t, first, one, longLease)
	assert.Equal(t, executor.Abandoned, late.Wait(t).Outcome, "a later attempt has it")
	a.Cancel(executor.ErrCancelled)
	a.Wait(t)
	waitOutput(t, b, b)
	assert.Equal(t, []int{1}, side.Running(one.ExecutionID), "it is not the first attempt's to end any more")
	assert.Equal(t, 1, side.Started(one.ExecutionID))
	first.(executor.Settler).Settle(t.Context(), one)
	waitOutput(t, b, b)
	assert.Equal(t, []int{1}, side.Running(one.ExecutionID), "nor to settle")
}

func carriedDoubt(t *testing.T, r Remote) {
	for n := range 4 {
		side := r.Side(t)
		first, kill := side.Worker()
		one := task(r.Succeed)
		StartTask(t, first, one, longLease).Wait(t)
		kill()
		second, _ := side.Worker()
		side.Disturb(n)
		b := StartTask(t, second, next(one), longLease)
		result := b.Wait(t)
		assert.Equal(t, executor.Completed, result.Outcome, result.Message)
		assert.Equal(t, "one\ntwo\n", b.Stdout())
		assert.Equal(t, 1, side.Started(one.ExecutionID), "%d answers were lost", n)
	}
}

func carriedStop(t *testing.T, r Remote) {
	for cause, outcome := range map[error]executor.Outcome{
		executor.ErrCancelled: executor.Cancelled, executor.ErrRunLimit: executor.TimedOut,
	} {
		side := r.Side(t)
		first, kill := side.Worker()
		one := task(r.Beat)
		StartTask(t, first, one, longLease).WaitStdout(t, "beat")
		kill()
		second, _ := side.Worker()
		b := StartTask(t, second, next(one), longLease)
		b.WaitStdout(t, "beat")
		b.Cancel(cause)
		assert.Equal(t, outcome, b.Wait(t).Outcome)
		assert.Empty(t, side.Running(one.ExecutionID), "when Run returns, nothing runs")
	}
}

// Nobody is there to stop it, and whoever comes then finds out why it has ended.
func carriedLimit(t *testing.T, r Remote) {
	side := r.Side(t)
	first, kill := side.Worker()
	one := task(r.Beat)
	one.RunLimit = 2 * time.Second
	StartTask(t, first, one, longLease).WaitStdout(t, "beat")
	kill()
	require.Eventually(t, func() bool { return len(side.Running(one.ExecutionID)) == 0 }, Patience, 5*time.Millisecond)
	second, _ := side.Worker()
	two := next(one)
	two.RunLimit = time.Hour // the limit of the attempt is not that of the work, which began before
	result := StartTask(t, second, two, longLease).Wait(t)
	assert.Equal(t, executor.TimedOut, result.Outcome, result.Message)
	assert.Equal(t, "run_limit", result.Reason)
	assert.Equal(t, 1, side.Started(one.ExecutionID))
}

// The worker has ended the work, and dies before it tells why.
func carriedLimitEnd(t *testing.T, r Remote) {
	for name, spec := range map[string][]byte{"willing": r.Beat, "stubborn": r.Stubborn} {
		side := r.Side(t)
		first, kill := side.Worker()
		one := task(spec)
		a := StartTask(t, first, one, longLease)
		a.WaitStdout(t, "beat")
		a.Cancel(executor.ErrRunLimit)
		require.Equal(t, executor.TimedOut, a.Wait(t).Outcome, name)
		require.Empty(t, side.Running(one.ExecutionID), name)
		kill()
		second, _ := side.Worker()
		b := StartTask(t, second, next(one), longLease)
		result := b.Wait(t)
		assert.Equal(t, executor.TimedOut, result.Outcome, "%s: %s", name, result.Message)
		assert.Equal(t, "run_limit", result.Reason, name)
		assert.Equal(t, a.Stdout(), b.Stdout(), name)
		assert.Equal(t, 1, side.Started(one.ExecutionID), name)
	}
}

func carriedSettled(t *testing.T, r Remote) {
	side := r.Side(t)
	e, _ := side.Worker()
	x, settles := e.(executor.Settler)
	require.True(t, settles, "who carries on keeps what an attempt has left, until it is settled")
	for name, run := range map[string]func(executor.Task) *Attempt{
		"completed": func(done executor.Task) *Attempt { return StartTask(t, e, done, longLease) },
		"cancelled": func(stopped executor.Task) *Attempt {
			stopped.Spec = r.Beat
			a := StartTask(t, e, stopped, longLease)
			a.WaitStdout(t, "beat")
			a.Cancel(executor.ErrCancelled)
			return a
		},
	} {
		one := task(r.Succeed)
		run(one).Wait(t)
		side.Disturb(1)
		x.Settle(t.Context(), one)
		require.Eventually(t, func() bool { return side.Kept(one.ExecutionID) == 0 }, Patience, 5*time.Millisecond, name)
		x.Settle(t.Context(), one) // what is gone is gone
	}
	x.Settle(t.Context(), task(r.Succeed)) // what was never there, too
}

// The end of a run is recorded late, when the next run is under way.
func carriedSettledLate(t *testing.T, r Remote) {
	side := r.Side(t)
	first, _ := side.Worker()
	one := task(r.Fail)
	StartTask(t, first, one, longLease).Wait(t)
	second, _ := side.Worker()
	two := one
	two.Attempt, two.First, two.Spec = 2, 2, r.Beat
	b := StartTask(t, second, two, longLease)
	b.WaitStdout(t, "beat")
	first.(executor.Settler).Settle(t.Context(), one)
	waitOutput(t, b, b)
	assert.Equal(t, []int{2}, side.Running(one.ExecutionID))
	assert.Equal(t, 2, side.Started(one.ExecutionID))
	assert.Empty(t, side.Overlapped())
}
