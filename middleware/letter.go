package middleware

import (
	"encoding/base64"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/topics"
)

// MaxReasonBytes caps the reason in a dead letter's headers.
const MaxReasonBytes = 1024

// MaxErrorBytes caps the error's text where there is more room than in a header.
const MaxErrorBytes = 8192

// Headers that a dead letter adds to those of the original record. The
// dead-letter-* names up to dead-letter-offset are SmallRye's, the *_poisoned
// ones Watermill's; times are RFC 3339 with nanoseconds in UTC.
const (
	HeaderReason             = "dead-letter-reason"
	HeaderCause              = "dead-letter-cause"
	HeaderExceptionClassName = "dead-letter-exception-class-name"
	HeaderCauseClassName     = "dead-letter-cause-class-name"
	HeaderTopic              = "dead-letter-topic"
	HeaderPartition          = "dead-letter-partition"
	HeaderOffset             = "dead-letter-offset"

	HeaderClass         = "dead-letter-class"
	HeaderAttempts      = "dead-letter-attempts"
	HeaderFirstFailure  = "dead-letter-first-failure"
	HeaderLastFailure   = "dead-letter-last-failure"
	HeaderConsumerGroup = "dead-letter-consumer-group"
	HeaderHandler       = "dead-letter-handler"
	HeaderTopicID       = "dead-letter-topic-id"
	// HeaderKeyEncoding is "utf-8", or "base64" when the key is not text; the key
	// itself is never changed. It tells readers how the key is shown elsewhere.
	HeaderKeyEncoding = "dead-letter-key-encoding"
	// HeaderHistory holds the attempts that failed, as JSON: see Failure.
	HeaderHistory = "dead-letter-history"
	// HeaderStoredID stands behind all others on a letter that was too large for the
	// topic: it is the id of the row of dead_letters that has the whole record. The
	// value is missing, and headers and key too if they are what is large.
	HeaderStoredID = "dead-letter-stored-id"

	HeaderPoisonedReason     = "reason_poisoned"
	HeaderPoisonedTopic      = "topic_poisoned"
	HeaderPoisonedHandler    = "handler_poisoned"
	HeaderPoisonedSubscriber = "subscriber_poisoned"
)

// Letter is a record that a consumer gave up on, and why.
type Letter struct {
	Consumer string
	Group    string
	// Original is the record as it came.
	Original topics.Record
	// EventType, Source and EventID are the event's, or empty when it could not be
	// decoded.
	EventType, Source, EventID string
	// ReplaySession is the id of the replay that re-emitted the record, or empty.
	ReplaySession string
	Class         Class
	// Reason is the error's text, at most MaxReasonBytes of valid UTF-8.
	Reason string
	// Error is the same text, at most MaxErrorBytes.
	Error string
	// ErrorType and CauseType are the Go types of the error and of the innermost
	// error that it wraps; Cause is the text of the latter, capped like Reason.
	ErrorType, CauseType, Cause string
	// Attempts counts the attempts of this delivery.
	Attempts                  int
	FirstFailure, LastFailure time.Time
	// History tells of the attempts that failed, at most MaxHistory.
	History []Failure
	// Stack is that of the last attempt's panic, if it was one, at most
	// MaxStackBytes. Records of letters do not carry it.
	Stack string
	// Origin is what wrote the letter, such as "kafka-connect"; empty for Millrace.
	Origin string
	// Cluster is the id of the cluster in which the original lies; empty: that of the
	// installation. Records of letters do not carry it.
	Cluster string
	// StoredID is the id of the row that has the whole record, when Original lacks
	// what was too large for the topic.
	StoredID string
}

