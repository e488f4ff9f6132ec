package deadletter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/postgres"
)

// What can be wrong with a redrive of many.
var (
	ErrJobNotFound = errors.New("there is no such redrive")
	ErrJobState    = errors.New("the state of the redrive does not allow that")
	// ErrNothingToDo: the filter selects no OPEN letter.
	ErrNothingToDo = errors.New("no open dead letter is selected")
)

// Bounds of an Order.
const (
	MinRate = 0.01
	MaxRate = 10_000.0
)

// JobState is where a redrive of many stands.
type JobState string

// The states. Resume leads from JobPaused and JobStopped back to JobRunning;
// JobDone and JobCancelled are final.
const (
	JobRunning   JobState = "RUNNING"
	JobPaused    JobState = "PAUSED"
	JobStopped   JobState = "STOPPED" // too much went wrong
	JobDone      JobState = "DONE"
	JobCancelled JobState = "CANCELLED"
)

// JobStates returns all states. The caller may change the slice.
func JobStates() []JobState {
	return []JobState{JobRunning, JobPaused, JobStopped, JobDone, JobCancelled}
}

// Valid reports whether s is one of JobStates.
func (s JobState) Valid() bool { return slices.Contains(JobStates(), s) }

// Order says which letters to redrive by filter, and how.
type Order struct {
	// Filter selects among the OPEN letters that are filed when the order is given,
	// whatever statuses it names.
	Filter Filter
	// Max bounds how many are redriven. 0 stands for all.
	Max int64
	// Rate is how many are redriven per second at most, MinRate to MaxRate. 0 stands
	// for as fast as it goes.
	Rate float64
	// StopAbove stops the redrive when more than this share of the letters, between
	// 0 and 1, was refused or failed again; from the tenth letter on. It needs a Rate
	// that gives consumers the time to fail. 0 stands for never.
	StopAbove float64
	Terms
}

// minSeen is how many letters a share is reckoned from at least.
const minSeen = 10

// Job is a redrive of many: it is carried out by the Keeper, chunk by chunk.
type Job struct {
	ID    uuid.UUID
	State JobState
	Order Order
	// Matched is how many letters the filter selected at the start.
	Matched int64
	// Redriven and Refused count what was done. FailedAgain is how many of those that
	// were redriven have come back as letters by now.
	Redriven, Refused, FailedAgain int64
	// Note says why it stopped, or what keeps it from going on.
	Note                 string
	CreatedAt, UpdatedAt time.Time
	// FinishedAt is zero until the state is final.
	FinishedAt time.Time
	// Actions is who paused, resumed or cancelled it. Not in lists.
	Actions []Action

	last, cursor          uuid.UUID
	badBefore, seenBefore int64
}

// JobItem is what became of one letter of a redrive of many.
type JobItem struct {
	LetterID uuid.UUID
	At       time.Time
	Redriven bool
	// FailedAgain says that the redriven record came back, as the letter Again, which
	// is the same letter where it is the head of a lane.
	FailedAgain bool
	Again       *uuid.UUID
	// Problem says why the letter was refused.
	Problem string
}

// Estimate says what an order would do now, without doing it: how many letters
// match, and which of the first ones would be refused. Of an order without a
// maximum it looks at 10 000 letters.
func (s *Store) Estimate(ctx context.Context, o Order) (Result, error) {
	if err := o.check(); err != nil {
		return Result{}, err
	}
	topics, err := s.topicNames(ctx)
	if err != nil {
		return Result{}, err
	}
	var result Result
	if result.Matched, err = s.countOpen(ctx, s.cfg.Pool, o.Filter); err != nil {
		return result, err
	}
	most := o.Max
	if most <= 0 {
		most = estimateMax
	}
	r := redriver{Terms: o.Terms, store: s, topics: topics}
	for after := uuid.Nil; int64(result.Redriven) < most && result.Redriven+result.Refused < estimateMax; {
		q := o.Filter.open()
		q.Where("id > %s", after)
		size := int(min(int64(s.chunk), most-int64(result.Redriven)))
		var outcomes []Outcome
		err := postgres.InTx(ctx, s.cfg.Pool, func(ctx context.Context, tx pgx.Tx) error {
			letters, err := lockLetters(ctx, tx, q, size, true)
			if err == nil && len(letters) > 0 {
				after = letters[len(letters)-1].ID
			}
			if err == nil {
				outcomes, err = r.settle(ctx, tx, letters, true)
			}
			return err
		})
		if err != nil {
			return result, fmt.Errorf("estimate redrive: %w", err)
		}
		for _, out := range outcomes {
			if out.Err == nil {
				result.Redriven++
			} else if result.Refused++; result.Refused <= maxOutcomes {
				result.Outcomes = append(result.Outcomes, out)
			}
		}
		if len(outcomes) < size {
			break
		}
	}
	return result, nil
}

