package kubernetes_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	clientset "k8s.io/client-go/kubernetes"

	"github.com/millrace/millrace/internal/executor/kubernetes"
	"github.com/millrace/millrace/internal/executor/pods"
)

// dependencies are what an executor of a test has to do with.
type dependencies struct {
	client clientset.Interface
	ledger pods.Ledger
}

func (d dependencies) executor(t *testing.T, settings kubernetes.Settings, config kubernetes.Config) *kubernetes.Executor {
	t.Helper()
	b, err := kubernetes.NewBuilder(settings)
	require.NoError(t, err)
	e, err := kubernetes.New(d.client, b, config, d.ledger, slog.New(slog.NewTextHandler(t.Output(), nil)), prometheus.NewRegistry())
	require.NoError(t, err)
	return e
}

// serve runs Serve until the function is called, or the test ends.
func serve(t *testing.T, e *kubernetes.Executor) func() {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- e.Serve(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
	})
	t.Cleanup(stop)
	return stop
}

// book is a pods.Ledger in memory.
type book struct {
	mu       sync.Mutex
	facts    map[string][]pods.Fact // by UID, each phase once
	unwanted map[pods.Run]bool
	idle     map[string]bool // by UID
	verdicts map[string]*pods.Verdict
	broken   bool
	refusals int
}

var errBroken = errors.New("the ledger is broken")

// breakDown has the ledger refuse everything, or not.
func (b *book) breakDown(broken bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.broken = broken
}

// refused is how often it has.
func (b *book) refused() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.refusals
}

// check returns the error of a broken ledger.
func (b *book) check() error {
	if b.broken {
		b.refusals++
		return errBroken
	}
	return nil
}

func newBook() *book {
	return &book{facts: map[string][]pods.Fact{}, unwanted: map[pods.Run]bool{}, idle: map[string]bool{}, verdicts: map[string]*pods.Verdict{}}
}

// Record implements pods.Ledger.
func (b *book) Record(_ context.Context, facts []pods.Fact) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.check(); err != nil {
		return err
	}
	for _, f := range facts {
		if !slices.ContainsFunc(b.facts[f.UID], func(known pods.Fact) bool { return known.Phase == f.Phase }) {
			b.facts[f.UID] = append(b.facts[f.UID], f)
			b.idle[f.UID] = f.Phase != pods.Running && f.Phase != pods.Succeeded && (b.idle[f.UID] || f.Idle)
		}
	}
	return nil
}

// Wanted implements pods.Ledger.
func (b *book) Wanted(_ context.Context, runs []pods.Run) ([]bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	wanted := make([]bool, len(runs))
	for i, r := range runs {
		wanted[i] = !b.unwanted[r]
	}
	return wanted, b.check()
}

// Standing implements pods.Ledger.
func (b *book) Standing(_ context.Context, after string, most int) ([]pods.Standing, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []pods.Standing
	for uid, facts := range b.facts {
		gone := slices.ContainsFunc(facts, func(f pods.Fact) bool { return f.Phase == pods.Deleted })
		if uid > after && !gone {
			all = append(all, pods.Standing{Pod: facts[0].Pod, Since: facts[0].At})
		}
	}
	slices.SortFunc(all, func(x, y pods.Standing) int {
		if x.UID < y.UID {
			return -1
		}
		return 1
	})
	return all[:min(len(all), most)], b.check()
}

// Forgo implements pods.Ledger.
func (b *book) Forgo(_ context.Context, pod pods.Pod, verdict *pods.Verdict) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.facts[pod.UID]) > 0 {
		b.verdicts[pod.UID] = verdict
		b.idle[pod.UID] = b.idle[pod.UID] || verdict == nil
	}
	return b.check()
}

// Worked implements pods.Ledger.
func (b *book) Worked(_ context.Context, run pods.Run) (pods.Last, bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for uid, facts := range b.facts {
		f := facts[len(facts)-1]
		if f.ExecutionID == run.ExecutionID && f.First == run.First && (!b.idle[uid] || b.verdicts[uid] != nil) {
			return pods.Last{Pod: f.Pod, Phase: f.Phase, Node: f.Node, Verdict: b.verdicts[uid]}, true, b.check()
		}
	}
	return pods.Last{}, false, b.check()
}

// phases returns what is known of the pods of a run, in the order in which it came.
func (b *book) phases(run pods.Run) []pods.Phase {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []pods.Phase
	for _, facts := range b.facts {
		for _, f := range facts {
			if f.ExecutionID == run.ExecutionID && f.First == run.First {
				all = append(all, f.Phase)
			}
		}
	}
	return all
}

// drop says that a run is not wanted any more.
func (b *book) drop(run pods.Run) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unwanted[run] = true
}
