package executortest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/executor"
)

// Subject is an executor under test, with specs that make it do what the suite
// needs. Every spec must be usable many times and at once.
type Subject struct {
	// New returns an executor; what it needs is cleaned up with t.
	New func(t *testing.T) executor.Executor
	// Succeed writes "one\ntwo\n" to stdout and "three\n" to stderr and ends well.
	Succeed json.RawMessage
	// Fail fails by itself in a way that is worth another attempt, FailReason
	// being the reason.
	Fail       json.RawMessage
	FailReason string
	// Crash ends as nobody meant it to (by a signal, by a panic), CrashReason being the
	// reason. It is worth another attempt, and no other attempt notices.
	Crash       json.RawMessage
	CrashReason string
	// Missing asks for something that does not exist; MissingReason is the reason.
	Missing       json.RawMessage
	MissingReason string
	// Invalid are specs that do not parse.
	Invalid []json.RawMessage
	// Flood writes n bytes to stdout, byte i being i modulo 256, and ends well.
	Flood func(n int) json.RawMessage
	// Value returns a JSON string of n letters; nil for an executor whose attempts
	// return nothing but their output.
	Value func(n int) json.RawMessage
	// Environment writes all the variables that it sees to stdout; nil for an executor
	// whose attempts are part of the worker.
	Environment json.RawMessage
	// Grow starts whatever can outlive it, in every way in which one can get away,
	// writes one line that ends in "grown\n" and beats; nil for an executor that cannot
	// end what gets away from it. Living returns which of what that line names is alive.
	Grow   json.RawMessage
	Living func(t *testing.T, line string) (alive func() []string)
	// Beat writes "beat\n" to stdout every few milliseconds until it is asked to
	// stop, and then stops.
	Beat json.RawMessage
	// Stubborn writes "beat\n" like Beat but does not react to being asked.
	Stubborn json.RawMessage
	// Merged is set for an executor that cannot tell the two streams of an attempt apart:
	// all of its output is standard output.
	Merged bool
	// Report reports 3 of 12 as done with the message "files", writes the checkpoint
	// that it was given to stdout, keeps "row 3" as its own, and ends well; nil for an
	// executor whose attempts report nothing.
	Report json.RawMessage
	// Release ends what Stubborn attempts an executor could not end; nil for one
	// that can end everything.
	Release func()
	// Began is set for an executor whose attempts have no output: it waits until an
	// attempt does what Beat does, and fails the test if that is over. What is only about
	// output, reports and crashes is not asked of such a one then, and Flood, Report,
	// Crash and Stubborn are nil.
	Began func(t testing.TB, a *Attempt)

	// carriesOn is Remote.CarriesOn.
	carriesOn bool
}

// silent says whether attempts have no output.
func (s Subject) silent() bool { return s.Began != nil }

// began waits until an attempt of Beat or Stubborn has begun.
func (s Subject) began(t testing.TB, a *Attempt) {
	t.Helper()
	if s.silent() {
		s.Began(t, a)
		return
	}
	a.WaitStdout(t, "beat")
}

// goesOn waits for a sign that an attempt of Beat is still at it.
func (s Subject) goesOn(t testing.TB, a *Attempt) {
	t.Helper()
	if s.silent() {
		s.Began(t, a)
		return
	}
	before := len(a.Stdout())
	require.Eventually(t, func() bool { return len(a.Stdout()) > before }, Patience, 5*time.Millisecond)
}

// loud skips what is only about output.
func (s Subject) loud(t testing.TB) {
	t.Helper()
	if s.silent() {
		t.Skip("attempts have no output")
	}
}

const (
	longLease = time.Hour
	ample     = 16 << 20 // an output cap that nothing reaches
)

// Run is the suite. The test that calls it must not be parallel itself: one case
// counts what belongs to the whole process.
func Run(t *testing.T, s Subject) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, Subject)
	}{
		{"completes", completes},
		{"passes reports and checkpoints on", reports},
		{"fails by itself", fails},
		{"survives a crash", crashes},
		{"returns a large value", returnsValue},
		{"hands on nothing of its environment", keepsSecrets},
		{"ends what an attempt has started", endsOffspring},
		{"does not retry what cannot succeed", cannotSucceed},
		{"keeps output in order and binary", keepsOutput},
		{"caps output", capsOutput},
		{"survives a broken sink", brokenSink},
		{"stops for each cause", stops},
		{"does not start what is stopped already", stoppedBefore},
		{"ends with the lease", leaseEnds},
		{"goes on while the lease is extended", leaseExtended},
		{"outlives no lease even when stubborn", stubborn},
		{"runs many at once", concurrent},
		{"leaves no descriptors behind", noLeaks},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, s) })
	}
}

