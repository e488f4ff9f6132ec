// Package recorder is the consumer that copies the event topics into the event
// log, record by record and byte for byte.
//
// It reads bare records, so a record that no consumer can decode is logged too:
// the log must be able to show what lay in the topic. Records of one partition
// are appended in order, in the transaction that moves the consumer's position;
// after a crash the same batch comes again and adds nothing.
package recorder

import (
	"context"
	"time"

	"github.com/millrace/millrace/internal/eventlog"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/topics"
)

// Name is the name of the consumer, and so of its consumer group. Changing it
// makes the recorder read the topic again from the start.
const Name = "recorder"

// gather: whoever watches live reads the topic, not the log, so the log may be
// this much behind while there is much to do.
const gather = 100 * time.Millisecond

// New returns the consumer that records execution_events.
func New() pipeline.Consumer {
	return pipeline.Consumer{
		Name:  Name,
		Topic: topics.ExecutionEvents,
		Handle: pipeline.OnBatchTx(func(ctx context.Context, tx pipeline.Tx, batch []topics.Record) error {
			return eventlog.Append(ctx, tx, batch)
		}),
		GuardedByState: true,
		Replay:         false,
		BatchSize:      500,
		Gather:         gather,
	}
}
