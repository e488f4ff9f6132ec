package middleware

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millrace/millrace/internal/delivery"
	"github.com/millrace/millrace/topics"
)

// Outcome is how the way of one record through a consumer ended. The values are
// the label "outcome" of millrace_events_consumed_total.
type Outcome string

// The outcomes. The first group is durable and acked; the second is nacked, so
// the record comes again.
const (
	Open          Outcome = ""               // not decided yet
	Done          Outcome = "done"           // the effect is durable
	Duplicate     Outcome = "duplicate"      // its effect had been durable before
	Unknown       Outcome = "unknown"        // no handler for its type
	NotTargeted   Outcome = "not_targeted"   // addressed to other consumers
	ReplayDropped Outcome = "replay_dropped" // history re-emitted, and the consumer did not opt in
	DeadLettered  Outcome = "dead_lettered"  // filed as a dead letter
	Parked        Outcome = "parked"         // waits behind a dead letter with its key

	Stalled     Outcome = "stalled"     // cannot go on now: the partition waits
	Fenced      Outcome = "fenced"      // the partition is lost
	Interrupted Outcome = "interrupted" // the process is stopping
)

// Item is one record of a flight with what has been decided about it.
type Item struct {
	Record topics.Record
	// Outcome is Open until a stage or the handler has decided.
	Outcome Outcome
	// Letter is set when Poison has condemned the record. The handler must make it
	// durable together with the outcome of the records around it, and then set
	// Outcome to DeadLettered.
	Letter *Letter
	// ReplaySession is the id of the replay that re-emitted the record, or empty.
	ReplaySession string

	envelope  topics.Envelope
	decodeErr error
	decoded   bool
}

// Live reports whether the handler still has to act on the record.
func (i *Item) Live() bool { return i.Outcome == Open && i.Letter == nil }

// RedriveOf returns what the record says of the dead letter whose redrive brought
// it, or an empty text.
func (i *Item) RedriveOf() string {
	id, _ := i.Record.Header(HeaderRedriveOf)
	return string(id)
}

// Envelope returns the record's CloudEvent, decoded once. The error is a
// message fault.
func (i *Item) Envelope() (topics.Envelope, error) {
	if !i.decoded {
		i.envelope, i.decodeErr = topics.DecodeRecord(i.Record)
		i.decodeErr = Malformed(i.decodeErr)
		i.decoded = true
	}
	return i.envelope, i.decodeErr
}

// Flight is one delivery, or a part of one, on its way through the chain. It is
// used by one goroutine at a time.
type Flight struct {
	Delivery *delivery.Delivery
	// Items ascend by offset. A part of a flight shares the items of the whole.
	Items []Item
	// Attempt is the number of the current attempt, counted from 1 by Retry.
	Attempt int
	// FirstFailure is when the first attempt failed; zero before.
	FirstFailure time.Time
	// failures are the attempts that failed, see noteFailure.
	failures []Failure
}

// NewFlight returns the flight of a delivery with every record open.
func NewFlight(d *delivery.Delivery) *Flight {
	items := make([]Item, len(d.Records))
	for i, r := range d.Records {
		items[i].Record = r
	}
	return &Flight{Delivery: d, Items: items}
}

// Live counts the records on which the handler still has to act.
func (f *Flight) Live() int {
	n := 0
	for i := range f.Items {
		if f.Items[i].Live() {
			n++
		}
	}
	return n
}

// split cuts the flight so that each part has half of the live records. There
// must be at least two.
func (f *Flight) split() (left, right *Flight) {
	half, seen, cut := f.Live()/2, 0, 0
	for i := range f.Items {
		if f.Items[i].Live() {
			seen++
		}
		if seen == half {
			cut = i + 1
			break
		}
	}
	part := func(items []Item) *Flight {
		return &Flight{Delivery: f.Delivery, Items: items, FirstFailure: f.FirstFailure, failures: slices.Clone(f.failures)}
	}
	return part(f.Items[:cut:cut]), part(f.Items[cut:])
}

type flightKey struct{}

// WithFlight returns a context that carries f.
func WithFlight(ctx context.Context, f *Flight) context.Context {
	return context.WithValue(ctx, flightKey{}, f)
}

// FlightFrom returns the flight that ctx carries, or nil.
func FlightFrom(ctx context.Context) *Flight {
	f, _ := ctx.Value(flightKey{}).(*Flight)
	return f
}

// flightOf returns the flight of msg and puts it into the message's context
// when it is not there yet.
func flightOf(msg *message.Message) *Flight {
	if f := FlightFrom(msg.Context()); f != nil {
		return f
	}
	d := delivery.FromMessage(msg)
	if d == nil {
		d = foreignDelivery(msg)
	}
	f := NewFlight(d)
	msg.SetContext(WithFlight(msg.Context(), f))
	return f
}

// foreignDelivery stands in for the delivery of a message that came from a
// subscriber of somebody else: metadata becomes headers in name order, and
// there is neither key nor offset. Consumers that keep offsets refuse it.
func foreignDelivery(msg *message.Message) *delivery.Delivery {
	r := topics.Record{
		Topic:     message.SubscribeTopicFromCtx(msg.Context()),
		Partition: NoPartition,
		Value:     msg.Payload,
	}
	for _, key := range slices.Sorted(maps.Keys(msg.Metadata)) {
		r.Headers = append(r.Headers, topics.Header{Key: key, Value: []byte(msg.Metadata[key])})
	}
	return &delivery.Delivery{Topic: r.Topic, Partition: NoPartition, Records: []topics.Record{r}, Try: 1}
}

// NoPartition marks records that did not come from a partitioned log.
const NoPartition int32 = -1

// within runs next for a part of a flight. The part travels in a copy of the
// message, so that the ack and nack of the original stay with the router.
func within(msg *message.Message, part *Flight, next message.HandlerFunc) error {
	sub := msg.CopyWithContext()
	sub.SetContext(WithFlight(msg.Context(), part))
	_, err := next(sub)
	return err
}
