package deadletter

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/postgres"
)

// control is a way in which people change the state of a redrive of many.
type control struct {
	action string
	from   []JobState
	set    string
}

// Pause keeps a redrive from going on, once the chunk that it is at is done. The
// error wraps ErrJobNotFound or ErrJobState where that is the matter, here and in
// Resume and Cancel.
func (s *Store) Pause(ctx context.Context, id, actor, reason string) error {
	return s.control(ctx, id, control{"pause", []JobState{JobRunning}, `state = 'PAUSED'`}, actor, reason)
}

// Resume lets a redrive go on that was paused or has stopped. What went wrong
// before no longer counts.
func (s *Store) Resume(ctx context.Context, id, actor, reason string) error {
	return s.control(ctx, id, control{"resume", []JobState{JobPaused, JobStopped},
		`state = 'RUNNING', note = '', next_at = clock_timestamp(), seen_before = redriven + refused,
		 bad_before = refused + (` + failedAgainSQL + `)`}, actor, reason)
}

// Cancel ends a redrive. What is redriven stays so.
func (s *Store) Cancel(ctx context.Context, id, actor, reason string) error {
	return s.control(ctx, id, control{"cancel", []JobState{JobRunning, JobPaused, JobStopped},
		`state = 'CANCELLED', finished_at = clock_timestamp()`}, actor, reason)
}

func (s *Store) control(ctx context.Context, id string, c control, actor, reason string) error {
	err := postgres.InTx(ctx, s.cfg.Pool, func(ctx context.Context, tx pgx.Tx) error {
		j, err := jobIn(ctx, tx, id, "FOR UPDATE OF r")
		if err != nil {
			return err
		}
		if !slices.Contains(c.from, j.State) {
			return fmt.Errorf("%s redrive %s, which is %s: %w", c.action, id, j.State, ErrJobState)
		}
		if _, err := tx.Exec(ctx, `UPDATE dead_letter_redrives AS r SET updated_at = clock_timestamp(), `+c.set+` WHERE id = $1`, j.ID); err != nil {
			return fmt.Errorf("%s redrive %s: %w", c.action, id, err)
		}
		return auditJob(ctx, tx, j.ID, Action{Actor: actor, Action: c.action, Reason: reason})
	})
	if err == nil {
		s.cfg.WakeKeeper()
	}
	return err
}

// JobItems is one page of what became of the letters of a redrive.
type JobItems struct {
	Items     []JobItem
	NextToken string
}

// JobItems returns what became of the letters of a redrive of many, from the
// oldest letter on; with bad set, only of those that were refused or failed again.
func (s *Store) JobItems(ctx context.Context, id string, bad bool, p Page) (JobItems, error) {
	j, err := jobIn(ctx, s.cfg.Pool, id, "")
	if err != nil {
		return JobItems{}, err
	}
	size := p.size()
	filter := struct {
		Job string
		Bad bool
	}{j.ID.String(), bad}
	q := &postgres.Conditions{}
	q.Where("i.redrive_id = %s", j.ID)
	if bad {
		q.Where("(NOT i.redriven OR a.id IS NOT NULL)")
	}
	if p.Token != "" {
		_, after, err := p.after(filter)
		if err != nil {
			return JobItems{}, err
		}
		q.Where("i.dead_letter_id > %s", after)
	}
	rows, err := s.cfg.Pool.Query(ctx, `
		SELECT i.dead_letter_id, i.at, i.redriven, a.id IS NOT NULL, a.id, i.problem
		FROM dead_letter_redrive_items i
		LEFT JOIN LATERAL (
		    SELECT l.id FROM dead_letters l
		    WHERE i.redriven AND l.redrive_of = i.dead_letter_id AND l.replay_count >= i.replay_count
		    UNION ALL
		    SELECT l.id FROM parked_lanes h JOIN dead_letters l ON l.id = h.head AND l.status = 'OPEN'
		    WHERE i.redriven AND h.head = i.dead_letter_id
		    ORDER BY id LIMIT 1
		) a ON true`+q.Clause()+fmt.Sprintf("\nORDER BY i.dead_letter_id LIMIT %d", size+1), q.Args()...)
	if err != nil {
		return JobItems{}, fmt.Errorf("list the letters of redrive %s: %w", id, err)
	}
	items, err := pgx.CollectRows(rows, pgx.RowToStructByPos[JobItem])
	if err != nil {
		return JobItems{}, fmt.Errorf("list the letters of redrive %s: %w", id, err)
	}
	out := JobItems{Items: items}
	if len(items) > size {
		out.Items = items[:size]
		out.NextToken = postgres.Place{At: time.Unix(0, 0), ID: items[size-1].LetterID.String()}.Token(filter)
	}
	return out, nil
}

// size is how many items the page has.
func (p Page) size() int {
	if p.Size <= 0 {
		return pageSizeDefault
	}
	return min(p.Size, pageSizeMax)
}

// after reads the token of the page.
func (p Page) after(filter any) (time.Time, uuid.UUID, error) {
	place, err := postgres.ParseToken(p.Token, filter)
	if err != nil {
		return time.Time{}, uuid.Nil, err
	}
	id, err := uuid.Parse(place.ID)
	if err != nil {
		return time.Time{}, uuid.Nil, fmt.Errorf("%w: malformed", postgres.ErrPageToken)
	}
	return place.At, id, nil
}
