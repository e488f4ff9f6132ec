package deadletter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/parking"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/topics"
)

// What can be wrong with what is asked for.
var (
	ErrNotFound     = errors.New("there is no such dead letter")
	ErrNotOpen      = errors.New("the dead letter is not open")
	ErrReplayLimit  = errors.New("the dead letter was redriven too often")
	ErrTopicMissing = errors.New("the topic of the dead letter does not exist")
	// ErrNoEvent: a record without an event has no id that could be replaced.
	ErrNoEvent = errors.New("the record of the dead letter is no event")
	// ErrNewIDNeedsForce: a new id makes consumers act twice on what they did once.
	ErrNewIDNeedsForce = errors.New("a redrive under new event ids must be forced")
)

// Config is what a Store works with.
type Config struct {
	Pool *pgxpool.Pool
	// Naming leads from names of topics at the broker to those of the outbox.
	Naming topics.Naming
	// TopicNames returns the names of all topics that the broker has. It is asked
	// before a redrive, outside of any transaction.
	TopicNames func(ctx context.Context) ([]string, error)
	// Wake wakes the relay, those that drain lanes and those that take what goes to
	// consumers directly (DirectWakeName), and WakeKeeper the Keeper. Nil does without.
	Wake, WakeKeeper func()
	// Policies redrive letters by themselves. The Keeper carries them out, others show
	// what it will do.
	Policies Policies
	// Registerer takes the metrics. Nil keeps none.
	Registerer prometheus.Registerer
}

// Store answers questions about dead letters and redrives them. It is safe for
// concurrent use.
type Store struct {
	cfg      Config
	redriven prometheus.Counter
	refused  prometheus.Counter
	// chunk is how many letters one transaction redrives. Tests make it smaller.
	chunk int
	// between, in tests, is called between chunks.
	between func() error
}

// New returns a store.
func New(cfg Config) *Store {
	if cfg.Wake == nil {
		cfg.Wake = func() {}
	}
	if cfg.WakeKeeper == nil {
		cfg.WakeKeeper = func() {}
	}
	s := &Store{cfg: cfg, chunk: redriveChunk, redriven: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "millrace_dead_letters_redriven_total", Help: "Dead letters that were redriven by this process.",
	}), refused: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "millrace_dead_letters_refused_total", Help: "Dead letters that this process was asked to redrive and did not.",
	})}
	if cfg.Registerer != nil {
		cfg.Registerer.MustRegister(s.redriven, s.refused)
	}
	return s
}

// Letter is a dead letter as it is filed.
type Letter struct {
	ID              uuid.UUID
	Status          Status
	Consumer, Group string
	// Record is the original record. In lists it has neither value nor headers.
	Record topics.Record
	// EventType, Source and EventID are empty when the record could not be decoded.
	EventType, Source, EventID string
	ReplaySession              string
	Class                      string
	Reason, Error              string
	ErrorType, CauseType       string
	Attempts                   int
	FirstFailure, LastFailure  time.Time
	Fingerprint                string
	// ReplayCount is how often the event was redriven, over all of its letters.
	ReplayCount int
	// RedriveOf is the letter whose redrive failed and led to this one, or nil.
	RedriveOf *uuid.UUID
	// Lane is the lane of which the letter is the head; nil when it is none.
	Lane *parking.Lane
	// NextRetry is when a policy redrives it, or nil.
	NextRetry *NextRetry
	// ArchivedAt is when it was put out of sight; zero while it is not.
	ArchivedAt time.Time
	// Origin is what wrote the letter, such as "kafka-connect"; empty for Millrace.
	Origin string
	// Cluster is the id of the cluster in which the original lies; empty: that of the
	// installation.
	Cluster string
	// History tells of the attempts that failed, and Stack where the last one
	// panicked, if it did. Not in lists.
	History []middleware.Failure
	Stack   string
	// Edits is how often the record was edited.
	Edits int
	// Current is the record that a redrive sends: the original, or that of the last
	// edit. Not in lists.
	Current topics.Record
	// EditLog has the edits from the first on. Not in lists.
	EditLog []Edited
	// Actions is what people did with it. Not in lists.
	Actions []Action
}

// Action is one entry of the audit.
type Action struct {
	At time.Time
	// Actor is the name of the principal.
	Actor string
	// Action is one of redrive, edit, discard, resolve, archive, restore, delete and
	// remove; of a redrive of many start, pause, resume and cancel.
	Action string
	Reason string
	// Forced says that a limit was overridden.
	Forced bool
	// Detail says more, such as the new id of an event.
	Detail string
	// RedriveID is the redrive of many that it was part of, or nil.
	RedriveID *uuid.UUID
}

