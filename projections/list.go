package projections

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/postgres"
)

// Filter selects executions. A zero field selects nothing away; set fields must
// all hold.
type Filter struct {
	// States selects executions in any of these.
	States []execution.State
	Tenant string
	User   string
	// Executor and ResourceClass are compared as they are.
	Executor      string
	ResourceClass string
	// Labels must all be there with these values.
	Labels map[string]string
	// RequestedAfter is exclusive and RequestedBefore too.
	RequestedAfter  time.Time
	RequestedBefore time.Time
	// Origin is the kind of front door: "rest", "kafka".
	Origin string
	// NamePrefix is what the name begins with: see ExecutionView.Name.
	NamePrefix string
}

// Bounds of Page.Size.
const (
	PageSizeDefault = 50
	PageSizeMax     = 1000
)

// Page is a piece of a list.
type Page struct {
	// Size is the largest number of rows, 1 to PageSizeMax. Zero means
	// PageSizeDefault.
	Size int
	// Token is the NextToken of the page before; empty for the first.
	Token string
}

// ExecutionView is one row of the list of executions.
type ExecutionView struct {
	ID     string
	Tenant string
	User   string
	// Name is the label "name", else the program or function that the spec names.
	Name           string
	Executor       string
	ResourceClass  string
	Priority       int
	ConcurrencyKey string
	Labels         map[string]string
	OriginKind     string
	RerunOf        string
	NotBefore      time.Time

	State   execution.State
	Version int64
	Attempt int
	// Worker is the last one that ran it.
	Worker string

	// Times are zero where the execution has not come so far. Those of queueing,
	// scheduling and starting are of the current attempt.
	RequestedAt, QueuedAt, ReadyAt, ScheduledAt, StartedAt, FinishedAt, CancelRequestedAt time.Time
	// WaitedMillis is how long the current attempt waited in the queue, and
	// DurationMillis how long the last one ran.
	WaitedMillis, DurationMillis *int64
	// ExitCode, Signal, Reason and Message say how it ended, or why its last attempt
	// came to nothing.
	ExitCode                *int
	Signal, Reason, Message string
	// StdoutBytes and StderrBytes are what the last attempt wrote.
	StdoutBytes, StderrBytes *int64
}

// ExecutionPage is the answer to ExecutionList.
type ExecutionPage struct {
	Executions []ExecutionView
	// NextToken continues the list; empty at its end.
	NextToken string
}

// Querier is the part of a pool that lists need.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// ExecutionList returns the executions that the filter selects, newest first.
//
// Paging is by key: executions that are submitted meanwhile do not move those on
// later pages, so none is returned twice and none that was there from the start
// to the end is left out. A token belongs to its filter; with another one, or
// when it is not a token at all, the error is postgres.ErrPageToken.
func ExecutionList(ctx context.Context, db Querier, f Filter, p Page) (ExecutionPage, error) {
	size := p.Size
	if size == 0 {
		size = PageSizeDefault
	}
	size = min(max(size, 1), PageSizeMax)
	q := f.conditions()
	if p.Token != "" {
		after, err := postgres.ParseToken(p.Token, f.identity())
		if err != nil {
			return ExecutionPage{}, err
		}
		q.Where("(requested_at, id) < (%s, %s)", after.At, after.ID)
	}
	sql := "SELECT " + viewColumns + "\nFROM execution_views" + q.Clause() + fmt.Sprintf("\nORDER BY requested_at DESC, id DESC\nLIMIT %d", size+1)
	rows, err := db.Query(ctx, sql, q.Args()...)
	if err != nil {
		return ExecutionPage{}, fmt.Errorf("list executions: %w", err)
	}
	views, err := pgx.CollectRows(rows, scanView)
	if err != nil {
		return ExecutionPage{}, fmt.Errorf("list executions: %w", err)
	}
	page := ExecutionPage{Executions: views}
	if len(views) > size {
		page.Executions = views[:size]
		last := views[size-1]
		page.NextToken = postgres.Place{At: last.RequestedAt, ID: last.ID}.Token(f.identity())
	}
	return page, nil
}

