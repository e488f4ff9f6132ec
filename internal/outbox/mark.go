package outbox

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// maxErrorBytes bounds what is kept of a broker's error.
const maxErrorBytes = 1024

// rejection is a row that the broker refused.
type rejection struct {
	row    *row
	reason string
	failed bool          // that was its last attempt
	delay  time.Duration // until the next, unless failed
}

// markOrder asks to write down what became of rows.
type markOrder struct {
	published []*row
	rejected  []rejection
	// after is an edge at which the database stood before this order, in that era
	// of the view.
	era   int
	after edge
}

func (o markOrder) empty() bool { return len(o.published)+len(o.rejected) == 0 }

// marked is what came of a markOrder.
type marked struct {
	order markOrder
	err   error
	// valid are the shards whose lease held. Rows of others were not touched.
	valid map[int]bool
	// xid is the id of the transaction that marked.
	xid int64
}

// fenceSQL selects the shards whose leases we still hold and keeps those from
// being taken over until the statement is committed; see package lease.
const fenceSQL = `
	WITH fence AS (
		SELECT h.shard FROM unnest($1::smallint[], $2::text[], $3::bigint[]) AS h(shard, name, token)
		JOIN leases l ON l.name = h.name AND l.token = h.token
		WHERE l.expires_at > clock_timestamp()
		FOR KEY SHARE OF l
	)`

// The rows are looked up one by one, which LATERAL with OFFSET 0 leaves no choice
// about. The number of pending rows swings between none and millions, so what the
// planner believes of it is wrong as a rule, and a join it is free to turn round
// may read them all. $7 and $8, the ends of the rows' times, keep all partitions
// out of it but the one that they are in, or two around midnight. A row's place is
// its partition and ctid.
const foundSQL = `
		LATERAL (
			SELECT o.tableoid AS part, o.ctid AS place FROM outbox_events o
			WHERE o.shard = d.shard AND o.seq = d.seq AND o.created_at = d.created_at AND o.status = 'PENDING'
				AND o.created_at BETWEEN $7 AND $8 OFFSET 0
		) AS p`

const placeSQL = ` FROM found WHERE o.ctid = found.place AND o.tableoid = found.part AND o.created_at BETWEEN $7 AND $8`

const publishedSQL = fenceSQL + `, found AS (
		SELECT p.* FROM unnest($4::bigint[], $5::smallint[], $6::timestamptz[]) AS d(seq, shard, created_at) JOIN fence USING (shard),` + foundSQL + `
	), done AS (
		UPDATE outbox_events o SET status = 'PUBLISHED', published_at = clock_timestamp(), next_attempt_at = NULL` + placeSQL + `
	)
	SELECT shard, pg_current_xact_id()::text::bigint FROM fence`

const rejectedSQL = fenceSQL + `, found AS (
		SELECT p.*, d.reason, d.failed, d.delay
		FROM unnest($4::bigint[], $5::smallint[], $6::timestamptz[], $9::text[], $10::boolean[], $11::float8[])
			AS d(seq, shard, created_at, reason, failed, delay)
		JOIN fence USING (shard),` + foundSQL + `
	), done AS (
		UPDATE outbox_events o SET attempts = o.attempts + 1, last_error = found.reason,
			status = CASE WHEN found.failed THEN 'FAILED' ELSE 'PENDING' END,
			next_attempt_at = CASE WHEN found.failed THEN NULL ELSE clock_timestamp() + make_interval(secs => found.delay) END` + placeSQL + `
	)
	SELECT shard, pg_current_xact_id()::text::bigint FROM fence`

// mark writes down what became of rows, fenced by the tokens of their shards.
func mark(ctx context.Context, pool *pgxpool.Pool, order markOrder) marked {
	result := marked{order: order, valid: make(map[int]bool)}
	if len(order.published) > 0 {
		if result.err = result.exec(ctx, pool, publishedSQL, rowArgs(order.published)...); result.err != nil {
			return result
		}
	}
	if len(order.rejected) > 0 {
		rows := make([]*row, len(order.rejected))
		reasons, failed, delays := make([]string, len(rows)), make([]bool, len(rows)), make([]float64, len(rows))
		for i, r := range order.rejected {
			rows[i], reasons[i], failed[i], delays[i] = r.row, r.reason, r.failed, r.delay.Seconds()
		}
		result.err = result.exec(ctx, pool, rejectedSQL, append(rowArgs(rows), reasons, failed, delays)...)
	}
	return result
}

func (m *marked) exec(ctx context.Context, pool *pgxpool.Pool, sql string, args ...any) error {
	rows, err := pool.Query(ctx, sql, append([]any{planned}, args...)...)
	if err != nil {
		return fmt.Errorf("mark: %w", err)
	}
	var shard int
	if _, err := pgx.ForEachRow(rows, []any{&shard, &m.xid}, func() error {
		m.valid[shard] = true
		return nil
	}); err != nil {
		return fmt.Errorf("mark: %w", err)
	}
	return nil
}

// fence is the leases of some rows, as arrays.
type fence struct {
	shards []int16
	names  []string
	tokens []int64
}

func fenceOf(rows []*row) fence {
	var f fence
	seen := make(map[*shard]bool, Shards)
	for _, r := range rows {
		if seen[r.shard] {
			continue
		}
		seen[r.shard] = true
		f.shards = append(f.shards, int16(r.shard.number))
		f.names = append(f.names, r.shard.held.Name())
		f.tokens = append(f.tokens, r.shard.held.Token())
	}
	return f
}

// rowArgs are the first eight arguments of a mark: the fence, and where the rows are.
func rowArgs(rows []*row) []any {
	f := fenceOf(rows)
	seqs, shards, created := make([]int64, len(rows)), make([]int16, len(rows)), make([]time.Time, len(rows))
	first, last := rows[0].created, rows[0].created
	for i, r := range rows {
		seqs[i], shards[i], created[i] = r.seq, int16(r.shard.number), r.created
		if r.created.Before(first) {
			first = r.created
		}
		if r.created.After(last) {
			last = r.created
		}
	}
	return []any{f.shards, f.names, f.tokens, seqs, shards, created, first, last}
}

// storable makes a text fit a column: valid UTF-8, no zero bytes, not too long.
func storable(s string) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	if len(s) <= maxErrorBytes {
		return s
	}
	cut := maxErrorBytes
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut]
}
