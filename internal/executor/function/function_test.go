package function_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/executor/executortest"
	"github.com/millrace/millrace/internal/executor/function"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func beat(ctx context.Context, call function.Call) (any, error) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := io.WriteString(call.Stdout, "beat\n"); err != nil {
			return nil, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// stubborn beats until release is closed, whatever its context and its output
// say.
func stubborn(release <-chan struct{}) function.Func {
	return func(_ context.Context, call function.Call) (any, error) {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			_, _ = io.WriteString(call.Stdout, "beat\n")
			select {
			case <-tick.C:
			case <-release:
				return "too late", nil
			}
		}
	}
}

func flood(_ context.Context, call function.Call) (any, error) {
	var n int
	if err := json.Unmarshal(call.Args, &n); err != nil {
		return nil, executor.Permanent(err)
	}
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i)
	}
	_, err := call.Stdout.Write(p)
	return nil, err
}

func letters(_ context.Context, call function.Call) (any, error) {
	var n int
	if err := json.Unmarshal(call.Args, &n); err != nil {
		return nil, executor.Permanent(err)
	}
	return strings.Repeat("x", n), nil
}

func succeed(_ context.Context, call function.Call) (any, error) {
	_, _ = io.WriteString(call.Stdout, "one\n")
	_, _ = io.WriteString(call.Stderr, "three\n")
	_, _ = io.WriteString(call.Stdout, "two\n")
	return nil, nil
}

func report(_ context.Context, call function.Call) (any, error) {
	_, _ = call.Stdout.Write(call.Checkpoint)
	return nil, errors.Join(call.Progress(3, 12, "files"), call.SaveCheckpoint([]byte("row 3")))
}

func TestConformance(t *testing.T) {
	release := make(chan struct{})
	functions := function.Builtins()
	functions["beat"] = beat
	functions["stubborn"] = stubborn(release)
	functions["flood"] = flood
	functions["succeed"] = succeed
	functions["letters"] = letters
	functions["crash"] = func(context.Context, function.Call) (any, error) { panic("crash") }
	functions["report"] = report
	executortest.Run(t, executortest.Subject{
		New: func(*testing.T) executor.Executor {
			return function.New(function.Config{Functions: functions})
		},
		Succeed:       json.RawMessage(`{"name":"succeed"}`),
		Fail:          json.RawMessage(`{"name":"fail","args":{"retryable":true}}`),
		FailReason:    "function_error",
		Crash:         json.RawMessage(`{"name":"crash"}`),
		CrashReason:   "function_panic",
		Value:         func(n int) json.RawMessage { return fmt.Appendf(nil, `{"name":"letters","args":%d}`, n) },
		Missing:       json.RawMessage(`{"name":"no such function"}`),
		MissingReason: "unknown_function",
		Invalid:       []json.RawMessage{[]byte(`{}`), []byte(`{"name":1}`), []byte(`{"name":"echo","arg":1}`)},
		Flood:         func(n int) json.RawMessage { return fmt.Appendf(nil, `{"name":"flood","args":%d}`, n) },
		Beat:          json.RawMessage(`{"name":"beat"}`),
		Stubborn:      json.RawMessage(`{"name":"stubborn"}`),
		Report:        json.RawMessage(`{"name":"report"}`),
		Release:       sync.OnceFunc(func() { close(release) }),
	})
}

// run runs fn to its end, under the name "f".
func run(t *testing.T, fn function.Func) (executor.Result, *executortest.Attempt) {
	t.Helper()
	e := function.New(function.Config{Functions: map[string]function.Func{"f": fn}})
	a := executortest.Start(t, e, json.RawMessage(`{"name":"f"}`), time.Hour, 1<<20)
	return a.Wait(t), a
}

func TestPanicEndsTheAttemptOnly(t *testing.T) {
	t.Parallel()
	result, a := run(t, func(context.Context, function.Call) (any, error) { panic("the lights went out") })
	assert.Equal(t, executor.Failed, result.Outcome)
	assert.Equal(t, "function_panic", result.Reason)
	assert.Contains(t, result.Message, "the lights went out")
	assert.True(t, result.Retryable)
	assert.Contains(t, a.Stderr(), "panic: the lights went out")
	assert.Contains(t, a.Stderr(), "function_test.go", "the stack names the place")
}

func TestFunctionThatEndsItsGoroutineFails(t *testing.T) {
	t.Parallel()
	result, _ := run(t, func(context.Context, function.Call) (any, error) { runtime.Goexit(); return nil, nil })
	assert.Equal(t, executor.Failed, result.Outcome)
	assert.Equal(t, "function_error", result.Reason)
}

func TestErrorsSayWhetherToRetry(t *testing.T) {
	t.Parallel()
	cause := errors.New("disk is full")
	result, _ := run(t, func(context.Context, function.Call) (any, error) { return nil, cause })
	assert.Equal(t, "disk is full", result.Message)
	assert.True(t, result.Retryable)

	permanent := fmt.Errorf("store: %w", executor.Permanent(cause))
	require.ErrorIs(t, permanent, cause)
	result, _ = run(t, func(context.Context, function.Call) (any, error) { return nil, permanent })
	assert.Equal(t, "store: disk is full", result.Message)
	assert.False(t, result.Retryable)
	assert.NoError(t, executor.Permanent(nil))
}

