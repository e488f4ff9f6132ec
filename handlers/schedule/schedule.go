// Package schedule hands firings on schedule_tasks to those who make their targets.
//
// A task is a push: who reads it takes the firing, whose row says what has become of it, and
// acks when that is written or left to whoever looks into the table. What waits (for a limit,
// for another target to end) does so as a row, so that a partition never stands still for one
// schedule. A task that comes again finds its firing taken. After a crash the firing is taken
// from the table. Replayed history is dropped.
package schedule

import (
	"context"
	"time"

	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/topics"
)

// Name of the consumer. Renaming it reads the topic again from the start.
const Name = "schedules"

// batchSize keeps a batch well below the time for which firings are taken.
const batchSize = 100

// Runner makes the targets of tasks; *schedule.Runner of internal/schedule is one.
type Runner interface {
	Push(ctx context.Context, tasks []topics.ScheduleTask) error
}

// NewConsumer returns the consumer schedules.
func NewConsumer(r Runner) pipeline.Consumer {
	return pipeline.Consumer{
		Name:      Name,
		Topic:     topics.ScheduleTasks,
		Handle:    pipeline.OnBatch(r.Push),
		BatchSize: batchSize,
		// A fault is one of the database: it is waited for.
		Delivery: pipeline.Delivery{Backoff: pipeline.Backoff{Initial: 100 * time.Millisecond}, OnExhausted: pipeline.Block},
	}
}
