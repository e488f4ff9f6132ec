package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/bench/internal/fleet"
	"github.com/millrace/millrace/bench/internal/frame"
	"github.com/millrace/millrace/bench/internal/measure"
	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/secret"
)

// standing is what the part of that name found.
type standing struct {
	Pods int `json:"pods"`
	QPS  int `json:"qps"`
	// Filled is how long it took from the first request until all ran.
	Filled time.Duration `json:"filled_ns"`
	// Idle is a worker without pods, Full one with all of them, Watching one that only
	// watches those of another worker.
	Idle, Full, Watching fleet.Size
	// SteadyCPU is what the worker with all pods takes while nothing happens, in cores.
	SteadyCPU float64   `json:"steady_cores"`
	Restarts  []restart `json:"restarts"`
}

// restart is what it costs to put another worker in the place of one.
type restart struct {
	How string `json:"how"`
	// Stopped is how long the worker took to stop; Ready, and Carried, how long after that
	// the next one was ready, and had carried on with all pods.
	Stopped time.Duration `json:"stopped_ns"`
	Ready   time.Duration `json:"ready_ns"`
	Carried time.Duration `json:"carried_on_ns"`
	// CPU is processor time of the next worker until then, Server that of the API server.
	CPU    time.Duration `json:"cpu_ns"`
	Server time.Duration `json:"api_server_cpu_ns,omitempty"`
	// Calls are those of the API server, without the reading of logs.
	Calls float64 `json:"calls"`
}

// Print implements frame.Part.
func (s *standing) Print(w io.Writer) {
	fmt.Fprintf(w, "standing: %d pods of one worker, which may send %d requests per second; all ran after %s; %.2f cores while they stand\n",
		s.Pods, s.QPS, s.Filled.Round(100*time.Millisecond), s.SteadyCPU)
	rows := [][]string{{"worker", "resident MiB", "heap MiB", "goroutines", "heap KiB per pod"}}
	for _, r := range []struct {
		name string
		fleet.Size
	}{{"idle", s.Idle}, {"with all pods", s.Full}, {"that only watches", s.Watching}} {
		rows = append(rows, []string{
			r.name, fmt.Sprintf("%.0f", r.Resident), fmt.Sprintf("%.0f", r.Heap), fmt.Sprintf("%.0f", r.Goroutines),
			fmt.Sprintf("%.1f", (r.Heap-s.Idle.Heap)*1024/float64(s.Pods)),
		})
	}
	measure.Table(w, rows...)
	rows = [][]string{{"restart", "stopped s", "ready s", "carried on s", "cpu s", "API server cpu s", "calls"}}
	for _, r := range s.Restarts {
		row := []string{r.How}
		for _, d := range []time.Duration{r.Stopped, r.Ready, r.Carried, r.CPU, r.Server} {
			row = append(row, fmt.Sprintf("%.1f", d.Seconds()))
		}
		rows = append(rows, append(row, fmt.Sprintf("%.0f", r.Calls)))
	}
	measure.Table(w, rows...)
}

// aWhile is longer than any measurement.
const aWhile = 24 * time.Hour

func (b *bench) measureStanding(ctx context.Context) (frame.Part, error) {
	p, err := b.newPlant(ctx, "standing", aWhile)
	if err != nil {
		return nil, err
	}
	defer p.close()
	pool, err := postgres.Open(ctx, postgres.Config{DSN: secret.New(p.DSN), ApplicationName: "bench"})
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	s := &stand{plant: p, pool: pool, found: &standing{Pods: b.standing, QPS: b.qps}}
	if err := s.measure(ctx); err != nil {
		return nil, err
	}
	return s.found, nil
}

// stand is the measurement.
type stand struct {
	*plant
	pool  *pgxpool.Pool
	found *standing
	pods  map[types.UID]bool
}

func (s *stand) measure(ctx context.Context) error {
	worker, err := s.worker(ctx, "worker", s.standing)
	if err != nil {
		return err
	}
	if s.found.Idle, err = worker.Size(ctx); err != nil {
		return err
	}
	if err := s.fill(ctx, worker); err != nil {
		return err
	}
	before, began := worker.CPU(), time.Now()
	time.Sleep(s.steady)
	s.found.SteadyCPU = (worker.CPU() - before).Seconds() / time.Since(began).Seconds()
	if s.found.Full, err = worker.Size(ctx); err != nil {
		return err
	}
	if err := s.bystander(ctx); err != nil {
		return err
	}
	if worker, err = s.restart(ctx, worker, "asked to stop", syscall.SIGTERM); err != nil {
		return err
	}
	_, err = s.restart(ctx, worker, "killed", syscall.SIGKILL)
	return err
}

