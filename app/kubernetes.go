package app

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	clientset "k8s.io/client-go/kubernetes"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/build"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/executor/kubernetes"
	"github.com/millrace/millrace/internal/executor/spec"
	"github.com/millrace/millrace/internal/lease"
)

// cluster is where the executor kubernetes makes pods.
type cluster struct {
	client       clientset.Interface
	builder      *kubernetes.Builder
	installation string
}

// UsesCluster says whether this process makes pods.
func UsesCluster(cfg configs.Config) bool {
	return cfg.HasRole(configs.RoleWorker) && slices.Contains(cfg.Worker.Executors, spec.ExecutorKubernetes)
}

// ProbeCluster asks the cluster of the settings whether it would run the worker's pods.
func ProbeCluster(ctx context.Context, cfg configs.Config) (kubernetes.Report, error) {
	settings := cfg.Kubernetes.PodSettings()
	settings.Installation = cmp.Or(settings.Installation, "probe")
	builder, err := kubernetes.NewBuilder(settings)
	if err != nil {
		return kubernetes.Report{}, err
	}
	client, err := kubernetes.Connect(KubernetesConnection(cfg))
	if err != nil {
		return kubernetes.Report{}, err
	}
	return kubernetes.Probe(ctx, client, builder, cfg.Worker.ResourceClasses)
}

// KubernetesConnection translates the settings for the client of the cluster.
func KubernetesConnection(cfg configs.Config) kubernetes.Connection {
	k := cfg.Kubernetes
	return kubernetes.Connection{
		Kubeconfig: k.Kubeconfig, Context: k.Context, QPS: k.QPS, Burst: k.Burst, UserAgent: "millrace/" + build.Version(),
	}
}

// connectCluster finds the cluster and waits until it answers. What it would refuse is
// told: a right without which nothing works is an error, a pod that it would not run now is
// a warning, since somebody may change that while work waits.
func connectCluster(ctx context.Context, cfg configs.Config, pool *pgxpool.Pool, within time.Duration, log *slog.Logger) (*cluster, error) {
	installation := cfg.Kubernetes.Installation
	if installation == "" {
		var err error
		if installation, err = installationOf(ctx, pool); err != nil {
			return nil, err
		}
	}
	settings := cfg.Kubernetes.PodSettings()
	settings.Installation = installation
	builder, err := kubernetes.NewBuilder(settings)
	if err != nil {
		return nil, fmt.Errorf("executor kubernetes: %w", err)
	}
	client, err := kubernetes.Connect(KubernetesConnection(cfg))
	if err != nil {
		return nil, fmt.Errorf("executor kubernetes: %w", err)
	}
	report, err := waitForCluster(ctx, client, builder, cfg.Worker.ResourceClasses, within, log)
	if err != nil {
		return nil, err
	}
	if len(report.Missing) > 0 {
		return nil, fmt.Errorf("executor kubernetes: the worker may not %s (the namespace of the work is %s): apply deploy/kubernetes/work, or see docs/kubernetes.md, \"Rights\"",
			strings.Join(report.Missing, ", "), cfg.Kubernetes.Namespace)
	}
	for _, right := range report.Wanting {
		log.InfoContext(ctx, "the worker lacks a right that it can do without", "right", right)
	}
	for _, class := range slices.Sorted(maps.Keys(report.Refused)) {
		refused := report.Refused[class]
		log.WarnContext(ctx, "the cluster would not run pods of a class now", "resource_class", class, "reason", refused.Reason, "cause", refused.Message)
	}
	return &cluster{client: client, builder: builder, installation: installation}, nil
}

// waitForCluster probes the cluster until it answers or the deadline has passed.
func waitForCluster(
	ctx context.Context, client clientset.Interface, b *kubernetes.Builder, classes []string, within time.Duration, log *slog.Logger,
) (kubernetes.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var last error
	for wait := 200 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		report, err := kubernetes.Probe(ctx, client, b, classes)
		if err == nil {
			return report, nil
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		log.WarnContext(ctx, "the Kubernetes cluster does not answer yet", "cause", err, "next_try_in", wait)
		select {
		case <-ctx.Done():
			return report, fmt.Errorf("the Kubernetes cluster did not answer within the start deadline: %w", last)
		case <-time.After(wait):
		}
	}
}

// installationOf names an installation after its database, so that two which use one
// cluster do not take each other's pods for their own. It survives restarts and failovers;
// a database that is restored elsewhere is another installation.
func installationOf(ctx context.Context, pool *pgxpool.Pool) (string, error) {
	var identity string
	err := pool.QueryRow(ctx, `
		SELECT concat_ws('/', (SELECT system_identifier FROM pg_control_system()),
		                      (SELECT oid FROM pg_database WHERE datname = current_database()), current_schema())`).Scan(&identity)
	if err != nil {
		return "", fmt.Errorf("name the installation after its database (kubernetes.installation names it yourself): %w", err)
	}
	sum := sha256.Sum256([]byte(identity))
	return "db-" + hex.EncodeToString(sum[:6]), nil
}

// newKubernetes makes the executor; nil where it is not offered.
func newKubernetes(cfg configs.Config, c *connections, st *store.Store, log *slog.Logger, reg prometheus.Registerer) (*kubernetes.Executor, error) {
	if c.cluster == nil {
		return nil, nil //nolint:nilnil // it is one of those that a worker may offer
	}
	return kubernetes.New(c.cluster.client, c.cluster.builder, kubernetes.Config{
		Installation: c.cluster.installation, Patience: cfg.Kubernetes.PodPatience(), Relist: cfg.Kubernetes.Relist, Keep: cfg.Kubernetes.Keep, SplitStreams: cfg.Kubernetes.SplitStreams,
		Classes: cfg.Worker.ResourceClasses, Capacity: kubernetes.CapacitySource(cmp.Or(cfg.Kubernetes.Capacity, string(kubernetes.CapacityAuto))),
	}, st.Pods(), log, reg)
}

// runKubernetes watches the pods, and tidies up after all workers on one of them. It starts
// before the worker, whose attempts need it, and stops after it.
func runKubernetes(l *loops, e *kubernetes.Executor, c *connections, leases *lease.Manager) {
	if e == nil {
		return
	}
	l.run("pods", e.Serve)
	l.run("keeper of pods", func(ctx context.Context) error {
		return leases.Run(ctx, kubernetes.KeeperLease(c.cluster.installation), func(ctx context.Context, _ *lease.Held) error { return e.Keep(ctx) })
	})
}
