package pipeline

import (
	"context"

	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/topics"
)

// EventMetadata is what a handler may want to know about the record that it
// handles, beyond the event itself.
type EventMetadata struct {
	Consumer string
	Group    string
	// Record is the record as it lies in the topic. Do not change it.
	Record topics.Record
	// Envelope is the record's CloudEvent; its zero value when the record could not
	// be decoded, which only a handler of topics.Record sees.
	Envelope topics.Envelope
	// Attempt counts from 1.
	Attempt int
	// ReplaySession is the id of the replay that re-emitted the event, or empty.
	ReplaySession string
}

type metadataKey struct{}

// Metadata returns what is known about the record that ctx handles: of a batch,
// the first. It returns the zero value outside a handler.
func Metadata(ctx context.Context) EventMetadata {
	if all := BatchMetadata(ctx); len(all) > 0 {
		return all[0]
	}
	return EventMetadata{}
}

// BatchMetadata returns what is known about each record of the batch that ctx
// handles, in the order of the handler's slice.
func BatchMetadata(ctx context.Context) []EventMetadata {
	m, _ := ctx.Value(metadataKey{}).(*metadataSource)
	if m == nil {
		return nil
	}
	return m.all()
}

// CausedBy returns a context in which published events name the given record as
// their cause. A handler of single records has that already; a handler of
// batches says with it which record of the batch led to what it publishes.
func CausedBy(ctx context.Context, m EventMetadata) context.Context {
	if m.Envelope.ID == "" {
		return ctx
	}
	return middleware.WithCause(ctx, middleware.CauseOf(m.Envelope))
}

// metadataSource makes metadata when it is asked for, which is seldom.
type metadataSource struct {
	consumer string
	flight   *middleware.Flight
	items    []*middleware.Item
	made     []EventMetadata
}

func withMetadata(ctx context.Context, consumer string, f *middleware.Flight, items []*middleware.Item) context.Context {
	return context.WithValue(ctx, metadataKey{}, &metadataSource{consumer: consumer, flight: f, items: items})
}

func (m *metadataSource) all() []EventMetadata {
	if m.made == nil {
		m.made = make([]EventMetadata, len(m.items))
		for i, item := range m.items {
			env, _ := item.Envelope()
			m.made[i] = EventMetadata{
				Consumer: m.consumer, Group: m.flight.Delivery.Group,
				Record: item.Record, Envelope: env,
				Attempt: m.flight.Attempt, ReplaySession: item.ReplaySession,
			}
		}
	}
	return m.made
}
