package client

import (
	"context"
	"net/http"
	"strconv"
	"time"
)

// Consumer is how one consumer is doing in the whole installation. What cannot be
// told is nil.
type Consumer struct {
	Name       string              `json:"name"`
	Group      string              `json:"group"`
	Topic      string              `json:"topic"`
	Kind       string              `json:"kind"`
	State      string              `json:"state"`
	Lag        *int64              `json:"lag,omitempty"`
	Paused     *ConsumerPause      `json:"paused,omitempty"`
	KafkaError string              `json:"kafka_error,omitempty"`
	Partitions []ConsumerPartition `json:"partitions"`
}

// ConsumerPause is who paused a consumer, and why.
type ConsumerPause struct {
	At     time.Time `json:"at"`
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"`
}

// ConsumerPartition is one partition as a consumer sees it.
type ConsumerPartition struct {
	Partition    int32            `json:"partition"`
	State        string           `json:"state"`
	Owner        *ConsumerOwner   `json:"owner,omitempty"`
	Epoch        int64            `json:"epoch,omitempty"`
	Position     *int64           `json:"position,omitempty"`
	Committed    *int64           `json:"committed,omitempty"`
	End          *int64           `json:"end,omitempty"`
	Lag          *int64           `json:"lag,omitempty"`
	Cause        *ConsumerCause   `json:"cause,omitempty"`
	Blocked      *ConsumerBlocked `json:"blocked,omitempty"`
	StalledSince *time.Time       `json:"stalled_since,omitempty"`
	Tries        int              `json:"tries,omitempty"`
	NextTryAt    *time.Time       `json:"next_try_at,omitempty"`
	Notice       string           `json:"notice,omitempty"`
}

// ConsumerOwner is the process that has a partition.
type ConsumerOwner struct {
	Instance string    `json:"instance"`
	SeenAt   time.Time `json:"seen_at"`
	Stale    bool      `json:"stale,omitempty"`
}

// ConsumerCause is why a partition does not go on.
type ConsumerCause struct {
	Class string `json:"class"`
	Code  string `json:"code,omitempty"`
	Error string `json:"error"`
}

// ConsumerBlocked is the record that cannot be settled.
type ConsumerBlocked struct {
	Offset   int64   `json:"offset"`
	Key      *string `json:"key,omitempty"`
	KeyBytes []byte  `json:"key_bytes,omitempty"`
}

// Consumers returns how every consumer is doing, by name.
func (c *Client) Consumers(ctx context.Context) ([]Consumer, error) {
	var answer struct {
		Consumers []Consumer `json:"consumers"`
	}
	err := c.do(ctx, call{method: http.MethodGet, path: []string{"consumers"}}, &answer)
	return answer.Consumers, err
}

// Consumer returns how one consumer is doing.
func (c *Client) Consumer(ctx context.Context, name string) (Consumer, error) {
	var answer Consumer
	err := c.do(ctx, call{method: http.MethodGet, path: []string{"consumers", name}}, &answer)
	return answer, err
}

// ConsumerAction is what an action came to.
type ConsumerAction struct {
	ID        int64  `json:"id"`
	Action    string `json:"action"`
	Consumer  string `json:"consumer"`
	Topic     string `json:"topic,omitempty"`
	Partition *int32 `json:"partition,omitempty"`
	Offset    *int64 `json:"offset,omitempty"`
	Outcome   string `json:"outcome"`
	Detail    string `json:"detail,omitempty"`
}

type consumerReason struct {
	Offset *int64 `json:"offset,omitempty"`
	Reason string `json:"reason,omitempty"`
}

func (c *Client) consumerAction(ctx context.Context, body consumerReason, path ...string) (ConsumerAction, error) {
	var answer ConsumerAction
	err := c.do(ctx, call{method: http.MethodPost, path: append([]string{"consumers"}, path...), body: body}, &answer)
	return answer, err
}

// PauseConsumer has no more records handed to a consumer until ResumeConsumer.
func (c *Client) PauseConsumer(ctx context.Context, name, reason string) (ConsumerAction, error) {
	return c.consumerAction(ctx, consumerReason{Reason: reason}, name, "pause")
}

// ResumeConsumer ends a pause.
func (c *Client) ResumeConsumer(ctx context.Context, name, reason string) (ConsumerAction, error) {
	return c.consumerAction(ctx, consumerReason{Reason: reason}, name, "resume")
}

// RetryConsumer has a stalled partition tried again now.
func (c *Client) RetryConsumer(ctx context.Context, name string, partition int32, reason string) (ConsumerAction, error) {
	return c.consumerAction(ctx, consumerReason{Reason: reason}, name, "partitions", strconv.Itoa(int(partition)), "retry")
}

// DeadLetterConsumerRecord makes the record at which a partition is stalled a dead
// letter.
func (c *Client) DeadLetterConsumerRecord(ctx context.Context, name string, partition int32, offset int64, reason string) (ConsumerAction, error) {
	return c.consumerAction(ctx, consumerReason{Offset: &offset, Reason: reason}, name, "partitions", strconv.Itoa(int(partition)), "dead-letter")
}

// ConsumerSeek says where a position goes: exactly one of To ("beginning" or
// "end"), Offset and Time is set, and either Partition or AllPartitions.
type ConsumerSeek struct {
	Partition     *int32     `json:"partition,omitempty"`
	AllPartitions bool       `json:"all_partitions,omitempty"`
	To            string     `json:"to,omitempty"`
	Offset        *int64     `json:"offset,omitempty"`
	Time          *time.Time `json:"time,omitempty"`
	DryRun        bool       `json:"dry_run,omitempty"`
	Reason        string     `json:"reason,omitempty"`
}

// ConsumerSought is what a seek did, or would do.
type ConsumerSought struct {
	Consumer string         `json:"consumer"`
	Topic    string         `json:"topic"`
	Moves    []ConsumerMove `json:"moves"`
	Repeats  int64          `json:"repeats"`
	Skips    int64          `json:"skips"`
	Warnings []string       `json:"warnings,omitempty"`
	DryRun   bool           `json:"dry_run,omitempty"`
}

// ConsumerMove is what a seek does to one partition.
type ConsumerMove struct {
	Partition int32  `json:"partition"`
	From      *int64 `json:"from,omitempty"`
	To        int64  `json:"to"`
	Outcome   string `json:"outcome,omitempty"`
	Detail    string `json:"detail,omitempty"`
}

// SeekConsumer moves the position of a consumer.
func (c *Client) SeekConsumer(ctx context.Context, name string, s ConsumerSeek) (ConsumerSought, error) {
	var answer ConsumerSought
	err := c.do(ctx, call{method: http.MethodPost, path: []string{"consumers", name, "seek"}, body: s}, &answer)
	return answer, err
}
