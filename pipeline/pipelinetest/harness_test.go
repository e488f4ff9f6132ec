package pipelinetest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/pipeline/pipelinetest"
	"github.com/millrace/millrace/topics"
)

// example returns the catalogue's example of E.
func example[E topics.Event]() E {
	var zero E
	t, _ := topics.Lookup(zero.EventType())
	return t.Example.(E)
}

func envelope(t testing.TB, e topics.Event, opts ...topics.EnvelopeOption) topics.Envelope {
	t.Helper()
	env, err := topics.NewEnvelope(e, opts...)
	require.NoError(t, err)
	return env
}

func consumer(h pipeline.Handler) pipeline.Consumer {
	return pipeline.Consumer{Name: "audit", Topic: topics.ExecutionEvents, Handle: h}
}

func TestTypedDispatch(t *testing.T) {
	t.Parallel()
	var seen []string
	h := pipelinetest.New(t, consumer(pipeline.Mux(
		pipeline.On(func(_ context.Context, e topics.ExecutionCompleted) error {
			seen = append(seen, "completed "+e.ExecutionID)
			return nil
		}),
		pipeline.On(func(_ context.Context, e topics.ExecutionFailed) error {
			seen = append(seen, "failed "+e.ExecutionID)
			return nil
		}),
	)))
	completed, failed := example[topics.ExecutionCompleted](), example[topics.ExecutionFailed]()
	outcomes := h.Feed(failed, example[topics.ExecutionStarted](), completed)
	assert.Equal(t, []string{"failed " + failed.ExecutionID, "completed " + completed.ExecutionID}, seen)
	assert.Equal(t, []pipelinetest.Outcome{pipelinetest.Done, pipelinetest.Unknown, pipelinetest.Done}, outcomes)
}

func TestCatchAllsTakeWhatNobodyElseWants(t *testing.T) {
	t.Parallel()
	var seen []string
	h := pipelinetest.New(t, consumer(pipeline.Mux(
		pipeline.On(func(context.Context, topics.ExecutionCompleted) error { seen = append(seen, "typed"); return nil }),
		pipeline.On(func(_ context.Context, e topics.Envelope) error { seen = append(seen, e.Type); return nil }),
		pipeline.On(func(_ context.Context, r topics.Record) error { seen = append(seen, string(r.Value)); return nil }),
	)))
	h.Feed(example[topics.ExecutionCompleted]())
	h.FeedEnvelope(topics.Envelope{ID: "1", Source: "/elsewhere", Type: "foreign.v1"})
	h.FeedRecord(topics.Record{Value: []byte("no event")})
	assert.Equal(t, []string{"typed", "foreign.v1", "no event"}, seen)
}

// own is an event type that is not in the catalogue.
type own struct {
	ID string `json:"id"`
}

func (own) EventType() string  { return "example.own.v1" }
func (e own) EventKey() string { return e.ID }

func TestTypesOutsideTheCatalogue(t *testing.T) {
	t.Parallel()
	var got own
	h := pipelinetest.New(t, consumer(pipeline.On(func(_ context.Context, e own) error { got = e; return nil })))
	h.Feed(own{ID: "7"})
	assert.Equal(t, own{ID: "7"}, got)
	assert.Equal(t, []pipelinetest.Outcome{pipelinetest.DeadLettered},
		h.FeedEnvelope(topics.Envelope{ID: "1", Source: "/s", Type: "example.own.v1", Data: []byte(`{"id": 7}`)}))
}

