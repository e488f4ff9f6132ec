// Package holds keeps what people have put on hold: everything that is queued, the
// executions of a resource class, or those of a user. What is held is not admitted
// until the hold is lifted. What was admitted before goes on, new work is accepted
// and queued, and time limits keep counting.
//
// A hold is a row of admission_holds. The admitters read the table in the
// transaction in which they decide (Read), under a lock that Place takes against
// them: once Place has returned, nothing is admitted that the hold covers, whoever
// decides, and however many processes there are. Holds survive all of them. Placing
// what is there already and lifting what is not there are no errors and change
// nothing, so both can be repeated after a crash or a lost answer.
package holds

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/internal/postgres"
)

// Scope is how far a hold reaches.
type Scope string

// The scopes.
const (
	// All holds everything that is queued.
	All Scope = "all"
	// Class holds the executions of one resource class.
	Class Scope = "class"
	// User holds the executions of one user of a tenant.
	User Scope = "user"
)

// Target is what a hold is about. There is at most one hold of each.
type Target struct {
	Scope Scope
	// ResourceClass is set when the scope is Class, Tenant and User when it is User.
	ResourceClass, Tenant, User string
}

// ErrTarget: the names that were given do not fit the scope.
var ErrTarget = errors.New("a hold is of everything, of one resource class, or of one user of a tenant")

// Check returns ErrTarget unless the scope is known and has its names.
func (t Target) Check() error {
	class, user := t.ResourceClass != "", t.User != "" && t.Tenant != ""
	none := t.User == "" && t.Tenant == ""
	switch {
	case t.Scope == All && !class && none, t.Scope == Class && class && none, t.Scope == User && !class && user:
		return nil
	}
	return ErrTarget
}

// String names the target for people.
func (t Target) String() string {
	switch t.Scope {
	case Class:
		return fmt.Sprintf("the resource class %q", t.ResourceClass)
	case User:
		return fmt.Sprintf("the user %q of the tenant %q", t.User, t.Tenant)
	default:
		return "everything"
	}
}

// Covers reports whether an execution of this class and user is held by it.
func (t Target) Covers(class, tenant, user string) bool {
	switch t.Scope {
	case All:
		return true
	case Class:
		return t.ResourceClass == class
	case User:
		return t.Tenant == tenant && t.User == user
	default:
		return false
	}
}

// Hold is a target on hold, with who asked for it, why, and since when.
type Hold struct {
	Target
	By, Reason string
	Since      time.Time
}

// Store keeps the holds. It is safe for concurrent use.
type Store struct {
	pool *pgxpool.Pool
	wake func()
	log  *slog.Logger
	// patience is how long Place waits for rounds of admission that are under way. A
	// round takes milliseconds; one that is stuck with its process holds up nobody
	// else.
	patience time.Duration
}

const patience = 5 * time.Second

// New returns a store on the pool. wake wakes the admitters of all processes; what
// people do is written to the log.
func New(pool *pgxpool.Pool, wake func(), log *slog.Logger) *Store {
	return &Store{pool: pool, wake: wake, log: log, patience: patience}
}

const columns = `scope, resource_class, tenant, user_name, held_by, reason, created_at`

// ofTarget selects the hold of a target.
const ofTarget = ` WHERE (scope, resource_class, tenant, user_name) = ($1, $2, $3, $4)`

func scan(row pgx.CollectableRow) (Hold, error) {
	var h Hold
	err := row.Scan(&h.Scope, &h.ResourceClass, &h.Tenant, &h.User, &h.By, &h.Reason, &h.Since)
	h.Since = h.Since.UTC()
	return h, err
}

// Place puts the target on hold. It returns the hold, and whether it is a new one:
// where there was one already, it stays as it was, with who asked first.
func (s *Store) Place(ctx context.Context, t Target, by, reason string) (hold Hold, placed bool, err error) {
	if err := t.Check(); err != nil {
		return Hold{}, false, fmt.Errorf("hold: %w", err)
	}
	err = postgres.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		if err := s.waitForRounds(ctx, tx); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `INSERT INTO admission_holds (scope, resource_class, tenant, user_name, held_by, reason)
			VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING`,
			t.Scope, t.ResourceClass, t.Tenant, t.User, by, reason)
		if err != nil {
			return err
		}
		placed = tag.RowsAffected() > 0
		rows, err := tx.Query(ctx, `SELECT `+columns+` FROM admission_holds`+ofTarget, t.Scope, t.ResourceClass, t.Tenant, t.User)
		if err != nil {
			return err
		}
		hold, err = pgx.CollectExactlyOneRow(rows, scan)
		return err
	})
	if err != nil {
		return Hold{}, false, fmt.Errorf("hold %s: %w", t, err)
	}
	if placed {
		s.done(ctx, "admission is on hold", t, by, reason)
	}
	return hold, placed, nil
}

