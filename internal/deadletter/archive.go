package deadletter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/postgres"
)

// What can be wrong with archiving, restoring and deleting.
var (
	ErrArchived    = errors.New("the dead letter is archived")
	ErrNotArchived = errors.New("the dead letter is not archived")
	ErrDeleted     = errors.New("the dead letter is deleted")
	// ErrHeadOfLane: nobody would see what its key waits for, or the key would go on
	// without anybody having said so.
	ErrHeadOfLane = errors.New("later events of its key wait for the dead letter")
)

// Archived says whether a filter selects letters that are archived.
type Archived string

// The choices. The zero value leaves archived letters out.
const (
	NotArchived  Archived = ""
	OnlyArchived Archived = "only"
	AnyArchived  Archived = "any"
)

// Selection is letters by name, or all that a filter selects.
type Selection struct {
	IDs    []string
	Filter *Filter
}

// Changed is what was done with the letters of a selection.
type Changed struct {
	// Changed is how many were.
	Changed int64
	// Outcomes has one entry per letter that was named.
	Outcomes []Outcome
}

// filing is a way of putting letters away or getting them back.
type filing struct {
	action string
	// set changes a letter, and where selects those that can be changed.
	set, where string
	// refuse says why a letter cannot be.
	refuse func(l Letter) error
	// heads says that it can also be an OPEN letter that is the head of a lane.
	heads bool
}

func archiving() filing {
	return filing{action: "archive", set: `archived_at = now()`, where: `archived_at IS NULL AND NOT ` + headSQL, refuse: func(l Letter) error {
		if !l.ArchivedAt.IsZero() {
			return ErrArchived
		}
		return nil
	}}
}

func restoring() filing {
	return filing{action: "restore", set: `archived_at = NULL`, where: `archived_at IS NOT NULL AND status <> 'DELETED'`, refuse: func(l Letter) error {
		switch {
		case l.Status == Deleted:
			return ErrDeleted
		case l.ArchivedAt.IsZero():
			return ErrNotArchived
		}
		return nil
	}, heads: true}
}

// deleting leaves what the audit needs: who gave up on what, where it lay, when.
func deleting() filing {
	return filing{action: "delete", set: `status = 'DELETED', archived_at = coalesce(archived_at, now()), key = NULL, value = NULL,
		header_keys = '{}', header_values = '{}', reason = '', error = '', history = '[]', stack = '', edits = 0`, where: `status <> 'DELETED'`, refuse: func(l Letter) error {
		if l.Status == Deleted {
			return ErrDeleted
		}
		return nil
	}}
}

// headSQL is whether an OPEN letter is the head of a lane.
const headSQL = `(status = 'OPEN' AND EXISTS (SELECT FROM parked_lanes WHERE head = dead_letters.id))`

// Archive takes letters out of sight. Their status stays. Of letters that are
// named, those that are archived already are refused with ErrArchived, and OPEN
// ones that a lane waits for with ErrHeadOfLane; of a filter they are left out.
func (s *Store) Archive(ctx context.Context, sel Selection, actor, reason string) (Changed, error) {
	if sel.Filter != nil {
		sel.Filter.Archived = NotArchived
	}
	return s.refile(ctx, sel, archiving(), actor, reason)
}

// Restore brings letters back that were archived. Others are refused with
// ErrNotArchived or ErrDeleted.
func (s *Store) Restore(ctx context.Context, sel Selection, actor, reason string) (Changed, error) {
	if sel.Filter != nil {
		sel.Filter.Archived = OnlyArchived
	}
	return s.refile(ctx, sel, restoring(), actor, reason)
}

// Delete destroys the records of letters that are named, with their edits and with
// the texts of errors, which may quote them. What remains says that there was a
// letter, where its record lay, and who deleted it; it is archived. OPEN ones that
// a lane waits for are refused with ErrHeadOfLane: to discard them comes first. A
// reason is required.
func (s *Store) Delete(ctx context.Context, ids []string, actor, reason string) (Changed, error) {
	return s.refile(ctx, Selection{IDs: ids}, deleting(), actor, reason)
}

