package executortest

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/executor"
)

// Remote is a Subject whose attempts run elsewhere: in a cluster, in a database, in
// somebody else's worker. What runs there does not die with the worker that started
// it, and calls of the other side may fail after they have had their effect.
type Remote struct {
	Subject
	// Side returns another side with nothing on it, cleaned up with t. Subject.New
	// may make one for itself.
	Side func(t *testing.T) Side
	// CarriesOn is set for an executor whose work does not end with its worker, nor with
	// the lease of an attempt: the next attempt with the same origin (executor.Task.Origin)
	// takes over what there is of it. Such an executor is an executor.Settler.
	CarriesOn bool
}

// Side is the other side of a remote executor under test.
type Side interface {
	// Worker returns an executor as one worker would have it, and what kills that
	// worker without a word: from then on nothing that it does reaches the side.
	Worker() (e executor.Executor, kill func())
	// Running returns the numbers of those attempts of an execution of which
	// something runs; where work is carried on, those of the attempts that began it.
	Running(execution string) []int
	// Until is when the latest attempt of an execution is ended, as the side was told
	// last. It is not asked where work is carried on.
	Until(execution string) time.Time
	// Overlapped returns the executions of which two attempts have run at once.
	Overlapped() []string
	// Started is how often work of an execution was started.
	Started(execution string) int
	// Kept is how much there is on the side of an execution, be it running or ended. It
	// is asked only where work is carried on.
	Kept(execution string) int
	// Disturb has the answers of the next n calls get lost, whatever they have done.
	Disturb(n int)
}

// RunRemote is the suite for executors whose attempts run elsewhere: all of Run, and
// what only they can get wrong.
func RunRemote(t *testing.T, r Remote) {
	r.carriesOn = r.CarriesOn
	Run(t, r.Subject)
	tests := []remoteTest{
		{"an extended lease holds where it runs", remoteLeaseExtended},
		{"the next attempt ends the one before", remoteFence},
		{"a start that is in doubt starts once", remoteDoubt},
		{"output is neither lost nor doubled", remoteOutput},
	}
	if r.CarriesOn {
		tests = append(tests, carriedTests()...)
	} else {
		tests = append(tests,
			remoteTest{"nothing outlives the lease of a dead worker", remoteLeaseEnds},
			remoteTest{"leaves nothing behind", remoteCleans})
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, r)
		})
	}
}

// remoteTest is a case of the suite.
type remoteTest struct {
	name string
	run  func(*testing.T, Remote)
}

// task is the first attempt of an execution.
func task(spec []byte) executor.Task {
	return executor.Task{ExecutionID: NewID(), Attempt: 1, Spec: spec, MaxOutputBytes: ample}
}

// The lease is watched where the attempt runs, for its worker may be dead.
func remoteLeaseEnds(t *testing.T, r Remote) {
	side := r.Side(t)
	e, kill := side.Worker()
	a := StartTask(t, e, task(r.Stubborn), longLease)
	a.WaitStdout(t, "beat")
	require.Equal(t, []int{1}, side.Running(a.ID))
	a.Lease.Extend(2 * time.Second)
	end := a.Lease.Deadline()
	// A worker that dies before it has told of the shorter lease leaves the side the
	// longer one.
	require.Eventually(t, func() bool { return !side.Until(a.ID).After(end) }, Patience, time.Millisecond)
	kill()
	require.Eventually(t, func() bool { return len(side.Running(a.ID)) == 0 }, Patience, 5*time.Millisecond)
	assert.Equal(t, executor.Abandoned, a.Wait(t).Outcome)
	assert.False(t, time.Now().Before(end), "Run returns when nothing can run any more")
}

func remoteLeaseExtended(t *testing.T, r Remote) {
	side := r.Side(t)
	e, _ := side.Worker()
	a := StartTask(t, e, task(r.Beat), 2*time.Second)
	first := a.Lease.Deadline()
	a.Lease.Extend(longLease)
	require.Eventually(t, func() bool { return time.Now().After(first) }, Patience, 10*time.Millisecond)
	before := len(a.Stdout())
	require.Eventually(t, func() bool { return len(a.Stdout()) > before }, Patience, 5*time.Millisecond)
	a.Cancel(executor.ErrCancelled)
	assert.Equal(t, executor.Cancelled, a.Wait(t).Outcome)
}

// The worker of the first attempt is cut off, and its lease, as the side knows it,
// is long: nobody but the second attempt ends it, which begins the work afresh.
func remoteFence(t *testing.T, r Remote) {
	side := r.Side(t)
	first, kill := side.Worker()
	one := task(r.Stubborn)
	a := StartTask(t, first, one, longLease)
	a.WaitStdout(t, "beat")
	kill()
	second, _ := side.Worker()
	two := one
	two.Attempt = 2
	b := StartTask(t, second, two, longLease)
	b.WaitStdout(t, "beat")
	assert.Equal(t, []int{2}, side.Running(one.ExecutionID))
	assert.Empty(t, side.Overlapped())

	// What has been superseded does not come back.
	third, _ := side.Worker()
	late := StartTask(t, third, one, longLease)
	assert.Equal(t, executor.Abandoned, late.Wait(t).Outcome)
	assert.Equal(t, []int{2}, side.Running(one.ExecutionID), "a late attempt does not end its successor")
	assert.Empty(t, side.Overlapped())
}

func remoteDoubt(t *testing.T, r Remote) {
	for n := range 6 {
		side := r.Side(t)
		e, _ := side.Worker()
		side.Disturb(n)
		a := StartTask(t, e, task(r.Succeed), longLease)
		result := a.Wait(t)
		assert.Equal(t, executor.Completed, result.Outcome, result.Message)
		assert.Equal(t, 1, side.Started(a.ID), "%d answers were lost", n)
		assert.Equal(t, "one\ntwo\n", a.Stdout())
	}
}

func remoteOutput(t *testing.T, r Remote) {
	const n = 300_001
	side := r.Side(t)
	e, _ := side.Worker()
	beat := StartTask(t, e, task(r.Beat), longLease)
	beat.WaitStdout(t, "beat")
	a := StartTask(t, e, task(r.Flood(n)), longLease)
	for range 50 {
		side.Disturb(2)
	}
	require.Equal(t, executor.Completed, a.Wait(t).Outcome)
	assert.True(t, bytes.Equal(ramp(n), []byte(a.Stdout())), "the output differs")
	before := len(beat.Stdout())
	require.Eventually(t, func() bool { return len(beat.Stdout()) > before }, Patience, 5*time.Millisecond)
}

func remoteCleans(t *testing.T, r Remote) {
	side := r.Side(t)
	e, _ := side.Worker()
	done := StartTask(t, e, task(r.Succeed), longLease)
	done.Wait(t)
	stopped := StartTask(t, e, task(r.Beat), longLease)
	stopped.WaitStdout(t, "beat")
	stopped.Cancel(executor.ErrShutdown)
	stopped.Wait(t)
	for _, id := range []string{done.ID, stopped.ID} {
		assert.Empty(t, side.Running(id))
	}
}
