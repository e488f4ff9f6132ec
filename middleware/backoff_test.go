package middleware_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/middleware"
)

func TestBackoffWait(t *testing.T) {
	t.Parallel()
	exact := middleware.Backoff{Initial: time.Second, Max: 10 * time.Second, Multiplier: 2, NoJitter: true}
	jitter := middleware.Backoff{Initial: time.Second, Max: 10 * time.Second, Multiplier: 2}
	for _, tc := range []struct {
		backoff middleware.Backoff
		failed  int
		random  float64
		want    time.Duration
	}{
		{exact, 1, 0.9, time.Second},
		{exact, 2, 0.9, 2 * time.Second},
		{exact, 3, 0.9, 4 * time.Second},
		{exact, 4, 0.9, 8 * time.Second},
		{exact, 5, 0.9, 10 * time.Second},
		{exact, 1_000_000, 0.9, 10 * time.Second},
		{exact, 0, 0.9, time.Second},
		{jitter, 1, 0, 0},
		{jitter, 1, 0.5, 500 * time.Millisecond},
		{jitter, 3, 0.25, time.Second},
		{jitter, 9, 0.5, 5 * time.Second},
		{middleware.Backoff{Initial: time.Second, Max: time.Hour, Multiplier: 1.5, NoJitter: true}, 3, 0, 2250 * time.Millisecond},
		{middleware.Backoff{Initial: time.Second, Max: math.MaxInt64, Multiplier: 10, NoJitter: true}, 400, 0, math.MaxInt64},
	} {
		t.Run(fmt.Sprintf("%v/%d/%v", tc.backoff, tc.failed, tc.random), func(t *testing.T) {
			t.Parallel()
			got := tc.backoff.Wait(tc.failed, tc.random)
			assert.Equal(t, tc.want, got)
			assert.GreaterOrEqual(t, got, time.Duration(0))
		})
	}
}

func TestBackoffValidate(t *testing.T) {
	t.Parallel()
	require.NoError(t, middleware.Backoff{}.Validate())
	require.NoError(t, middleware.Backoff{Initial: time.Hour}.Validate(), "max follows a large initial")
	for _, bad := range []middleware.Backoff{
		{Initial: -1}, {Initial: time.Minute, Max: time.Second}, {Multiplier: 0.5}, {Multiplier: math.Inf(1)}, {Multiplier: math.NaN()},
	} {
		assert.Error(t, bad.Validate(), "%+v", bad)
	}
}
