package kubernetes

import (
	"context"
	"errors"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/internal/crash"
	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/executor/capture"
)

// attempt is one call of Run.
type attempt struct {
	*Executor
	task    executor.Task
	objects Objects
	key     key
	// stop ends when the attempt is to stop, held when the lease is over, and work with
	// either of them.
	stop, held, work context.Context //nolint:containedctx // they live as long as the call
	// news is signalled when the pod has changed.
	news   <-chan struct{}
	output *output
	// doomed: the pod was being deleted when the attempt found it.
	doomed bool
}

// Run runs one attempt: it makes the pod of the run, or finds it, and waits for its end. See
// executor.Executor and the package doc.
func (e *Executor) Run(ctx context.Context, task executor.Task, lease executor.Lease, sink executor.Sink) (executor.Result, error) {
	objects, err := e.builder.Build(task)
	if refusal, ok := errors.AsType[*Refusal](err); ok {
		return refusal.Result, nil
	}
	if err != nil {
		return executor.Result{}, err
	}
	held, release := executor.Held(lease)
	defer release()
	if time.Until(lease.Deadline()) <= 0 {
		return executor.Stopped(executor.ErrLeaseLost), nil
	}
	work, cancel := context.WithCancelCause(held)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
	a := &attempt{Executor: e, task: task, objects: objects, key: keyOf(objects.Pod), stop: ctx, held: held, work: work}
	news, leave := e.board.watch(a.key)
	defer leave()
	a.news = news
	a.output = newOutput(e, a.key, capture.New(sink, task.MaxOutputBytes), a.lookAgain)
	result := a.run()
	result.Stdout, result.Stderr = a.output.close()
	return result, nil
}

func (a *attempt) run() executor.Result {
	if a.stop.Err() != nil {
		if a.task.Origin() == a.task.Attempt {
			return executor.Stopped(context.Cause(a.stop)) // nobody has started anything
		}
		return a.end(context.Cause(a.stop))
	}
	b := &beginning{attempt: a}
	result, began := b.run()
	switch {
	case began:
		return a.follow()
	case result != nil:
		return *result
	case a.held.Err() != nil:
		return executor.Stopped(executor.ErrLeaseLost)
	}
	return a.end(context.Cause(a.work)) // what was asked for may have been made
}

// follow waits for the end of the pod, reading its output meanwhile.
func (a *attempt) follow() executor.Result {
	for {
		v := a.board.look(a.key)
		if v.gone {
			return a.vanished(v.pod)
		}
		if attemptOf(v.pod) > a.task.Attempt {
			return executor.Stopped(executor.ErrLeaseLost)
		}
		if begun(v.pod) {
			a.output.begin(v.pod.UID)
		}
		if result, ok := Ended(v.pod); ok {
			return a.conclude(v.pod, result)
		}
		result, next, stuck := Stuck(v.pod, time.Now(), a.cfg.Patience)
		if stuck {
			result = a.noted(result)
			// That it is stuck is only true as long as nothing changes. One that is stuck in
			// its deletion needs force.
			if a.giveUp(v.pod, result, deletion{unchanged: true, force: v.pod.DeletionTimestamp != nil}) {
				crash.At("pods.given_up")
				a.metrics.stuck.WithLabelValues(result.Reason).Inc()
				return result
			}
		} else {
			a.wait(next)
		}
		switch {
		case a.held.Err() != nil:
			return executor.Stopped(executor.ErrLeaseLost)
		case a.stop.Err() != nil:
			return a.end(context.Cause(a.stop))
		}
	}
}

// wait returns when the pod has changed, at next unless that is zero, and when the attempt
// is to stop; now and then, too, when there is no watch to tell.
func (a *attempt) wait(next time.Time) {
	poll := time.NewTimer(a.cfg.Poll)
	defer poll.Stop()
	var due <-chan time.Time
	if !next.IsZero() {
		timer := time.NewTimer(time.Until(next))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-a.news:
	case <-due:
	case <-poll.C:
		if !a.watching.Load() {
			a.lookAgain()
		}
	case <-a.work.Done():
	}
}

// lookAgain asks how the pod is. The log of a container that has ended says so, and the
// watch may hang or be late.
func (a *attempt) lookAgain() {
	ctx, cancel := context.WithTimeout(a.work, a.cfg.CallTimeout)
	defer cancel()
	known := a.board.look(a.key).pod
	if now, err := a.get(ctx, a.key); err == nil && known != nil && (now == nil || now.UID != known.UID) {
		a.board.absent(a.key, known.UID)
	}
}