func (s *Store) refile(ctx context.Context, sel Selection, f filing, actor, reason string) (Changed, error) {
	if reason == "" && f.action != "restore" {
		return Changed{}, errNoReason
	}
	by := Action{Actor: actor, Action: f.action, Reason: reason}
	if sel.Filter != nil {
		return s.refileSelected(ctx, *sel.Filter, f, by)
	}
	var changed Changed
	var ids []uuid.UUID
	for _, text := range sel.IDs {
		id, err := parseID(text)
		if err != nil {
			changed.Outcomes = append(changed.Outcomes, Outcome{text, err})
			continue
		}
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
	for _, id := range slices.Compact(ids) {
		err := postgres.InTx(ctx, s.cfg.Pool, func(ctx context.Context, tx pgx.Tx) error { return refileOne(ctx, tx, id, f, by) })
		if err != nil && !isRefusal(err) {
			return changed, fmt.Errorf("%s dead letters: %w", f.action, err)
		}
		if err == nil {
			changed.Changed++
		}
		changed.Outcomes = append(changed.Outcomes, Outcome{id.String(), err})
	}
	return changed, nil
}

func isRefusal(err error) bool {
	for _, refusal := range []error{ErrNotFound, ErrArchived, ErrNotArchived, ErrDeleted, ErrHeadOfLane} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}

func refileOne(ctx context.Context, tx pgx.Tx, id uuid.UUID, f filing, by Action) error {
	l, err := getIn(ctx, tx, id, "FOR UPDATE")
	if err != nil {
		return err
	}
	if err := f.refuse(l); err != nil {
		return fmt.Errorf("dead letter %s: %w", id, err)
	}
	if !f.heads {
		var head bool
		if err := tx.QueryRow(ctx, `SELECT `+headSQL+` FROM dead_letters WHERE id = $1`, id).Scan(&head); err != nil {
			return err
		}
		if head {
			return fmt.Errorf("dead letter %s: %w: redrive it or discard it first", id, ErrHeadOfLane)
		}
	}
	if _, err := tx.Exec(ctx, `UPDATE dead_letters SET `+f.set+` WHERE id = $1`, id); err != nil {
		return err
	}
	if f.action == "delete" {
		if _, err := tx.Exec(ctx, `DELETE FROM dead_letter_edits WHERE dead_letter_id = $1`, id); err != nil {
			return err
		}
	}
	return audit(ctx, tx, []uuid.UUID{id}, by)
}

// refileSelected works in chunks, each with its audit. Letters that are changed
// are no longer selected, so a call that was broken off is repeated.
func (s *Store) refileSelected(ctx context.Context, filter Filter, f filing, by Action) (Changed, error) {
	var changed Changed
	for {
		if err := s.betweenChunks(); err != nil {
			return changed, err
		}
		q := filter.conditions()
		q.Where(f.where)
		n, err := refileChunk(ctx, s.cfg.Pool, q, f, by, s.chunk)
		if err != nil {
			return changed, fmt.Errorf("%s dead letters: %w", f.action, err)
		}
		changed.Changed += n
		if n < int64(s.chunk) {
			return changed, nil
		}
	}
}

// execer runs a statement: a pool or a transaction.
type execer interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func refileChunk(ctx context.Context, db execer, q *postgres.Conditions, f filing, by Action, most int) (n int64, err error) {
	where := q.Clause()
	actor, action, reason := q.Arg(text(by.Actor)), q.Arg(by.Action), q.Arg(text(by.Reason))
	err = db.QueryRow(ctx, `
		WITH chosen AS (SELECT id FROM dead_letters `+where+fmt.Sprintf(" ORDER BY id LIMIT %d FOR UPDATE", most)+`),
		changed AS (UPDATE dead_letters SET `+f.set+` WHERE id IN (SELECT id FROM chosen) RETURNING id),
		noted AS (INSERT INTO dead_letter_actions (dead_letter_id, actor, action, reason)
		    SELECT id, `+actor+`, `+action+`, `+reason+` FROM changed)
		SELECT count(*) FROM changed`, q.Args()...).Scan(&n)
	return n, err
}

// Retention says how long letters are kept. Zero stands for ever.
type Retention struct {
	// Settled is after how long letters are archived that are REDRIVEN, RESOLVED or
	// DISCARDED and that nobody has touched since. OPEN ones never are.
	Settled time.Duration
	// Archived is after how long archived letters are removed. What was done with
	// them stays in dead_letter_actions.
	Archived time.Duration
}

// retentionActor stands in the audit for what nobody asked for.
const retentionActor = "retention"

// tidy archives and removes one chunk of what is due, in transactions that the
// lease fences, and reports whether there may be more.
func (s *Store) tidy(ctx context.Context, held *lease.Held, keep Retention) (bool, error) {
	var n int64
	err := postgres.InTx(ctx, s.cfg.Pool, func(ctx context.Context, tx pgx.Tx) error {
		n = 0
		if err := held.Check(ctx, tx); err != nil {
			return err
		}
		if keep.Settled > 0 {
			q := &postgres.Conditions{}
			q.Where("archived_at IS NULL AND status IN ('REDRIVEN', 'RESOLVED', 'DISCARDED')")
			q.Where(`last_failed_at < now() - %s::interval AND NOT EXISTS (
				SELECT FROM dead_letter_actions a WHERE a.dead_letter_id = dead_letters.id AND a.at >= now() - %s::interval)`, keep.Settled, keep.Settled)
			archived, err := refileChunk(ctx, tx, q, archiving(), Action{Actor: retentionActor, Action: "archive", Reason: "settled " + keep.Settled.String() + " ago"}, s.chunk)
			if err != nil {
				return err
			}
			n += archived
		}
		if keep.Archived > 0 {
			removed, err := removeArchived(ctx, tx, keep.Archived, s.chunk)
			if err != nil {
				return err
			}
			n = max(n, removed)
		}
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("tidy dead letters: %w", err)
	}
	return n >= int64(s.chunk), nil
}

func removeArchived(ctx context.Context, tx pgx.Tx, after time.Duration, most int) (n int64, err error) {
	err = tx.QueryRow(ctx, `
		WITH removed AS (
		    DELETE FROM dead_letters WHERE id IN (
		        SELECT id FROM dead_letters WHERE archived_at < now() - $1::interval ORDER BY archived_at LIMIT $2 FOR UPDATE)
		    RETURNING id),
		edits AS (DELETE FROM dead_letter_edits WHERE dead_letter_id IN (SELECT id FROM removed)),
		noted AS (INSERT INTO dead_letter_actions (dead_letter_id, actor, action, reason)
		    SELECT id, $3, 'remove', $4 FROM removed)
		SELECT count(*) FROM removed`, after, most, retentionActor, "archived "+after.String()+" ago").Scan(&n)
	return n, err
}