// Page says which part of a list.
type Page struct {
	// Size defaults to 50 and is at most 1000.
	Size int
	// Token is the NextToken of the page before; empty for the first.
	Token string
}

// List is one page of letters.
type List struct {
	Letters []Letter
	// NextToken continues the list; empty at its end.
	NextToken string
}

const (
	pageSizeDefault = 50
	pageSizeMax     = 1000
)

const listColumns = `id, status, consumer, consumer_group, topic, topic_id, partition, "offset", record_time, key,
  coalesce(event_type, ''), coalesce(source, ''), coalesce(event_id, ''), replay_session, class, reason, error,
  error_type, cause_type, attempts, first_failed_at, last_failed_at, fingerprint, replay_count, redrive_of, edits, archived_at, origin, cluster`

// fields are where listColumns go.
func (l *Letter) fields() []any {
	r := &l.Record
	return []any{
		&l.ID, &l.Status, &l.Consumer, &l.Group, &r.Topic, (*uuid.UUID)(&r.TopicID), &r.Partition, &r.Offset, &nullTime{&r.Timestamp}, &r.Key,
		&l.EventType, &l.Source, &l.EventID, &l.ReplaySession, &l.Class, &l.Reason, &l.Error,
		&l.ErrorType, &l.CauseType, &l.Attempts, &l.FirstFailure, &l.LastFailure, &l.Fingerprint, &l.ReplayCount, &l.RedriveOf, &l.Edits, &nullTime{&l.ArchivedAt}, &l.Origin, &l.Cluster,
	}
}

// nullTime scans NULL as the zero time.
type nullTime struct{ to *time.Time }

// Scan implements sql.Scanner.
func (n *nullTime) Scan(value any) error {
	switch v := value.(type) {
	case nil:
		*n.to = time.Time{}
	case time.Time:
		*n.to = v
	default:
		return fmt.Errorf("scan time: unexpected %T", value)
	}
	return nil
}

// List returns the letters that the filter selects, the last failure first.
// Paging is by key: letters that come meanwhile do not move those on later pages.
// A token belongs to its filter; otherwise the error is
// postgres.ErrPageToken.
func (s *Store) List(ctx context.Context, f Filter, p Page) (List, error) {
	size := p.size()
	q := f.conditions()
	if p.Token != "" {
		at, id, err := p.after(f.identity())
		if err != nil {
			return List{}, err
		}
		q.Where("(last_failed_at, id) < (%s, %s)", at, id)
	}
	sql := "SELECT " + listColumns + "\nFROM dead_letters" + q.Clause() +
		fmt.Sprintf("\nORDER BY last_failed_at DESC, id DESC\nLIMIT %d", size+1)
	rows, err := s.cfg.Pool.Query(ctx, sql, q.Args()...)
	if err != nil {
		return List{}, fmt.Errorf("list dead letters: %w", err)
	}
	letters, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Letter, error) {
		var l Letter
		return l, row.Scan(l.fields()...)
	})
	if err != nil {
		return List{}, fmt.Errorf("list dead letters: %w", err)
	}
	for i := range letters {
		letters[i].NextRetry = s.cfg.Policies.next(letters[i])
	}
	out := List{Letters: letters}
	if len(letters) > size {
		out.Letters = letters[:size]
		last := letters[size-1]
		out.NextToken = postgres.Place{At: last.LastFailure, ID: last.ID.String()}.Token(f.identity())
	}
	if err := findLanes(ctx, s.cfg.Pool, out.Letters); err != nil {
		return List{}, err
	}
	return out, nil
}

// Group is the letters with one fingerprint.
type Group struct {
	Fingerprint, Consumer, Class string
	// Reason is that of the letter that failed last.
	Reason              string
	Count               int64
	FirstSeen, LastSeen time.Time
}

// Groups returns the letters that the filter selects by fingerprint, the largest
// group first, at most limit.
func (s *Store) Groups(ctx context.Context, f Filter, limit int) ([]Group, error) {
	q := f.conditions()
	sql := `SELECT fingerprint, consumer, class, (array_agg(left(reason, 1024) ORDER BY last_failed_at DESC))[1], count(*),
  min(first_failed_at), max(last_failed_at)
FROM dead_letters` + q.Clause() + fmt.Sprintf(`
GROUP BY fingerprint, consumer, class
ORDER BY count(*) DESC, fingerprint, consumer
LIMIT %d`, min(max(limit, 1), pageSizeMax))
	rows, err := s.cfg.Pool.Query(ctx, sql, q.Args()...)
	if err != nil {
		return nil, fmt.Errorf("group dead letters: %w", err)
	}
	groups, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Group])
	if err != nil {
		return nil, fmt.Errorf("group dead letters: %w", err)
	}
	return groups, nil
}

