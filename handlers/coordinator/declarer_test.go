package coordinator_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/handlers/coordinator"
	"github.com/millrace/millrace/internal/limits"
	limitstore "github.com/millrace/millrace/internal/limits/store"
	"github.com/millrace/millrace/internal/testenv/transcript"
)

// register is a scripted table of definitions: one answer per call.
type register struct {
	answers chan func() ([]limitstore.Change, error)
	classes chan []string
}

func (r *register) Declare(ctx context.Context, _ []limits.Definition, _ string) ([]limitstore.Change, error) {
	return r.next(ctx)
}

func (r *register) Differing(ctx context.Context, _ []limits.Definition) ([]limitstore.Change, error) {
	return r.next(ctx)
}

func (r *register) next(ctx context.Context) ([]limitstore.Change, error) {
	select {
	case answer := <-r.answers:
		return answer()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (r *register) KnowClasses(_ context.Context, names []string) error {
	r.classes <- names
	return nil
}

func (r *register) answer(changes ...limitstore.Change) {
	r.answers <- func() ([]limitstore.Change, error) { return changes, nil }
}

func TestADeclarerReportsChangesAndThenDifferences(t *testing.T) {
	t.Parallel()
	set, err := limits.Compile([]limits.Definition{{Name: "user", Per: limits.PerUser, Concurrency: 2}})
	require.NoError(t, err)
	r := &register{answers: make(chan func() ([]limitstore.Change, error)), classes: make(chan []string, 9)}
	var log transcript.Text
	reg := prometheus.NewRegistry()
	d := coordinator.NewDeclarer(coordinator.DeclarerConfig{
		ID: "c1", Interval: time.Millisecond,
		Limits: coordinator.Limits{Set: set, Classes: map[string]coordinator.Class{"gpu": {}, "big": {}}},
	}, r, r, slog.New(slog.NewTextHandler(&log, nil)), reg)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()

	r.answers <- func() ([]limitstore.Change, error) { return nil, errors.New("database is away") }
	was, is := set.All()[0], set.All()[0]
	was.Concurrency = 5
	r.answer(
		limitstore.Change{Name: "user", Kind: limitstore.Resized, Was: &was, Is: &is, Queued: 3},
		limitstore.Change{Name: "old", Kind: limitstore.Removed, Was: &was},
		limitstore.Change{Name: "new", Kind: limitstore.Added, Is: &is, Queued: 7},
		limitstore.Change{Name: "team", Kind: limitstore.Rekeyed, Was: &was, Is: &is, Queued: 12},
	)
	differs := limitstore.Change{Name: "user", Kind: limitstore.Resized, Was: &was, Is: &is}
	r.answer()
	assert.Zero(t, gauge(t, reg))
	r.answer(differs)
	r.answer(differs)
	assert.InDelta(t, 1, gauge(t, reg), 0)
	r.answer()
	r.answer()
	assert.Zero(t, gauge(t, reg))
	cancel()
	require.NoError(t, <-done)

	assert.Equal(t, []string{"big", "gpu"}, <-r.classes)
	for _, line := range []string{
		`level=WARN msg="limits could not be compared with those that were declared, it will be repeated" error="database is away"`,
		`level=WARN msg="limit has changed: it applies to new decisions, those on executions that are queued already among them" limit=user queued=3 was="per user, concurrency 5" is="per user, concurrency 2"`,
		`level=WARN msg="limit is gone: it applies to no decision any more, nor to executions that were queued under it" limit=old queued=0`,
		`level=INFO msg="limit is new: it applies to new decisions, and not to executions that are queued already" limit=new queued=7`,
		`level=WARN msg="limit has changed: it applies to new decisions, and executions that are queued already keep the keys they have" limit=team queued=12`,
		`level=INFO msg="coordinators have the same limits again"`,
	} {
		assert.Contains(t, log.String(), line)
	}
	assert.Equal(t, 1, bytes.Count([]byte(log.String()), []byte("another coordinator has declared other limits")), "once, not every time")
	assert.Contains(t, log.String(), `limits=[user]`)
}

func gauge(t *testing.T, reg *prometheus.Registry) float64 {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	require.Len(t, families, 1)
	n, err := testutil.GatherAndCount(reg, "millrace_limits_differing")
	require.NoError(t, err)
	require.Equal(t, 1, n)
	return families[0].GetMetric()[0].GetGauge().GetValue()
}
