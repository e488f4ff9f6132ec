package worker

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/topics"
)

// ConsumerName is the name of the workers' consumer of execution_tasks, and what
// those of other task topics begin with (see ConsumerOf). It is their group:
// renaming it reads the task topics again from the start.
const ConsumerName = "worker"

// Store is what a worker needs of the executions; *store.Store implements it.
type Store interface {
	Claim(ctx context.Context, c store.Claim) ([]*execution.Execution, error)
	Offer(ctx context.Context, refs []store.Ref) (int, error)
	Heartbeat(ctx context.Context, worker string, refs []store.Ref, lease time.Duration, reports ...store.Report) ([]store.Beat, error)
	Cancelled(ctx context.Context, worker string, refs []store.Ref) ([]store.Ref, error)
	Checkpoint(ctx context.Context, id string) ([]byte, error)
	AppendOutput(ctx context.Context, worker string, ref store.Ref, chunks []store.OutputChunk, lease time.Duration) (store.Beat, error)
	Finish(ctx context.Context, finishes []store.Finish) ([]error, error)
	Announce(ctx context.Context, w store.Worker, ttl time.Duration) error
	Withdraw(ctx context.Context, id string) error
}

// Worker claims and runs executions. Make one with New, subscribe its Consumers,
// and call Run.
type Worker struct {
	cfg       Config
	store     Store
	executors map[string]executor.Executor
	cancels   <-chan struct{}
	results   Results
	log       *slog.Logger
	metrics   *metrics

	claims   *batcher[store.Ref, *execution.Execution]
	offers   *batcher[store.Ref, struct{}]
	finishes *batcher[store.Finish, error]
	// freed is signalled when it is worth looking for waiting work.
	freed chan struct{}
	// offered is signalled when some worker has put work on offer; nil if nobody
	// tells.
	offered <-chan struct{}
	// surveyed is signalled when the room of an executor has changed.
	surveyed chan struct{}
	// final ends when the worker gives up reporting results.
	final  context.Context //nolint:containedctx // the life of the worker, longer than any call
	giveUp context.CancelFunc

	mu       sync.Mutex
	stopping bool
	free     room
	attempts map[store.Ref]*attempt
	// found: the last look for waiting work found some. For the loop that looks.
	found bool
	// running counts claims under way and attempts.
	running sync.WaitGroup
}

// New makes a worker. cancels is signalled when some execution was asked to stop
// (postgres.Signals, store.WakeCancel); it may be nil, and then a cancel arrives
// within Config.CancelPoll.
func New(
	cfg Config, st Store, executors []executor.Executor, cancels <-chan struct{},
	log *slog.Logger, reg prometheus.Registerer,
) (*Worker, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	w := &Worker{
		cfg: cfg, store: st, executors: make(map[string]executor.Executor, len(executors)), cancels: cancels,
		log: log.With("worker", cfg.ID), metrics: newMetrics(reg, cfg.Slots),
		freed: make(chan struct{}, 1), surveyed: make(chan struct{}, 1), attempts: make(map[store.Ref]*attempt),
	}
	for _, x := range executors {
		if _, twice := w.executors[x.Name()]; twice {
			return nil, fmt.Errorf("executor %q is registered twice", x.Name())
		}
		w.executors[x.Name()] = x
	}
	w.free = w.total()
	w.final, w.giveUp = context.WithCancel(context.Background())
	w.claims = newBatcher(256, w.claimRefs).linger(w.isFull)
	w.offers = newBatcher(256, w.offerRefs)
	w.finishes = newBatcher(256, st.Finish).linger(w.isLast)
	return w, nil
}

// WatchOffers has the worker look for work as soon as another one has put some on
// offer (postgres.Signals, store.WakeOffered), and not only at its next poll. It is
// called before Run.
func (w *Worker) WatchOffers(offered <-chan struct{}) { w.offered = offered }

// Consumers are the subscriptions to the task topics that the worker reads, one for
// each, so that a topic that is added or goes leaves the others' positions alone.
func (w *Worker) Consumers() []pipeline.Consumer {
	list := make([]pipeline.Consumer, len(w.cfg.Topics))
	for i, topic := range w.cfg.Topics {
		list[i] = pipeline.Consumer{Name: ConsumerOf(topic), Topic: topic, Handle: pipeline.OnBatch(w.takeAll)}
	}
	return list
}

