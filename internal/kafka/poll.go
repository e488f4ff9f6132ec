package kafka

import (
	"context"
	"errors"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// maxInflatedBatch is up to which size a compressed batch may grow. A larger one
// is a bomb, or a mistake, and stops the partition.
const maxInflatedBatch = 256 << 20

// pollLoop takes what was fetched and gives it to the workers. It never blocks
// on a worker: a worker that has enough pauses its partition.
func (s *Subscriber) pollLoop() {
	defer s.poll.stop()
	for {
		ctx, done := s.poll.begin(s.life)
		fetches := s.client.PollRecords(ctx, 0)
		s.dispatch(fetches)
		done()
		if s.life.Err() != nil || fetches.IsClientClosed() {
			return
		}
		if n := fetches.NumRecords(); n > 0 && n < s.sc.BatchSize {
			s.gather()
		}
	}
}

// gather lets records gather at the broker and in the client before the next
// poll. It runs between two rounds of the fence, so it holds up no rebalance.
func (s *Subscriber) gather() {
	if s.sc.Gather <= 0 {
		return
	}
	over, release := s.sc.Clock.After(s.sc.Gather)
	defer release()
	select {
	case <-over:
	case <-s.life.Done():
	}
}

func (s *Subscriber) dispatch(fetches kgo.Fetches) {
	for _, fetch := range fetches {
		for _, t := range fetch.Topics {
			for _, p := range t.Partitions {
				s.dispatchPartition(t.Topic, t.TopicID, p)
			}
		}
	}
}

func (s *Subscriber) dispatchPartition(topic string, topicID [16]byte, p kgo.FetchPartition) {
	w := s.worker(partition{topic, p.Partition})
	if w == nil {
		s.noteFetchError(p.Err)
		return // revoked since it was fetched, or not about a partition
	}
	if p.Err != nil {
		w.fetchFailed(p.Err)
		return // an error comes without records, or with ones from after a gap
	}
	w.offer(topicID, p.HighWatermark, p.Records)
}

// noteFetchError logs what concerns no partition of ours: the client reports
// troubles of the group that way, and mends them by itself.
func (s *Subscriber) noteFetchError(err error) {
	if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, kgo.ErrClientClosed) {
		s.sc.Logger.Info("consumer group interrupted", "group", s.sc.Group, "cause", err)
	}
}

// stops reports whether a fetch error is one that trying again cannot mend,
// because the next record to read is not there or cannot be read.
func stops(err error) bool {
	var loss *kgo.ErrDataLoss
	var inflated *kgo.ErrDecompressTooLarge
	return errors.Is(err, kerr.OffsetOutOfRange) || errors.Is(err, kerr.UnknownTopicID) ||
		errors.As(err, &loss) || errors.As(err, &inflated)
}

// pollFence lets others wait until every record that was polled before has been
// dispatched. Callbacks of the group run beside the poll loop, so a poll may
// return records of a partition just before that is revoked, and hand them on
// after it has been assigned again, at another offset. Waiting for the fence in
// between rules that out, without holding up rebalances or polls.
type pollFence struct {
	mu      sync.Mutex
	idle    *sync.Cond
	cancel  context.CancelFunc
	round   uint64
	polling bool
	stopped bool
}

func (f *pollFence) init() { f.idle = sync.NewCond(&f.mu) }

// begin starts a round. The returned function ends it, after dispatching.
func (f *pollFence) begin(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(parent)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.round++
	f.cancel, f.polling = cancel, true
	return ctx, func() {
		cancel()
		f.mu.Lock()
		defer f.mu.Unlock()
		f.polling = false
		f.idle.Broadcast()
	}
}

func (f *pollFence) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopped = true
	f.idle.Broadcast()
}

// wait interrupts the round under way, if there is one, and returns when it has
// ended. It must not be called by the poll loop.
func (f *pollFence) wait() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.polling || f.stopped {
		return
	}
	f.cancel()
	for round := f.round; f.polling && f.round == round && !f.stopped; {
		f.idle.Wait()
	}
}
