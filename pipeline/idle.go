package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millrace/millrace/middleware"
)

// idlePositions lets the position in PostgreSQL lag behind while records pass by
// that have no effect: a consumer of one type in fifteen would otherwise write a
// transaction for each of the other fourteen. What lies between the position and
// the last such record passes by once more after a crash, which does no harm.
// The lag is bounded by maxIdleRecords and, through Processor.FlushIdle, in time.
type idlePositions struct {
	mu    sync.Mutex
	parts map[Partition]idlePosition
}

type idlePosition struct {
	epoch int64
	// next is the position as it stands in the store.
	next int64
	// passed is the position that it could have: behind the last record that had
	// no effect.
	passed int64
	at     time.Time
}

// A position may lag by this many records and, on a busy partition, this long.
const (
	maxIdleRecords = 1000
	maxIdleTime    = 5 * time.Second
)

func newIdlePositions() *idlePositions {
	return &idlePositions{parts: make(map[Partition]idlePosition)}
}

// taken notes the position with which an ownership begins.
func (p *idlePositions) taken(part Partition, pos Position, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.parts[part] = idlePosition{epoch: pos.Epoch, next: pos.Next, passed: pos.Next, at: now}
}

// mayWait reports whether the position may stay behind the flight, in which
// nothing has an effect. Where there is no position yet, it may not: that the
// store has none while Kafka has one must always mean that the store lost it.
func (p *idlePositions) mayWait(part Partition, f *middleware.Flight, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, ok := p.parts[part]
	passed := f.Items[len(f.Items)-1].Record.Offset + 1
	if !ok || at.epoch != f.Delivery.Epoch || at.next == NoOffset {
		return false
	}
	if passed-at.next > maxIdleRecords || now.Sub(at.at) > maxIdleTime {
		return false
	}
	at.passed = max(at.passed, passed)
	p.parts[part] = at
	return true
}

// moved notes that the store has a new position.
func (p *idlePositions) moved(part Partition, epoch, next int64, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.parts[part]
	if at.epoch > epoch {
		return
	}
	p.parts[part] = idlePosition{epoch: epoch, next: next, passed: max(next, at.passed), at: now}
}

func (p *idlePositions) forget(part Partition) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.parts, part)
}

// lagging returns the partitions whose position could be further on.
func (p *idlePositions) lagging() map[Partition]idlePosition {
	p.mu.Lock()
	defer p.mu.Unlock()
	late := make(map[Partition]idlePosition)
	for part, at := range p.parts {
		if at.passed > at.next {
			late[part] = at
		}
	}
	return late
}

// FlushIdle moves positions in the store that lag behind records without effect.
// The router calls it now and then and when it stops, so that a position never
// stays where retention will have removed the records.
func (p *Processor) FlushIdle(ctx context.Context) error {
	var errs []error
	for part, at := range p.idle.lagging() {
		_, err := p.cfg.Store.Apply(ctx, Work{Consumer: p.consumer.Name, Partition: part, Epoch: at.epoch, Next: at.passed})
		switch {
		case errors.Is(err, ErrFenced):
			p.idle.forget(part)
		case err != nil:
			errs = append(errs, fmt.Errorf("move position of %s/%d: %w", part.Topic, part.Partition, err))
		default:
			p.idle.moved(part, at.epoch, at.passed, p.cfg.Now())
		}
	}
	return errors.Join(errs...)
}
