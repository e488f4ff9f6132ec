package schedule

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/trigger"
)

// Status says what has become of a firing.
type Status string

// What becomes of firings.
const (
	// Due: its target is to be made, now or when what it waits for has come.
	Due Status = "due"
	// Started: the target was made.
	Started Status = "started"
	// Refused: no target can be made.
	Refused Status = "refused"
	// Skipped: none is made, by the rules of the trigger.
	Skipped Status = "skipped"
	// Passed: the time passed while nobody was there, and nothing is made up for.
	Passed Status = "missed"
)

// Firing is a time of a schedule that has come.
type Firing struct {
	// ScheduledAt is the time of the schedule, DueAt when it was due (later by the jitter),
	// FiredAt when it was noticed.
	ScheduledAt time.Time `json:"scheduled_at"`
	DueAt       time.Time `json:"due_at"`
	FiredAt     time.Time `json:"fired_at"`
	Status      Status    `json:"status"`
	// Late is true when it was noticed too late to be on time.
	Late bool `json:"late,omitempty"`
	// By is who fired it by hand.
	By string `json:"by,omitempty"`
	// Kind is "execution" or "instance", TargetID the id of what was made.
	Kind     string `json:"kind,omitempty"`
	TargetID string `json:"target_id,omitempty"`
	// Attempts counts the attempts at making it.
	Attempts int `json:"attempts,omitempty"`
	// Cause says why nothing was made, or is not yet; Since is since when it waits, NextTry
	// when it is tried again.
	Cause   *trigger.Cause `json:"cause,omitempty"`
	Since   *time.Time     `json:"since,omitempty"`
	NextTry *time.Time     `json:"next_try,omitempty"`
	// SettledAt is when it was known what becomes of it.
	SettledAt *time.Time `json:"settled_at,omitempty"`
	// FirstAt, Count and More are set where the row stands for several times that were
	// missed, from FirstAt to ScheduledAt; at least Count of them when More.
	FirstAt *time.Time `json:"first_at,omitempty"`
	Count   int        `json:"count,omitempty"`
	More    bool       `json:"more,omitempty"`
}

// FiringFilter selects firings of one trigger.
type FiringFilter struct {
	// UID is the trigger's.
	UID string
	// Status selects one status; empty: all.
	Status Status
	// Before selects those of times before it; zero: all.
	Before time.Time
	// Limit is how many, the latest first.
	Limit int
}

// Firings lists firings, the latest time first.
func (s *Store) Firings(ctx context.Context, f FiringFilter) ([]Firing, error) {
	var before *time.Time
	if !f.Before.IsZero() {
		before = &f.Before
	}
	rows, err := s.pool.Query(ctx, `
		SELECT scheduled_at, due_at, fired_at, status, late, fired_by, kind, target_id, attempt, cause, since,
			CASE WHEN status = 'due' THEN try_at END, settled_at, missed_first, coalesce(missed_count, 0), coalesce(missed_more, false)
		FROM schedule_firings
		WHERE trigger_uid = $1 AND ($2 = '' OR status = $2) AND ($3::timestamptz IS NULL OR scheduled_at < $3)
		ORDER BY scheduled_at DESC LIMIT $4`, f.UID, string(f.Status), before, f.Limit)
	if err != nil {
		return nil, fmt.Errorf("list firings: %w", err)
	}
	list, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (x Firing, err error) {
		var cause json.RawMessage
		err = r.Scan(&x.ScheduledAt, &x.DueAt, &x.FiredAt, &x.Status, &x.Late, &x.By, &x.Kind, &x.TargetID, &x.Attempts, &cause,
			&x.Since, &x.NextTry, &x.SettledAt, &x.FirstAt, &x.Count, &x.More)
		if err == nil && len(cause) > 0 {
			err = json.Unmarshal(cause, &x.Cause)
		}
		return x, err
	})
	if err != nil {
		return nil, fmt.Errorf("list firings: %w", err)
	}
	return list, nil
}

// unswept is how long something may be due before it is taken that nobody is there.
const unswept = 10 * time.Second

// Reports tells how schedules are doing, by the uid of their trigger. A trigger without a
// row has no schedule, or none yet.
func (s *Store) Reports(ctx context.Context, uids []string) (map[string]trigger.ScheduleReport, error) {
	rows, err := s.pool.Query(ctx, `
		SELECT s.trigger_uid, s.next_at, s.due_at, s.last_at,
			coalesce(least(s.due_at, f.untaken) < `+nowSQL+` - $2::interval, false), coalesce(least(s.due_at, f.untaken), `+nowSQL+`),
			f.cause, f.since, f.try_at, coalesce(f.attempt, 0)
		FROM schedules s LEFT JOIN LATERAL (
			SELECT cause, since, try_at, attempt, min(try_at) OVER () AS untaken FROM schedule_firings f
			WHERE f.trigger_uid = s.trigger_uid AND f.status = 'due'
			ORDER BY (cause IS NULL OR cause ->> 'code' = 'overlap'), since LIMIT 1
		) f ON true
		WHERE s.trigger_uid = ANY($3) AND s.gone_at IS NULL`, s.skew, unswept, uids)
	if err != nil {
		return nil, fmt.Errorf("read state of schedules: %w", err)
	}
	reports := make(map[string]trigger.ScheduleReport, len(uids))
	var uid string
	var next, due, last, since, try *time.Time
	var late bool
	var first time.Time
	var cause []byte
	var attempts int
	_, err = pgx.ForEachRow(rows, []any{&uid, &next, &due, &last, &late, &first, &cause, &since, &try, &attempts}, func() error {
		r := trigger.ScheduleReport{MemberReport: trigger.MemberReport{State: trigger.StateRunning}}
		if next != nil {
			r.NextAt = next.UTC()
		}
		if last != nil {
			r.LastAt = last.UTC()
		}
		var why *trigger.Cause
		if len(cause) > 0 {
			if err := json.Unmarshal(cause, &why); err != nil {
				return err
			}
		}
		switch {
		case late:
			r.State, r.Since = trigger.StateUnowned, first
		case why != nil && why.Code != causeOverlap:
			r.State, r.Cause, r.Attempts = trigger.StateError, why, attempts
			if since != nil && try != nil {
				r.Since, r.NextTry = *since, *try
			}
		}
		if next == nil && r.State == trigger.StateRunning {
			r.Notes = append(r.Notes, trigger.Cause{Code: "ended", Message: "no time is left", Hint: "delete the trigger, or give it new times"})
		}
		reports[uid] = r
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read state of schedules: %w", err)
	}
	return reports, nil
}
