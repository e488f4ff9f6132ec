package kubernetes

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/millrace/millrace/internal/crash"
	"github.com/millrace/millrace/internal/executor"
)

// expire ends a pod whose run limit has passed. It is not deleted: its node ends it, as it
// does where no worker lives, and the pod tells why it has ended to the attempt that follows
// if this worker dies before it does. One that has not begun, or does not end, is deleted, and
// that it was for its run limit is noted before.
func (a *attempt) expire() executor.Result {
	for a.held.Err() == nil {
		p, err := a.find(a.held)
		if err != nil {
			break
		}
		if p == nil {
			return a.expired()
		}
		if begun(p) {
			a.output.begin(p.UID)
		}
		if result, ok := Ended(p); ok && result.Outcome != executor.Abandoned {
			crash.At("pods.expired")
			a.output.drain(a.held, p)
			return result
		}
		if err := a.shorten(p); err != nil {
			break
		}
	}
	a.output.abandon()
	return executor.Stopped(executor.ErrLeaseLost)
}

// expired is the end of an attempt at its run limit whose pod is gone.
func (a *attempt) expired() executor.Result {
	crash.At("pods.cut_short")
	a.output.finish(false)
	a.discardConfig(a.held)
	return executor.Stopped(executor.ErrRunLimit)
}

// shorten has the node of a pod end it, and waits until it has ended, or is gone, or has
// changed. The error is that the lease is over.
func (a *attempt) shorten(p *corev1.Pod) error {
	limit := executor.Stopped(executor.ErrRunLimit)
	switch {
	case p.DeletionTimestamp != nil:
		return a.erase(a.held, p, deletion{}) // somebody was quicker
	case startedAt(p).IsZero():
		err := a.remove(a.held, p, limit, deletion{unchanged: true})
		if errors.Is(err, errChanged) {
			return nil // it has begun
		}
		return err
	}
	now, err := a.claim(a.held, p, a.task.Attempt, 1)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return nil
	case err != nil && a.held.Err() == nil:
		a.log.WarnContext(a.held, "the cluster does not let the deadline of a pod be changed, so it is deleted at its run limit",
			"namespace", p.Namespace, "pod", p.Name, "error", err)
		return a.remove(a.held, p, limit, deletion{})
	case err != nil:
		return err
	}
	a.board.show(trim(now))
	ended, err := a.await(a.held, p, func(p *corev1.Pod) bool { return over(p) || p.DeletionTimestamp != nil })
	if ended || err != nil {
		return err
	}
	if err := a.recorder.forgo(a.held, p, limit); err != nil {
		return err
	}
	return a.force(a.held, p)
}
