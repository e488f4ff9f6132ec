package outbox

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/topics"
)

// scanOrder asks for open rows of some shards.
type scanOrder struct {
	number uint64 // counts scans, from 1
	sweep  bool
	shards []scanShard
	// known are the rows that the relay has in memory already.
	known []int64
	// window is when the rows were written that the scan has to find, blocking from
	// when on rows that hold up their aggregate. A sweep looks everywhere.
	window   window
	blocking time.Time
	// open are transactions of which the scan has to find all rows, if they have
	// ended.
	open []open
	// pledge: the view needs one.
	pledge bool
}

type scanShard struct {
	shard  *shard
	number int
	floor  int64
	quota  int
}

// scanned is what a scan found.
type scanned struct {
	order scanOrder
	err   error
	took  time.Duration
	rows  []*row
	// found is how many of them were not known when the scan ended.
	found int
	// truncated are the shards of which the scan did not return all open rows.
	truncated map[int]bool
	snapshot  snapshot
	// pledge is the id of a transaction that began after the scan, if one was asked
	// for.
	pledge int64
	// The rest comes from sweeps only.
	waiting []waitingLane
	backlog backlog
}

// waitingLane is an aggregate that a rejected row holds up.
type waitingLane struct {
	shard  int
	key    laneKey
	failed bool
	// seq and written are those of the rejected row.
	seq     int64
	written time.Time
	// due is how long from now the row may be tried again; negative: at once.
	due time.Duration
}

// backlog is what the gauges show.
type backlog struct {
	pending int64
	oldest  time.Duration
}

// pendingCap bounds how many rows per shard are counted for the gauge.
const pendingCap = 10_000

// The first row is about the snapshot, which is that of the whole statement, so
// that the transactions which have ended in it are those whose rows it shows: the
// scan begins before the rows of any of those that were open before.
//
// The scan of one shard walks the index of open rows of each partition. Rows that
// we have, and rows of aggregates that wait, are filtered out before the limit, so
// that neither can fill the batch for ever. The running sum keeps one answer from
// taking more than its share of memory, however large the payloads are; the first
// row always comes.
const scanSQL = `
	SELECT pg_postmaster_start_time(), clock_timestamp(),
		(SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END FROM outbox_events_seq),
		pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
		ARRAY(SELECT x::text::bigint FROM pg_snapshot_xip(pg_current_snapshot()) AS x),
		NULL::smallint, NULL::bigint, NULL::timestamptz, NULL::text, NULL::text, NULL::text, NULL::text, NULL::bytea, NULL::bytea, NULL::bytea,
		NULL::integer, NULL::float8, NULL::bigint
	UNION ALL
	SELECT NULL, NULL, NULL, NULL, NULL, l.shard, l.seq, l.created_at, l.id::text, l.aggregate_type, l.aggregate_id, l.topic,
		l.partition_key, l.payload, l.headers, l.attempts,
		extract(epoch FROM clock_timestamp() - l.created_at)::float8, l.found
	FROM (
		SELECT number, quota, least(floor, (
			SELECT min(t.seq) FROM unnest($6::bigint[], $7::bigint[]) AS t(xid, seq)
			WHERE pg_visible_in_snapshot(t.xid::text::xid8, pg_current_snapshot()))) AS floor
		FROM unnest($1::smallint[], $2::bigint[], $3::integer[]) AS u(number, floor, quota)
	) AS s,
	LATERAL (
		SELECT e.*, count(*) OVER () AS found,
			sum(coalesce(octet_length(e.payload), 0) + octet_length(e.headers)) OVER (ORDER BY e.seq) AS bytes,
			row_number() OVER (ORDER BY e.seq) AS place
		FROM (
			SELECT o.* FROM outbox_events o
			WHERE o.shard = s.number AND o.seq >= s.floor AND o.status = 'PENDING'
				AND o.created_at >= $8 AND o.created_at < $9
				AND o.seq NOT IN (SELECT unnest($4::bigint[]))
				AND (o.aggregate_type, o.aggregate_id) NOT IN (
					SELECT b.aggregate_type, b.aggregate_id FROM outbox_events b
					WHERE b.shard = ANY ($1::smallint[]) AND b.attempts > 0 AND b.status IN ('PENDING', 'FAILED')
						AND b.created_at >= $10 AND b.created_at < $9
						AND (b.status = 'FAILED' OR b.next_attempt_at > now()))
			ORDER BY o.seq LIMIT s.quota
		) AS e
	) AS l
	WHERE l.place = 1 OR l.bytes <= $5`

