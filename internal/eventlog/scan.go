package eventlog

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Partition is one partition of one topic, by the broker's identity of the topic: one
// that was made anew is another one.
type Partition struct {
	TopicID   [16]byte
	Partition int32
}

// Log is a partition of which the event log holds records.
type Log struct {
	Topic string
	Partition
	no int16
}

// Span is a stretch of offsets: From and above, and below To. A To of 0 means
// no end.
type Span struct{ From, To int64 }

// Filter chooses records. All that is said has to hold; what is empty chooses all.
type Filter struct {
	// Topics are names at the broker.
	Topics []string
	// Types are event types; one that ends in '*' stands for all that begin with what
	// is before it. Records that are no events have none.
	Types []string
	// Sources and Subjects are those of events. The subject of an event that names none
	// is its key.
	Sources  []string
	Subjects []string
	// Keys are the keys of records.
	Keys [][]byte
	// From and To bound the event's own time (the record's where it has none): From and
	// later, before To.
	From, To time.Time
	// Vectors bound offsets. When it is not empty, partitions that are not in it are
	// left out.
	Vectors map[Partition]Span
}

// Place is a place in the event log: behind the record that it names. The zero value
// is the beginning.
type Place struct {
	TopicID   [16]byte
	Partition int32
	Offset    int64
}

// Page is what one call of Scan found.
type Page struct {
	Entries []Entry
	// Next is where the next call goes on. It may be ahead of the last entry: behind
	// all that was looked at.
	Next Place
	// More is false when the scan is at its end: nothing behind Next is chosen, for now.
	// A page may be empty although there is more.
	More bool
}

// lookedAt is how many records one call of Scan looks at for each that it may
// return, so that a filter that chooses few does not make a call last for ever.
const lookedAt = 16

// Scan returns up to limit records that the filter chooses, behind a place: partition
// by partition, ordered by (topic id, partition), and by offset within each. What is
// recorded meanwhile behind the place is found; positions of the recorder say how far
// a partition is complete (table consumer_offsets), and Horizon says since when.
func Scan(ctx context.Context, db Querier, f Filter, after Place, limit int) (Page, error) {
	logs, err := Logs(ctx, db)
	if err != nil {
		return Page{}, err
	}
	page := Page{Next: after}
	for _, log := range logs {
		if !f.chooses(log) || log.before(after) {
			continue
		}
		span := f.span(log, after)
		if span.To != 0 && span.From >= span.To {
			continue
		}
		if page.Next.TopicID != log.TopicID || page.Next.Partition != log.Partition.Partition {
			page.Next = Place{log.TopicID, log.Partition.Partition, span.From - 1}
		}
		whole, err := f.scan(ctx, db, log, span, limit-len(page.Entries), &page)
		if err != nil {
			return Page{}, fmt.Errorf("scan the event log: partition %d of %s: %w", log.Partition.Partition, log.Topic, err)
		}
		if !whole || len(page.Entries) == limit {
			page.More = true
			return page, nil
		}
	}
	return page, nil
}

// before reports whether all of the log is before the place.
func (l Log) before(p Place) bool {
	return compare(l.Partition, Partition{p.TopicID, p.Partition}) < 0
}

func compare(a, b Partition) int {
	return cmp.Or(bytes.Compare(a.TopicID[:], b.TopicID[:]), cmp.Compare(a.Partition, b.Partition))
}

// chooses reports whether the log can hold anything that the filter chooses.
func (f Filter) chooses(l Log) bool {
	if len(f.Topics) > 0 && !slices.Contains(f.Topics, l.Topic) {
		return false
	}
	_, named := f.Vectors[l.Partition]
	return named || len(f.Vectors) == 0
}

// span is what is left to scan of a log behind a place.
func (f Filter) span(l Log, after Place) Span {
	s := f.Vectors[l.Partition]
	if after != (Place{}) && after.TopicID == l.TopicID && after.Partition == l.Partition.Partition {
		s.From = max(s.From, after.Offset+1)
	}
	return s
}

const logsSQL = `SELECT topic, topic_id, partition, topic_no FROM event_log_partitions JOIN event_log_topics ON no = topic_no`

// Logs returns the partitions of which the event log holds records, ordered by
// (topic id, partition).
func Logs(ctx context.Context, db Querier) ([]Log, error) {
	rows, err := db.Query(ctx, logsSQL)
	var logs []Log
	if err == nil {
		logs, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (Log, error) {
			var l Log
			return l, row.Scan(&l.Topic, &l.TopicID, &l.Partition.Partition, &l.no)
		})
	}
	if err != nil {
		return nil, fmt.Errorf("list the partitions of the event log: %w", err)
	}
	slices.SortFunc(logs, func(a, b Log) int { return compare(a.Partition, b.Partition) })
	return logs, nil
}

