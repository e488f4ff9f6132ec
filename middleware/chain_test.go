package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/delivery"
	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/topics"
)

// run takes one delivery of records with the given values through the chain.
func run(ctx context.Context, cfg middleware.Config, h func(context.Context, *middleware.Flight) error, records ...topics.Record) (*middleware.Flight, error) {
	for i := range records {
		records[i].Topic, records[i].Offset = "execution_events", int64(i)
	}
	f := middleware.NewFlight(&delivery.Delivery{Topic: "execution_events", Records: records, Try: 1})
	msg := message.NewMessageWithContext(middleware.WithFlight(delivery.NewContext(ctx, f.Delivery), f), "", nil)
	if cfg.Consumer == "" {
		cfg.Consumer, cfg.Group = "audit", "millrace-audit"
	}
	chain := middleware.Apply(func(msg *message.Message) ([]*message.Message, error) {
		return nil, h(msg.Context(), middleware.FlightFrom(msg.Context()))
	}, middleware.Chain(cfg))
	_, err := chain(msg)
	return f, err
}

// settle does what a handler has to do with a flight that it handled.
func settle(f *middleware.Flight) {
	for i := range f.Items {
		switch item := &f.Items[i]; {
		case item.Live():
			item.Outcome = middleware.Done
		case item.Outcome == middleware.Open:
			item.Outcome = middleware.DeadLettered
		}
	}
}

func outcomes(f *middleware.Flight) []middleware.Outcome {
	var all []middleware.Outcome
	for _, item := range f.Items {
		all = append(all, item.Outcome)
	}
	return all
}

// noWait is a configuration whose retries do not wait.
func noWait() middleware.Config {
	return middleware.Config{Sleep: func(ctx context.Context, _ time.Duration) bool { return ctx.Err() == nil }}
}

func TestRetryAttemptsUpToTheLimitAndThenDeadLetters(t *testing.T) {
	t.Parallel()
	var waits []time.Duration
	cfg := middleware.Config{
		Backoff: middleware.Backoff{Initial: time.Second, NoJitter: true},
		Sleep:   func(_ context.Context, d time.Duration) bool { waits = append(waits, d); return true },
	}
	attempts := 0
	f, err := run(t.Context(), cfg, func(_ context.Context, f *middleware.Flight) error {
		if f.Live() == 0 {
			settle(f)
			return nil
		}
		attempts++
		assert.Equal(t, attempts, f.Attempt)
		return errors.New("no luck")
	}, topics.Record{})
	require.NoError(t, err)
	assert.Equal(t, 5, attempts)
	assert.Equal(t, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second}, waits)
	assert.Equal(t, []middleware.Outcome{middleware.DeadLettered}, outcomes(f))
	assert.Equal(t, 5, f.Items[0].Letter.Attempts)
	assert.Equal(t, middleware.HandlerFault, f.Items[0].Letter.Class)
}

func TestRetryHonoursMarks(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for name, tc := range map[string]struct {
		err      error
		attempts int
		wait     time.Duration
		nacked   bool
	}{
		"permanent":         {middleware.Permanent(boom), 1, 0, false},
		"malformed":         {middleware.Malformed(boom), 1, 0, false},
		"retry after":       {middleware.RetryAfter(42*time.Second, boom), 5, 42 * time.Second, false},
		"infrastructure":    {middleware.Infrastructure(boom), 1, 0, true},
		"lost transaction":  {sqlError("40001"), 5, 200 * time.Millisecond, true},
		"constraint":        {sqlError("23514"), 1, 0, false},
		"database is away":  {sqlError("57P03"), 1, 0, true},
		"somebody else's":   {middleware.ErrFenced, 1, 0, true},
		"unmarked is tried": {boom, 5, 200 * time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var waits []time.Duration
			cfg := middleware.Config{
				Backoff: middleware.Backoff{NoJitter: true},
				Sleep:   func(_ context.Context, d time.Duration) bool { waits = append(waits, d); return true },
			}
			attempts := 0
			_, err := run(t.Context(), cfg, func(_ context.Context, f *middleware.Flight) error {
				if f.Live() == 0 {
					settle(f)
					return nil
				}
				attempts++
				return tc.err
			}, topics.Record{})
			assert.Equal(t, tc.attempts, attempts)
			assert.Equal(t, tc.nacked, err != nil)
			if tc.wait > 0 {
				assert.Equal(t, tc.wait, waits[0])
			} else {
				assert.Empty(t, waits)
			}
		})
	}
}

