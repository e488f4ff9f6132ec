package middleware

import (
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"
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
				if names, ok := item.Record.Header(HeaderTarget); ok && !cfg.Untargeted && !lists(string(names), cfg.Consumer) {
					item.Outcome = NotTargeted
					continue
				}
				if session, ok := item.Record.Header(HeaderReplaySession); ok && len(session) > 0 {
					item.ReplaySession = string(session)
					if !cfg.Replay {
						item.Outcome = ReplayDropped
					}
				}
			}
			return next(msg)
		}
	}
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
