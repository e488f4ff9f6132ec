package consumers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/internal/secret"
)

// Unknown stands for an offset or a lag that cannot be told.
const Unknown int64 = -1

// brokerTimeout bounds what a status waits for Kafka: it is worth having without.
const brokerTimeout = 3 * time.Second

// drift is by how much the position in PostgreSQL may stay behind what the group
// has committed, because records without effect have passed. See package pipeline.
const drift = 1000

// Broker is what Kafka is asked.
type Broker interface {
	// Topics returns the identity and the number of partitions of topics, those that
	// do not exist left out.
	Topics(ctx context.Context, names []string) (map[string]Topic, error)
	Starts(ctx context.Context, topic string) (map[int32]int64, error)
	Ends(ctx context.Context, topics []string) (map[string]map[int32]int64, error)
	// After returns the offsets of the first records at or after t, or the ends.
	After(ctx context.Context, topic string, t time.Time) (map[int32]int64, error)
	Groups(ctx context.Context, groups []string) (map[string][]GroupPartition, error)
	// Commit sets offsets of a group without members; ErrGroupLive if it has any.
	Commit(ctx context.Context, group, topic string, offsets map[int32]int64) error
}

// Topic is what the broker says about a topic.
type Topic struct {
	ID         [16]byte
	Partitions int
}

// GroupPartition is a partition as its group in Kafka sees it.
type GroupPartition struct {
	Topic     string
	Partition int32
	// Committed is Unknown when there is none.
	Committed int64
	// Owned says that a member of the group has it.
	Owned bool
}

// Status is how one consumer is doing in the whole installation.
type Status struct {
	Name, Group, Topic string
	// Kind is "On", "OnBatch", "OnTx" or "OnBatchTx"; Inbox says that it recognises events that
	// it has applied before.
	Kind  string
	Inbox bool
	// Paused is set while somebody wants it paused.
	Paused *Pause
	// State is the worst of its partitions; Lag the sum, Unknown where a part of it is.
	State      State
	Lag        int64
	Partitions []PartitionStatus
	// BrokerError says why nothing is known of Kafka's side, or is empty.
	BrokerError string
}

// Transactional says that the position in PostgreSQL is the truth.
func (s Status) Transactional() bool { return s.Kind == "OnTx" || s.Kind == "OnBatchTx" }

// Pause is who paused a consumer, and why.
type Pause struct {
	At         time.Time
	By, Reason string
}

// Owner is the process that has a partition.
type Owner struct {
	Instance string
	SeenAt   time.Time
	// Stale says that it has not reported for a while: what follows is what it said
	// last.
	Stale bool
}

// PartitionStatus is one partition of a consumer. Offsets are Unknown where they
// are.
type PartitionStatus struct {
	Partition int32
	State     State
	Owner     *Owner
	Epoch     int64
	// Position is the next offset to be settled as it stands in PostgreSQL, Committed
	// the group's in Kafka, End that behind the last record.
	Position, Committed, End, Lag int64
	Cause                         *Cause
	Blocked                       *Blocked
	StalledSince, NextTry         *time.Time
	Tries                         int
	// Notice says what is odd although records are handled.
	Notice string

	topic    string
	topicID  [16]byte
	reported bool // there is a report of the present owner
}

// settled is the next offset that has not passed.
func (p PartitionStatus) settled(transactional bool) int64 {
	if !transactional {
		return p.Committed
	}
	if p.Committed > p.Position && p.Committed-p.Position <= drift && p.Position >= 0 {
		return p.Committed
	}
	return p.Position
}

// Reader reads the status of all consumers. It is safe for concurrent use.
type Reader struct {
	pool   *pgxpool.Pool
	broker Broker
}

// NewReader returns a reader.
func NewReader(pool *pgxpool.Pool, broker Broker) *Reader { return &Reader{pool: pool, broker: broker} }

// List returns the status of all consumers, by name. Without Kafka it lacks what
// only Kafka knows; see Status.BrokerError.
func (r *Reader) List(ctx context.Context) ([]Status, error) {
	list, err := r.read(ctx, "")
	if err != nil {
		return nil, err
	}
	r.askBroker(ctx, list)
	for i := range list {
		list[i].conclude()
	}
	return list, nil
}

