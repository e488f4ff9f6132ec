package worker_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/results"
)

// returning has every attempt return a JSON text of n bytes.
func (b *bench) returning(n int) []byte {
	value := append(append([]byte(`"`), bytes.Repeat([]byte("x"), n-2)...), '"')
	b.exec.run = func(context.Context, executor.Task, executor.Lease, executor.Sink) executor.Result {
		return executor.Result{Outcome: executor.Completed, Value: value}
	}
	return value
}

func TestLongValuesAreKeptApart(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		bytes int
		apart bool
	}{
		"as long as may be": {100, false}, "a byte more": {101, true}, "as long as is allowed": {1000, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.cfg.MaxResultInline, b.cfg.MaxResult = 100, 1000
			kept := results.New(b.pool, results.NewPostgres(b.pool))
			b.results = kept
			want := b.returning(tc.bytes)
			id := b.offered(1)[0]
			b.start()
			e := b.await(id, execution.Completed)
			if !tc.apart {
				assert.Equal(t, string(want), string(e.Result.Value))
				assert.Nil(t, e.Result.ValueRef)
				return
			}
			assert.Nil(t, e.Result.Value)
			require.NotNil(t, e.Result.ValueRef)
			in, err := kept.Open(t.Context(), executor.ValueReference(*e.Result.ValueRef))
			require.NoError(t, err)
			got, err := io.ReadAll(in)
			require.NoError(t, err)
			require.NoError(t, in.Close())
			assert.Equal(t, string(want), string(got))

			var event string
			require.NoError(t, b.pool.QueryRow(t.Context(),
				`SELECT convert_from(payload, 'UTF8') FROM outbox_events WHERE event_type LIKE '%completed%'`).Scan(&event))
			assert.Contains(t, event, e.Result.ValueRef.ID)
			assert.NotContains(t, event, "xxxx")
		})
	}
}

func TestAValueThatIsTooLongFailsTheExecution(t *testing.T) {
	t.Parallel()
	for name, keeps := range map[string]bool{"for any place": true, "for an event, where there is no other place": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.cfg.MaxResultInline, b.cfg.MaxResult = 100, 1000
			if keeps {
				b.results = results.New(b.pool, results.NewPostgres(b.pool))
			}
			b.returning(1001)
			id := b.offered(1, retried)[0]
			b.start()
			e := b.await(id, execution.Failed)
			assert.Equal(t, "result_too_large", e.Result.Reason)
			assert.Contains(t, e.Result.Message, "1001 bytes")
			assert.Equal(t, 1, e.Attempt, "another attempt would not make it shorter")
		})
	}
}

// broken is a place for results that fails.
type broken struct {
	*results.Store
	left  atomic.Int64
	calls atomic.Int64
	err   error
}

func (k *broken) Put(ctx context.Context, id string, attempt int, ref executor.ValueReference, value []byte) error {
	k.calls.Add(1)
	if k.left.Add(-1) >= 0 {
		return k.err
	}
	return k.Store.Put(ctx, id, attempt, ref, value)
}

func TestValuesAreTriedToBeKept(t *testing.T) {
	t.Parallel()
	away := io.ErrUnexpectedEOF // a connection that broke
	for name, tc := range map[string]struct {
		err    error
		faults int64
		want   execution.State
	}{
		"a few faults":               {errors.New("disk is full"), 3, execution.Completed},
		"many":                       {errors.New("disk is full"), 100, execution.Failed},
		"while the database is away": {away, 6, execution.Completed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.cfg.MaxResultInline = 100
			k := &broken{Store: results.New(b.pool, results.NewPostgres(b.pool)), err: tc.err}
			k.left.Store(tc.faults)
			b.results = k
			b.returning(200)
			id := b.offered(1)[0]
			b.start()
			e := b.await(id, tc.want)
			if tc.want == execution.Failed {
				assert.Equal(t, "result_not_stored", e.Result.Reason)
				assert.Contains(t, e.Result.Message, "disk is full")
				assert.EqualValues(t, 5, k.calls.Load())
			}
		})
	}
}
