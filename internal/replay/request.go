package replay

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/topics"
)

// SourceName names where a session reads.
type SourceName string

// The sources.
const (
	// EventLog is the event log in PostgreSQL: what the recorder has copied, for as long
	// as it is kept.
	EventLog SourceName = "event_log"
	// Kafka is the topics themselves, for as long as the broker keeps their records.
	Kafka SourceName = "kafka"
)

// Bounds of a Request.
const (
	MinRate = 0.01
	MaxRate = 1_000_000.0
	// maxValues is how many values one part of a filter may name.
	maxValues = 1000
)

// Filter chooses records. All that is said has to hold; what is empty chooses all.
type Filter struct {
	// Topics are names at the broker. Empty: the topic of the target.
	Topics []string `json:"topics,omitempty"`
	// Types are event types; one that ends in '*' stands for all that begin with what is
	// before it. Records that are no events have none.
	Types []string `json:"types,omitempty"`
	// Sources and Subjects are those of events. The subject of an event that names none
	// is its key.
	Sources  []string `json:"sources,omitempty"`
	Subjects []string `json:"subjects,omitempty"`
	// Keys are keys of records.
	Keys [][]byte `json:"keys,omitempty"`
	// After and Before bound the time: After and later, before Before. Of the event log
	// it is the event's own time (the record's where it has none), of Kafka the record's,
	// as the broker finds it.
	After  time.Time `json:"after,omitzero"`
	Before time.Time `json:"before,omitzero"`
	// Offsets choose stretches of partitions of a topic; partitions that are not in it are
	// left out then. Only of Kafka.
	Offsets []Stretch `json:"offsets,omitempty"`
}

// Stretch is a part of a partition: From and above, below To. A To of 0 stands for
// the end.
type Stretch struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	From      int64  `json:"from"`
	To        int64  `json:"to,omitempty"`
}

// Request says what to replay, to whom, and how. Exactly one of Topic and Consumer is
// set.
type Request struct {
	Source SourceName `json:"source"`
	Filter Filter     `json:"filter"`
	// Topic is the target, by its name at the broker: every consumer of it that opts in
	// acts.
	Topic string `json:"topic,omitempty"`
	// Consumer is the only one that is to act, on its own topic.
	Consumer string `json:"consumer,omitempty"`
	// Rate is how many events are published per second at most, MinRate to MaxRate. 0
	// stands for as fast as it goes.
	Rate float64 `json:"rate,omitempty"`
	// Max ends the session when so many are published. 0 stands for all.
	Max int64 `json:"max,omitempty"`
	// Confirm says that the session may be large. It is no part of what is asked for.
	Confirm bool `json:"-"`
	// Force lets the session through where Refusal.Forcible. It needs a Reason.
	Force  bool   `json:"force,omitempty"`
	Actor  string `json:"-"`
	Reason string `json:"-"`
	// Key makes asking again lead to the same session. Empty: every call makes one.
	Key string `json:"-"`
}

// ErrInvalid: the request makes no sense, whatever there is to replay.
var ErrInvalid = errors.New("not valid")

// InvalidError is ErrInvalid with the field that is wrong, as a JSON pointer.
type InvalidError struct{ Pointer, Message string }

// Error implements error.
func (e *InvalidError) Error() string {
	return fmt.Sprintf("replay: %s: %s", strings.TrimPrefix(e.Pointer, "/"), e.Message)
}

// Is makes it ErrInvalid.
func (e *InvalidError) Is(err error) bool { return err == ErrInvalid }

// Check returns everything that is wrong with the request, *InvalidError each.
func (r Request) Check() []error {
	var errs []error
	fail := func(pointer, format string, args ...any) {
		errs = append(errs, &InvalidError{pointer, fmt.Sprintf(format, args...)})
	}
	if r.Source != EventLog && r.Source != Kafka {
		fail("/source", "want %s or %s", EventLog, Kafka)
	}
	if (r.Topic == "") == (r.Consumer == "") {
		fail("/target", "want a topic or a consumer, and not both")
	}
	for _, name := range []struct{ pointer, text string }{{"/target/topic", r.Topic}, {"/target/consumer", r.Consumer}} {
		if !plain(name.text) {
			fail(name.pointer, "want at most %d bytes of text", topics.MaxAttributeBytes)
		}
	}
	if err := CheckRate(r.Rate); r.Rate != 0 && err != nil {
		errs = append(errs, err)
	}
	if r.Max < 0 {
		fail("/max", "%d is negative", r.Max)
	}
	if r.Force && strings.TrimSpace(r.Reason) == "" {
		fail("/reason", "what is forced needs a reason")
	}
	if !plain(r.Reason) {
		fail("/reason", "want at most %d bytes of text", topics.MaxAttributeBytes)
	}
	return append(errs, r.Filter.check(r.Source)...)
}

// CheckRate returns an *InvalidError unless a rate can be kept.
func CheckRate(rate float64) error {
	if rate >= MinRate && rate <= MaxRate {
		return nil
	}
	return &InvalidError{"/rate", fmt.Sprintf("%g: want %g to %g per second", rate, MinRate, MaxRate)}
}