func TestBadRecordsAreDeadLetteredAtOnce(t *testing.T) {
	t.Parallel()
	calls := 0
	for kind, handler := range map[string]pipeline.Handler{
		"On":   pipeline.On(func(context.Context, topics.ExecutionCompleted) error { calls++; return nil }),
		"OnTx": pipeline.OnTx(func(context.Context, pipeline.Tx, topics.ExecutionCompleted) error { calls++; return nil }),
	} {
		h := pipelinetest.New(t, consumer(handler))
		poison := []byte("\x00\xffnot an event")
		violation := envelope(t, example[topics.ExecutionCompleted]())
		violation.Data = []byte(`{"execution_id": ""}`)
		outcomes := h.FeedRecord(topics.Record{Key: []byte("k"), Value: poison}, violation.Record("", []byte("k")))
		assert.Equal(t, []pipelinetest.Outcome{pipelinetest.DeadLettered, pipelinetest.DeadLettered}, outcomes, kind)
		letters := h.DeadLetters()
		require.Len(t, letters, 2)
		assert.Equal(t, poison, letters[0].Original.Value)
		assert.Equal(t, middleware.MessageFault, letters[0].Class)
		assert.Empty(t, letters[0].EventType)
		assert.Equal(t, violation.ID, letters[1].EventID)
		assert.Equal(t, 1, letters[1].Attempts)
	}
	assert.Zero(t, calls)
}

func TestRetriesThenDeadLetter(t *testing.T) {
	t.Parallel()
	calls := 0
	c := consumer(pipeline.On(func(ctx context.Context, _ topics.ExecutionCompleted) error {
		calls++
		assert.Equal(t, calls, pipeline.Metadata(ctx).Attempt)
		if calls == 2 {
			panic("second time")
		}
		return pipeline.RetryAfter(time.Minute, errors.New("not now"))
	}))
	c.Delivery.MaxAttempts = 3
	h := pipelinetest.New(t, c)
	assert.Equal(t, []pipelinetest.Outcome{pipelinetest.DeadLettered}, h.Feed(example[topics.ExecutionCompleted]()))
	assert.Equal(t, 3, calls)
	assert.Equal(t, []time.Duration{time.Minute, 400 * time.Millisecond}, h.Waits())
	assert.Equal(t, "not now", h.DeadLetters()[0].Reason)
}

func TestDuplicates(t *testing.T) {
	t.Parallel()
	count := func(calls *int) pipeline.Handler {
		return pipeline.OnTx(func(context.Context, pipeline.Tx, topics.ExecutionCompleted) error { *calls++; return nil })
	}
	env := envelope(t, example[topics.ExecutionCompleted]())
	duplicate, done := []pipelinetest.Outcome{pipelinetest.Duplicate}, []pipelinetest.Outcome{pipelinetest.Done}

	t.Run("the same offset again", func(t *testing.T) {
		t.Parallel()
		var calls int
		h := pipelinetest.New(t, consumer(count(&calls)))
		assert.Equal(t, done, h.FeedEnvelope(env))
		again, err := h.Redeliver()
		require.NoError(t, err)
		assert.Equal(t, duplicate, again)
		assert.Equal(t, 1, calls)
	})
	t.Run("the same event at another offset", func(t *testing.T) {
		t.Parallel()
		var calls int
		h := pipelinetest.New(t, consumer(count(&calls)))
		assert.Equal(t, done, h.FeedEnvelope(env))
		assert.Equal(t, duplicate, h.FeedEnvelope(env))
		assert.Equal(t, 1, calls)
	})
	t.Run("the same id from another source is another event", func(t *testing.T) {
		t.Parallel()
		var calls int
		h := pipelinetest.New(t, consumer(count(&calls)))
		h.FeedEnvelope(env)
		other := env
		other.Source = "/elsewhere"
		assert.Equal(t, done, h.FeedEnvelope(other))
	})
	t.Run("guarded by state", func(t *testing.T) {
		t.Parallel()
		var calls int
		c := consumer(count(&calls))
		c.GuardedByState = true
		h := pipelinetest.New(t, c)
		h.FeedEnvelope(env)
		assert.Equal(t, done, h.FeedEnvelope(env), "it keeps no inbox")
		again, err := h.Redeliver()
		require.NoError(t, err)
		assert.Equal(t, duplicate, again, "but it keeps its position")
	})
	t.Run("a replay session is a repetition of its own", func(t *testing.T) {
		t.Parallel()
		var sessions []string
		c := consumer(pipeline.OnTx(func(ctx context.Context, _ pipeline.Tx, _ topics.ExecutionCompleted) error {
			sessions = append(sessions, pipeline.Metadata(ctx).ReplaySession)
			return nil
		}))
		c.Replay = true
		h := pipelinetest.New(t, c)
		h.FeedEnvelope(env)
		replayed := env.Record("", nil, topics.Header{Key: middleware.HeaderReplaySession, Value: []byte("s1")})
		assert.Equal(t, done, h.FeedRecord(replayed))
		assert.Equal(t, duplicate, h.FeedRecord(replayed))
		assert.Equal(t, []string{"", "s1"}, sessions)
	})
	t.Run("a redrive of a dead letter is none", func(t *testing.T) {
		t.Parallel()
		fail, calls := true, 0
		h := pipelinetest.New(t, consumer(pipeline.OnTx(func(context.Context, pipeline.Tx, topics.ExecutionCompleted) error {
			if fail {
				return pipeline.Permanent(errors.New("bug"))
			}
			calls++
			return nil
		})))
		assert.Equal(t, []pipelinetest.Outcome{pipelinetest.DeadLettered}, h.FeedEnvelope(env))
		fail = false
		letter := h.DeadLetters()[0]
		assert.Equal(t, done, h.FeedRecord(letter.Record("")), "also with our headers on it")
		assert.Equal(t, duplicate, h.FeedEnvelope(env), "a second redrive is")
		assert.Equal(t, 1, calls)
	})
}

