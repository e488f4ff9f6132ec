package query_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/query"
)

func aggregate[R any](t testing.TB, c query.Collection[R], a query.Aggregate) query.Statistics {
	t.Helper()
	s, err := c.Aggregate(t.Context(), query.Scope{}, a)
	require.NoError(t, err)
	return s
}

// shown writes groups as key/key=count.
func shown(s query.Statistics) []string {
	var out []string
	for _, g := range s.Groups {
		text := ""
		if g.Bucket != nil {
			text += g.Bucket.UTC().Format("15:04 ")
		}
		for _, k := range g.Keys {
			if k == nil {
				text += "null/"
			} else {
				text += *k + "/"
			}
		}
		out = append(out, fmt.Sprintf("%s=%d", text, g.Count))
	}
	return out
}

func TestAggregatesCount(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.store.WorkflowInstances()
	assert.Equal(t, []string{"=0"}, shown(aggregate(t, c, query.Aggregate{})))
	assert.Empty(t, aggregate(t, c, query.Aggregate{GroupBy: []string{"status"}}).Groups)
	assert.Equal(t, []string{"=0"}, shown(aggregate(t, c, query.Aggregate{Duration: "duration"})))
	for i := range 12 {
		row := map[string]any{"name": []string{"a", "a", "b"}[i%3], "status": []string{"COMPLETED", "FAULTED"}[i%2], "error_status": i % 2 * 500}
		if i < 9 {
			row["start"] = noon().Add(time.Duration(i) * 20 * time.Minute)
		}
		w.workflow(fmt.Sprintf("w%02d", i), row)
	}
	w.workflow("bare", nil)
	for _, tc := range []struct {
		a    query.Aggregate
		want []string
	}{
		{query.Aggregate{}, []string{"=13"}},
		{query.Aggregate{GroupBy: []string{"name"}}, []string{"a/=8", "b/=4", "null/=1"}},
		{query.Aggregate{GroupBy: []string{"name", "status"}}, []string{"a/COMPLETED/=4", "a/FAULTED/=4", "b/COMPLETED/=2", "b/FAULTED/=2", "null/null/=1"}},
		{query.Aggregate{GroupBy: []string{"error_status"}, Filter: query.Test{Field: "name", Op: query.Eq, Value: "b"}}, []string{"0/=2", "500/=2"}},
		{query.Aggregate{Bucket: &query.Bucket{Field: "start", Width: time.Hour}}, []string{"12:00 =3", "13:00 =3", "14:00 =3", "=4"}},
		{query.Aggregate{Bucket: &query.Bucket{Field: "start", Width: 2 * time.Hour}, GroupBy: []string{"status"}},
			[]string{"12:00 COMPLETED/=3", "12:00 FAULTED/=3", "14:00 COMPLETED/=2", "14:00 FAULTED/=1", "FAULTED/=2", "COMPLETED/=1", "null/=1"}},
		{query.Aggregate{GroupBy: []string{"name"}, Duration: "duration"}, []string{"a/=8", "b/=4", "null/=1"}},
	} {
		assert.Equal(t, tc.want, shown(aggregate(t, c, tc.a)), "%+v", tc.a)
	}
	cut := aggregate(t, c, query.Aggregate{GroupBy: []string{"name"}, Limit: 2})
	assert.True(t, cut.Truncated)
	assert.Equal(t, []string{"a/=8", "b/=4"}, shown(cut))
	assert.False(t, aggregate(t, c, query.Aggregate{GroupBy: []string{"name"}, Limit: 3}).Truncated)
}

func TestDurationsAreDescribed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var all []time.Duration
	for i := range 200 {
		took := time.Duration(1+i*i*i) * time.Millisecond
		all = append(all, took)
		w.workflow(fmt.Sprintf("w%03d", i), map[string]any{"name": "a", "start": noon(), "end": noon().Add(took)})
	}
	w.workflow("open", map[string]any{"name": "a", "start": noon()})
	w.workflow("back", map[string]any{"name": "clock", "start": noon(), "end": noon().Add(-time.Second)})
	w.workflow("none", map[string]any{"name": "none", "start": noon()})
	groups := aggregate(t, w.store.WorkflowInstances(), query.Aggregate{GroupBy: []string{"name"}, Duration: "duration"}).Groups
	require.Len(t, groups, 3)

	d := groups[0].Durations
	require.NotNil(t, d)
	assert.EqualValues(t, 201, groups[0].Count)
	assert.EqualValues(t, 200, d.Count)
	assert.Equal(t, slices.Min(all), d.Min)
	assert.Equal(t, slices.Max(all), d.Max)
	var sum time.Duration
	for _, took := range all {
		sum += took
	}
	assert.InDelta(t, float64(sum/200), float64(d.Avg), float64(time.Millisecond))
	assert.InEpsilon(t, float64(all[99]), float64(d.P50), 0.01)
	assert.InEpsilon(t, float64(all[189]), float64(d.P95), 0.01)

	require.NotNil(t, groups[1].Durations)
	assert.Zero(t, groups[1].Durations.Max, "a clock that went back")
	assert.Nil(t, groups[2].Durations)
}

func TestAggregatesThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	c := query.NewStore(nil, query.Limits{}).WorkflowInstances()
	for code, list := range map[string][]query.Aggregate{
		"invalid": {
			{Limit: -1}, {GroupBy: []string{"name", "name"}},
			{Bucket: &query.Bucket{Field: "start", Width: time.Millisecond}},
			{Bucket: &query.Bucket{Field: "start", Width: 10_000 * time.Hour}},
		},
		"unknown_field": {
			{GroupBy: []string{"input"}}, {GroupBy: []string{"error_detail"}}, {Duration: "waited"},
			{Bucket: &query.Bucket{Field: "name", Width: time.Hour}}, {Bucket: &query.Bucket{Field: "x", Width: time.Hour}},
		},
	} {
		for _, a := range list {
			_, err := c.Aggregate(t.Context(), query.Scope{}, a)
			invalid(t, err, code)
		}
	}
}
