package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/workflow"
)

const (
	// ttlDefault is how long a signal is kept, ttlMax how long at most, and remembered how
	// long one that was delivered is known.
	ttlDefault = time.Hour
	ttlMax     = 30 * 24 * time.Hour
	remembered = 24 * time.Hour
	// correlations is how often a signal is tried whose instances change meanwhile.
	correlations = 20
	// signalLock sets the advisory locks of signals apart from others ("wfsg").
	signalLock = 0x77667367
)

// signalRow is a row of wf_signals.
type signalRow struct {
	id uuid.UUID
	signalKey
	variables json.RawMessage
	actor     string
	expires   time.Time
	// instances are those that took it; nil while it waits for somebody.
	instances []uuid.UUID
}

// usedSignal is a signal that was kept and is taken by an instance.
type usedSignal struct {
	id, instance uuid.UUID
}

// waitRow is a row of wf_waits.
type waitRow struct {
	instance uuid.UUID
	activity int
}

// Signal signals a WAIT of an instance, by the id of its step or its signal's name. One
// that comes before the WAIT is reached is kept for it.
func (e *Engine) Signal(ctx context.Context, id uuid.UUID, stepOrSignal string, variables json.RawMessage, actor string) error {
	if stepOrSignal == "" {
		return workflow.Refuse(ErrInvalid, "a signal needs a name")
	}
	if err := storable("signal", stepOrSignal); err != nil {
		return err
	}
	_, err := e.input(ctx, id, workflow.Input{Kind: workflow.Signalled, Name: stepOrSignal, Result: variables, Actor: actor})
	return err
}

// errMoved says that an instance has begun to wait since a correlation has looked.
var errMoved = errors.New("instances that wait for the signal come and go: try again")

// Correlate signals the instances that wait for a signal under a key, or keeps it for
// the first one that will.
//
// Whoever begins to wait and whoever signals take the same lock: either the signal finds
// the instance, or the instance finds the signal.
func (e *Engine) Correlate(ctx context.Context, r CorrelateRequest) (CorrelateResult, error) {
	if err := checkCorrelate(r); err != nil {
		return CorrelateResult{}, err
	}
	row := signalRow{
		id: r.ID, signalKey: signalKey{r.Signal, r.Key}, variables: object(r.Variables), actor: r.Actor,
	}
	if row.id == uuid.Nil {
		row.id = newID()
	}
	ttl := cmp.Or(r.TTL, ttlDefault)
	result := CorrelateResult{ID: row.id}
	for range correlations {
		ask := newRequest(needs{wait: &row.signalKey, signal: row.id}, func(ctx context.Context, u *unit) error {
			return u.correlate(ctx, row, ttl, &result)
		})
		ask.weight = len(row.variables)
		if err := e.ask(ctx, ask); !errors.Is(err, errMoved) {
			return result, err
		}
	}
	return CorrelateResult{}, fmt.Errorf("%w: %w", ErrOverloaded, errMoved)
}

func checkCorrelate(r CorrelateRequest) error {
	switch {
	case r.Signal == "" || r.Key == "":
		return workflow.Refuse(ErrInvalid, "a signal needs a name and a correlation key")
	case r.TTL > ttlMax:
		return workflow.Refuse(ErrInvalid, "a signal is kept for %s at most, not %s", ttlMax, r.TTL)
	case len(r.Variables) > 0 && !isObject(r.Variables):
		return workflow.Refuse(ErrInvalid, "the variables of a signal have to be a JSON object")
	}
	return errors.Join(storable("signal", r.Signal), storable("correlation key", r.Key), storable("actor", r.Actor))
}

// isObject reports whether a text is a JSON object.
func isObject(text json.RawMessage) bool {
	var m map[string]json.RawMessage
	return json.Unmarshal(text, &m) == nil
}

// correlate delivers a signal to the instances that wait for it.
func (u *unit) correlate(ctx context.Context, s signalRow, ttl time.Duration, result *CorrelateResult) error {
	*result = CorrelateResult{ID: s.id}
	if before, ok := u.signals[s.id]; ok {
		if before.signalKey != s.signalKey {
			return workflow.Refuse(ErrConflict, "signal %s was another one, %q under %q", s.id, before.signal, before.key)
		}
		result.Instances, result.Kept = before.instances, before.instances == nil
		return nil
	}
	for _, w := range u.waits[s.signalKey] {
		if u.instances[w.instance] == nil {
			return errMoved
		}
	}
	var refused error
	for _, w := range u.waits[s.signalKey] {
		taken, err := u.deliver(ctx, s, w)
		if taken {
			result.Instances = append(result.Instances, w.instance)
		}
		refused = cmp.Or(refused, err)
	}
	if refused != nil && result.Instances == nil {
		return refused
	}
	s.instances = result.Instances
	switch {
	case s.instances != nil:
		s.expires = u.now.Add(max(ttl, remembered))
	case ttl < 0:
		return nil
	default:
		result.Kept = true
		s.expires = u.now.Add(ttl)
	}
	u.signals[s.id] = s
	u.newSignals = append(u.newSignals, s)
	return nil
}