func TestReportsThatMakeNoSense(t *testing.T) {
	t.Parallel()
	result, a := run(t, func(_ context.Context, call function.Call) (any, error) {
		for _, n := range [][2]float64{{-1, 2}, {3, 2}, {math.NaN(), 2}, {1, math.Inf(1)}} {
			require.Error(t, call.Progress(n[0], n[1], ""))
		}
		large := make([]byte, executor.MaxCheckpointBytes+1)
		require.ErrorIs(t, call.SaveCheckpoint(large), executor.ErrCheckpointTooLarge)
		require.NoError(t, call.SaveCheckpoint(large[1:]))
		return nil, call.Progress(1, 0, strings.Repeat("\u00e9", executor.MaxProgressMessageBytes))
	})
	require.Equal(t, executor.Completed, result.Outcome, result.Message)
	progress, checkpoints := a.All()
	require.Len(t, progress, 1)
	assert.Equal(t, strings.Repeat("\u00e9", executor.MaxProgressMessageBytes/2), progress[0].Message)
	assert.Len(t, checkpoints, 1)

	var call function.Call // as a test of a function makes it
	require.NoError(t, call.Progress(1, 2, ""))
	require.NoError(t, call.SaveCheckpoint([]byte("x")))
}

func TestErrorsMayHaveReasons(t *testing.T) {
	t.Parallel()
	cause := errors.New("no money left")
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"none":          {cause, "function_error"},
		"own":           {fmt.Errorf("pay: %w", executor.WithReason("card_declined", cause)), "card_declined"},
		"permanent too": {executor.Permanent(executor.WithReason("card_declined", cause)), "card_declined"},
		"the outermost": {executor.WithReason("payment", executor.WithReason("card_declined", cause)), "payment"},
		"no code":       {executor.WithReason("Card declined!", cause), "function_error"},
	} {
		result, _ := run(t, func(context.Context, function.Call) (any, error) { return nil, tc.err })
		assert.Equal(t, tc.want, result.Reason, name)
		require.ErrorIs(t, tc.err, cause, name)
		assert.Equal(t, tc.err.Error(), result.Message, name)
	}
	assert.NoError(t, executor.WithReason("card_declined", nil))
}

func TestValueIsJSON(t *testing.T) {
	t.Parallel()
	result, _ := run(t, func(context.Context, function.Call) (any, error) { return map[string]int{"answer": 42}, nil })
	assert.Equal(t, executor.Completed, result.Outcome)
	assert.JSONEq(t, `{"answer":42}`, string(result.Value))

	result, _ = run(t, func(context.Context, function.Call) (any, error) { return make(chan int), nil })
	assert.Equal(t, executor.Failed, result.Outcome)
	assert.False(t, result.Retryable)
}

// A function that has done its work says so even when it was asked to stop in
// the meantime, but never after a lost lease.
func TestWorkThatIsDoneCountsUnlessTheLeaseIsLost(t *testing.T) {
	t.Parallel()
	finish := func(ctx context.Context, call function.Call) (any, error) {
		_, _ = io.WriteString(call.Stdout, "beat\n")
		<-ctx.Done()
		return "done", nil
	}
	for cause, want := range map[error]executor.Outcome{
		executor.ErrShutdown:  executor.Completed,
		executor.ErrCancelled: executor.Completed,
		executor.ErrLeaseLost: executor.Abandoned,
	} {
		e := function.New(function.Config{Functions: map[string]function.Func{"f": finish}})
		a := executortest.Start(t, e, json.RawMessage(`{"name":"f"}`), time.Hour, 1<<20)
		a.WaitStdout(t, "beat")
		a.Cancel(cause)
		assert.Equal(t, want, a.Wait(t).Outcome, "%v", cause)
	}
}

func TestStrayFunctionsAreCountedUntilTheyEnd(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	e := function.New(function.Config{Functions: map[string]function.Func{"f": stubborn(release)}})
	a := executortest.Start(t, e, json.RawMessage(`{"name":"f"}`), time.Hour, 1<<20)
	a.WaitStdout(t, "beat")
	a.Lease.Extend(0)
	result := a.Wait(t)
	assert.Equal(t, executor.Abandoned, result.Outcome)
	assert.Equal(t, function.Stats{Abandoned: 1, Stray: 1}, e.Stats())
	close(release)
	require.Eventually(t, func() bool { return e.Stats() == function.Stats{Abandoned: 1} }, executortest.Patience, time.Millisecond)
}

func TestBuiltins(t *testing.T) {
	t.Parallel()
	e := function.New(function.Config{Functions: function.Builtins()})
	for _, c := range []struct {
		spec, value, message string
	}{
		{spec: `{"name":"echo","args":{"a":[1,2.50,null]}}`, value: `{"a":[1,2.50,null]}`},
		{spec: `{"name":"echo"}`, value: `null`},
		{spec: `{"name":"noop"}`, value: `null`},
		{spec: `{"name":"sleep","args":{"duration":"1ms"}}`, value: `null`},
		{spec: `{"name":"sleep","args":{"duration":"long"}}`, message: `read args: duration "long" is not a time like "1s"`},
		{spec: `{"name":"sleep","args":{"seconds":1}}`, message: `read args: json: unknown field "seconds"`},
		{spec: `{"name":"fail"}`, message: "failed on request"},
		{spec: `{"name":"fail","args":{"message":"no"}}`, message: "no"},
	} {
		result := executortest.Start(t, e, json.RawMessage(c.spec), time.Hour, 0).Wait(t)
		assert.Equal(t, c.value, string(result.Value), c.spec)
		assert.Equal(t, c.message, result.Message, c.spec)
		assert.False(t, result.Retryable, c.spec)
	}
	a := executortest.Start(t, e, json.RawMessage(`{"name":"sleep","args":{"duration":"1h"}}`), time.Hour, 0)
	a.Cancel(executor.ErrCancelled)
	assert.Equal(t, executor.Cancelled, a.Wait(t).Outcome)
}
