package ledger

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/topics"
)

func TestLedgerFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	m := Maker{Topic: "t", Keys: 2, ValueBytes: 100}
	var records []topics.Record
	for range 4 {
		records = append(records, m.Next())
	}
	assert.Equal(t, 4, m.Made())
	assert.Len(t, records[0].Value, 100)
	assert.Equal(t, records[0].Key, records[2].Key)
	assert.NotEqual(t, records[0].Key, records[1].Key)
	for name, c := range map[string]struct {
		order    []int
		repeated int
		problem  string
	}{
		"all":        {order: []int{0, 1, 2, 3}},
		"by key":     {order: []int{1, 3, 0, 2}},
		"repeated":   {order: []int{0, 1, 0, 2, 3, 1}, repeated: 2},
		"disordered": {order: []int{2, 1, 0, 3}, problem: "1 out of order"},
		"lost":       {order: []int{0, 2, 3}, problem: "3 of 4"},
	} {
		l := New()
		for i, n := range c.order {
			l.note(records[n].Key, records[n].Value, time.Unix(int64(i), 0))
		}
		repeated, err := l.Check(4)
		assert.Equal(t, c.repeated, repeated, name)
		if c.problem == "" {
			assert.NoError(t, err, name)
			assert.NoError(t, l.Wait(t.Context(), 4), name)
			continue
		}
		assert.ErrorContains(t, err, c.problem, name)
	}
	l := New()
	for i, n := range []int{0, 1, 2, 3} {
		l.note(records[n].Key, records[n].Value, time.Unix(int64(10+i/2), 0))
	}
	began, ended, together := l.Lapsed()
	assert.Equal(t, []any{time.Unix(10, 0), time.Unix(11, 0), 2}, []any{began, ended, together})
	over, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, New().Wait(over, 1), context.Canceled)
}
