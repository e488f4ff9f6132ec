package projections

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/topics"
)

// ExecutionsName is the name of the consumer that builds execution_views, and so
// of its consumer group. Changing it builds the table again from the start.
const ExecutionsName = "executions-view"

// executionTypes begins the types of events that tell of an execution itself.
const executionTypes = "millrace.execution."

// executionsGather: lists may be this much behind while there is much to do. Get by
// id reads the write model, which never is.
const executionsGather = 50 * time.Millisecond

// Executions returns the projection that builds execution_views and pod_views from
// execution_events. One consumer builds both, since both read every event.
func Executions() Projection {
	executions, pods := newExecutionViews(), newPodViews()
	return Projection{
		Name:   ExecutionsName,
		Topic:  topics.ExecutionEvents,
		Tables: []*Table{executions.table, pods.table},
		Apply: func(b *Batch, e Event) error {
			if _, known := topics.Lookup(e.Type); !known {
				return nil
			}
			switch {
			case strings.HasPrefix(e.Type, executionTypes):
				return executions.apply(b, e)
			case strings.HasPrefix(e.Type, podTypes):
				if err := pods.apply(b, e); err != nil {
					return err
				}
				// It counts among the versions of its execution, and says no more of it.
				executions.row(b, e)
			}
			return nil
		},
		Gather: executionsGather,
	}
}

// apply takes over what one event says of an execution.
func (v *executionViews) apply(b *Batch, e Event) error {
	if e.Type == (topics.ExecutionOutput{}).EventType() {
		// There is nothing in it for a list, and the data may be large.
		v.row(b, e)
		return nil
	}
	event, err := topics.DecodeEvent(e.Envelope)
	if err != nil {
		return fmt.Errorf("decode %s of %s: %w", e.Type, e.Subject, err)
	}
	row := v.row(b, e)
	if state, changes := execution.StateAfter(e.Type); changes {
		row.Set(v.state, state)
	}
	v.applyWay(row, e, event)
	v.applyEnd(row, e, event)
	return nil
}

// row returns the row of the event's execution with what every event tells.
func (v *executionViews) row(b *Batch, e Event) *Row {
	row := b.Row(v.table, e.Subject)
	row.Set(v.version, e.Sequence)
	row.Set(v.attempt, 0)
	return row
}

// applyWay takes over what an event says of the way to the end.
func (v *executionViews) applyWay(row *Row, e Event, event topics.Event) {
	switch event := event.(type) {
	case topics.ExecutionRequested:
		v.applyRequest(row, event)
	case topics.ExecutionReprioritized:
		row.Set(v.priority, event.Priority)
	case topics.ExecutionQueued:
		row.Set(v.attempt, event.Attempt)
		row.Set(v.queuedAt, e.Time)
		row.Set(v.readyAt, event.ReadyAt)
	case topics.ExecutionScheduled:
		row.Set(v.attempt, event.Attempt)
		row.Set(v.scheduledAt, e.Time)
		row.Set(v.waitedMillis, event.WaitedMillis)
	case topics.ExecutionStarted:
		row.Set(v.attempt, event.Attempt)
		row.Set(v.startedAt, e.Time)
		row.Set(v.worker, event.Worker)
	case topics.ExecutionRequeued:
		// The next attempt begins anew: what belonged to the last one is cleared, and
		// only why it came to nothing stays.
		row.Set(v.attempt, event.Attempt)
		row.Set(v.queuedAt, e.Time)
		row.Set(v.readyAt, event.ReadyAt)
		row.Note(v.scheduled)
		row.Note(v.started)
		failure := topics.Failure{Reason: event.Cause}
		if event.Failure != nil {
			failure = *event.Failure
		}
		v.applyFailure(row, failure)
	case topics.ExecutionCancelRequested:
		row.Set(v.cancelRequestedAt, e.Time)
	}
}

