package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/bench/internal/frame"
	"github.com/millrace/millrace/bench/internal/measure"
	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/executor/kubernetes"
	"github.com/millrace/millrace/internal/executor/kubernetes/kubetest"
)

// creation is what the part of that name found.
type creation struct {
	Pods    int           `json:"pods"`
	Callers int           `json:"callers"`
	Rows    []creationRow `json:"rows"`
}

// creationRow is one kind of pod.
type creationRow struct {
	Kind string `json:"kind"`
	// Limit and Executor are pods per second, each the median of the passes, and Ratio that
	// of what the executor made of the limit in the same pass.
	Limit    float64 `json:"limit_per_s"`
	Executor float64 `json:"executor_per_s"`
	Ratio    float64 `json:"ratio"`
	// LimitCPU and ExecutorCPU are processor time of this process per pod, in milliseconds.
	LimitCPU    float64 `json:"limit_cpu_ms"`
	ExecutorCPU float64 `json:"executor_cpu_ms"`
}

// Print implements frame.Part.
func (c *creation) Print(w io.Writer) {
	fmt.Fprintf(w, "creation: %d pods, %d at once\n", c.Pods, c.Callers)
	rows := [][]string{{"", "limit/s", "executor/s", "ratio", "cpu ms of a caller", "of the executor"}}
	for _, r := range c.Rows {
		rows = append(rows, []string{
			r.Kind, fmt.Sprintf("%.0f", r.Limit), fmt.Sprintf("%.0f", r.Executor), fmt.Sprintf("%.2f", r.Ratio),
			fmt.Sprintf("%.2f", r.LimitCPU), fmt.Sprintf("%.2f", r.ExecutorCPU),
		})
	}
	measure.Table(w, rows...)
}