// estimateMax is how many letters an estimate looks at.
const estimateMax = 10_000

func (o Order) check() error {
	switch {
	case o.Rate != 0 && (o.Rate < MinRate || o.Rate > MaxRate):
		return fmt.Errorf("redrive dead letters: rate %g: want %g to %g per second", o.Rate, MinRate, MaxRate)
	case o.StopAbove < 0 || o.StopAbove >= 1:
		return fmt.Errorf("redrive dead letters: share of errors %g: want 0 to less than 1", o.StopAbove)
	case o.StopAbove > 0 && o.Rate == 0:
		return errors.New("redrive dead letters: a share of errors needs a rate, or all is redriven before anything fails")
	case o.Max < 0:
		return fmt.Errorf("redrive dead letters: maximum %d is negative", o.Max)
	}
	return o.Terms.check()
}

// open are the conditions of the OPEN letters that the filter selects.
func (f Filter) open() *postgres.Conditions {
	f.Statuses, f.Archived = []Status{Open}, NotArchived
	return f.conditions()
}

func (s *Store) countOpen(ctx context.Context, db Querier, f Filter) (n int64, err error) {
	q := f.open()
	if err := db.QueryRow(ctx, "SELECT count(*) FROM dead_letters"+q.Clause(), q.Args()...).Scan(&n); err != nil {
		return 0, fmt.Errorf("count dead letters: %w", err)
	}
	return n, nil
}

// Start begins a redrive of many and returns it. What it does it does later: see
// Keeper. The error wraps ErrNothingToDo when nothing is selected.
func (s *Store) Start(ctx context.Context, o Order) (Job, error) {
	if err := o.check(); err != nil {
		return Job{}, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return Job{}, fmt.Errorf("start redrive: %w", err)
	}
	filter, err := json.Marshal(o.Filter)
	if err != nil {
		return Job{}, fmt.Errorf("start redrive: %w", err)
	}
	err = postgres.InTx(ctx, s.cfg.Pool, func(ctx context.Context, tx pgx.Tx) error {
		matched, err := s.countOpen(ctx, tx, o.Filter)
		if err != nil {
			return err
		}
		if matched == 0 {
			return ErrNothingToDo
		}
		_, err = tx.Exec(ctx, `
			INSERT INTO dead_letter_redrives (id, filter, max_letters, rate, stop_above, force, new_id, actor, reason, matched, last_letter)
			VALUES ($1, $2, nullif($3::bigint, 0), nullif($4::float8, 0), nullif($5::float8, 0), $6, $7, $8, $9, $10,
			    (SELECT id FROM dead_letters ORDER BY id DESC LIMIT 1))`,
			id, filter, o.Max, o.Rate, o.StopAbove, o.Force, o.NewID, text(o.Actor), text(o.Reason), matched)
		if err != nil {
			return err
		}
		return auditJob(ctx, tx, id, Action{Actor: o.Actor, Action: "start", Reason: o.Reason, Forced: o.Force})
	})
	if err != nil {
		return Job{}, fmt.Errorf("start redrive: %w", err)
	}
	s.cfg.WakeKeeper()
	return s.Job(ctx, id.String())
}

func auditJob(ctx context.Context, tx pgx.Tx, id uuid.UUID, a Action) error {
	_, err := tx.Exec(ctx, `INSERT INTO dead_letter_actions (redrive_id, actor, action, reason, forced) VALUES ($1, $2, $3, $4, $5)`,
		id, text(a.Actor), a.Action, text(a.Reason), a.Forced)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}

