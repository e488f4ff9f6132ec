package deadletter

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/crash"
	"github.com/millrace/millrace/internal/outbox"
	"github.com/millrace/millrace/internal/parking"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/topics"
)

const (
	// MaxReplays is how often an event is redriven unless it is forced.
	MaxReplays = 5
	// MaxIDs is how many letters one call can name.
	MaxIDs = 1000

	redriveChunk = 100
	// maxOutcomes bounds the outcomes of letters that would be refused, in an
	// estimate.
	maxOutcomes = 1000
	// maxKeyInID is how much of a record's key becomes part of an aggregate's id.
	maxKeyInID = 64
	// redriveLock makes redrives run one after the other, which keeps their order in
	// the outbox.
	redriveLock = "dead-letter-redrive"
)

// Terms say how letters are redriven and who wants it.
type Terms struct {
	// Force redrives beyond MaxReplays and, of letters that are named, those that
	// are not OPEN.
	Force bool
	// NewID gives each event a new id, so that a consumer that has processed the old
	// one processes it again. It needs Force.
	NewID bool
	// Actor and Reason go to the audit.
	Actor, Reason string
}

// Redrive says which letters to redrive by name, and how. For those that a filter
// selects there is Order.
type Redrive struct {
	IDs []string
	// DryRun decides about each and changes nothing.
	DryRun bool
	Terms
}

// Outcome is what became of one letter.
type Outcome struct {
	ID string
	// Err is nil when the letter was redriven, or would be in a dry run. Otherwise
	// it wraps ErrNotFound, ErrNotOpen, ErrArchived, ErrDeleted, ErrReplayLimit,
	// ErrTopicMissing or ErrNoEvent, and the letter is as it was.
	Err error
}

// Result is the answer to a Redrive or an Estimate.
type Result struct {
	// Matched is how many letters were asked for: those named, or all OPEN ones of
	// the filter.
	Matched int64
	// Redriven is how many were redriven, or would be.
	Redriven int
	// Refused is how many of those looked at were not, or would not be.
	Refused int
	// Outcomes has one entry per letter that was named. In an estimate it has those
	// that would be refused, at most 1000.
	Outcomes []Outcome
}

// Redrive gives letters that are named to their consumers again; see the package
// documentation. The outcomes are about single letters, the error is about the
// call: then what the result says has happened nevertheless, and the same call
// goes on from there.
func (s *Store) Redrive(ctx context.Context, r Redrive) (Result, error) {
	if err := r.Terms.check(); err != nil {
		return Result{}, err
	}
	topics, err := s.topicNames(ctx)
	if err != nil {
		return Result{}, err
	}
	var result Result
	note := func(o Outcome) {
		if o.Err == nil {
			result.Redriven++
		} else {
			result.Refused++
		}
		result.Outcomes = append(result.Outcomes, o)
	}
	var ids []uuid.UUID
	for _, text := range r.IDs {
		id, err := parseID(text)
		if err != nil {
			note(Outcome{text, err})
			continue
		}
		ids = append(ids, id)
	}
	// In the order of their filing.
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
	ids = slices.Compact(ids)
	result.Matched = int64(len(ids) + result.Refused)
	for chunk := range slices.Chunk(ids, s.chunk) {
		outcomes, err := s.redriveNamed(ctx, chunk, redriver{Terms: r.Terms, store: s, topics: topics}, r.DryRun)
		if err != nil {
			return result, fmt.Errorf("redrive dead letters: %w", err)
		}
		for _, o := range outcomes {
			note(o)
		}
	}
	return result, nil
}

