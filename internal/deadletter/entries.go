package deadletter

import (
	"encoding/hex"
	"fmt"

	"github.com/millrace/millrace/internal/outbox"
	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/topics"
)

// Entries are what publishes letters to a dead-letter topic. Letters of one key of one
// partition stay in order, as long as one transaction at a time writes them.
func Entries(topic topics.Topic, letters ...*middleware.Letter) []outbox.Entry {
	entries := make([]outbox.Entry, len(letters))
	for i, l := range letters {
		record := l.Record(string(topic))
		key := l.Original.Key[:min(len(l.Original.Key), maxKeyInID)]
		entries[i] = outbox.Entry{
			AggregateType: "dead_letter",
			AggregateID:   fmt.Sprintf("%s/%s/%d/%s", l.Consumer, l.Original.Topic, l.Original.Partition, hex.EncodeToString(key)),
			Topic:         topic,
			// The row gets an id of its own: the event's is that of another row.
			Envelope: topics.Envelope{Type: l.EventType},
			Record:   &record,
		}
	}
	return entries
}
