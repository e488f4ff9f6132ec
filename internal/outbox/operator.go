package outbox

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

// ResolvedName is the signal with which relays are told that a row which held up
// its aggregate was dealt with, so that they look again at once rather than with
// their next sweep.
const ResolvedName = "outbox_resolved"

var (
	// ErrEventNotFound: the outbox has no row of that number.
	ErrEventNotFound = errors.New("there is no such outbox event")
	// ErrNotBlocked: the row does not hold up its aggregate: it is published,
	// skipped, behind another one, or about to be tried.
	ErrNotBlocked = errors.New("only an event that is FAILED or waits for its next attempt can be retried or skipped")
	// ErrNoReason: a skip needs one.
	ErrNoReason = errors.New("a reason is required")
	// ErrUnboundedRepublish: neither an aggregate nor a time bounds the selection.
	ErrUnboundedRepublish = errors.New("name an aggregate, or bound the time")
	// ErrTooManyEvents: the selection is larger than one republish may be.
	ErrTooManyEvents = errors.New("too many events for one republish: narrow the time range")
)

const (
	// RepublishMax is how many events one republish takes at the most: they are
	// copied in one transaction.
	RepublishMax = 200_000
	// ListMax is how many events List returns at the most.
	ListMax = 1000
	// ListDefault is how many it returns unless told.
	ListDefault = 100
	// behindCap bounds how many open rows per shard are looked at for Blocked.Behind.
	behindCap = 100_000
)

// State says why an event holds up its aggregate.
type State string

// The states of a Blocked event.
const (
	// Failed: the broker rejected it for the last time.
	Failed State = "FAILED"
	// Waiting: the broker rejected it, and it is tried again.
	Waiting State = "WAITING"
)

// Waker wakes those who wait for a name; see postgres.Signals.
type Waker interface{ Wake(name string) }

// Operator is what people can do about the outbox: look at what does not move,
// try it again, skip it, and publish again what was published. Everything that
// changes something is written to outbox_actions in the same transaction, and
// wakes the relays. It is safe for concurrent use.
type Operator struct {
	pool  *pgxpool.Pool
	waker Waker
}

// NewOperator returns an operator. A nil waker leaves relays to their sweeps.
func NewOperator(pool *pgxpool.Pool, waker Waker) *Operator { return &Operator{pool, waker} }

// Author says who does something, and why.
type Author struct{ Name, Reason string }

// Blocked is an event that holds up its aggregate.
type Blocked struct {
	Seq           int64
	ID            string
	State         State
	AggregateType string
	AggregateID   string
	EventType     string
	Topic         string
	Attempts      int
	LastError     string
	CreatedAt     time.Time
	// NextAttemptAt is zero for a Failed one.
	NextAttemptAt time.Time
	// Behind is how many events of the aggregate wait for this one, as far as they
	// are among the first 100 000 open ones of its shard.
	Behind int64
}

// Filter selects blocked events; empty fields select all.
type Filter struct {
	State       State
	Topic       string
	AggregateID string
	// After is the Seq behind which the list begins, Limit its length: 100 unless
	// told, 1000 at the most.
	After int64
	Limit int
}

const listSQL = `
	WITH page AS (
		SELECT * FROM outbox_events
		WHERE attempts > 0 AND status IN ('PENDING', 'FAILED') AND seq > $1
			AND ($2 = '' OR status = CASE $2 WHEN 'FAILED' THEN 'FAILED' ELSE 'PENDING' END)
			AND ($3 = '' OR topic = $3) AND ($4 = '' OR aggregate_id = $4)
		ORDER BY seq LIMIT $5
	), behind AS (
		SELECT o.aggregate_type, o.aggregate_id, count(*) AS events
		FROM (SELECT DISTINCT shard FROM page) AS s, LATERAL (
			SELECT seq, aggregate_type, aggregate_id FROM outbox_events
			WHERE shard = s.shard AND status = 'PENDING' ORDER BY seq LIMIT $6) AS o
		WHERE o.seq NOT IN (SELECT seq FROM page)
		GROUP BY 1, 2
	)
	SELECT p.seq, p.id::text, CASE p.status WHEN 'FAILED' THEN 'FAILED' ELSE 'WAITING' END, p.aggregate_type, p.aggregate_id, p.event_type,
		p.topic, p.attempts, coalesce(p.last_error, ''), p.created_at, coalesce(p.next_attempt_at, '0001-01-01Z'), coalesce(b.events, 0)
	FROM page p LEFT JOIN behind b USING (aggregate_type, aggregate_id) ORDER BY p.seq`