func TestCommitInDoubt(t *testing.T) {
	t.Parallel()
	for name, done := range map[string]bool{"it was committed": true, "it was not": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := pipelinetest.New(t, consumer(pipeline.OnTx(func(ctx context.Context, tx pipeline.Tx, e topics.ExecutionCompleted) error {
				_, err := tx.Exec(ctx, "INSERT", e.ExecutionID)
				return errors.Join(err, tx.Publish(ctx, example[topics.ExecutionStarted]()))
			})))
			h.FailCommit(errors.New("connection reset"), done)
			_, err := h.TryRecord(envelope(t, example[topics.ExecutionCompleted]()).Record("", nil))
			require.Error(t, err)
			assert.Empty(t, h.DeadLetters())
			require.Len(t, h.Status().Stalls, 1)
			_, err = h.Redeliver()
			require.NoError(t, err)
			assert.Len(t, h.Statements(), 1)
			assert.Len(t, h.Published(), 1)
			assert.Empty(t, h.Status().Stalls)
		})
	}
}

func TestFormerOwnerHasNoEffect(t *testing.T) {
	t.Parallel()
	h := pipelinetest.New(t, consumer(pipeline.OnTx(func(ctx context.Context, tx pipeline.Tx, _ topics.ExecutionCompleted) error {
		return tx.Publish(ctx, example[topics.ExecutionStarted]())
	})))
	h.Evict()
	_, err := h.TryRecord(envelope(t, example[topics.ExecutionCompleted]()).Record("", nil), topics.Record{Value: []byte("poison")})
	require.ErrorIs(t, err, pipeline.ErrFenced)
	assert.Empty(t, h.Published())
	assert.Empty(t, h.DeadLetters())
	h.Reassign()
	outcomes, err := h.Redeliver()
	require.NoError(t, err)
	assert.Equal(t, []pipelinetest.Outcome{pipelinetest.Done, pipelinetest.DeadLettered}, outcomes)
}

