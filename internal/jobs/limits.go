package jobs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/internal/postgres"
)

// limitsStale is how old what is known of limits may be.
const limitsStale = 2 * time.Second

// Limits bound the jobs of one type, over all workers and processes.
type Limits struct {
	JobType string
	// MaxRunning is how many may be held at once; 0: no limit.
	MaxRunning int
	// Rate is how many may be claimed per second, and Burst how many of these at once
	// after a pause; 0: no limit. Burst defaults to the rate, at least 1.
	Rate  float64
	Burst int
	// UpdatedAt and UpdatedBy say when they were set, and by whom.
	UpdatedAt time.Time
	UpdatedBy string
	// Running is how many are held now. It is only told, not set.
	Running int
}

func (l *Limits) check() error {
	if l.JobType == "" || len(l.JobType) > 256 || strings.ContainsRune(l.JobType, 0) {
		return fmt.Errorf("%w: a job type has 1 to 256 bytes", ErrInvalid)
	}
	if l.MaxRunning < 0 || l.Rate < 0 || l.Burst < 0 || l.MaxRunning > 1_000_000 || l.Rate > 1_000_000 || l.Burst > 1_000_000 {
		return fmt.Errorf("%w: limits are between 0 and 1000000", ErrInvalid)
	}
	if l.MaxRunning == 0 && l.Rate == 0 {
		return fmt.Errorf("%w: neither max_running nor rate is set; to lift the limits, unset them", ErrInvalid)
	}
	if l.Rate == 0 && l.Burst != 0 {
		return fmt.Errorf("%w: burst without rate says nothing", ErrInvalid)
	}
	if l.Rate > 0 && l.Burst == 0 {
		l.Burst = max(1, int(l.Rate))
	}
	return nil
}

const (
	// All claims in flight end before limits are set: none of them can have looked at what
	// held before and take effect afterwards.
	drainClaimsSQL = `LOCK TABLE jobs IN SHARE ROW EXCLUSIVE MODE`

	setLimitsSQL = `
	INSERT INTO wf_job_types AS l (job_type, max_running, rate, burst, updated_by)
	VALUES ($1, nullif($2, 0), nullif($3::float8, 0), nullif($4, 0), $5)
	ON CONFLICT (job_type) DO UPDATE SET max_running = excluded.max_running, rate = excluded.rate, burst = excluded.burst,
		tokens = least(l.tokens, excluded.burst), updated_at = clock_timestamp(), updated_by = excluded.updated_by
	RETURNING updated_at`

	// countHeldSQL makes jobs that were claimed without a limit count towards it.
	countHeldSQL = `UPDATE jobs SET limited = true WHERE status = 'LOCKED' AND NOT limited AND job_type = $1`

	listLimitsSQL = `
	SELECT job_type, coalesce(max_running, 0), coalesce(rate, 0), coalesce(burst, 0), updated_at, updated_by,
		(SELECT count(*) FROM jobs j WHERE j.job_type = l.job_type AND j.status = 'LOCKED' AND j.limited)
	FROM wf_job_types l WHERE $1 = '' OR job_type = $1 ORDER BY job_type`
)

// SetLimits sets the limits of a job type in place of those that it has. Jobs that are
// held count at once; if there are more than the new limit, none is taken away.
func (s *Store) SetLimits(ctx context.Context, l Limits) (Limits, error) {
	if err := l.check(); err != nil {
		return Limits{}, fmt.Errorf("set limits of jobs: %w", err)
	}
	err := postgres.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		var b pgx.Batch
		b.Queue(`SET LOCAL lock_timeout = '10s'`)
		b.Queue(drainClaimsSQL)
		b.Queue(setLimitsSQL, l.JobType, l.MaxRunning, l.Rate, l.Burst, l.UpdatedBy).QueryRow(func(row pgx.Row) error { return row.Scan(&l.UpdatedAt) })
		b.Queue(countHeldSQL, l.JobType)
		return tx.SendBatch(ctx, &b).Close()
	})
	if err != nil {
		return Limits{}, fmt.Errorf("set limits of jobs of type %s: %w", l.JobType, err)
	}
	s.limitsChanged()
	return s.Limits(ctx, l.JobType)
}

// UnsetLimits lifts the limits of a job type, and reports whether it had any.
func (s *Store) UnsetLimits(ctx context.Context, jobType string) (bool, error) {
	tag, err := s.pool.Exec(ctx, `DELETE FROM wf_job_types WHERE job_type = $1`, jobType)
	if err != nil {
		return false, fmt.Errorf("unset limits of jobs of type %s: %w", jobType, err)
	}
	s.limitsChanged()
	return tag.RowsAffected() > 0, nil
}

// Limits returns the limits of a job type. It is ErrNotFound when it has none.
func (s *Store) Limits(ctx context.Context, jobType string) (Limits, error) {
	list, err := s.listLimits(ctx, jobType)
	switch {
	case err != nil:
		return Limits{}, err
	case len(list) == 0 || jobType == "":
		return Limits{}, fmt.Errorf("job type %q has no limits: %w", jobType, ErrNoLimits)
	}
	return list[0], nil
}

// ErrNoLimits: a job type has no limits.
var ErrNoLimits = errors.New("no limits")

// AllLimits returns the limits of all job types that have any, by type.
func (s *Store) AllLimits(ctx context.Context) ([]Limits, error) { return s.listLimits(ctx, "") }

func (s *Store) listLimits(ctx context.Context, jobType string) ([]Limits, error) {
	rows, err := s.pool.Query(ctx, listLimitsSQL, jobType)
	if err != nil {
		return nil, fmt.Errorf("list limits of jobs: %w", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (l Limits, err error) {
		err = row.Scan(&l.JobType, &l.MaxRunning, &l.Rate, &l.Burst, &l.UpdatedAt, &l.UpdatedBy, &l.Running)
		return l, err
	})
	if err != nil {
		return nil, fmt.Errorf("list limits of jobs: %w", err)
	}
	return list, nil
}

func (s *Store) limitsChanged() {
	s.limits.forget()
	s.signals.Wake(wakeLimits)
	s.signals.Wake(wakeDispatch)
	s.hub.wakeAll()
}

// limitCache remembers which types have limits. That it is out of date for a moment does
// no harm where jobs are claimed: statements for types without limits pass over those that
// have some, and those for types with limits find them gone.
type limitCache struct {
	pool *pgxpool.Pool

	mu    sync.Mutex
	types map[string]struct{}
	read  time.Time
}

func (c *limitCache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read = time.Time{}
}

// split tells types that have limits from those that have none. When that cannot be read,
// what was known holds.
func (c *limitCache) split(ctx context.Context, types []string) (free, limited []string) {
	c.refresh(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.types) == 0 {
		return types, nil
	}
	for _, t := range types {
		if _, has := c.types[t]; has {
			limited = append(limited, t)
		} else {
			free = append(free, t)
		}
	}
	return free, limited
}

// mayLimit reports whether a type had limits when that was last read.
func (c *limitCache) mayLimit(jobType string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, has := c.types[jobType]
	return has
}

func (c *limitCache) refresh(ctx context.Context) {
	c.mu.Lock()
	fresh := time.Since(c.read) < limitsStale
	if !fresh {
		c.read = time.Now() // one reader is enough
	}
	c.mu.Unlock()
	if fresh {
		return
	}
	rows, err := c.pool.Query(ctx, `SELECT job_type FROM wf_job_types`)
	if err != nil {
		return
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return
	}
	types := make(map[string]struct{}, len(list))
	for _, t := range list {
		types[t] = struct{}{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.types = types
}