func (b *bench) measureCreation(ctx context.Context) (frame.Part, error) {
	cluster, err := kubetest.Open(ctx, kubetest.Options{Served: b.served, Bare: true})
	if err != nil {
		return nil, err
	}
	defer cluster.Close()
	if err := makeNamespace(ctx, cluster.Admin()); err != nil {
		return nil, err
	}
	found := &creation{Pods: b.pods, Callers: b.callers}
	for kind, text := range map[string]string{"pod": `{"command":["true"]}`, "with files": `{"script":"cat a","files":{"a":"a"}}`} {
		row, err := b.creationOf(ctx, cluster, kind, json.RawMessage(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", kind, err)
		}
		if kind == "pod" {
			found.Rows = append([]creationRow{row}, found.Rows...)
		} else {
			found.Rows = append(found.Rows, row)
		}
	}
	return found, nil
}

// creationOf measures one kind of pods in all passes.
func (b *bench) creationOf(ctx context.Context, cluster *kubetest.Cluster, kind string, spec json.RawMessage) (creationRow, error) {
	type way struct {
		rates, cpu []float64
		make       func(ctx context.Context, config *rest.Config, tasks []executor.Task) (time.Duration, error)
	}
	limit, ours := &way{make: b.makeAll}, &way{make: b.runAll}
	var ratios []float64
	if err := b.warmCreation(ctx, cluster, kind, spec); err != nil {
		return creationRow{}, err
	}
	for pass := range b.passes {
		order := []*way{limit, ours}
		if pass%2 == 1 {
			order = []*way{ours, limit}
		}
		for i, w := range order {
			tasks := tasksOf(b.pods, fmt.Sprintf("%s-%d-%d", kind, pass, i), spec)
			before := measure.OwnCPU()
			took, err := w.make(ctx, cluster.DirectConfig(), tasks)
			if err != nil {
				return creationRow{}, err
			}
			w.cpu = append(w.cpu, measure.Millis(measure.OwnCPU()-before)/float64(b.pods))
			w.rates = append(w.rates, float64(b.pods)/took.Seconds())
			if err := emptied(ctx, cluster.Admin()); err != nil {
				return creationRow{}, err
			}
		}
		ratios = append(ratios, ours.rates[pass]/limit.rates[pass])
	}
	return creationRow{
		Kind: kind, Limit: measure.Median(limit.rates), Executor: measure.Median(ours.rates), Ratio: measure.Median(ratios),
		LimitCPU: measure.Median(limit.cpu), ExecutorCPU: measure.Median(ours.cpu),
	}, nil
}

// warmCreation makes some pods uncounted, so that no way finds the API server cold.
func (b *bench) warmCreation(ctx context.Context, cluster *kubetest.Cluster, kind string, spec json.RawMessage) error {
	if _, err := b.makeAll(ctx, cluster.DirectConfig(), tasksOf(b.pods/4+1, kind+"-warm", spec)); err != nil {
		return err
	}
	return emptied(ctx, cluster.Admin())
}

// tasksOf returns n tasks whose executions are named after a measurement.
func tasksOf(n int, name string, spec json.RawMessage) []executor.Task {
	tasks := make([]executor.Task, n)
	for i := range tasks {
		tasks[i] = executor.Task{ExecutionID: fmt.Sprintf("%s-%d", strings.ReplaceAll(name, " ", "-"), i), Attempt: 1, Spec: spec, Class: "default"}
	}
	return tasks
}

const namespace = "bench"

func makeNamespace(ctx context.Context, admin clientset.Interface) error {
	_, err := admin.CoreV1().Namespaces().Create(ctx, newNamespace(namespace), metav1.CreateOptions{})
	return err
}

func newBuilder() (*kubernetes.Builder, error) {
	return kubernetes.NewBuilder(kubernetes.Settings{Installation: "bench", Namespace: namespace, DefaultImage: "busybox"})
}

// makeAll makes the pods of tasks and does nothing else.
func (b *bench) makeAll(ctx context.Context, config *rest.Config, tasks []executor.Task) (time.Duration, error) {
	client, err := clientset.NewForConfig(config)
	if err != nil {
		return 0, err
	}
	builder, err := newBuilder()
	if err != nil {
		return 0, err
	}
	work := make(chan executor.Task)
	failed := make(chan error, b.callers)
	began := time.Now()
	var callers sync.WaitGroup
	for range b.callers {
		callers.Go(func() {
			for t := range work {
				if err := makeOne(ctx, client, builder, t); err != nil {
					failed <- err
					for range work { // the others do the rest
					}
					return
				}
			}
		})
	}
	for _, t := range tasks {
		work <- t
	}
	close(work)
	callers.Wait()
	close(failed)
	return time.Since(began), errors.Join(collect(failed)...)
}

func collect(errs <-chan error) (all []error) {
	for err := range errs {
		all = append(all, err)
	}
	return all
}

func makeOne(ctx context.Context, client clientset.Interface, builder *kubernetes.Builder, t executor.Task) error {
	o, err := builder.Build(t)
	if err != nil {
		return err
	}
	p, err := client.CoreV1().Pods(namespace).Create(ctx, o.Pod, metav1.CreateOptions{})
	if err != nil || o.ConfigMap == nil {
		return err
	}
	o.Own(p)
	_, err = client.CoreV1().ConfigMaps(namespace).Create(ctx, o.ConfigMap, metav1.CreateOptions{})
	return err
}

// runAll has the executor run tasks, as many at once as are not made yet, and returns when
// all are made. It leaves them to the next.
func (b *bench) runAll(ctx context.Context, config *rest.Config, tasks []executor.Task) (time.Duration, error) {
	last := "pods"
	if strings.Contains(string(tasks[0].Spec), "script") {
		last = "configmaps"
	}
	made := make(chan struct{}, len(tasks))
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &answers{next: next, to: last, made: made} })
	client, err := clientset.NewForConfig(config)
	if err != nil {
		return 0, err
	}
	builder, err := newBuilder()
	if err != nil {
		return 0, err
	}
	e, err := kubernetes.New(client, builder, kubernetes.Config{Installation: "bench"}, nil, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var serving, running sync.WaitGroup
	serving.Go(func() { _ = e.Serve(ctx) })
	began := time.Now()
	for i, t := range tasks {
		if i >= b.callers {
			if err := receive(ctx, made, b.timeout); err != nil {
				return 0, err
			}
		}
		running.Go(func() { _, _ = e.Run(ctx, t, forever{}, nowhere{}) })
	}
	for range min(b.callers, len(tasks)) {
		if err := receive(ctx, made, b.timeout); err != nil {
			return 0, err
		}
	}
	took := time.Since(began)
	cancel(executor.ErrShutdown)
	running.Wait()
	serving.Wait()
	return took, nil
}

func receive(ctx context.Context, from <-chan struct{}, within time.Duration) error {
	select {
	case <-from:
		return nil
	case <-time.After(within):
		return fmt.Errorf("no pod was made for %s", within)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// answers tells of each object of a kind that was made.
type answers struct {
	next http.RoundTripper
	to   string
	made chan<- struct{}
}

// RoundTrip implements http.RoundTripper.
func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := a.next.RoundTrip(r)
	if err == nil && r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/"+a.to) && answer.StatusCode == http.StatusCreated {
		a.made <- struct{}{}
	}
	return answer, err
}

// forever is a lease that does not end.
type forever struct{}

// Deadline implements executor.Lease.
func (forever) Deadline() time.Time { return time.Now().Add(time.Hour) }

// Extended implements executor.Lease.
func (forever) Extended() <-chan struct{} { return nil }

// nowhere takes output that there is none of.
type nowhere struct{}

// Write implements executor.Sink.
func (nowhere) Write(executor.Stream, []byte) error { return nil }

// emptied deletes all pods and waits until they are gone.
func emptied(ctx context.Context, admin clientset.Interface) error {
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	if err := admin.CoreV1().Pods(namespace).DeleteCollection(ctx, now, metav1.ListOptions{}); err != nil {
		return err
	}
	selector := metav1.ListOptions{LabelSelector: kubernetes.Selector("bench").String()}
	if err := admin.CoreV1().ConfigMaps(namespace).DeleteCollection(ctx, now, selector); err != nil {
		return err
	}
	for {
		left, err := admin.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil || len(left.Items) == 0 {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}
