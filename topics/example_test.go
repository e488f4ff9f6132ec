package topics_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/topics"
)

// An event becomes a record and an event again.
func Example() {
	env, err := topics.NewEnvelope(topics.ExecutionScheduled{
		ExecutionID:   "exec-1",
		Attempt:       1,
		ResourceClass: topics.DefaultResourceClass,
		WaitedMillis:  12,
	}, topics.WithSequence(3))
	if err != nil {
		fmt.Println(err)
		return
	}
	record := env.Record("execution_events", []byte(env.Subject))

	read, err := topics.DecodeRecord(record)
	if err != nil {
		fmt.Println(err)
		return
	}
	scheduled, err := topics.Decode[topics.ExecutionScheduled](read)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(read.Type, read.Sequence)
	fmt.Println(scheduled.ExecutionID, "waited", scheduled.WaitedMillis, "ms")
	// Output:
	// millrace.execution.scheduled.v1 3
	// exec-1 waited 12 ms
}

// A record that is no event says why, in a stable code.
func ExampleDecodeError() {
	_, err := topics.DecodeRecord(topics.Record{
		Headers: []topics.Header{
			{Key: "ce_id", Value: []byte("1")},
			{Key: "ce_source", Value: []byte("/shop")},
			{Key: "ce_type", Value: []byte("com.example.order.placed")},
			{Key: "ce_specversion", Value: []byte("1.0")},
			{Key: "ce_time", Value: []byte("yesterday")},
		},
	})
	var fault *topics.DecodeError
	if errors.As(err, &fault) {
		fmt.Println(fault.Code, fault.Field)
	}
	fmt.Println(errors.Is(err, topics.ErrMalformed))
	// Output:
	// invalid_time time
	// true
}

// The catalogue tells what lies in a topic.
func ExampleTypes() {
	for _, typ := range topics.Types() {
		if typ.Topic == topics.ExecutionTasks {
			fmt.Println(typ.Name, "by", typ.Example.EventKey())
		}
	}
	// Output:
	// millrace.execution.task.v1 by 01936f2a-7c11-7b3e-9a52-5f0c8d1e2a34
}

// Topics may be called otherwise at the broker.
func ExampleNaming() {
	naming := topics.Naming{topics.ExecutionEvents: "prod.execution-events"}
	fmt.Println(naming.Physical(topics.ExecutionEvents), naming.Physical(topics.ExecutionTasks))
	fmt.Println(naming.Logical("prod.execution-events"))
	// Output:
	// prod.execution-events execution_tasks
	// execution_events
}

func ExampleTable() {
	for _, spec := range topics.Table() {
		fmt.Printf("%s: %d partitions, %d days, by %s\n", spec.Topic, spec.Partitions, spec.Retention/(24*time.Hour), spec.Key)
	}
	// Output:
	// execution_events: 12 partitions, 90 days, by execution id
	// execution_tasks: 6 partitions, 3 days, by execution id
	// saga_commands: 6 partitions, 7 days, by saga id
	// saga_events: 6 partitions, 90 days, by saga id
	// schedule_events: 3 partitions, 90 days, by uid of the trigger
	// schedule_tasks: 3 partitions, 3 days, by uid of the trigger
	// flow-lifecycle-out: 6 partitions, 90 days, by instance id
	// dead_letters: 3 partitions, 90 days, by key of the original record
	// data-index-events-dlq: 3 partitions, 90 days, by key of the original record
}
