package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
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
	// truncated are the shards of which the scan did not return all open rows.
	truncated map[int]bool
	// horizon: no transaction with a lower id was running when the scan started.
	horizon int64
	// drawn is where the sequence stood during the scan.
	drawn int64
	// The rest comes from sweeps only.
	waiting []waitingLane
	backlog backlog
}

// waitingLane is an aggregate that a rejected row holds up.
type waitingLane struct {
	shard  int
	key    laneKey
	failed bool
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

// The scan of one shard walks the index of open rows from its floor. Rows that we
// have, and rows of aggregates that wait, are filtered out before the limit, so
// that neither can fill the batch for ever. The running sum keeps one answer from
// taking more than its share of memory, however large the payloads are; the first
// row always comes.
const scanSQL = `
	SELECT h.horizon, h.drawn, o.shard, o.seq, o.id::text, o.aggregate_type, o.aggregate_id, o.topic,
		o.partition_key, o.payload, o.headers, o.attempts,
		extract(epoch FROM clock_timestamp() - o.created_at)::float8, o.found
	FROM (
		SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS horizon,
			(SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END FROM outbox_events_seq) AS drawn
	) AS h
	LEFT JOIN LATERAL (
		SELECT l.* FROM unnest($1::smallint[], $2::bigint[], $3::integer[]) AS s(number, floor, quota),
		LATERAL (
			SELECT e.*, count(*) OVER () AS found,
				sum(coalesce(octet_length(e.payload), 0) + octet_length(e.headers)) OVER (ORDER BY e.seq) AS bytes,
				row_number() OVER (ORDER BY e.seq) AS place
			FROM (
				SELECT o.* FROM outbox_events o
				WHERE o.shard = s.number AND o.seq >= s.floor AND o.status = 'PENDING'
					AND o.seq NOT IN (SELECT unnest($4::bigint[]))
					AND (o.aggregate_type, o.aggregate_id) NOT IN (
						SELECT b.aggregate_type, b.aggregate_id FROM outbox_events b
						WHERE b.shard = ANY ($1::smallint[]) AND b.attempts > 0 AND b.status IN ('PENDING', 'FAILED')
							AND (b.status = 'FAILED' OR b.next_attempt_at > now()))
				ORDER BY o.seq LIMIT s.quota
			) AS e
		) AS l
		WHERE l.place = 1 OR l.bytes <= $5
	) AS o ON true`

const waitingSQL = `
	SELECT shard, aggregate_type, aggregate_id, status = 'FAILED',
		coalesce(extract(epoch FROM next_attempt_at - now())::float8, 0)
	FROM outbox_events WHERE shard = ANY ($1::smallint[]) AND attempts > 0 AND status IN ('PENDING', 'FAILED')`

const backlogSQL = `
	SELECT coalesce(sum(c.pending), 0)::bigint, coalesce(max(extract(epoch FROM clock_timestamp() - f.created_at)), 0)::float8
	FROM unnest($1::smallint[]) AS s(number),
	LATERAL (SELECT count(*) AS pending FROM (
		SELECT FROM outbox_events WHERE shard = s.number AND status = 'PENDING' LIMIT $2) AS x) AS c
	LEFT JOIN LATERAL (
		SELECT created_at FROM outbox_events WHERE shard = s.number AND status = 'PENDING' ORDER BY seq LIMIT 1) AS f ON true`

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
		result.backlog, result.err = readBacklog(ctx, pool, numbers)
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
		err := r.Scan(&l.shard, &l.key.kind, &l.key.id, &l.failed, &due)
		l.due = seconds(due)
		return l, err
	})
	if err != nil {
		return nil, fmt.Errorf("read waiting aggregates: %w", err)
	}
	return lanes, nil
}

func readBacklog(ctx context.Context, pool *pgxpool.Pool, numbers []int16) (backlog, error) {
	var b backlog
	var oldest float64
	if err := pool.QueryRow(ctx, backlogSQL, planned, numbers, pendingCap).Scan(&b.pending, &oldest); err != nil {
		return backlog{}, fmt.Errorf("read backlog: %w", err)
	}
	b.oldest = seconds(oldest)
	return b, nil
}

// read fills rows, truncated, horizon and drawn.
func (s *scanned) read(ctx context.Context, pool *pgxpool.Pool, numbers []int16, maxBytes int64) error {
	floors, quotas := make([]int64, len(numbers)), make([]int32, len(numbers))
	quota := make(map[int]int, len(numbers))
	for i, sh := range s.order.shards {
		floors[i], quotas[i] = sh.floor, int32(sh.quota)
		quota[sh.number] = sh.quota
	}
	rows, err := pool.Query(ctx, scanSQL, planned, numbers, floors, quotas, s.order.known, maxBytes)
	if err != nil {
		return fmt.Errorf("scan: %w", err)
	}
	defer rows.Close()
	returned, found := make(map[int]int), make(map[int]int)
	for rows.Next() {
		var (
			shard, seq, n   *int64
			id, kind, aggID *string
			topic           *string
			key, payload    []byte
			headers         []byte
			attempts        *int
			age             *float64
		)
		if err := rows.Scan(&s.horizon, &s.drawn, &shard, &seq, &id, &kind, &aggID, &topic, &key, &payload, &headers, &attempts, &age, &n); err != nil {
			return fmt.Errorf("scan: %w", err)
		}
		if seq == nil {
			continue // nothing is open
		}
		number := int(*shard)
		returned[number]++
		found[number] = int(*n)
		r := &row{seq: *seq, shardNumber: number, id: *id, lane: laneKey{*kind, *aggID}, topic: topics.Topic(*topic), attempts: *attempts}
		r.record = topics.Record{Key: key, Value: payload}
		r.bytes = len(payload) + len(headers) + len(key)
		r.born = time.Now().Add(-seconds(*age))
		r.record.Headers, r.damage = DecodeHeaders(headers)
		s.rows = append(s.rows, r)
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("scan: %w", err)
	}
	for number, n := range found {
		s.truncated[number] = n >= quota[number] || returned[number] < n
	}
	return nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
