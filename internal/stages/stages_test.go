package stages_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/stages"
	"github.com/millrace/millrace/topics"
)

// seen is what a registry has of the stages: the sums and counts by stage, and the
// breaches by level.
type seen struct {
	sums     map[string]float64
	counts   map[string]uint64
	breaches map[string]float64
}

func look(t *testing.T, reg *prometheus.Registry) seen {
	t.Helper()
	found := seen{map[string]float64{}, map[string]uint64{}, map[string]float64{}}
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			label := m.GetLabel()[0].GetValue()
			if family.GetType().String() == "HISTOGRAM" {
				found.sums[label], found.counts[label] = m.GetHistogram().GetSampleSum(), m.GetHistogram().GetSampleCount()
				continue
			}
			found.breaches[label] = m.GetCounter().GetValue()
		}
	}
	return found
}

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// record is an event as it lies in the topic, so long after it was written.
func record(t *testing.T, ev topics.Event, lag time.Duration) topics.Record {
	t.Helper()
	env, err := topics.NewEnvelope(ev, topics.WithTime(epoch), topics.WithSequence(1))
	require.NoError(t, err)
	r := env.Record(string(topics.ExecutionEvents), []byte(ev.EventKey()))
	r.Timestamp = epoch.Add(lag)
	return r
}

func TestTheStagesOfALife(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	s := stages.New(reg)
	assert.Equal(t, map[string]float64{"log": 0, "task": 0}, look(t, reg).breaches, "they exist before the first breach")

	began := epoch
	for _, r := range []topics.Record{
		record(t, topics.ExecutionRequested{ExecutionID: "e"}, 40*time.Millisecond),
		record(t, topics.ExecutionQueued{ExecutionID: "e", Attempt: 1}, time.Hour),
		record(t, topics.ExecutionScheduled{ExecutionID: "e", Attempt: 1, WaitedMillis: 7000, PendingMillis: 8000}, 0),
		record(t, topics.ExecutionStarted{ExecutionID: "e", Attempt: 1, WaitedMillis: 5}, 0),
		record(t, topics.ExecutionCompleted{ExecutionID: "e", Attempt: 1, StartedAt: began, DurationMillis: 1500}, 0),
		record(t, topics.ExecutionFailed{ExecutionID: "f", Attempt: 1, StartedAt: &began, DurationMillis: 500}, 0),
	} {
		s.Record(r)
	}
	s.Observe(stages.Started, 2*time.Millisecond)
	found := look(t, reg)
	assert.Equal(t, map[string]uint64{"logged": 1, "admitted": 1, "leased": 1, "started": 1, "finished": 2}, found.counts)
	assert.InDeltaMapValues(t, map[string]float64{"logged": .04, "admitted": 8, "leased": .005, "started": .002, "finished": 2}, found.sums, 1e-9)
	assert.Equal(t, map[string]float64{"log": 0, "task": 0}, found.breaches)
}

func TestBreachesBeginBehindTheLimit(t *testing.T) {
	t.Parallel()
	scheduled := func(pending int64) topics.Event {
		return topics.ExecutionScheduled{ExecutionID: "e", Attempt: 1, PendingMillis: pending}
	}
	for name, c := range map[string]struct {
		event topics.Event
		lag   time.Duration
		want  map[string]float64
	}{
		"logged in time":        {topics.ExecutionRequested{ExecutionID: "e"}, 100 * time.Millisecond, map[string]float64{"log": 0, "task": 0}},
		"logged late":           {topics.ExecutionRequested{ExecutionID: "e"}, 101 * time.Millisecond, map[string]float64{"log": 1, "task": 0}},
		"a task in time":        {scheduled(29_000), time.Second, map[string]float64{"log": 0, "task": 0}},
		"admitted late":         {scheduled(30_001), 0, map[string]float64{"log": 0, "task": 1}},
		"its task was late":     {scheduled(29_000), 1001 * time.Millisecond, map[string]float64{"log": 0, "task": 1}},
		"clocks that differ":    {scheduled(30_000), -time.Minute, map[string]float64{"log": 0, "task": 0}},
		"logged before written": {topics.ExecutionRequested{ExecutionID: "e"}, -time.Minute, map[string]float64{"log": 0, "task": 0}},
	} {
		reg := prometheus.NewPedanticRegistry()
		stages.New(reg).Record(record(t, c.event, c.lag))
		found := look(t, reg)
		assert.Equal(t, c.want, found.breaches, name)
		for stage, sum := range found.sums {
			assert.GreaterOrEqual(t, sum, 0.0, "%s: %s", name, stage)
		}
	}
}

// Anybody may write to a topic, and so may earlier versions.
func TestWhatTellsNoTimeIsLeftOut(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	s := stages.New(reg)
	edit := func(r topics.Record, change func(*topics.Record)) topics.Record {
		change(&r)
		return r
	}
	requested := record(t, topics.ExecutionRequested{ExecutionID: "e"}, time.Hour)
	scheduled := record(t, topics.ExecutionScheduled{ExecutionID: "e", PendingMillis: 1}, 0)
	for _, r := range []topics.Record{
		{Value: []byte("\x00garbage")},
		edit(requested, func(r *topics.Record) { r.Timestamp = time.Time{} }),
		edit(requested, func(r *topics.Record) {
			r.Headers = []topics.Header{{Key: "ce_type", Value: []byte("millrace.execution.requested.v1")}, {Key: "ce_time", Value: []byte("noon")}}
		}),
		edit(scheduled, func(r *topics.Record) { r.Value = []byte("{") }),
		edit(scheduled, func(r *topics.Record) { r.Value = []byte(`{"pending_millis":-5}`) }),
		edit(scheduled, func(r *topics.Record) { r.Value = []byte(`{"waited_millis":5}`) }),
		record(t, topics.ExecutionStarted{ExecutionID: "e", Attempt: 1}, 0),
		record(t, topics.ExecutionTimedOut{ExecutionID: "e", Limit: topics.TimedOutQueue}, 0),
	} {
		s.Record(r)
	}
	found := look(t, reg)
	assert.Empty(t, found.counts)
	assert.Equal(t, map[string]float64{"log": 0, "task": 0}, found.breaches)

	s.Record(edit(scheduled, func(r *topics.Record) { r.Value = []byte(`{"pending_millis":9223372036854775807}`) }))
	assert.InDelta(t, 1, look(t, reg).breaches["task"], 0)
}

// The recorder and the worker of one process share the instruments.
func TestTwoMayShareARegistry(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	stages.New(reg).Observe(stages.Started, time.Second)
	stages.New(reg).Observe(stages.Started, time.Second)
	assert.Equal(t, map[string]uint64{"started": 2}, look(t, reg).counts)

	taken := prometheus.NewRegistry()
	taken.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "millrace_stage_seconds", Help: "Something else."}))
	assert.Panics(t, func() { stages.New(taken) })
}
