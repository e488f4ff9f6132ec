package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/internal/postgres"
)

// Config is what a Store works with.
type Config struct {
	Pool   *pgxpool.Pool
	Broker Broker
	// Sources default to the event log and Kafka.
	Sources map[SourceName]Source
	// Work says whether a topic, by its name at the broker, carries work rather than
	// events, and DeadLetters whether it carries dead letters. Nil: none does.
	Work, DeadLetters func(topic string) bool
	// ConfirmAbove is how many events a session may be about before it has to be
	// confirmed. Defaults to ConfirmAboveDefault.
	ConfirmAbove int64
	// Wake wakes the Keeper. Nil does without.
	Wake func()
}

// Defaults and bounds.
const (
	ConfirmAboveDefault int64 = 100_000
	// maxOpen is how many sessions may be waiting, running, paused or stopped.
	maxOpen = 1000

	pageSizeDefault = 50
	pageSizeMax     = 1000
)

// Store makes sessions, answers questions about them, and lets people intervene. It
// is safe for concurrent use.
type Store struct {
	cfg Config
}

// New returns a store.
func New(cfg Config) *Store {
	if cfg.Sources == nil {
		cfg.Sources = map[SourceName]Source{EventLog: NewEventLog(cfg.Pool, cfg.Broker), Kafka: NewKafka(cfg.Broker)}
	}
	none := func(string) bool { return false }
	if cfg.Work == nil {
		cfg.Work = none
	}
	if cfg.DeadLetters == nil {
		cfg.DeadLetters = none
	}
	if cfg.Wake == nil {
		cfg.Wake = func() {}
	}
	cfg.ConfirmAbove = cmp.Or(cfg.ConfirmAbove, ConfirmAboveDefault)
	return &Store{cfg}
}

// querier is a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Get returns a session with what people did about it, or an error that wraps
// ErrNotFound.
func (s *Store) Get(ctx context.Context, id string) (Session, error) {
	one, err := get(ctx, s.cfg.Pool, id, "")
	if err != nil {
		return one, err
	}
	rows, err := s.cfg.Pool.Query(ctx, `SELECT at, actor, action, reason, detail FROM replay_actions WHERE session_id = $1 ORDER BY id`, one.ID)
	if err == nil {
		one.Actions, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Action])
	}
	if err != nil {
		return one, fmt.Errorf("read the actions of replay %s: %w", id, err)
	}
	return one, nil
}

func get(ctx context.Context, db querier, text, lock string) (Session, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return Session{}, fmt.Errorf("replay %q: %w", text, ErrNotFound)
	}
	one, err := scan(db.QueryRow(ctx, `SELECT `+columns+` FROM replay_sessions WHERE id = $1 `+lock, id))
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return one, fmt.Errorf("replay %s: %w", id, ErrNotFound)
	case err != nil:
		return one, fmt.Errorf("read replay %s: %w", id, err)
	}
	return one, nil
}

// Page says which part of a list is wanted.
type Page struct {
	// Size is how many items. Defaults to 50; at most 1000.
	Size int
	// Token is the NextToken of the page before; empty for the first.
	Token string
}

// List is one page of sessions.
type List struct {
	Sessions  []Session
	NextToken string
}

// List returns sessions in any of the states, or in all, the newest first. The error
// wraps postgres.ErrPageToken when the token is not one of this list.
func (s *Store) List(ctx context.Context, states []State, p Page) (List, error) {
	size := cmp.Or(min(max(p.Size, 0), pageSizeMax), pageSizeDefault)
	states = slices.Sorted(slices.Values(states))
	q := &postgres.Conditions{}
	if len(states) > 0 {
		q.Where("state = ANY(%s)", states)
	}
	if p.Token != "" {
		place, err := postgres.ParseToken(p.Token, states)
		if err != nil {
			return List{}, err
		}
		id, err := uuid.Parse(place.ID)
		if err != nil {
			return List{}, fmt.Errorf("%w: malformed", postgres.ErrPageToken)
		}
		q.Where("(created_at, id) < (%s, %s)", place.At, id)
	}
	rows, err := s.cfg.Pool.Query(ctx, `SELECT `+columns+` FROM replay_sessions`+q.Clause()+
		fmt.Sprintf("\nORDER BY created_at DESC, id DESC LIMIT %d", size+1), q.Args()...)
	var all []Session
	if err == nil {
		all, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (Session, error) { return scan(row) })
	}
	if err != nil {
		return List{}, fmt.Errorf("list replays: %w", err)
	}
	out := List{Sessions: all}
	if len(all) > size {
		last := all[size-1]
		out.Sessions = all[:size]
		out.NextToken = postgres.Place{At: last.CreatedAt, ID: last.ID.String()}.Token(states)
	}
	return out, nil
}