func TestShutdownNeverDeadLetters(t *testing.T) {
	t.Parallel()
	for kind, make := range map[string]func(cancel func()) pipeline.Handler{
		"On": func(cancel func()) pipeline.Handler {
			return pipeline.On(func(ctx context.Context, _ topics.ExecutionCompleted) error {
				cancel()
				return fmt.Errorf("call: %w", ctx.Err())
			})
		},
		"OnBatchTx": func(cancel func()) pipeline.Handler {
			return pipeline.OnBatchTx(func(ctx context.Context, _ pipeline.Tx, _ []topics.ExecutionCompleted) error {
				cancel()
				return pipeline.Permanent(errors.New("interrupted half way"))
			})
		},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			h := pipelinetest.New(t, consumer(make(cancel)), pipelinetest.WithContext(ctx))
			r := envelope(t, example[topics.ExecutionCompleted]()).Record("", nil)
			_, err := h.TryRecord(r, r, topics.Record{Value: []byte("poison")})
			require.Error(t, err)
			assert.Empty(t, h.DeadLetters())
			assert.Empty(t, h.Status().Stalls, "a partition that is given back does not stall")
		})
	}
}

func TestUnwritableDeadLetterStallsThePartition(t *testing.T) {
	t.Parallel()
	for kind, handler := range map[string]pipeline.Handler{
		"On":      pipeline.On(func(context.Context, topics.ExecutionCompleted) error { return nil }),
		"OnBatch": pipeline.OnBatch(func(context.Context, []topics.ExecutionCompleted) error { return nil }),
		"OnBatchTx": pipeline.OnBatchTx(func(ctx context.Context, tx pipeline.Tx, batch []topics.ExecutionCompleted) error {
			_, err := tx.Exec(ctx, "INSERT")
			return err
		}),
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			h := pipelinetest.New(t, consumer(handler))
			h.FailDeadLetters(errors.New("record too large"))
			_, err := h.TryRecord(topics.Record{Key: []byte("k"), Value: []byte("poison")}, envelope(t, example[topics.ExecutionCompleted]()).Record("", nil))
			require.ErrorContains(t, err, "record too large")
			require.Len(t, h.Status().Stalls, 1)
			stall := h.Status().Stalls[0]
			assert.Equal(t, []byte("k"), stall.Key)
			assert.Equal(t, "infrastructure", stall.Class)
			assert.Empty(t, h.Statements(), "what lies behind waits")

			h.FailDeadLetters(nil)
			_, err = h.Redeliver()
			require.NoError(t, err)
			assert.Len(t, h.DeadLetters(), 1)
			assert.Empty(t, h.Status().Stalls)
		})
	}
}

func TestPublishedEventsNameTheirCause(t *testing.T) {
	t.Parallel()
	h := pipelinetest.New(t, consumer(pipeline.OnTx(func(ctx context.Context, tx pipeline.Tx, e topics.ExecutionCompleted) error {
		return tx.Publish(ctx, example[topics.ExecutionStarted](),
			pipeline.Outgoing{Event: own{ID: "x"}, Topic: "elsewhere", Sequence: 4})
	})))
	env := envelope(t, example[topics.ExecutionCompleted](), topics.WithCorrelation("corr", ""),
		topics.WithTrace("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", ""))
	h.FeedEnvelope(env)
	assert.Equal(t, []topics.Event{example[topics.ExecutionStarted](), own{ID: "x"}}, h.Published())
	out := h.PublishedEnvelopes()
	for _, o := range out {
		assert.Equal(t, "corr", o.Envelope.CorrelationID)
		assert.Equal(t, env.ID, o.Envelope.CausationID)
		assert.Contains(t, o.Envelope.TraceParent, "0af7651916cd43dd8448eb211c80319c")
	}
	assert.Equal(t, topics.ExecutionEvents, out[0].Topic)
	assert.Equal(t, "execution", out[0].AggregateType)
	assert.Equal(t, topics.Topic("elsewhere"), out[1].Topic)
	assert.EqualValues(t, 4, out[1].Envelope.Sequence)
	assert.Equal(t, "example", out[1].AggregateType)
	assert.Equal(t, "x", out[1].AggregateID)
}