// scan reads one partition. It reports whether it came to its end.
func (f Filter) scan(ctx context.Context, db Querier, l Log, s Span, limit int, page *Page) (whole bool, err error) {
	q := query{args: []any{l.no, l.Partition.Partition, s.From}}
	where := `topic_no = $1 AND partition = $2 AND "offset" >= $3`
	if s.To != 0 {
		where += ` AND "offset" < ` + q.arg(s.To)
	}
	where += f.times(&q)
	look := limit
	if wanted := f.wanted(&q); wanted != "" {
		q.wanted = wanted
		look = limit * lookedAt
	}
	rows, err := db.Query(ctx, q.sql(where, look), q.args...)
	if err != nil {
		return false, err
	}
	defer rows.Close()
	n := 0
	for rows.Next() {
		n++
		e, chosen, err := scanEntry(rows, l)
		if err != nil {
			return false, err
		}
		page.Next.Offset = e.Record.Offset
		if !chosen {
			continue
		}
		page.Entries = append(page.Entries, e)
		if limit--; limit == 0 {
			return false, nil
		}
	}
	return n < look, rows.Err()
}

// query is a statement in the making.
type query struct {
	args   []any
	wanted string
}

func (q *query) arg(v any) string {
	q.args = append(q.args, v)
	return fmt.Sprintf("$%d", len(q.args))
}

// sql reads records in the order of their offsets, whatever the filter chooses of
// them, so that one index serves every filter and each call ends. Of those that it
// does not choose only the place comes back.
func (q *query) sql(where string, look int) string {
	wanted := cmp.Or(q.wanted, "true")
	return `SELECT "offset", wanted, CASE WHEN wanted THEN key END, CASE WHEN wanted THEN headers END,
	CASE WHEN wanted THEN value END, appended_at, recorded_at
FROM (SELECT *, coalesce(` + wanted + `, false) AS wanted FROM event_log
	WHERE ` + where + ` ORDER BY "offset" LIMIT ` + q.arg(look) + `) AS records`
}

// times are the conditions on the time of the event.
func (f Filter) times(q *query) string {
	var sql string
	if !f.From.IsZero() {
		sql += ` AND time >= ` + q.arg(f.From)
	}
	if !f.To.IsZero() {
		sql += ` AND time < ` + q.arg(f.To)
	}
	return sql
}

// wanted is what the filter says about single records, as SQL; empty: it chooses
// all.
func (f Filter) wanted(q *query) string {
	var all []string
	if len(f.Types) > 0 {
		exact, prefixes := []string{}, []string{}
		for _, t := range f.Types {
			if p, ok := strings.CutSuffix(t, "*"); ok {
				prefixes = append(prefixes, p)
			} else {
				exact = append(exact, t)
			}
		}
		all = append(all, `(type = ANY(`+q.arg(exact)+`) OR EXISTS (SELECT FROM unnest(`+q.arg(prefixes)+`::text[]) AS p WHERE starts_with(type, p)))`)
	}
	if len(f.Sources) > 0 {
		all = append(all, `source = ANY(`+q.arg(f.Sources)+`)`)
	}
	if len(f.Subjects) > 0 {
		all = append(all, `subject = ANY(`+q.arg(f.Subjects)+`)`)
	}
	if len(f.Keys) > 0 {
		all = append(all, `key = ANY(`+q.arg(f.Keys)+`)`)
	}
	return strings.Join(all, " AND ")
}

func scanEntry(rows pgx.Rows, l Log) (e Entry, chosen bool, err error) {
	var headers []byte
	r := &e.Record
	r.Topic, r.TopicID, r.Partition = l.Topic, l.TopicID, l.Partition.Partition
	err = rows.Scan(&r.Offset, &chosen, &r.Key, &headers, &r.Value, &r.Timestamp, &e.RecordedAt)
	if err == nil && chosen {
		r.Headers, err = DecodeHeaders(headers)
	}
	if err != nil {
		err = fmt.Errorf("offset %d: %w", r.Offset, err)
	}
	return e, chosen, err
}

const horizonSQL = `
	SELECT count(*) > 0, coalesce(greatest(max(dropped_before),
		max(first_time + interval '5 minutes') FILTER (WHERE first_offset > 0)), '0001-01-01Z')
	FROM event_log_topics JOIN event_log_partitions ON topic_no = no WHERE topic = $1`

// Horizon returns since when the log of a topic (by its name at the broker) is
// complete: an event of this time or later that the topic has ever held is in the log,
// or will be when the recorder gets to it. Events before may be missing, because the
// recorder came later than the topic's beginning, or because they were dropped when
// they had been kept long enough. It is zero when the log goes back to the topic's
// beginning. known is false when nothing of the topic was ever recorded.
func Horizon(ctx context.Context, db Querier, topic string) (since time.Time, known bool, err error) {
	rows, err := db.Query(ctx, horizonSQL, topic)
	if err != nil {
		return since, false, fmt.Errorf("find the horizon of %s: %w", topic, err)
	}
	defer rows.Close()
	for rows.Next() {
		err = rows.Scan(&known, &since)
	}
	if err = cmp.Or(err, rows.Err()); err != nil {
		return since, false, fmt.Errorf("find the horizon of %s: %w", topic, err)
	}
	return since, known, nil
}
