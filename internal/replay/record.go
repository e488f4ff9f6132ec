package replay

import (
	"slices"
	"strconv"

	"github.com/google/uuid"

	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/topics"
)

// steering are the headers by which a record chooses its consumers and tells what it
// repeats. A replay has its own.
func steering() []string {
	return []string{
		middleware.HeaderTarget, middleware.HeaderReplaySession, middleware.HeaderReplayTime,
		middleware.HeaderReplayCount, middleware.HeaderRedriveOf,
	}
}

// emit makes the record that a session publishes of one that it has read: key and
// value are the same bytes, and so are the headers, in their order, followed by the
// session's own. It is published under the present time, so that the topic's retention
// does not take it away before it is read, and says in a header what time it had.
func (s Session) emit(r topics.Record) topics.Record {
	ours := steering()
	headers := make([]topics.Header, 0, len(r.Headers)+3)
	for _, h := range r.Headers {
		if !slices.Contains(ours, h.Key) {
			headers = append(headers, h)
		}
	}
	headers = append(headers, topics.Header{Key: middleware.HeaderReplaySession, Value: []byte(s.ID.String())})
	if !r.Timestamp.IsZero() && r.Timestamp.UnixMilli() > 0 {
		headers = append(headers, topics.Header{Key: middleware.HeaderReplayTime, Value: strconv.AppendInt(nil, r.Timestamp.UnixMilli(), 10)})
	}
	if s.Target.Consumer != "" {
		headers = append(headers, topics.Header{Key: middleware.HeaderTarget, Value: []byte(s.Target.Consumer)})
	}
	return topics.Record{Topic: s.Target.Topic, Key: r.Key, Value: r.Value, Headers: headers}
}

// sessionOf returns the session that a record was emitted by, if it is a replay.
func sessionOf(r topics.Record) (uuid.UUID, bool) {
	value, ok := r.Header(middleware.HeaderReplaySession)
	if !ok || len(value) == 0 {
		return uuid.Nil, false
	}
	id, _ := uuid.ParseBytes(value)
	return id, true
}
