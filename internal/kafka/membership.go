package kafka

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// connectHook passes the client's attempts to connect on.
type connectHook struct{ connected func(Connection) }

// OnBrokerConnect implements kgo.HookBrokerConnect.
func (h connectHook) OnBrokerConnect(meta kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	h.connected(Connection{Broker: meta.NodeID, Address: net.JoinHostPort(meta.Host, fmt.Sprint(meta.Port)), Err: err})
}

// groupHook passes on what keeps the client out of its group.
type groupHook struct{ joined func(error) }

// OnGroupManageError implements kgo.HookGroupManageError.
func (h groupHook) OnGroupManageError(err error) { h.joined(err) }

// leave says goodbye to the group. The client does not for a static member, which is
// expected back under its name; ours is gone for good, or begins elsewhere, so its
// partitions are better given to others at once. A member that has been replaced by its
// namesake cannot leave for it: the broker compares the member's id.
func (s *Subscriber) leave(ctx context.Context) error {
	member, _ := s.client.GroupMetadata()
	err := s.client.LeaveGroupContext(ctx)
	if member == "" {
		member, _ = s.client.GroupMetadata() // it was about to join, and the group has taken it in meanwhile
	}
	if s.sc.InstanceID == "" || member == "" || err != nil {
		return err
	}
	goodbye := kmsg.NewLeaveGroupRequestMember()
	goodbye.MemberID, goodbye.InstanceID = member, kmsg.StringPtr(s.sc.InstanceID)
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group, req.MemberID, req.Members = s.sc.Group, member, []kmsg.LeaveGroupRequestMember{goodbye}
	resp, err := req.RequestWith(ctx, s.client)
	if err != nil {
		return err
	}
	err = kerr.ErrorForCode(resp.ErrorCode)
	for _, m := range resp.Members {
		if err == nil {
			err = kerr.ErrorForCode(m.ErrorCode)
		}
	}
	if errors.Is(err, kerr.UnknownMemberID) || errors.Is(err, kerr.FencedInstanceID) {
		return nil // somebody else has the name, or the group has forgotten it
	}
	return err
}

// Admin returns an Admin over the subscriber's own connections. It must not be closed,
// and ends with the subscriber.
func (s *Subscriber) Admin() *Admin { return &Admin{cfg: s.cfg, client: s.client, admin: s.admin} }

// topicMark begins the metadata of an offset that says of which topic it is.
const topicMark = "topic_id="

// mark is the metadata of an offset in a topic of that identity.
func mark(topicID [16]byte) string { return topicMark + hex.EncodeToString(topicID[:]) }

// onOffsets keeps what was noted with the group's offsets until onAssigned needs it.
func (s *Subscriber) onOffsets(_ context.Context, _ *kgo.Client, resp *kmsg.OffsetFetchResponse) error {
	marks := map[partition]string{}
	note := func(topic string, id int32, metadata *string) {
		if metadata != nil && strings.HasPrefix(*metadata, topicMark) {
			marks[partition{topic, id}] = *metadata
		}
	}
	for _, group := range resp.Groups {
		for _, t := range group.Topics {
			name := t.Topic
			if name == "" {
				name = s.topicName(t.TopicID)
			}
			for _, p := range t.Partitions {
				note(name, p.Partition, p.Metadata)
			}
		}
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			note(t.Topic, p.Partition, p.Metadata)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.marks = marks
	return nil
}

// topicName is the name under which the client consumes a topic.
func (s *Subscriber) topicName(id [16]byte) string {
	ctx, cancel := context.WithTimeout(s.life, s.sc.HookTimeout)
	defer cancel()
	details, err := s.admin.ListTopics(ctx, s.client.GetConsumeTopics()...)
	if err != nil {
		s.sc.Logger.Debug("look up topic names", "group", s.sc.Group, "cause", err)
	}
	for _, detail := range details {
		if detail.ID == id {
			return detail.Topic
		}
	}
	return ""
}

// remember has an offset that goes to the broker carry the identity of its topic.
func (w *worker) remember(p *kmsg.OffsetCommitRequestTopicPartition) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.topicID != ([16]byte{}) {
		p.Metadata = kmsg.StringPtr(mark(w.topicID))
	}
}

// renewal returns the first offset of the partition if the group's offset is of a topic
// of that name that is gone, and -1 otherwise.
func (w *worker) renewal(ctx context.Context) (int64, error) {
	if !w.s.sc.RememberTopics {
		return -1, nil
	}
	id, err := w.identify(ctx)
	if err != nil {
		return 0, err
	}
	if w.committed < 0 || w.mark == "" || w.mark == mark(id) {
		w.mark = ""
		return -1, nil
	}
	listed, err := w.s.admin.ListStartOffsets(ctx, w.at.topic)
	if err != nil {
		return 0, fmt.Errorf("list start offset of %s/%d: %w", w.at.topic, w.at.partition, err)
	}
	offset, ok := listed.Lookup(w.at.topic, w.at.partition)
	if !ok {
		return 0, fmt.Errorf("list start offset of %s/%d: the broker does not list the partition", w.at.topic, w.at.partition)
	}
	if offset.Err != nil {
		return 0, fmt.Errorf("list start offset of %s/%d: %w", w.at.topic, w.at.partition, offset.Err)
	}
	w.mark = ""
	w.mu.Lock()
	defer w.mu.Unlock()
	w.renewed = true
	return offset.Offset, nil
}

// identify returns the identity of the partition's topic, and asks for it unless it is
// known.
func (w *worker) identify(ctx context.Context) ([16]byte, error) {
	w.mu.Lock()
	id := w.topicID
	w.mu.Unlock()
	if id != ([16]byte{}) {
		return id, nil
	}
	id = w.s.topicIDs(ctx, []string{w.at.topic})[w.at.topic]
	if id == ([16]byte{}) {
		return id, fmt.Errorf("assign %s/%d: the id of the topic is not known", w.at.topic, w.at.partition)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.topicID = id
	return id, nil
}
