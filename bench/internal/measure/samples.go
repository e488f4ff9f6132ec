// Package measure is what the benchmark programs share: samples and their
// percentiles, the processor time of processes, the machine they run on, and the
// table they print.
//
// Percentiles are taken from every single sample by rank. Nothing is averaged or
// put into classes first, so a percentile of two groups is never made from their
// percentiles.
package measure

import (
	"encoding/json"
	"slices"
	"time"
)

// Summary says how samples are distributed.
type Summary struct {
	Count                    int
	P50, P90, P99, P999, Max time.Duration
}

// Summarize takes the percentiles of samples, which it sorts.
func Summarize(samples []time.Duration) Summary {
	if len(samples) == 0 {
		return Summary{}
	}
	slices.Sort(samples)
	return Summary{
		Count: len(samples),
		P50:   Percentile(samples, 500), P90: Percentile(samples, 900), P99: Percentile(samples, 990),
		P999: Percentile(samples, 999), Max: samples[len(samples)-1],
	}
}

// Percentile returns the smallest of the sorted samples that at least so many in
// a thousand of them do not exceed.
func Percentile[T any](sorted []T, permille int) T {
	rank := (permille*len(sorted) + 999) / 1000
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// MarshalJSON writes the percentiles in milliseconds.
func (s Summary) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Count int     `json:"count"`
		P50   float64 `json:"p50_ms"`
		P90   float64 `json:"p90_ms"`
		P99   float64 `json:"p99_ms"`
		P999  float64 `json:"p999_ms"`
		Max   float64 `json:"max_ms"`
	}{s.Count, Millis(s.P50), Millis(s.P90), Millis(s.P99), Millis(s.P999), Millis(s.Max)})
}

// Millis is a duration as milliseconds, to the microsecond.
func Millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Median returns the middle of the values, which it sorts; 0 of none.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	middle := len(values) / 2
	if len(values)%2 == 1 {
		return values[middle]
	}
	return (values[middle-1] + values[middle]) / 2
}
