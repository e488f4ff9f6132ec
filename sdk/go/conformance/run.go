package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/sdk/go/worker"
)

// limit is how long a scenario may take. It only ends tests that would not end.
const limit = 90 * time.Second

// Run runs the scenarios of a file, each as a subtest, against a host for each.
func Run(t *testing.T, f File, host func(t *testing.T) Host) {
	t.Helper()
	for _, s := range f.Scenarios {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			h := host(t)
			for _, requirement := range s.Requires {
				if !h.Can(requirement) {
					t.Skipf("the engine of this run cannot do %q", requirement)
				}
			}
			newHarness(t, s, h).run()
		})
	}
}

// harness runs one scenario.
type harness struct {
	t      *testing.T
	s      Scenario
	host   Host
	prefix string
	ctx    context.Context //nolint:containedctx // the life of a test
	keys   map[string][]string

	mu        sync.Mutex
	changed   chan struct{}
	calls     map[string]int // by job type
	perJob    map[string]int // by key
	cancelled map[string]bool
	running   int
	most      int

	worker  *running
	workers int
	stopErr []error
}

// running is a worker.
type running struct {
	cut  *cut
	stop context.CancelFunc
	end  chan error
}

func newHarness(t *testing.T, s Scenario, host Host) *harness {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return &harness{
		t: t, s: s, host: host, ctx: ctx, prefix: fmt.Sprintf("%s-%x-", s.Name, time.Now().UnixNano()),
		keys: map[string][]string{}, changed: make(chan struct{}), calls: map[string]int{}, perJob: map[string]int{}, cancelled: map[string]bool{},
	}
}

func (h *harness) run() {
	h.put("")
	script := h.s.Script
	for len(script) > 0 && script[0].When == nil {
		h.do(script[0].Do)
		script = script[1:]
	}
	h.start()
	for _, step := range script {
		if step.When != nil {
			h.awaitStarted(step.When.Job)
		}
		h.do(step.Do)
	}
	h.put("stopped")
	for _, j := range h.s.Jobs {
		if h.s.Expect.Jobs[j.Name].Status != Open {
			h.awaitEnd(j.Name)
		}
		h.put(j.Name)
	}
	for _, j := range h.s.Jobs {
		if h.s.Expect.Jobs[j.Name].Status != Open {
			h.awaitEnd(j.Name)
		}
	}
	h.stop()
	h.compare()
}

// put puts up the jobs that wait for the given thing, and have not been put up.
func (h *harness) put(after string) {
	for _, j := range h.s.Jobs {
		if j.After != after || h.keys[j.Name] != nil {
			continue
		}
		variables, err := object(j.Variables)
		require.NoError(h.t, err)
		for range max(j.Count, 1) {
			key, err := h.host.Put(h.ctx, j, h.prefix+j.Type, variables)
			require.NoError(h.t, err, "put up job %s", j.Name)
			h.keys[j.Name] = append(h.keys[j.Name], key)
		}
	}
}

// start starts a worker with an id of its own.
func (h *harness) start() {
	h.workers++
	registry := worker.NewRegistry()
	w := &running{cut: newCut(h.host.Client()), end: make(chan error, 1)}
	for jobType, behaviours := range h.s.Handlers {
		registry.Register(h.prefix+jobType, h.handler(jobType, behaviours, w))
	}
	cfg := worker.Config{
		WorkerID: fmt.Sprintf("%sworker-%d", h.prefix, h.workers), Parallelism: h.s.Worker.Parallelism,
		Lease: duration(h.s.Worker.LeaseSeconds), DrainTimeout: duration(h.s.Worker.DrainSeconds), Logger: slog.New(slog.DiscardHandler),
		PollInterval: 50 * time.Millisecond,
	}
	ctx, cancel := context.WithCancel(h.ctx)
	w.stop = cancel
	h.worker = w
	go func() { w.end <- h.host.Work(ctx, w.cut, registry, cfg) }()
	h.t.Cleanup(cancel)
}

// stop stops the worker, if there is one, and waits until it has ended.
func (h *harness) stop() {
	if h.worker == nil {
		return
	}
	h.worker.stop()
	h.stopErr = append(h.stopErr, <-h.worker.end)
	h.worker = nil
}

func (h *harness) do(a Action) {
	switch {
	case a.Cancel != "":
		require.NoError(h.t, h.host.Cancel(h.ctx, h.keys[a.Cancel][0]))
	case a.Steal != nil:
		require.NoError(h.t, h.host.(Thief).Steal(h.ctx, h.keys[a.Steal.Job][0], a.Steal.Complete))
	case a.Break != nil:
		h.host.(Saboteur).Break(a.Break.Call, a.Break.Times, a.Break.AfterEffect)
	case a.Stop:
		h.stop()
	case a.Restart:
		h.stop()
		h.start()
	case a.Kill:
		h.worker.cut.off()
		h.worker.stop()
		h.t.Logf("the worker that was killed ended with: %v", <-h.worker.end)
		h.worker = nil
	case a.Start:
		h.start()
	}
}

// handler does what the scenario says.
func (h *harness) handler(jobType string, behaviours []Behaviour, w *running) worker.Handler {
	return func(ctx context.Context, job worker.JobContext) (worker.Result, error) {
		key := h.host.Key(job)
		b := behaviours[min(h.enter(jobType, key), len(behaviours)-1)]
		defer h.leave()
		if err := h.pass(ctx, key, b, w); err != nil {
			return worker.Result{}, err
		}
		if b.Panic != "" {
			panic(b.Panic)
		}
		if b.Fail != nil {
			err := errors.New(b.Fail.Message)
			if b.Fail.Code != "" {
				err = worker.Fail(b.Fail.Code, err)
			}
			if b.Fail.Retryable != nil && !*b.Fail.Retryable {
				err = &worker.NonRetryable{Cause: err}
			}
			return worker.Result{}, err
		}
		if b.ReturnsError {
			return worker.Result{}, errors.New("it did not come to that")
		}
		return h.result(b, job, jobType)
	}
}