// deliver gives a signal to one instance. False means that it does not wait any more.
func (u *unit) deliver(ctx context.Context, s signalRow, w waitRow) (bool, error) {
	l := u.instances[w.instance]
	a, open := openActivities(l.state)[w.activity]
	if !open || a.Kind != workflow.SignalActivity {
		return false, nil
	}
	err := u.advance(ctx, l, workflow.Input{Kind: workflow.Signalled, Activity: w.activity, Name: a.step, Result: s.variables, Actor: s.actor})
	if errors.Is(err, ErrConflict) {
		return false, nil
	}
	return err == nil, err
}

// loadWaits takes the locks of some keys, and reads who waits under them.
func (u *unit) loadWaits(b *writes, keys []signalKey) {
	names, values := columnsOf(keys)
	lockKeys(b, names, values)
	b.Queue(`
		SELECT w.signal, w.correlation_key, w.instance_id, w.activity
		FROM unnest($1::text[], $2::text[]) AS u(signal, key) JOIN wf_waits w ON w.signal = u.signal AND w.correlation_key = u.key
		ORDER BY w.instance_id, w.activity`, names, values).Query(func(rows pgx.Rows) error {
		var k signalKey
		var w waitRow
		_, err := pgx.ForEachRow(rows, []any{&k.signal, &k.key, &w.instance, &w.activity}, func() error {
			if !slices.Contains(u.waits[k], w) { // a key may be asked for twice
				u.waits[k] = append(u.waits[k], w)
			}
			return nil
		})
		return err
	})
}

// lockKeys takes the advisory locks of keys, in the order of the locks. Locks of rows of
// instances and jobs come before these.
func lockKeys(b *writes, names, keys []string) {
	b.Queue(`
		SELECT count(pg_advisory_xact_lock($3::integer, l.lock)) FROM (
			SELECT DISTINCT hashtext(signal || chr(31) || key) AS lock FROM unnest($1::text[], $2::text[]) AS u(signal, key) ORDER BY 1 OFFSET 0
		) AS l`, names, keys, signalLock)
}

func columnsOf(keys []signalKey) (names, values []string) {
	names, values = make([]string, len(keys)), make([]string, len(keys))
	for i, k := range keys {
		names[i], values[i] = k.signal, k.key
	}
	return names, values
}

// loadSignals reads the signals of some ids.
func (u *unit) loadSignals(b *writes, ids []uuid.UUID) {
	b.Queue(`SELECT id, signal, correlation_key, variables::text, actor, expires_at, instances FROM wf_signals WHERE id = ANY($1::uuid[])`, ids).
		Query(func(rows pgx.Rows) error {
			found, err := pgx.CollectRows(rows, scanSignal)
			for _, s := range found {
				u.signals[s.id] = s
			}
			return err
		})
}

func scanSignal(r pgx.CollectableRow) (signalRow, error) {
	var s signalRow
	var variables *string
	err := r.Scan(&s.id, &s.signal, &s.key, &variables, &s.actor, &s.expires, &s.instances)
	s.variables = raw(variables)
	return s, err
}

// writeWaits queues who waits for a signal and who does not any more, and what becomes of
// signals. Who begins to wait looks whether a signal was kept for him: if so, it is
// delivered by a transaction that follows.
func (u *unit) writeWaits(b *writes) {
	if len(u.newWaits) > 0 {
		keys := make([]signalKey, len(u.newWaits))
		ids, activities := make([]uuid.UUID, len(keys)), make([]int32, len(keys))
		for i, w := range u.newWaits {
			keys[i], ids[i], activities[i] = w.signalKey, w.instance, int32(w.activity)
		}
		names, values := columnsOf(keys)
		lockKeys(b, names, values)
		b.Queue(`INSERT INTO wf_waits (signal, correlation_key, instance_id, activity)
			SELECT * FROM unnest($1::text[], $2::text[], $3::uuid[], $4::integer[])`, names, values, ids, activities)
	}
	if len(u.endWaits) > 0 {
		ids, activities := make([]uuid.UUID, len(u.endWaits)), make([]int32, len(u.endWaits))
		for i, w := range u.endWaits {
			ids[i], activities[i] = w.instance, int32(w.activity)
		}
		b.Queue(`DELETE FROM wf_waits w USING unnest($1::uuid[], $2::integer[]) AS u(instance_id, activity)
			WHERE w.instance_id = u.instance_id AND w.activity = u.activity`, ids, activities)
	}
	u.writeSignals(b)
	if len(u.newWaits) > 0 {
		u.lookForKept(b)
	}
}

