package kafka

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// lane is a producing client that one call at a time has for itself. It sends
// nothing before all records of a flight lie in their partitions' buffers. That
// matters for order: when a broker refuses a batch, the client fails everything
// that is buffered behind it in the partition, so what is buffered in time
// cannot overtake.
type lane struct {
	client *kgo.Client
	closed bool // used by one call at a time

	mu       sync.Mutex
	missing  int
	buffered chan struct{}
}

func newLane(newClient func(...kgo.Opt) (*kgo.Client, error)) (*lane, error) {
	l := &lane{}
	client, err := newClient(kgo.ManualFlushing(), kgo.WithHooks(l))
	if err != nil {
		return nil, err
	}
	l.client = client
	return l, nil
}

// laneGrace is how long after the end of its context a flight may take to notice.
const laneGrace = 3 * time.Second

// send produces recs and returns the outcome of each, in their order. It does
// not return while a record may still be sent, lest the caller sends it again by
// another lane and the two overtake each other. So it returns up to laneGrace
// after ctx has ended, and the lane may then be closed.
func (l *lane) send(ctx context.Context, recs []*kgo.Record) []error {
	errs := make([]error, len(recs))
	var pending sync.WaitGroup
	pending.Add(len(recs))
	buffered := l.expect(len(recs))
	for n, rec := range recs {
		l.client.Produce(ctx, rec, func(_ *kgo.Record, err error) {
			errs[n] = err
			l.arrived() // never buffered, if its topic does not exist
			pending.Done()
		})
	}
	landed := make(chan struct{})
	go func() { //nolint:gosec // the comment below says why not ctx
		defer close(landed)
		<-buffered
		// Not with ctx: without a flush under way the client looks at no
		// record, not even to find that its context has ended.
		_ = l.client.Flush(context.Background())
		pending.Wait()
	}()
	select {
	case <-landed:
		return errs
	case <-ctx.Done():
	}
	grace := time.NewTimer(laneGrace)
	defer grace.Stop()
	select {
	case <-landed:
	case <-grace.C:
		l.closed = true
		l.client.Close() // fails what is left
		<-landed
	}
	return errs
}

func (l *lane) expect(n int) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.missing, l.buffered = n, make(chan struct{})
	return l.buffered
}

func (l *lane) arrived() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.missing--; l.missing == 0 {
		close(l.buffered)
	}
}

// OnProduceRecordPartitioned implements kgo.HookProduceRecordPartitioned.
func (l *lane) OnProduceRecordPartitioned(*kgo.Record, int32) { l.arrived() }

// acquire takes a lane, making its client when it is first used.
func (p *Publisher) acquire(ctx context.Context) (*lane, error) {
	select {
	case l := <-p.lanes:
		if l != nil {
			return l, nil
		}
		l, err := p.newLane()
		if err != nil {
			p.lanes <- nil
		}
		return l, err
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for a lane: %w", ctx.Err())
	}
}

// release gives a lane back.
func (p *Publisher) release(l *lane) {
	if l.closed {
		l = nil
	}
	p.lanes <- l
}
