package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// onAssigned is called when the group has given this member partitions and
// their committed offsets are known, before anything is fetched. It makes a
// worker for each and decides where it starts. It never fails: an error here
// would throw the member out of the group for the sake of one partition. A
// partition whose start cannot be decided now is paused instead, and its worker
// goes on trying.
func (s *Subscriber) onAssigned(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	names := make([]string, 0, len(offsets))
	for topic := range offsets {
		names = append(names, topic)
	}
	ids := s.topicIDs(ctx, names)
	fresh := s.freshOffsets(ctx, offsets)

	starts := make(map[string]map[int32]kgo.Offset, len(offsets))
	var workers sync.WaitGroup
	var mu sync.Mutex // guards the maps in starts
	for topic, partitions := range offsets {
		starts[topic] = make(map[int32]kgo.Offset, len(partitions))
		into := starts[topic]
		for id, offset := range partitions {
			workers.Go(func() {
				start, ok := s.assign(ctx, partition{topic, id}, ids[topic], offset, fresh)
				if ok {
					mu.Lock()
					defer mu.Unlock()
					into[id] = start
				}
			})
		}
	}
	workers.Wait()
	return starts, nil
}

// assign makes the worker of one partition and returns where to fetch from, or
// false if nobody is subscribed to the topic any more.
func (s *Subscriber) assign(ctx context.Context, at partition, topicID [16]byte, offset kgo.Offset, fresh kadm.ListedOffsets) (kgo.Offset, bool) {
	committed := offset.EpochOffset().Offset
	if committed < 0 {
		committed = -1
		if listed, ok := fresh.Lookup(at.topic, at.partition); ok && listed.Err == nil {
			// An exact offset lets the worker know its position from the
			// beginning, and Seek work before the first record.
			offset = kgo.NewOffset().At(listed.Offset)
		}
	}
	w := newWorker(s, at, topicID, committed)
	s.mu.Lock()
	w.mark = s.marks[at]
	s.mu.Unlock()
	start, epoch, err := w.callAssigned(ctx)
	switch {
	case err == nil && start >= 0:
		offset = kgo.NewOffset().At(start)
		fallthrough
	case err == nil:
		w.assigned(offset.EpochOffset().Offset, epoch)
		// "Latest" is decided once: without a commit the next owner would
		// decide anew and skip what was published meanwhile.
		// And where the truth lies elsewhere, the group's offset follows it at once, so
		// that lag tools do not go by one that somebody else has set.
		w.progressed = w.acked >= 0 && (start >= 0 && start != committed || committed < 0 && s.sc.StartFrom == StartLatest)
	default:
		// The client can be moved later on only if it now takes the partition
		// up at once: at an exact offset, with no leader epoch to validate. It
		// must not fetch before that.
		w.pause(pausedUnassigned)
		w.assignErr = err
		offset = kgo.NewOffset().At(max(0, offset.EpochOffset().Offset))
	}
	commit := w.progressed
	if !s.adopt(w) {
		w.resume(pausedUnassigned)
		return offset, false
	}
	if commit {
		s.commit.soon()
	}
	return offset, true
}

// adopt starts the worker, unless its subscription has ended. A worker that the
// partition has already, which the group should have revoked, is ended.
func (s *Subscriber) adopt(w *worker) bool {
	s.mu.Lock()
	sub, old := s.subscriptions[w.at.topic], s.workers[w.at]
	if sub == nil || sub.leaving || s.closed {
		s.mu.Unlock()
		return false
	}
	w.bind(sub)
	s.workers[w.at] = w
	if s.holding != nil {
		w.pause(pausedHeld)
	}
	s.mu.Unlock()
	if old != nil {
		old.abandon(errLost)
	}
	go w.run()
	return true
}

// topicIDs asks for the identity of topics; one that is unknown has the zero
// id. Only the Assigned hook, and RememberTopics, need them: records carry their own.
func (s *Subscriber) topicIDs(ctx context.Context, names []string) map[string][16]byte {
	if s.sc.Hooks.Assigned == nil && !s.sc.RememberTopics {
		return nil
	}
	ids := make(map[string][16]byte, len(names))
	ctx, cancel := context.WithTimeout(ctx, s.sc.HookTimeout)
	defer cancel()
	details, err := s.admin.ListTopics(ctx, names...)
	if err != nil {
		s.sc.Logger.Debug("look up topic ids", "group", s.sc.Group, "cause", err)
		return ids
	}
	for topic, detail := range details {
		ids[topic] = detail.ID
	}
	return ids
}

// freshOffsets returns where the partitions begin for which the group has
// committed nothing. If that cannot be asked now the client asks by itself.
func (s *Subscriber) freshOffsets(ctx context.Context, offsets map[string]map[int32]kgo.Offset) kadm.ListedOffsets {
	var names []string
	for topic, partitions := range offsets {
		for _, offset := range partitions {
			if offset.EpochOffset().Offset < 0 {
				names = append(names, topic)
				break
			}
		}
	}
	if len(names) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.sc.HookTimeout)
	defer cancel()
	listed, err := s.listStart(ctx, names...)
	if err != nil {
		s.sc.Logger.Debug("list start offsets", "group", s.sc.Group, "cause", err)
		return nil
	}
	return listed
}

// listStart returns the offsets that StartFrom stands for.
func (s *Subscriber) listStart(ctx context.Context, names ...string) (kadm.ListedOffsets, error) {
	if s.sc.StartFrom == StartLatest {
		return s.admin.ListEndOffsets(ctx, names...)
	}
	return s.admin.ListStartOffsets(ctx, names...)
}

