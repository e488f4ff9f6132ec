package main

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/bench/internal/frame"
	"github.com/millrace/millrace/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Run(m) }

func TestCreation(t *testing.T) {
	t.Parallel()
	o := options{served: true, passes: 2, pods: 12, callers: 4, qps: 1, duration: time.Second, steady: time.Second, timeout: time.Minute}
	require.NoError(t, o.check())
	b := &bench{options: o, Run: &frame.Run{Log: slog.New(slog.DiscardHandler)}}
	found, err := b.measureCreation(t.Context())
	require.NoError(t, err)
	rows := found.(*creation).Rows
	require.Len(t, rows, 2)
	for _, r := range rows {
		assert.Positive(t, r.Limit, r.Kind)
		assert.Positive(t, r.Executor, r.Kind)
		assert.Positive(t, r.Ratio, r.Kind)
	}
	assert.Equal(t, []string{"pod", "with files"}, []string{rows[0].Kind, rows[1].Kind})
	var out bytes.Buffer
	found.Print(&out)
	assert.Contains(t, out.String(), "12 pods, 4 at once")
}

func TestLatencyCountsFromTheTaskAndFromWhenItWasDue(t *testing.T) {
	t.Parallel()
	began := time.Now()
	var tasks, pods sightings
	tasks.note("a", began.Add(20*time.Millisecond))
	tasks.note("a", began.Add(time.Hour)) // it came again
	pods.note("a", began.Add(50*time.Millisecond))
	found, err := summarize(20, []arrival{{due: began, sent: began.Add(time.Millisecond), id: "a"}}, &tasks, &pods, 3*time.Millisecond)
	require.NoError(t, err)
	assert.Equal(t, 30*time.Millisecond, found.TaskToPod.P99)
	assert.Equal(t, 50*time.Millisecond, found.DueToPod.P99)
	assert.Equal(t, time.Millisecond, found.Late.Max)
	assert.InDelta(t, 3.0, found.WorkerCPU, 0)

	_, err = summarize(20, []arrival{{due: began, sent: began, id: "b"}}, &tasks, &pods, 0)
	require.Error(t, err)
}

func TestOptions(t *testing.T) {
	t.Parallel()
	good := options{pods: 1, callers: 1, qps: 1, duration: 1, steady: 1, timeout: 1}
	require.NoError(t, good.check())
	for _, spoil := range []func(*options){
		func(o *options) { o.passes = -1 }, func(o *options) { o.callers = 0 }, func(o *options) { o.qps = 0 }, func(o *options) { o.steady = 0 },
	} {
		bad := good
		spoil(&bad)
		require.Error(t, bad.check())
	}
}
