package client

import (
	"context"
	"iter"
	"net/url"
	"strconv"
	"time"
)

// EventSearch selects events of the event log. What is empty selects all; of a list any
// value will do.
type EventSearch struct {
	// Topics are names at the broker. Types may end in '*'.
	Topics, Types, Sources, Subjects, Keys []string
	// From and later, before To.
	From, To *time.Time
}

// RecordedEvent is an event with the place where it lies.
type RecordedEvent struct {
	Topic      string    `json:"topic"`
	Partition  int32     `json:"partition"`
	Offset     int64     `json:"offset"`
	AppendedAt time.Time `json:"appended_at"`
	RecordedAt time.Time `json:"recorded_at"`
	Event      Event     `json:"event"`
}

// SearchEvents returns events of the event log, the newest first.
func (c *Client) SearchEvents(ctx context.Context, s EventSearch, size int) iter.Seq2[RecordedEvent, error] {
	q := url.Values{"page_size": {strconv.Itoa(size)}}
	for name, values := range map[string][]string{
		"topic": s.Topics, "type": s.Types, "source": s.Sources, "subject": s.Subjects, "key": s.Keys,
	} {
		for _, v := range values {
			q.Add(name, v)
		}
	}
	for name, at := range map[string]*time.Time{"from": s.From, "to": s.To} {
		if at != nil {
			q.Set(name, at.UTC().Format(time.RFC3339Nano))
		}
	}
	return pages(ctx, c, []string{"events"}, q, func(p struct {
		Events []RecordedEvent `json:"events"`
		pageEnd
	}) ([]RecordedEvent, string) {
		return p.Events, p.NextPageToken
	})
}
