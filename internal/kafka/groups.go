package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// ErrGroupLive is returned for a change of a group's offsets while it has members:
// they would not notice, and overwrite it.
var ErrGroupLive = errors.New("kafka: the group has members")

// Lag returns how far group is behind in every partition for which it has
// members or offsets, by topic and partition; nothing if there is no such group.
func (a *Admin) Lag(ctx context.Context, group string) ([]PartitionLag, error) {
	lags, err := a.Lags(ctx, group)
	return lags[group], err
}

// Lags is Lag for several groups, with few requests. Groups that do not exist are
// left out.
func (a *Admin) Lags(ctx context.Context, groups ...string) (map[string][]PartitionLag, error) {
	if len(groups) == 0 {
		return nil, nil // none would mean all
	}
	lags, err := a.admin.Lag(ctx, groups...)
	if err != nil {
		return nil, fmt.Errorf("lag of groups: %w", err)
	}
	all := make(map[string][]PartitionLag, len(groups))
	for group, described := range lags {
		if err := described.Error(); errors.Is(err, kerr.GroupIDNotFound) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("lag of group %s: %w", group, err)
		}
		for _, l := range described.Lag.Sorted() {
			entry := PartitionLag{Topic: l.Topic, Partition: l.Partition, Committed: l.Commit.At, End: l.End.Offset, Lag: l.Lag, Err: l.Err}
			if l.Member != nil {
				entry.Member = l.Member.ClientID
			}
			all[group] = append(all[group], entry)
		}
	}
	return all, nil
}

// FindTopics returns those of the named topics that exist.
func (a *Admin) FindTopics(ctx context.Context, names ...string) ([]Topic, error) {
	if len(names) == 0 {
		return nil, nil // none would mean all
	}
	details, err := a.admin.ListTopics(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("find topics: %w", err)
	}
	var found []Topic
	for _, d := range details.Sorted() {
		switch {
		case errors.Is(d.Err, kerr.UnknownTopicOrPartition), errors.Is(d.Err, kerr.UnknownTopicID):
			continue
		case d.Err != nil:
			return nil, fmt.Errorf("find topic %s: %w", d.Topic, d.Err)
		}
		found = append(found, Topic{Name: d.Topic, ID: d.ID, Partitions: len(d.Partitions), ReplicationFactor: d.Partitions.NumReplicas()})
	}
	return found, nil
}

// OffsetsAfter returns, per partition, the offset of the first record whose
// timestamp is at or after t, or the end where there is none.
func (a *Admin) OffsetsAfter(ctx context.Context, t time.Time, names ...string) (Offsets, error) {
	return listed(a.admin.ListOffsetsAfterMilli(ctx, t.UnixMilli(), names...))
}

// CommitFor sets offsets of a group that has no members. It returns ErrGroupLive
// when it has.
func (a *Admin) CommitFor(ctx context.Context, group, topic string, offsets map[int32]int64) error {
	described, err := a.admin.DescribeGroups(ctx, group)
	if err != nil {
		return fmt.Errorf("describe group %s: %w", group, err)
	}
	if len(described[group].Members) > 0 {
		return fmt.Errorf("set offsets of group %s: %w", group, ErrGroupLive)
	}
	commit := kadm.Offsets{}
	for partition, offset := range offsets {
		commit.AddOffset(topic, partition, offset, -1)
	}
	answer, err := a.admin.CommitOffsets(ctx, group, commit)
	if err == nil {
		err = answer.Error()
	}
	// A member that came in between is found by the broker.
	if errors.Is(err, kerr.UnknownMemberID) || errors.Is(err, kerr.IllegalGeneration) || errors.Is(err, kerr.RebalanceInProgress) {
		err = ErrGroupLive
	}
	if err != nil {
		return fmt.Errorf("set offsets of group %s: %w", group, err)
	}
	return nil
}

// OffsetsRetention returns how long brokers keep the offsets of a group that has no
// members (offsets.retention.minutes).
func (a *Admin) OffsetsRetention(ctx context.Context) (time.Duration, error) {
	meta, err := a.admin.BrokerMetadata(ctx)
	if err != nil {
		return 0, fmt.Errorf("ask how long offsets are kept: %w", err)
	}
	if len(meta.Brokers) == 0 {
		return 0, errors.New("ask how long offsets are kept: there are no brokers")
	}
	described, err := a.admin.DescribeBrokerConfigs(ctx, meta.Brokers[0].NodeID)
	if err != nil {
		return 0, fmt.Errorf("ask how long offsets are kept: %w", err)
	}
	for _, broker := range described {
		if broker.Err != nil {
			return 0, fmt.Errorf("ask how long offsets are kept: %w", broker.Err)
		}
		for _, c := range broker.Configs {
			if c.Key == "offsets.retention.minutes" {
				minutes, err := strconv.ParseInt(c.MaybeValue(), 10, 64)
				if err != nil {
					return 0, fmt.Errorf("ask how long offsets are kept: %w", err)
				}
				return milliseconds(min(minutes, math.MaxInt64/60_000) * 60_000), nil
			}
		}
	}
	return 0, errors.New("ask how long offsets are kept: the broker does not tell")
}
