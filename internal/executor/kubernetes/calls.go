package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// callPauseMin is the first pause before a call is repeated.
const callPauseMin = 50 * time.Millisecond

// call makes one call of the API server within CallTimeout.
func call[T any](ctx context.Context, e *Executor, what string, do func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.CallTimeout)
	defer cancel()
	began := time.Now()
	out, err := do(ctx)
	e.metrics.called(what, time.Since(began), err)
	return out, err
}

// persist makes a call again and again while it is not answered, until ctx ends. Answers are
// final, except for those that say nothing of what was asked: the server is too busy, or
// does not let us (somebody may mend that).
func persist[T any](ctx context.Context, e *Executor, what string, do func(context.Context) (T, error)) (T, error) {
	pauses := pauses{}
	for {
		out, err := call(ctx, e, what, do)
		if err == nil || answered(err) {
			return out, err
		}
		if ctx.Err() != nil {
			return out, fmt.Errorf("%s: %w (the last answer was: %w)", what, context.Cause(ctx), err)
		}
		e.again(ctx, what, err, &pauses)
	}
}

// again waits before a call is repeated, and says so now and then.
func (e *Executor) again(ctx context.Context, what string, err error, p *pauses) {
	pause := p.next(err, e.cfg.RetryMax)
	if p.n%5 == 2 {
		e.log.WarnContext(ctx, "call of the kubernetes API did not succeed, it will be repeated",
			"call", what, "error", err, "hint", hint(err), "times", p.n, "next_try_in", pause)
	}
	sleep(ctx, pause)
}

// pauses are those between the tries of a call.
type pauses struct{ n int }

// next returns how long to wait: longer each time, and what the server has asked for.
func (p *pauses) next(err error, most time.Duration) time.Duration {
	pause := min(callPauseMin<<min(p.n, 10), most)
	p.n++
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		pause = max(pause, min(time.Duration(seconds)*time.Second, time.Minute))
	}
	return pause/2 + rand.N(pause/2+1)
}

// answered says whether an error is what the API server says of the object, rather than of
// itself or of the caller.
func answered(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch s := status.Status(); {
	case s.Code == http.StatusTooManyRequests, s.Code == http.StatusUnauthorized, s.Code == http.StatusForbidden,
		s.Code >= 500, s.Code < 400, apierrors.IsTimeout(err):
		return false
	}
	return true
}

// get asks for a pod, and shows it to the board. It is nil when there is none.
func (e *Executor) get(ctx context.Context, k key) (*corev1.Pod, error) {
	p, err := persist(ctx, e, "get pod", func(ctx context.Context) (*corev1.Pod, error) {
		return e.client.CoreV1().Pods(k.Namespace).Get(ctx, k.Name, metav1.GetOptions{})
	})
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // that there is none is an answer
	}
	if err != nil {
		return nil, err
	}
	e.board.show(trim(p))
	return p, nil
}

// errChanged: a pod is not any more as it was when its deletion was decided.
var errChanged = errors.New("the pod has changed")

// deletion says how a pod is deleted.
type deletion struct {
	// unchanged deletes it only as it is; otherwise errChanged.
	unchanged bool
	// force does not wait for its node.
	force bool
}

// delete asks for the end of a pod, as it is known, and returns its state after that; nil
// when it is not there.
func (e *Executor) delete(ctx context.Context, p *corev1.Pod, d deletion) error {
	o := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.UID}}
	if d.unchanged {
		o.Preconditions.ResourceVersion = &p.ResourceVersion
	}
	if d.force {
		o.GracePeriodSeconds = new(int64)
	}
	_, err := persist(ctx, e, "delete pod", func(ctx context.Context) (struct{}, error) {
		return struct{}{}, e.client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, o)
	})
	switch {
	case apierrors.IsNotFound(err):
		e.board.absent(keyOf(p), p.UID)
		return nil
	case apierrors.IsConflict(err) && d.unchanged:
		return e.changed(ctx, p)
	case apierrors.IsConflict(err): // another pod has its name by now
		e.board.absent(keyOf(p), p.UID)
		return nil
	}
	return err
}

