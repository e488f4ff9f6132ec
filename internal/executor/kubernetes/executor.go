package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientset "k8s.io/client-go/kubernetes"

	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/executor/pods"
	"github.com/millrace/millrace/internal/executor/spec"
)

// Config is how the executor runs pods. The zero value of a member is its default where it
// has one.
type Config struct {
	// Installation is the label by which the pods of this installation are known; required,
	// and the same as Settings.Installation.
	Installation string
	// Pool names the cluster to the ledger of capacity: workers with the same pool share
	// its room. Defaults to "kubernetes/" and the Installation.
	Pool string
	// Patience is for pods that make no progress.
	Patience Patience
	// Relist is how often all pods are listed, whatever the watch has brought. Default 5
	// minutes.
	Relist time.Duration
	// Poll is how often an attempt asks for its pod while the watch does not work. Default 10 s.
	Poll time.Duration
	// CallTimeout bounds each call of the API server, except for logs that are followed.
	// Default 15 s.
	CallTimeout time.Duration
	// RetryMax is the longest pause between the tries of a call that is not answered, unless
	// the API server asks for a longer one. Default 5 s.
	RetryMax time.Duration
	// SplitStreams has standard output and standard error read apart, for clusters with the
	// feature gate PodLogsQuerySplitStreams. Elsewhere both are one stream, as Kubernetes
	// keeps them, and all of it is standard output.
	SplitStreams bool
	// Keep is how often the keeper looks for what was left over. Default 30 s.
	Keep time.Duration
	// Classes are the resource classes of which the room is surveyed; none: no survey.
	Classes []string
	// Capacity says what the room of the cluster is surveyed from.
	Capacity CapacitySource
}

// The defaults of intervals.
const (
	RelistDefault = 5 * time.Minute
	KeepDefault   = 30 * time.Second
)

// WithDefaults returns a copy in which every field that was zero has its default.
func (c Config) WithDefaults() Config {
	c.Pool = cmp.Or(c.Pool, "kubernetes/"+c.Installation)
	c.Patience = c.Patience.withDefaults()
	c.Relist = cmp.Or(c.Relist, RelistDefault)
	c.Poll = cmp.Or(c.Poll, 10*time.Second)
	c.CallTimeout = cmp.Or(c.CallTimeout, 15*time.Second)
	c.RetryMax = cmp.Or(c.RetryMax, 5*time.Second)
	c.Keep = cmp.Or(c.Keep, KeepDefault)
	c.Capacity = cmp.Or(c.Capacity, CapacityAuto)
	return c
}

// Executor runs attempts as pods. It is safe for concurrent use. Attempts need Serve.
type Executor struct {
	client   clientset.Interface
	builder  *Builder
	cfg      Config
	ledger   pods.Ledger
	board    *board
	census   *census
	recorder *recorder
	survey   *survey
	metrics  *metrics
	log      *slog.Logger
	// watching: the watch of pods works.
	watching atomic.Bool
}

var (
	_ executor.Executor = (*Executor)(nil)
	_ executor.Settler  = (*Executor)(nil)
	_ executor.Surveyor = (*Executor)(nil)
)

// New returns an executor that makes pods as the builder builds them. Without a ledger
// nobody is told what becomes of pods.
func New(client clientset.Interface, b *Builder, c Config, ledger pods.Ledger, log *slog.Logger, reg prometheus.Registerer) (*Executor, error) {
	c = c.WithDefaults()
	if c.Installation == "" {
		return nil, errors.New("kubernetes executor: the installation is required")
	}
	e := &Executor{client: client, builder: b, cfg: c, ledger: ledger, census: newCensus(), log: log}
	e.metrics = newMetrics(reg, func() float64 { return float64(e.board.size()) }, func() float64 { return float64(e.recorder.pending()) })
	e.recorder = newRecorder(ledger, log, e.metrics.recordFaults.Inc)
	e.board = newBoard(e.recorder.seen, e.recorder.gone)
	s, err := newSurvey(e)
	if err != nil {
		return nil, fmt.Errorf("kubernetes executor: %w", err)
	}
	e.survey = s
	return e, nil
}

// Name returns "kubernetes".
func (e *Executor) Name() string { return spec.ExecutorKubernetes }

// Serve watches pods, records what becomes of them, and surveys the room of the cluster,
// until ctx ends. A cluster that cannot be reached is tried again and again.
func (e *Executor) Serve(ctx context.Context) error {
	var all sync.WaitGroup
	all.Go(func() { e.watchPods(ctx) })
	all.Go(func() { e.survey.run(ctx) })
	all.Go(func() { e.recorder.run(ctx) })
	all.Wait()
	return nil
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
