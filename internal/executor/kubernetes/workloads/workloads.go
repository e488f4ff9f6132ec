package workloads

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"

	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/executor/kubernetes"
	"github.com/millrace/millrace/sagas"
	"github.com/millrace/millrace/sagas/execution"
)

const (
	// ManagedBy is the value of kubernetes.ManagedByLabel of what belongs to workloads. It is
	// another one than that of executions, whose keeper leaves them alone.
	ManagedBy = "millrace-workloads"
	// DeletedLabel marks tombstones.
	DeletedLabel = "millrace.io/deleted"
	// permit is the key without which a pod does not start.
	permit = "permit"
	// permitVar is the variable that asks for it.
	permitVar = "MILLRACE_WORKLOAD"
	// lookEvery is how often it is looked whether a pod is gone.
	lookEvery = 100 * time.Millisecond
	// TombstonesFor is how long a tombstone is kept: longer than a call can be on its way.
	TombstonesFor = 24 * time.Hour
)

// Config is how workloads run.
type Config struct {
	// Patience is for pods that make no progress.
	Patience kubernetes.Patience
	// Force is how long a pod may take to go before it is removed by force. Default 30 s.
	Force time.Duration
}

// Workloads runs workloads as pods. It is safe for concurrent use.
type Workloads struct {
	client   clientset.Interface
	builder  *kubernetes.Builder
	settings kubernetes.Settings
	cfg      Config
}

var _ execution.Workloads = (*Workloads)(nil)

// New returns workloads whose pods are like those of executions with these settings. They
// are made in Settings.Namespace.
func New(client clientset.Interface, s kubernetes.Settings, c Config) (*Workloads, error) {
	b, err := kubernetes.NewBuilder(s)
	if err != nil {
		return nil, err
	}
	if c.Force <= 0 {
		c.Force = 30 * time.Second
	}
	return &Workloads{client: client, builder: b, settings: s, cfg: c}, nil
}

// handle is what is kept of a workload.
type handle struct {
	Namespace string    `json:"namespace"`
	UID       types.UID `json:"uid"`
}

// Create implements execution.Workloads. The spec is that of the executor "kubernetes". What
// cannot run at all is a *sagas.Failure with the reason of the executor as its code; what has
// no room just now is an error, and worth another try.
func (w *Workloads) Create(ctx context.Context, x execution.Workload) (json.RawMessage, error) {
	config, pod, err := w.objects(x)
	if err != nil {
		return nil, err
	}
	if err := w.allow(ctx, config); err != nil {
		return nil, err
	}
	made, err := w.client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		made, err = w.client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	}
	if err != nil {
		return nil, refusal("create pod", err)
	}
	if !w.ours(made) {
		return nil, clash("pod", made)
	}
	return json.Marshal(handle{Namespace: made.Namespace, UID: made.UID})
}

// allow makes the ConfigMap without which the pod does not start.
func (w *Workloads) allow(ctx context.Context, config *corev1.ConfigMap) error {
	_, err := w.client.CoreV1().ConfigMaps(config.Namespace).Create(ctx, config, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return refusal("create config map", err)
	}
	there, err := w.client.CoreV1().ConfigMaps(config.Namespace).Get(ctx, config.Name, metav1.GetOptions{})
	switch {
	case err != nil:
		return refusal("get config map", err)
	case !w.ours(there):
		return clash("config map", there)
	case there.Labels[DeletedLabel] != "":
		return execution.ErrDeleted
	}
	return nil
}

// refusal makes a failure of what cannot succeed.
func refusal(what string, err error) error {
	if err == nil {
		return nil
	}
	if result, refused := kubernetes.Refused(err); refused && !result.Retryable && result.Outcome == executor.Failed {
		return sagas.Fail(result.Reason, "%s", result.Message)
	}
	return fmt.Errorf("%s: %w", what, err)
}

func clash(kind string, there metav1.Object) error {
	return sagas.Fail(kubernetes.ReasonNameClash, "there is a %s %s in the namespace %s that is none of Millrace's workloads",
		kind, there.GetName(), there.GetNamespace())
}

func (w *Workloads) ours(o metav1.Object) bool {
	return o.GetLabels()[kubernetes.ManagedByLabel] == ManagedBy
}

// objects are those of a workload.
func (w *Workloads) objects(x execution.Workload) (*corev1.ConfigMap, *corev1.Pod, error) {
	task := executor.Task{ExecutionID: x.Name, Attempt: 1, Spec: x.Spec}
	if !x.Deadline.IsZero() {
		task.RunLimit = max(time.Until(x.Deadline).Round(time.Second), time.Second)
	}
	made, err := w.builder.Build(task)
	if refused, ok := errors.AsType[*kubernetes.Refusal](err); ok {
		return nil, nil, sagas.Fail(refused.Result.Reason, "%s", refused.Result.Message)
	}
	if err != nil {
		return nil, nil, err
	}
	config, pod := made.ConfigMap, made.Pod
	if config == nil {
		config = &corev1.ConfigMap{ObjectMeta: *pod.ObjectMeta.DeepCopy(), Immutable: new(true)}
	}
	if config.Data == nil {
		config.Data = map[string]string{}
	}
	config.Data[permit] = x.Name
	for i := range pod.Spec.Volumes {
		if from := pod.Spec.Volumes[i].ConfigMap; from != nil && from.Name == config.Name {
			from.Name = x.Name
		}
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		c.Env = append(c.Env, corev1.EnvVar{Name: permitVar, ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: x.Name}, Key: permit,
		}}})
	}
	w.mark(&config.ObjectMeta, x)
	w.mark(&pod.ObjectMeta, x)
	return config, pod, nil
}

