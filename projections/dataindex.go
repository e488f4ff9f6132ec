package projections

import (
	"github.com/millrace/millrace/internal/lifecycle"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/topics"
)

// DataIndexName is the name of the consumer that builds the data index, and so of its
// consumer group. Changing it reads the topic again from the start.
const DataIndexName = "data-index"

// DataIndex returns the projection that builds workflow_instances and task_instances
// from the lifecycle events of Millrace's engine and of others (package
// internal/lifecycle). The metrics may be nil.
//
// What cannot be read goes to topics.DataIndexDeadLetters, and the consumer goes on,
// however much of it there is: one engine that sends nonsense must not keep the others'
// instances from being seen. Faults of the database stall it, as they stall every
// consumer.
func DataIndex(m *DataIndexMetrics) Projection {
	d := &dataIndex{workflows: newWorkflowInstances(), tasks: newTaskInstances(), metrics: m}
	return Projection{
		Name:            DataIndexName,
		Topic:           topics.FlowLifecycle,
		Tables:          []*Table{d.workflows.table, d.tasks.table},
		Apply:           d.apply,
		DeadLetterTopic: topics.DataIndexDeadLetters,
		Breaker:         pipeline.Breaker{Faults: -1},
	}
}

type dataIndex struct {
	workflows *workflowInstances
	tasks     *taskInstances
	metrics   *DataIndexMetrics
}

// apply takes over what one event says. Types that tell of no change of a workflow or
// a task are counted and passed over.
func (d *dataIndex) apply(b *Batch, e Event) error {
	event, skip, err := lifecycle.Read(e.Envelope)
	if err != nil {
		return err
	}
	if d.metrics != nil {
		b.WhenApplied(func() { d.metrics.read(event, skip, e.Future) })
	}
	if skip != "" {
		return nil
	}
	// The workflow of a task has a row from the task's first event on: a placeholder as
	// long as nothing else is known of it. What a task says is not said of its workflow.
	row := b.Row(d.workflows.table, event.InstanceID)
	if event.Kind == lifecycle.Workflow {
		row.Set(d.workflows.namespace, event.Namespace)
		row.Set(d.workflows.name, event.Name)
		row.Set(d.workflows.version, event.Version)
		d.workflows.apply(row, e, event)
		return nil
	}
	row = b.Row(d.tasks.table, event.InstanceID, event.TaskPosition, event.Iteration, event.Attempt)
	row.Set(d.tasks.executionID, event.TaskExecutionID)
	row.Set(d.tasks.name, event.TaskName)
	d.tasks.apply(row, e, event)
	return nil
}

// apply takes over what workflows and tasks have in common.
func (f *flowRow) apply(row *Row, e Event, event lifecycle.Event) {
	if event.Reopens() {
		row.Note(f.reopened)
		row.Clear(f.end, f.output, f.errorType, f.errorTitle, f.errorDetail, f.errorStatus, f.errorInstanceRef)
	}
	switch {
	case lifecycle.Final(event.Status):
		row.Set(f.terminal, event.Status)
	case event.Status == topics.LifecycleCreated:
		row.SetRanked(f.active, event.Status, rankCreated)
	default:
		row.SetRanked(f.active, event.Status, rankUnderWay)
	}
	row.Set(f.start, event.Start)
	row.Set(f.end, event.End)
	row.Set(f.lastUpdate, event.LastUpdate)
	row.Set(f.input, event.Input)
	row.Set(f.output, event.Output)
	if fault := event.Error; fault != nil {
		row.Set(f.errorType, fault.Type)
		row.Set(f.errorTitle, fault.Title)
		row.Set(f.errorDetail, fault.Detail)
		row.Set(f.errorInstanceRef, fault.Instance)
		if fault.Status != 0 {
			row.Set(f.errorStatus, fault.Status)
		}
	}
	row.Set(f.lastEventTime, lifecycle.Round(e.At))
}
