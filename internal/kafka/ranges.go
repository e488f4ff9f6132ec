package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace/millrace/topics"
)

// Range is a stretch of a partition: From and above, below To. TopicID is the
// identity that the topic must have.
type Range struct {
	Topic     string
	TopicID   [16]byte
	Partition int32
	From, To  int64
}

// RangePiece is what a RangeReader brings of one range.
type RangePiece struct {
	// Range is its number.
	Range   int
	Records []topics.Record
	// Next is behind all that was read, Over says that nothing follows before the end.
	Next int64
	Over bool
}

// RangeReader reads stretches of partitions without a group: nothing is committed.
// Records of a range come in order. Those that the log no longer has are an error, not
// a gap.
type RangeReader struct {
	client *kgo.Client
	once   sync.Once
	ranges []Range
	number map[partition]int
	next   []int64
	over   []bool
	// ahead is how many records were brought of each range since it was last wanted.
	ahead  []int
	paused []bool
}

// maxAhead is how many records of a range are brought that nobody wants yet: the
// other ranges are read meanwhile.
const maxAhead = 2000

// NewRangeReader returns a reader. It does not connect.
func NewRangeReader(cfg Config, ranges []Range) (*RangeReader, error) {
	r := &RangeReader{
		ranges: ranges, number: make(map[partition]int, len(ranges)), next: make([]int64, len(ranges)),
		over: make([]bool, len(ranges)), ahead: make([]int, len(ranges)), paused: make([]bool, len(ranges)),
	}
	exact := make(map[string]map[int32]kgo.Offset)
	for i, x := range ranges {
		r.number[partition{x.Topic, x.Partition}], r.next[i], r.over[i] = i, x.From, x.From >= x.To
		if r.over[i] {
			continue
		}
		if exact[x.Topic] == nil {
			exact[x.Topic] = make(map[int32]kgo.Offset)
		}
		exact[x.Topic][x.Partition] = kgo.NewOffset().At(x.From)
	}
	cfg = cfg.WithDefaults()
	client, err := cfg.newClient(
		kgo.AlwaysRetryEOF(),
		kgo.ConsumePartitions(exact),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.KeepControlRecords(), // they take places, and the last place of a range may be one
		kgo.FetchMaxWait(cfg.FetchMaxWait),
		kgo.MaxDecompressBatchBytes(maxInflatedBatch),
	)
	if err != nil {
		return nil, err
	}
	r.client = client
	return r, nil
}

// Next waits for records of any range and returns them. Ranges in wanted are read, and
// others as far ahead as memory allows. It returns nothing when ctx ends. The error
// wraps ErrTopicReplaced or is *OutOfRangeError where what comes next is gone. Outages
// of the brokers are waited out.
func (r *RangeReader) Next(ctx context.Context, wanted []int) ([]RangePiece, error) {
	r.turn(wanted)
	for {
		fetches := r.client.PollRecords(ctx, maxAhead)
		if ctx.Err() != nil && fetches.Empty() {
			return nil, nil
		}
		if fetches.IsClientClosed() {
			return nil, fmt.Errorf("read ranges: %w", ErrClosed)
		}
		var pieces []RangePiece
		for _, fetch := range fetches {
			for _, topic := range fetch.Topics {
				for _, p := range topic.Partitions {
					piece, ok, err := r.take(topic.Topic, topic.TopicID, p)
					if err != nil {
						return pieces, err
					}
					if ok {
						pieces = append(pieces, piece)
					}
				}
			}
		}
		if len(pieces) > 0 {
			return pieces, nil
		}
	}
}

// turn lets those ranges be fetched that are wanted, or that are not far ahead.
func (r *RangeReader) turn(wanted []int) {
	for _, i := range wanted {
		r.ahead[i] = 0
		if r.paused[i] && !r.over[i] {
			r.paused[i] = false
			r.client.ResumeFetchPartitions(map[string][]int32{r.ranges[i].Topic: {r.ranges[i].Partition}})
		}
	}
	for i := range r.ranges {
		if !r.paused[i] && (r.over[i] || r.ahead[i] >= maxAhead) {
			r.paused[i] = true
			r.client.PauseFetchPartitions(map[string][]int32{r.ranges[i].Topic: {r.ranges[i].Partition}})
		}
	}
}

// take takes over what was fetched of a partition.
func (r *RangeReader) take(topic string, topicID [16]byte, p kgo.FetchPartition) (RangePiece, bool, error) {
	i, known := r.number[partition{topic, p.Partition}]
	if !known || r.over[i] {
		return RangePiece{}, false, nil
	}
	x := r.ranges[i]
	if p.Err != nil {
		return RangePiece{}, false, r.fault(i, p.Err)
	}
	if topicID != x.TopicID && topicID != ([16]byte{}) {
		return RangePiece{}, false, fmt.Errorf("read %s/%d: %w", topic, p.Partition, ErrTopicReplaced)
	}
	before := r.next[i]
	piece := RangePiece{Range: i}
	for _, rec := range p.Records {
		if rec.Offset >= x.To {
			r.over[i] = true
			break
		}
		r.next[i] = rec.Offset + 1
		if !rec.Attrs.IsControl() {
			piece.Records = append(piece.Records, fromClient(rec, x.TopicID))
		}
	}
	r.over[i] = r.over[i] || r.next[i] >= x.To
	r.ahead[i] += len(piece.Records)
	piece.Next, piece.Over = r.next[i], r.over[i]
	return piece, r.over[i] || r.next[i] > before, nil
}

// fault is a fetch error, or nil where waiting may mend it.
func (r *RangeReader) fault(i int, err error) error {
	x := r.ranges[i]
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return nil
	case errors.Is(err, kerr.UnknownTopicID):
		return fmt.Errorf("read %s/%d: %w", x.Topic, x.Partition, ErrTopicReplaced)
	case stops(err):
		return &OutOfRangeError{Topic: x.Topic, Partition: x.Partition, Offset: r.next[i], Low: -1, High: -1, Err: err}
	}
	return fmt.Errorf("read %s/%d: %w", x.Topic, x.Partition, err)
}

// Close releases the connections.
func (r *RangeReader) Close() { r.once.Do(r.client.Close) }