// pass takes the time that a behaviour takes.
func (h *harness) pass(ctx context.Context, key string, b Behaviour, w *running) error {
	if b.UntilKilled {
		<-w.cut.done
		return errors.New("the worker is dead")
	}
	took := time.Duration(0)
	if b.Hold != nil {
		took = duration(b.Hold.Seconds)
	}
	if b.UntilCancelled {
		took = 30 * time.Second
	}
	select {
	case <-time.After(took):
		return nil
	case <-ctx.Done():
		h.note(func() { h.cancelled[key] = true })
		if b.UntilCancelled {
			return nil
		}
		return context.Cause(ctx)
	}
}

func (h *harness) result(b Behaviour, job worker.JobContext, jobType string) (worker.Result, error) {
	switch {
	case b.Echo:
		return worker.Result{VariablesToSet: job.Variables}, nil
	case b.Describe:
		assert.Equal(h.t, h.prefix+jobType, job.JobType)
		return worker.Result{VariablesToSet: map[string]any{
			"seen": map[string]any{"stepId": job.StepID, "jobType": jobType, "attempt": job.Attempt, "retriesRemaining": job.RetriesRemaining},
		}}, nil
	default:
		variables, err := object(b.Complete)
		return worker.Result{VariablesToSet: variables}, err
	}
}

// enter counts a call and returns its number among those of the handler, from 0.
func (h *harness) enter(jobType, key string) (n int) {
	h.note(func() {
		n = h.calls[jobType]
		h.calls[jobType]++
		h.perJob[key]++
		h.running++
		h.most = max(h.most, h.running)
	})
	return n
}

func (h *harness) leave() { h.note(func() { h.running-- }) }

func (h *harness) note(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
	close(h.changed)
	h.changed = make(chan struct{})
}

func (h *harness) awaitStarted(name string) {
	for {
		h.mu.Lock()
		started, changed := h.perJob[h.keys[name][0]] > 0, h.changed
		h.mu.Unlock()
		if started {
			return
		}
		select {
		case <-changed:
		case <-h.ctx.Done():
			require.FailNow(h.t, "no handler began with job "+name)
		}
	}
}

func (h *harness) awaitEnd(name string) {
	for _, key := range h.keys[name] {
		for {
			o, err := h.host.Outcome(h.ctx, key)
			require.NoError(h.t, err)
			if o.Status != Open {
				break
			}
			select {
			case <-time.After(20 * time.Millisecond):
			case <-h.ctx.Done():
				require.FailNow(h.t, "job "+name+" did not end")
			}
		}
	}
}

func (h *harness) compare() {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.t
	for name, want := range h.s.Expect.Jobs {
		for _, key := range h.keys[name] {
			got, err := h.host.Outcome(h.ctx, key)
			require.NoError(t, err)
			assert.Equal(t, want.Status, got.Status, "status of job %s", name)
			assert.Equal(t, want.Calls, h.perJob[key], "calls for job %s", name)
			assert.Equal(t, want.Cancelled, h.cancelled[key], "was the handler of job %s cancelled?", name)
			variables, err := object(want.Variables)
			require.NoError(t, err)
			for variable, value := range variables {
				assert.Equal(t, text(value), text(got.Variables[variable]), "variable %s of job %s", variable, name)
			}
			for _, variable := range want.Absent {
				assert.NotContains(t, got.Variables, variable, "variables of job %s", name)
			}
			compareFailures(t, name, want.Failures, got)
		}
	}
	if h.s.Expect.MostAtOnce > 0 {
		assert.LessOrEqual(t, h.most, h.s.Expect.MostAtOnce, "handlers at once")
	}
	if h.s.Expect.StopsCleanly {
		assert.NoError(t, errors.Join(h.stopErr...))
	}
}

func compareFailures(t *testing.T, name string, want []Failure, got Outcome) {
	t.Helper()
	if got.OnlyLast {
		if len(want) > 0 && got.Status == Failed {
			require.Len(t, got.Failures, 1)
			assert.Contains(t, got.Failures[0].Message, want[len(want)-1].Message, "failure of job %s", name)
		}
		return
	}
	if !assert.Len(t, got.Failures, len(want), "failures of job %s", name) {
		return
	}
	for i, f := range want {
		assert.Contains(t, got.Failures[i].Message, f.Message, "failure %d of job %s", i, name)
		assert.Equal(t, f.Code, got.Failures[i].Code, "code of failure %d of job %s", i, name)
		assert.Equal(t, f.Retryable == nil || *f.Retryable, got.Failures[i].Retryable, "is failure %d of job %s retryable?", i, name)
	}
}

// text is the JSON of a value, members in the order of their names and numbers as they
// are written.
func text(value any) string {
	out, err := json.Marshal(value)
	if err != nil {
		return "not JSON: " + err.Error()
	}
	var sorted any
	decoder := json.NewDecoder(strings.NewReader(string(out)))
	decoder.UseNumber()
	if err := decoder.Decode(&sorted); err != nil {
		return string(out)
	}
	out, err = json.Marshal(sorted)
	if err != nil {
		return "not JSON: " + err.Error()
	}
	return string(slices.Clip(out))
}