const waitingSQL = `
	SELECT shard, seq, aggregate_type, aggregate_id, status = 'FAILED', created_at,
		coalesce(extract(epoch FROM next_attempt_at - now())::float8, 0)
	FROM outbox_events WHERE shard = ANY ($1::smallint[]) AND attempts > 0 AND status IN ('PENDING', 'FAILED')`

// The oldest is among the first, within the moments that lie between the drawing
// of a number and the writing of the row.
const backlogSQL = `
	SELECT coalesce(sum(c.pending), 0)::bigint, coalesce(extract(epoch FROM clock_timestamp() - min(c.oldest)), 0)::float8
	FROM unnest($1::smallint[], $2::bigint[]) AS s(number, first),
	LATERAL (SELECT count(*) AS pending, min(x.created_at) AS oldest FROM (
		SELECT created_at FROM outbox_events WHERE shard = s.number AND seq >= s.first AND status = 'PENDING' ORDER BY seq LIMIT $3) AS x) AS c`

// Any transaction with an id will do.
const pledgeSQL = `SELECT pg_current_xact_id()::text::bigint`

// planned makes the server plan the statement anew each time, with the values at
// hand. A plan that was made and kept while the table was small reads a large
// table from end to end.
const planned = pgx.QueryExecModeCacheDescribe

// scan does what the order says. For a sweep it first learns which aggregates
// wait, so that what it reads afterwards is at least as new.
func scan(ctx context.Context, pool *pgxpool.Pool, order scanOrder, maxBytes int64) (result scanned) {
	began := time.Now()
	result = scanned{order: order, truncated: make(map[int]bool)}
	defer func() { result.took = time.Since(began) }()
	numbers := make([]int16, len(order.shards))
	for i, s := range order.shards {
		numbers[i] = int16(s.number)
	}
	if order.sweep {
		if result.waiting, result.err = readWaiting(ctx, pool, numbers); result.err != nil {
			return result
		}
	}
	if result.err = result.read(ctx, pool, numbers, maxBytes); result.err != nil {
		return result
	}
	if order.sweep {
		if result.backlog, result.err = readBacklog(ctx, pool, numbers, result.first()); result.err != nil {
			return result
		}
	}
	if order.pledge {
		if err := pool.QueryRow(ctx, pledgeSQL).Scan(&result.pledge); err != nil {
			result.err = fmt.Errorf("ask for a transaction id: %w", err)
		}
	}
	return result
}

func readWaiting(ctx context.Context, pool *pgxpool.Pool, numbers []int16) ([]waitingLane, error) {
	rows, err := pool.Query(ctx, waitingSQL, planned, numbers)
	if err != nil {
		return nil, fmt.Errorf("read waiting aggregates: %w", err)
	}
	lanes, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (waitingLane, error) {
		var l waitingLane
		var due float64
		err := r.Scan(&l.shard, &l.seq, &l.key.kind, &l.key.id, &l.failed, &l.written, &due)
		l.due = seconds(due)
		return l, err
	})
	if err != nil {
		return nil, fmt.Errorf("read waiting aggregates: %w", err)
	}
	return lanes, nil
}

// first returns, shard by shard, the lowest seq that is open, or one below it: of
// what the sweep has read, what was known, and what waits. So nobody has to walk
// over the dead entries before it once more.
func (s *scanned) first() []int64 {
	lowest := int64(math.MaxInt64)
	for _, seq := range s.order.known {
		lowest = min(lowest, seq)
	}
	byShard := make(map[int]int64, len(s.order.shards))
	note := func(shard int, seq int64) {
		if low, ok := byShard[shard]; !ok || seq < low {
			byShard[shard] = seq
		}
	}
	for _, r := range s.rows {
		note(r.shardNumber, r.seq)
	}
	for _, w := range s.waiting {
		note(w.shard, w.seq)
	}
	first := make([]int64, len(s.order.shards))
	for i, sh := range s.order.shards {
		first[i] = lowest
		if low, ok := byShard[sh.number]; ok {
			first[i] = min(lowest, low)
		}
	}
	return first
}

