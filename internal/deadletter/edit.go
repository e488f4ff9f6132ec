package deadletter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/topics"
)

// What can be wrong with an edit.
var (
	ErrUnchanged    = errors.New("the edit changes nothing")
	ErrEditConflict = errors.New("the dead letter was edited meanwhile")
)

// InvalidEditError reports an edited record that its consumer could not decode.
type InvalidEditError struct {
	// Err says why, as a rule a *topics.DecodeError.
	Err error
}

// Error names the fault.
func (e *InvalidEditError) Error() string { return "the edited record is not valid: " + e.Err.Error() }

// Unwrap returns Err.
func (e *InvalidEditError) Unwrap() error { return e.Err }

// Edit says what to change in the record of an OPEN letter. Fields that are nil
// leave that part as it is.
type Edit struct {
	ID    string
	Value *[]byte
	Key   *[]byte
	// Headers replace all headers.
	Headers *[]topics.Header
	// After is the number of edits that the caller has seen, so that of two who edit
	// at once the second is told. Negative stands for any.
	After int
	// ForceSchema lets a record pass that cannot be decoded, or breaks the schema of
	// its event type.
	ForceSchema bool
	// Actor and Reason go to the audit. A reason is required.
	Actor, Reason string
}

// Edited is an edit that was made.
type Edited struct {
	At            time.Time
	Actor, Reason string
	// Forced says that the record was not valid and nevertheless wanted.
	Forced bool
	// Record is what the edit led to; Changes is how it differs from the one before.
	Record  topics.Record
	Changes []Change
}

// Edit changes what a redrive of the letter will send. The letter keeps the
// original record. The error is ErrNotFound, ErrNotOpen, ErrUnchanged,
// ErrEditConflict, or an *InvalidEditError where that is the matter, and then
// nothing has changed.
func (s *Store) Edit(ctx context.Context, e Edit) error {
	if e.Reason == "" {
		return errNoReason
	}
	id, err := parseID(e.ID)
	if err != nil {
		return err
	}
	return postgres.InTx(ctx, s.cfg.Pool, func(ctx context.Context, tx pgx.Tx) error {
		l, err := getIn(ctx, tx, id, "FOR UPDATE")
		if err != nil {
			return err
		}
		if err := l.mustBeOpen(); err != nil {
			return err
		}
		if e.After >= 0 && e.After != l.Edits {
			return fmt.Errorf("dead letter %s has %d edits, not %d: %w", id, l.Edits, e.After, ErrEditConflict)
		}
		letters := []Letter{l}
		if err := loadCurrent(ctx, tx, letters); err != nil {
			return err
		}
		before := letters[0].Current
		after := e.applied(before)
		if sameRecord(before, after) {
			return fmt.Errorf("dead letter %s: %w", id, ErrUnchanged)
		}
		invalid := l.valid(after)
		if invalid != nil && !e.ForceSchema {
			return &InvalidEditError{invalid}
		}
		return insertEdit(ctx, tx, l, after, e, invalid != nil)
	})
}

