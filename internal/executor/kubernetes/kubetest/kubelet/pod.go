package kubelet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// verdict ends a pod for another reason than that its containers have ended.
type verdict struct{ reason, message, disruption string }

// pod is a pod on the node, from when it is told of to when nothing is left of it.
type pod struct {
	kubelet            *Kubelet
	uid                types.UID
	namespace, podName string
	dir                string
	number             int
	spec               *corev1.Pod // as it was told first

	mu         sync.Mutex
	latest     *corev1.Pod // as it was told last
	containers map[string]*container
	waiting    map[string]string // why a container is not there yet, by its name
	ending     *verdict
	stopping   chan struct{} // closed when the pod is to end
	removed    chan struct{} // closed when the API has it no more
	killed     bool          // no container may start any more
	began      time.Time     // when the pod came to the node
	deadline   *time.Timer   // ends the pod at its active deadline, if it has one

	status status
}

func newPod(k *Kubelet, spec *corev1.Pod) *pod {
	return &pod{
		kubelet: k, uid: spec.UID, namespace: spec.Namespace, podName: spec.Name, spec: spec, latest: spec,
		dir: filepath.Join(k.config.Dir, string(spec.UID)), number: len(k.pods) + len(k.starts),
		containers: map[string]*container{}, waiting: map[string]string{},
		stopping: make(chan struct{}), removed: make(chan struct{}), status: newStatus(spec),
	}
}

func (p *pod) name() string { return p.namespace + "/" + p.podName }

// update takes over what the API says now.
func (p *pod) update(spec *corev1.Pod) {
	p.mu.Lock()
	p.latest = spec
	p.arm()
	p.mu.Unlock()
	if spec.DeletionTimestamp != nil {
		p.end(nil)
	}
}

// arm has the pod end at its active deadline, which may have been moved forward. The caller
// holds p.mu.
func (p *pod) arm() {
	limit := p.latest.Spec.ActiveDeadlineSeconds
	if limit == nil || p.began.IsZero() {
		return
	}
	left := time.Until(p.began.Add(time.Duration(*limit) * time.Second))
	if p.deadline != nil {
		p.deadline.Reset(left)
		return
	}
	p.deadline = time.AfterFunc(left, func() {
		p.end(&verdict{reason: "DeadlineExceeded", message: "Pod was active on the node longer than the specified deadline"})
	})
}

// disarm forgets the active deadline: the pod has ended.
func (p *pod) disarm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.began = time.Time{}
	if p.deadline != nil {
		p.deadline.Stop()
	}
}

// gone is called when the pod is no more in the API.
func (p *pod) gone() {
	p.mu.Lock()
	select {
	case <-p.removed:
	default:
		close(p.removed)
	}
	p.mu.Unlock()
	p.end(nil)
}

// end asks the pod to end; v says why if it is not because it was deleted.
func (p *pod) end(v *verdict) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.stopping:
	default:
		p.ending = v
		close(p.stopping)
	}
}

// kill sends a signal to all containers.
func (p *pod) kill(s syscall.Signal, reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.killed = p.killed || s == syscall.SIGKILL && reason == ""
	for _, c := range p.containers {
		c.signal(s, reason)
	}
}

// alive says whether a process of the pod runs.
func (p *pod) alive() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.containers {
		c.mu.Lock()
		running := (c.process != nil || c.quit != nil) && !c.dead
		c.mu.Unlock()
		if running {
			return true
		}
	}
	return false
}

// journal returns the log of a container, or why there is none yet.
func (p *pod) journal(name string) (*journal, string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.containers[name]; c != nil {
		return c.log, ""
	}
	if why := p.waiting[name]; why != "" {
		return nil, why
	}
	return nil, "ContainerCreating"
}

// run is the life of the pod.
func (p *pod) run() {
	k := p.kubelet
	defer k.forget(p)
	defer p.clean()
	ctx := k.ctx
	if phase := p.spec.Status.Phase; phase != corev1.PodSucceeded && phase != corev1.PodFailed {
		if err := p.live(ctx); err != nil && ctx.Err() == nil {
			k.config.Logger.Error("A pod broke off", "pod", p.name(), "error", err)
			p.status.fail("KubeletError", err.Error())
		}
		p.status.publish(ctx, k, p)
	}
	// The pod and its logs stay until it is deleted.
	select {
	case <-p.stopping:
	case <-ctx.Done():
		return
	}
	if p.deleted() {
		p.finalize(ctx)
	}
	select {
	case <-p.removed:
	case <-ctx.Done():
	}
}

