package replay

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/internal/eventlog"
	"github.com/millrace/millrace/topics"
)

// logSource reads the event log. A session of it ends where the topics ended when it
// was made, so what was published by then is part of it, also what the recorder had
// not copied yet: the session waits for that.
type logSource struct {
	pool   *pgxpool.Pool
	broker Broker
}

const (
	// logPage is how many records of a partition are read at once.
	logPage = 200
	// recorderPoll is how often the recorder's position is asked for while a session
	// waits for it.
	recorderPoll = 100 * time.Millisecond
)

// NewEventLog returns the event log as a source. The broker tells where topics end.
func NewEventLog(pool *pgxpool.Pool, broker Broker) Source { return &logSource{pool, broker} }

// Begin implements Source.
func (s *logSource) Begin(ctx context.Context, f Filter) (Cursor, error) {
	logs, err := eventlog.Logs(ctx, s.pool)
	if err != nil {
		return nil, err
	}
	recorded := map[string]bool{}
	known := map[Partition]bool{}
	live, err := s.broker.Topics(ctx, f.Topics...)
	if err != nil {
		return nil, err
	}
	var c Cursor
	for _, l := range logs {
		if !among(f.Topics, l.Topic) {
			continue
		}
		p := Partition{l.Topic, l.TopicID, l.Partition.Partition}
		recorded[l.Topic], known[p] = true, true
		end, err := eventlog.End(ctx, s.pool, l)
		if err != nil {
			return nil, err
		}
		c = append(c, Way{Partition: p, To: end})
	}
	for _, topic := range f.Topics {
		followed, err := s.follow(ctx, topic, live, known, &c)
		if err != nil {
			return nil, err
		}
		if !followed && !recorded[topic] {
			return nil, fmt.Errorf("%w: nobody records topic %s in the event log; read it from kafka instead", ErrNothingThere, topic)
		}
	}
	c.sort()
	return c, nil
}

// follow moves the ends of a topic that a recorder copies to those of the topic, and
// reports whether there is one.
func (s *logSource) follow(ctx context.Context, topic string, live map[string]Topic, known map[Partition]bool, c *Cursor) (bool, error) {
	t, exists := live[topic]
	groups, err := s.recorders(ctx, topic)
	if err != nil || !exists || len(groups) == 0 {
		return false, err
	}
	ends, err := s.broker.Ends(ctx, topic)
	if err != nil {
		return false, err
	}
	for id, end := range ends {
		p := Partition{topic, t.ID, id}
		if !known[p] {
			*c = append(*c, Way{Partition: p, To: end})
		}
		for i := range *c {
			if (*c)[i].Partition == p {
				(*c)[i].To = max((*c)[i].To, end)
			}
		}
	}
	return true, nil
}

// recorders are the groups that copy a topic into the event log.
func (s *logSource) recorders(ctx context.Context, topic string) ([]string, error) {
	rows, err := s.pool.Query(ctx, `SELECT consumer_group FROM consumers
		WHERE topic = $1 AND (name = 'recorder' OR starts_with(name, 'recorder.')) ORDER BY name`, topic)
	var groups []string
	if err == nil {
		groups, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err != nil {
		return nil, fmt.Errorf("find the recorder of %s: %w", topic, err)
	}
	return groups, nil
}

// Count implements Source.
func (s *logSource) Count(ctx context.Context, f Filter, c Cursor, most int64) (int64, bool, error) {
	chosen := logFilter(f)
	for _, w := range c {
		if !w.Over && w.Next < w.To {
			chosen.Vectors[w.log()] = eventlog.Span{From: w.Next, To: w.To}
		}
	}
	if len(chosen.Vectors) == 0 {
		return 0, true, nil // none would mean all
	}
	settled := map[Partition]int64{}
	if err := s.positions(ctx, c, settled); err != nil {
		return 0, false, err
	}
	n, err := eventlog.Count(ctx, s.pool, chosen, most)
	if err != nil {
		return 0, false, err
	}
	// What the recorder has still to copy may be chosen or not.
	var coming int64
	for _, w := range c {
		if !w.Over {
			coming += max(w.To-max(settled[w.Partition], w.Next), 0)
		}
	}
	return n + coming, coming == 0, nil
}

func (p Partition) log() eventlog.Partition {
	return eventlog.Partition{TopicID: p.TopicID, Partition: p.Partition}
}

func logFilter(f Filter) eventlog.Filter {
	return eventlog.Filter{
		Topics: f.Topics, Types: f.Types, Sources: f.Sources, Subjects: f.Subjects, Keys: f.Keys,
		From: f.After, To: f.Before, Vectors: map[eventlog.Partition]eventlog.Span{},
	}
}

// Open implements Source.
func (s *logSource) Open(_ context.Context, f Filter, c Cursor) (Feed, error) {
	feed := &logFeed{source: s, filter: f, ways: append(Cursor{}, c...), settled: map[Partition]int64{}}
	return feed, nil
}

// logFeed is one session's reading of the event log.
type logFeed struct {
	source *logSource
	filter Filter
	ways   Cursor
	// settled is up to where the log was complete when it was last asked for; of topics
	// that are not there any more it is complete.
	settled map[Partition]int64
	asked   time.Time
}

// Close implements Feed.
func (f *logFeed) Close() {}

// Fetch implements Feed.
func (f *logFeed) Fetch(ctx context.Context, partitions []int) ([]Piece, error) {
	for {
		var pieces []Piece
		for _, i := range partitions {
			piece, ok, err := f.fetch(ctx, i)
			if err != nil {
				return pieces, err
			}
			if ok {
				pieces = append(pieces, piece)
			}
		}
		if len(pieces) > 0 {
			return pieces, nil
		}
		timer := time.NewTimer(recorderPoll)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, nil
		case <-timer.C:
		}
	}
}

