// Package delivery is what one Watermill message stands for: one record, or one
// batch of records of one partition, with everything that a string map of
// metadata cannot carry.
//
// # Who writes and who reads
//
// The transport (internal/kafka) makes a Delivery, puts it into a Watermill
// message with NewMessage and emits that. Middleware and the pipeline find it
// with FromMessage, add what they learn (Fail), and the transport reads the
// outcome when the message is acked or nacked. In the other direction RecordOf says
// which record a message becomes, whether it is published to Kafka or written to
// the outbox.
//
// # Ordering and delivery
//
// The records of a Delivery belong to one partition and ascend by offset. The
// transport has at most one Delivery per partition in flight. An ack means that
// the effect of all its records is durable; a nack means that none may be
// assumed to be, except for those that Settle names, so the others come again. The Context of the message ends
// when the partition is lost or the transport gives up draining.
package delivery

import (
	"context"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millrace/millrace/topics"
)

// Delivery is one batch of records of one partition on its way through the
// handlers. Topic, TopicID and Partition are those of every record in it.
type Delivery struct {
	// Group is the consumer group; empty for a group-less subscription.
	Group     string
	Topic     string
	TopicID   [16]byte
	Partition int32
	// Records holds at least one record, ascending by offset.
	Records []topics.Record
	// Epoch is what the Assigned hook of the subscription returned for this
	// ownership of the partition: the fence under which effects are committed.
	Epoch int64
	// Try counts from 1 how often the transport has handed out these records
	// since it owns the partition.
	Try int
	// Lane is the lane in which the records waited behind a dead letter, and Epoch
	// its token; zero for records that come from the log.
	Lane int64

	mu      sync.Mutex
	err     error
	settled int
}

// Fail records why the delivery is about to be nacked. The last call wins.
func (d *Delivery) Fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
}

// Err returns what Fail recorded, or nil.
func (d *Delivery) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// First returns the record with the lowest offset.
func (d *Delivery) First() topics.Record { return d.Records[0] }

// Last returns the record with the highest offset.
func (d *Delivery) Last() topics.Record { return d.Records[len(d.Records)-1] }

type contextKey struct{}

// NewContext returns a context that carries d.
func NewContext(ctx context.Context, d *Delivery) context.Context {
	return context.WithValue(ctx, contextKey{}, d)
}

// FromContext returns the delivery that ctx carries, or nil.
func FromContext(ctx context.Context) *Delivery {
	d, _ := ctx.Value(contextKey{}).(*Delivery)
	return d
}

// FromMessage returns the delivery behind msg, or nil when the message came
// from a subscriber that is not ours.
func FromMessage(msg *message.Message) *Delivery { return FromContext(msg.Context()) }