// writeSignals queues new signals, and those that were kept and are taken now.
func (u *unit) writeSignals(b *writes) {
	for _, s := range u.newSignals {
		b.Queue(`INSERT INTO wf_signals (id, signal, correlation_key, variables, actor, expires_at, instances)
			VALUES ($1, $2, $3, $4::text::json, $5, $6, $7)`, s.id, s.signal, s.key, string(s.variables), s.actor, s.expires, s.instances)
	}
	for _, s := range u.usedSignals {
		b.Queue(`UPDATE wf_signals SET instances = $2, expires_at = greatest(expires_at, $3) WHERE id = $1`,
			s.id, []uuid.UUID{s.instance}, u.now.Add(remembered))
	}
}

// keptSQL finds the oldest signal that is kept under a key for which somebody waits.
const keptSQL = `
	SELECT DISTINCT ON (s.signal, s.correlation_key) s.id, s.signal, s.correlation_key
	FROM wf_waits w JOIN wf_signals s ON s.signal = w.signal AND s.correlation_key = w.correlation_key
	WHERE s.instances IS NULL AND s.expires_at > clock_timestamp()`

func (u *unit) lookForKept(b *writes) {
	names, values := make([]string, len(u.newWaits)), make([]string, len(u.newWaits))
	for i, w := range u.newWaits {
		names[i], values[i] = w.signal, w.key
	}
	b.Queue(keptSQL+` AND (w.signal, w.correlation_key) IN (SELECT * FROM unnest($1::text[], $2::text[]))
		ORDER BY s.signal, s.correlation_key, s.created_at`, names, values).Query(func(rows pgx.Rows) error {
		kept, err := pgx.CollectRows(rows, scanKept)
		for _, k := range kept {
			u.follow = append(u.follow, keptRequest(k.id, k.signalKey))
		}
		return err
	})
}

func scanKept(r pgx.CollectableRow) (k signalRow, err error) {
	return k, r.Scan(&k.id, &k.signal, &k.key)
}

// keptRequest delivers a signal that was kept to the one who waits for it the longest.
func keptRequest(id uuid.UUID, key signalKey) *request {
	return newRequest(needs{wait: &key, signal: id}, func(ctx context.Context, u *unit) error {
		s, ok := u.signals[id]
		if !ok || s.instances != nil || !s.expires.After(u.now) {
			return nil
		}
		for _, w := range u.waits[key] {
			if u.instances[w.instance] == nil {
				continue // it began to wait a moment ago, and looks for itself
			}
			taken, err := u.deliver(ctx, s, w)
			if err != nil && !errors.Is(err, ErrInvalid) {
				return err
			}
			if taken {
				s.instances = []uuid.UUID{w.instance}
				u.signals[id] = s
				u.usedSignals = append(u.usedSignals, usedSignal{id, w.instance})
				return nil
			}
		}
		return nil
	})
}

// sweepSignals delivers signals that were kept for somebody who waits by now, which a
// process that ended has not done, and forgets those that are over.
func (e *Engine) sweepSignals(ctx context.Context) error {
	rows, err := e.config.Pool.Query(ctx, keptSQL+` ORDER BY s.signal, s.correlation_key, s.created_at LIMIT 500`)
	if err != nil {
		return fmt.Errorf("look for kept signals: %w", err)
	}
	kept, err := pgx.CollectRows(rows, scanKept)
	if err != nil {
		return fmt.Errorf("look for kept signals: %w", err)
	}
	for _, k := range kept {
		if err := e.ask(ctx, keptRequest(k.id, k.signalKey)); err != nil {
			return err
		}
	}
	_, err = e.config.Pool.Exec(ctx, `DELETE FROM wf_signals WHERE id IN (
		SELECT id FROM wf_signals WHERE expires_at < clock_timestamp() ORDER BY expires_at LIMIT 1000)`)
	if err != nil {
		return fmt.Errorf("forget signals: %w", err)
	}
	return nil
}