func completes(t *testing.T, s Subject) {
	t.Parallel()
	a := Start(t, s.New(t), s.Succeed, longLease, ample)
	result := a.Wait(t)
	assert.Equal(t, executor.Completed, result.Outcome, result.Message)
	assert.Empty(t, result.Reason)
	assert.Empty(t, result.Signal)
	if s.silent() {
		assert.Zero(t, result.Stdout)
		return
	}
	if s.Merged {
		assert.ElementsMatch(t, []string{"one", "two", "three", ""}, strings.Split(a.Stdout(), "\n"))
		assert.Equal(t, executor.StreamSummary{Bytes: 14, KeptBytes: 14}, result.Stdout)
		return
	}
	assert.Equal(t, "one\ntwo\n", a.Stdout())
	assert.Equal(t, "three\n", a.Stderr())
	assert.Equal(t, executor.StreamSummary{Bytes: 8, KeptBytes: 8}, result.Stdout)
	assert.Equal(t, executor.StreamSummary{Bytes: 6, KeptBytes: 6}, result.Stderr)
}

func reports(t *testing.T, s Subject) {
	t.Parallel()
	s.loud(t)
	if s.Report == nil {
		t.Skip("attempts report nothing")
	}
	checkpoint := []byte("row 2, \x00\xff")
	a := StartTask(t, s.New(t), executor.Task{Spec: s.Report, Attempt: 2, Checkpoint: checkpoint, MaxOutputBytes: ample}, longLease)
	result := a.Wait(t)
	assert.Equal(t, executor.Completed, result.Outcome, result.Message)
	assert.Equal(t, string(checkpoint), a.Stdout())
	progress, checkpoints := a.All()
	assert.Equal(t, []executor.Progress{{Done: 3, Total: 12, Message: "files"}}, progress)
	assert.Equal(t, [][]byte{[]byte("row 3")}, checkpoints)
}

func fails(t *testing.T, s Subject) {
	t.Parallel()
	result := Start(t, s.New(t), s.Fail, longLease, ample).Wait(t)
	assert.Equal(t, executor.Failed, result.Outcome)
	assert.Equal(t, s.FailReason, result.Reason)
	assert.NotEmpty(t, result.Message)
	assert.True(t, result.Retryable)
}

// One attempt's crash is its own: its neighbour goes on.
func crashes(t *testing.T, s Subject) {
	t.Parallel()
	s.loud(t)
	e := s.New(t)
	neighbour := Start(t, e, s.Beat, longLease, ample)
	neighbour.WaitStdout(t, "beat")
	result := Start(t, e, s.Crash, longLease, ample).Wait(t)
	assert.Equal(t, executor.Failed, result.Outcome)
	assert.Equal(t, s.CrashReason, result.Reason)
	assert.NotEmpty(t, result.Message)
	assert.True(t, result.Retryable)
	before := len(neighbour.Stdout())
	require.Eventually(t, func() bool { return len(neighbour.Stdout()) > before }, Patience, 5*time.Millisecond)
}

func returnsValue(t *testing.T, s Subject) {
	t.Parallel()
	if s.Value == nil {
		t.Skip("attempts return nothing but their output")
	}
	const n = 4 << 20
	result := Start(t, s.New(t), s.Value(n), longLease, 0).Wait(t)
	require.Equal(t, executor.Completed, result.Outcome, result.Message)
	var text string
	require.NoError(t, json.Unmarshal(result.Value, &text))
	assert.Len(t, text, n)
}

// keepsSecrets is not parallel: it changes the environment of the test, which
// stands for the worker's.
func keepsSecrets(t *testing.T, s Subject) {
	if s.Environment == nil {
		t.Skip("attempts are part of the worker")
	}
	t.Setenv("MILLRACE_POSTGRES_DSN", "postgres://canary-7f3a@db/millrace")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "canary-7f3a")
	a := Start(t, s.New(t), s.Environment, longLease, ample)
	require.Equal(t, executor.Completed, a.Wait(t).Outcome)
	assert.Contains(t, a.Stdout(), "=", "the environment was shown")
	for _, secret := range []string{"canary-7f3a", "MILLRACE_POSTGRES_DSN", "AWS_SECRET_ACCESS_KEY"} {
		assert.NotContains(t, a.Stdout(), secret)
	}
}

