package consumers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/inbox"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/pipeline"
)

// Target says where a seek goes. Exactly one of its fields is set.
type Target struct {
	Beginning, End bool
	Offset         *int64
	// Time goes to the first record at or after it, or to the end.
	Time *time.Time
}

// Seek says which partitions of a consumer go where.
type Seek struct {
	Consumer string
	// Partition is AllPartitions for all.
	Partition int32
	To        Target
	DryRun    bool
}

// AllPartitions names all partitions of a consumer.
const AllPartitions int32 = -1

// Move is what a seek does, or would do, to one partition.
type Move struct {
	Partition int32
	// From is the position before; Unknown where there is none.
	From, To int64
	// Outcome is empty for a dry run.
	Outcome Outcome
	Detail  string
}

// Sought is what a seek came to.
type Sought struct {
	Consumer, Topic string
	Moves           []Move
	// Repeats and Skips count the offsets that are passed again, or never.
	Repeats, Skips int64
	Warnings       []string
	DryRun         bool
}

// Seek moves the position of a consumer, or tells what that would do. The author
// has to give a reason.
//
// Where the position in PostgreSQL is the truth, it is moved in one transaction for
// all partitions, whoever owns them, once the transactions that the owners have
// under way have ended; what they are handed after that does not count. Where
// Kafka's is, the owner of each partition moves it when what is in flight has ended,
// and for partitions without an owner the group's offset is set, as long as the
// group has no members.
func (o *Operator) Seek(ctx context.Context, k Seek, by Author) (Sought, error) {
	fail := func(err error) (Sought, error) {
		return Sought{}, fmt.Errorf("seek consumer %s: %w", k.Consumer, err)
	}
	if by.Reason == "" && !k.DryRun {
		return fail(ErrNoReason)
	}
	s, err := o.reader.Get(ctx, k.Consumer)
	if err != nil {
		return fail(err)
	}
	if s.BrokerError != "" {
		return fail(fmt.Errorf("%w: %s", ErrUnreachable, s.BrokerError))
	}
	moves, err := o.plan(ctx, s, k)
	if err != nil {
		return fail(err)
	}
	out := Sought{Consumer: s.Name, Topic: s.Topic, Moves: moves, DryRun: k.DryRun}
	out.weigh(s)
	if k.DryRun {
		return out, nil
	}
	if s.Transactional() {
		err = o.seekPositions(ctx, s, out.Moves, by)
	} else {
		err = o.seekGroup(ctx, s, out.Moves, by)
	}
	if err != nil {
		return fail(err)
	}
	return out, nil
}

// plan finds out from where to where partitions go.
func (o *Operator) plan(ctx context.Context, s Status, k Seek) ([]Move, error) {
	starts, err := o.Broker.Starts(ctx, s.Topic)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	var after map[int32]int64
	if k.To.Time != nil {
		if after, err = o.Broker.After(ctx, s.Topic, *k.To.Time); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
		}
	}
	var moves []Move
	for _, p := range s.Partitions {
		if k.Partition != AllPartitions && p.Partition != k.Partition {
			continue
		}
		start, known := starts[p.Partition]
		if !known || p.End == Unknown {
			continue // it is of a former topic
		}
		m := Move{Partition: p.Partition, From: p.settled(s.Transactional())}
		switch {
		case k.To.Beginning:
			m.To = start
		case k.To.End:
			m.To = p.End
		case k.To.Time != nil:
			m.To = after[p.Partition]
		default:
			m.To = *k.To.Offset
		}
		if m.To < start || m.To > p.End {
			return nil, fmt.Errorf("%w: partition %d holds [%d, %d), not %d", ErrOffsetOutOfRange, p.Partition, start, p.End, m.To)
		}
		moves = append(moves, m)
	}
	if len(moves) == 0 {
		return nil, ErrNoPartition
	}
	return moves, nil
}

// records counts records in a sentence.
func records(n int64) string {
	if n == 1 {
		return "1 record is"
	}
	return fmt.Sprintf("%d records are", n)
}

