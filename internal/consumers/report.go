package consumers

import (
	"context"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/secret"
	"github.com/millrace/millrace/pipeline"
)

// State says what a partition of a consumer is doing.
type State string

// The states, the worst first.
const (
	// OffsetProblem: the next record is not there: the topic was replaced, or the log
	// was cut off above the position. It needs a seek.
	OffsetProblem State = "offset_problem"
	// Stalled: a record cannot be settled, and is tried again.
	Stalled State = "stalled"
	// Unowned: no process has it.
	Unowned State = "unowned"
	// Unreported: a member of the group has it whose process does not report, for
	// example because it cannot reach PostgreSQL.
	Unreported State = "unreported"
	// Paused: somebody asked for it.
	Paused State = "paused"
	// Running: records are handled.
	Running State = "running"
	// Idle: there is nothing to handle.
	Idle State = "idle"
)

// States returns all states, the worst first.
func States() []State {
	return []State{OffsetProblem, Stalled, Unowned, Unreported, Paused, Running, Idle}
}

// worse returns the one of two states that needs attention more. Empty is the best.
func worse(a, b State) State {
	if a == "" || b != "" && slices.Index(States(), b) < slices.Index(States(), a) {
		return b
	}
	return a
}

// The codes of causes that have a way out of their own.
const (
	CodeBreakerOpen      = "breaker_open"
	CodeTopicReplaced    = "topic_replaced"
	CodeOffsetOutOfRange = "offset_out_of_range"
)

// Cause says why a partition does not go on.
type Cause struct {
	// Class is that of the fault; see package middleware.
	Class string `json:"class"`
	// Code is one of the codes above, or empty.
	Code string `json:"code,omitempty"`
	// Error is at most maxErrorBytes, without what looks like a secret.
	Error string `json:"error"`
}

// Blocked is the record that cannot be settled.
type Blocked struct {
	Offset int64  `json:"offset"`
	Key    []byte `json:"key,omitempty"`
}

// Bounds of what is reported.
const (
	maxErrorBytes = 2048
	maxKeyBytes   = 1024
)

// Assignment is one partition that this process owns, as its transport sees it.
type Assignment struct {
	Topic     string
	Partition int32
	Epoch     int64
	// Stalled partitions are tried again by themselves, Stopped ones are not.
	Stalled, Stopped bool
	Paused           bool
	// Since is when it began to stall; the fields up to NextTry are set while it does.
	Since   time.Time
	Cause   error
	Code    string
	Offset  int64
	Key     []byte
	Tries   int
	NextTry time.Time
	// Position is the next offset to be settled, Committed the group's in Kafka, End
	// the end of the log; -1 where unknown.
	Position, Committed, End int64
}

// Transport is the subscription of one consumer in this process.
type Transport interface {
	Assignments() []Assignment
	// Pause and Resume are for all partitions, those to come among them.
	Pause()
	Resume()
	RetryNow(topic string, partition int32) error
	Seek(ctx context.Context, topic string, partition int32, offset int64) error
	// Retake asks again for the position of a partition.
	Retake(ctx context.Context, topic string, partition int32) error
	RefreshEnds(ctx context.Context) error
}

// Runtime are the consumers of this process; *pipeline.Router is one.
type Runtime interface {
	Status() []pipeline.ConsumerStatus
	OrderDeadLetter(consumer string, o pipeline.DeadLetterOrder) error
}

// Report is what the owner of a partition says about it.
type Report struct {
	Consumer  string     `json:"consumer"`
	Group     string     `json:"group"`
	Topic     string     `json:"topic"`
	Partition int32      `json:"partition"`
	State     State      `json:"state"`
	Paused    bool       `json:"paused,omitempty"`
	Epoch     int64      `json:"epoch,omitempty"`
	Cause     *Cause     `json:"cause,omitempty"`
	Blocked   *Blocked   `json:"blocked,omitempty"`
	Since     *time.Time `json:"stalled_since,omitempty"`
	Tries     int        `json:"tries,omitempty"`
	NextTry   *time.Time `json:"next_try_at,omitempty"`
	Notice    string     `json:"notice,omitempty"`
	// Position, Committed and End are not written to the table.
	Position  int64 `json:"position"`
	Committed int64 `json:"committed"`
	End       int64 `json:"end"`
}

// newReport puts together what transport and pipeline know of a partition.
func newReport(c pipeline.ConsumerStatus, a Assignment) Report {
	r := Report{
		Consumer: c.Name, Group: c.Group, Topic: a.Topic, Partition: a.Partition, State: Running, Paused: a.Paused,
		Epoch: a.Epoch, Notice: c.Notices[a.Partition], Position: a.Position, Committed: a.Committed, End: a.End,
	}
	if !a.Stalled && !a.Stopped {
		return r
	}
	r.State, r.Since, r.NextTry, r.Tries = Stalled, moment(a.Since), moment(a.NextTry), a.Tries
	r.Cause = &Cause{Class: pipeline.InfrastructureFault.String(), Code: a.Code}
	if a.Cause != nil {
		r.Cause.Error = a.Cause.Error()
	}
	if a.Offset >= 0 {
		r.Blocked = &Blocked{Offset: a.Offset, Key: a.Key}
	}
	// Of a batch, the pipeline knows the very record, and whose fault it was.
	if s, ok := stallOf(c, a); ok {
		r.Blocked = &Blocked{Offset: s.Offset, Key: s.Key}
		r.Cause.Class = s.Class
		if s.Breaker {
			r.Cause.Code = CodeBreakerOpen
		}
	}
	if a.Code == CodeTopicReplaced || a.Code == CodeOffsetOutOfRange {
		r.State = OffsetProblem
	}
	r.Cause.Error = truncate(secret.Redact(storable(r.Cause.Error)))
	if r.Blocked != nil && len(r.Blocked.Key) > maxKeyBytes {
		r.Blocked.Key = r.Blocked.Key[:maxKeyBytes]
	}
	return r
}

// stallOf returns the pipeline's view of a stall, where the stall is its own and
// not the transport's.
func stallOf(c pipeline.ConsumerStatus, a Assignment) (pipeline.Stall, bool) {
	for _, s := range c.Stalls {
		if s.Partition == a.Partition && s.Topic == a.Topic && s.Offset >= a.Offset && a.Offset >= 0 && !a.Stopped {
			return s, true
		}
	}
	return pipeline.Stall{}, false
}

func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	// What PostgreSQL keeps, so that a report equals itself when it comes back.
	t = t.UTC().Truncate(time.Microsecond)
	return &t
}

// storable returns s as PostgreSQL can keep it.
func storable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// truncate cuts an error's text, valid UTF-8, between characters.
func truncate(s string) string {
	limit := maxErrorBytes
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

// place names a partition within this process.
type place struct {
	consumer, topic string
	partition       int32
}

func (r Report) place() place { return place{r.Consumer, r.Topic, r.Partition} }

// same says whether two reports are worth the same row.
func (r Report) same(o Report) bool {
	return r.State == o.State && r.Paused == o.Paused && r.Epoch == o.Epoch && r.Notice == o.Notice && r.Tries == o.Tries &&
		equal(r.Cause, o.Cause) && sameTime(r.Since, o.Since) && sameTime(r.NextTry, o.NextTry) &&
		(r.Blocked == nil) == (o.Blocked == nil) && (r.Blocked == nil || r.Blocked.Offset == o.Blocked.Offset)
}

func equal[T comparable](a, b *T) bool {
	return a == b || a != nil && b != nil && *a == *b
}

func sameTime(a, b *time.Time) bool {
	return a == b || a != nil && b != nil && a.Equal(*b)
}
