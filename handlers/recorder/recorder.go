// Package recorder holds the consumers that copy topics into the event log, record by
// record and byte for byte: one consumer for each topic that is recorded.
//
// They read bare records, so a record that no consumer can decode is logged too:
// the log must be able to show what lay in the topic. Records of one partition
// are appended in order, in the transaction that moves the consumer's position;
// after a crash the same batch comes again and adds nothing.
//
// On the way the recorder of execution_events counts the decisions that lie in the log,
// by what was decided and why, and measures the stages of executions (package stages):
// wherever they come from, here each of them comes by.
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

// Name is the name of the consumer of execution_events, and so of its consumer group.
// Changing it makes the recorder read the topic again from the start.
const Name = "recorder"

// gather: whoever watches live reads the topic, not the log, so the log may be
// this much behind while there is much to do.
const gather = 100 * time.Millisecond

// batchSize: the more records share a statement, the less each of them costs.
const batchSize = 1000

// NameOf returns the name of the consumer that records a topic: recorder for
// execution_events, recorder.<topic> for others. It never changes.
func NameOf(t topics.Topic) string {
	if t == topics.ExecutionEvents {
		return Name
	}
	return pipeline.NameOf(Name, t)
}

// Consumers returns a consumer for each of the topics. That of execution_events
// registers its metrics.
func Consumers(reg prometheus.Registerer, recorded []topics.Topic) []pipeline.Consumer {
	list := make([]pipeline.Consumer, len(recorded))
	for i, t := range recorded {
		after := func([]topics.Record) {}
		if t == topics.ExecutionEvents {
			after = observe(reg)
		}
		list[i] = consumer(t, after)
	}
	return list
}

// New returns the consumer that records execution_events.
func New(reg prometheus.Registerer) pipeline.Consumer {
	return Consumers(reg, []topics.Topic{topics.ExecutionEvents})[0]
}

func consumer(t topics.Topic, after func([]topics.Record)) pipeline.Consumer {
	return pipeline.Consumer{
		Name:  NameOf(t),
		Topic: t,
		Handle: pipeline.OnBatchTx(func(ctx context.Context, tx pipeline.Tx, batch []topics.Record) error {
			if err := eventlog.Append(ctx, tx, batch); err != nil {
				return err
			}
			pipeline.AfterCommit(tx, func() { after(batch) })
			return nil
		}),
		GuardedByState: true,
		Replay:         false,
		BatchSize:      batchSize,
		Gather:         gather,
	}
}

// observe registers the metrics of executions, and returns what shows recorded events
// in them.
func observe(reg prometheus.Registerer) func([]topics.Record) {
	decisions := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "millrace_decisions_total", Help: "Decisions about executions that were recorded, by what was decided and why.",
	}, []string{"decision", "reason"})
	reg.MustRegister(decisions)
	reached := stages.New(reg)
	return func(batch []topics.Record) {
		count(decisions, batch)
		for _, r := range batch {
			reached.Record(r)
		}
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
