package kubernetes

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/internal/crash"
	"github.com/millrace/millrace/internal/executor"
)

// beginning brings an attempt to where its pod is there and carries its number.
//
// The pod is created before its ConfigMap, which needs the UID of its owner; until that is
// there the pod does not start. So a creation that was on its way when its worker died, and
// arrives when the run has long ended, starts nothing: nobody is left to make the ConfigMap.
type beginning struct {
	*attempt
	// look: the pod may be there, so it is asked for before it is made.
	look   bool
	pauses pauses
}

// run returns true when the pod is there, and a result when there will be none. With neither
// the attempt is to stop; what was asked for may have been made then.
func (b *beginning) run() (*executor.Result, bool) {
	// A run after the first may find the pods of those before it, and any may be late itself:
	// the watch knows.
	b.census.wait(b.work)
	if b.task.Origin() > 1 || !b.census.alone(b.task.ExecutionID, b.task.Origin()) {
		if result, ok := b.clear(); !ok {
			return result, false
		}
	}
	b.look = b.task.Origin() < b.task.Attempt
	for b.work.Err() == nil {
		p, result := b.pod()
		if result == nil && p != nil {
			p, result = b.adopt(p)
		}
		if result == nil && p != nil {
			var done bool
			if done, result = b.configure(p); done {
				return nil, true
			}
		}
		if result != nil {
			return result, false
		}
	}
	return nil, false
}

// clear ends the pods of earlier runs of the work, and waits until they are gone. It is
// false when the attempt is to stop, or there is a later run.
func (b *beginning) clear() (*executor.Result, bool) {
	o := metav1.ListOptions{LabelSelector: ExecutionSelector(b.cfg.Installation, b.task.ExecutionID).String()}
	list, err := persist(b.work, b.Executor, "list pods", func(ctx context.Context) (*corev1.PodList, error) {
		return b.client.CoreV1().Pods(b.key.Namespace).List(ctx, o)
	})
	if err != nil {
		if result, refused := Refused(err); refused {
			return &result, false
		}
		return nil, false
	}
	for i := range list.Items {
		p := trim(&list.Items[i])
		run, ok := RunOf(p)
		switch {
		case !ok || run.ExecutionID != b.task.ExecutionID || run.First == b.task.Origin():
		case run.First > b.task.Origin():
			return new(executor.Stopped(executor.ErrLeaseLost)), false
		default:
			if err := b.erase(b.work, p, deletion{}); err != nil {
				return nil, false
			}
		}
	}
	return nil, true
}

// pod makes the pod, or finds the one that there is. With neither it is to be tried again.
func (b *beginning) pod() (*corev1.Pod, *executor.Result) {
	if b.look {
		p, err := b.get(b.work, b.key)
		if err != nil || p != nil {
			return p, nil
		}
		if result, certain := b.lost(); result != nil || !certain {
			return nil, result
		}
	}
	p, err := call(b.work, b.Executor, "create pod", func(ctx context.Context) (*corev1.Pod, error) {
		return b.client.CoreV1().Pods(b.key.Namespace).Create(ctx, b.objects.Pod, metav1.CreateOptions{})
	})
	if err == nil {
		crash.At("pods.created")
		b.metrics.created.Inc()
		b.board.show(trim(p))
		return p, nil
	}
	if apierrors.IsAlreadyExists(err) {
		b.look = true
		return nil, nil
	}
	result, refused := Refused(err)
	switch {
	case !refused:
		// The answer may be all that was lost.
		b.look = true
		b.again(b.work, "create pod", err, &b.pauses)
		return nil, nil
	case b.pauses.n > 0:
		// A pod that is there may be what fills the quota that another has no room in.
		if p, err := b.get(b.work, b.key); err != nil || p != nil {
			return p, nil
		}
	}
	b.metrics.refused.WithLabelValues(result.Reason).Inc()
	return nil, &result
}

// lost says what the run has come to when it had a pod that is not there any more: what was
// noted before it was taken away, or else that it was lost, if it may have done something of the
// work. It is not begun anew behind anybody's back. It is not certain when the attempt is to stop.
func (b *beginning) lost() (result *executor.Result, certain bool) {
	last, known, err := b.recorder.worked(b.work, b.task)
	switch {
	case err != nil:
		return nil, false
	case !known:
		return nil, true
	}
	if last.Verdict != nil {
		return new(resultOf(*last.Verdict)), true
	}
	b.metrics.vanished.Inc()
	return new(forgotten(last)), true
}

// adopt writes the number of the attempt on the pod, unless it is there. With neither a pod
// nor a result it is to be looked for again.
func (b *beginning) adopt(p *corev1.Pod) (*corev1.Pod, *executor.Result) {
	if result, foreign := b.builder.Clash(p, b.task); foreign {
		return nil, &result
	}
	b.look, b.doomed = true, p.DeletionTimestamp != nil
	switch n := attemptOf(p); {
	case n > b.task.Attempt:
		return nil, new(executor.Stopped(executor.ErrLeaseLost))
	case p.DeletionTimestamp != nil && !begun(p):
		// Somebody has given it up before it began, so nothing is lost.
		_ = b.erase(b.work, p, deletion{})
		return nil, nil
	case n == b.task.Attempt:
		return p, nil
	}
	claimed, err := b.claim(b.work, p, b.task.Attempt, 0)
	if err != nil {
		return nil, nil // it is gone or has changed, or the attempt is to stop
	}
	crash.At("pods.adopted")
	b.metrics.adopted.Inc()
	b.board.show(trim(claimed))
	return claimed, nil
}

// configure makes the ConfigMap of the pod, if it needs one. With neither an end nor a
// result it is to be tried again.
func (b *beginning) configure(p *corev1.Pod) (bool, *executor.Result) {
	if b.objects.ConfigMap == nil || begun(p) || p.DeletionTimestamp != nil {
		return true, nil
	}
	b.objects.Own(p)
	made, err := call(b.work, b.Executor, "create config map", func(ctx context.Context) (*corev1.ConfigMap, error) {
		return b.client.CoreV1().ConfigMaps(b.key.Namespace).Create(ctx, b.objects.ConfigMap, metav1.CreateOptions{})
	})
	if apierrors.IsAlreadyExists(err) {
		return b.found(p)
	}
	if err == nil {
		crash.At("pods.configured")
		b.board.configured(b.key, made.UID)
		return true, nil
	}
	if result, refused := Refused(err); refused {
		b.metrics.refused.WithLabelValues(result.Reason).Inc()
		if b.giveUp(p, result, deletion{}) { // without it the pod would wait for ever
			return false, &result
		}
		return false, nil
	}
	b.again(b.work, "create config map", err, &b.pauses)
	return false, nil
}

// found takes the ConfigMap that there is, unless it is somebody else's, or that of a pod of
// the same name that is gone.
func (b *beginning) found(p *corev1.Pod) (bool, *executor.Result) {
	there, err := persist(b.work, b.Executor, "get config map", func(ctx context.Context) (*corev1.ConfigMap, error) {
		return b.client.CoreV1().ConfigMaps(b.key.Namespace).Get(ctx, b.key.Name, metav1.GetOptions{})
	})
	if err != nil {
		return false, nil
	}
	if result, foreign := b.builder.Clash(there, b.task); foreign {
		if b.giveUp(p, result, deletion{}) {
			return false, &result
		}
		return false, nil
	}
	for _, owner := range there.OwnerReferences {
		if owner.UID == p.UID {
			b.board.configured(b.key, there.UID)
			return true, nil
		}
	}
	_ = b.discard(b.work, b.key, there.UID)
	return false, nil
}
