package consumers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/internal/postgres"
)

// What can be wrong with what is asked for. Nothing is changed then.
var (
	ErrNotFound         = errors.New("there is no such consumer")
	ErrNoPartition      = errors.New("the topic has no such partition")
	ErrNotStalled       = errors.New("the partition is not stalled")
	ErrNotBlocked       = errors.New("the partition is not stalled at this offset")
	ErrNeedsSeek        = errors.New("the partition cannot be tried again, it needs a seek")
	ErrUnowned          = errors.New("no process owns the partition")
	ErrPaused           = errors.New("the consumer is paused")
	ErrNotPaused        = errors.New("the consumer is not paused")
	ErrNoReason         = errors.New("a reason is required")
	ErrOffsetOutOfRange = errors.New("the offset does not lie in the log")
	ErrGroupLive        = errors.New("the group has members that do not report")
	ErrUnreachable      = errors.New("kafka cannot be asked")
)

const (
	// TTLDefault is how long a command waits for the owner of the partition.
	TTLDefault = 30 * time.Second
	// WaitDefault is how long a caller waits for the outcome of a command.
	WaitDefault = 20 * time.Second
	// actionPoll is how often its outcome is looked at when nothing wakes us.
	actionPoll = 250 * time.Millisecond
)

// Action is what was done to a consumer.
type Action string

// The actions.
const (
	ActionPause      Action = "pause"
	ActionResume     Action = "resume"
	ActionSeek       Action = "seek"
	ActionRetry      Action = "retry"
	ActionDeadLetter Action = "dead_letter"
)

// Outcome is how an action has ended.
type Outcome string

// The outcomes.
const (
	// Pending: the owner of the partition has not carried it out yet.
	Pending Outcome = "PENDING"
	Done    Outcome = "DONE"
	// Refused: the owner found that it does not apply any more.
	Refused Outcome = "REFUSED"
	// Expired: no owner has confirmed it in time. Nothing was changed, unless the
	// owner died, or lost the database, just then.
	Expired Outcome = "EXPIRED"
)

// Author says who does something, and why.
type Author struct{ Name, Reason string }

// Result is what an action came to.
type Result struct {
	ID        int64
	Action    Action
	Consumer  string
	Topic     string
	Partition int32 // -1 when it is about all of them
	// From and To are offsets; -1 when the action is about none.
	From, To int64
	Outcome  Outcome
	Detail   string
}

// Operator is what people can do about consumers. Everything is written to
// consumer_actions. It is safe for concurrent use.
type Operator struct {
	OperatorConfig
	reader *Reader
}

// OperatorConfig is what an Operator works with. TTL and Wait default to the
// constants of that name; the rest is required.
type OperatorConfig struct {
	Pool    *pgxpool.Pool
	Signals Signals
	Broker  Broker
	// TTL is when a command lapses that no owner has confirmed; Wait is how long a
	// caller is kept waiting for that.
	TTL, Wait time.Duration
}

// NewOperator returns an operator.
func NewOperator(cfg OperatorConfig) *Operator {
	cfg.TTL, cfg.Wait = cmp.Or(cfg.TTL, TTLDefault), cmp.Or(cfg.Wait, WaitDefault)
	return &Operator{OperatorConfig: cfg, reader: NewReader(cfg.Pool, cfg.Broker)}
}

// List is Reader.List.
func (o *Operator) List(ctx context.Context) ([]Status, error) { return o.reader.List(ctx) }

// Get is Reader.Get.
func (o *Operator) Get(ctx context.Context, name string) (Status, error) {
	return o.reader.Get(ctx, name)
}

// Pause has no more records handed to a consumer, in any process, until Resume.
// What is in flight ends. It holds over restarts.
func (o *Operator) Pause(ctx context.Context, name string, by Author) (Result, error) {
	return o.setPause(ctx, name, ActionPause, by)
}

// Resume ends a Pause.
func (o *Operator) Resume(ctx context.Context, name string, by Author) (Result, error) {
	return o.setPause(ctx, name, ActionResume, by)
}

func (o *Operator) setPause(ctx context.Context, name string, action Action, by Author) (Result, error) {
	result := Result{Action: action, Consumer: name, Partition: -1, From: -1, To: -1, Outcome: Done}
	err := postgres.InTx(ctx, o.Pool, func(ctx context.Context, tx pgx.Tx) error {
		var paused bool
		err := tx.QueryRow(ctx, `SELECT paused_at IS NOT NULL FROM consumers WHERE name = $1 FOR UPDATE`, name).Scan(&paused)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return ErrNotFound
		case err != nil:
			return err
		case action == ActionPause && paused:
			return ErrPaused
		case action == ActionResume && !paused:
			return ErrNotPaused
		}
		change := `UPDATE consumers SET paused_at = NULL, paused_by = NULL, pause_reason = NULL WHERE name = $1`
		args := []any{name}
		if action == ActionPause {
			change = `UPDATE consumers SET paused_at = clock_timestamp(), paused_by = $2, pause_reason = $3 WHERE name = $1`
			args = append(args, by.Name, by.Reason)
		}
		if _, err := tx.Exec(ctx, change, args...); err != nil {
			return err
		}
		result.ID, err = o.record(ctx, tx, result, by)
		return err
	})
	if err != nil {
		return Result{}, fmt.Errorf("%s consumer %s: %w", action, name, err)
	}
	o.Signals.Wake(WakeCommands)
	return result, nil
}