func (f Filter) check(source SourceName) []error {
	var errs []error
	fail := func(pointer, format string, args ...any) {
		errs = append(errs, &InvalidError{"/filter/" + pointer, fmt.Sprintf(format, args...)})
	}
	for name, list := range map[string][]string{"topics": f.Topics, "types": f.Types, "sources": f.Sources, "subjects": f.Subjects} {
		if len(list) > maxValues {
			fail(name, "%d are too many: want at most %d", len(list), maxValues)
		}
		for i, text := range list {
			if text == "" || !plain(text) {
				fail(fmt.Sprintf("%s/%d", name, i), "want 1 to %d bytes of text", topics.MaxAttributeBytes)
			}
		}
	}
	for i, t := range f.Types {
		if strings.Contains(strings.TrimSuffix(t, "*"), "*") {
			fail(fmt.Sprintf("types/%d", i), "'*' may only be at the end")
		}
	}
	if len(f.Keys) > maxValues {
		fail("keys", "%d are too many: want at most %d", len(f.Keys), maxValues)
	}
	if !f.After.IsZero() && !f.Before.IsZero() && !f.After.Before(f.Before) {
		fail("before", "is not later than after: nothing lies between")
	}
	for pointer, t := range map[string]time.Time{"after": f.After, "before": f.Before} {
		if y := t.UTC().Year(); !t.IsZero() && (y < 1970 || y > 9999) {
			fail(pointer, "want a year from 1970 to 9999")
		}
	}
	return append(errs, f.checkOffsets(source)...)
}

func (f Filter) checkOffsets(source SourceName) []error {
	var errs []error
	fail := func(i int, field, format string, args ...any) {
		errs = append(errs, &InvalidError{fmt.Sprintf("/filter/offsets/%d%s", i, field), fmt.Sprintf(format, args...)})
	}
	switch {
	case len(f.Offsets) > 0 && source == EventLog:
		return []error{&InvalidError{"/filter/offsets", "only of the source kafka: the event log is chosen from by time"}}
	case len(f.Offsets) > 0 && (!f.After.IsZero() || !f.Before.IsZero()):
		return []error{&InvalidError{"/filter/offsets", "choose by offsets or by time, not by both"}}
	case len(f.Offsets) > maxValues:
		return []error{&InvalidError{"/filter/offsets", fmt.Sprintf("%d are too many: want at most %d", len(f.Offsets), maxValues)}}
	}
	type partition struct {
		topic string
		id    int32
	}
	seen := map[partition]bool{}
	for i, s := range f.Offsets {
		switch {
		case s.Topic == "" || !plain(s.Topic):
			fail(i, "/topic", "want the name of a topic")
		case s.Partition < 0:
			fail(i, "/partition", "%d is negative", s.Partition)
		case s.From < 0 || s.To < 0:
			fail(i, "/from", "offsets are not negative")
		case s.To != 0 && s.To <= s.From:
			fail(i, "/to", "is not behind from: nothing lies between")
		case seen[partition{s.Topic, s.Partition}]:
			fail(i, "", "partition %d of %s is named twice", s.Partition, s.Topic)
		case len(f.Topics) > 0 && !slices.Contains(f.Topics, s.Topic):
			fail(i, "/topic", "%s is not among the topics of the filter", s.Topic)
		}
		seen[partition{s.Topic, s.Partition}] = true
	}
	return errs
}

// plain says whether PostgreSQL can keep a text, and nobody would mind.
func plain(s string) bool {
	return len(s) <= topics.MaxAttributeBytes && utf8.ValidString(s) && !strings.ContainsRune(s, 0)
}

// text is the request in one form, to tell two of them apart.
func (r Request) text() ([]byte, error) {
	r.Filter.After, r.Filter.Before = r.Filter.After.UTC(), r.Filter.Before.UTC()
	return json.Marshal(r)
}

// chooses says whether the filter chooses a record by what it says. Its place and its
// time are the reader's matter.
func (f Filter) chooses(r topics.Record) bool {
	if len(f.Keys) > 0 && !slices.ContainsFunc(f.Keys, func(k []byte) bool { return r.Key != nil && string(k) == string(r.Key) }) {
		return false
	}
	if len(f.Types)+len(f.Sources)+len(f.Subjects) == 0 {
		return true
	}
	env, err := topics.DecodeRecord(r)
	if err != nil {
		return len(f.Types)+len(f.Sources) == 0 && slices.Contains(f.Subjects, string(r.Key))
	}
	subject := env.Subject
	if subject == "" {
		subject = string(r.Key)
	}
	return among(f.Sources, env.Source) && among(f.Subjects, subject) &&
		(len(f.Types) == 0 || slices.ContainsFunc(f.Types, func(t string) bool { return matches(t, env.Type) }))
}

func among(list []string, text string) bool { return len(list) == 0 || slices.Contains(list, text) }

// matches says whether an event type is the one that is named, or begins so.
func matches(pattern, eventType string) bool {
	if prefix, open := strings.CutSuffix(pattern, "*"); open {
		return strings.HasPrefix(eventType, prefix)
	}
	return pattern == eventType
}