// When Run returns, what the attempt has started is dead already.
func endsOffspring(t *testing.T, s Subject) {
	t.Parallel()
	if s.Grow == nil {
		t.Skip("what gets away from an attempt cannot be ended")
	}
	ends := map[string]func(a *Attempt){
		"cancelled":  func(a *Attempt) { a.Cancel(executor.ErrCancelled) },
		"lease ends": func(a *Attempt) { a.Lease.Extend(0) },
	}
	if s.carriesOn {
		delete(ends, "lease ends") // which leaves everything to the next attempt
	}
	for name, end := range ends {
		a := Start(t, s.New(t), s.Grow, longLease, ample)
		a.WaitStdout(t, "grown\n")
		line, _, _ := strings.Cut(a.Stdout(), "\n")
		alive := s.Living(t, line)
		require.NotEmpty(t, alive(), name)
		end(a)
		a.Wait(t)
		assert.Empty(t, alive(), name)
	}
}

func cannotSucceed(t *testing.T, s Subject) {
	t.Parallel()
	e := s.New(t)
	result := Start(t, e, s.Missing, longLease, ample).Wait(t)
	assert.Equal(t, executor.Failed, result.Outcome)
	assert.Equal(t, s.MissingReason, result.Reason)
	assert.False(t, result.Retryable)
	for _, spec := range append(s.Invalid, nil, json.RawMessage(`[]`), json.RawMessage(`{"surprise":1}`)) {
		result := Start(t, e, spec, longLease, ample).Wait(t)
		assert.Equal(t, executor.Failed, result.Outcome, "%s", spec)
		assert.Equal(t, "invalid_spec", result.Reason, "%s", spec)
		assert.False(t, result.Retryable, "%s", spec)
	}
}

// ramp is what Flood writes.
func ramp(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i)
	}
	return p
}

func keepsOutput(t *testing.T, s Subject) {
	t.Parallel()
	s.loud(t)
	const n = 300_001
	a := Start(t, s.New(t), s.Flood(n), longLease, ample)
	result := a.Wait(t)
	require.Equal(t, executor.Completed, result.Outcome, result.Message)
	assert.True(t, bytes.Equal(ramp(n), []byte(a.Stdout())), "the output differs")
	assert.Equal(t, executor.StreamSummary{Bytes: n, KeptBytes: n}, result.Stdout)
	assert.LessOrEqual(t, a.Largest(), 64<<10)
}

func capsOutput(t *testing.T, s Subject) {
	t.Parallel()
	s.loud(t)
	const n, limit = 5 << 20, 100_003
	e := s.New(t)
	a := Start(t, e, s.Flood(n), longLease, limit)
	result := a.Wait(t)
	assert.Equal(t, executor.Completed, result.Outcome, "the cap must not stop the attempt: %s", result.Message)
	assert.Equal(t, executor.StreamSummary{Bytes: n, KeptBytes: limit, Truncated: true}, result.Stdout)
	assert.True(t, bytes.Equal(ramp(limit), []byte(a.Stdout())), "the output differs")

	result = Start(t, e, s.Succeed, longLease, 0).Wait(t)
	want := int64(8)
	if s.Merged {
		want = 14
	}
	assert.Equal(t, executor.StreamSummary{Bytes: want, Truncated: true}, result.Stdout)
}

// refusing is a Sink that takes nothing.
type refusing struct{ calls atomic.Int32 }

func (r *refusing) Write(executor.Stream, []byte) error {
	r.calls.Add(1)
	return os.ErrClosed
}

func brokenSink(t *testing.T, s Subject) {
	t.Parallel()
	s.loud(t)
	const n = 1 << 20
	sink := new(refusing)
	task := executor.Task{ExecutionID: "broken-sink", Attempt: 1, Spec: s.Flood(n), MaxOutputBytes: ample}
	result, err := s.New(t).Run(t.Context(), task, NewLease(longLease), sink)
	require.NoError(t, err)
	assert.Equal(t, executor.Completed, result.Outcome, "the attempt goes on")
	assert.Equal(t, executor.StreamSummary{Bytes: n, Truncated: true}, result.Stdout)
	assert.EqualValues(t, 1, sink.calls.Load(), "capturing stops")
}

// causes are why an attempt is stopped, with what comes of it.
var causes = []struct {
	cause   error
	outcome executor.Outcome
	reason  string
}{
	{executor.ErrCancelled, executor.Cancelled, "cancelled"},
	{executor.ErrRunLimit, executor.TimedOut, "run_limit"},
	{executor.ErrLeaseLost, executor.Abandoned, "lease_lost"},
	{executor.ErrShutdown, executor.Abandoned, "shutdown"},
	{fmt.Errorf("stop: %w", executor.ErrCancelled), executor.Cancelled, "cancelled"},
	{nil, executor.Abandoned, "shutdown"}, // a context that was simply cancelled
}

