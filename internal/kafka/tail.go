package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace/millrace/topics"
)

// Offsets holds one offset per partition of each topic.
type Offsets map[string]map[int32]int64

// Clone returns a copy that shares nothing with o.
func (o Offsets) Clone() Offsets {
	out := make(Offsets, len(o))
	for topic, partitions := range o {
		out[topic] = maps.Clone(partitions)
	}
	return out
}

// TailConfig says what a Tail reads and from where.
type TailConfig struct {
	// Topics to read, all of their partitions as they are when the tail is made.
	Topics []string
	// From is where to begin, for partitions that Offsets does not name.
	// Defaults to StartLatest.
	From StartFrom
	// Offsets are exact offsets to begin at. One that is not in the log makes
	// NewTail fail with *OutOfRangeError.
	Offsets Offsets
}

// Tail reads topics without a group: nothing is committed, every Tail sees every
// record. Records of a partition come in order; partitions are interleaved as
// they arrive.
type Tail struct {
	client *kgo.Client
	once   sync.Once

	mu        sync.Mutex
	positions Offsets
}

// NewTail asks the brokers where to begin and returns a tail that will start
// exactly there, whatever is published until Run is called.
func NewTail(ctx context.Context, cfg Config, tc TailConfig) (*Tail, error) {
	if len(tc.Topics) == 0 {
		return nil, errors.New("kafka tail: no topics")
	}
	start, err := tailStart(ctx, cfg, tc)
	if err != nil {
		return nil, fmt.Errorf("kafka tail: %w", err)
	}
	cfg = cfg.WithDefaults()
	exact := make(map[string]map[int32]kgo.Offset, len(start))
	for topic, partitions := range start {
		exact[topic] = make(map[int32]kgo.Offset, len(partitions))
		for id, offset := range partitions {
			exact[topic][id] = kgo.NewOffset().At(offset)
		}
	}
	client, err := cfg.newClient(
		kgo.AlwaysRetryEOF(),
		kgo.ConsumePartitions(exact),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchMaxWait(cfg.FetchMaxWait),
		kgo.MaxDecompressBatchBytes(maxInflatedBatch),
		// The end of a transaction has an offset too: Positions goes past it.
		kgo.KeepControlRecords(),
	)
	if err != nil {
		return nil, err
	}
	return &Tail{client: client, positions: start}, nil
}

func tailStart(ctx context.Context, cfg Config, tc TailConfig) (Offsets, error) {
	client, err := cfg.newClient()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	low, err := listed(admin.ListStartOffsets(ctx, tc.Topics...))
	if err != nil {
		return nil, err
	}
	high, err := listed(admin.ListEndOffsets(ctx, tc.Topics...))
	if err != nil {
		return nil, err
	}
	start := high.Clone()
	if tc.From == StartEarliest {
		start = low.Clone()
	}
	for topic, partitions := range tc.Offsets {
		for id, offset := range partitions {
			if _, ok := start[topic][id]; !ok {
				return nil, fmt.Errorf("start at offset %d of %s/%d: there is no such partition", offset, topic, id)
			}
			if offset < low[topic][id] || offset > high[topic][id] {
				return nil, &OutOfRangeError{Topic: topic, Partition: id, Offset: offset, Low: low[topic][id], High: high[topic][id], Err: kerr.OffsetOutOfRange}
			}
			start[topic][id] = offset
		}
	}
	return start, nil
}

// listed turns an answer to ListOffsets into Offsets, or the first error in it.
func listed(answer kadm.ListedOffsets, err error) (Offsets, error) {
	if err != nil {
		return nil, fmt.Errorf("list offsets: %w", err)
	}
	if err := answer.Error(); err != nil {
		return nil, fmt.Errorf("list offsets: %w", err)
	}
	out := Offsets{}
	answer.Each(func(o kadm.ListedOffset) {
		if out[o.Topic] == nil {
			out[o.Topic] = map[int32]int64{}
		}
		out[o.Topic][o.Partition] = o.Offset
	})
	return out, nil
}

// Run calls each for every record until ctx ends, each fails, or the log no
// longer holds what comes next (*OutOfRangeError). It returns nil when ctx
// ended. Outages of the brokers are waited out. Run may be called again and goes
// on behind the last record for which each returned nil.
func (t *Tail) Run(ctx context.Context, each func(topics.Record) error) error {
	for {
		fetches := t.client.PollRecords(ctx, 0)
		if fetches.IsClientClosed() {
			return ErrClosed
		}
		if err := t.firstError(fetches); err != nil {
			return err
		}
		for _, fetch := range fetches {
			for _, topic := range fetch.Topics {
				for _, p := range topic.Partitions {
					if err := t.hand(topic.TopicID, p.Records, each); err != nil {
						t.rewind()
						return err
					}
				}
			}
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}

// hand gives records to each. Those behind the position already are skipped:
// they were polled before a rewind.
func (t *Tail) hand(topicID [16]byte, records []*kgo.Record, each func(topics.Record) error) error {
	for _, r := range records {
		t.mu.Lock()
		position := t.positions[r.Topic][r.Partition]
		t.mu.Unlock()
		if r.Offset < position {
			continue
		}
		if !r.Attrs.IsControl() {
			if err := each(fromClient(r, topicID)); err != nil {
				return err
			}
		}
		t.mu.Lock()
		t.positions[r.Topic][r.Partition] = r.Offset + 1
		t.mu.Unlock()
	}
	return nil
}

// rewind moves the client back to the positions: it has polled further.
func (t *Tail) rewind() {
	set := map[string]map[int32]kgo.EpochOffset{}
	for topic, partitions := range t.Positions() {
		set[topic] = map[int32]kgo.EpochOffset{}
		for id, offset := range partitions {
			set[topic][id] = kgo.EpochOffset{Epoch: -1, Offset: offset}
		}
	}
	t.client.SetOffsets(set)
}

// firstError returns the first fetch error that waiting cannot mend.
func (t *Tail) firstError(fetches kgo.Fetches) error {
	for _, e := range fetches.Errors() {
		switch {
		case errors.Is(e.Err, context.Canceled), errors.Is(e.Err, context.DeadlineExceeded):
		case errors.Is(e.Err, kerr.UnknownTopicID):
			return fmt.Errorf("tail %s: %w", e.Topic, ErrTopicReplaced)
		case stops(e.Err):
			t.mu.Lock()
			offset := t.positions[e.Topic][e.Partition]
			t.mu.Unlock()
			return &OutOfRangeError{Topic: e.Topic, Partition: e.Partition, Offset: offset, Low: -1, High: -1, Err: e.Err}
		default:
			return fmt.Errorf("tail %s/%d: %w", e.Topic, e.Partition, e.Err)
		}
	}
	return nil
}

// Positions returns, per partition, the offset behind the last record that each
// has taken, and behind the end of a transaction that follows it: what a later Tail needs in TailConfig.Offsets to go on without a
// gap or a repetition.
func (t *Tail) Positions() Offsets {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.positions.Clone()
}

// Close releases the connections and makes Run return ErrClosed.
func (t *Tail) Close() {
	t.once.Do(t.client.Close)
}
