package main

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/millrace/millrace/app"
	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/executor"
)

// cluster asks the Kubernetes cluster whether it would run pods, as a worker does when it
// starts. Nothing is made there.
func (x *examination) cluster(ctx context.Context, config configs.Config) {
	const name = "kubernetes"
	if !app.UsesCluster(config) {
		x.add(checkSkip, name, "worker.executors does not name kubernetes", "")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	report, err := app.ProbeCluster(ctx, config)
	if err != nil {
		x.fail(name, err, "")
		return
	}
	x.ok(name, "%s, pods in the namespace %s", report.Version, config.Kubernetes.Namespace)
	if len(report.Missing) > 0 {
		x.add(checkFail, "kubernetes rights", "the account may not "+strings.Join(report.Missing, ", "), "apply deploy/kubernetes/work, or see docs/kubernetes.md, \"Rights\"")
	} else {
		x.ok("kubernetes rights", "the account may do what the executor does")
	}
	for _, right := range report.Wanting {
		x.add(checkWarn, "kubernetes rights", "the account may not "+right, "grant it, or set kubernetes.capacity to what may be read")
	}
	for _, class := range slices.Sorted(maps.Keys(report.Refused)) {
		refused, status, advice := report.Refused[class], checkWarn, "executions wait for it, and spend no attempt"
		if refused.Outcome == executor.Failed {
			status, advice = checkFail, "executions of the class would fail"
		}
		x.add(status, "kubernetes class "+class, refused.Reason+": "+refused.Message, advice)
	}
}
