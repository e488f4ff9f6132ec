package kafka

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/millrace/millrace/internal/crash"
)

// committer commits acked offsets to the group: a little while after an ack, and
// at once when partitions are revoked. One commit is under way at a time, from
// gathering the offsets to the broker's answer, so that a revoked partition's
// offset cannot be sent after its last commit.
type committer struct {
	s     *Subscriber
	dirty chan struct{}
	turn  chan struct{} // holds one token: a mutex that a context can give up on

	mu     sync.Mutex
	cancel context.CancelFunc // of the commit under way
	failed bool               // the last commit failed, and that was logged
}

func (c *committer) init(s *Subscriber) {
	c.s, c.dirty, c.turn = s, make(chan struct{}, 1), make(chan struct{}, 1)
	c.turn <- struct{}{}
}

// soon has everything committed within CommitInterval.
func (c *committer) soon() {
	select {
	case c.dirty <- struct{}{}:
	default:
	}
}

// interrupt ends the commit under way: its offsets may no longer be ours.
func (c *committer) interrupt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancel != nil {
		c.cancel()
	}
}

func (c *committer) loop() {
	for {
		select {
		case <-c.dirty:
		case <-c.s.life.Done():
			return
		}
		timer := time.NewTimer(c.s.sc.CommitInterval)
		select {
		case <-timer.C:
		case <-c.s.life.Done():
			timer.Stop()
			return
		}
		ctx, cancel := context.WithTimeout(c.s.life, commitTimeout)
		err := c.now(ctx, c.s.workersOf(""))
		cancel()
		if err != nil {
			c.soon()
		}
		c.note(err)
	}
}

// note logs the first failure in a row, and the end of the row. A commit that
// the group outran is no failure.
func (c *committer) note(err error) {
	if errors.Is(err, errStaleGeneration) || errors.Is(err, context.Canceled) {
		return
	}
	c.mu.Lock()
	was := c.failed
	c.failed = err != nil
	c.mu.Unlock()
	switch {
	case err != nil && !was:
		c.s.sc.Logger.Warn("commit of offsets failed, trying on", "group", c.s.sc.Group, "cause", err)
	case err == nil && was:
		c.s.sc.Logger.Info("commit of offsets works again", "group", c.s.sc.Group)
	}
}

// now commits what the workers have acked and not committed yet.
func (c *committer) now(ctx context.Context, workers []*worker) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	select {
	case <-c.turn:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { c.turn <- struct{}{} }()
	c.mu.Lock()
	c.cancel = cancel
	c.mu.Unlock()

	member, generation := c.s.client.GroupMetadata()
	offsets, owners := gather(workers)
	if len(offsets) == 0 {
		return nil
	}
	// The fence: between gathering and sending, the group may have thrown this
	// member out and taken it back, with other partitions. The request shows
	// under which membership it goes out.
	ctx = kgo.PreCommitFnContext(ctx, func(req *kmsg.OffsetCommitRequest) error {
		if req.MemberID != member || req.Generation != generation {
			return errStaleGeneration
		}
		if c.s.sc.RememberTopics {
			for t := range req.Topics {
				for p := range req.Topics[t].Partitions {
					if w := owners[partition{req.Topics[t].Topic, req.Topics[t].Partitions[p].Partition}]; w != nil {
						w.remember(&req.Topics[t].Partitions[p])
					}
				}
			}
		}
		return nil
	})
	var err error
	c.s.client.CommitOffsetsSync(ctx, offsets, func(_ *kgo.Client, req *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, commitErr error) {
		if err = commitErr; err == nil {
			crash.At("transport.committed")
			err = settleCommit(req, resp, owners)
		}
	})
	return err
}

// gather returns the offsets that are acked but not committed, and who has them.
func gather(workers []*worker) (map[string]map[int32]kgo.EpochOffset, map[partition]*worker) {
	offsets := map[string]map[int32]kgo.EpochOffset{}
	owners := map[partition]*worker{}
	for _, w := range workers {
		w.mu.Lock()
		if w.progressed && !w.forgotten && w.acked != w.committed {
			if offsets[w.at.topic] == nil {
				offsets[w.at.topic] = map[int32]kgo.EpochOffset{}
			}
			offsets[w.at.topic][w.at.partition] = kgo.EpochOffset{Offset: w.acked, Epoch: w.ackedEpoch}
			owners[w.at] = w
		}
		w.mu.Unlock()
	}
	return offsets, owners
}

// settleCommit notes what the broker accepted and returns the first refusal.
// Requests and responses list partitions in the same order.
func settleCommit(req *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, owners map[partition]*worker) error {
	refused := map[partition]error{}
	var first error
	for i, t := range resp.Topics {
		for _, p := range t.Partitions {
			err := kerr.ErrorForCode(p.ErrorCode)
			if err == nil {
				continue
			}
			if first == nil {
				first = err
			}
			name := t.Topic
			if name == "" && i < len(req.Topics) {
				name = req.Topics[i].Topic // by id on the wire
			}
			refused[partition{name, p.Partition}] = err
		}
	}
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			at := partition{t.Topic, p.Partition}
			if w := owners[at]; w != nil && refused[at] == nil {
				w.mu.Lock()
				w.committed = p.Offset
				w.mu.Unlock()
			}
		}
	}
	return first
}
