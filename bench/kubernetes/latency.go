package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/millrace/millrace/bench/internal/frame"
	"github.com/millrace/millrace/bench/internal/measure"
	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/internal/executor/kubernetes"
	"github.com/millrace/millrace/topics"
)

// podLife is how long the pods of the part run.
const podLife = time.Second

// latency is what the part of that name found.
type latency struct {
	Rate    float64 `json:"rate_per_s"`
	Offered int     `json:"offered"`
	Made    int     `json:"made"`
	// Late is how far behind its schedule this program sent.
	Late      measure.Summary `json:"sent_late"`
	TaskToPod measure.Summary `json:"task_to_pod"`
	DueToTask measure.Summary `json:"due_to_task"`
	DueToPod  measure.Summary `json:"due_to_pod"`
	// WorkerCPU is processor time of the worker per execution, in milliseconds.
	WorkerCPU float64 `json:"worker_cpu_ms"`
}

// Print implements frame.Part.
func (l *latency) Print(w io.Writer) {
	fmt.Fprintf(w, "latency at %.0f per second: %d offered, %d pods, %.1f ms of the worker's processor time each\n", l.Rate, l.Offered, l.Made, l.WorkerCPU)
	measure.Table(w, measure.Heading(""), measure.Row("sent late", l.Late), measure.Row("due to task record", l.DueToTask),
		measure.Row("task record to pod", l.TaskToPod), measure.Row("due to pod", l.DueToPod))
}

// sightings are when something was seen first, by execution.
type sightings struct {
	mu   sync.Mutex
	when map[string]time.Time
}

func (s *sightings) note(id string, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.when == nil {
		s.when = map[string]time.Time{}
	}
	if _, seen := s.when[id]; !seen {
		s.when[id] = at
	}
}

func (s *sightings) of(id string) (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, seen := s.when[id]
	return at, seen
}

func (b *bench) measureLatency(ctx context.Context) (frame.Part, error) {
	p, err := b.newPlant(ctx, "latency", podLife)
	if err != nil {
		return nil, err
	}
	defer p.close()
	var tasks, pods sightings
	watching, stop := context.WithCancel(ctx)
	var observers sync.WaitGroup
	defer observers.Wait()
	defer stop()
	if err := p.observe(watching, &observers, &tasks, &pods); err != nil {
		return nil, err
	}
	// The topics are made by those who read and write them, which has been by now.
	worker, err := p.worker(ctx, "worker", 1000)
	if err != nil {
		return nil, err
	}
	if _, err := p.offer(ctx, p.warm, &pods); err != nil {
		return nil, fmt.Errorf("warm-up: %w", err)
	}
	before := worker.CPU()
	arrivals, err := p.offer(ctx, p.duration, &pods)
	if err != nil {
		return nil, err
	}
	return summarize(b.rate, arrivals, &tasks, &pods, worker.CPU()-before)
}

// observe notes when tasks are in their topic, and when there are pods.
func (p *plant) observe(ctx context.Context, observers *sync.WaitGroup, tasks, pods *sightings) error {
	kafka, err := kgo.NewClient(kgo.SeedBrokers(p.Brokers...), kgo.ConsumeTopics(p.Topic(topics.ExecutionTasks)),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	observers.Go(func() {
		defer kafka.Close()
		for ctx.Err() == nil {
			kafka.PollFetches(ctx).EachRecord(func(r *kgo.Record) { tasks.note(string(r.Key), r.Timestamp) })
		}
	})
	watch, err := p.cluster.Admin().CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	observers.Go(func() {
		defer watch.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case e, open := <-watch.ResultChan():
				if !open {
					return // what was not seen is missing, and that is an error
				}
				if pod, ok := e.Object.(*corev1.Pod); ok && e.Type == apiwatch.Added {
					pods.note(pod.Annotations[kubernetes.ExecutionAnnotation], time.Now())
				}
			}
		}
	})
	return nil
}

// arrival is one execution that was asked for.
type arrival struct {
	due, sent time.Time
	id        string
	err       error
}

// offer asks for executions at fixed times, and waits until all have a pod.
func (p *plant) offer(ctx context.Context, duration time.Duration, pods *sightings) ([]arrival, error) {
	arrivals := make([]arrival, int(p.rate*duration.Seconds()))
	began := time.Now()
	var submits sync.WaitGroup
	for i := range arrivals {
		a := &arrivals[i]
		a.due = began.Add(time.Duration(float64(i) / p.rate * float64(time.Second)))
		time.Sleep(time.Until(a.due))
		submits.Go(func() {
			a.sent = time.Now()
			e, err := p.api.Submit(ctx, client.Request{Executor: "kubernetes", Spec: json.RawMessage(`{"command":["true"]}`)})
			a.id, a.err = e.ID, err
		})
	}
	submits.Wait()
	for _, a := range arrivals {
		if a.err != nil {
			return nil, a.err
		}
	}
	missing := ""
	err := p.until(ctx, "all executions have a pod", func() (bool, error) {
		missing = ""
		for _, a := range arrivals {
			if _, made := pods.of(a.id); !made {
				missing = a.id
			}
		}
		return missing == "", nil
	})
	if err != nil && missing != "" {
		e, _ := p.api.Get(context.WithoutCancel(ctx), missing)
		err = fmt.Errorf("%w: execution %s is %s, attempt %d", err, missing, e.State, e.Attempt)
	}
	return arrivals, err
}

func summarize(rate float64, arrivals []arrival, tasks, pods *sightings, cpu time.Duration) (*latency, error) {
	var late, toPod, toTask, whole []time.Duration
	for _, a := range arrivals {
		task, sent := tasks.of(a.id)
		pod, made := pods.of(a.id)
		if !sent || !made {
			return nil, errors.New("an execution has a pod, and the record of its task was not seen")
		}
		late, toTask = append(late, a.sent.Sub(a.due)), append(toTask, task.Sub(a.due))
		toPod, whole = append(toPod, pod.Sub(task)), append(whole, pod.Sub(a.due))
	}
	return &latency{
		Rate: rate, Offered: len(arrivals), Made: len(toPod), Late: measure.Summarize(late), TaskToPod: measure.Summarize(toPod),
		DueToTask: measure.Summarize(toTask), DueToPod: measure.Summarize(whole), WorkerCPU: measure.Millis(cpu) / float64(max(len(arrivals), 1)),
	}, nil
}
