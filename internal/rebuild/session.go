package rebuild

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/internal/postgres"
)

// What can be wrong with a rebuild.
var (
	// ErrNoProjection: there is no projection of that name.
	ErrNoProjection = errors.New("there is no such projection")
	// ErrNotFound: there is no rebuild with that id.
	ErrNotFound = errors.New("there is no such rebuild")
	// ErrBusy: another rebuild or comparison of the projection has not ended.
	ErrBusy = errors.New("the projection is being rebuilt or verified already")
	// ErrState: the state of the rebuild does not allow that.
	ErrState = errors.New("the state of the rebuild does not allow that")
	// ErrNoHistory: the source holds nothing of the topic.
	ErrNoHistory = errors.New("there is no history to rebuild from")
	// ErrNoRoom: the disk is known to be too small.
	ErrNoRoom = errors.New("there is not enough room for a second copy of the tables")
	// ErrNoSource: this installation cannot read that source.
	ErrNoSource = errors.New("there is no such source")
)

// Mode is what a session is for.
type Mode string

// The modes.
const (
	// ModeRebuild builds the tables anew, compares and replaces them.
	ModeRebuild Mode = "rebuild"
	// ModeVerify builds them anew, compares, and changes nothing.
	ModeVerify Mode = "verify"
)

// State is where a session stands.
type State string

// The states. Resume leads from Paused back to Running; Done, Failed and Cancelled are
// final.
const (
	Running    State = "RUNNING"
	Paused     State = "PAUSED"
	Cancelling State = "CANCELLING" // what was made is still to be dropped
	Cancelled  State = "CANCELLED"
	Failed     State = "FAILED"
	Done       State = "DONE"
)

// Phase is what a session is at.
type Phase string

// The phases, in their order.
const (
	Preparing  Phase = "preparing"
	Loading    Phase = "loading"
	Indexing   Phase = "indexing"
	Comparing  Phase = "comparing"
	CatchingUp Phase = "catching_up"
	Swapping   Phase = "swapping"
	Finished   Phase = "finished"
)

// The names of sources.
const (
	FromEventLog = "event_log"
	FromKafka    = "kafka"
)

// Order says what to do.
type Order struct {
	Projection string
	Mode       Mode
	// Source is FromEventLog or FromKafka. Defaults to FromEventLog.
	Source string
	// KeepOld is how long the tables that were replaced are kept, under names that end in
	// "__replaced". Defaults to 0: they are dropped.
	KeepOld time.Duration
	// Force goes on although the disk may be too small, and although more than a tenth of
	// the rows would be gone.
	Force         bool
	Actor, Reason string
}

// Estimate is what a session will need.
type Estimate struct {
	// Records is about how many records will be read, Bytes how large the second copy of
	// the tables will be.
	Records, Bytes int64
	// Free is how many bytes there are; nil where that is not known.
	Free *int64
}

// Session is a rebuild, or a comparison, and what came of it.
type Session struct {
	ID uuid.UUID
	Order
	State State
	Phase Phase
	// Version is that of the declaration.
	Version string
	// Passed of Total offsets of the history have been applied, PerSecond lately.
	Passed, Total int64
	PerSecond     float64
	// Skipped is how many records could not be applied, SkippedFirst the first of them
	// with its error.
	Skipped      int64
	SkippedFirst string
	// Rows is how many rows the tables had, RowsBuilt how many were built, Carried how many
	// were taken over because their history is older than Horizon. Nil before that is known.
	Rows, RowsBuilt, Carried *int64
	Horizon                  *time.Time
	// Missing, Surplus and Different count rows in which table and history differ; nil as
	// long as nothing was compared.
	Missing, Surplus, Different *int64
	// Note says what it waits for, or why it failed.
	Note                 string
	CreatedAt, UpdatedAt time.Time
	FinishedAt, OldUntil *time.Time
}

// Differences is how many rows differ, and whether they were compared.
func (s Session) Differences() (n int64, compared bool) {
	if s.Missing == nil || s.Surplus == nil || s.Different == nil {
		return 0, false
	}
	return *s.Missing + *s.Surplus + *s.Different, true
}

// Ended says that the session does nothing any more.
func (s Session) Ended() bool { return s.State == Done || s.State == Failed || s.State == Cancelled }

// Config is what a Store works with.
type Config struct {
	Pool *pgxpool.Pool
	// Models are the projections of this program.
	Models []Model
	// Sources are the histories that can be read, by name.
	Sources map[string]Source
	// Room tells how many bytes the database, which has a size, may still grow by. Nil: it is not known.
	Room func(size int64) (free int64, known bool)
	// Wake is called after something was started, resumed or cancelled. May be nil.
	Wake func()
}

