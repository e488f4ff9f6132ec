package kafkasource

import (
	"context"
	"encoding/hex"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/internal/trigger"
)

// surveyTimeout bounds one question to the brokers.
const surveyTimeout = 5 * time.Second

// run subscribes, and reports until ctx ends.
func (m *member) run(ctx context.Context) {
	defer m.close()
	m.publish()
	for _, topic := range m.t.Kafka.Topics {
		if err := m.subscribe(topic); err != nil {
			// Not before Close, and once per topic: it cannot be.
			m.log.Error("a topic was not subscribed", "topic", topic, "error", err)
		}
	}
	surveys := make(chan findings, 1)
	var surveying sync.WaitGroup
	defer surveying.Wait()
	survey := func() { surveying.Go(func() { surveys <- m.survey(ctx) }) }
	survey()
	asking, again := true, false // a survey is under way; another one is wanted after it
	var due, report, move <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			m.farewell()
			return
		case f := <-surveys:
			asking = false
			pause := m.settle(f)
			if again {
				pause, again = min(pause, m.s.cfg.BackoffInitial), false
			}
			due = time.After(pause)
			m.renew(ctx)
			report = soon(report)
		case <-due:
			due, asking = nil, true
			survey()
		case <-m.alarm:
			if asking {
				again = true
			} else {
				due, asking = nil, true
				survey()
			}
		case <-m.changed:
			report = soon(report)
		case <-m.moved:
			if move == nil {
				move = time.After(progress)
			}
		case <-report:
			report = nil
			m.publish()
		case <-move:
			move = nil
			m.publish()
		}
	}
}

// soon is a timer that runs out once changes were gathered.
func soon(running <-chan time.Time) <-chan time.Time {
	if running != nil {
		return running
	}
	return time.After(gather)
}

// findings are what a survey found.
type findings struct {
	err     error
	missing []string
	ids     map[string][16]byte
}

func (f findings) well() bool { return f.err == nil && len(f.missing) == 0 }

// survey asks the brokers whether they can be reached, and for the topics.
func (m *member) survey(ctx context.Context) findings {
	ctx, cancel := context.WithTimeout(ctx, surveyTimeout)
	defer cancel()
	admin := m.sub.Admin()
	// Ping tries every broker once, so its error is theirs and not that time was up.
	if err := admin.Ping(ctx); err != nil {
		return findings{err: err}
	}
	found, err := admin.FindTopics(ctx, m.t.Kafka.Topics...)
	if err != nil {
		return findings{err: err}
	}
	f := findings{ids: make(map[string][16]byte, len(found))}
	for _, topic := range found {
		f.ids[topic.Name] = topic.ID
	}
	for _, topic := range m.t.Kafka.Topics {
		if _, ok := f.ids[topic]; !ok {
			f.missing = append(f.missing, topic)
		}
	}
	if err := m.sub.RefreshEnds(ctx); err != nil {
		m.log.Debug("ends of partitions are not known", "error", err)
	}
	return f
}

// settle notes the findings of a survey and says when to look again.
func (m *member) settle(f findings) time.Duration {
	pause := m.s.cfg.SurveyInterval
	if !f.well() {
		pause = m.s.cfg.BackoffInitial
		for range min(m.health.attempts(), 10) {
			pause = min(2*pause, m.s.cfg.SurveyInterval)
		}
	} else if slices.ContainsFunc(m.sub.Status(), unfinished) {
		pause = min(pause, 5*m.s.cfg.BackoffInitial) // lag grows, a topic may come back
	}
	if !m.health.belongs() {
		pause = min(pause, groupGrace)
	}
	// Triggers that lose their brokers together need not ask for them together.
	pause -= time.Duration(rand.Int64N(int64(pause)/4 + 1))
	m.health.observed(f, time.Now(), pause)
	return pause
}

// unfinished reports whether the next survey may tell something of a partition.
func unfinished(st kafka.PartitionStatus) bool { return stands(st) || st.HighWatermark < 0 }

func stands(st kafka.PartitionStatus) bool { return st.State != kafka.StateRunning }