func readBacklog(ctx context.Context, pool *pgxpool.Pool, numbers []int16, first []int64) (backlog, error) {
	var b backlog
	var oldest float64
	if err := pool.QueryRow(ctx, backlogSQL, planned, numbers, first, pendingCap).Scan(&b.pending, &oldest); err != nil {
		return backlog{}, fmt.Errorf("read backlog: %w", err)
	}
	b.oldest = seconds(oldest)
	return b, nil
}

// read fills snapshot, rows and truncated.
func (s *scanned) read(ctx context.Context, pool *pgxpool.Pool, numbers []int16, maxBytes int64) error {
	floors, quotas := make([]int64, len(numbers)), make([]int32, len(numbers))
	quota := make(map[int]int, len(numbers))
	for i, sh := range s.order.shards {
		floors[i], quotas[i] = sh.floor, int32(sh.quota)
		quota[sh.number] = sh.quota
	}
	xids, seqs := make([]int64, len(s.order.open)), make([]int64, len(s.order.open))
	for i, o := range s.order.open {
		xids[i], seqs[i] = o.xid, o.seq+1
	}
	since, until := s.order.window.bounds()
	rows, err := pool.Query(ctx, scanSQL, planned, numbers, floors, quotas, s.order.known, maxBytes, xids, seqs,
		since, until, bound(s.order.blocking, pgtype.NegativeInfinity))
	if err != nil {
		return fmt.Errorf("scan: %w", err)
	}
	defer rows.Close()
	returned, found := make(map[int]int), make(map[int]int)
	for rows.Next() {
		r, n, err := s.readRow(rows)
		switch {
		case err != nil:
			return fmt.Errorf("scan: %w", err)
		case r != nil:
			returned[r.shardNumber]++
			found[r.shardNumber] = n
			s.rows = append(s.rows, r)
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("scan: %w", err)
	}
	for number, n := range found {
		s.truncated[number] = n >= quota[number] || returned[number] < n
	}
	return nil
}

// readRow returns a row of the outbox, and how many its shard has; or nil for the
// row about the snapshot, which it notes.
func (s *scanned) readRow(rows pgx.Rows) (r *row, found int, err error) {
	var (
		started, clock, created    *time.Time
		drawn, xmax, shard, seq, n *int64
		running                    []int64
		id, kind, aggID            *string
		topic                      *string
		key, payload               []byte
		headers                    []byte
		attempts                   *int
		age                        *float64
	)
	if err := rows.Scan(&started, &clock, &drawn, &xmax, &running,
		&shard, &seq, &created, &id, &kind, &aggID, &topic, &key, &payload, &headers, &attempts, &age, &n); err != nil {
		return nil, 0, err
	}
	if seq == nil {
		s.snapshot = snapshot{started: *started, clock: *clock, drawn: *drawn, xmax: *xmax, running: running}
		return nil, 0, nil
	}
	r = &row{
		seq: *seq, created: *created, shardNumber: int(*shard), id: *id, lane: laneKey{*kind, *aggID},
		topic: topics.Topic(*topic), attempts: *attempts,
	}
	r.record = topics.Record{Key: key, Value: payload}
	r.bytes = len(payload) + len(headers) + len(key)
	r.born = time.Now().Add(-seconds(*age))
	r.record.Headers, r.damage = DecodeHeaders(headers)
	r.version = versionOf(r.record.Headers)
	return r, int(*n), nil
}

// versionOf returns the version that an event says it led to; 0: none.
func versionOf(headers []topics.Header) int64 {
	for _, h := range headers {
		if h.Key == versionHeader {
			n, err := strconv.ParseInt(string(h.Value), 10, 64)
			if err != nil {
				return 0
			}
			return n
		}
	}
	return 0
}

// versionHeader is the extension "sequence" of CloudEvents.
const versionHeader = topics.HeaderPrefix + "sequence"

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