func TestPublishOfAnUnknownTypeNeedsATopic(t *testing.T) {
	t.Parallel()
	c := consumer(pipeline.OnTx(func(ctx context.Context, tx pipeline.Tx, _ topics.ExecutionCompleted) error {
		return pipeline.Permanent(tx.Publish(ctx, own{ID: "x"}))
	}))
	h := pipelinetest.New(t, c)
	h.Feed(example[topics.ExecutionCompleted]())
	assert.Contains(t, h.DeadLetters()[0].Reason, "name a topic with Outgoing")
	assert.Empty(t, h.Published())
}

func TestBatchesKeepOrderAcrossTypes(t *testing.T) {
	t.Parallel()
	var calls []string
	h := pipelinetest.New(t, consumer(pipeline.Mux(
		pipeline.OnBatchTx(func(ctx context.Context, _ pipeline.Tx, batch []topics.ExecutionCompleted) error {
			calls = append(calls, fmt.Sprint("completed ", len(batch), " ", len(pipeline.BatchMetadata(ctx))))
			return nil
		}),
		pipeline.OnBatchTx(func(_ context.Context, _ pipeline.Tx, batch []topics.ExecutionFailed) error {
			calls = append(calls, fmt.Sprint("failed ", len(batch)))
			return nil
		}),
	)))
	completed, failed := example[topics.ExecutionCompleted](), example[topics.ExecutionFailed]()
	h.Feed(completed, completed, example[topics.ExecutionStarted](), completed, failed, failed, completed)
	assert.Equal(t, []string{"completed 3 3", "failed 2", "completed 1 1"}, calls)
	assert.EqualValues(t, 7, h.Position())
}

// An OnBatch handler gets runs of one type, and what follows a bad record is handled
// before that is filed, in order.
func TestOnBatchIsBisected(t *testing.T) {
	t.Parallel()
	var calls []string
	c := consumer(pipeline.Mux(
		pipeline.OnBatch(func(ctx context.Context, batch []topics.ExecutionCompleted) error {
			text := ""
			for _, e := range batch {
				text += e.ExecutionID
			}
			calls = append(calls, text)
			assert.Len(t, pipeline.BatchMetadata(ctx), len(batch))
			if strings.Contains(text, "x") {
				return pipeline.Permanent(errors.New("no"))
			}
			return nil
		}),
		pipeline.OnBatch(func(_ context.Context, batch []topics.ExecutionFailed) error {
			calls = append(calls, fmt.Sprint("failed ", len(batch)))
			return nil
		}),
	))
	h := pipelinetest.New(t, c)
	of := func(id string) topics.ExecutionCompleted {
		e := example[topics.ExecutionCompleted]()
		e.ExecutionID = id
		return e
	}
	outcomes := h.Feed(of("a"), of("x"), of("b"), of("c"), example[topics.ExecutionFailed]())
	assert.Equal(t, []pipelinetest.Outcome{
		pipelinetest.Done, pipelinetest.DeadLettered, pipelinetest.Done, pipelinetest.Done, pipelinetest.Done}, outcomes)
	assert.Equal(t, []string{"axbc", "ax", "a", "x", "bc", "failed 1"}, calls)
	require.Len(t, h.DeadLetters(), 1)
	assert.EqualValues(t, 1, h.DeadLetters()[0].Original.Offset)
}

