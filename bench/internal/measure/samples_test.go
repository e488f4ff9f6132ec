package measure_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/bench/internal/measure"
)

func TestSummaryIsByRank(t *testing.T) {
	t.Parallel()
	samples := make([]time.Duration, 1000)
	for i := range samples {
		samples[len(samples)-1-i] = time.Duration(i+1) * time.Millisecond
	}
	s := measure.Summarize(samples)
	assert.Equal(t, measure.Summary{
		Count: 1000, P50: 500 * time.Millisecond, P90: 900 * time.Millisecond, P99: 990 * time.Millisecond,
		P999: 999 * time.Millisecond, Max: time.Second,
	}, s)

	text, err := json.Marshal(s)
	require.NoError(t, err)
	assert.JSONEq(t, `{"count":1000,"p50_ms":500,"p90_ms":900,"p99_ms":990,"p999_ms":999,"max_ms":1000}`, string(text))
}

func TestSummaryOfFewSamples(t *testing.T) {
	t.Parallel()
	assert.Zero(t, measure.Summarize(nil))
	one := measure.Summarize([]time.Duration{7})
	assert.Equal(t, measure.Summary{Count: 1, P50: 7, P90: 7, P99: 7, P999: 7, Max: 7}, one)
}

func TestOneSlowSampleInAThousandShows(t *testing.T) {
	t.Parallel()
	samples := make([]time.Duration, 1001)
	samples[3], samples[5] = time.Second, time.Second
	s := measure.Summarize(samples)
	assert.Zero(t, s.P99)
	assert.Equal(t, time.Second, s.P999)
}

func TestMedian(t *testing.T) {
	t.Parallel()
	assert.Zero(t, measure.Median(nil))
	assert.InDelta(t, 2.0, measure.Median([]float64{3, 1, 2}), 0)
	assert.InDelta(t, 2.5, measure.Median([]float64{4, 1, 2, 3}), 0)
}
