package report

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/trigger"
)

// An error began with the first of a row of owners that had it, and is what a new one has
// not found to be over.
const writeMembers = `
INSERT INTO trigger_members AS m (uid, member, trigger, alert_after, lease, owner, token, revision, state, cause, since, next_try, attempts,
    failing_since, notes, effective)
SELECT r.uid, r.member, r.trigger, make_interval(secs => r.alert_after), l.name, l.owner, l.token, r.revision, r.state, r.cause, r.since,
    r.next_try, r.attempts, CASE r.state WHEN 'error' THEN r.since END, r.notes, r.effective
FROM jsonb_to_recordset($1) AS r (uid text, member int, trigger text, alert_after float8, lease text, token bigint, revision bigint, state text,
    cause jsonb, since timestamptz, next_try timestamptz, attempts int, notes jsonb, effective jsonb)
JOIN leases l ON l.name = r.lease AND l.token = r.token AND l.expires_at > clock_timestamp()
ORDER BY r.uid, r.member
ON CONFLICT (uid, member) DO UPDATE SET
    trigger = excluded.trigger, alert_after = excluded.alert_after, lease = excluded.lease, owner = excluded.owner, token = excluded.token,
    revision = excluded.revision, state = excluded.state, since = excluded.since, next_try = excluded.next_try,
    cause = CASE WHEN excluded.state = 'starting' AND m.failing_since IS NOT NULL THEN coalesce(excluded.cause, m.cause) ELSE excluded.cause END,
    attempts = excluded.attempts, notes = excluded.notes, effective = excluded.effective, reported_at = clock_timestamp(),
    failing_since = CASE excluded.state WHEN 'running' THEN NULL ELSE least(m.failing_since, excluded.failing_since) END`

// A stall goes on until its position is passed or its owner says so. A new owner that has
// not come to the message yet is not asked. Who does not know how far the group has come
// leaves what was known of it: it is the last resort of one whose offsets the brokers forget.
const writePartitions = `
INSERT INTO trigger_partitions AS p (uid, topic, partition, topic_id, member, token, state, cause, position, key, committed, log_end, since,
    next_try, attempts, stalled_since)
SELECT r.uid, r.topic, r.partition, r.topic_id, r.member, l.token, r.state, r.cause, r.position, decode(r.key, 'base64'), r.committed, r.log_end, r.since,
    r.next_try, r.attempts, CASE r.state WHEN 'error' THEN r.since END
FROM jsonb_to_recordset($1) AS r (uid text, topic text, partition int, topic_id text, member int, lease text, token bigint, state text, cause jsonb,
    position bigint, key text, committed bigint, log_end bigint, since timestamptz, next_try timestamptz, attempts int)
JOIN leases l ON l.name = r.lease AND l.token = r.token AND l.expires_at > clock_timestamp()
ORDER BY r.uid, r.topic, r.partition
ON CONFLICT (uid, topic, partition) DO UPDATE SET
    topic_id = CASE excluded.topic_id WHEN '' THEN p.topic_id ELSE excluded.topic_id END,
    committed = CASE WHEN excluded.committed < 0 AND excluded.topic_id IN ('', p.topic_id) THEN p.committed ELSE excluded.committed END,
    member = excluded.member, token = excluded.token, state = excluded.state, position = excluded.position, key = excluded.key, log_end = excluded.log_end, since = excluded.since, next_try = excluded.next_try,
    attempts = excluded.attempts, reported_at = clock_timestamp(),
    cause = CASE WHEN excluded.state = 'starting' AND p.position = excluded.position AND p.stalled_since IS NOT NULL
        THEN coalesce(excluded.cause, p.cause) ELSE excluded.cause END,
    stalled_since = CASE
        WHEN p.position <> excluded.position THEN excluded.stalled_since
        WHEN excluded.state = 'running' AND (p.token = excluded.token OR excluded.log_end <= excluded.position) THEN NULL
        ELSE least(p.stalled_since, excluded.stalled_since) END`

// A topic that was made anew has nothing to do with what nobody has any more of the one
// before it.
const dropReplaced = `
DELETE FROM trigger_partitions p
USING jsonb_to_recordset($1) AS r (uid text, topic text, topic_id text, member int, lease text, token bigint)
JOIN leases l ON l.name = r.lease AND l.token = r.token AND l.expires_at > clock_timestamp()
WHERE p.uid = r.uid AND p.topic = r.topic AND r.topic_id <> '' AND p.topic_id NOT IN ('', r.topic_id)
    AND (p.token = 0 OR p.member = r.member AND p.token <> r.token)`