// redriveNamed decides about one chunk of letters in one transaction.
func (s *Store) redriveNamed(ctx context.Context, ids []uuid.UUID, r redriver, dryRun bool) ([]Outcome, error) {
	if err := s.betweenChunks(); err != nil {
		return nil, err
	}
	var outcomes []Outcome
	err := postgres.InTx(ctx, s.cfg.Pool, func(ctx context.Context, tx pgx.Tx) error {
		q := &postgres.Conditions{}
		q.Where("id = ANY(%s)", ids)
		letters, err := lockLetters(ctx, tx, q, len(ids), dryRun)
		if err == nil {
			outcomes, err = r.settle(ctx, tx, letters, dryRun)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		if !slices.ContainsFunc(outcomes, func(o Outcome) bool { return o.ID == id.String() }) {
			outcomes = append(outcomes, Outcome{id.String(), fmt.Errorf("dead letter %s: %w", id, ErrNotFound)})
		}
	}
	if !dryRun {
		s.noteSent(outcomes)
	}
	return outcomes, nil
}

// topicNames asks the broker which topics there are.
func (s *Store) topicNames(ctx context.Context) (map[string]bool, error) {
	names, err := s.cfg.TopicNames(ctx)
	if err != nil {
		return nil, fmt.Errorf("redrive dead letters: %w", err)
	}
	known := make(map[string]bool, len(names))
	for _, name := range names {
		known[name] = true
	}
	return known, nil
}

// noteSent counts what was committed, and wakes the relay and those that drain lanes.
func (s *Store) noteSent(outcomes []Outcome) {
	sent := 0
	for _, o := range outcomes {
		if o.Err == nil {
			sent++
		}
	}
	s.refused.Add(float64(len(outcomes) - sent))
	if sent > 0 {
		crash.At("redrive.sent")
		s.redriven.Add(float64(sent))
		s.cfg.Wake()
	}
}

func (s *Store) betweenChunks() error {
	if s.between == nil {
		return nil
	}
	return s.between()
}

// redriver redrives letters on terms.
type redriver struct {
	Terms
	store *Store
	// topics are those that the broker has.
	topics map[string]bool
	// job is the redrive of many that this is part of, or nil.
	job *uuid.UUID
}

func (t Terms) check() error {
	if t.NewID && !t.Force {
		return ErrNewIDNeedsForce
	}
	return nil
}

// lockLetters reads letters by ascending id, and keeps others from redriving them
// until the transaction ends, unless they are only looked at.
func lockLetters(ctx context.Context, tx pgx.Tx, q *postgres.Conditions, size int, look bool) ([]Letter, error) {
	lock := ""
	if !look {
		lock = " FOR UPDATE"
		if err := outbox.LockAggregate(ctx, tx, redriveLock); err != nil {
			return nil, err
		}
	}
	sql := wholeSQL + q.Clause() + fmt.Sprintf(" ORDER BY id LIMIT %d", size) + lock
	rows, err := tx.Query(ctx, sql, q.Args()...)
	if err != nil {
		return nil, err
	}
	letters, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Letter, error) { return scanWhole(row) })
	if err != nil {
		return nil, err
	}
	return letters, loadCurrent(ctx, tx, letters)
}

// settle judges letters that are locked and sends those that can be.
func (r redriver) settle(ctx context.Context, tx pgx.Tx, letters []Letter, look bool) ([]Outcome, error) {
	outcomes := make([]Outcome, len(letters))
	var good []redelivery
	for i, l := range letters {
		err := r.judge(l)
		var d redelivery
		if err == nil {
			d, err = r.again(l)
		}
		if outcomes[i] = (Outcome{l.ID.String(), err}); err == nil {
			good = append(good, d)
		}
	}
	if look || len(good) == 0 {
		return outcomes, nil
	}
	if err := r.send(ctx, tx, good); err != nil {
		return outcomes, err
	}
	crash.At("redrive.sending")
	return outcomes, nil
}

// judge says why a letter cannot be redriven.
func (r redriver) judge(l Letter) error {
	logical := r.store.cfg.Naming.Logical(l.Record.Topic)
	if err := l.mustBeAtHand(); err != nil {
		return err
	}
	switch {
	case l.Status != Open && !r.Force:
		return fmt.Errorf("dead letter %s is %s: %w", l.ID, l.Status, ErrNotOpen)
	case l.ReplayCount >= MaxReplays && !r.Force:
		return fmt.Errorf("dead letter %s: %d redrives of its event have failed: %w", l.ID, l.ReplayCount, ErrReplayLimit)
	case l.direct():
		return nil
	case !r.topics[l.Record.Topic]:
		return fmt.Errorf("dead letter %s: topic %s: %w", l.ID, l.Record.Topic, ErrTopicMissing)
	case r.store.cfg.Naming.Physical(logical) != l.Record.Topic:
		return fmt.Errorf("dead letter %s: topic %s is called %s by the configuration: %w",
			l.ID, l.Record.Topic, r.store.cfg.Naming.Physical(logical), ErrTopicMissing)
	}
	return nil
}

// redelivery is a letter with the record that is sent for it.
type redelivery struct {
	letter Letter
	record topics.Record
	// newID is the new id of the event, or empty.
	newID string
}

// again makes the record of a redrive: the letter's, as it came or as it was
// edited, with the headers of a redrive, which replace those of an earlier one.
func (r redriver) again(l Letter) (redelivery, error) {
	d := redelivery{letter: l, record: l.Current}
	if r.NewID {
		id, err := uuid.NewV7()
		if err != nil {
			return d, fmt.Errorf("make an event's id: %w", err)
		}
		d.newID = id.String()
		if l.direct() {
			return d, nil
		}
		if d.record, err = topics.WithRecordID(l.Current, d.newID); err != nil {
			return d, fmt.Errorf("dead letter %s: %w: %w", l.ID, ErrNoEvent, err)
		}
	}
	ours := []string{middleware.HeaderTarget, middleware.HeaderReplayCount, middleware.HeaderRedriveOf, middleware.HeaderOriginalEventID}
	headers := make([]topics.Header, 0, len(d.record.Headers)+len(ours))
	for _, h := range d.record.Headers {
		if !slices.Contains(ours, h.Key) || h.Key == middleware.HeaderOriginalEventID && d.newID == "" {
			headers = append(headers, h)
		}
	}
	headers = append(headers,
		topics.Header{Key: middleware.HeaderTarget, Value: []byte(l.Consumer)},
		topics.Header{Key: middleware.HeaderReplayCount, Value: []byte(strconv.Itoa(l.ReplayCount + 1))},
		topics.Header{Key: middleware.HeaderRedriveOf, Value: []byte(l.ID.String())})
	if d.newID != "" {
		headers = append(headers, topics.Header{Key: middleware.HeaderOriginalEventID, Value: []byte(originalID(l))})
	}
	d.record = topics.Record{Topic: l.Record.Topic, Key: d.record.Key, Value: d.record.Value, Headers: headers}
	return d, nil
}