// fill has all executions run.
func (s *stand) fill(ctx context.Context, worker *fleet.Member) error {
	began := time.Now()
	const atOnce = 500
	for left := s.standing; left > 0; left -= atOnce {
		requests := make([]client.Request, min(left, atOnce))
		for i := range requests {
			requests[i] = client.Request{Executor: "kubernetes", Spec: json.RawMessage(`{"command":["true"]}`)}
		}
		outcomes, err := s.api.SubmitBatch(ctx, requests)
		if err != nil {
			return err
		}
		for _, o := range outcomes {
			if o.Problem != nil {
				return o.Problem
			}
		}
	}
	if err := s.until(ctx, "all pods run", func() (bool, error) {
		var n int
		err := s.pool.QueryRow(ctx, `SELECT count(*) FROM execution_pods WHERE phase = 'running'`).Scan(&n)
		return n == s.standing, err
	}); err != nil {
		return err
	}
	s.found.Filled = time.Since(began)
	m, err := worker.Metrics(ctx)
	if err != nil {
		return err
	}
	if n := m.Sum("millrace_kubernetes_pods"); int(n) != s.standing {
		return fmt.Errorf("the worker knows %.0f pods instead of %d", n, s.standing)
	}
	s.pods, err = s.uids(ctx)
	return err
}

// uids are those of all pods.
func (s *stand) uids(ctx context.Context) (map[types.UID]bool, error) {
	all := map[types.UID]bool{}
	o := metav1.ListOptions{Limit: 500}
	for {
		page, err := s.cluster.Admin().CoreV1().Pods(namespace).List(ctx, o)
		if err != nil {
			return nil, err
		}
		for i := range page.Items {
			if p := &page.Items[i]; p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning {
				all[p.UID] = true
			}
		}
		if o.Continue = page.Continue; o.Continue == "" {
			return all, nil
		}
	}
}

// bystander measures a worker that has no pods of its own.
func (s *stand) bystander(ctx context.Context) error {
	other, err := s.worker(ctx, "bystander", 1)
	if err != nil {
		return err
	}
	if err := s.until(ctx, "the bystander watches", func() (bool, error) {
		m, err := other.Metrics(ctx)
		return m.Sum("millrace_kubernetes_relists_total") > 0, err
	}); err != nil {
		return err
	}
	if s.found.Watching, err = other.Size(ctx); err != nil {
		return err
	}
	return other.Stop(ctx)
}

// restart ends a worker and starts the next, which carries on with its pods.
func (s *stand) restart(ctx context.Context, worker *fleet.Member, how string, signal syscall.Signal) (*fleet.Member, error) {
	r := restart{How: how}
	servers := measure.Children("kube-apiserver")
	began := time.Now()
	if err := worker.Process.Signal(signal); err != nil {
		return nil, err
	}
	<-worker.Process.Done()
	r.Stopped = time.Since(began)
	before := measure.CPU(servers...)
	began = time.Now()
	next, err := s.worker(ctx, "worker", s.standing)
	if err != nil {
		return nil, err
	}
	r.Ready = time.Since(began)
	if err := s.until(ctx, "the next worker has carried on with all pods", func() (bool, error) {
		m, err := next.Metrics(ctx)
		return int(m.Sum("millrace_kubernetes_pods_adopted_total")) >= s.standing, err
	}); err != nil {
		return nil, err
	}
	r.Carried, r.CPU, r.Server = time.Since(began), next.CPU(), measure.CPU(servers...)-before
	m, err := next.Metrics(ctx)
	if err != nil {
		return nil, err
	}
	r.Calls = m.Sum("millrace_kubernetes_call_seconds_count")
	s.found.Restarts = append(s.found.Restarts, r)
	now, err := s.uids(ctx)
	if err == nil && !maps.Equal(now, s.pods) {
		err = fmt.Errorf("%s: other pods run than before", how)
	}
	return next, err
}
