package middleware

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/millrace/millrace/topics"
)

// ownHeaders is how many headers Letter.Record adds; the last is HeaderHistory,
// which letters of old do not have.
const ownHeaders = 20

// ownFrom returns where the headers of the letter begin and end, and the id behind
// them if the record is a reference.
func ownFrom(headers []topics.Header) (cut, end int, storedID string, ok bool) {
	end = len(headers)
	if end > 0 && headers[end-1].Key == HeaderStoredID {
		end--
		storedID = string(headers[end].Value)
	}
	for _, own := range []int{ownHeaders, ownHeaders - 1} {
		if cut = end - own; cut >= 0 && headers[cut].Key == HeaderReason {
			return cut, end, storedID, true
		}
	}
	return 0, 0, "", false
}

// ParseLetter is the reverse of Letter.Record. It reads the headers at the end of
// the record only, so a record that was dead-lettered twice gives back the first
// letter as its original. Error holds what Reason holds, since only that much is
// written.
func ParseLetter(r topics.Record) (*Letter, error) {
	cut, end, storedID, ok := ownFrom(r.Headers)
	if !ok {
		return nil, errors.New("parse dead letter: the headers do not end with those of a letter")
	}
	p := letterParser{headers: r.Headers[cut:end]}
	l := &Letter{
		Original: topics.Record{
			Topic: p.text(HeaderTopic), Partition: int32(p.number(HeaderPartition, 32)), Offset: p.number(HeaderOffset, 64),
			Key: r.Key, Value: r.Value, Headers: r.Headers[:cut:cut],
		},
		Consumer: p.text(HeaderHandler), Group: p.text(HeaderConsumerGroup),
		Class: parseClass(p.text(HeaderClass)), Reason: p.text(HeaderReason), Error: p.text(HeaderReason),
		Cause: p.text(HeaderCause), ErrorType: p.text(HeaderExceptionClassName), CauseType: p.text(HeaderCauseClassName),
		Attempts: int(p.number(HeaderAttempts, 32)), FirstFailure: p.time(HeaderFirstFailure), LastFailure: p.time(HeaderLastFailure),
		StoredID: storedID,
	}
	if history, ok := (topics.Record{Headers: p.headers}).Header(HeaderHistory); ok {
		l.History = parseHistory(history)
	}
	id, err := base64.RawURLEncoding.DecodeString(p.text(HeaderTopicID))
	if err != nil || copy(l.Original.TopicID[:], id) != len(l.Original.TopicID) {
		p.fail(HeaderTopicID)
	}
	if p.err != nil {
		return nil, p.err
	}
	if env, err := topics.DecodeRecord(l.Original); err == nil {
		l.EventType, l.Source, l.EventID = env.Type, env.Source, env.ID
	}
	if session, ok := l.Original.Header(HeaderReplaySession); ok {
		l.ReplaySession = truncate(string(session), MaxReasonBytes)
	}
	return l, nil
}

func parseClass(s string) Class {
	for _, c := range []Class{MessageFault, InfrastructureFault, HandlerFault, ShutdownFault} {
		if c.String() == s {
			return c
		}
	}
	return 0
}

// letterParser reads headers and keeps the first error.
type letterParser struct {
	headers []topics.Header
	err     error
}

func (p *letterParser) fail(key string) {
	if p.err == nil {
		p.err = fmt.Errorf("parse dead letter: header %s is missing or not valid", key)
	}
}

func (p *letterParser) text(key string) string {
	value, ok := topics.Record{Headers: p.headers}.Header(key)
	if !ok {
		p.fail(key)
	}
	return string(value)
}

func (p *letterParser) number(key string, bits int) int64 {
	n, err := strconv.ParseInt(p.text(key), 10, bits)
	if err != nil {
		p.fail(key)
	}
	return n
}

func (p *letterParser) time(key string) time.Time {
	at, err := time.Parse(time.RFC3339Nano, p.text(key))
	if err != nil {
		p.fail(key)
	}
	return at
}
