package deadletter

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/crash"
	"github.com/millrace/millrace/internal/outbox"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/topics"
)

const (
	// MaxReplays is how often an event is redriven unless it is forced.
	MaxReplays = 5
	// MaxRedrive is how many letters one call redrives at most.
	MaxRedrive = 10_000
	// MaxIDs is how many letters one call can name.
	MaxIDs = 1000

	// redriveDefault is how many letters a call by filter redrives unless it says.
	redriveDefault = 1000
	redriveChunk   = 100
	// maxOutcomes bounds the outcomes of letters that were not redriven, in a call
	// by filter: they are found anew by every call.
	maxOutcomes = 1000
	// maxKeyInID is how much of a record's key becomes part of an aggregate's id.
	maxKeyInID = 64
	// redriveLock makes redrives run one after the other, which keeps their order in
	// the outbox.
	redriveLock = "dead-letter-redrive"
)

// Redrive says which letters to redrive and how.
type Redrive struct {
	// IDs, if not nil, names the letters; otherwise all OPEN ones that Filter
	// selects are meant, whatever statuses it names.
	IDs    []string
	Filter Filter
	// DryRun counts and changes nothing.
	DryRun bool
	// Max bounds how many letters of a filter are redriven. Defaults to 1000, at
	// most MaxRedrive.
	Max int
	// Force redrives beyond MaxReplays and, of letters that are named, those that
	// are not OPEN.
	Force bool
	// Actor and Reason go to the audit.
	Actor, Reason string
}

// Outcome is what became of one letter.
type Outcome struct {
	ID string
	// Err is nil when the letter was redriven, or would be in a dry run. Otherwise
	// it wraps ErrNotFound, ErrNotOpen, ErrReplayLimit or ErrTopicMissing, and the
	// letter is as it was.
	Err error
}

// Result is the answer to a Redrive.
type Result struct {
	// Matched is how many letters were asked for: those named, or all OPEN ones of
	// the filter.
	Matched int64
	// Redriven is how many were redriven, or would be in a dry run.
	Redriven int
	// Refused is how many of those looked at were not.
	Refused int
	// Outcomes has one entry per letter looked at; in a dry run by filter and beyond
	// 1000, those that were refused are only counted.
	Outcomes []Outcome
}

func (r *Result) note(id string, err error) {
	if err == nil {
		r.Redriven++
	} else if r.Refused++; r.Refused > maxOutcomes {
		return
	}
	r.Outcomes = append(r.Outcomes, Outcome{id, err})
}

// Redrive gives letters to their consumers again; see the package documentation.
// The outcomes are about single letters, the error is about the call: then what
// the result says has happened nevertheless, and the same call goes on from there.
func (s *Store) Redrive(ctx context.Context, r Redrive) (Result, error) {
	names, err := s.cfg.TopicNames(ctx)
	if err != nil {
		return Result{}, fmt.Errorf("redrive dead letters: %w", err)
	}
	run := &redrive{Redrive: r, store: s, topics: make(map[string]bool, len(names))}
	for _, name := range names {
		run.topics[name] = true
	}
	if r.IDs != nil {
		err = run.named(ctx)
	} else {
		err = run.selected(ctx)
	}
	if err != nil {
		return run.result, fmt.Errorf("redrive dead letters: %w", err)
	}
	return run.result, nil
}

// redrive is one call of Redrive.
type redrive struct {
	Redrive
	store  *Store
	topics map[string]bool
	result Result
}