func (v *executionViews) applyRequest(row *Row, event topics.ExecutionRequested) {
	q := event.Request
	row.Set(v.tenant, q.Tenant)
	row.Set(v.user, q.User)
	row.Set(v.name, nameOf(q))
	row.Set(v.executor, q.Executor)
	row.Set(v.resourceClass, q.ResourceClass)
	row.Set(v.concurrencyKey, q.ConcurrencyKey)
	row.Set(v.labels, labels(q.Labels))
	row.Set(v.originKind, q.Origin.Kind)
	row.Set(v.rerunOf, q.Origin.RerunOf)
	row.Set(v.notBefore, q.NotBefore)
	row.Set(v.requestedAt, event.RequestedAt)
	row.Set(v.priority, q.Priority)
}

// applyEnd takes over what an event says that ends the execution.
func (v *executionViews) applyEnd(row *Row, e Event, event topics.Event) {
	switch event := event.(type) {
	case topics.ExecutionCompleted:
		v.applyRun(row, event.Attempt, event.FinishedAt, &event.DurationMillis)
		row.Set(v.exitCode, event.ExitCode)
		v.applyOutput(row, event.Stdout, event.Stderr)
	case topics.ExecutionFailed:
		v.applyRun(row, event.Attempt, event.FinishedAt, &event.DurationMillis)
		v.applyFailure(row, event.Failure)
		v.applyOutput(row, event.Stdout, event.Stderr)
	case topics.ExecutionTimedOut:
		v.applyRun(row, event.Attempt, event.FinishedAt, &event.DurationMillis)
		v.applyFailure(row, event.Failure)
		v.applyOutput(row, event.Stdout, event.Stderr)
	case topics.ExecutionCancelled:
		v.applyRun(row, event.Attempt, event.FinishedAt, nil)
		v.applyFailure(row, topics.Failure{Reason: "cancelled", Message: event.Reason})
		v.applyOutput(row, event.Stdout, event.Stderr)
	case topics.ExecutionRejected:
		row.Set(v.finishedAt, e.Time)
		v.applyFailure(row, topics.Failure{Reason: event.Reason, Message: event.Message})
	case topics.ExecutionQuarantined:
		v.applyRun(row, event.Attempt, e.Time, nil)
		v.applyFailure(row, topics.Failure{Reason: "quarantined", Message: event.Message})
	}
}

func (v *executionViews) applyRun(row *Row, attempt int, finished time.Time, millis *int64) {
	row.Set(v.attempt, attempt)
	row.Set(v.finishedAt, finished)
	row.Set(v.durationMillis, millis)
}

func (v *executionViews) applyFailure(row *Row, f topics.Failure) {
	row.Set(v.exitCode, f.ExitCode)
	row.Set(v.signal, f.Signal)
	row.Set(v.reason, f.Reason)
	row.Set(v.message, f.Message)
}

func (v *executionViews) applyOutput(row *Row, stdout, stderr topics.StreamSummary) {
	row.Set(v.stdoutBytes, stdout.Bytes)
	row.Set(v.stderrBytes, stderr.Bytes)
}

// nameLabel is the label that names an execution for people.
const nameLabel = "name"

// nameOf returns what an execution is called in lists: its label "name", else
// the program, the function or the image that its spec names, "script" for one that
// brings its program along, else "".
func nameOf(req topics.Request) string {
	if name := req.Labels[nameLabel]; name != "" {
		return name
	}
	var spec struct {
		Command []string `json:"command"`
		Script  string   `json:"script"`
		Image   string   `json:"image"`
		Name    string   `json:"name"`
	}
	// The spec belongs to the executor: one of another shape has no name here.
	if err := json.Unmarshal(req.Spec, &spec); err != nil {
		return ""
	}
	if len(spec.Command) > 0 && spec.Command[0] != "" {
		return path.Base(spec.Command[0])
	}
	if spec.Script != "" {
		return "script"
	}
	return cmp.Or(spec.Name, spec.Image)
}

// labels returns the labels as a document, nil when there are none.
func labels(m map[string]string) []byte {
	if len(m) == 0 {
		return nil
	}
	clean := make(map[string]string, len(m))
	for name, value := range m {
		clean[strings.ReplaceAll(name, "\x00", "\uFFFD")] = strings.ReplaceAll(value, "\x00", "\uFFFD")
	}
	doc, err := json.Marshal(clean)
	if err != nil { // cannot happen: texts only
		return nil
	}
	return doc
}