// What a member has given up stays, for how far it came and how long it stood.
const (
	releasePartitions = `
UPDATE trigger_partitions p SET token = 0, reported_at = clock_timestamp()
FROM jsonb_to_recordset($1) AS r (uid text, topic text, partition int, member int, token bigint)
WHERE (p.uid, p.topic, p.partition, p.member, p.token) = (r.uid, r.topic, r.partition, r.member, r.token)`

	withdrawPartitions = `
UPDATE trigger_partitions p SET token = 0, reported_at = clock_timestamp(), stalled_since = NULL
FROM unnest($1::text[], $2::int[], $3::bigint[]) AS g (uid, member, token)
WHERE p.uid = g.uid AND p.member = g.member AND p.token IN (g.token, 0)`

	withdrawMembers = `
DELETE FROM trigger_members m USING unnest($1::text[], $2::int[], $3::bigint[]) AS g (uid, member, token)
WHERE m.uid = g.uid AND m.member = g.member AND m.token = g.token`
)

// entry is what is to be written of one line.
type entry struct {
	line       *Line
	row        encoded // nil when it has not changed
	partitions map[place]encoded
	written    []encoded // of these, those that have changed
	released   []encoded // and those that are gone
}

func (e *entry) empty() bool { return e.row == nil && len(e.written)+len(e.released) == 0 }

// flush writes what has changed since the last time.
func (w *Writer) flush(ctx context.Context) error {
	entries, closing := w.due(ctx)
	var err error
	for part := range slices.Chunk(entries, chunk) {
		if failed := w.write(ctx, part); failed != nil {
			w.again(part)
			err = errors.Join(err, failed)
		}
	}
	if err != nil {
		return err
	}
	return w.end(ctx, closing)
}

// due returns what has changed, in the order of the tables' keys, and which lines are to
// end with it.
func (w *Writer) due(ctx context.Context) (entries []*entry, closing []*Line) {
	type news struct {
		line   *Line
		report trigger.MemberReport
	}
	w.mu.Lock()
	var changed []news
	for _, l := range w.lines {
		if l.dirty {
			changed = append(changed, news{l, l.report})
			l.dirty = false
		}
		if l.closed {
			closing = append(closing, l)
		}
	}
	w.mu.Unlock()
	slices.SortFunc(changed, func(a, b news) int {
		return strings.Compare(a.line.member.Trigger.UID, b.line.member.Trigger.UID)
	})
	for _, n := range changed {
		e, err := newEntry(n.line, n.report)
		if err != nil {
			w.log.ErrorContext(ctx, "the state of a trigger cannot be stored", "trigger", n.line.member.Trigger.ID, "error", err)
			continue
		}
		if !e.empty() {
			entries = append(entries, e)
		}
	}
	return entries, closing
}

// newEntry compares a report with what the tables have.
func newEntry(l *Line, r trigger.MemberReport) (*entry, error) {
	m := l.member
	e := &entry{line: l, partitions: make(map[place]encoded, len(r.Partitions))}
	row, err := encode(newMemberRow(m, r))
	if err != nil {
		return nil, fmt.Errorf("encode report of trigger %s: %w", m.Trigger.ID, err)
	}
	if !row.same(l.row) {
		e.row = row
	}
	for _, p := range r.Partitions {
		row, err := encode(newPartitionRow(m, p))
		if err != nil {
			return nil, fmt.Errorf("encode report of trigger %s: %w", m.Trigger.ID, err)
		}
		at := place{p.Topic, p.Partition}
		e.partitions[at] = row
		if !row.same(l.partitions[at]) {
			e.written = append(e.written, row)
		}
	}
	for at := range l.partitions {
		if _, still := e.partitions[at]; still {
			continue
		}
		row, err := encode(releasedRow{UID: m.Trigger.UID, Topic: at.topic, Partition: at.partition, Member: m.Number, Token: m.Lease.Token()})
		if err != nil {
			return nil, fmt.Errorf("encode report of trigger %s: %w", m.Trigger.ID, err)
		}
		e.released = append(e.released, row)
	}
	return e, nil
}

// again has entries written with the next flush.
func (w *Writer) again(entries []*entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range entries {
		e.line.dirty = true
	}
}