// Store starts sessions and tells of them. It is safe for concurrent use.
type Store struct{ cfg Config }

// New returns a store.
func New(cfg Config) *Store {
	if cfg.Wake == nil {
		cfg.Wake = func() {}
	}
	return &Store{cfg: cfg}
}

func (s *Store) model(name string) (Model, error) {
	for _, m := range s.cfg.Models {
		if m.Name == name {
			return m, nil
		}
	}
	return Model{}, fmt.Errorf("projection %.64q: %w", name, ErrNoProjection)
}

func (s *Store) source(name string) (Source, error) {
	source, ok := s.cfg.Sources[name]
	if !ok {
		return nil, fmt.Errorf("source %.64q: %w", name, ErrNoSource)
	}
	return source, nil
}

// Estimate says what an order would need, without doing it.
func (s *Store) Estimate(ctx context.Context, o Order) (Estimate, error) {
	var e Estimate
	m, err := s.model(o.Projection)
	if err != nil {
		return e, err
	}
	source, err := s.source(orEventLog(o.Source))
	if err != nil {
		return e, err
	}
	for _, t := range m.Tables {
		if err := checkFit(ctx, s.cfg.Pool, t.Name); err != nil {
			return e, err
		}
	}
	spans, err := source.Spans(ctx, s.cfg.Pool, m.Topic)
	if err != nil {
		return e, err
	}
	for _, span := range spans {
		e.Records += max(0, span.To-span.From)
	}
	if e.Records == 0 {
		return e, fmt.Errorf("projection %s: the %s holds nothing of topic %s: %w", m.Name, orEventLog(o.Source), m.Topic, ErrNoHistory)
	}
	var size int64
	err = s.cfg.Pool.QueryRow(ctx, `SELECT sum(pg_total_relation_size(quote_ident(t)))::bigint, pg_database_size(current_database()) FROM unnest($1::text[]) AS t`,
		m.tableNames()).Scan(&e.Bytes, &size)
	if err != nil {
		return e, fmt.Errorf("measure the tables of %s: %w", m.Name, err)
	}
	if s.cfg.Room != nil {
		if free, known := s.cfg.Room(size); known {
			e.Free = &free
		}
	}
	return e, nil
}

func orEventLog(source string) string {
	if source == "" {
		return FromEventLog
	}
	return source
}

func (m Model) tableNames() []string {
	list := make([]string, len(m.Tables))
	for i, t := range m.Tables {
		list[i] = t.Name
	}
	return list
}

// Start begins a session and returns it. A Keeper carries it out. The error wraps
// ErrBusy when another one of the projection has not ended, and ErrNoRoom when the
// disk is known to be too small.
func (s *Store) Start(ctx context.Context, o Order) (Session, error) {
	fail := func(err error) (Session, error) {
		return Session{}, fmt.Errorf("start %s of projection %s: %w", o.Mode, o.Projection, err)
	}
	o.Source = orEventLog(o.Source)
	e, err := s.Estimate(ctx, o)
	if err != nil {
		return fail(err)
	}
	if e.Free != nil && *e.Free < e.Bytes && !o.Force {
		return fail(fmt.Errorf("%w: it needs about %d bytes and there are %d", ErrNoRoom, e.Bytes, *e.Free))
	}
	id, err := uuid.NewV7()
	if err != nil {
		return fail(err)
	}
	// What an earlier one has listed is a copy of rows that somebody may want erased.
	_, err = s.cfg.Pool.Exec(ctx, `
		WITH listed AS (
		    DELETE FROM projection_differences WHERE rebuild_id IN (SELECT id FROM projection_rebuilds WHERE projection = $2 AND finished_at IS NOT NULL))
		INSERT INTO projection_rebuilds (id, projection, mode, source, keep_old, force, actor, reason, total)
		VALUES ($1, $2, $3, $4, make_interval(secs => $5), $6, $7, $8, $9)`,
		id, o.Projection, o.Mode, o.Source, o.KeepOld.Seconds(), o.Force, o.Actor, o.Reason, e.Records)
	if name, _ := postgres.UniqueViolation(err); name == "projection_rebuilds_open" {
		return fail(ErrBusy)
	}
	if err != nil {
		return fail(err)
	}
	s.cfg.Wake()
	return s.Get(ctx, id.String())
}