// originalID is the id that the event had before it was given new ones.
func originalID(l Letter) string {
	if id, ok := l.Current.Header(middleware.HeaderOriginalEventID); ok {
		return string(id)
	}
	return l.EventID
}

// InLane begins the detail of a redrive that did not go through the topic. What
// verifies redrives (internal/verify) knows them by it.
const InLane = "in its lane"

// Directly begins the detail of a redrive that gave the record to its consumer.
const Directly = "directly"

// detail is what the audit says about a redrive beyond who and why.
func (d redelivery) detail(inLane bool) string {
	var parts []string
	switch {
	case d.letter.direct():
		parts = append(parts, Directly)
	case inLane:
		parts = append(parts, InLane)
	}
	if d.newID != "" {
		parts = append(parts, "event id "+d.newID+" in place of "+d.letter.EventID)
	}
	return strings.Join(parts, ", ")
}

// send writes the records into their lanes or into the outbox, and marks the letters.
func (r redriver) send(ctx context.Context, tx pgx.Tx, deliveries []redelivery) error {
	records := make([]parking.Redriven, 0, len(deliveries))
	ids, details := make([]uuid.UUID, len(deliveries)), make([]string, len(deliveries))
	for i, d := range deliveries {
		l := d.letter
		ids[i] = l.ID
		if !l.direct() {
			records = append(records, parking.Redriven{Letter: l.ID, Offset: l.Record.Offset, Record: d.record})
		}
	}
	if err := redeliver(ctx, tx, deliveries); err != nil {
		return err
	}
	inLanes, err := parking.Redrive(ctx, tx, records)
	if err != nil {
		return err
	}
	for i, d := range deliveries {
		details[i] = d.detail(inLanes[d.letter.ID])
	}
	entries := make([]outbox.Entry, 0, len(deliveries))
	for _, d := range deliveries {
		l, record := d.letter, d.record
		if inLanes[l.ID] || l.direct() {
			continue
		}
		key := record.Key[:min(len(record.Key), maxKeyInID)]
		entries = append(entries, outbox.Entry{
			AggregateType: "redrive",
			AggregateID:   fmt.Sprintf("redrive/%s/%s/%s", l.Consumer, l.Record.Topic, hex.EncodeToString(key)),
			Topic:         r.store.cfg.Naming.Logical(l.Record.Topic),
			// The row gets an id of its own: the event's is that of another row.
			Envelope: topics.Envelope{Type: l.EventType},
			Record:   &record,
		})
	}
	if err := outbox.Append(ctx, tx, entries...); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `UPDATE dead_letters SET status = 'REDRIVEN', replay_count = replay_count + 1 WHERE id = ANY($1)`, ids); err != nil {
		return fmt.Errorf("mark: %w", err)
	}
	_, err = tx.Exec(ctx, `INSERT INTO dead_letter_actions (dead_letter_id, detail, actor, action, reason, forced, redrive_id)
		SELECT id, detail, $3, 'redrive', $4, $5, $6 FROM unnest($1::uuid[], $2::text[]) AS u (id, detail)`,
		ids, details, text(r.Actor), text(r.Reason), r.Force, r.job)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
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
var errNoReason = errors.New("change dead letter: a reason is required")

// Discard marks an OPEN letter as not needed, for the reason given. The error is
// ErrNotFound or ErrNotOpen where that is the matter.
func (s *Store) Discard(ctx context.Context, id, actor, reason string) error {
	if reason == "" {
		return errNoReason
	}
	parsed, err := parseID(id)
	if err != nil {
		return err
	}
	err = postgres.InTx(ctx, s.cfg.Pool, func(ctx context.Context, tx pgx.Tx) error {
		l, err := getIn(ctx, tx, parsed, "FOR UPDATE")
		if err != nil {
			return err
		}
		if err := l.mustBeOpen(); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `UPDATE dead_letters SET status = 'DISCARDED' WHERE id = $1`, parsed); err != nil {
			return fmt.Errorf("discard dead letter %s: %w", id, err)
		}
		return audit(ctx, tx, []uuid.UUID{parsed}, Action{Actor: actor, Action: "discard", Reason: reason})
	})
	if err == nil {
		s.cfg.Wake() // its key may have waited for it
	}
	return err
}