func insertEdit(ctx context.Context, tx pgx.Tx, l Letter, r topics.Record, e Edit, forced bool) error {
	keys, values := headerColumns(r.Headers)
	_, err := tx.Exec(ctx, `
		INSERT INTO dead_letter_edits (dead_letter_id, number, actor, reason, forced, key, value, header_keys, header_values)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
		l.ID, l.Edits+1, text(e.Actor), text(e.Reason), forced, r.Key, r.Value, keys, values)
	if err == nil {
		_, err = tx.Exec(ctx, `UPDATE dead_letters SET edits = edits + 1 WHERE id = $1`, l.ID)
	}
	if err != nil {
		return fmt.Errorf("edit dead letter %s: %w", l.ID, err)
	}
	return audit(ctx, tx, []uuid.UUID{l.ID}, Action{Actor: e.Actor, Action: "edit", Reason: e.Reason, Forced: forced})
}

func (e Edit) applied(r topics.Record) topics.Record {
	if e.Value != nil {
		r.Value = *e.Value
	}
	if e.Key != nil {
		r.Key = *e.Key
	}
	if e.Headers != nil {
		r.Headers = *e.Headers
	}
	return r
}

func sameRecord(a, b topics.Record) bool {
	return sameBytes(a.Key, b.Key) && sameBytes(a.Value, b.Value) && slices.EqualFunc(a.Headers, b.Headers, func(x, y topics.Header) bool {
		return x.Key == y.Key && sameBytes(x.Value, y.Value)
	})
}

// sameBytes tells null from empty, as Kafka does.
func sameBytes(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }

// valid says why the consumer could not decode the record, or that it breaks the schema of
// its type. A type that is in no catalogue has no schema to break, and no more has what is
// given to a consumer directly: that is other people's, and has to be an object.
func (l Letter) valid(r topics.Record) error {
	if l.direct() {
		var object map[string]json.RawMessage
		if err := json.Unmarshal(r.Value, &object); err != nil || object == nil {
			return &topics.DecodeError{Code: topics.CodeMalformedJSON, Message: "must be a JSON object"}
		}
		return nil
	}
	env, err := topics.DecodeRecord(r)
	if err == nil {
		err = topics.ValidateData(env)
	}
	return err
}

// headerColumns are headers as two arrays of one length.
func headerColumns(headers []topics.Header) (keys, values [][]byte) {
	keys, values = make([][]byte, len(headers)), make([][]byte, len(headers))
	for i, h := range headers {
		keys[i], values[i] = []byte(h.Key), h.Value
	}
	return keys, values
}

// headersOf is the reverse of headerColumns.
func headersOf(keys, values [][]byte) ([]topics.Header, error) {
	if len(keys) != len(values) {
		return nil, fmt.Errorf("%d names for %d values of headers", len(keys), len(values))
	}
	var headers []topics.Header
	for i, key := range keys {
		headers = append(headers, topics.Header{Key: string(key), Value: values[i]})
	}
	return headers, nil
}

// loadCurrent fills in Current: the record of the last edit, or the original.
func loadCurrent(ctx context.Context, db Querier, letters []Letter) error {
	place := make(map[uuid.UUID]int)
	for i := range letters {
		letters[i].Current = letters[i].Record
		if letters[i].Edits > 0 {
			place[letters[i].ID] = i
		}
	}
	if len(place) == 0 {
		return nil
	}
	ids := make([]uuid.UUID, 0, len(place))
	for id := range place {
		ids = append(ids, id)
	}
	rows, err := db.Query(ctx, `
		SELECT DISTINCT ON (dead_letter_id) dead_letter_id, key, value, header_keys, header_values
		FROM dead_letter_edits WHERE dead_letter_id = ANY($1)
		ORDER BY dead_letter_id, number DESC`, ids)
	if err != nil {
		return fmt.Errorf("read edits: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var id uuid.UUID
		var key, value []byte
		var names, values [][]byte
		if err := rows.Scan(&id, &key, &value, &names, &values); err != nil {
			return fmt.Errorf("read edits: %w", err)
		}
		r := &letters[place[id]].Current
		r.Key, r.Value = key, value
		if r.Headers, err = headersOf(names, values); err != nil {
			return fmt.Errorf("read edits of dead letter %s: %w", id, err)
		}
	}
	return rows.Err()
}

// loadEdits fills in EditLog and Current of one letter.
func loadEdits(ctx context.Context, db Querier, l *Letter) error {
	l.Current = l.Record
	if l.Edits == 0 {
		return nil
	}
	rows, err := db.Query(ctx, `
		SELECT at, actor, reason, forced, key, value, header_keys, header_values
		FROM dead_letter_edits WHERE dead_letter_id = $1 ORDER BY number`, l.ID)
	if err != nil {
		return fmt.Errorf("read the edits of dead letter %s: %w", l.ID, err)
	}
	defer rows.Close()
	for rows.Next() {
		e := Edited{Record: l.Record}
		var names, values [][]byte
		if err := rows.Scan(&e.At, &e.Actor, &e.Reason, &e.Forced, &e.Record.Key, &e.Record.Value, &names, &values); err != nil {
			return fmt.Errorf("read the edits of dead letter %s: %w", l.ID, err)
		}
		if e.Record.Headers, err = headersOf(names, values); err != nil {
			return fmt.Errorf("read the edits of dead letter %s: %w", l.ID, err)
		}
		e.Changes = Changes(l.Current, e.Record)
		l.EditLog, l.Current = append(l.EditLog, e), e.Record
	}
	return rows.Err()
}