// Get returns the status of one consumer.
func (r *Reader) Get(ctx context.Context, name string) (Status, error) {
	s, err := r.reported(ctx, name)
	if err != nil {
		return Status{}, err
	}
	list := []Status{s}
	r.askBroker(ctx, list)
	list[0].conclude()
	return list[0], nil
}

// reported returns what PostgreSQL knows of one consumer.
func (r *Reader) reported(ctx context.Context, name string) (Status, error) {
	list, err := r.read(ctx, name)
	if err != nil {
		return Status{}, err
	}
	if len(list) == 0 {
		return Status{}, fmt.Errorf("consumer %s: %w", name, ErrNotFound)
	}
	list[0].conclude()
	return list[0], nil
}

const (
	readConsumers = `
SELECT name, consumer_group, topic, kind, inbox, paused_at, coalesce(paused_by, ''), coalesce(pause_reason, '')
FROM consumers WHERE $1 = '' OR name = $1 ORDER BY name`

	// The present owner's report is the last of its partition: live before stale, then
	// by epoch, then by time.
	readReports = `
SELECT r.consumer, r.topic, r.partition, r.instance, i.seen_at, i.seen_at < clock_timestamp() - make_interval(secs => $2),
    r.epoch, r.state, r.paused, coalesce(r.cause_class, ''), coalesce(r.cause_code, ''), r.cause_error,
    r.blocked_offset, r.blocked_key, r.stalled_since, r.tries, r.next_try_at, coalesce(r.notice, '')
FROM consumer_reports r JOIN consumer_instances i USING (instance)
WHERE $1 = '' OR r.consumer = $1
ORDER BY (i.seen_at >= clock_timestamp() - make_interval(secs => $2)), r.epoch, r.reported_at`

	// Of a topic that was made again, the position that is the newest.
	readPositions = `
SELECT consumer_group, topic, partition, next_offset, owner_epoch FROM consumer_offsets
WHERE consumer_group IN (SELECT consumer_group FROM consumers WHERE $1 = '' OR name = $1) ORDER BY updated_at`
)

// read returns what PostgreSQL knows of all consumers, or of one.
func (r *Reader) read(ctx context.Context, name string) ([]Status, error) {
	var list []Status
	batch := &pgx.Batch{}
	batch.Queue(readConsumers, name).Query(func(rows pgx.Rows) (err error) {
		list, err = pgx.CollectRows(rows, scanConsumer)
		return err
	})
	batch.Queue(readReports, name, StaleAfter.Seconds()).Query(func(rows pgx.Rows) error { return scanReports(rows, list) })
	batch.Queue(readPositions, name).Query(func(rows pgx.Rows) error { return scanPositions(rows, list) })
	if err := r.pool.SendBatch(ctx, batch).Close(); err != nil {
		return nil, fmt.Errorf("read the status of consumers: %w", err)
	}
	return list, nil
}

func scanConsumer(row pgx.CollectableRow) (Status, error) {
	var s Status
	var at *time.Time
	var by, reason string
	err := row.Scan(&s.Name, &s.Group, &s.Topic, &s.Kind, &s.Inbox, &at, &by, &reason)
	if at != nil {
		s.Paused = &Pause{At: at.UTC(), By: by, Reason: reason}
	}
	return s, err
}

func scanReports(rows pgx.Rows, list []Status) error {
	var consumer, topic, class, code, notice string
	var state State
	var text *string
	var partition int32
	var paused bool
	var owner Owner
	var epoch int64
	var offset *int64
	var key []byte
	var since, next *time.Time
	var tries int
	_, err := pgx.ForEachRow(rows, []any{&consumer, &topic, &partition, &owner.Instance, &owner.SeenAt, &owner.Stale, &epoch, &state,
		&paused, &class, &code, &text, &offset, &key, &since, &tries, &next, &notice}, func() error {
		s := find(list, func(s *Status) bool { return s.Name == consumer && s.Topic == topic })
		if s == nil {
			return nil // of a consumer that reads another topic now
		}
		p := s.partition(partition)
		own := owner
		own.SeenAt = own.SeenAt.UTC()
		p.Owner, p.Epoch, p.Tries, p.Notice = &own, epoch, tries, notice
		p.State, p.reported = state, !own.Stale
		if paused {
			p.State = Paused
		}
		p.Cause, p.Blocked, p.StalledSince, p.NextTry = nil, nil, utc(since), utc(next)
		if text != nil {
			p.Cause = &Cause{Class: class, Code: code, Error: *text}
		}
		if offset != nil {
			p.Blocked = &Blocked{Offset: *offset, Key: slices.Clone(key)}
		}
		key = nil
		return nil
	})
	return err
}