func TestShutdownInterruptsTheWaitAndNeverDeadLetters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(3*time.Second, cancel)
		cfg := middleware.Config{MaxAttempts: 3, Backoff: middleware.Backoff{Initial: time.Hour, Max: time.Hour, NoJitter: true}}
		start, attempts := time.Now(), 0
		f, err := run(ctx, cfg, func(context.Context, *middleware.Flight) error { attempts++; return errors.New("boom") }, topics.Record{})
		require.Error(t, err)
		assert.Equal(t, 3*time.Second, time.Since(start))
		assert.Equal(t, 1, attempts)
		assert.Nil(t, f.Items[0].Letter)
		assert.Error(t, f.Delivery.Err(), "the transport learns why")
	})
}

func TestHandlerInterruptedByShutdownIsNotBlamed(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cfg := noWait()
	cfg.MaxAttempts = 1
	f, err := run(ctx, cfg, func(ctx context.Context, _ *middleware.Flight) error {
		cancel()
		return middleware.Permanent(ctx.Err())
	}, topics.Record{})
	require.Error(t, err)
	assert.Nil(t, f.Items[0].Letter)
}

func TestTimeoutIsFreshForEachAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := middleware.Config{Timeout: time.Second, MaxAttempts: 3}
		attempts := 0
		f, err := run(t.Context(), cfg, func(ctx context.Context, f *middleware.Flight) error {
			if f.Live() == 0 {
				settle(f)
				return nil
			}
			attempts++
			require.NoError(t, ctx.Err(), "attempt %d starts with a context that has ended", attempts)
			if attempts < 3 {
				<-ctx.Done()
				return ctx.Err()
			}
			settle(f)
			return nil
		}, topics.Record{})
		require.NoError(t, err)
		assert.Equal(t, []middleware.Outcome{middleware.Done}, outcomes(f))
	})
}

func TestPanicIsAHandlerFaultWithoutItsStackInTheLetter(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	cfg := noWait()
	cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	attempts := 0
	f, err := run(t.Context(), cfg, func(_ context.Context, f *middleware.Flight) error {
		if f.Live() == 0 {
			settle(f)
			return nil
		}
		attempts++
		panic("kaboom")
	}, topics.Record{})
	require.NoError(t, err)
	assert.Equal(t, 5, attempts)
	assert.Equal(t, "handler panicked: kaboom", f.Items[0].Letter.Reason)
	assert.Contains(t, log.String(), "chain_test.go", "the stack is in the log")
}

// What a handler says goes into the letter as it is, like the record itself, and into
// the log without what looks like a secret.
func TestSecretsOfHandlersStayOutOfTheLog(t *testing.T) {
	t.Parallel()
	const said = "dial postgres://app:hunter2@db: refused"
	for name, fail := range map[string]func() error{
		"an error": func() error { return errors.New(said) },
		"a panic":  func() error { panic(said) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			cfg := noWait()
			cfg.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
			f, err := run(t.Context(), cfg, func(_ context.Context, f *middleware.Flight) error {
				if f.Live() == 0 {
					settle(f)
					return nil
				}
				return fail()
			}, topics.Record{})
			require.NoError(t, err)
			assert.Contains(t, f.Items[0].Letter.Reason, said)
			for _, line := range []string{"attempt failed", "record dead-lettered", "postgres://app:***@db"} {
				assert.Contains(t, log.String(), line)
			}
			assert.NotContains(t, log.String(), "hunter2")
		})
	}
}

func TestFence(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	f, err := run(ctx, noWait(), func(_ context.Context, f *middleware.Flight) error {
		settle(f)
		cancel() // the partition is lost while the handler is at work
		return nil
	}, topics.Record{})
	require.ErrorIs(t, err, middleware.ErrFenced, "a former owner acks nothing")
	assert.Nil(t, f.Items[0].Letter)

	called := false
	_, err = run(ctx, noWait(), func(context.Context, *middleware.Flight) error { called = true; return nil }, topics.Record{})
	require.ErrorIs(t, err, middleware.ErrFenced)
	assert.False(t, called)
}

