package kubernetes

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/internal/crash"
	"github.com/millrace/millrace/internal/executor/pods"
)

// KeeperLease is the name of the lease under which Keep runs.
func KeeperLease(installation string) string { return "kubernetes/keeper/" + installation }

// keptAtOnce is how many runs or rows the keeper asks the ledger for at once.
const keptAtOnce = 500

// Keep looks for what was left over and removes it, every Config.Keep until ctx ends: pods
// whose run is not wanted any more, ConfigMaps without a pod, and pods that the ledger knows
// and the cluster does not. It also tells what nobody may have told of the pods that there
// are. One worker of an installation does it at a time; a second one does no harm.
func (e *Executor) Keep(ctx context.Context) error {
	k := &keeper{Executor: e, told: map[types.UID]int{}}
	ticker := time.NewTicker(e.cfg.Keep)
	defer ticker.Stop()
	for {
		if err := k.round(ctx); err != nil && ctx.Err() == nil {
			e.log.WarnContext(ctx, "what was left of pods could not be looked for, it will be tried again",
				"error", err, "hint", hint(err), "next_try_in", e.cfg.Keep)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Sweep is one round of Keep.
func (e *Executor) Sweep(ctx context.Context) error {
	return (&keeper{Executor: e, told: map[types.UID]int{}}).round(ctx)
}

type keeper struct {
	*Executor
	// told is how many facts of each pod this keeper has recorded.
	told map[types.UID]int
}

// round looks once. The order matters: what is looked up first was there before what is
// looked up last, so that a row without a pod, and a ConfigMap without one, is one whose pod
// is gone and not one whose pod is not there yet.
func (k *keeper) round(ctx context.Context) error {
	standing, err := k.standing(ctx)
	if err != nil {
		return err
	}
	configs, err := k.configs(ctx)
	if err != nil {
		return err
	}
	all, err := k.pods(ctx)
	if err != nil {
		return err
	}
	if err := k.tell(ctx, all); err != nil {
		return err
	}
	if err := k.missing(ctx, standing, all); err != nil {
		return err
	}
	if err := k.orphans(ctx, all); err != nil {
		return err
	}
	return k.leftovers(ctx, configs, all)
}

// standing returns the pods that the ledger believes to be there.
func (k *keeper) standing(ctx context.Context) ([]pods.Standing, error) {
	if k.ledger == nil {
		return nil, nil
	}
	var all []pods.Standing
	for after := ""; ; {
		page, err := k.ledger.Standing(ctx, after, keptAtOnce)
		if err != nil {
			return nil, fmt.Errorf("list the pods that are known: %w", err)
		}
		all = append(all, page...)
		if len(page) < keptAtOnce {
			return all, nil
		}
		after = page[len(page)-1].UID
	}
}

// pods returns the pods of the installation by their UIDs, as they are, and shows them to
// the board.
func (k *keeper) pods(ctx context.Context) (map[types.UID]*corev1.Pod, error) {
	all := map[types.UID]*corev1.Pod{}
	o := metav1.ListOptions{LabelSelector: Selector(k.cfg.Installation).String(), Limit: pageSize}
	for {
		page, err := call(ctx, k.Executor, "list pods", func(ctx context.Context) (*corev1.PodList, error) {
			return k.client.CoreV1().Pods(k.scope()).List(ctx, o)
		})
		if err != nil {
			return nil, fmt.Errorf("list pods: %w", err)
		}
		for i := range page.Items {
			p := trim(page.Items[i].DeepCopy())
			all[p.UID] = p
			k.board.show(p)
		}
		if o.Continue = page.Continue; o.Continue == "" {
			return all, nil
		}
	}
}

// configs returns where the ConfigMaps of the installation are.
func (k *keeper) configs(ctx context.Context) (map[key]types.UID, error) {
	all := map[key]types.UID{}
	o := metav1.ListOptions{LabelSelector: Selector(k.cfg.Installation).String(), Limit: pageSize}
	for {
		page, err := call(ctx, k.Executor, "list config maps", func(ctx context.Context) (*corev1.ConfigMapList, error) {
			return k.client.CoreV1().ConfigMaps(k.scope()).List(ctx, o)
		})
		if err != nil {
			return nil, fmt.Errorf("list config maps: %w", err)
		}
		for i := range page.Items {
			all[keyOf(&page.Items[i])] = page.Items[i].UID
		}
		if o.Continue = page.Continue; o.Continue == "" {
			return all, nil
		}
	}
}

// tell records what the states of pods tell that this keeper has not recorded yet, whoever
// else may have.
func (k *keeper) tell(ctx context.Context, all map[types.UID]*corev1.Pod) error {
	if k.ledger == nil {
		return nil
	}
	var batch []pods.Fact
	told := map[types.UID]int{}
	flush := func() error {
		if err := k.ledger.Record(ctx, batch); err != nil {
			return fmt.Errorf("record what has become of pods: %w", err)
		}
		batch = batch[:0]
		return nil
	}
	for uid, p := range all {
		facts := Facts(p)
		told[uid] = len(facts)
		batch = append(batch, facts[min(k.told[uid], len(facts)):]...)
		if len(batch) >= factsAtOnce {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if len(batch) > 0 {
		if err := flush(); err != nil {
			return err
		}
	}
	k.told = told
	return nil
}

// missing records of the pods that the ledger knows and that are not there that they are
// gone.
func (k *keeper) missing(ctx context.Context, standing []pods.Standing, all map[types.UID]*corev1.Pod) error {
	var gone []pods.Fact
	for _, s := range standing {
		if all[types.UID(s.UID)] == nil && k.mine(s.Namespace) {
			gone = append(gone, pods.Fact{Pod: s.Pod, Phase: pods.Deleted, At: time.Now().UTC(), Reason: reasonMissing,
				Message: "the cluster does not have it any more"})
		}
	}
	for len(gone) > 0 {
		n := min(len(gone), factsAtOnce)
		if err := k.ledger.Record(ctx, gone[:n]); err != nil {
			return fmt.Errorf("record which pods are gone: %w", err)
		}
		k.metrics.swept.WithLabelValues("row").Add(float64(n))
		gone = gone[n:]
	}
	return nil
}

// reasonMissing is why a pod is taken for deleted whose deletion nobody has seen.
const reasonMissing = "missing"

// mine says whether the pods of a namespace were listed.
func (k *keeper) mine(namespace string) bool {
	scope := k.scope()
	return scope == metav1.NamespaceAll || scope == namespace
}

// orphans deletes the pods that nobody wants any more.
func (k *keeper) orphans(ctx context.Context, all map[types.UID]*corev1.Pod) error {
	if k.ledger == nil {
		return nil
	}
	var (
		asked []*corev1.Pod
		runs  []pods.Run
	)
	flush := func() error {
		wanted, err := k.ledger.Wanted(ctx, runs)
		if err != nil {
			return fmt.Errorf("ask which pods are wanted: %w", err)
		}
		for i, p := range asked {
			if i < len(wanted) && !wanted[i] {
				if err := k.sweep(ctx, p); err != nil {
					return err
				}
			}
		}
		asked, runs = asked[:0], runs[:0]
		return nil
	}
	for _, p := range all {
		run, ok := RunOf(p)
		if !ok || p.DeletionTimestamp != nil {
			continue
		}
		asked, runs = append(asked, p), append(runs, run)
		if len(runs) >= keptAtOnce {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if len(runs) == 0 {
		return nil
	}
	return flush()
}

func (k *keeper) sweep(ctx context.Context, p *corev1.Pod) error {
	if err := k.delete(ctx, p, deletion{}); err != nil {
		return fmt.Errorf("delete pod %s: %w", keyOf(p), err)
	}
	crash.At("pods.swept")
	k.metrics.swept.WithLabelValues("pod").Inc()
	k.log.InfoContext(ctx, "pod that nobody wants any more was deleted", "namespace", p.Namespace, "pod", p.Name)
	return nil
}

// leftovers deletes the ConfigMaps that no pod has.
func (k *keeper) leftovers(ctx context.Context, configs map[key]types.UID, all map[types.UID]*corev1.Pod) error {
	for _, p := range all {
		delete(configs, keyOf(p))
	}
	for where, uid := range configs {
		if err := k.discard(ctx, where, uid); err != nil {
			return fmt.Errorf("delete config map %s: %w", where, err)
		}
		k.metrics.swept.WithLabelValues("config_map").Inc()
	}
	return nil
}