// onRevoked is called before partitions go to another member, and with all of
// them when this one leaves. The rebalance waits for it.
func (s *Subscriber) onRevoked(_ context.Context, _ *kgo.Client, revoked map[string][]int32) {
	workers := s.find(revoked)
	if len(workers) == 0 {
		return
	}
	s.drain(workers)
	s.release(workers, false)
}

// onLost is called when the group has thrown this member out: the partitions may
// already have another owner, so nothing is waited for and nothing committed.
func (s *Subscriber) onLost(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
	workers := s.find(lost)
	for _, w := range workers {
		w.abandon(errLost)
	}
	s.commit.interrupt()
	s.release(workers, true)
}

// drain ends workers in order: no new Delivery, the one in flight may finish
// within DrainTimeout, then its context ends. It commits what was acked.
func (s *Subscriber) drain(workers []*worker) {
	for _, w := range workers {
		w.stop()
	}
	deadline, release := s.sc.Clock.After(s.sc.DrainTimeout)
	defer release()
	for _, w := range workers {
		select {
		case <-w.done:
			continue
		case <-deadline:
		}
		for _, late := range workers {
			late.abandon(errRevoked)
		}
		break
	}
	for _, w := range workers {
		<-w.done
	}
	ctx, cancel := context.WithTimeout(context.Background(), commitTimeout)
	defer cancel()
	if err := s.commit.now(ctx, workers); err != nil {
		// The next owner starts at an older offset: repetition, not loss.
		s.sc.Logger.Info("commit of revoked partitions failed, their last records will come again", "group", s.sc.Group, "cause", err)
	}
}

// release forgets ended workers, after which nothing that was fetched for them
// can reach a worker that the partition may get later. Of those that release
// the same worker, as a rebalance and Close may at once, one tells the hook.
func (s *Subscriber) release(workers []*worker, lost bool) {
	if len(workers) == 0 {
		return
	}
	var mine []*worker
	resume := map[string][]int32{}
	s.mu.Lock()
	for _, w := range workers {
		if s.workers[w.at] == w {
			delete(s.workers, w.at)
			mine = append(mine, w)
			resume[w.at.topic] = append(resume[w.at.topic], w.at.partition)
		}
	}
	s.mu.Unlock()
	s.poll.wait()
	for _, w := range workers {
		<-w.done
		w.forget()
	}
	// Pauses outlive an assignment in the client.
	s.client.ResumeFetchPartitions(resume)
	s.callRevoked(mine, lost)
}

func (s *Subscriber) callRevoked(workers []*worker, lost bool) {
	if s.sc.Hooks.Revoked == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.sc.HookTimeout)
	defer cancel()
	var hooks sync.WaitGroup
	for _, w := range workers {
		if w.ready() {
			hooks.Go(func() { s.sc.Hooks.Revoked(ctx, w.at.topic, w.at.partition, w.epoch, lost) })
		}
	}
	hooks.Wait()
}

func (s *Subscriber) find(partitions map[string][]int32) []*worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	var workers []*worker
	for topic, ids := range partitions {
		for _, id := range ids {
			if w := s.workers[partition{topic, id}]; w != nil {
				workers = append(workers, w)
			}
		}
	}
	return workers
}

// workersOf returns the workers of a topic, or all if it is empty.
func (s *Subscriber) workersOf(topic string) []*worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	workers := make([]*worker, 0, len(s.workers))
	for at, w := range s.workers {
		if topic == "" || at.topic == topic {
			workers = append(workers, w)
		}
	}
	return workers
}

// callAssigned asks what was noted with the group's offset, and then the Assigned hook,
// where to start; -1 keeps that offset.
func (w *worker) callAssigned(ctx context.Context) (start, epoch int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, w.s.sc.HookTimeout)
	defer cancel()
	start, err = w.renewal(ctx)
	hook := w.s.sc.Hooks.Assigned
	if err != nil || start >= 0 || hook == nil {
		return start, 0, err
	}
	id, err := w.identify(ctx)
	if err != nil {
		return 0, 0, err
	}
	start, epoch, err = hook(ctx, w.at.topic, id, w.at.partition, w.committed)
	if err != nil {
		return 0, 0, fmt.Errorf("assign %s/%d: %w", w.at.topic, w.at.partition, err)
	}
	return start, epoch, nil
}

// settle repeats a failed assignment until it succeeds, then moves the client to
// where the partition starts. It returns false if the partition was taken first.
func (w *worker) settle() bool {
	if w.assignErr == nil {
		w.setState(PartitionStatus{State: StateRunning})
		return true
	}
	err := w.assignErr
	for try := 1; ; try++ {
		if !w.stall(PartitionStatus{Cause: err, Offset: -1, Attempts: try}) {
			return false
		}
		var start, epoch int64
		if start, epoch, err = w.callAssigned(w.stopping); err != nil {
			continue
		}
		if start < 0 {
			if start, err = w.groupOffset(); err != nil {
				continue
			}
		}
		if !w.move(start) {
			return false
		}
		w.assigned(start, epoch)
		w.setState(PartitionStatus{State: StateRunning})
		w.resume(pausedUnassigned | pausedStalled)
		return true
	}
}

// groupOffset is where the group would start: at what it committed, else where
// StartFrom says.
func (w *worker) groupOffset() (int64, error) {
	if w.committed >= 0 {
		return w.committed, nil
	}
	ctx, cancel := context.WithTimeout(w.stopping, w.s.sc.HookTimeout)
	defer cancel()
	listed, err := w.s.listStart(ctx, w.at.topic)
	if err != nil {
		return 0, fmt.Errorf("list start offset of %s/%d: %w", w.at.topic, w.at.partition, err)
	}
	offset, ok := listed.Lookup(w.at.topic, w.at.partition)
	if !ok {
		return 0, errors.New("the broker does not list the partition")
	}
	return offset.Offset, offset.Err
}