// named redrives the letters whose ids are given, in the order of their filing.
func (r *redrive) named(ctx context.Context) error {
	var ids []uuid.UUID
	for _, text := range r.IDs {
		id, err := uuid.Parse(text)
		if err != nil {
			r.result.note(text, fmt.Errorf("dead letter %q: %w", text, ErrNotFound))
			continue
		}
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
	ids = slices.Compact(ids)
	r.result.Matched = int64(len(ids) + r.result.Refused)
	for chunk := range slices.Chunk(ids, r.store.chunk) {
		found, err := r.settle(ctx, len(chunk), `id = ANY($1)`, chunk)
		if err != nil {
			return err
		}
		for _, id := range chunk {
			if !slices.Contains(found, id) {
				r.result.note(id.String(), fmt.Errorf("dead letter %s: %w", id, ErrNotFound))
			}
		}
	}
	return nil
}

// selected redrives the open letters of the filter, from the oldest on.
func (r *redrive) selected(ctx context.Context) error {
	r.Filter.Statuses = []Status{Open}
	q := r.Filter.query()
	count := `SELECT count(*) FROM dead_letters` + q.clause()
	if err := r.store.cfg.Pool.QueryRow(ctx, count, q.args...).Scan(&r.result.Matched); err != nil {
		return fmt.Errorf("count: %w", err)
	}
	most := r.Max
	if most <= 0 {
		most = redriveDefault
	}
	most = min(most, MaxRedrive)
	for after := uuid.Nil; r.result.Redriven < most; {
		q := r.Filter.query()
		q.where("id > %s", after)
		size := min(r.store.chunk, most-r.result.Redriven)
		found, err := r.settle(ctx, size, q.conditions[0]+joined(q.conditions[1:]), q.args...)
		if err != nil {
			return err
		}
		if len(found) < size {
			return nil
		}
		after = found[len(found)-1]
	}
	return nil
}

func joined(conditions []string) string {
	var out string
	for _, c := range conditions {
		out += " AND " + c
	}
	return out
}

// settle decides about one chunk of letters in one transaction and returns which
// ones it found, by ascending id.
func (r *redrive) settle(ctx context.Context, size int, condition string, args ...any) ([]uuid.UUID, error) {
	if r.result.Redriven > 0 {
		crash.At("redrive.between")
	}
	if r.store.between != nil {
		if err := r.store.between(); err != nil {
			return nil, err
		}
	}
	var found []uuid.UUID
	var outcomes []Outcome
	var sent int
	err := postgres.InTx(ctx, r.store.cfg.Pool, func(ctx context.Context, tx pgx.Tx) error {
		found, outcomes, sent = nil, nil, 0
		letters, err := r.lock(ctx, tx, size, condition, args)
		if err != nil {
			return err
		}
		var good []Letter
		for _, l := range letters {
			err := r.judge(l)
			found, outcomes = append(found, l.ID), append(outcomes, Outcome{l.ID.String(), err})
			if err == nil {
				good = append(good, l)
			}
		}
		if r.DryRun {
			return nil
		}
		sent = len(good)
		err = r.send(ctx, tx, good)
		if sent > 0 {
			crash.At("redrive.sending")
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, o := range outcomes {
		r.result.note(o.ID, o.Err)
	}
	if sent > 0 {
		crash.At("redrive.sent")
		r.store.redriven.Add(float64(sent))
		r.store.cfg.Wake()
	}
	return found, nil
}

func (r *redrive) lock(ctx context.Context, tx pgx.Tx, size int, condition string, args []any) ([]Letter, error) {
	lock := ""
	if !r.DryRun {
		lock = " FOR UPDATE"
		if err := outbox.LockAggregate(ctx, tx, redriveLock); err != nil {
			return nil, err
		}
	}
	sql := wholeSQL + " WHERE " + condition + fmt.Sprintf(" ORDER BY id LIMIT %d", size) + lock
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (Letter, error) { return scanWhole(row) })
}

// judge says why a letter cannot be redriven.
func (r *redrive) judge(l Letter) error {
	logical := r.store.cfg.Naming.Logical(l.Record.Topic)
	switch {
	case l.Status != Open && !r.Force:
		return fmt.Errorf("dead letter %s is %s: %w", l.ID, l.Status, ErrNotOpen)
	case l.ReplayCount >= MaxReplays && !r.Force:
		return fmt.Errorf("dead letter %s: %d redrives of its event have failed: %w", l.ID, l.ReplayCount, ErrReplayLimit)
	case !r.topics[l.Record.Topic]:
		return fmt.Errorf("dead letter %s: topic %s: %w", l.ID, l.Record.Topic, ErrTopicMissing)
	case r.store.cfg.Naming.Physical(logical) != l.Record.Topic:
		return fmt.Errorf("dead letter %s: topic %s is called %s by the configuration: %w",
			l.ID, l.Record.Topic, r.store.cfg.Naming.Physical(logical), ErrTopicMissing)
	}
	return nil
}

// send writes the records into the outbox and marks the letters.
func (r *redrive) send(ctx context.Context, tx pgx.Tx, letters []Letter) error {
	if len(letters) == 0 {
		return nil
	}
	entries := make([]outbox.Entry, len(letters))
	ids := make([]uuid.UUID, len(letters))
	for i, l := range letters {
		ids[i] = l.ID
		record := l.again()
		key := record.Key[:min(len(record.Key), maxKeyInID)]
		entries[i] = outbox.Entry{
			AggregateType: "redrive",
			AggregateID:   fmt.Sprintf("redrive/%s/%s/%s", l.Consumer, l.Record.Topic, hex.EncodeToString(key)),
			Topic:         r.store.cfg.Naming.Logical(l.Record.Topic),
			// The row gets an id of its own: the event's is that of another row.
			Envelope: topics.Envelope{Type: l.EventType},
			Record:   &record,
		}
	}
	if err := outbox.Append(ctx, tx, entries...); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `UPDATE dead_letters SET status = 'REDRIVEN', replay_count = replay_count + 1 WHERE id = ANY($1)`, ids); err != nil {
		return fmt.Errorf("mark: %w", err)
	}
	return audit(ctx, tx, ids, Action{Actor: r.Actor, Action: "redrive", Reason: r.Reason, Forced: r.Force})
}

// again returns the original record with the headers of a redrive, which replace
// those of an earlier one.
func (l Letter) again() topics.Record {
	ours := []string{middleware.HeaderTarget, middleware.HeaderReplayCount, middleware.HeaderRedriveOf}
	headers := make([]topics.Header, 0, len(l.Record.Headers)+len(ours))
	for _, h := range l.Record.Headers {
		if !slices.Contains(ours, h.Key) {
			headers = append(headers, h)
		}
	}
	headers = append(headers,
		topics.Header{Key: middleware.HeaderTarget, Value: []byte(l.Consumer)},
		topics.Header{Key: middleware.HeaderReplayCount, Value: []byte(strconv.Itoa(l.ReplayCount + 1))},
		topics.Header{Key: middleware.HeaderRedriveOf, Value: []byte(l.ID.String())})
	return topics.Record{Topic: l.Record.Topic, Key: l.Record.Key, Value: l.Record.Value, Headers: headers}
}

func audit(ctx context.Context, tx pgx.Tx, ids []uuid.UUID, a Action) error {
	_, err := tx.Exec(ctx, `INSERT INTO dead_letter_actions (dead_letter_id, actor, action, reason, forced)
		SELECT id, $2, $3, $4, $5 FROM unnest($1::uuid[]) AS id`, ids, text(a.Actor), a.Action, text(a.Reason), a.Forced)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}

// errNoReason cannot reach a caller of the API, which checks before.
var errNoReason = errors.New("discard dead letter: a reason is required")

// Discard marks an OPEN letter as not needed, for the reason given. The error is
// ErrNotFound or ErrNotOpen where that is the matter.
func (s *Store) Discard(ctx context.Context, id, actor, reason string) error {
	if reason == "" {
		return errNoReason
	}
	parsed, err := uuid.Parse(id)
	if err != nil {
		return fmt.Errorf("dead letter %q: %w", id, ErrNotFound)
	}
	return postgres.InTx(ctx, s.cfg.Pool, func(ctx context.Context, tx pgx.Tx) error {
		l, err := getIn(ctx, tx, parsed, "FOR UPDATE")
		if err != nil {
			return err
		}
		if l.Status != Open {
			return fmt.Errorf("dead letter %s is %s: %w", id, l.Status, ErrNotOpen)
		}
		if _, err := tx.Exec(ctx, `UPDATE dead_letters SET status = 'DISCARDED' WHERE id = $1`, parsed); err != nil {
			return fmt.Errorf("discard dead letter %s: %w", id, err)
		}
		return audit(ctx, tx, []uuid.UUID{parsed}, Action{Actor: actor, Action: "discard", Reason: reason})
	})
}
