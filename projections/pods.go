package projections

import (
	"fmt"

	"github.com/millrace/millrace/topics"
)

// podTypes begins the types of events that tell of pods.
const podTypes = "millrace.pod."

// Phases of pods, as Kubernetes names them.
const (
	podPending   = "PENDING"
	podRunning   = "RUNNING"
	podSucceeded = "SUCCEEDED"
	podFailed    = "FAILED"
)

// podViews is the table pod_views: the pods that executions run in.
type podViews struct {
	table                                                   *Table
	executionID, attempt, namespace, name, node             *Column
	phase, reason, message, exitCode                        *Column
	created, scheduled, started, finished, deleted, version *Column
}

func newPodViews() *podViews {
	t := NewTable("pod_views", ByVersion)
	t.Key("id", Text, "uid of the pod")
	v := &podViews{table: t}
	v.executionID = t.Once("execution_id", Text, "the execution that it runs")
	v.attempt = t.Once("attempt", Int, "the attempt of the execution that it runs")
	v.namespace = t.Once("namespace", Text, "its namespace")
	v.name = t.Once("name", Text, "its name")
	v.node = t.Once("node", Text, "the node that it was given")
	status := t.Register("phase_version")
	v.phase = status.Column("phase", Text, "PENDING, RUNNING, SUCCEEDED or FAILED")
	v.reason = status.Column("reason", Text, "why it failed, as Kubernetes calls it")
	v.message = status.Column("message", LongText, "the same in words")
	v.exitCode = status.Column("exit_code", Int, "exit code of the container of the work")
	v.created = t.Once("created_time", Time, "when it was made, by the clock of the cluster, like the others")
	v.scheduled = t.Once("scheduled_time", Time, "when it was given a node")
	v.started = t.Once("started_time", Time, "when its containers began to run")
	v.finished = t.Once("finished_time", Time, "when they had ended")
	v.deleted = t.Once("deleted_time", Time, "when it was gone")
	v.version = t.Highest("version", Int, "version of the newest event, which the execution counts")
	return v
}

// apply takes over what one event says of a pod.
func (v *podViews) apply(b *Batch, e Event) error {
	event, err := topics.DecodeEvent(e.Envelope)
	if err != nil {
		return fmt.Errorf("decode %s of %s: %w", e.Type, e.Subject, err)
	}
	switch p := event.(type) {
	case topics.PodCreated:
		row := v.row(b, e, p.PodID, p.Attempt, p.Namespace, p.Name)
		row.Set(v.phase, podPending)
		row.Set(v.created, p.CreatedAt)
	case topics.PodScheduled:
		row := v.row(b, e, p.PodID, p.Attempt, p.Namespace, p.Name)
		row.Set(v.phase, podPending)
		row.Set(v.node, p.Node)
		row.Set(v.scheduled, p.ScheduledAt)
	case topics.PodRunning:
		row := v.row(b, e, p.PodID, p.Attempt, p.Namespace, p.Name)
		row.Set(v.phase, podRunning)
		row.Set(v.node, p.Node)
		row.Set(v.started, p.StartedAt)
	case topics.PodSucceeded:
		row := v.row(b, e, p.PodID, p.Attempt, p.Namespace, p.Name)
		row.Set(v.phase, podSucceeded)
		row.Set(v.node, p.Node)
		row.Set(v.finished, p.FinishedAt)
	case topics.PodFailed:
		row := v.row(b, e, p.PodID, p.Attempt, p.Namespace, p.Name)
		row.Set(v.phase, podFailed)
		row.Set(v.reason, p.Reason)
		row.Set(v.message, p.Message)
		row.Set(v.exitCode, p.ExitCode)
		row.Set(v.node, p.Node)
		row.Set(v.finished, p.FinishedAt)
	case topics.PodDeleted:
		// What it came to stays: that it is gone is another matter.
		v.row(b, e, p.PodID, p.Attempt, p.Namespace, p.Name).Set(v.deleted, p.DeletedAt)
	}
	return nil
}

// row returns the row of a pod with what every event tells of it.
func (v *podViews) row(b *Batch, e Event, id string, attempt int, namespace, name string) *Row {
	row := b.Row(v.table, id)
	row.Set(v.version, e.Sequence)
	row.Set(v.executionID, e.Subject)
	row.Set(v.attempt, attempt)
	row.Set(v.namespace, namespace)
	row.Set(v.name, name)
	return row
}