func scanPositions(rows pgx.Rows, list []Status) error {
	var group, topic string
	var partition int32
	var next, epoch int64
	_, err := pgx.ForEachRow(rows, []any{&group, &topic, &partition, &next, &epoch}, func() error {
		if s := find(list, func(s *Status) bool { return s.Group == group && s.Topic == topic && s.Transactional() }); s != nil {
			p := s.partition(partition)
			p.Position, p.Epoch = next, max(p.Epoch, epoch)
		}
		return nil
	})
	return err
}

func find(list []Status, is func(*Status) bool) *Status {
	for i := range list {
		if is(&list[i]) {
			return &list[i]
		}
	}
	return nil
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}

// partition returns the partition of that number, which is made if it is new.
func (s *Status) partition(n int32) *PartitionStatus {
	for i := range s.Partitions {
		if s.Partitions[i].Partition == n {
			return &s.Partitions[i]
		}
	}
	s.Partitions = append(s.Partitions, PartitionStatus{
		Partition: n, Position: Unknown, Committed: Unknown, End: Unknown, Lag: Unknown, topic: s.Topic})
	return &s.Partitions[len(s.Partitions)-1]
}

// askBroker adds what Kafka knows.
func (r *Reader) askBroker(ctx context.Context, list []Status) {
	ctx, cancel := context.WithTimeout(ctx, brokerTimeout)
	defer cancel()
	err := r.addBroker(ctx, list)
	if err == nil {
		return
	}
	for i := range list {
		list[i].BrokerError = truncate(secret.Redact(storable(err.Error())))
	}
}

func (r *Reader) addBroker(ctx context.Context, list []Status) error {
	var names, groups []string
	for _, s := range list {
		names, groups = append(names, s.Topic), append(groups, s.Group)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	topics, err := r.broker.Topics(ctx, names)
	if err != nil {
		return err
	}
	names = slices.DeleteFunc(names, func(n string) bool { _, there := topics[n]; return !there })
	ends, endsErr := r.broker.Ends(ctx, names)
	lags, lagsErr := r.broker.Groups(ctx, groups)
	for i := range list {
		s := &list[i]
		for n := range topics[s.Topic].Partitions {
			p := s.partition(int32(n))
			p.topicID = topics[s.Topic].ID
			if end, ok := ends[s.Topic][p.Partition]; ok {
				p.End = end
			}
		}
		for _, g := range lags[s.Group] {
			if g.Topic != s.Topic {
				continue
			}
			p := s.partition(g.Partition)
			p.Committed = g.Committed
			if g.Owned && !p.reported {
				p.State = Unreported
			}
		}
	}
	return errors.Join(endsErr, lagsErr)
}

// conclude derives what follows from the rest.
func (s *Status) conclude() {
	slices.SortFunc(s.Partitions, func(a, b PartitionStatus) int { return cmp.Compare(a.Partition, b.Partition) })
	s.State, s.Lag = "", 0
	for i := range s.Partitions {
		p := &s.Partitions[i]
		if at := p.settled(s.Transactional()); p.End >= 0 {
			// Who has settled nothing has everything before it, as far as is known here.
			p.Lag = max(0, p.End-max(at, 0))
		}
		if !p.reported && p.State != Unreported {
			p.State = Unowned
		}
		if p.State == Running && p.Lag == 0 {
			p.State = Idle
		}
		if p.Lag == Unknown || s.Lag == Unknown {
			s.Lag = Unknown
		} else {
			s.Lag += p.Lag
		}
		s.State = worse(s.State, p.State)
	}
	if s.State == "" {
		s.State = Unowned
	}
}