// Letters that came back are younger than the redrive and name the one that was
// redriven, with the count of that redrive or a higher one if they were redriven
// themselves. The head of a lane comes back as itself; it counts while it is OPEN.
const failedAgainSQL = `
SELECT count(*) FROM (
    SELECT i.dead_letter_id
    FROM dead_letters l
    JOIN dead_letter_redrive_items i ON i.redrive_id = r.id AND i.dead_letter_id = l.redrive_of
        AND i.redriven AND l.replay_count >= i.replay_count
    WHERE l.id > r.last_letter
    UNION
    SELECT i.dead_letter_id
    FROM parked_lanes h
    JOIN dead_letters l ON l.id = h.head AND l.status = 'OPEN'
    JOIN dead_letter_redrive_items i ON i.redrive_id = r.id AND i.dead_letter_id = l.id AND i.redriven
) AS again`

const jobSQL = `
SELECT r.id, r.state, r.filter, coalesce(r.max_letters, 0), coalesce(r.rate, 0), coalesce(r.stop_above, 0), r.force, r.new_id,
    r.actor, r.reason, r.matched, r.last_letter, r.cursor, r.redriven, r.refused, (` + failedAgainSQL + `), r.bad_before, r.seen_before,
    r.note, r.created_at, r.updated_at, r.finished_at
FROM dead_letter_redrives r`

func scanJob(row pgx.Row) (Job, error) {
	var j Job
	var filter []byte
	o := &j.Order
	err := row.Scan(&j.ID, &j.State, &filter, &o.Max, &o.Rate, &o.StopAbove, &o.Force, &o.NewID,
		&o.Actor, &o.Reason, &j.Matched, &j.last, &j.cursor, &j.Redriven, &j.Refused, &j.FailedAgain, &j.badBefore, &j.seenBefore,
		&j.Note, &j.CreatedAt, &j.UpdatedAt, &nullTime{&j.FinishedAt})
	if err != nil {
		return j, err
	}
	if err := json.Unmarshal(filter, &o.Filter); err != nil {
		return j, fmt.Errorf("filter of redrive %s: %w", j.ID, err)
	}
	return j, nil
}

// Job returns a redrive of many, or an error that wraps ErrJobNotFound.
func (s *Store) Job(ctx context.Context, id string) (Job, error) {
	j, err := jobIn(ctx, s.cfg.Pool, id, "")
	if err != nil {
		return j, err
	}
	rows, err := s.cfg.Pool.Query(ctx, `SELECT at, actor, action, reason, forced, detail, redrive_id
		FROM dead_letter_actions WHERE redrive_id = $1 AND dead_letter_id IS NULL ORDER BY id`, j.ID)
	if err == nil {
		j.Actions, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Action])
	}
	if err != nil {
		return j, fmt.Errorf("read the actions of redrive %s: %w", id, err)
	}
	return j, nil
}

func jobIn(ctx context.Context, db Querier, text, lock string) (Job, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return Job{}, fmt.Errorf("redrive %q: %w", text, ErrJobNotFound)
	}
	j, err := scanJob(db.QueryRow(ctx, jobSQL+" WHERE r.id = $1 "+lock, id))
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return j, fmt.Errorf("redrive %s: %w", id, ErrJobNotFound)
	case err != nil:
		return j, fmt.Errorf("read redrive %s: %w", id, err)
	}
	return j, nil
}

// JobList is one page of redrives of many.
type JobList struct {
	Jobs      []Job
	NextToken string
}

// Jobs returns redrives of many in any of the states, or in all, the newest first.
func (s *Store) Jobs(ctx context.Context, states []JobState, p Page) (JobList, error) {
	size := p.size()
	slices.Sort(states)
	q := &postgres.Conditions{}
	if len(states) > 0 {
		q.Where("r.state = ANY(%s)", states)
	}
	if p.Token != "" {
		at, id, err := p.after(states)
		if err != nil {
			return JobList{}, err
		}
		q.Where("(r.created_at, r.id) < (%s, %s)", at, id)
	}
	rows, err := s.cfg.Pool.Query(ctx, jobSQL+q.Clause()+fmt.Sprintf("\nORDER BY r.created_at DESC, r.id DESC LIMIT %d", size+1), q.Args()...)
	if err != nil {
		return JobList{}, fmt.Errorf("list redrives: %w", err)
	}
	jobs, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Job, error) { return scanJob(row) })
	if err != nil {
		return JobList{}, fmt.Errorf("list redrives: %w", err)
	}
	out := JobList{Jobs: jobs}
	if len(jobs) > size {
		out.Jobs = jobs[:size]
		last := jobs[size-1]
		out.NextToken = postgres.Place{At: last.CreatedAt, ID: last.ID.String()}.Token(states)
	}
	return out, nil
}
