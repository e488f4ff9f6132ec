package purge

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/millrace/millrace/internal/deadletter"
	"github.com/millrace/millrace/internal/postgres"
)

// State is where a purge is.
type State string

// The states.
const (
	// Running: there is something to erase, or to look at.
	Running State = "RUNNING"
	// Waiting: what is left cannot be erased yet; it is looked at again.
	Waiting   State = "WAITING"
	Done      State = "DONE"
	Cancelled State = "CANCELLED"
)

// States returns all states.
func States() []State { return []State{Running, Waiting, Done, Cancelled} }

// Over reports whether a purge in that state has ended.
func (s State) Over() bool { return s == Done || s == Cancelled }

// What a purge waits for, as counted in Purge.Waiting.
const (
	// NotEnded: executions that have not ended.
	NotEnded = "executions_not_ended"
	// WorkflowsNotEnded: instances of workflows that have not ended, or whose parent has not.
	WorkflowsNotEnded = "workflows_not_ended"
	// Parked: executions of which events are parked behind a dead letter.
	Parked = "executions_parked"
	// Unpublished: events in the outbox that are neither published nor skipped.
	Unpublished = "events_not_published"
	// HeadsOfLanes: dead letters for which later events of their key wait.
	HeadsOfLanes = "dead_letters_waited_for"
)

var (
	// ErrNotFound: there is no such purge.
	ErrNotFound = errors.New("purge not found")
	// ErrOver: the purge has ended.
	ErrOver = errors.New("the purge has ended")
	// ErrInvalid: the request cannot be carried out as it is.
	ErrInvalid = errors.New("invalid purge")
)

// Request says what is to be erased.
type Request struct {
	// User is whose data. Required.
	User string
	// Tenant is the tenant in which the user is meant; empty: every tenant. Events that
	// name the user as their subject or key, and are no execution's, do not say which
	// tenant's user that is, and are erased only when every tenant is meant.
	Tenant string
	// Cancel has executions and workflows cancelled that have not ended. Otherwise the purge
	// waits for them to end.
	Cancel bool
	// Actor asks for it, for a Reason, if one is given.
	Actor, Reason string
}

// Purge is a request and what has become of it.
type Purge struct {
	ID    uuid.UUID
	State State
	// Tenant is empty for every tenant.
	Tenant string
	// UserHash is the SHA-256 of the user's name.
	UserHash []byte
	Cancel   bool
	// Actor asked for it, for the Reason.
	Actor, Reason string
	// Step is what it does in its current round, Rounds how many are over.
	Step   string
	Rounds int
	// Erased is what was erased, by kind. Waiting is what could not be erased when it was
	// last looked at, by what it waits for.
	Erased, Waiting      Counts
	CreatedAt, UpdatedAt time.Time
	// FinishedAt is zero while it is under way.
	FinishedAt time.Time
}

// HashOf is what remains of a user's name.
func HashOf(user string) []byte {
	sum := sha256.Sum256([]byte(user))
	return sum[:]
}

// Retention says how long what is kept. Zero: for ever.
type Retention struct {
	// Executions and Instances (and sagas) stay so long after their end.
	Executions, Instances time.Duration
	// Remember is for how long something can come in about executions that are purged:
	// as long as the longest of topics, outbox and event log keep their events.
	Remember time.Duration
}

// Letters deletes dead letters; *deadletter.Store implements it.
type Letters interface {
	Delete(ctx context.Context, ids []string, actor, reason string) (deadletter.Changed, error)
}

// Engine erases instances of workflows: engine.Erase and engine.AskCancel.
type Engine struct {
	// Erase removes those of some instances that ended so long ago, with all that belongs
	// to them, and returns which they were.
	Erase func(ctx context.Context, tx pgx.Tx, ids []uuid.UUID, since time.Duration) ([]uuid.UUID, error)
	// Cancel has instances cancelled soon.
	Cancel func(ctx context.Context, tx pgx.Tx, ids []uuid.UUID) error
}

// Config is what a store needs.
type Config struct {
	Pool      *pgxpool.Pool
	Retention Retention
	Letters   Letters
	// Cancel asks an execution to stop. It returns nil for one that has ended.
	Cancel func(ctx context.Context, id, by, reason string) error
	// Workflows are the instances of the workflow engine.
	Workflows Engine
	// Wake tells the keeper that there is something to do; nil does without.
	Wake func()
	// Registerer takes the metrics; nil keeps them private.
	Registerer prometheus.Registerer
}

// Store keeps purges. It is safe for concurrent use; Retire and Advance are for one
// caller at a time.
type Store struct {
	cfg    Config
	erased *prometheus.CounterVec
	// allErasedAgain is when what had come in was last looked for in full.
	allErasedAgain time.Time
	// between is called before each chunk, for tests.
	between func() error
}

// New returns a store.
func New(cfg Config) *Store {
	if cfg.Wake == nil {
		cfg.Wake = func() {}
	}
	return &Store{cfg: cfg, erased: promauto.With(cfg.Registerer).NewCounterVec(prometheus.CounterOpts{
		Name: "millrace_purged_rows_total", Help: "Rows that were erased because they were old enough or by a purge, by kind.",
	}, []string{"kind"})}
}

func (s *Store) betweenChunks() error {
	if s.between == nil {
		return nil
	}
	return s.between()
}

// note adds what a committed chunk has erased.
func (s *Store) note(erased, counts Counts) {
	erased.add(counts)
	for kind, n := range counts {
		s.erased.WithLabelValues(kind).Add(float64(n))
	}
}