// renew takes up anew topics that were deleted and created again. The client keeps to the
// identity under which it has found a topic until it gives the topic up, and takes its time
// to find out.
func (m *member) renew(ctx context.Context) {
	for _, topic := range m.t.Kafka.Topics {
		id, known := m.health.topicID(topic)
		if !known || m.feeds[topic] == nil || ctx.Err() != nil || !replaced(m.sub.Status(), topic, id) {
			continue
		}
		m.log.Warn("the topic was created anew, its messages are read from the first", "topic", topic)
		m.feeds[topic].end()
		<-m.feeds[topic].done
		delete(m.feeds, topic)
		if err := m.subscribe(topic); err != nil {
			m.log.Error("a topic was not subscribed", "topic", topic, "error", err)
		}
	}
}

// replaced reports whether a topic has got another identity than the one under which it is
// read, and nothing of the former one is in hand: what was fetched before the topic was
// deleted is made yet, and is nowhere else.
func replaced(statuses []kafka.PartitionStatus, topic string, id [16]byte) bool {
	found := false
	for _, st := range statuses {
		switch {
		case st.Topic != topic:
		case st.TopicID == ([16]byte{}) || st.TopicID == id:
			return false
		case st.State == kafka.StateStalled || st.State == kafka.StateRunning && st.Prefetched > 0:
			return false
		default:
			found = true
		}
	}
	return found
}

// PartitionChanged implements kafka.Observer.
func (m *member) PartitionChanged(st kafka.PartitionStatus) {
	wake(m.changed)
	if unfinished(st) && st.Attempts <= 1 {
		wake(m.alarm)
	}
}

// connected is the subscriber's hook.
func (m *member) connected(c kafka.Connection) {
	if m.health.connected(c, time.Now()) {
		wake(m.alarm)
	}
	wake(m.changed)
}

// joined is the subscriber's hook.
func (m *member) joined(err error) {
	if m.health.joined(err, time.Now()) {
		wake(m.alarm)
	}
	wake(m.changed)
}

// publish reports.
func (m *member) publish() { m.report(m.state()) }

// farewell reports how far everything has come: the brokers may have forgotten the offsets of
// the group when somebody reads on, and what was reported before may be older, or not know yet
// where a partition without offsets began. What is still in hand comes again then, and is known.
func (m *member) farewell() {
	r := m.state()
	for i := range r.Partitions {
		p := &r.Partitions[i]
		p.Committed = max(p.Committed, p.Offset)
	}
	m.report(r)
}

// state is how the member is doing.
func (m *member) state() trigger.MemberReport {
	var r trigger.MemberReport
	m.health.into(&r, m.t, time.Now())
	r.Effective = m.t.Settings()
	for _, st := range m.sub.Status() {
		r.Partitions = append(r.Partitions, m.partition(st))
		at := place{st.Topic, st.Partition}
		if st.Renewed {
			m.remark(at, renewedNote(at))
		}
		m.mu.Lock()
		note, ok := m.notes[at]
		m.mu.Unlock()
		if ok {
			r.Notes = append(r.Notes, note)
		}
	}
	return r
}

// partition is how a partition is doing. It runs once a message was taken, or there is
// none to take.
func (m *member) partition(st kafka.PartitionStatus) trigger.PartitionReport {
	r := trigger.PartitionReport{
		Topic: st.Topic, Partition: st.Partition, TopicID: hexID(st.TopicID), State: trigger.StateRunning,
		Offset: st.Position, Committed: st.Committed, End: st.HighWatermark, Since: st.Since,
	}
	if st.Acked == 0 && (st.HighWatermark < 0 || st.Position < st.HighWatermark) {
		// Whether the message that another owner could not take can be taken now, nobody
		// knows yet.
		r.State = trigger.StateStarting
	}
	if stands(st) {
		r.State, r.Cause = trigger.StateError, m.cause(st)
		r.Key, r.Attempts, r.NextTry = st.Key, st.Attempts, st.NextTry
		if st.Offset >= 0 {
			r.Offset = st.Offset
		}
	}
	return r
}

// cause says why a partition stands.
func (m *member) cause(st kafka.PartitionStatus) *trigger.Cause {
	if kafka.TroubleOf(st.Cause) == kafka.TroubleTopicReplaced && m.health.misses(st.Topic) {
		return missingCause([]string{st.Topic})
	}
	return partitionCause(m.t, st)
}

func hexID(id [16]byte) string {
	if id == ([16]byte{}) {
		return ""
	}
	return hex.EncodeToString(id[:])
}
