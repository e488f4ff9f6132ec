package middleware

import (
	"strconv"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millrace/millrace/topics"
)

// Headers by which a record chooses its consumers.
const (
	// HeaderTarget is a comma-separated list of consumer names. Consumers that it
	// does not name ack the record without effect. A redrive sets it, so that only
	// the consumer that failed sees the record again.
	HeaderTarget = "millrace-target"
	// HeaderReplaySession is the id of the replay session that re-emitted the
	// record. Only consumers that opted in act on it.
	HeaderReplaySession = "millrace-replay-session"
	// HeaderReplayTime is the time of the record that was re-emitted, in milliseconds
	// since 1970. Handlers see it as the time of the record: an event that came from
	// the future is still from the future when it is replayed later.
	HeaderReplayTime = "millrace-replay-time"
	// HeaderReplayCount says how often the event has been redriven, this time
	// included. It is carried into the letter if the redrive fails, which bounds
	// how often that can go on.
	HeaderReplayCount = "dead-letter-replay-count"
	// HeaderRedriveOf is the id of the dead letter that was redriven.
	HeaderRedriveOf = "dead-letter-redrive-of"
	// HeaderOriginalEventID is the id that the event had before a redrive gave it a
	// new one.
	HeaderOriginalEventID = "dead-letter-original-event-id"
)

// target settles the records that are not for this consumer. A flight in which
// none is left still goes on: the handler may have an offset to move.
func target(cfg Config) message.HandlerMiddleware {
	return func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			flight := flightOf(msg)
			for i := range flight.Items {
				item := &flight.Items[i]
				if !cfg.Untargeted && !Targets(item.Record, cfg.Consumer) {
					item.Outcome = NotTargeted
					continue
				}
				if session, ok := item.Record.Header(HeaderReplaySession); ok && len(session) > 0 {
					item.ReplaySession = string(session)
					item.Record.Timestamp = OriginalTime(item.Record)
					if !cfg.Replay {
						item.Outcome = ReplayDropped
					}
				}
			}
			return next(msg)
		}
	}
}

// OriginalTime is the time that a replayed record had before, where it tells one that
// is not later than its own: whoever made the header up has made it older at most.
func OriginalTime(r topics.Record) time.Time {
	value, ok := r.Header(HeaderReplayTime)
	if !ok {
		return r.Timestamp
	}
	millis, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil || millis <= 0 || millis >= r.Timestamp.UnixMilli() {
		return r.Timestamp
	}
	return time.UnixMilli(millis)
}

// Targets reports whether a consumer of that name may act on the record: it names no
// consumers, or this one among others.
func Targets(r topics.Record, consumer string) bool {
	names, ok := r.Header(HeaderTarget)
	return !ok || lists(string(names), consumer)
}

// lists reports whether the comma-separated names contain name. An empty list
// names everybody.
func lists(names, name string) bool {
	if strings.TrimSpace(names) == "" {
		return true
	}
	for n := range strings.SplitSeq(names, ",") {
		if strings.TrimSpace(n) == name {
			return true
		}
	}
	return false
}
