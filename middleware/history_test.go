package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/topics"
)

// failing runs a handler that fails at every live record, at times a second apart.
func failing(t *testing.T, attempts int, fail func(n int) error) *middleware.Letter {
	t.Helper()
	cfg := noWait()
	cfg.MaxAttempts = attempts
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	cfg.Now = func() time.Time { at = at.Add(time.Second); return at }
	n := 0
	f, err := run(t.Context(), cfg, func(_ context.Context, f *middleware.Flight) error {
		if f.Live() == 0 {
			settle(f)
			return nil
		}
		n++
		return fail(n)
	}, topics.Record{})
	require.NoError(t, err)
	return f.Items[0].Letter
}

func TestALetterTellsOfItsFirstAndItsLastAttempts(t *testing.T) {
	t.Parallel()
	l := failing(t, 3, func(n int) error { return fmt.Errorf("fault %d", n) })
	require.Len(t, l.History, 3)
	assert.Equal(t, middleware.Failure{Attempt: 1, At: time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC), Records: 1, Error: "fault 1"}, l.History[0])
	assert.True(t, l.History[2].At.After(l.History[1].At))
	assert.Empty(t, l.Stack)

	l = failing(t, 40, func(n int) error { return fmt.Errorf("fault %d %s", n, strings.Repeat("é", 500)) })
	require.Len(t, l.History, middleware.MaxHistory)
	var attempts []int
	for _, f := range l.History {
		attempts = append(attempts, f.Attempt)
		assert.LessOrEqual(t, len(f.Error), middleware.MaxHistoryErrorBytes)
	}
	assert.Equal(t, []int{1, 2, 3, 4, 5, 36, 37, 38, 39, 40}, attempts)
	parsed, err := middleware.ParseLetter(l.Record("dead_letters"))
	require.NoError(t, err)
	assert.Equal(t, l.History, parsed.History)
}

func TestTheStackOfAPanicIsInTheLetterAndNotInItsRecord(t *testing.T) {
	t.Parallel()
	l := failing(t, 2, func(int) error { panic("out of prices") })
	assert.Contains(t, l.Stack, "history_test.go")
	assert.LessOrEqual(t, len(l.Stack), middleware.MaxStackBytes)
	for _, h := range l.Record("dead_letters").Headers {
		assert.NotContains(t, string(h.Value), "history_test.go", h.Key)
	}
}

func TestAReferenceIsALetterWithoutWhatIsLarge(t *testing.T) {
	t.Parallel()
	l := letterFor(t, middleware.Malformed(errors.New("x")), topics.Record{
		Key: []byte("k"), Value: make([]byte, 100_000), Headers: []topics.Header{{Key: "a", Value: []byte("b")}}})
	r := l.Reference("dead_letters", "some id")
	assert.Equal(t, "k", string(r.Key))
	assert.Nil(t, r.Value)
	parsed, err := middleware.ParseLetter(r)
	require.NoError(t, err)
	assert.Equal(t, "some id", parsed.StoredID)
	assert.Equal(t, l.Original.Headers, parsed.Original.Headers)
	assert.Equal(t, l.Original.Offset, parsed.Original.Offset)

	l.Original.Key, l.Original.Headers = make([]byte, 40_000), []topics.Header{{Key: "a", Value: make([]byte, 40_000)}}
	r = l.Reference("dead_letters", "some id")
	assert.Nil(t, r.Key)
	size := 0
	for _, h := range r.Headers {
		size += len(h.Key) + len(h.Value)
	}
	assert.Less(t, size, 8192, "it fits into any topic")
}

// Letters from before there was a history are read.
func TestALetterWithoutHistoryIsRead(t *testing.T) {
	t.Parallel()
	l := letterFor(t, middleware.Malformed(errors.New("x")), topics.Record{Headers: []topics.Header{{Key: "a"}}})
	r := l.Record("dead_letters")
	last := len(r.Headers) - 1
	require.Equal(t, middleware.HeaderHistory, r.Headers[last].Key)
	for _, headers := range [][]topics.Header{
		r.Headers[:last],
		append(r.Headers[:last:last], topics.Header{Key: middleware.HeaderHistory, Value: []byte("{")}),
	} {
		parsed, err := middleware.ParseLetter(topics.Record{Headers: headers})
		require.NoError(t, err)
		assert.Nil(t, parsed.History)
		assert.Equal(t, l.Original.Headers, parsed.Original.Headers)
	}
}