// changed looks why a pod is not any more as it was when its deletion was decided, and shows
// that to the board. The error is errChanged, unless the reason is its deletion itself, the
// answer to which was lost.
func (e *Executor) changed(ctx context.Context, p *corev1.Pod) error {
	now, err := e.get(ctx, keyOf(p))
	switch {
	case err != nil:
		return err
	case now == nil || now.UID != p.UID:
		e.board.absent(keyOf(p), p.UID)
	case now.DeletionTimestamp == nil || p.DeletionTimestamp != nil || begun(now):
		return errChanged
	}
	return nil
}

// erase deletes a pod and waits until it is gone, by force where its node does not answer.
func (e *Executor) erase(ctx context.Context, p *corev1.Pod, d deletion) error {
	_, leave := e.board.watch(keyOf(p))
	defer leave()
	e.board.show(p)
	if err := e.delete(ctx, p, d); err != nil {
		return err
	}
	for {
		gone, err := e.await(ctx, p, func(*corev1.Pod) bool { return false })
		if gone || err != nil {
			return err
		}
		if err := e.force(ctx, p); err != nil {
			return err
		}
	}
}

// await waits until a pod that was asked to end is as wanted, or gone. It is false when that
// takes longer than its grace period and Patience.Force. The caller watches the pod.
func (e *Executor) await(ctx context.Context, p *corev1.Pod, enough func(*corev1.Pod) bool) (bool, error) {
	k := keyOf(p)
	news, leave := e.board.watch(k)
	defer leave()
	limit := time.NewTimer(e.patienceFor(p))
	defer limit.Stop()
	for look := 500 * time.Millisecond; ; look = min(2*look, 2*time.Second) {
		if v := e.board.look(k); v.gone || v.pod == nil || v.pod.UID != p.UID || enough(v.pod) {
			return true, nil
		}
		poll := time.NewTimer(look)
		select {
		case <-ctx.Done():
			poll.Stop()
			return false, context.Cause(ctx)
		case <-limit.C:
			poll.Stop()
			return false, nil
		case <-news:
		case <-poll.C:
			now, err := e.get(ctx, k)
			if err != nil {
				return false, err
			}
			if now == nil || now.UID != p.UID {
				e.board.absent(k, p.UID)
			}
		}
		poll.Stop()
	}
}

// patienceFor is how long a pod that was asked to end is waited for.
func (e *Executor) patienceFor(p *corev1.Pod) time.Duration {
	grace := e.cfg.Patience.Force
	if s := p.Spec.TerminationGracePeriodSeconds; s != nil {
		grace += time.Duration(*s) * time.Second
	}
	return grace
}

// force removes a pod whose node has not ended it in time.
func (e *Executor) force(ctx context.Context, p *corev1.Pod) error {
	e.metrics.forced.Inc()
	e.log.WarnContext(ctx, "pod did not end in time, it is removed by force and may run on where its node cannot be reached",
		"namespace", p.Namespace, "pod", p.Name, "node", p.Spec.NodeName)
	return e.delete(ctx, p, deletion{force: true})
}

// discard deletes a ConfigMap, if it is that one.
func (e *Executor) discard(ctx context.Context, k key, uid types.UID) error {
	o := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
	_, err := persist(ctx, e, "delete config map", func(ctx context.Context) (struct{}, error) {
		return struct{}{}, e.client.CoreV1().ConfigMaps(k.Namespace).Delete(ctx, k.Name, o)
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// claim writes the number of an attempt on a pod, and a new spec.activeDeadlineSeconds unless
// deadline is 0. The error is a conflict when the pod is not as it was.
func (e *Executor) claim(ctx context.Context, p *corev1.Pod, attempt int, deadline int64) (*corev1.Pod, error) {
	changes := map[string]any{"metadata": map[string]any{
		"uid": p.UID, "resourceVersion": p.ResourceVersion, "annotations": map[string]string{AttemptAnnotation: strconv.Itoa(attempt)},
	}}
	if deadline > 0 {
		changes["spec"] = map[string]any{"activeDeadlineSeconds": deadline}
	}
	patch, err := json.Marshal(changes)
	if err != nil {
		return nil, err
	}
	return persist(ctx, e, "patch pod", func(ctx context.Context) (*corev1.Pod, error) {
		return e.client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	})
}
