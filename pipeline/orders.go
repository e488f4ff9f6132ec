package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/topics"
)

var (
	// ErrNotBlocked: the partition is not, or no longer, stalled at that record.
	ErrNotBlocked = errors.New("the partition is not stalled at this record")
	// ErrOrderLapsed: the order was not carried out in time, or the partition went
	// to another process.
	ErrOrderLapsed = errors.New("the order was not carried out in time")
)

// DeadLetterOrder is somebody's decision that the record at which a partition is
// stalled is to become a dead letter. It is about that record and no other: where
// the record succeeds first, the order comes to nothing.
type DeadLetterOrder struct {
	Partition int32
	Offset    int64
	// Actor and Reason go into the letter.
	Actor, Reason string
	// Until is when the order lapses.
	Until time.Time
	// InTx, if set, runs in the transaction that files the letter; its error undoes
	// that, and one that wraps ErrOrderLapsed the order too. It is not called for On
	// consumers.
	InTx func(ctx context.Context, tx StoreTx) error
	// Done is called once: with nil when the letter is durable, with ErrNotBlocked
	// when the record was settled otherwise, or with ErrOrderLapsed. It must not
	// block.
	Done func(err error)
}

// OrderedError is what a letter says that somebody has ordered.
type OrderedError struct {
	Actor, Reason string
	// Last is what the record failed with before.
	Last string
}

// Error names who gave the order, and why.
func (e *OrderedError) Error() string {
	return fmt.Sprintf("dead-lettered by %s: %s (before: %s)", e.Actor, e.Reason, e.Last)
}

// orders are the open orders of one consumer, one per partition.
type orders struct {
	status *statusBoard
	now    func() time.Time

	mu   sync.Mutex
	open map[int32]*order
}

type order struct {
	DeadLetterOrder
	class Class
	err   error
}

func newOrders(status *statusBoard, now func() time.Time) *orders {
	return &orders{status: status, now: now, open: make(map[int32]*order)}
}

// add takes an order on. A repeated one replaces the one before.
func (o *orders) add(d DeadLetterOrder) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	// Under the lock, as settle is: either the stall is over by now, or whatever
	// ends it finds the order.
	stall, stalled := o.status.stall(d.Partition)
	if !stalled || stall.Offset != d.Offset {
		return ErrNotBlocked
	}
	own := &order{DeadLetterOrder: d, class: HandlerFault,
		err: &OrderedError{Actor: d.Actor, Reason: d.Reason, Last: stall.Error}}
	for _, class := range []Class{MessageFault, InfrastructureFault} {
		if class.String() == stall.Class {
			own.class = class
		}
	}
	o.open[d.Partition] = own
	return nil
}

// at returns the order about a record.
func (o *orders) at(r topics.Record) *order {
	o.mu.Lock()
	defer o.mu.Unlock()
	own := o.open[r.Partition]
	if own == nil || own.Offset != r.Offset {
		return nil
	}
	if !o.now().Before(own.Until) {
		o.end(own, ErrOrderLapsed)
		return nil
	}
	return own
}

// condemned is middleware.Config.Condemned.
func (o *orders) condemned(r topics.Record) (Class, error, bool) {
	own := o.at(r)
	if own == nil {
		return 0, nil, false
	}
	return own.class, own.err, true
}

// with returns what belongs into the transaction of a record's letter.
func (o *orders) with(r topics.Record) func(context.Context, StoreTx) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	own := o.open[r.Partition]
	if own == nil || own.Offset != r.Offset || own.InTx == nil {
		return nil
	}
	return func(ctx context.Context, tx StoreTx) error {
		err := own.InTx(ctx, tx)
		if errors.Is(err, ErrOrderLapsed) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.end(own, err)
		}
		return err
	}
}

// settle ends the order whose record a flight has settled, one way or the other.
func (o *orders) settle(f *middleware.Flight, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	own := o.open[f.Delivery.Partition]
	if own == nil {
		return
	}
	for i := range f.Items {
		item := &f.Items[i]
		if item.Record.Offset != own.Offset {
			continue
		}
		switch {
		case item.Outcome == middleware.DeadLettered:
			o.end(own, nil)
		case item.Outcome != middleware.Open || err == nil:
			o.end(own, ErrNotBlocked)
		}
		return
	}
	// The partition is somewhere else.
	o.end(own, ErrNotBlocked)
}

// release ends the order of a partition that is no longer ours.
func (o *orders) release(partition int32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if own := o.open[partition]; own != nil {
		o.end(own, ErrOrderLapsed)
	}
}

// end drops an order. The lock is held.
func (o *orders) end(own *order, err error) {
	if o.open[own.Partition] != own {
		return
	}
	delete(o.open, own.Partition)
	if own.Done != nil {
		own.Done(err)
	}
}