// waitForRounds waits until no round of admission is under way that has read the
// holds already, and keeps others from reading them until the commit. One that does
// not end in time is not waited for: what it has decided comes before the hold.
func (s *Store) waitForRounds(ctx context.Context, tx pgx.Tx) error {
	err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `SELECT set_config('lock_timeout', $1, true)`, fmt.Sprintf("%dms", s.patience.Milliseconds()))
		if err == nil {
			_, err = tx.Exec(ctx, `LOCK TABLE admission_holds IN EXCLUSIVE MODE`)
		}
		return err
	})
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok && refused.Code == lockNotAvailable {
		return nil
	}
	return err
}

// lockNotAvailable is the SQLSTATE of a lock that was not had in time.
const lockNotAvailable = "55P03"

// Lift lets what the target covers be admitted again, unless another hold covers it
// too. It returns the hold that there was, and false when there was none.
func (s *Store) Lift(ctx context.Context, t Target, by, reason string) (hold Hold, lifted bool, err error) {
	if err := t.Check(); err != nil {
		return Hold{}, false, fmt.Errorf("resume: %w", err)
	}
	rows, err := s.pool.Query(ctx, `DELETE FROM admission_holds`+ofTarget+` RETURNING `+columns,
		t.Scope, t.ResourceClass, t.Tenant, t.User)
	if err == nil {
		hold, err = pgx.CollectExactlyOneRow(rows, scan)
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return Hold{}, false, nil
	}
	if err != nil {
		return Hold{}, false, fmt.Errorf("resume %s: %w", t, err)
	}
	s.done(ctx, "admission is resumed", t, by, reason)
	return hold, true, nil
}

// done tells the admitters and the log what was changed.
func (s *Store) done(ctx context.Context, what string, t Target, by, reason string) {
	s.wake()
	s.log.InfoContext(ctx, what, "scope", string(t.Scope), "resource_class", t.ResourceClass,
		"tenant", t.Tenant, "user", t.User, "by", by, "reason", strings.ToValidUTF8(reason, "\uFFFD"))
}

// List returns all holds: first that of everything, then those of classes, then
// those of users, each by name.
func (s *Store) List(ctx context.Context) ([]Hold, error) { return List(ctx, s.pool) }

// Querier is what List needs of a pool or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// List is Store.List on any connection.
func List(ctx context.Context, db Querier) ([]Hold, error) {
	rows, err := db.Query(ctx, list)
	if err != nil {
		return nil, fmt.Errorf("list holds: %w", err)
	}
	found, err := pgx.CollectRows(rows, scan)
	if err != nil {
		return nil, fmt.Errorf("list holds: %w", err)
	}
	return found, nil
}

const list = `SELECT ` + columns + ` FROM admission_holds ORDER BY scope, resource_class, tenant, user_name`

// Read returns all holds for a transaction that admits. Those that Place has
// returned are among them, and until the transaction ends no other one is placed.
func Read(ctx context.Context, tx pgx.Tx) ([]Hold, error) {
	var found []Hold
	var batch pgx.Batch
	QueueRead(&batch, &found)
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return nil, fmt.Errorf("read holds: %w", err)
	}
	return found, nil
}

// QueueRead is Read as a part of a batch; found is there when the batch is closed.
func QueueRead(batch *pgx.Batch, found *[]Hold) {
	// A statement of its own, since the one behind it has to see what was committed
	// while this one waited.
	batch.Queue(`LOCK TABLE admission_holds IN ROW SHARE MODE`)
	batch.Queue(list).Query(func(rows pgx.Rows) (err error) {
		*found, err = pgx.CollectRows(rows, scan)
		return err
	})
}