// Any mix of good, failing, undecodable, unknown and repeated records, in batches
// of any size: each good one has its effect once and in order, each bad one is
// filed, and all of that also when the process keeps losing its commits.
func TestBatchProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		var applied []string
		c := consumer(pipeline.OnBatchTx(func(ctx context.Context, tx pipeline.Tx, batch []own) error {
			for _, e := range batch {
				if e.ID[0] == 'b' {
					return fmt.Errorf("cannot do %s", e.ID)
				}
				if _, err := tx.Exec(ctx, e.ID); err != nil {
					return err
				}
			}
			return nil
		}))
		c.BatchSize = rapid.IntRange(1, 40).Draw(rt, "batch")
		c.Delivery = pipeline.Delivery{MaxAttempts: 2, Breaker: pipeline.Breaker{Faults: -1}}
		h := pipelinetest.New(t, c)
		var records []topics.Record
		var wantApplied, wantFiled []string
		for i, kind := range rapid.SliceOfN(rapid.SampledFrom([]string{"good", "good", "good", "bad", "poison", "unknown", "again"}), 1, 60).Draw(rt, "kinds") {
			id := fmt.Sprintf("%s-%d", kind, i)
			switch kind {
			case "poison":
				records = append(records, topics.Record{Key: []byte(id), Value: []byte("{")})
				wantFiled = append(wantFiled, id)
				continue
			case "unknown":
				records = append(records, topics.Envelope{ID: id, Source: "/s", Type: "unknown.v1"}.Record("", []byte(id)))
				continue
			case "again":
				if len(records) > 0 && len(records[i-1].Key) > 0 && records[i-1].Key[0] == 'g' {
					records = append(records, records[i-1])
					continue
				}
			case "bad":
				wantFiled = append(wantFiled, id)
			}
			if kind != "bad" {
				wantApplied = append(wantApplied, id)
			}
			env, err := topics.NewEnvelope(own{ID: id})
			require.NoError(rt, err)
			records = append(records, env.Record("", []byte(id)))
		}
		losses := rapid.SliceOfN(rapid.Bool(), 0, 8).Draw(rt, "lost commits")
		var outcomes []pipelinetest.Outcome
		for i := 0; ; i++ {
			var err error
			if i < len(losses) {
				h.FailCommit(errors.New("connection lost"), losses[i])
			}
			if i == 0 {
				outcomes, err = h.TryRecord(records...)
			} else {
				outcomes, err = h.Redeliver()
			}
			if err == nil {
				break
			}
			require.Less(rt, i, len(losses), "stalls: %v", err)
		}
		for _, st := range h.Statements() {
			applied = append(applied, st.SQL)
		}
		require.Equal(rt, wantApplied, applied)
		var filed []string
		for _, l := range h.DeadLetters() {
			filed = append(filed, string(l.Original.Key))
		}
		require.Equal(rt, wantFiled, filed)
		require.NotContains(rt, outcomes, pipelinetest.Unsettled)
	})
}

func TestAKeyIsParkedBehindItsDeadLetter(t *testing.T) {
	t.Parallel()
	var seen []string
	c := consumer(pipeline.OnTx(func(_ context.Context, _ pipeline.Tx, r topics.Record) error {
		if string(r.Value) == "bad" {
			return pipeline.Permanent(errors.New("bad"))
		}
		seen = append(seen, string(r.Value))
		return nil
	}))
	c.Delivery.Ordered = pipeline.PerKey
	h := pipelinetest.New(t, c)
	record := func(key, value string) topics.Record { return topics.Record{Key: []byte(key), Value: []byte(value)} }
	outcomes := h.FeedRecord(record("a", "a1"), record("a", "bad"), record("b", "b1"), record("a", "a2"),
		topics.Record{Value: []byte("bad")}, topics.Record{Value: []byte("c1")})
	assert.Equal(t, []pipelinetest.Outcome{
		pipelinetest.Done, pipelinetest.DeadLettered, pipelinetest.Done, pipelinetest.Parked, pipelinetest.DeadLettered, pipelinetest.Done,
	}, outcomes)
	assert.Equal(t, []string{"a1", "b1", "c1"}, seen)
	require.Len(t, h.Parked(), 1)
	assert.Equal(t, "a2", string(h.Parked()[0].Value))
	assert.EqualValues(t, 6, h.Position())
}