func newLetter(cfg Config, f *Flight, item *Item, class Class, err error) *Letter {
	now := cfg.Now().UTC()
	first := f.FirstFailure
	if first.IsZero() {
		first = now
	}
	outer, root := unmark(err), rootCause(err)
	env, _ := item.Envelope()
	stack := ""
	if p, ok := errors.AsType[*PanicError](err); ok {
		stack = truncate(p.Stack, MaxStackBytes)
	}
	return &Letter{
		Consumer: cfg.Consumer, Group: cfg.Group, Original: item.Record,
		EventType: env.Type, Source: env.Source, EventID: env.ID,
		ReplaySession: truncate(item.ReplaySession, MaxReasonBytes),
		Class:         class, Reason: truncate(err.Error(), MaxReasonBytes), Error: truncate(err.Error(), MaxErrorBytes),
		ErrorType: typeName(outer), CauseType: typeName(root), Cause: truncate(root.Error(), MaxReasonBytes),
		Attempts: max(f.Attempt, 1), FirstFailure: first.UTC(), LastFailure: now,
		History: f.failures, Stack: stack,
	}
}

// Record returns the record to be published to the dead-letter topic: key,
// value and original headers as they came, then the letter's own headers.
func (l *Letter) Record(topic string) topics.Record {
	own := []struct{ key, value string }{
		{HeaderReason, l.Reason},
		{HeaderCause, l.Cause},
		{HeaderExceptionClassName, l.ErrorType},
		{HeaderCauseClassName, l.CauseType},
		{HeaderTopic, l.Original.Topic},
		{HeaderPartition, strconv.FormatInt(int64(l.Original.Partition), 10)},
		{HeaderOffset, strconv.FormatInt(l.Original.Offset, 10)},
		{HeaderTopicID, base64.RawURLEncoding.EncodeToString(l.Original.TopicID[:])},
		{HeaderClass, l.Class.String()},
		{HeaderAttempts, strconv.Itoa(l.Attempts)},
		{HeaderFirstFailure, l.FirstFailure.Format(time.RFC3339Nano)},
		{HeaderLastFailure, l.LastFailure.Format(time.RFC3339Nano)},
		{HeaderConsumerGroup, l.Group},
		{HeaderHandler, l.Consumer},
		{HeaderKeyEncoding, keyEncoding(l.Original.Key)},
		{HeaderPoisonedReason, l.Reason},
		{HeaderPoisonedTopic, l.Original.Topic},
		{HeaderPoisonedHandler, l.Consumer},
		{HeaderPoisonedSubscriber, l.Group},
		{HeaderHistory, string(encodeHistory(l.History))},
	}
	headers := make([]topics.Header, 0, len(l.Original.Headers)+len(own))
	headers = append(headers, l.Original.Headers...)
	for _, h := range own {
		headers = append(headers, topics.Header{Key: h.key, Value: []byte(h.value)})
	}
	return topics.Record{Topic: topic, Key: l.Original.Key, Value: l.Original.Value, Headers: headers}
}

// maxReferenceBytes bounds the key, and the original headers, of a reference.
const maxReferenceBytes = 32 << 10

// Reference returns the record of a letter that is too large for its topic: as
// Record, with the id of the row that has the whole in place of what is large.
func (l *Letter) Reference(topic, id string) topics.Record {
	small := *l
	small.Original.Value = nil
	size := 0
	for _, h := range l.Original.Headers {
		size += len(h.Key) + len(h.Value) + headerOverhead
	}
	if size > maxReferenceBytes {
		small.Original.Headers = nil
	}
	if len(l.Original.Key) > maxReferenceBytes {
		small.Original.Key = nil
	}
	r := small.Record(topic)
	r.Headers = append(r.Headers, topics.Header{Key: HeaderStoredID, Value: []byte(id)})
	return r
}

// headerOverhead is roughly what a header costs beside its bytes.
const headerOverhead = 4

func keyEncoding(key []byte) string {
	if utf8.Valid(key) {
		return "utf-8"
	}
	return "base64"
}

// truncate returns s as valid UTF-8 without NUL, which PostgreSQL cannot store,
// of at most limit bytes, cut between characters.
func truncate(s string, limit int) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

// unmark removes the marks that say nothing about the error's own type.
func unmark(err error) error {
	for {
		f, ok := err.(*fault) //nolint:errorlint // only the outermost mark is peeled off
		if !ok {
			return err
		}
		err = f.err
	}
}

func rootCause(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}

func typeName(err error) string {
	t := reflect.TypeOf(err)
	if t == nil {
		return ""
	}
	return fmt.Sprint(t)
}