func TestTargetAndReplay(t *testing.T) {
	t.Parallel()
	header := func(key, value string) topics.Record {
		return topics.Record{Headers: []topics.Header{{Key: key, Value: []byte(value)}}}
	}
	for name, tc := range map[string]struct {
		record topics.Record
		replay bool
		want   middleware.Outcome
	}{
		"no header":            {topics.Record{}, false, middleware.Done},
		"named":                {header(middleware.HeaderTarget, "audit"), false, middleware.Done},
		"named among others":   {header(middleware.HeaderTarget, "views, audit"), false, middleware.Done},
		"not named":            {header(middleware.HeaderTarget, "auditor,views"), false, middleware.NotTargeted},
		"empty list":           {header(middleware.HeaderTarget, " "), false, middleware.Done},
		"replay, not wanted":   {header(middleware.HeaderReplaySession, "s1"), false, middleware.ReplayDropped},
		"replay, wanted":       {header(middleware.HeaderReplaySession, "s1"), true, middleware.Done},
		"empty replay session": {header(middleware.HeaderReplaySession, ""), false, middleware.Done},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := noWait()
			cfg.Replay = tc.replay
			f, err := run(t.Context(), cfg, func(_ context.Context, f *middleware.Flight) error { settle(f); return nil }, tc.record)
			require.NoError(t, err)
			assert.Equal(t, []middleware.Outcome{tc.want}, outcomes(f))
		})
	}
}

// Whoever acts on a replay sees the time that the record had, unless it claims to come
// from the future of the replay.
func TestAReplayedRecordHasTheTimeThatItHad(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_800_000_000_000)
	for header, want := range map[string]time.Time{
		"1700000000123": time.UnixMilli(1_700_000_000_123), "1800000000001": now, "": now, "x": now, "-5": now, "0": now, "99999999999999999999": now,
	} {
		record := topics.Record{Timestamp: now, Headers: []topics.Header{
			{Key: middleware.HeaderReplaySession, Value: []byte("s1")}, {Key: middleware.HeaderReplayTime, Value: []byte(header)}}}
		cfg := noWait()
		cfg.Replay = true
		f, err := run(t.Context(), cfg, func(_ context.Context, f *middleware.Flight) error { settle(f); return nil }, record)
		require.NoError(t, err)
		assert.True(t, want.Equal(f.Items[0].Record.Timestamp), "%q: %s", header, f.Items[0].Record.Timestamp)

		record.Headers = record.Headers[1:]
		f, err = run(t.Context(), cfg, func(_ context.Context, f *middleware.Flight) error { settle(f); return nil }, record)
		require.NoError(t, err)
		assert.True(t, now.Equal(f.Items[0].Record.Timestamp), "it is no replay")
	}
}

func TestBlockStallsInsteadOfDeadLettering(t *testing.T) {
	t.Parallel()
	cfg := noWait()
	cfg.OnExhausted = middleware.Block
	f, err := run(t.Context(), cfg, func(context.Context, *middleware.Flight) error { return errors.New("boom") }, topics.Record{})
	require.ErrorContains(t, err, "boom")
	assert.Nil(t, f.Items[0].Letter)

	f, err = run(t.Context(), cfg, func(_ context.Context, f *middleware.Flight) error {
		if f.Live() > 0 {
			return middleware.Malformed(errors.New("bad bytes"))
		}
		settle(f)
		return nil
	}, topics.Record{})
	require.NoError(t, err, "bytes that never decode are no reason to wait")
	assert.Equal(t, []middleware.Outcome{middleware.DeadLettered}, outcomes(f))
}

func TestUnwritableDeadLetterStalls(t *testing.T) {
	t.Parallel()
	calls := 0
	_, err := run(t.Context(), noWait(), func(_ context.Context, f *middleware.Flight) error {
		calls++
		if f.Live() == 0 {
			panic("the writer of letters has a bug")
		}
		return middleware.Malformed(errors.New("bad"))
	}, topics.Record{})
	require.Error(t, err)
	assert.Equal(t, middleware.InfrastructureFault, middleware.Classify(t.Context(), err))
	assert.Equal(t, 2, calls)
}

func TestTooManyFaultsStall(t *testing.T) {
	t.Parallel()
	var filed int
	chain := middleware.Apply(func(msg *message.Message) ([]*message.Message, error) {
		f := middleware.FlightFrom(msg.Context())
		if f.Live() > 0 {
			return nil, middleware.Malformed(errors.New("bad"))
		}
		filed++
		settle(f)
		return nil, nil
	}, middleware.Chain(noWait()))
	var err error
	for range 30 {
		d := &delivery.Delivery{Topic: "t", Records: []topics.Record{{}}}
		_, err = chain(message.NewMessageWithContext(delivery.NewContext(t.Context(), d), "", nil))
	}
	require.ErrorIs(t, err, middleware.ErrTooManyFaults)
	assert.Equal(t, middleware.BreakerFaultsDefault, filed)
}

