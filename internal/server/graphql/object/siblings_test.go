package object

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSiblingsLoadTogether(t *testing.T) {
	t.Parallel()
	var loads atomic.Int64
	s := &Siblings[string]{Keys: []string{"a", "b"}, Load: func(_ context.Context, keys []string, limit int) (map[string]string, error) {
		loads.Add(1)
		assert.Equal(t, []string{"a", "b"}, keys)
		if limit == 7 {
			return nil, errors.New("no")
		}
		return map[string]string{"a": "of a"}, nil
	}}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			got, err := s.Of(t.Context(), "a", 1)
			assert.NoError(t, err)
			assert.Equal(t, "of a", got)
			none, err := s.Of(t.Context(), "b", 1)
			assert.NoError(t, err)
			assert.Empty(t, none)
		})
	}
	all.Wait()
	assert.EqualValues(t, 1, loads.Load())
	for range 2 { // an error is the same for all
		_, err := s.Of(t.Context(), "a", 7)
		require.EqualError(t, err, "no")
	}
	assert.EqualValues(t, 2, loads.Load())
}

func TestSiblingsWhoseLoadDoesNotEnd(t *testing.T) {
	t.Parallel()
	entered, leave := make(chan struct{}), make(chan struct{})
	s := &Siblings[string]{Load: func(context.Context, []string, int) (map[string]string, error) {
		close(entered)
		<-leave
		panic("no")
	}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		assert.Panics(t, func() { _, _ = s.Of(t.Context(), "a", 0) })
	}()
	<-entered
	given, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Of(given, "b", 0)
	require.ErrorIs(t, err, context.Canceled)
	close(leave)
	<-done
	_, err = s.Of(t.Context(), "b", 0)
	require.Error(t, err, "who comes later does not wait for ever")
}

func TestScalars(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"2026-05-25T19:40:10.676802-03:00", "2026-05-25T22:40:10.676802Z"} {
		moment, err := UnmarshalDateTime(text)
		require.NoError(t, err)
		assert.Equal(t, "2026-05-25T22:40:10.676802Z", moment.Format("2006-01-02T15:04:05.999999Z07:00"))
	}
	for _, wrong := range []any{"yesterday", "2026-05-25", 1, nil} {
		_, err := UnmarshalDateTime(wrong)
		require.ErrorContains(t, err, "DateTime", "%v", wrong)
	}
}