func (f Filter) conditions() *postgres.Conditions {
	q := &postgres.Conditions{}
	// A row whose "requested" has not arrived yet has no place in the order.
	q.Where("requested_at IS NOT NULL")
	switch len(f.States) {
	case 0:
	case 1:
		q.Equal("state", string(f.States[0]))
	default:
		q.Where("state = ANY(%s)", f.States)
	}
	q.Equal("tenant", f.Tenant)
	q.Equal("user_name", f.User)
	q.Equal("executor", f.Executor)
	q.Equal("resource_class", f.ResourceClass)
	q.Equal("origin_kind", f.Origin)
	if len(f.Labels) > 0 {
		q.Where("labels @> %s::jsonb", labels(f.Labels))
	}
	if !f.RequestedAfter.IsZero() {
		q.Where("requested_at > %s", f.RequestedAfter)
	}
	if !f.RequestedBefore.IsZero() {
		q.Where("requested_at < %s", f.RequestedBefore)
	}
	if f.NamePrefix != "" {
		// starts_with has no wildcards to escape, and the index is used all the same.
		q.Where("name ^@ %s", f.NamePrefix)
	}
	return q
}

// identity is the filter as page tokens compare it: neither the order of the
// states nor the zone of a time matters.
func (f Filter) identity() Filter {
	f.States = slices.Clone(f.States)
	slices.Sort(f.States)
	f.RequestedAfter, f.RequestedBefore = f.RequestedAfter.UTC(), f.RequestedBefore.UTC()
	return f
}

const viewColumns = `id, coalesce(tenant, ''), coalesce(user_name, ''), coalesce(name, ''), coalesce(executor, ''),
  coalesce(resource_class, ''), coalesce(priority, 0), coalesce(concurrency_key, ''), labels,
  coalesce(origin_kind, ''), coalesce(rerun_of, ''), not_before, coalesce(state, ''), version, attempt,
  coalesce(worker, ''), requested_at, queued_at, ready_at, scheduled_at, started_at, finished_at, cancel_requested_at,
  waited_millis, duration_millis, exit_code, coalesce(signal, ''), coalesce(reason, ''), coalesce(message, ''),
  stdout_bytes, stderr_bytes`

func scanView(row pgx.CollectableRow) (ExecutionView, error) {
	var (
		v      ExecutionView
		labels []byte
		times  [8]*time.Time
	)
	err := row.Scan(&v.ID, &v.Tenant, &v.User, &v.Name, &v.Executor,
		&v.ResourceClass, &v.Priority, &v.ConcurrencyKey, &labels,
		&v.OriginKind, &v.RerunOf, &times[0], &v.State, &v.Version, &v.Attempt,
		&v.Worker, &times[1], &times[2], &times[3], &times[4], &times[5], &times[6], &times[7],
		&v.WaitedMillis, &v.DurationMillis, &v.ExitCode, &v.Signal, &v.Reason, &v.Message,
		&v.StdoutBytes, &v.StderrBytes)
	if err != nil {
		return v, err
	}
	into := [8]*time.Time{
		&v.NotBefore, &v.RequestedAt, &v.QueuedAt, &v.ReadyAt, &v.ScheduledAt, &v.StartedAt, &v.FinishedAt,
		&v.CancelRequestedAt,
	}
	for i, t := range times {
		if t != nil {
			*into[i] = t.UTC()
		}
	}
	if labels != nil {
		if err := json.Unmarshal(labels, &v.Labels); err != nil {
			return v, fmt.Errorf("labels of %s: %w", v.ID, err)
		}
	}
	return v, nil
}

// Reader reads the lists of one database.
type Reader struct{ db Querier }

// NewReader returns a reader on the pool.
func NewReader(db Querier) Reader { return Reader{db} }

// ExecutionList is the function of that name on the reader's database.
func (r Reader) ExecutionList(ctx context.Context, f Filter, p Page) (ExecutionPage, error) {
	return ExecutionList(ctx, r.db, f, p)
}
