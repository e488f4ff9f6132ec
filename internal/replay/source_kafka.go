package replay

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/topics"
)

// kafkaSource reads the topics themselves, without a consumer group: nobody's position
// moves.
type kafkaSource struct{ broker Broker }

// NewKafka returns the topics at the broker as a source.
func NewKafka(broker Broker) Source { return &kafkaSource{broker} }

// Begin implements Source.
func (s *kafkaSource) Begin(ctx context.Context, f Filter) (Cursor, error) {
	live, err := s.broker.Topics(ctx, f.Topics...)
	if err != nil {
		return nil, err
	}
	var c Cursor
	for _, topic := range f.Topics {
		t, exists := live[topic]
		if !exists {
			return nil, fmt.Errorf("%w: topic %s does not exist", ErrNothingThere, topic)
		}
		ways, err := s.ways(ctx, f, topic, t)
		if err != nil {
			return nil, err
		}
		c = append(c, ways...)
	}
	if len(f.Offsets) > 0 {
		if c, err = stretches(c, f.Offsets); err != nil {
			return nil, err
		}
	}
	c.sort()
	return c, nil
}

// ways are the partitions of a topic, from what there is to what there is now, or as
// the times of the filter say.
func (s *kafkaSource) ways(ctx context.Context, f Filter, topic string, t Topic) (Cursor, error) {
	starts, err := s.broker.Starts(ctx, topic)
	if err != nil {
		return nil, err
	}
	ends, err := s.broker.Ends(ctx, topic)
	if err != nil {
		return nil, err
	}
	bound := func(at time.Time, offsets map[int32]int64) error {
		if at.IsZero() {
			return nil
		}
		after, err := s.broker.After(ctx, topic, at)
		for id, offset := range after {
			// The broker may know more by now than when it was asked for the ends.
			offsets[id] = min(max(offset, starts[id]), ends[id])
		}
		return err
	}
	from := make(map[int32]int64, len(starts))
	to := make(map[int32]int64, len(ends))
	for id := range ends {
		from[id], to[id] = starts[id], ends[id]
	}
	if err := bound(f.After, from); err != nil {
		return nil, err
	}
	if err := bound(f.Before, to); err != nil {
		return nil, err
	}
	var c Cursor
	for id := range ends {
		w := Way{Partition: Partition{topic, t.ID, id}, From: from[id], Next: from[id], To: max(to[id], from[id])}
		c = append(c, w)
	}
	return c, nil
}

// stretches restricts a cursor to the stretches that were named.
func stretches(all Cursor, named []Stretch) (Cursor, error) {
	var c Cursor
	for i, s := range named {
		at := -1
		for k, w := range all {
			if w.Topic == s.Topic && w.Partition.Partition == s.Partition {
				at = k
			}
		}
		if at < 0 {
			return nil, &InvalidError{fmt.Sprintf("/filter/offsets/%d/partition", i), fmt.Sprintf("%s has no partition %d", s.Topic, s.Partition)}
		}
		w := all[at]
		to := s.To
		if to == 0 {
			to = w.To
		}
		if s.From < w.From || to > w.To || s.From > to {
			return nil, &InvalidError{fmt.Sprintf("/filter/offsets/%d/from", i),
				fmt.Sprintf("offsets %d to %d are not all there: partition %d of %s has %d to %d", s.From, to, s.Partition, s.Topic, w.From, w.To)}
		}
		w.From, w.Next, w.To = s.From, s.From, to
		c = append(c, w)
	}
	return c, nil
}

// Count implements Source. The broker knows places, not what lies there: with a
// filter, and where the topic has gaps, there are fewer.
func (s *kafkaSource) Count(_ context.Context, f Filter, c Cursor, _ int64) (n int64, exact bool, err error) {
	for _, w := range c {
		if !w.Over {
			n += max(w.To-w.Next, 0)
		}
	}
	return n, false, nil
}

// Open implements Source.
func (s *kafkaSource) Open(ctx context.Context, f Filter, c Cursor) (Feed, error) {
	r, err := s.broker.Read(ctx, c)
	if err != nil {
		return nil, err
	}
	return &kafkaFeed{r, f}, nil
}

// kafkaFeed leaves out what the filter does not choose.
type kafkaFeed struct {
	reader Reader
	filter Filter
}

// Fetch implements Feed.
func (f *kafkaFeed) Fetch(ctx context.Context, partitions []int) ([]Piece, error) {
	pieces, err := f.reader.Next(ctx, partitions)
	for i := range pieces {
		p := &pieces[i]
		chosen := make([]topics.Record, 0, len(p.Records))
		for _, r := range p.Records {
			if repeated(r) || targeted(r) || !f.filter.chooses(r) {
				p.Skipped++
				continue
			}
			chosen = append(chosen, r)
		}
		p.Records = chosen
	}
	return pieces, err
}

// Close implements Feed.
func (f *kafkaFeed) Close() { f.reader.Close() }

// targeted says whether a record was meant for one consumer, as redrives are: what it
// repeats lies in the topic before it.
func targeted(r topics.Record) bool {
	value, ok := r.Header(middleware.HeaderTarget)
	return ok && len(value) > 0
}