// Pause keeps a session from going on, once what is being published is. The error
// wraps ErrNotFound or ErrState where that is the matter, here and in Resume and
// Cancel. What is asked for twice is done once.
func (s *Store) Pause(ctx context.Context, id, actor, reason string) error {
	return s.move(ctx, id, Pause, actor, reason)
}

// Resume lets a session go on that was paused or has stopped, when it is its turn.
func (s *Store) Resume(ctx context.Context, id, actor, reason string) error {
	return s.move(ctx, id, Resume, actor, reason)
}

// Cancel ends a session. What is published stays so.
func (s *Store) Cancel(ctx context.Context, id, actor, reason string) error {
	return s.move(ctx, id, Cancel, actor, reason)
}

func (s *Store) move(ctx context.Context, id string, m Move, actor, reason string) error {
	err := postgres.InTx(ctx, s.cfg.Pool, func(ctx context.Context, tx pgx.Tx) error {
		one, err := get(ctx, tx, id, "FOR UPDATE")
		if err != nil {
			return err
		}
		next, err := one.State.After(m)
		if err != nil {
			return fmt.Errorf("replay %s: %w", id, err)
		}
		if next == one.State {
			return nil
		}
		_, err = tx.Exec(ctx, `UPDATE replay_sessions SET state = $2, note = '', speed = 0, updated_at = clock_timestamp(),
			finished_at = CASE WHEN $3 THEN clock_timestamp() END WHERE id = $1`, one.ID, next, next.Final())
		if err != nil {
			return fmt.Errorf("%s replay %s: %w", m, id, err)
		}
		return audit(ctx, tx, one.ID, Action{Actor: actor, Action: string(m), Reason: reason})
	})
	if err == nil {
		s.cfg.Wake()
	}
	return err
}

// SetRate changes how many events a session publishes per second, from now on; 0
// stands for as fast as it goes. The error wraps ErrInvalid when the rate cannot be
// kept, ErrNotFound, and ErrState when the session is over.
func (s *Store) SetRate(ctx context.Context, id string, rate float64, actor, reason string) error {
	if err := CheckRate(rate); rate != 0 && err != nil {
		return err
	}
	err := postgres.InTx(ctx, s.cfg.Pool, func(ctx context.Context, tx pgx.Tx) error {
		one, err := get(ctx, tx, id, "FOR UPDATE")
		switch {
		case err != nil:
			return err
		case one.State.Final():
			return fmt.Errorf("change the rate of replay %s, which is %s: %w", id, one.State, ErrState)
		case one.Rate == rate:
			return nil
		}
		_, err = tx.Exec(ctx, `UPDATE replay_sessions SET rate = nullif($2::float8, 0), speed = 0, updated_at = clock_timestamp() WHERE id = $1`, one.ID, rate)
		if err != nil {
			return fmt.Errorf("change the rate of replay %s: %w", id, err)
		}
		return audit(ctx, tx, one.ID, Action{Actor: actor, Action: "rate", Reason: reason,
			Detail: fmt.Sprintf("from %s to %s", rateText(one.Rate), rateText(rate))})
	})
	if err == nil {
		s.cfg.Wake()
	}
	return err
}

func rateText(rate float64) string {
	if rate == 0 {
		return "as fast as it goes"
	}
	return fmt.Sprintf("%g per second", rate)
}

func audit(ctx context.Context, tx pgx.Tx, id uuid.UUID, a Action) error {
	_, err := tx.Exec(ctx, `INSERT INTO replay_actions (session_id, actor, action, reason, detail) VALUES ($1, $2, $3, $4, $5)`,
		id, text(a.Actor), a.Action, text(a.Reason), a.Detail)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}

// Counts returns how many sessions are in each state.
func (s *Store) Counts(ctx context.Context) (map[State]int64, error) {
	counts := make(map[State]int64, len(States()))
	rows, err := s.cfg.Pool.Query(ctx, `SELECT state, count(*) FROM replay_sessions GROUP BY state`)
	if err == nil {
		var state State
		var n int64
		_, err = pgx.ForEachRow(rows, []any{&state, &n}, func() error { counts[state] = n; return nil })
	}
	if err != nil {
		return nil, fmt.Errorf("count replays: %w", err)
	}
	return counts, nil
}

// countTimeout bounds what a call waits for a count, and for a sample.
const countTimeout = 5 * time.Second

// text returns s as PostgreSQL can keep it.
func text(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