// mark names what belongs to a workload, and says so.
func (w *Workloads) mark(m *metav1.ObjectMeta, x execution.Workload) {
	m.Name = x.Name
	m.Labels[kubernetes.ManagedByLabel] = ManagedBy
	delete(m.Labels, kubernetes.ExecutionLabel)
	delete(m.Labels, kubernetes.FirstLabel)
	delete(m.Annotations, kubernetes.AttemptAnnotation)
	delete(m.Annotations, kubernetes.ExecutionAnnotation)
	if x.Execution != "" {
		m.Annotations[kubernetes.ExecutionAnnotation] = x.Execution
	}
}

// Observe implements execution.Workloads.
func (w *Workloads) Observe(ctx context.Context, name string, raw json.RawMessage) (execution.Observation, error) {
	var h handle
	if err := json.Unmarshal(raw, &h); err != nil {
		return execution.Observation{}, fmt.Errorf("the handle of the workload %s: %w", name, err)
	}
	p, err := w.client.CoreV1().Pods(h.Namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return execution.Observation{Phase: execution.Gone}, nil
	case err != nil:
		return execution.Observation{}, fmt.Errorf("get pod: %w", err)
	case p.UID != h.UID || !w.ours(p):
		return execution.Observation{Phase: execution.Gone}, nil
	}
	result, ended := kubernetes.Ended(p)
	if !ended {
		result, _, ended = kubernetes.Stuck(p, time.Now(), w.cfg.Patience)
		if !ended || result.Outcome == executor.Abandoned {
			return execution.Observation{Phase: execution.Active}, nil // it waits for room as long as the saga lets it
		}
	}
	return execution.Observation{Phase: execution.Ended, Result: execution.Result{
		Succeeded: result.Outcome == executor.Completed, ExitCode: result.ExitCode, Reason: result.Reason, Message: result.Message,
	}}, nil
}

// Delete implements execution.Workloads.
func (w *Workloads) Delete(ctx context.Context, name string) error {
	namespace := w.settings.Namespace
	if err := w.bury(ctx, namespace, name); err != nil {
		return err
	}
	p, err := w.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("get pod: %w", err)
	case !w.ours(p):
		return nil
	}
	return w.erase(ctx, p)
}

// bury puts a tombstone in the place of the ConfigMap of a workload.
func (w *Workloads) bury(ctx context.Context, namespace, name string) error {
	configs := w.client.CoreV1().ConfigMaps(namespace)
	tombstone := &corev1.ConfigMap{Immutable: new(true), ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		kubernetes.ManagedByLabel: ManagedBy, kubernetes.InstallationLabel: w.installation(), DeletedLabel: "true",
	}}}
	for ctx.Err() == nil {
		_, err := configs.Create(ctx, tombstone, metav1.CreateOptions{})
		if err == nil {
			return nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create tombstone: %w", err)
		}
		there, err := configs.Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return fmt.Errorf("get config map: %w", err)
		case !w.ours(there) || there.Labels[DeletedLabel] != "":
			return nil // without a ConfigMap of its own the workload cannot have started, nor can it
		}
		err = configs.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &there.UID}})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("delete config map: %w", err)
		}
	}
	return context.Cause(ctx)
}

// installation is the label of this installation.
func (w *Workloads) installation() string {
	value, _ := kubernetes.Selector(w.settings.Installation).RequiresExactMatch(kubernetes.InstallationLabel)
	return value
}

// erase deletes a pod and waits until it is gone.
func (w *Workloads) erase(ctx context.Context, p *corev1.Pod) error {
	pods := w.client.CoreV1().Pods(p.Namespace)
	o := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.UID}}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for began := time.Now(); ; {
		if time.Since(began) > w.cfg.Force {
			o.GracePeriodSeconds = new(int64)
		}
		if p.DeletionTimestamp == nil || o.GracePeriodSeconds != nil {
			err := pods.Delete(ctx, p.Name, o)
			if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("delete pod: %w", err)
			}
		}
		now, err := pods.Get(ctx, p.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && now.UID != p.UID {
			return nil
		}
		if err != nil {
			return fmt.Errorf("get pod: %w", err)
		}
		p = now
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Sweep removes the pods of workloads that were deleted before they arrived, and old
// tombstones. One worker of an installation does it now and then.
func (w *Workloads) Sweep(ctx context.Context) error {
	o := metav1.ListOptions{Limit: 500, LabelSelector: fmt.Sprintf("%s=%s,%s=%s,%s",
		kubernetes.ManagedByLabel, ManagedBy, kubernetes.InstallationLabel, w.installation(), DeletedLabel)}
	for {
		page, err := w.client.CoreV1().ConfigMaps(w.settings.Namespace).List(ctx, o)
		if err != nil {
			return fmt.Errorf("list tombstones: %w", err)
		}
		for i := range page.Items {
			if err := w.sweep(ctx, &page.Items[i]); err != nil {
				return err
			}
		}
		if o.Continue = page.Continue; o.Continue == "" {
			return nil
		}
	}
}

func (w *Workloads) sweep(ctx context.Context, tombstone *corev1.ConfigMap) error {
	if err := w.Delete(ctx, tombstone.Name); err != nil {
		return err
	}
	if time.Since(tombstone.CreationTimestamp.Time) < TombstonesFor {
		return nil
	}
	o := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &tombstone.UID}}
	err := w.client.CoreV1().ConfigMaps(tombstone.Namespace).Delete(ctx, tombstone.Name, o)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete tombstone: %w", err)
	}
	return nil
}
