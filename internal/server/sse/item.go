package sse

import (
	"sync"

	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/topics"
)

// item is an event on its way to subscribers. It is shared; only subject, text and
// cursor change it, once.
type item struct {
	envelope  topics.Envelope
	partition int
	offset    int64
	// position is where the hub stood after it; nil when nobody was there for it.
	position Position

	reading  sync.Once
	about    string
	encoding sync.Once
	json     []byte
	naming   sync.Once
	id       string
}

// newItem returns the event in a record, or nil when it is none that is news: streams
// are of events, each told once. What a replay or a redrive puts into the topic again
// is for the consumers that it names.
func newItem(r topics.Record) *item {
	for _, name := range []string{middleware.HeaderReplaySession, middleware.HeaderTarget} {
		if value, _ := r.Header(name); len(value) > 0 {
			return nil
		}
	}
	env, err := topics.DecodeRecord(r)
	if err != nil {
		return nil
	}
	return &item{envelope: env, partition: int(r.Partition), offset: r.Offset}
}

func (it *item) identity() identity { return identityOf(it.envelope.Source, it.envelope.ID) }

// subject is what the event is about, see subjectOf.
func (it *item) subject() string {
	it.reading.Do(func() { it.about = subjectOf(&it.envelope) })
	return it.about
}

// text is the event in structured mode. Nil: it cannot be written as JSON.
func (it *item) text() []byte {
	it.encoding.Do(func() { it.json, _ = topics.EncodeJSON(it.envelope) })
	return it.json
}

// cursor is the text of c, which must be at the item's position: most clients of a hub
// stand at the same place.
func (it *item) cursor(c cursor) string {
	it.naming.Do(func() { it.id = c.text() })
	return it.id
}

// size is about what the item takes in memory.
func (it *item) size() int { return itemBytes + 2*len(it.envelope.Data) }