func stops(t *testing.T, s Subject) {
	t.Parallel()
	e := s.New(t)
	for _, c := range causes {
		a := Start(t, e, s.Beat, longLease, ample)
		s.began(t, a)
		a.Cancel(c.cause)
		result := a.Wait(t)
		assert.Equal(t, c.outcome, result.Outcome, "%v", c.cause)
		assert.Equal(t, c.reason, result.Reason, "%v", c.cause)
		assert.NotEmpty(t, result.Message)
		assert.True(t, s.silent() || result.Stdout.KeptBytes > 0, "what was written before counts")
	}
}

func stoppedBefore(t *testing.T, s Subject) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(executor.ErrCancelled)
	sink := new(Recorder)
	task := executor.Task{ExecutionID: "stopped-before", Attempt: 1, Spec: s.Succeed, MaxOutputBytes: ample}
	result, err := s.New(t).Run(ctx, task, NewLease(longLease), sink)
	require.NoError(t, err)
	assert.Equal(t, executor.Cancelled, result.Outcome)
	assert.Empty(t, sink.Stdout())

	a := Start(t, s.New(t), s.Beat, -time.Second, ample)
	result = a.Wait(t)
	assert.Equal(t, executor.Abandoned, result.Outcome)
	assert.Equal(t, "lease_lost", result.Reason)
}

func leaseEnds(t *testing.T, s Subject) {
	t.Parallel()
	a := Start(t, s.New(t), s.Beat, longLease, ample)
	s.began(t, a)
	a.Lease.Extend(150 * time.Millisecond) // a lease can also turn out shorter
	result := a.Wait(t)
	assert.Equal(t, executor.Abandoned, result.Outcome)
	assert.Equal(t, "lease_lost", result.Reason)
}

func leaseExtended(t *testing.T, s Subject) {
	t.Parallel()
	a := Start(t, s.New(t), s.Beat, longLease, ample)
	s.began(t, a)
	// Move the end twice, and see beats after each of the ends has passed.
	for range 2 {
		a.Lease.Extend(time.Second)
		first := a.Lease.Deadline()
		a.Lease.Extend(longLease)
		require.Eventually(t, func() bool { return time.Now().After(first) }, Patience, 10*time.Millisecond)
		s.goesOn(t, a)
	}
	a.Cancel(executor.ErrCancelled)
	assert.Equal(t, executor.Cancelled, a.Wait(t).Outcome)
}

func stubborn(t *testing.T, s Subject) {
	s.loud(t)
	if s.Release != nil {
		t.Cleanup(s.Release)
	}
	e := s.New(t)
	for _, cause := range []error{nil, executor.ErrShutdown} {
		a := Start(t, e, s.Stubborn, longLease, ample)
		a.WaitStdout(t, "beat")
		if cause != nil {
			a.Cancel(cause)
		}
		a.Lease.Extend(150 * time.Millisecond)
		result := a.Wait(t)
		assert.Equal(t, executor.Abandoned, result.Outcome)
		after := a.Stdout()
		require.Never(t, func() bool { return a.Stdout() != after }, 50*time.Millisecond, 5*time.Millisecond,
			"output came after Run had returned")
	}
}

func concurrent(t *testing.T, s Subject) {
	t.Parallel()
	e := s.New(t)
	var all []*Attempt
	for i := range 24 {
		work := s.Succeed
		if !s.silent() {
			work = s.Flood(1000 + i)
		}
		all = append(all, Start(t, e, work, longLease, ample))
	}
	for i, a := range all {
		assert.Equal(t, executor.Completed, a.Wait(t).Outcome)
		assert.True(t, s.silent() || bytes.Equal(ramp(1000+i), []byte(a.Stdout())), "outputs got mixed up")
	}
}

// noLeaks runs alone: it counts what belongs to the process.
func noLeaks(t *testing.T, s Subject) {
	e := s.New(t)
	attempt := func() {
		Start(t, e, s.Succeed, longLease, ample).Wait(t)
		Start(t, e, s.Missing, longLease, ample).Wait(t)
		a := Start(t, e, s.Beat, longLease, ample)
		s.began(t, a)
		a.Cancel(executor.ErrRunLimit)
		a.Wait(t)
	}
	attempt() // what is opened once and kept is open now
	before := openFiles(t)
	for range 10 {
		attempt()
	}
	require.Eventually(t, func() bool { return openFiles(t) <= before }, Patience, 10*time.Millisecond,
		"file descriptors leak: there were %d", before)
}

// openFiles counts the descriptors of this process, where it can.
func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := filepath.Glob("/proc/self/fd/*")
	require.NoError(t, err)
	return len(entries)
}