// Get returns one letter with its record and what was done with it, or
// ErrNotFound.
func (s *Store) Get(ctx context.Context, id string) (Letter, error) {
	parsed, err := parseID(id)
	if err != nil {
		return Letter{}, err
	}
	l, err := getIn(ctx, s.cfg.Pool, parsed, "")
	if err != nil {
		return Letter{}, err
	}
	if err := loadEdits(ctx, s.cfg.Pool, &l); err != nil {
		return Letter{}, err
	}
	if err := s.loadNextRetry(ctx, &l); err != nil {
		return Letter{}, err
	}
	rows, err := s.cfg.Pool.Query(ctx,
		`SELECT at, actor, action, reason, forced, detail, redrive_id FROM dead_letter_actions WHERE dead_letter_id = $1 ORDER BY id`, parsed)
	if err == nil {
		l.Actions, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Action])
	}
	if err != nil {
		return Letter{}, fmt.Errorf("read the actions of dead letter %s: %w", id, err)
	}
	whole := []Letter{l}
	if err := findLanes(ctx, s.cfg.Pool, whole); err != nil {
		return Letter{}, err
	}
	return whole[0], nil
}

// Querier is a pool or a transaction.
type Querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// parseID reads the id of a letter. What is none is the id of no letter.
func parseID(text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return uuid.Nil, fmt.Errorf("dead letter %q: %w", text, ErrNotFound)
	}
	return id, nil
}

// mustBeAtHand refuses letters that are archived or deleted.
func (l Letter) mustBeAtHand() error {
	switch {
	case l.Status == Deleted:
		return fmt.Errorf("dead letter %s: %w", l.ID, ErrDeleted)
	case !l.ArchivedAt.IsZero():
		return fmt.Errorf("dead letter %s: %w: restore it first", l.ID, ErrArchived)
	}
	return nil
}

// mustBeOpen says why nothing can be done about a letter.
func (l Letter) mustBeOpen() error {
	if err := l.mustBeAtHand(); err != nil {
		return err
	}
	if l.Status != Open {
		return fmt.Errorf("dead letter %s is %s: %w", l.ID, l.Status, ErrNotOpen)
	}
	return nil
}

func getIn(ctx context.Context, db Querier, id uuid.UUID, lock string) (Letter, error) {
	l, err := scanWhole(db.QueryRow(ctx, wholeSQL+" WHERE id = $1 "+lock, id))
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Letter{}, fmt.Errorf("dead letter %s: %w", id, ErrNotFound)
	case err != nil:
		return Letter{}, fmt.Errorf("read dead letter %s: %w", id, err)
	}
	return l, nil
}

const wholeSQL = "SELECT " + listColumns + ", value, header_keys, header_values, history, stack FROM dead_letters"

// scanWhole reads a row of wholeSQL.
func scanWhole(row pgx.Row) (Letter, error) {
	var l Letter
	var keys, values [][]byte
	var history []byte
	if err := row.Scan(append(l.fields(), &l.Record.Value, &keys, &values, &history, &l.Stack)...); err != nil {
		return Letter{}, err
	}
	if err := json.Unmarshal(history, &l.History); err != nil {
		return Letter{}, fmt.Errorf("history of dead letter %s: %w", l.ID, err)
	}
	var err error
	if l.Record.Headers, err = headersOf(keys, values); err != nil {
		return Letter{}, fmt.Errorf("dead letter %s: %w", l.ID, err)
	}
	return l, nil
}

// Stats returns how many letters there are in each status; those that are archived
// count as archivedStatus.
func (s *Store) Stats(ctx context.Context) (map[Status]int64, error) { return stats(ctx, s.cfg.Pool) }

// archivedStatus stands in figures for letters that are archived, whatever their
// status.
const archivedStatus Status = "ARCHIVED"

func stats(ctx context.Context, pool *pgxpool.Pool) (map[Status]int64, error) {
	counts := make(map[Status]int64, len(Statuses()))
	for _, status := range []Status{Open, Redriven, Resolved, Discarded, archivedStatus} {
		counts[status] = 0
	}
	rows, err := pool.Query(ctx, `
		SELECT CASE WHEN archived_at IS NULL THEN status ELSE 'ARCHIVED' END, count(*) FROM dead_letters GROUP BY 1`)
	if err != nil {
		return nil, fmt.Errorf("count dead letters: %w", err)
	}
	var status Status
	var n int64
	if _, err := pgx.ForEachRow(rows, []any{&status, &n}, func() error { counts[status] = n; return nil }); err != nil {
		return nil, fmt.Errorf("count dead letters: %w", err)
	}
	return counts, nil
}