const sessionSQL = `
SELECT id, projection, mode, source, extract(epoch FROM keep_old)::float8, force, actor, reason, state, phase, version,
    done, total, per_second, skipped, skipped_first, rows, rows_built, carried, horizon, missing, surplus, different, note,
    created_at, updated_at, finished_at, old_until
FROM projection_rebuilds`

func scanSession(row pgx.CollectableRow) (Session, error) {
	var s Session
	var keep float64
	err := row.Scan(&s.ID, &s.Projection, &s.Mode, &s.Source, &keep, &s.Force, &s.Actor, &s.Reason, &s.State, &s.Phase, &s.Version,
		&s.Passed, &s.Total, &s.PerSecond, &s.Skipped, &s.SkippedFirst, &s.Rows, &s.RowsBuilt, &s.Carried, &s.Horizon,
		&s.Missing, &s.Surplus, &s.Different, &s.Note, &s.CreatedAt, &s.UpdatedAt, &s.FinishedAt, &s.OldUntil)
	s.KeepOld = time.Duration(keep * float64(time.Second))
	s.CreatedAt, s.UpdatedAt = s.CreatedAt.UTC(), s.UpdatedAt.UTC()
	for _, t := range []*time.Time{s.Horizon, s.FinishedAt, s.OldUntil} {
		if t != nil {
			*t = t.UTC()
		}
	}
	return s, err
}

func selectSessions(ctx context.Context, db Querier, clause string, args ...any) ([]Session, error) {
	rows, err := db.Query(ctx, sessionSQL+" "+clause, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanSession)
}

// Get returns a session, or an error that wraps ErrNotFound.
func (s *Store) Get(ctx context.Context, text string) (Session, error) {
	return getSession(ctx, s.cfg.Pool, text, "")
}

func getSession(ctx context.Context, db Querier, text, lock string) (Session, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return Session{}, fmt.Errorf("rebuild %.64q: %w", text, ErrNotFound)
	}
	found, err := selectSessions(ctx, db, "WHERE id = $1 "+lock, id)
	switch {
	case err != nil:
		return Session{}, fmt.Errorf("read rebuild %s: %w", id, err)
	case len(found) == 0:
		return Session{}, fmt.Errorf("rebuild %s: %w", id, ErrNotFound)
	}
	return found[0], nil
}

// List returns the sessions of a projection, or of all when the name is empty, the
// newest first, up to limit.
func (s *Store) List(ctx context.Context, projection string, limit int) ([]Session, error) {
	if projection != "" {
		if _, err := s.model(projection); err != nil {
			return nil, err
		}
	}
	found, err := selectSessions(ctx, s.cfg.Pool, "WHERE $1 = '' OR projection = $1 ORDER BY created_at DESC, id DESC LIMIT $2", projection, limit)
	if err != nil {
		return nil, fmt.Errorf("list rebuilds: %w", err)
	}
	return found, nil
}

// Pause lets a session wait, once what it is at is done. Errors of Pause, Resume and
// Cancel wrap ErrNotFound or ErrState where that is the matter.
func (s *Store) Pause(ctx context.Context, id string) (Session, error) {
	return s.control(ctx, id, "pause", "state = 'PAUSED'", Running)
}

// Resume lets a session go on that was paused.
func (s *Store) Resume(ctx context.Context, id string) (Session, error) {
	return s.control(ctx, id, "resume", "state = 'RUNNING', note = ''", Paused)
}

// Cancel ends a session. The tables are as they were, and what was made is dropped.
func (s *Store) Cancel(ctx context.Context, id string) (Session, error) {
	return s.control(ctx, id, "cancel", "state = 'CANCELLING', note = ''", Running, Paused)
}

func (s *Store) control(ctx context.Context, id, action, set string, from ...State) (out Session, err error) {
	err = postgres.InTx(ctx, s.cfg.Pool, func(ctx context.Context, tx pgx.Tx) error {
		session, err := getSession(ctx, tx, id, "FOR UPDATE")
		if err != nil {
			return err
		}
		if !slices.Contains(from, session.State) {
			return fmt.Errorf("%s rebuild %s, which is %s: %w", action, id, session.State, ErrState)
		}
		if _, err := tx.Exec(ctx, `UPDATE projection_rebuilds SET updated_at = clock_timestamp(), `+set+` WHERE id = $1`, session.ID); err != nil {
			return fmt.Errorf("%s rebuild %s: %w", action, id, err)
		}
		out, err = getSession(ctx, tx, id, "")
		return err
	})
	if err == nil {
		s.cfg.Wake()
	}
	return out, err
}
