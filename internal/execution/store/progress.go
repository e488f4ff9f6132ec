package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/executor"
)

// Report is what a running attempt tells of itself since its last one. What is nil
// stays as it was.
type Report struct {
	Ref
	Progress   *executor.Progress
	Checkpoint []byte
}

// Progress is what is known of how far an execution has come.
type Progress struct {
	// Attempt is the one that told it, At when it was stored. Zero if only a
	// checkpoint is known.
	Attempt int
	executor.Progress
	At time.Time
	// CheckpointAttempt is the attempt that the last checkpoint is from, 0 if there
	// is none; CheckpointBytes and CheckpointAt are its length and when it was stored.
	CheckpointAttempt int
	CheckpointBytes   int
	CheckpointAt      time.Time
}

// reportArrays are reports as arrays of parameters.
type reportArrays struct {
	ids         []string
	attempts    []int
	done, total []*float64
	messages    []*string
	checkpoints [][]byte
}

func arraysOf(reports []Report) reportArrays {
	n := len(reports)
	a := reportArrays{
		make([]string, n), make([]int, n), make([]*float64, n), make([]*float64, n), make([]*string, n), make([][]byte, n),
	}
	for i, r := range reports {
		a.ids[i], a.attempts[i], a.checkpoints[i] = r.ID, r.Attempt, r.Checkpoint
		if p := r.Progress; p != nil {
			a.done[i], a.total[i], a.messages[i] = &p.Done, &p.Total, &p.Message
		}
	}
	return a
}

// upsertProgress stores the rows of told(id, attempt, done, total, message,
// checkpoint), whose executions the statement has locked and found to be at these
// attempts. The progress of an attempt replaces that of the one before, whose
// checkpoint stays until there is a new one.
const upsertProgress = `
	INSERT INTO execution_progress AS p
		(execution_id, attempt, done, total, message, reported_at, checkpoint_attempt, checkpoint, checkpoint_at)
	SELECT id, attempt, done, total, message, CASE WHEN done IS NOT NULL THEN clock_timestamp() END,
		CASE WHEN checkpoint IS NOT NULL THEN attempt END, checkpoint, CASE WHEN checkpoint IS NOT NULL THEN clock_timestamp() END
	FROM told
	ON CONFLICT (execution_id) DO UPDATE SET
		(attempt, done, total, message, reported_at) = (
			SELECT e.attempt, e.done, e.total, e.message, e.reported_at FROM (VALUES
				(excluded.attempt, excluded.done, excluded.total, excluded.message, excluded.reported_at, 1),
				(p.attempt, p.done, p.total, p.message, p.reported_at, 2)
			) AS e(attempt, done, total, message, reported_at, place)
			WHERE e.done IS NOT NULL OR e.place = 1 AND excluded.attempt > p.attempt OR e.place = 2
			ORDER BY e.place LIMIT 1),
		checkpoint_attempt = coalesce(excluded.checkpoint_attempt, p.checkpoint_attempt),
		checkpoint = coalesce(excluded.checkpoint, p.checkpoint),
		checkpoint_at = coalesce(excluded.checkpoint_at, p.checkpoint_at)
	WHERE p.attempt <= excluded.attempt`

// saveReports stores the last reports of attempts whose rows are locked.
func saveReports(ctx context.Context, tx statements, reports []Report) error {
	if len(reports) == 0 {
		return nil
	}
	a := arraysOf(reports)
	_, err := tx.Exec(ctx, `
		WITH told AS (
			SELECT * FROM unnest($1::text[]::uuid[], $2::integer[], $3::float8[], $4::float8[], $5::text[], $6::bytea[])
				AS t(id, attempt, done, total, message, checkpoint))
		`+upsertProgress, a.ids, a.attempts, a.done, a.total, a.messages, a.checkpoints)
	if err != nil {
		return fmt.Errorf("save reports: %w", err)
	}
	return nil
}

// Progress returns how far an execution has come, or nil if it has told nothing.
func (s *Store) Progress(ctx context.Context, id string) (*Progress, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	var (
		p                      Progress
		done, total            *float64
		message                *string
		reported, checkpointed *time.Time
		from                   *int
	)
	err := s.pool.QueryRow(ctx, `
		SELECT attempt, done, total, message, reported_at, checkpoint_attempt, coalesce(length(checkpoint), 0), checkpoint_at
		FROM execution_progress WHERE execution_id = $1::text::uuid`, id).
		Scan(&p.Attempt, &done, &total, &message, &reported, &from, &p.CheckpointBytes, &checkpointed)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil //nolint:nilnil // nothing is known, which is no error
	}
	if err != nil {
		return nil, fmt.Errorf("read progress: %w", err)
	}
	if done == nil {
		p.Attempt = 0
	} else {
		p.Done, p.Total, p.Message = *done, *total, *message
	}
	p.At, p.CheckpointAt = moment(reported), moment(checkpointed)
	if from != nil {
		p.CheckpointAttempt = *from
	}
	return &p, nil
}

// Checkpoint returns the last checkpoint of an execution, nil if there is none.
func (s *Store) Checkpoint(ctx context.Context, id string) ([]byte, error) {
	var data []byte
	err := s.pool.QueryRow(ctx, `SELECT checkpoint FROM execution_progress WHERE execution_id = $1::text::uuid`, id).Scan(&data)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("read checkpoint: %w", err)
	}
	return data, nil
}

// PurgeProgress removes, at most max at once, what executions have told that ended
// longer ago than keep, or are gone. It returns how many rows it removed.
func (s *Store) PurgeProgress(ctx context.Context, keep time.Duration, max int) (int, error) {
	tag, err := s.pool.Exec(ctx, `
		DELETE FROM execution_progress WHERE execution_id IN (
			SELECT p.execution_id FROM execution_progress p LEFT JOIN executions e ON e.id = p.execution_id
			WHERE e.id IS NULL OR e.finished_at < clock_timestamp() - $1::interval
			LIMIT $2)`, keep, max)
	if err != nil {
		return 0, fmt.Errorf("purge progress: %w", err)
	}
	return int(tag.RowsAffected()), nil
}

// lastReport is what a finished attempt leaves: a checkpoint only if another
// attempt follows.
func (f Finish) lastReport(e *execution.Execution) (Report, bool) {
	r := Report{Ref: f.Ref, Progress: f.Progress, Checkpoint: f.Checkpoint}
	if e.State.Terminal() {
		r.Checkpoint = nil
	}
	return r, r.Progress != nil || r.Checkpoint != nil
}