// ConsumerOf returns the name of the workers' consumer of a task topic, which is
// also their consumer group: the same wherever the topic stands in a configuration.
func ConsumerOf(topic topics.Topic) string {
	if topic == topics.ExecutionTasks {
		return ConsumerName
	}
	return pipeline.NameOf(ConsumerName, topic)
}

// take claims the execution of a task record if the worker serves it and has room.
// Otherwise it puts it on offer to whichever worker has. A record has done its work
// when one of the two is committed.
func (w *Worker) take(ctx context.Context, task topics.ExecutionTask) error {
	if _, err := uuid.Parse(task.ExecutionID); err != nil || len(task.ExecutionID) != 36 {
		// One bad id would fail the statement for all that share it.
		return pipeline.Malformed(fmt.Errorf("execution id %q is not a UUID", task.ExecutionID))
	}
	ref := store.Ref{ID: task.ExecutionID, Attempt: task.Attempt}
	mine := w.serves(task.Request)
	if mine {
		if taken, err := w.claimRecord(ctx, ref, needs(task.Request)); taken || err != nil {
			return err
		}
	}
	// This is also for a claim that came back empty: the attempt may be stale or
	// somebody else's, and then this changes nothing; or its row was locked by
	// somebody who left it as it was.
	if _, err := w.offers.do(ctx, ref); err != nil {
		return err
	}
	if mine {
		w.lookForWork() // a slot may have become free meanwhile
	}
	return nil
}

// claimRecord claims and starts the attempt of a record if there is room for it, and
// reports whether it did.
func (w *Worker) claimRecord(ctx context.Context, ref store.Ref, need room) (bool, error) {
	if !w.reserve(need) {
		return false, nil
	}
	defer w.running.Done()
	sent := time.Now()
	// The claim is not given up with the delivery: it may be committed, and then
	// the execution has to be run.
	e, err := w.claims.do(context.WithoutCancel(ctx), ref)
	if err != nil || e == nil {
		w.release(need)
		return false, err
	}
	w.start(e, sent)
	return true, nil
}

func (w *Worker) offerRefs(ctx context.Context, refs []store.Ref) ([]struct{}, error) {
	n, err := w.store.Offer(ctx, refs)
	w.metrics.offered.Add(float64(n))
	return make([]struct{}, len(refs)), err
}

func (w *Worker) serves(r topics.Request) bool {
	_, ok := w.executors[r.Executor]
	return ok && slices.Contains(w.cfg.Classes, r.ResourceClass)
}

func (w *Worker) executorNames() []string { return slices.Sorted(maps.Keys(w.executors)) }

// reserve takes room if it is free and the worker is not stopping. Then a claim is
// under way, until running.Done.
func (w *Worker) reserve(need room) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopping || !w.free.fits(need) {
		return false
	}
	w.running.Add(1)
	w.free = w.free.less(need)
	w.metrics.busy.Set(float64(w.cfg.Slots - w.free.slots))
	return true
}

func (w *Worker) release(need room) {
	w.mu.Lock()
	w.free = w.free.plus(need)
	w.metrics.busy.Set(float64(w.cfg.Slots - w.free.slots))
	w.mu.Unlock()
	w.lookForWork()
}

func (w *Worker) lookForWork() {
	select {
	case w.freed <- struct{}{}:
	default:
	}
}

// Run claims and runs executions until ctx ends, then shuts down: it takes no new
// work, hands back the attempts that another worker can carry on, gives the others the
// grace period to end, stops those that have not and hands them back. It returns when
// no attempt is left.
func (w *Worker) Run(ctx context.Context) error {
	// The loops outlive ctx: attempts that end during the shutdown still have to be
	// reported and their leases renewed.
	loops, stopLoops := context.WithCancel(context.WithoutCancel(ctx))
	var done sync.WaitGroup
	done.Go(func() { w.claims.loop(loops) })
	done.Go(func() { w.offers.loop(loops) })
	done.Go(func() { w.finishes.loop(loops) })
	done.Go(func() { w.heartbeats(loops) })
	done.Go(func() { w.poll(ctx, loops) })
	for _, x := range w.surveyors() {
		done.Go(func() { w.watchSurveys(loops, x) })
	}
	w.log.InfoContext(ctx, "worker started", "slots", w.cfg.Slots, "classes", w.cfg.Classes, "executors", w.executorNames())

	<-ctx.Done()
	w.shutdown(loops)
	stopLoops()
	done.Wait()
	w.log.InfoContext(ctx, "worker stopped")
	return nil
}