// weigh says what the moves mean.
func (out *Sought) weigh(s Status) {
	for _, m := range out.Moves {
		switch from := max(m.From, 0); {
		case m.To < from:
			out.Repeats += from - m.To
		case m.To > from:
			out.Skips += m.To - from
		}
	}
	if out.Skips > 0 {
		out.Warnings = append(out.Warnings, fmt.Sprintf("up to %s skipped: this consumer never handles them", records(out.Skips)))
	}
	switch {
	case out.Repeats == 0:
	case s.Inbox:
		out.Warnings = append(out.Warnings, fmt.Sprintf("up to %s read again; what the consumer has applied is recognised by its inbox and changes nothing", records(out.Repeats)))
	default:
		out.Warnings = append(out.Warnings, fmt.Sprintf("up to %s handled again, with all effects", records(out.Repeats)))
	}
}

// seekPositions moves positions in PostgreSQL. Their owners are fenced at once, and
// take the new position up.
func (o *Operator) seekPositions(ctx context.Context, s Status, moves []Move, by Author) error {
	err := postgres.InTx(ctx, o.Pool, func(ctx context.Context, tx pgx.Tx) error {
		for i := range moves {
			p := s.partition(moves[i].Partition)
			at := pipeline.Partition{Group: s.Group, Topic: s.Topic, TopicID: p.topicID, Partition: p.Partition}
			from, err := lockPosition(ctx, tx, at)
			if err != nil {
				return err
			}
			if err := inbox.SeekIn(ctx, tx, at, moves[i].To); err != nil {
				return err
			}
			moves[i].From, moves[i].Outcome = max(moves[i].From, from), Done
			_, err = o.record(ctx, tx, Result{Action: ActionSeek, Consumer: s.Name, Topic: s.Topic, Partition: p.Partition,
				From: moves[i].From, To: moves[i].To, Outcome: Done}, by)
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		o.Signals.Wake(WakeCommands)
	}
	return err
}

// lockPosition keeps the owner from moving a position, and returns it.
func lockPosition(ctx context.Context, tx pgx.Tx, p pipeline.Partition) (next int64, err error) {
	err = tx.QueryRow(ctx, `SELECT next_offset FROM consumer_offsets WHERE consumer_group = $1 AND topic_id = $2 AND partition = $3 FOR NO KEY UPDATE`,
		p.Group, uuid.UUID(p.TopicID), p.Partition).Scan(&next)
	if errors.Is(err, pgx.ErrNoRows) {
		return Unknown, nil
	}
	return next, err
}

// seekGroup moves a position that Kafka keeps.
func (o *Operator) seekGroup(ctx context.Context, s Status, moves []Move, by Author) error {
	for i := range moves {
		p := s.partition(moves[i].Partition)
		r := Result{Action: ActionSeek, Consumer: s.Name, Topic: s.Topic, Partition: p.Partition, From: moves[i].From, To: moves[i].To}
		var err error
		switch {
		case p.reported:
			r, err = o.command(ctx, r, by)
		case p.State == Unreported:
			err = ErrGroupLive
		default:
			r, err = o.commitGroup(ctx, s, r, by)
		}
		if err != nil && i == 0 {
			return err
		}
		moves[i].Outcome, moves[i].Detail = r.Outcome, r.Detail
		if err != nil {
			moves[i].Outcome, moves[i].Detail = Refused, err.Error()
		}
	}
	return nil
}

// commitGroup sets the offset of a group that has no members. The action is written
// first, since the deed is not PostgreSQL's: of one that stays PENDING and lapses it
// is not known whether it was done.
func (o *Operator) commitGroup(ctx context.Context, s Status, r Result, by Author) (Result, error) {
	r.Outcome = Pending
	err := postgres.InTx(ctx, o.Pool, func(ctx context.Context, tx pgx.Tx) error {
		var err error
		r.ID, err = o.record(ctx, tx, r, by)
		return err
	})
	if err != nil {
		return r, err
	}
	deed := o.Broker.Commit(ctx, s.Group, s.Topic, map[int32]int64{r.Partition: r.To})
	if deed == nil {
		r.Outcome = Done
	} else {
		r.Outcome, r.Detail = Refused, truncate(storable(deed.Error()))
	}
	_, err = o.Pool.Exec(ctx, finishSQL, r.ID, string(r.Outcome), r.Detail, "")
	return r, errors.Join(deed, err)
}
