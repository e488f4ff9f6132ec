package kafkasource

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"golang.org/x/time/rate"

	"github.com/millrace/millrace/internal/delivery"
	"github.com/millrace/millrace/internal/ingest"
	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/internal/trigger"
)

// gather is how long changes are gathered before they are reported together, progress is
// how often offsets are that move.
const (
	gather   = 50 * time.Millisecond
	progress = time.Second
)

// member is one member of a trigger's group.
type member struct {
	s      *Source
	t      *trigger.Compiled
	log    *slog.Logger
	sub    *kafka.Subscriber
	report func(trigger.MemberReport)
	// limiter bounds messages per second; nil for no bound.
	limiter *rate.Limiter
	// changed has a token when there is something to report, moved when offsets have
	// moved, alarm when the brokers should be looked after at once.
	changed, moved, alarm chan struct{}
	// handlers are the deliveries in hand.
	handlers sync.WaitGroup
	feeds    map[string]*feed
	health   health

	mu      sync.Mutex
	cluster string
	// notes are what people should know of how partitions began.
	notes map[place]trigger.Cause
}

// place names a partition.
type place struct {
	topic     string
	partition int32
}

func (s *Source) newMember(t *trigger.Compiled, number int, report func(trigger.MemberReport)) (*member, error) {
	m := &member{
		s: s, t: t, report: report, log: s.cfg.Log.With("trigger", t.ID, "member", number),
		changed: make(chan struct{}, 1), moved: make(chan struct{}, 1), alarm: make(chan struct{}, 1),
		feeds: make(map[string]*feed), notes: make(map[place]trigger.Cause),
	}
	m.health.begin(time.Now())
	if r := t.Kafka.RateLimitPerSecond; r > 0 {
		m.limiter = rate.NewLimiter(rate.Limit(r), burst(r))
	}
	sc := s.subscriber(t, number)
	sc.Observer, sc.Logger = m, m.log
	sc.Hooks.Connected, sc.Hooks.Joined, sc.Hooks.Assigned = m.connected, m.joined, m.assigned
	var err error
	m.sub, err = kafka.NewSubscriber(s.client(t), sc)
	return m, err
}

// feed is the subscription of one topic.
type feed struct {
	end  context.CancelFunc
	done chan struct{}
}

// subscribe begins to consume a topic, which need not exist yet.
func (m *member) subscribe(topic string) error {
	ctx, end := context.WithCancel(context.Background())
	messages, err := m.sub.Subscribe(ctx, topic)
	if err != nil {
		end()
		return err
	}
	f := &feed{end: end, done: make(chan struct{})}
	m.feeds[topic] = f
	go func() {
		defer close(f.done)
		for msg := range messages {
			// One per partition is in flight at a time: the transport sees to that.
			m.handlers.Go(func() { m.handle(msg) })
		}
	}()
	return nil
}

// close leaves the group once nothing is in flight.
func (m *member) close() {
	if err := m.sub.Close(); err != nil {
		m.log.Info("the group was not told, it will notice", "error", err)
	}
	for _, f := range m.feeds {
		f.end()
		<-f.done
	}
	m.handlers.Wait()
}

// handle hands a delivery over, and says which of its records are done.
func (m *member) handle(msg *message.Message) {
	d := delivery.FromMessage(msg)
	done, err := m.create(msg.Context(), d)
	if err != nil {
		d.Settle(done)
		d.Fail(err)
		msg.Nack()
		return
	}
	msg.Ack()
	wake(m.moved)
}

// create makes the targets of a delivery's records and returns how many are done, all
// unless there is an error.
func (m *member) create(ctx context.Context, d *delivery.Delivery) (done int, err error) {
	defer func() {
		if p := recover(); p != nil {
			m.log.Error("creating panicked", "topic", d.Topic, "partition", d.Partition, "offset", d.First().Offset, "panic", p, "stack", string(debug.Stack()))
			err = &panicError{p}
		}
	}()
	if m.limiter != nil {
		if err := m.limiter.WaitN(ctx, len(d.Records)); err != nil {
			return 0, err
		}
	}
	cluster, err := m.clusterID(ctx)
	if err != nil {
		return 0, err
	}
	messages := make([]ingest.Message, len(d.Records))
	for i, r := range d.Records {
		messages[i] = Decode(cluster, r)
	}
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	outcomes, err := m.s.cfg.Creator.Create(ctx, m.t, messages)
	done = min(len(outcomes), len(messages))
	if err == nil && done < len(messages) {
		err = fmt.Errorf("only %d of %d messages have an outcome", done, len(messages))
	}
	if blocked, ok := errors.AsType[*ingest.BlockedError](err); ok {
		done = min(done, max(blocked.Index, 0))
	}
	if err != nil {
		return done, &createError{err}
	}
	return done, nil
}

// clusterID returns the name that the cluster gives itself, which does not change.
func (m *member) clusterID(ctx context.Context) (string, error) {
	m.mu.Lock()
	known := m.cluster
	m.mu.Unlock()
	if known != "" {
		return known, nil
	}
	ctx, cancel := context.WithTimeout(ctx, surveyTimeout)
	defer cancel()
	id, err := m.sub.Admin().ClusterID(ctx)
	if err != nil {
		return "", err
	}
	if id == "" {
		id = "-" // some that are not Apache Kafka have none
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cluster = id
	return id, nil
}

// assigned says where a partition begins for which the group has no offset. From a topic
// that the trigger has read before nothing may be skipped or repeated, whatever the
// definition says of a first start: it goes on where it was last, and begins partitions
// that came since, or a topic that was created anew, with their first message. Brokers forget the
// offsets of a group that was away for too long, and of a topic that is deleted.
func (m *member) assigned(ctx context.Context, topic string, topicID [16]byte, partition int32, committed int64) (start, epoch int64, err error) {
	if committed >= 0 || m.s.cfg.Positions == nil {
		return -1, 0, nil
	}
	last, err := m.s.cfg.Positions(ctx, m.t.UID)
	if err != nil {
		return 0, 0, &createError{fmt.Errorf("look up where the trigger was last: %w", err)}
	}
	at, id := place{topic, partition}, hexID(topicID)
	seen, renewed := false, true
	for _, p := range last {
		if p.Topic != topic || p.TopicID == "" {
			continue
		}
		if p.Partition == partition && p.TopicID == id {
			if p.Committed >= 0 {
				m.remark(at, expiredNote(m.t.Kafka.Group, at, p.Committed))
			}
			return max(p.Committed, -1), 0, nil
		}
		seen, renewed = true, renewed && p.TopicID != id
	}
	if !seen {
		return -1, 0, nil
	}
	if renewed {
		m.remark(at, renewedNote(at))
	}
	firsts, err := m.sub.Admin().StartOffsets(ctx, topic)
	if err != nil {
		return 0, 0, err
	}
	first, ok := firsts[topic][partition]
	if !ok {
		return 0, 0, fmt.Errorf("the brokers do not tell where %s/%d begins", topic, partition)
	}
	return first, 0, nil
}

// remark notes something about a partition for as long as the member runs.
func (m *member) remark(at place, note trigger.Cause) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.notes[at] = note
}

// createError is one of making targets, as opposed to one of reading.
type createError struct{ err error }

func (e *createError) Error() string { return e.err.Error() }
func (e *createError) Unwrap() error { return e.err }

// panicError is a panic of making targets.
type panicError struct{ value any }

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// wake puts a token into a channel that has none.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