// deleted waits, if the pod was ended for another reason, until it is deleted as well.
func (p *pod) deleted() bool {
	for {
		p.mu.Lock()
		deleted := p.latest.DeletionTimestamp != nil
		p.mu.Unlock()
		if deleted {
			return true
		}
		select {
		case <-p.removed:
			return false
		case <-p.kubelet.ctx.Done():
			return false
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// live runs the containers until they have ended, and writes how.
func (p *pod) live(ctx context.Context) error {
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		return err
	}
	p.status.begin()
	p.status.publish(ctx, p.kubelet, p)
	p.mu.Lock()
	p.began = time.Now()
	p.arm()
	p.mu.Unlock()
	defer p.disarm()
	over := make(chan struct{})
	var guard sync.WaitGroup
	guard.Go(func() { p.terminate(over) })
	err := p.runAll(ctx)
	close(over)
	guard.Wait()
	p.mu.Lock()
	v := p.ending
	p.mu.Unlock()
	if err != nil && !errors.Is(err, errStopped) {
		return err
	}
	p.status.end(v)
	return nil
}

// errStopped breaks a pod off that is to end before its containers have begun.
var errStopped = errors.New("the pod is to end")

// runAll runs the init containers one after the other, then all the others at once.
func (p *pod) runAll(ctx context.Context) error {
	images := append(append([]corev1.Container{}, p.spec.Spec.InitContainers...), p.spec.Spec.Containers...)
	for i := range images {
		if err := p.pull(ctx, &images[i]); err != nil {
			return err
		}
	}
	if err := p.layOut(ctx); err != nil {
		return err
	}
	for i := range p.spec.Spec.InitContainers {
		ok, err := p.runOne(ctx, &p.spec.Spec.InitContainers[i])
		if err != nil || !ok {
			return err
		}
	}
	p.status.initialized()
	errs := make([]error, len(p.spec.Spec.Containers))
	var all sync.WaitGroup
	for i := range p.spec.Spec.Containers {
		all.Go(func() { _, errs[i] = p.runOne(ctx, &p.spec.Spec.Containers[i]) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// runOne runs a container and says whether it ended well.
func (p *pod) runOne(ctx context.Context, spec *corev1.Container) (bool, error) {
	c, err := p.prepare(ctx, spec)
	if err != nil {
		return false, err
	}
	p.mu.Lock()
	select {
	case <-p.stopping:
		p.mu.Unlock()
		return false, errStopped
	default:
	}
	if p.killed {
		p.mu.Unlock()
		return false, errStopped
	}
	p.containers[spec.Name] = c
	p.mu.Unlock()
	total := p.kubelet.countStart(p)
	begun := func() {
		p.status.running(spec.Name, total)
		p.status.publish(ctx, p.kubelet, p)
		select {
		case <-p.stopping: // it was asked to end while it began
			c.signal(syscall.SIGTERM, "")
		default:
		}
	}
	var end ending
	if hollow := p.kubelet.config.Hollow; hollow != nil {
		end = c.runHollow(hollow(p.spec), begun)
	} else {
		end, err = c.run(p.kubelet, begun)
	}
	var cannot *startError
	if errors.As(err, &cannot) {
		now := time.Now()
		end = ending{
			code: 128, reason: "StartError", began: time.Unix(0, 0), ended: now,
			message: "failed to create containerd task: failed to create shim task: OCI runtime create failed: " +
				"runc create failed: unable to start container process: error during container init: " + cannot.message + ": unknown",
		}
		err = nil
	}
	if err != nil {
		return false, err
	}
	p.status.terminated(spec.Name, end)
	if len(p.spec.Spec.Containers) > 1 {
		p.status.publish(ctx, p.kubelet, p)
	}
	return end.code == 0, nil
}

// terminate ends the containers when the pod is to end: first it asks them to, and when
// the grace period is over it kills them.
func (p *pod) terminate(over <-chan struct{}) {
	select {
	case <-p.stopping:
	case <-over:
		return
	}
	p.kill(syscall.SIGTERM, "")
	for {
		p.mu.Lock()
		left := time.Until(p.graceEnds())
		p.mu.Unlock()
		if left <= 0 {
			break
		}
		// The grace period can be made shorter by another deletion.
		timer := time.NewTimer(min(left, 20*time.Millisecond))
		select {
		case <-timer.C:
		case <-over:
			timer.Stop()
			return
		}
	}
	for {
		p.kill(syscall.SIGKILL, "")
		select {
		case <-over:
			return
		case <-time.After(5 * time.Millisecond): // one may just have been started
		}
	}
}

// graceEnds is when the pod may be killed. The caller holds p.mu.
func (p *pod) graceEnds() time.Time {
	select {
	case <-p.removed:
		return time.Time{} // deleted by force: nobody waits for it
	default:
	}
	if p.status.stopped.IsZero() {
		p.status.stopped = time.Now()
	}
	grace := int64(corev1.DefaultTerminationGracePeriodSeconds)
	if g := p.spec.Spec.TerminationGracePeriodSeconds; g != nil {
		grace = *g
	}
	if p.ending != nil && p.ending.reason == "Evicted" {
		grace = min(grace, 1)
	}
	if g := p.latest.DeletionGracePeriodSeconds; p.latest.DeletionTimestamp != nil && g != nil {
		grace = *g
	}
	return p.status.stopped.Add(time.Duration(grace) * time.Second)
}

// finalize tells the API that nothing of a deleted pod is left.
func (p *pod) finalize(ctx context.Context) {
	options := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(p.uid))}
	p.kubelet.insist(ctx, "delete pod "+p.name(), func() error {
		return p.kubelet.config.Client.CoreV1().Pods(p.namespace).Delete(ctx, p.podName, options)
	})
}

// clean removes the files of the pod.
func (p *pod) clean() {
	p.mu.Lock()
	for _, c := range p.containers {
		c.log.close()
	}
	p.mu.Unlock()
	if err := os.RemoveAll(p.dir); err != nil {
		p.kubelet.config.Logger.Error("The files of a pod are left", "pod", p.name(), "error", err)
	}
}

// wait waits a moment before something is tried again, and says errStopped if the pod is to
// end instead.
func (p *pod) wait(ctx context.Context) error {
	timer := time.NewTimer(p.kubelet.config.Retry)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-p.stopping:
		return errStopped
	case <-ctx.Done():
		return errStopped
	}
}

// holdUp says why a container cannot be made yet.
func (p *pod) holdUp(ctx context.Context, container, reason, format string, args ...any) {
	p.mu.Lock()
	p.waiting[container] = reason
	p.mu.Unlock()
	if p.status.waits(container, reason, fmt.Sprintf(format, args...)) {
		p.status.publish(ctx, p.kubelet, p)
	}
}