// fetch reads on in one partition; not ok where the recorder has to come first.
func (f *logFeed) fetch(ctx context.Context, i int) (Piece, bool, error) {
	w := &f.ways[i]
	complete, err := f.complete(ctx, *w) // before the scan: what is recorded later may be missed by it
	if err != nil {
		return Piece{}, false, err
	}
	chosen := logFilter(f.filter)
	chosen.Topics = []string{w.Topic}
	chosen.Vectors[w.log()] = eventlog.Span{From: w.Next, To: w.To}
	page, err := eventlog.Scan(ctx, f.source.pool, chosen, eventlog.Place{}, logPage)
	if err != nil {
		return Piece{}, false, err
	}
	piece := Piece{Partition: i, Next: w.Next, Over: !page.More && complete}
	if page.Next.TopicID == w.TopicID && page.Next.Partition == w.Partition.Partition {
		piece.Next = max(piece.Next, page.Next.Offset+1)
	}
	for _, e := range page.Entries {
		if repeated(e.Record) {
			piece.Skipped++
			continue
		}
		piece.Records = append(piece.Records, e.Record)
	}
	moved := piece.Next > w.Next
	w.Next = piece.Next
	return piece, moved || piece.Over, nil
}

// complete says whether all of a way is in the log already.
func (f *logFeed) complete(ctx context.Context, w Way) (bool, error) {
	if end, known := f.settled[w.Partition]; known && end >= w.To {
		return true, nil
	}
	if time.Since(f.asked) < recorderPoll {
		return false, nil
	}
	f.asked = time.Now()
	if err := f.source.positions(ctx, f.ways, f.settled); err != nil {
		return false, err
	}
	return f.settled[w.Partition] >= w.To, nil
}

// positions finds out up to where the log is complete. Of a topic that nobody copies
// any more, or that was replaced, nothing will come.
func (s *logSource) positions(ctx context.Context, ways Cursor, settled map[Partition]int64) error {
	names := map[string]bool{}
	for _, w := range ways {
		names[w.Topic] = true
	}
	for topic := range names {
		live, err := s.broker.Topics(ctx, topic)
		if err != nil {
			return err
		}
		groups, err := s.recorders(ctx, topic)
		if err != nil {
			return err
		}
		at, err := s.positionsOf(ctx, topic, live[topic].ID, groups)
		if err != nil {
			return err
		}
		for _, w := range ways {
			switch {
			case w.Topic != topic:
			case len(groups) == 0 || live[topic].ID != w.TopicID:
				settled[w.Partition] = w.To
			default:
				settled[w.Partition] = max(settled[w.Partition], at[w.Partition.Partition])
			}
		}
	}
	return nil
}

// positionsOf returns the positions of the recorders of a topic, by partition. The
// group's in Kafka may be ahead of PostgreSQL's, where records without effect passed.
func (s *logSource) positionsOf(ctx context.Context, topic string, id uuid.UUID, groups []string) (map[int32]int64, error) {
	at := map[int32]int64{}
	rows, err := s.pool.Query(ctx, `SELECT partition, next_offset FROM consumer_offsets
		WHERE topic_id = $1 AND consumer_group = ANY($2)`, id, groups)
	if err != nil {
		return nil, fmt.Errorf("read the recorder's positions: %w", err)
	}
	var partition int32
	var next int64
	_, err = pgx.ForEachRow(rows, []any{&partition, &next}, func() error {
		at[partition] = max(at[partition], next)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the recorder's positions: %w", err)
	}
	for _, group := range groups {
		committed, err := s.broker.Committed(ctx, group, topic)
		if err != nil {
			return nil, err
		}
		for partition, next := range committed {
			at[partition] = max(at[partition], next)
		}
	}
	return at, nil
}

// repeated says whether a record is no history of its own: a replay, or a redrive for
// one consumer, of what lies in the log already.
func repeated(r topics.Record) bool {
	_, session := sessionOf(r)
	return session
}
