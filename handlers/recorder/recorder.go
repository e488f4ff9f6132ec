// Package recorder is the consumer that copies the event topics into the event
// log, record by record and byte for byte.
//
// It reads bare records, so a record that no consumer can decode is logged too:
// the log must be able to show what lay in the topic. Records of one partition
// are appended in order, in the transaction that moves the consumer's position;
// after a crash the same batch comes again and adds nothing.
//
// On the way it counts the decisions that lie in the log, by what was decided and
// why, and measures the stages of executions (package stages): wherever they come
// from, here each of them comes by.
package recorder

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/eventlog"
	"github.com/millrace/millrace/internal/stages"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/topics"
)

// Name is the name of the consumer, and so of its consumer group. Changing it
// makes the recorder read the topic again from the start.
const Name = "recorder"

// gather: whoever watches live reads the topic, not the log, so the log may be
// this much behind while there is much to do.
const gather = 100 * time.Millisecond

// New returns the consumer that records execution_events. It registers its metrics.
func New(reg prometheus.Registerer) pipeline.Consumer {
	decisions := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "millrace_decisions_total", Help: "Decisions about executions that were recorded, by what was decided and why.",
	}, []string{"decision", "reason"})
	reg.MustRegister(decisions)
	reached := stages.New(reg)
	return pipeline.Consumer{
		Name:  Name,
		Topic: topics.ExecutionEvents,
		Handle: pipeline.OnBatchTx(func(ctx context.Context, tx pipeline.Tx, batch []topics.Record) error {
			if err := eventlog.Append(ctx, tx, batch); err != nil {
				return err
			}
			pipeline.AfterCommit(tx, func() {
				count(decisions, batch)
				for _, r := range batch {
					reached.Record(r)
				}
			})
			return nil
		}),
		GuardedByState: true,
		Replay:         false,
		BatchSize:      500,
		Gather:         gather,
	}
}

// otherReason stands for reasons that this version does not know: anybody may write
// to a topic, and no label may grow with what they write.
const otherReason = "other"

func count(decisions *prometheus.CounterVec, batch []topics.Record) {
	for _, r := range batch {
		d, decides := topics.DecisionOf(r)
		if !decides {
			continue
		}
		if !d.Known() {
			d.Reason = otherReason
		}
		decisions.WithLabelValues(d.Name, d.Reason).Inc()
	}
}