// Any subset of bad records of a batch: exactly those are dead-lettered, every
// other one is applied once, in order, at a cost that is logarithmic for each.
func TestBisect(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 200).Draw(t, "n")
		bad := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) bool { return rapid.IntRange(0, 9).Draw(t, "one in ten") == 0 }), n, n).Draw(t, "bad")
		cfg := noWait()
		cfg.MaxAttempts, cfg.Breaker.Faults = 1, -1
		var applied []int64
		failures := 0
		f, err := run(context.Background(), cfg, func(_ context.Context, f *middleware.Flight) error {
			for i := range f.Items {
				if f.Items[i].Live() && bad[f.Items[i].Record.Offset] {
					failures++
					return fmt.Errorf("record %d", f.Items[i].Record.Offset)
				}
			}
			for i := range f.Items {
				if f.Items[i].Live() {
					applied = append(applied, f.Items[i].Record.Offset)
				}
			}
			settle(f)
			return nil
		}, make([]topics.Record, n)...)
		if err != nil {
			t.Fatalf("settle: %v", err)
		}
		var want []int64
		count := 0
		for i, isBad := range bad {
			if !isBad {
				want = append(want, int64(i))
			} else {
				count++
			}
			if isBad != (f.Items[i].Outcome == middleware.DeadLettered) {
				t.Fatalf("record %d: bad is %v, outcome %s", i, isBad, f.Items[i].Outcome)
			}
		}
		if fmt.Sprint(applied) != fmt.Sprint(want) {
			t.Fatalf("applied %v, want %v", applied, want)
		}
		log2 := 1
		for 1<<(log2-1) < n {
			log2++
		}
		if failures > count*log2 {
			t.Fatalf("%d bad of %d cost %d failures, want at most %d", count, n, failures, count*log2)
		}
	})
}

func TestMetricsCountRecordsByOutcome(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	metrics, err := middleware.NewMetrics(reg)
	require.NoError(t, err)
	again, err := middleware.NewMetrics(reg)
	require.NoError(t, err)
	assert.NotNil(t, again, "two routers share a registry")
	cfg := noWait()
	cfg.Metrics, cfg.MaxAttempts = metrics, 1
	_, err = run(t.Context(), cfg, func(_ context.Context, f *middleware.Flight) error {
		for i := range f.Items {
			if f.Items[i].Live() && f.Items[i].Record.Offset == 1 {
				return errors.New("bad")
			}
		}
		settle(f)
		return nil
	}, topics.Record{}, topics.Record{}, topics.Record{Headers: []topics.Header{{Key: middleware.HeaderTarget, Value: []byte("x")}}})
	require.NoError(t, err)
	_, err = run(t.Context(), cfg, func(context.Context, *middleware.Flight) error {
		return middleware.Infrastructure(errors.New("down"))
	}, topics.Record{}, topics.Record{})
	require.Error(t, err)
	assert.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP millrace_events_consumed_total Records that passed through a consumer, by outcome. Records that are delivered again count again.
# TYPE millrace_events_consumed_total counter
millrace_events_consumed_total{consumer="audit",outcome="dead_lettered",topic="execution_events"} 1
millrace_events_consumed_total{consumer="audit",outcome="done",topic="execution_events"} 1
millrace_events_consumed_total{consumer="audit",outcome="not_targeted",topic="execution_events"} 1
millrace_events_consumed_total{consumer="audit",outcome="stalled",topic="execution_events"} 2
`), "millrace_events_consumed_total"))
}

func TestTraceContinuesTheProducersTraceAndNamesTheCause(t *testing.T) {
	t.Parallel()
	env := topics.Envelope{
		ID: "e1", Source: "/s", Type: "t.v1", CorrelationID: "c1",
		TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}
	_, err := run(t.Context(), noWait(), func(ctx context.Context, f *middleware.Flight) error {
		assert.Equal(t, middleware.Cause{CorrelationID: "c1", CausationID: "e1"}, middleware.CauseFrom(ctx))
		assert.Equal(t, "0af7651916cd43dd8448eb211c80319c", trace.SpanContextFromContext(ctx).TraceID().String())
		settle(f)
		return nil
	}, env.Record("t", nil))
	require.NoError(t, err)
	// Of a batch, only what all have in common.
	other := env
	other.ID = "e2"
	_, err = run(t.Context(), noWait(), func(ctx context.Context, f *middleware.Flight) error {
		assert.Equal(t, middleware.Cause{CorrelationID: "c1"}, middleware.CauseFrom(ctx))
		settle(f)
		return nil
	}, env.Record("t", nil), other.Record("t", nil))
	require.NoError(t, err)
}
