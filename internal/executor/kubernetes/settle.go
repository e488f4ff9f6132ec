package kubernetes

import (
	"context"

	"github.com/millrace/millrace/internal/crash"
	"github.com/millrace/millrace/internal/executor"
)

// Settle deletes what a run has left, once everything about its pod was told. What it does
// not get done is found by the keeper.
func (e *Executor) Settle(ctx context.Context, task executor.Task) {
	k := key{Namespace: e.builder.Namespace(task.Tenant), Name: Name(task.ExecutionID, task.Origin())}
	_, leave := e.board.watch(k)
	defer leave()
	v := e.board.look(k)
	if v.pod == nil {
		// This worker has not seen it: the attempt ended before there was one, as a rule.
		if task.Origin() == task.Attempt {
			return
		}
		p, err := e.get(ctx, k)
		if p == nil || err != nil {
			return
		}
		v = e.board.look(k)
	}
	run, ours := RunOf(v.pod)
	if !ours || run.ExecutionID != task.ExecutionID || run.First != task.Origin() || attemptOf(v.pod) > task.Attempt {
		return
	}
	e.recorder.flush(ctx)
	crash.At("pods.settling")
	if !v.gone {
		if err := e.delete(ctx, v.pod, deletion{}); err != nil {
			e.log.WarnContext(ctx, "pod of an attempt that has ended could not be deleted, the keeper will do it",
				"namespace", k.Namespace, "pod", k.Name, "error", err)
			return
		}
	}
	crash.At("pods.settled")
	if v.config != "" {
		if err := e.discard(ctx, k, v.config); err == nil {
			e.board.configured(k, "")
		}
	}
}
