package topics

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Topic is the logical name of a topic: what code and configuration speak of,
// whatever the topic is called at the broker.
type Topic string

// The logical topics.
const (
	// ExecutionEvents is the log of everything that happens to executions.
	ExecutionEvents Topic = "execution_events"
	// ExecutionTasks holds scheduled work for workers, and nothing else.
	ExecutionTasks Topic = "execution_tasks"
	// SagaCommands holds the commands and compensations of sagas' steps.
	SagaCommands Topic = "saga_commands"
	// SagaEvents holds the replies of participants and what happens to sagas.
	SagaEvents Topic = "saga_events"
	// ScheduleEvents is the log of everything that happens to schedules.
	ScheduleEvents Topic = "schedule_events"
	// ScheduleTasks holds the firings of schedules whose targets are to be made.
	ScheduleTasks Topic = "schedule_tasks"
	// FlowLifecycle holds the lifecycle of workflows and their tasks: Millrace's own
	// and those of other engines, which write to it under its usual name.
	FlowLifecycle Topic = "flow-lifecycle-out"
	// DeadLetters holds records that a consumer gave up on, with their own type,
	// key and headers.
	DeadLetters Topic = "dead_letters"
	// DataIndexDeadLetters holds the records of FlowLifecycle that the data index could
	// not process.
	DataIndexDeadLetters Topic = "data-index-events-dlq"
)

// Day is the unit of retention.
const Day = 24 * time.Hour

// Spec says how a topic is made.
type Spec struct {
	Topic Topic
	// Partitions is the number of partitions with which the topic is created. It
	// bounds how many consumers of one group work at once.
	Partitions int32
	// Retention is how long the broker keeps a record at least.
	Retention time.Duration
	// Key says in words what the key of a record is.
	Key string
	// Purpose says in a phrase what the topic is for.
	Purpose string
	// AppendTime has the broker stamp records with its own time (LogAppendTime) where
	// writers are not ours and may be wrong about the time. What is read from the topic
	// judges by that stamp which events claim to come from the future.
	AppendTime bool
}

// Table returns the built-in topics in the order in which they are created. The caller
// may change the slice.
func Table() []Spec {
	return []Spec{
		{Topic: ExecutionEvents, Partitions: 12, Retention: 90 * Day, Key: "execution id", Purpose: "the log of everything that happens to executions"},
		{Topic: ExecutionTasks, Partitions: 6, Retention: 3 * Day, Key: "execution id", Purpose: "scheduled work for workers"},
		{Topic: SagaCommands, Partitions: 6, Retention: 7 * Day, Key: "saga id", Purpose: "commands and compensations of sagas' steps"},
		{Topic: SagaEvents, Partitions: 6, Retention: 90 * Day, Key: "saga id", Purpose: "replies and what happens to sagas"},
		{Topic: ScheduleEvents, Partitions: 3, Retention: 90 * Day, Key: "uid of the trigger", Purpose: "the log of everything that happens to schedules"},
		{Topic: ScheduleTasks, Partitions: 3, Retention: 3 * Day, Key: "uid of the trigger", Purpose: "firings of schedules whose targets are to be made"},
		{Topic: FlowLifecycle, Partitions: 6, Retention: 90 * Day, Key: "instance id", Purpose: "lifecycle of workflows, ours and other engines'", AppendTime: true},
		{Topic: DeadLetters, Partitions: 3, Retention: 90 * Day, Key: "key of the original record", Purpose: "records that a consumer gave up on"},
		{Topic: DataIndexDeadLetters, Partitions: 3, Retention: 90 * Day, Key: "key of the original record", Purpose: "lifecycle events that the data index gave up on"},
	}
}

// taskTopicPrefix begins the names of further task topics.
const taskTopicPrefix = string(ExecutionTasks) + "_"

// IsTaskTopic says whether t is ExecutionTasks or has the name of a further task
// topic: execution_tasks_ and lower-case letters, digits and '_', at most 64 of
// them. Task topics carry ExecutionTask and nothing else.
func IsTaskTopic(t Topic) bool {
	if t == ExecutionTasks {
		return true
	}
	name, ok := strings.CutPrefix(string(t), taskTopicPrefix)
	if !ok || name == "" || len(name) > 64 {
		return false
	}
	return strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

// TaskTopic returns how a further task topic is made when nothing else is said: as
// ExecutionTasks is.
func TaskTopic(t Topic) Spec {
	spec, _ := SpecOf(ExecutionTasks)
	spec.Topic, spec.Purpose = t, "scheduled work of the resource classes that are routed here"
	return spec
}

// SpecOf returns the row of Table for t and whether there is one.
func SpecOf(t Topic) (Spec, bool) {
	for _, s := range Table() {
		if s.Topic == t {
			return s, true
		}
	}
	return Spec{}, false
}

// Naming maps logical names to the names of topics at the broker. A topic that
// is not in it is called by its logical name; the nil Naming maps nothing.
type Naming map[Topic]string

// Physical returns the name of t at the broker.
func (n Naming) Physical(t Topic) string {
	if name, ok := n[t]; ok && name != "" {
		return name
	}
	return string(t)
}

// Logical returns the topic whose name at the broker is physical. A name that is
// not mapped is its own logical name, which makes topics of users work like ours.
func (n Naming) Logical(physical string) Topic {
	for t, name := range n {
		if name == physical {
			return t
		}
	}
	return Topic(physical)
}

// Validate reports every name that a broker would refuse and every two topics
// that would share one name, joined into one error.
func (n Naming) Validate() error {
	topics := make([]Topic, 0, len(n)+3)
	for t := range n {
		topics = append(topics, t)
	}
	for _, s := range Table() {
		if _, mapped := n[s.Topic]; !mapped {
			topics = append(topics, s.Topic)
		}
	}
	slices.Sort(topics)

	var errs []error
	owner := make(map[string]Topic, len(topics))
	for _, t := range topics {
		name := n.Physical(t)
		if !validTopicName(name) {
			errs = append(errs, fmt.Errorf("topic %s: the name %q is not 1 to 249 letters, digits, '.', '_' or '-'", t, name))
		}
		if other, taken := owner[name]; taken {
			errs = append(errs, fmt.Errorf("topics %s and %s: both are named %q", other, t, name))
			continue
		}
		owner[name] = t
	}
	return errors.Join(errs...)
}

// validTopicName holds the rules of Kafka's own Topic.validate.
func validTopicName(name string) bool {
	if name == "" || len(name) > 249 || name == "." || name == ".." {
		return false
	}
	for _, c := range []byte(name) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}
