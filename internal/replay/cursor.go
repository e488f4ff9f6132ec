package replay

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/google/uuid"
)

// Partition is one partition of one topic, by the broker's identity of the topic.
type Partition struct {
	Topic     string    `json:"topic"`
	TopicID   uuid.UUID `json:"topic_id"`
	Partition int32     `json:"partition"`
}

func (p Partition) compare(o Partition) int {
	return cmp.Or(bytes.Compare(p.TopicID[:], o.TopicID[:]), cmp.Compare(p.Topic, o.Topic), cmp.Compare(p.Partition, o.Partition))
}

// Way is how far a session is in one partition: it began at From, goes on at Next, and
// ends before To.
type Way struct {
	Partition
	From int64 `json:"from"`
	Next int64 `json:"next"`
	To   int64 `json:"to"`
	// Over says that nothing more is to come, although Next may be before To: offsets
	// have gaps.
	Over bool `json:"over,omitempty"`
}

// Cursor is where a session goes on, ordered by partition. Its ends are fixed when
// the session is made: what is published later, such as the replay itself, is no part
// of it.
type Cursor []Way

func (c Cursor) sort() { slices.SortFunc(c, func(a, b Way) int { return a.compare(b.Partition) }) }

// Offsets returns how many offsets lie between beginning and end, and how many of
// them are passed.
func (c Cursor) Offsets() (passed, all int64) {
	for _, w := range c {
		all += max(w.To-w.From, 0)
		if w.Over {
			passed += max(w.To-w.From, 0)
		} else {
			passed += max(w.Next-w.From, 0)
		}
	}
	return min(passed, all), all
}

// Over says that nothing is left.
func (c Cursor) Over() bool {
	return !slices.ContainsFunc(c, func(w Way) bool { return !w.Over && w.Next < w.To })
}