const purgeSQL = `
	SELECT id, state, coalesce(tenant, ''), user_hash, cancel, actor, reason, step, rounds, erased,
		CASE WHEN state IN ('RUNNING', 'WAITING') THEN left_over ELSE '{}' END, created_at, updated_at, coalesce(finished_at, '0001-01-01Z')
	FROM purges `

func scan(row pgx.CollectableRow) (p Purge, err error) {
	err = row.Scan(&p.ID, &p.State, &p.Tenant, &p.UserHash, &p.Cancel, &p.Actor, &p.Reason, &p.Step, &p.Rounds, &p.Erased,
		&p.Waiting, &p.CreatedAt, &p.UpdatedAt, &p.FinishedAt)
	return p, err
}

func (r Request) check() error {
	for _, text := range []string{r.User, r.Tenant, r.Actor, r.Reason} {
		if strings.IndexByte(text, 0) >= 0 || strings.ToValidUTF8(text, "") != text || len(text) > 1024 {
			return fmt.Errorf("%w: want text of at most 1024 bytes", ErrInvalid)
		}
	}
	if r.User == "" {
		return fmt.Errorf("%w: the user is missing", ErrInvalid)
	}
	return nil
}

// Create starts a purge. While one for the same user and tenant is under way it
// returns that one, and fresh is false.
func (s *Store) Create(ctx context.Context, r Request) (p Purge, fresh bool, err error) {
	if err := r.check(); err != nil {
		return p, false, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return p, false, fmt.Errorf("start a purge: %w", err)
	}
	err = postgres.InTx(ctx, s.cfg.Pool, func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `
			INSERT INTO purges (id, tenant, user_name, user_hash, cancel, actor, reason)
			VALUES ($1, nullif($2, ''), $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING`,
			id, r.Tenant, r.User, HashOf(r.User), r.Cancel, r.Actor, r.Reason)
		if err != nil {
			return err
		}
		if fresh = tag.RowsAffected() == 1; !fresh && r.Cancel {
			// Who asks for more gets it.
			if _, err := tx.Exec(ctx, `UPDATE purges SET cancel = true, next_at = clock_timestamp()
				WHERE user_hash = $1 AND coalesce(tenant, '') = $2 AND state IN ('RUNNING', 'WAITING')`, HashOf(r.User), r.Tenant); err != nil {
				return err
			}
		}
		rows, err := tx.Query(ctx, purgeSQL+`
			WHERE user_hash = $1 AND coalesce(tenant, '') = $2 AND (id = $3 OR state IN ('RUNNING', 'WAITING'))`,
			HashOf(r.User), r.Tenant, id)
		if err != nil {
			return err
		}
		p, err = pgx.CollectExactlyOneRow(rows, scan)
		return err
	})
	if err != nil {
		return p, false, fmt.Errorf("start a purge: %w", err)
	}
	s.cfg.Wake()
	return p, fresh, nil
}

// Get returns a purge, or ErrNotFound.
func (s *Store) Get(ctx context.Context, id string) (Purge, error) {
	parsed, err := uuid.Parse(id)
	if err != nil {
		return Purge{}, fmt.Errorf("purge %q: %w", id, ErrNotFound)
	}
	rows, err := s.cfg.Pool.Query(ctx, purgeSQL+`WHERE id = $1`, parsed)
	if err != nil {
		return Purge{}, fmt.Errorf("get purge %s: %w", id, err)
	}
	p, err := pgx.CollectExactlyOneRow(rows, scan)
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrNotFound
	}
	if err != nil {
		return Purge{}, fmt.Errorf("purge %s: %w", id, err)
	}
	return p, nil
}

// List returns purges, the newest first: at most limit, older than the one named
// before, if one is. A name that is none is postgres.ErrPageToken.
func (s *Store) List(ctx context.Context, before string, limit int) ([]Purge, error) {
	last := uuid.Max
	if before != "" {
		parsed, err := uuid.Parse(before)
		if err != nil {
			return nil, fmt.Errorf("list purges: %w", postgres.ErrPageToken)
		}
		last = parsed
	}
	rows, err := s.cfg.Pool.Query(ctx, purgeSQL+`WHERE id < $1 ORDER BY id DESC LIMIT $2`, last, limit)
	if err != nil {
		return nil, fmt.Errorf("list purges: %w", err)
	}
	list, err := pgx.CollectRows(rows, scan)
	if err != nil {
		return nil, fmt.Errorf("list purges: %w", err)
	}
	return list, nil
}

// End cancels a purge: it erases nothing more. What is erased stays so. One that is
// cancelled already is returned as it is; one that is done is ErrOver.
func (s *Store) End(ctx context.Context, id string) (Purge, error) {
	p, err := s.Get(ctx, id)
	if err != nil || p.State == Cancelled {
		return p, err
	}
	tag, err := s.cfg.Pool.Exec(ctx, `
		UPDATE purges SET state = 'CANCELLED', user_name = NULL, updated_at = clock_timestamp(), finished_at = clock_timestamp()
		WHERE id = $1 AND state IN ('RUNNING', 'WAITING')`, p.ID)
	if err != nil {
		return p, fmt.Errorf("cancel purge %s: %w", id, err)
	}
	if p, err = s.Get(ctx, id); err == nil && tag.RowsAffected() == 0 && p.State != Cancelled {
		err = fmt.Errorf("purge %s: %w", id, ErrOver)
	}
	return p, err
}