// conclude reads the output to its end. The pod stays for whoever may have to read it again
// (Settle), unless the result is none, and the next attempt has to make it anew.
func (a *attempt) conclude(p *corev1.Pod, result executor.Result) executor.Result {
	a.output.drain(a.work, p)
	switch {
	case a.held.Err() != nil:
		return executor.Stopped(executor.ErrLeaseLost)
	case a.stop.Err() != nil && !a.output.complete():
		// The end is there, but its output is not, and there is somebody who can read it.
		return a.end(context.Cause(a.stop))
	case result.Outcome == executor.Abandoned && !a.giveUp(p, result, deletion{}):
		return a.end(context.Cause(a.work))
	}
	return a.noted(result)
}

// noted returns what the pod was taken away for, if it was so by an attempt before this one
// that did not get to report it. What the work came to by itself meanwhile counts first.
func (a *attempt) noted(result executor.Result) executor.Result {
	if !a.doomed || !result.Disrupted {
		return result
	}
	last, known, err := a.recorder.worked(a.held, a.task)
	switch {
	case err != nil:
		return executor.Stopped(executor.ErrLeaseLost)
	case known && last.Verdict != nil:
		return resultOf(*last.Verdict)
	}
	return result
}

// vanished is the end of a pod that somebody else has deleted.
func (a *attempt) vanished(p *corev1.Pod) executor.Result {
	a.metrics.vanished.Inc()
	result, ended := Ended(p)
	if !ended || result.Outcome == executor.Abandoned {
		result = Gone(p)
	}
	byItself := ended && !result.Disrupted
	if byItself && begun(p) {
		a.output.begin(p.UID)
	}
	a.output.finish(byItself)
	a.discardConfig(a.held)
	return a.noted(result)
}

// giveUp deletes a pod that is of no use, for what the attempt ends with then, and waits until
// it is gone. It is false when the pod has changed meanwhile, or the attempt is to stop.
func (a *attempt) giveUp(p *corev1.Pod, result executor.Result, d deletion) bool {
	if err := a.remove(a.work, p, result, d); err != nil {
		return false
	}
	a.output.abandon()
	a.discardConfig(a.work)
	return true
}

// remove deletes a pod, for what is noted before, and waits until it is gone.
func (a *attempt) remove(ctx context.Context, p *corev1.Pod, result executor.Result, d deletion) error {
	if err := a.recorder.forgo(ctx, p, result); err != nil {
		return err
	}
	return a.erase(ctx, p, d)
}

// end is what becomes of the attempt when it has to stop. A pod is deleted because the work
// is not wanted any more; it is left when only the worker goes.
func (a *attempt) end(cause error) executor.Result {
	stopped := executor.Stopped(cause)
	if stopped.Outcome == executor.Abandoned {
		a.output.abandon()
		return stopped
	}
	if stopped.Outcome == executor.TimedOut {
		return a.expire()
	}
	p, err := a.find(a.held)
	if err == nil && p != nil {
		if result, ok := Ended(p); ok && result.Outcome == executor.Completed && attemptOf(p) == a.task.Attempt {
			a.output.begin(p.UID)
			a.output.drain(a.held, p) // it was quicker
			return result
		}
		if begun(p) {
			a.output.begin(p.UID)
		}
		if err = a.erase(a.held, p, deletion{}); err == nil {
			crash.At("pods.stopped")
		}
	}
	if err != nil {
		a.output.abandon()
		return executor.Stopped(executor.ErrLeaseLost)
	}
	a.output.finish(false)
	a.discardConfig(a.held)
	return stopped
}

// find asks for the pod of the attempt, nil if there is none, and lets be what is
// somebody else's.
func (a *attempt) find(ctx context.Context) (*corev1.Pod, error) {
	p, err := a.get(ctx, a.key)
	if p == nil || err != nil {
		return nil, err
	}
	if _, foreign := a.builder.Clash(p, a.task); foreign {
		return nil, nil //nolint:nilnil // there is none of ours
	}
	if attemptOf(p) > a.task.Attempt {
		return nil, executor.ErrLeaseLost
	}
	return p, nil
}

// discardConfig deletes the ConfigMap of a pod that is gone. What is left is found by the
// cluster's garbage collector, and by the keeper.
func (a *attempt) discardConfig(ctx context.Context) {
	uid := a.board.look(a.key).config
	if uid == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.CallTimeout)
	defer cancel()
	if err := a.discard(ctx, a.key, uid); err == nil {
		a.board.configured(a.key, "")
	}
}

// attemptOf is the latest attempt that has carried on a pod.
func attemptOf(p *corev1.Pod) int {
	n, _ := strconv.Atoi(p.Annotations[AttemptAnnotation])
	return n
}

// begun says whether the program of a pod runs, or has run: whether there is a log.
func begun(p *corev1.Pod) bool {
	for _, c := range p.Status.ContainerStatuses {
		if c.Name == WorkContainer {
			return c.State.Running != nil || c.State.Terminated != nil
		}
	}
	return false
}