// write writes entries in one transaction. What PostgreSQL refuses to keep must not hold
// up the others, and is left out.
func (w *Writer) write(ctx context.Context, entries []*entry) error {
	err := w.send(ctx, entries)
	if err != nil && refused(err) {
		if len(entries) > 1 {
			half := len(entries) / 2
			return errors.Join(w.write(ctx, entries[:half]), w.write(ctx, entries[half:]))
		}
		w.log.ErrorContext(ctx, "the state of a trigger cannot be stored", "trigger", entries[0].line.member.Trigger.ID, "error", err)
		return nil
	}
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range entries {
		if e.row != nil {
			e.line.row = e.row
		}
		e.line.partitions = e.partitions
	}
	return nil
}

// refused reports whether it is the data that PostgreSQL has something against.
func refused(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (strings.HasPrefix(pg.Code, "22") || strings.HasPrefix(pg.Code, "23"))
}

func (w *Writer) send(ctx context.Context, entries []*entry) error {
	var members, partitions, released []encoded
	for _, e := range entries {
		if e.row != nil {
			members = append(members, e.row)
		}
		partitions, released = append(partitions, e.written...), append(released, e.released...)
	}
	batch := &pgx.Batch{}
	for _, s := range []struct {
		sql  string
		rows []encoded
	}{{writeMembers, members}, {releasePartitions, released}, {writePartitions, partitions}, {dropReplaced, partitions}} {
		if len(s.rows) > 0 {
			batch.Queue(s.sql, array(s.rows))
		}
	}
	return w.inTx(ctx, batch)
}

// end takes leave of lines that were closed, once what they said last is written. What is
// gone is not reported any more; what could not be removed, Sweep removes.
func (w *Writer) end(ctx context.Context, lines []*Line) error {
	var uids []string
	var members []int32
	var tokens []int64
	for _, l := range lines {
		if l.gone {
			m := l.member
			uids, members, tokens = append(uids, m.Trigger.UID), append(members, int32(m.Number)), append(tokens, m.Lease.Token())
		}
	}
	if len(uids) > 0 {
		batch := &pgx.Batch{}
		batch.Queue(withdrawPartitions, uids, members, tokens)
		batch.Queue(withdrawMembers, uids, members, tokens)
		if err := w.inTx(ctx, batch); err != nil {
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range lines {
		w.forget(l)
	}
	return nil
}

// inTx sends a batch in one transaction, or some of it might be there although it is not
// noted.
func (w *Writer) inTx(ctx context.Context, batch *pgx.Batch) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := postgres.InTx(ctx, w.pool, func(ctx context.Context, tx pgx.Tx) error { return tx.SendBatch(ctx, batch).Close() })
	if err != nil {
		return fmt.Errorf("write the state of triggers: %w", err)
	}
	return nil
}

const (
	sweepMembers = `
DELETE FROM trigger_members m
WHERE NOT EXISTS (SELECT FROM unnest($1::text[], $2::int[]) AS s (uid, member) WHERE s.uid = m.uid AND s.member = m.member)
    AND NOT EXISTS (SELECT FROM leases l WHERE l.name = m.lease AND l.token = m.token AND l.expires_at > clock_timestamp())
    AND reported_at < clock_timestamp() - make_interval(secs => $3)`

	sweepPartitions = `
DELETE FROM trigger_partitions p WHERE uid <> ALL ($1::text[]) AND reported_at < clock_timestamp() - make_interval(secs => $2)`

	// Who runs says all that there is to say.
	sweepNotes = `DELETE FROM trigger_notes WHERE uid = ANY ($1::text[]) OR uid <> ALL ($2::text[])`
)

// Sweep removes what was said of members that are not there any more, by owners that died
// before they could, and of triggers that are not there any more, unless it is younger than
// age. The slots are those of all enabled triggers, uids all that there are.
func (w *Writer) Sweep(ctx context.Context, slots []Seat, uids []string, age time.Duration) error {
	owners, members := make([]string, len(slots)), make([]int32, len(slots))
	for i, s := range slots {
		owners[i], members[i] = s.UID, int32(s.Member)
	}
	batch := &pgx.Batch{}
	batch.Queue(sweepMembers, owners, members, age.Seconds())
	batch.Queue(sweepPartitions, uids, age.Seconds())
	batch.Queue(sweepNotes, owners, uids)
	return w.inTx(ctx, batch)
}
