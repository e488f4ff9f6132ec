package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace/millrace/topics"
)

const (
	// sharedCallLimit is up to how many records a call may use the shared
	// client.
	sharedCallLimit = 16
	// laneFlightLimit is how many records of one call are in a lane's hands at
	// once; a longer call takes several flights.
	laneFlightLimit = 10_000
)

// publishCall is one PublishRecords: which records are still to be sent, which
// failed, and which keys may not go on.
type publishCall struct {
	caller context.Context // the caller's
	ctx    context.Context // which also ends with DeliveryTimeout
	p      *Publisher
	recs   []topics.Record
	errs   []error
	failed int
	held   map[topicKey]bool
}

type topicKey struct{ topic, key string }

func newPublishCall(caller, ctx context.Context, p *Publisher, recs []topics.Record) *publishCall {
	return &publishCall{caller: caller, ctx: ctx, p: p, recs: recs, errs: make([]error, len(recs)), held: map[topicKey]bool{}}
}

func (c *publishCall) run() {
	todo := make([]int, 0, len(c.recs))
	for i, rec := range c.recs {
		if size := encodedSize(rec); size > c.p.cfg.MaxMessageBytes {
			// Found here rather than by the client, so that later records of
			// its key are held back too.
			c.fail(i, fmt.Errorf("record of about %d bytes, at most %d are allowed: %w", size, c.p.cfg.MaxMessageBytes, kerr.MessageTooLarge))
			continue
		}
		todo = append(todo, i)
		c.failIfHeld(&todo)
	}
	if len(todo) <= sharedCallLimit && c.keysDiffer(todo) {
		c.resolve(nil, todo)
		return
	}
	on, err := c.p.acquire(c.ctx)
	if err != nil {
		for _, i := range todo {
			c.fail(i, err)
		}
		return
	}
	defer c.p.release(on)
	for len(todo) > 0 {
		n := min(len(todo), laneFlightLimit)
		c.resolve(on, todo[:n])
		todo = todo[n:]
	}
}

// failIfHeld drops the last entry of todo if its key may not go on.
func (c *publishCall) failIfHeld(todo *[]int) {
	last := len(*todo) - 1
	if i := (*todo)[last]; c.isHeld(i) {
		c.fail(i, ErrHeldBack)
		*todo = (*todo)[:last]
	}
}

// resolve sends the records and, where a broker blamed the content of a batch,
// halves what it refused until the guilty ones stand alone. One guilty record
// among n costs about log2(n) further round trips.
func (c *publishCall) resolve(on *lane, todo []int) {
	send := make([]int, 0, len(todo))
	for _, i := range todo {
		send = append(send, i)
		c.failIfHeld(&send)
	}
	if len(send) == 0 {
		return
	}
	errs := c.send(on, send)
	var suspects []int
	for n, i := range send {
		switch {
		case errs[n] == nil:
		case isRecordFault(errs[n]) && len(send) > 1:
			suspects = append(suspects, i)
		default:
			c.fail(i, errs[n])
		}
	}
	if len(suspects) == 0 {
		return
	}
	half := (len(suspects) + 1) / 2
	c.resolve(on, suspects[:half])
	c.resolve(on, suspects[half:])
}

// send produces the records together, on a lane or if that is nil on the shared
// client, and waits for the outcome of each.
func (c *publishCall) send(on *lane, todo []int) []error {
	recs := make([]*kgo.Record, len(todo))
	for n, i := range todo {
		recs[n] = toClient(c.recs[i])
	}
	if on != nil {
		errs := on.send(c.ctx, recs)
		if !on.closed {
			forgetReplaced(on.client, recs, errs)
		}
		return errs
	}
	// A cancelled record takes all records behind it along, other callers' too.
	// So the caller's context ends the waiting here and not the record.
	ctx, cancel := context.WithTimeout(context.Background(), c.p.cfg.DeliveryTimeout)
	errs := make([]error, len(todo))
	var pending sync.WaitGroup
	pending.Add(len(todo))
	for n, rec := range recs {
		c.p.shared.Produce(ctx, rec, func(_ *kgo.Record, err error) {
			errs[n] = err
			pending.Done()
		})
	}
	done := make(chan struct{})
	go func() { pending.Wait(); cancel(); close(done) }()
	select {
	case <-done:
		forgetReplaced(c.p.shared, recs, errs)
		return errs
	case <-c.caller.Done():
		return repeat(fmt.Errorf("outcome unknown: %w", c.caller.Err()), len(todo))
	}
}

// forgetReplaced makes the client forget topics that were deleted and created again:
// it refuses for ever to write to another topic than the one it knew by that name.
// To a publisher they are the same; readers, whose offsets mean nothing in the new
// one, stop by themselves.
func forgetReplaced(client *kgo.Client, recs []*kgo.Record, errs []error) {
	replaced := map[string]bool{}
	for n, err := range errs {
		if errors.Is(err, kerr.UnknownTopicID) {
			replaced[recs[n].Topic] = true
		}
	}
	if len(replaced) > 0 {
		client.PurgeTopicsFromProducing(slices.Collect(maps.Keys(replaced))...)
	}
}

func (c *publishCall) fail(i int, err error) {
	c.errs[i] = err
	c.failed++
	if rec := c.recs[i]; rec.Key != nil {
		c.held[topicKey{rec.Topic, string(rec.Key)}] = true
	}
}

func (c *publishCall) isHeld(i int) bool {
	rec := c.recs[i]
	return len(c.held) > 0 && rec.Key != nil && c.held[topicKey{rec.Topic, string(rec.Key)}]
}

func (c *publishCall) keysDiffer(todo []int) bool {
	seen := make(map[topicKey]bool, len(todo))
	for _, i := range todo {
		rec := c.recs[i]
		key := topicKey{rec.Topic, string(rec.Key)}
		// Records without a key have no order that could break.
		if rec.Key != nil && seen[key] {
			return false
		}
		seen[key] = true
	}
	return true
}
