package coordinator_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/handlers/coordinator"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/holds"
)

// counts answers with what a test has put into it.
type counts struct {
	status    store.QueueStatus
	err       error
	forgotten chan struct{}
}

func (c *counts) QueueStatus(context.Context, store.QueueFilter) (store.QueueStatus, error) {
	return c.status, c.err
}

func (c *counts) ForgetWorkers(context.Context) error {
	c.forgotten <- struct{}{}
	return errors.New("not now")
}

func TestCensus(t *testing.T) {
	t.Parallel()
	c := &counts{forgotten: make(chan struct{}, 1), status: store.QueueStatus{
		Classes: []store.ClassStatus{{Class: "default", Queued: 7, ByPriority: [5]int{4, 0, 3, 0, 0}, Held: 6, Waited: 90 * time.Second, Workers: 2}, {Class: "gpu"}},
		Holds:   []holds.Hold{{Target: holds.Target{Scope: holds.User}}, {Target: holds.Target{Scope: holds.User}}},
	}}
	reg := prometheus.NewPedanticRegistry()
	census := coordinator.NewCensus(c, slog.New(slog.DiscardHandler), reg)
	require.NoError(t, census.Count(t.Context()))
	names := []string{"millrace_queued_executions", "millrace_held_executions", "millrace_queued_oldest_age_seconds", "millrace_admission_holds"}
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP millrace_admission_holds Holds that keep executions from being admitted, by scope, as of the last count.
# TYPE millrace_admission_holds gauge
millrace_admission_holds{scope="user"} 2
# HELP millrace_held_executions Executions that are on hold, of those that wait, by resource class, as of the last count.
# TYPE millrace_held_executions gauge
millrace_held_executions{resource_class="default"} 6
millrace_held_executions{resource_class="gpu"} 0
# HELP millrace_queued_executions Executions that wait for admission, by resource class, as of the last count.
# TYPE millrace_queued_executions gauge
millrace_queued_executions{resource_class="default"} 7
millrace_queued_executions{resource_class="gpu"} 0
# HELP millrace_queued_oldest_age_seconds How long the execution has waited that has been ready for longest, by resource class, as of the last count.
# TYPE millrace_queued_oldest_age_seconds gauge
millrace_queued_oldest_age_seconds{resource_class="default"} 90
millrace_queued_oldest_age_seconds{resource_class="gpu"} 0
`), names...))

	byPriority := map[string]float64{}
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "millrace_queued_executions_by_priority" && m.GetLabel()[1].GetValue() == "default" {
				byPriority[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
			}
		}
	}
	assert.Equal(t, map[string]float64{"1": 4, "2": 0, "3": 3, "4": 0, "5": 0}, byPriority)

	c.err = errors.New("away")
	require.Error(t, census.Count(t.Context()))
	n, err := testutil.GatherAndCount(reg, names...)
	require.NoError(t, err)
	assert.Equal(t, 7, n, "what was counted last stays")
	c.status, c.err = store.QueueStatus{}, nil
	require.NoError(t, census.Count(t.Context()))
	n, err = testutil.GatherAndCount(reg, names...)
	require.NoError(t, err)
	assert.Zero(t, n, "what is gone is not shown")
}

func TestTheCensusGoesOn(t *testing.T) {
	t.Parallel()
	c := &counts{forgotten: make(chan struct{}, 1), err: errors.New("away")}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- coordinator.NewCensus(c, slog.New(slog.DiscardHandler), prometheus.NewRegistry()).Run(ctx)
	}()
	<-c.forgotten
	cancel()
	require.NoError(t, <-done)
}
