package deadletter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/crash"
	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/postgres"
)

// chunksPerSecond is how often a redrive with a rate takes a chunk, so that its
// records come evenly.
const chunksPerSecond = 5

// advance takes the redrive that is due longest one chunk further, in one
// transaction that the lease fences, and reports whether there was one.
func (s *Store) advance(ctx context.Context, held *lease.Held) (bool, error) {
	due, err := s.jobsDue(ctx)
	if err != nil || !due {
		return false, err
	}
	topics, err := s.topicNames(ctx)
	if err != nil {
		return false, err
	}
	if err := s.betweenChunks(); err != nil {
		return false, err
	}
	var found bool
	var outcomes []Outcome
	err = postgres.InTx(ctx, s.cfg.Pool, func(ctx context.Context, tx pgx.Tx) error {
		found, outcomes = false, nil
		if err := held.Check(ctx, tx); err != nil {
			return err
		}
		j, err := scanJob(tx.QueryRow(ctx, jobSQL+`
			WHERE r.state = 'RUNNING' AND r.next_at <= clock_timestamp()
			ORDER BY r.next_at, r.id LIMIT 1 FOR UPDATE OF r SKIP LOCKED`))
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		found = true
		outcomes, err = s.chunkOf(ctx, tx, j, topics)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("redrive dead letters: %w", err)
	}
	s.noteSent(outcomes)
	return found, nil
}

func (s *Store) jobsDue(ctx context.Context) (due bool, err error) {
	err = s.cfg.Pool.QueryRow(ctx, `SELECT EXISTS (
		SELECT FROM dead_letter_redrives WHERE state = 'RUNNING' AND next_at <= clock_timestamp())`).Scan(&due)
	if err != nil {
		return false, fmt.Errorf("look for redrives: %w", err)
	}
	return due, nil
}

// chunkOf redrives the next letters of a job whose row is locked.
func (s *Store) chunkOf(ctx context.Context, tx pgx.Tx, j Job, topics map[string]bool) ([]Outcome, error) {
	if j.Redriven > 0 {
		crash.At("redrive.between")
	}
	if share, bad := j.badShare(); j.Order.StopAbove > 0 && share > j.Order.StopAbove {
		note := fmt.Sprintf("%d of the last %d letters were refused or failed again", bad, j.Redriven+j.Refused-j.seenBefore)
		return nil, finishJob(ctx, tx, j.ID, JobStopped, note)
	}
	size := j.chunkSize(s.chunk)
	q := j.Order.Filter.open()
	q.Where("id > %s", j.cursor)
	q.Where("id <= %s", j.last)
	letters, err := lockLetters(ctx, tx, q, size, false)
	if err != nil {
		return nil, err
	}
	r := redriver{Terms: j.Order.Terms, store: s, topics: topics, job: &j.ID}
	outcomes, err := r.settle(ctx, tx, letters, false)
	if err != nil {
		return nil, err
	}
	sent, err := recordItems(ctx, tx, j, letters, outcomes)
	if err != nil {
		return nil, err
	}
	if len(letters) > 0 {
		j.cursor = letters[len(letters)-1].ID
	}
	_, err = tx.Exec(ctx, `
		UPDATE dead_letter_redrives
		SET cursor = $2, redriven = redriven + $3, refused = refused + $4, updated_at = clock_timestamp(),
		    next_at = clock_timestamp() + make_interval(secs => $5)
		WHERE id = $1`, j.ID, j.cursor, sent, len(outcomes)-sent, j.pause(sent).Seconds())
	if err != nil {
		return nil, fmt.Errorf("note progress: %w", err)
	}
	if len(letters) < size || j.Order.Max > 0 && j.Redriven+int64(sent) >= j.Order.Max {
		return outcomes, finishJob(ctx, tx, j.ID, JobDone, "")
	}
	return outcomes, nil
}

// badShare is the share of letters that went wrong since the redrive was started
// or resumed, and their number. It is 0 while they are too few to tell.
func (j Job) badShare() (float64, int64) {
	bad, seen := j.Refused+j.FailedAgain-j.badBefore, j.Redriven+j.Refused-j.seenBefore
	if seen < minSeen {
		return 0, bad
	}
	return float64(bad) / float64(seen), bad
}

// chunkSize is how many letters the next chunk looks at, at least one.
func (j Job) chunkSize(most int) int {
	size := int64(most)
	if j.Order.Rate > 0 {
		size = min(size, int64(math.Ceil(j.Order.Rate/chunksPerSecond)))
	}
	if j.Order.Max > 0 {
		size = min(size, j.Order.Max-j.Redriven)
	}
	return int(max(size, 1))
}

// pause is how long the rate makes the redrive wait after so many letters.
func (j Job) pause(sent int) time.Duration {
	if j.Order.Rate == 0 {
		return 0
	}
	return time.Duration(float64(sent) / j.Order.Rate * float64(time.Second))
}

// recordItems keeps what became of each letter, and counts those that were sent.
func recordItems(ctx context.Context, tx pgx.Tx, j Job, letters []Letter, outcomes []Outcome) (sent int, err error) {
	ids, counts := make([]uuid.UUID, len(letters)), make([]int, len(letters))
	redriven, problems := make([]bool, len(letters)), make([]string, len(letters))
	for i, l := range letters {
		ids[i], counts[i], redriven[i] = l.ID, l.ReplayCount+1, outcomes[i].Err == nil
		if redriven[i] {
			sent++
		} else {
			problems[i] = text(outcomes[i].Err.Error())
		}
	}
	_, err = tx.Exec(ctx, `
		INSERT INTO dead_letter_redrive_items (redrive_id, dead_letter_id, redriven, replay_count, problem)
		SELECT $1, u.* FROM unnest($2::uuid[], $3::boolean[], $4::integer[], $5::text[]) AS u`,
		j.ID, ids, redriven, counts, problems)
	if err != nil {
		return 0, fmt.Errorf("note outcomes: %w", err)
	}
	return sent, nil
}

func finishJob(ctx context.Context, tx pgx.Tx, id uuid.UUID, state JobState, note string) error {
	_, err := tx.Exec(ctx, `
		UPDATE dead_letter_redrives
		SET state = $2, note = $3, updated_at = clock_timestamp(),
		    finished_at = CASE WHEN $2 = 'DONE' THEN clock_timestamp() END
		WHERE id = $1`, id, state, note)
	if err != nil {
		return fmt.Errorf("end redrive %s: %w", id, err)
	}
	return nil
}
