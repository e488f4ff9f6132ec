package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/internal/postgres"
)

// Filter chooses jobs for a list. Empty fields choose all.
type Filter struct {
	Statuses   []Status
	JobType    string
	WorkerID   string
	InstanceID uuid.UUID
	// PageSize defaults to 50, at most 1000. PageToken is where to go on.
	PageSize  int
	PageToken string
}

// Record is a job as operators see it.
type Record struct {
	// Job has its variables in the answer of Get only.
	Job
	// RunAt is when it may be claimed at the earliest; OnHold is true while its instance is
	// suspended, and it is not claimed.
	RunAt  time.Time
	OnHold bool
	// Expired counts the leases that ran out in its present attempt.
	Expired    int
	FinishedAt time.Time
}

// RecordPage is a page of jobs, those of the youngest instances first.
type RecordPage struct {
	Items         []Record
	NextPageToken string
}

// Reader looks at jobs, for people. It locks nothing.
type Reader struct{ pool *pgxpool.Pool }

// NewReader returns a reader.
func NewReader(pool *pgxpool.Pool) *Reader { return &Reader{pool: pool} }

const recordColumns = `
	j.id, j.job_type, j.instance_id, j.activity, j.step, j.step_id, j.status, j.priority, j.attempt, j.retries_remaining, j.token,
	coalesce(j.worker_id, ''), j.locked_at, j.lock_expires_at, j.created_at, j.finished_at, j.expired,
	j.run_at, j.on_hold`

// Get returns a job with what its handler gets. The error wraps ErrNotFound when there
// is none.
func (r *Reader) Get(ctx context.Context, id uuid.UUID) (Record, error) {
	rows, err := r.pool.Query(ctx, `
		SELECT `+recordColumns+`, coalesce(j.input, i.variables)
		FROM jobs j LEFT JOIN wf_instances i ON i.id = j.instance_id
		WHERE j.id = $1`, id)
	if err != nil {
		return Record{}, fmt.Errorf("get job: %w", err)
	}
	found, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (Record, error) {
		var found Record
		return found, scanRecord(row, &found, &found.Variables)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return Record{}, fmt.Errorf("job %s: %w", id, ErrNotFound)
	}
	if err != nil {
		return Record{}, fmt.Errorf("get job: %w", err)
	}
	return found, nil
}

const (
	recordPageDefault = 50
	recordPageMax     = 1000
)

// List returns a page of jobs. The error wraps postgres.ErrPageToken when the token is
// none of ours.
func (r *Reader) List(ctx context.Context, f Filter) (RecordPage, error) {
	if f.PageSize <= 0 {
		f.PageSize = recordPageDefault
	}
	f.PageSize = min(f.PageSize, recordPageMax)
	var after *uuid.UUID
	if f.PageToken != "" {
		id, err := uuid.Parse(f.PageToken)
		if err != nil {
			return RecordPage{}, fmt.Errorf("list jobs: %w", postgres.ErrPageToken)
		}
		after = &id
	}
	statuses := make([]string, len(f.Statuses))
	for i, s := range f.Statuses {
		statuses[i] = string(s)
	}
	// Ids begin with the time of their instance, so their order needs no index of its own.
	rows, err := r.pool.Query(ctx, `
		SELECT `+recordColumns+`
		FROM jobs j
		WHERE (cardinality($1::text[]) = 0 OR j.status = ANY($1)) AND ($2 = '' OR j.job_type = $2) AND ($3 = '' OR j.worker_id = $3)
		  AND ($4::uuid IS NULL OR j.instance_id = $4) AND ($5::uuid IS NULL OR j.id < $5)
		ORDER BY j.id DESC LIMIT $6`,
		statuses, f.JobType, f.WorkerID, optional(f.InstanceID), after, f.PageSize+1)
	if err != nil {
		return RecordPage{}, fmt.Errorf("list jobs: %w", err)
	}
	items, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Record, error) {
		var found Record
		return found, scanRecord(row, &found)
	})
	if err != nil {
		return RecordPage{}, fmt.Errorf("list jobs: %w", err)
	}
	page := RecordPage{Items: items}
	if len(items) > f.PageSize {
		page.Items = items[:f.PageSize]
		page.NextPageToken = page.Items[f.PageSize-1].ID.String()
	}
	return page, nil
}

func optional(id uuid.UUID) *uuid.UUID {
	if id == uuid.Nil {
		return nil
	}
	return &id
}

func scanRecord(row pgx.CollectableRow, r *Record, more ...any) error {
	var locked, expires, finished *time.Time
	err := row.Scan(append([]any{
		&r.ID, &r.JobType, &r.InstanceID, &r.Activity, &r.Step, &r.StepID, &r.Status, &r.Priority, &r.Attempt, &r.RetriesRemaining, &r.Token,
		&r.WorkerID, &locked, &expires, &r.CreatedAt, &finished, &r.Expired, &r.RunAt, &r.OnHold,
	}, more...)...)
	set := func(into *time.Time, from *time.Time) {
		if from != nil {
			*into = *from
		}
	}
	set(&r.LockedAt, locked)
	set(&r.LockExpiresAt, expires)
	set(&r.FinishedAt, finished)
	return err
}