// List returns events that hold up their aggregates, the oldest first.
func (o *Operator) List(ctx context.Context, f Filter) ([]Blocked, error) {
	limit := min(cmp.Or(f.Limit, ListDefault), ListMax)
	rows, err := o.pool.Query(ctx, listSQL, planned, f.After, string(f.State), f.Topic, f.AggregateID, limit, behindCap)
	if err != nil {
		return nil, fmt.Errorf("list outbox events: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Blocked])
	if err != nil {
		return nil, fmt.Errorf("list outbox events: %w", err)
	}
	return list, nil
}

// Backlog is what has not been published.
type Backlog struct {
	// Pending counts open events, the Waiting ones among them; Oldest is the age of
	// the first of them.
	Pending, Waiting, Failed int64
	Oldest                   time.Duration
	Topics                   []TopicBacklog
}

// TopicBacklog is the part of a Backlog that is for one topic.
type TopicBacklog struct {
	Topic                    string
	Pending, Waiting, Failed int64
	Oldest                   time.Duration
}

const topicBacklogSQL = `
	SELECT topic, count(*) FILTER (WHERE status = 'PENDING'), count(*) FILTER (WHERE status = 'PENDING' AND attempts > 0),
		count(*) FILTER (WHERE status = 'FAILED'),
		coalesce(extract(epoch FROM clock_timestamp() - min(created_at) FILTER (WHERE status = 'PENDING')), 0)::float8
	FROM (
		SELECT topic, status, attempts, created_at FROM outbox_events WHERE status = 'PENDING'
		UNION ALL
		SELECT topic, status, attempts, created_at FROM outbox_events
		WHERE attempts > 0 AND status IN ('PENDING', 'FAILED') AND status = 'FAILED'
	) AS open GROUP BY topic ORDER BY topic`

// Backlog counts what has not been published. It reads all open rows.
func (o *Operator) Backlog(ctx context.Context) (Backlog, error) {
	rows, err := o.pool.Query(ctx, topicBacklogSQL, planned)
	if err != nil {
		return Backlog{}, fmt.Errorf("read outbox backlog: %w", err)
	}
	var b Backlog
	var t TopicBacklog
	var oldest float64
	_, err = pgx.ForEachRow(rows, []any{&t.Topic, &t.Pending, &t.Waiting, &t.Failed, &oldest}, func() error {
		t.Oldest = seconds(oldest)
		b.Topics = append(b.Topics, t)
		b.Pending, b.Waiting, b.Failed = b.Pending+t.Pending, b.Waiting+t.Waiting, b.Failed+t.Failed
		b.Oldest = max(b.Oldest, t.Oldest)
		return nil
	})
	if err != nil {
		return Backlog{}, fmt.Errorf("read outbox backlog: %w", err)
	}
	return b, nil
}

// Retry has a blocked event tried again now, with all its attempts before it.
func (o *Operator) Retry(ctx context.Context, seq int64, by Author) error {
	return o.resolve(ctx, seq, "retry", `status = 'PENDING', attempts = 0`, by)
}

// Skip takes a blocked event out of the way: it is never published, and the
// aggregate goes on behind it. The author has to give a reason.
//
// A Waiting event may become due while it is being skipped; then it can happen
// that a relay publishes it all the same.
func (o *Operator) Skip(ctx context.Context, seq int64, by Author) error {
	if by.Reason == "" {
		return fmt.Errorf("skip outbox event %d: %w", seq, ErrNoReason)
	}
	return o.resolve(ctx, seq, "skip", `status = 'SKIPPED'`, by)
}

const auditSQL = `
	INSERT INTO outbox_actions (actor, action, reason, events, seq, event_id, aggregate_type, aggregate_id, topic, attempts, last_error)
	SELECT $1, $2, $3, 1, seq, id, aggregate_type, aggregate_id, topic, attempts, last_error FROM outbox_events`

// resolve changes a row that holds up its aggregate. Its row lock keeps a relay
// from marking it meanwhile.
func (o *Operator) resolve(ctx context.Context, seq int64, action, change string, by Author) error {
	err := postgres.InTx(ctx, o.pool, func(ctx context.Context, tx pgx.Tx) error {
		var status string
		var blocked bool
		err := tx.QueryRow(ctx, `
			SELECT status, status = 'FAILED' OR status = 'PENDING' AND attempts > 0 AND coalesce(next_attempt_at > clock_timestamp(), false)
			FROM outbox_events WHERE seq = $1 FOR UPDATE`, seq).Scan(&status, &blocked)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return ErrEventNotFound
		case err != nil:
			return err
		case !blocked:
			return fmt.Errorf("it is %s: %w", status, ErrNotBlocked)
		}
		if _, err := tx.Exec(ctx, auditSQL+` WHERE seq = $4`, by.Name, action, by.Reason, seq); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `UPDATE outbox_events SET next_attempt_at = NULL, `+change+` WHERE seq = $1`, seq)
		return err
	})
	if err != nil {
		return fmt.Errorf("%s outbox event %d: %w", action, seq, err)
	}
	o.wake()
	return nil
}

// RetryFailed has all Failed events tried again, or those for one topic. It
// returns how many there were.
func (o *Operator) RetryFailed(ctx context.Context, topic string, by Author) (events int64, err error) {
	err = postgres.InTx(ctx, o.pool, func(ctx context.Context, tx pgx.Tx) error {
		// Locked first, so that what is written down is what is changed.
		rows, err := tx.Query(ctx, `
			SELECT seq FROM outbox_events
			WHERE attempts > 0 AND status IN ('PENDING', 'FAILED') AND status = 'FAILED' AND ($1 = '' OR topic = $1)
			ORDER BY seq FOR UPDATE`, topic)
		if err != nil {
			return err
		}
		seqs, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, auditSQL+` WHERE seq = ANY ($4) ORDER BY seq`, by.Name, "retry", by.Reason, seqs); err != nil {
			return err
		}
		events = int64(len(seqs))
		_, err = tx.Exec(ctx, `UPDATE outbox_events SET next_attempt_at = NULL, status = 'PENDING', attempts = 0 WHERE seq = ANY ($1)`, seqs)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("retry outbox events: %w", err)
	}
	if events > 0 {
		o.wake()
	}
	return events, nil
}

func (o *Operator) wake() {
	if o.waker != nil {
		o.waker.Wake(ResolvedName)
	}
}