const recordSQL = `
INSERT INTO consumer_actions (actor, action, reason, consumer, topic, partition, from_offset, to_offset, outcome, expires_at, finished_at)
VALUES ($1, $2, $3, $4, nullif($5, ''), nullif($6, -1), nullif($7, -1::bigint), nullif($8, -1::bigint), $9::text,
    CASE WHEN $9 = 'PENDING' THEN clock_timestamp() + make_interval(secs => $10) END,
    CASE WHEN $9 <> 'PENDING' THEN clock_timestamp() END)
RETURNING id`

// record writes an action down.
func (o *Operator) record(ctx context.Context, tx pgx.Tx, r Result, by Author) (id int64, err error) {
	err = tx.QueryRow(ctx, recordSQL, by.Name, string(r.Action), by.Reason, r.Consumer, r.Topic, r.Partition, r.From, r.To,
		string(r.Outcome), o.TTL.Seconds()).Scan(&id)
	return id, err
}

// Retry has a stalled partition tried again now.
func (o *Operator) Retry(ctx context.Context, name string, partition int32, by Author) (Result, error) {
	p, err := o.stalled(ctx, name, partition)
	if err == nil && p.State == OffsetProblem && p.NextTry == nil {
		err = ErrNeedsSeek
	}
	if err != nil {
		return Result{}, fmt.Errorf("retry partition %d of consumer %s: %w", partition, name, err)
	}
	return o.command(ctx, Result{Action: ActionRetry, Consumer: name, Topic: p.topic, Partition: partition, From: -1, To: -1}, by)
}

// DeadLetter has the record at which a partition is stalled become a dead letter,
// with the reason of the author, who has to give one. It is about the record at
// offset and no other: if that succeeds first, nothing happens.
func (o *Operator) DeadLetter(ctx context.Context, name string, partition int32, offset int64, by Author) (Result, error) {
	fail := func(err error) (Result, error) {
		return Result{}, fmt.Errorf("dead-letter offset %d in partition %d of consumer %s: %w", offset, partition, name, err)
	}
	if by.Reason == "" {
		return fail(ErrNoReason)
	}
	p, err := o.stalled(ctx, name, partition)
	if err != nil {
		return fail(err)
	}
	if p.State != Stalled || p.Blocked == nil || p.Blocked.Offset != offset {
		return fail(ErrNotBlocked)
	}
	return o.command(ctx, Result{Action: ActionDeadLetter, Consumer: name, Topic: p.topic, Partition: partition, From: offset, To: -1}, by)
}

// stalled returns the status of a partition that is stalled, as far as its owner
// has reported.
func (o *Operator) stalled(ctx context.Context, name string, partition int32) (PartitionStatus, error) {
	s, err := o.reader.reported(ctx, name)
	if err != nil {
		return PartitionStatus{}, err
	}
	for _, p := range s.Partitions {
		switch {
		case p.Partition != partition:
			continue
		case s.Paused != nil:
			return p, ErrPaused
		case p.Owner == nil || p.Owner.Stale:
			return p, ErrUnowned
		case p.State != Stalled && p.State != OffsetProblem:
			return p, ErrNotStalled
		}
		return p, nil
	}
	return PartitionStatus{}, ErrUnowned
}

// command asks the owner of a partition to do something, and waits for the outcome.
func (o *Operator) command(ctx context.Context, r Result, by Author) (Result, error) {
	ended, stop := o.Signals.Subscribe(WakeActions)
	defer stop()
	r.Outcome = Pending
	err := postgres.InTx(ctx, o.Pool, func(ctx context.Context, tx pgx.Tx) error {
		var err error
		r.ID, err = o.record(ctx, tx, r, by)
		return err
	})
	if err != nil {
		return Result{}, fmt.Errorf("%s consumer %s: %w", r.Action, r.Consumer, err)
	}
	o.Signals.Wake(WakeCommands)
	return o.await(ctx, r, ended)
}

// await waits for the outcome of a command, as long as a caller may be kept waiting.
// An action that is still Pending then goes on.
func (o *Operator) await(ctx context.Context, r Result, ended <-chan struct{}) (Result, error) {
	timer, poll := time.NewTimer(o.Wait), time.NewTicker(actionPoll)
	defer timer.Stop()
	defer poll.Stop()
	for {
		err := o.Pool.QueryRow(ctx, `SELECT outcome, coalesce(detail, '') FROM consumer_actions WHERE id = $1`, r.ID).Scan(&r.Outcome, &r.Detail)
		if err != nil {
			return r, fmt.Errorf("wait for action %d: %w", r.ID, err)
		}
		if r.Outcome != Pending {
			return r, nil
		}
		select {
		case <-ctx.Done():
			return r, ctx.Err()
		case <-timer.C:
			return r, nil
		case <-ended:
		case <-poll.C:
		}
	}
}