func (w *Worker) shutdown(ctx context.Context) {
	w.mu.Lock()
	w.stopping = true
	w.mu.Unlock()
	withdraw, cancel := context.WithTimeout(ctx, w.cfg.Heartbeat)
	if err := w.store.Withdraw(withdraw, w.cfg.ID); err != nil {
		w.log.WarnContext(ctx, "worker could not withdraw, its entry runs out by itself", "error", err)
	}
	cancel()

	ended := make(chan struct{})
	go func() {
		w.running.Wait()
		close(ended)
	}()
	// What goes on without this worker need not be waited for.
	w.stopAttempts(executor.ErrShutdown, func(a *attempt) bool { return a.carriedOn })
	if waitFor(ended, w.cfg.ShutdownGrace) {
		return
	}
	w.stopAttempts(executor.ErrShutdown, func(*attempt) bool { return true })
	// What cannot be reported by now is left to the leases.
	if !waitFor(ended, w.cfg.Lease) {
		w.giveUp()
		<-ended
	}
}

// waitFor reports whether done is closed within d.
func waitFor(done <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

func (w *Worker) stopAttempts(cause error, which func(*attempt) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.attempts {
		if which(a) {
			a.stop(cause)
		}
	}
}

// poll claims work that is on offer whenever slots become free, when another worker
// has offered some, and now and then: that is how executions whose record found its
// reader busy are picked up. A
// claim under way is brought to its end (under loops) after ctx has ended.
func (w *Worker) poll(ctx, loops context.Context) {
	ticker := time.NewTicker(w.cfg.PollInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.freed:
			w.rest(ctx)
		case <-w.offered:
			w.rest(ctx)
		case <-ticker.C:
		}
		if err := w.claimWaiting(loops); err != nil && ctx.Err() == nil {
			w.log.WarnContext(ctx, "claim of waiting work did not succeed, it will be repeated", "error", err)
		}
	}
}

// claimWaiting claims waiting executions into the room that is free.
func (w *Worker) claimWaiting(ctx context.Context) error {
	w.mu.Lock()
	left := w.free
	if w.stopping || left.slots <= 0 {
		w.mu.Unlock()
		return nil
	}
	w.running.Add(1)
	defer w.running.Done()
	w.free = room{} // all of it, until it is known what the claim brought
	w.mu.Unlock()

	sent := time.Now()
	claimed, err := w.claim(ctx, w.cfg.claim(left))
	for _, e := range claimed {
		left = left.less(needs(e.Request))
	}
	w.mu.Lock()
	w.free = w.free.plus(left)
	w.metrics.busy.Set(float64(w.cfg.Slots - w.free.slots))
	w.mu.Unlock()
	w.found = len(claimed) > 0
	for _, e := range claimed {
		w.start(e, sent)
	}
	return err
}

// claim fills in who claims. A claim that has taken too long is given up: what it
// may have brought is left to run out.
func (w *Worker) claim(ctx context.Context, c store.Claim) ([]*execution.Execution, error) {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Lease/3)
	defer cancel()
	c.Worker, c.Classes, c.Executors, c.Lease = w.cfg.ID, w.cfg.Classes, w.executorNames(), w.cfg.Lease
	return w.store.Claim(ctx, c)
}

// claimRefs claims the executions of task records. The answer is nil for one that
// is somebody else's, or gone.
func (w *Worker) claimRefs(ctx context.Context, refs []store.Ref) ([]*execution.Execution, error) {
	claimed, err := w.claim(ctx, store.Claim{Refs: refs})
	if err != nil {
		return nil, err
	}
	byRef := make(map[store.Ref]*execution.Execution, len(claimed))
	for _, e := range claimed {
		byRef[store.Ref{ID: e.ID, Attempt: e.Attempt}] = e
	}
	out := make([]*execution.Execution, len(refs))
	for i, ref := range refs {
		out[i] = byRef[ref]
		delete(byRef, ref) // a record that came twice in one batch starts one attempt
	}
	return out, nil
}
