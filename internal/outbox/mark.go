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
	// drawn is where the sequence stood before this order.
	drawn int64
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
// may read them all.
const publishedSQL = fenceSQL + `, found AS (
		SELECT p.row FROM unnest($4::bigint[], $5::smallint[]) AS d(seq, shard) JOIN fence USING (shard),
		LATERAL (SELECT o.ctid AS row FROM outbox_events o WHERE o.shard = d.shard AND o.seq = d.seq AND o.status = 'PENDING' OFFSET 0) AS p
	), done AS (
		UPDATE outbox_events o SET status = 'PUBLISHED', published_at = clock_timestamp(), next_attempt_at = NULL
		FROM found WHERE o.ctid = found.row
	)
	SELECT shard, pg_current_xact_id()::text::bigint FROM fence`

const rejectedSQL = fenceSQL + `, found AS (
		SELECT p.row, d.reason, d.failed, d.delay
		FROM unnest($4::bigint[], $5::smallint[], $6::text[], $7::boolean[], $8::float8[]) AS d(seq, shard, reason, failed, delay)
		JOIN fence USING (shard),
		LATERAL (SELECT o.ctid AS row FROM outbox_events o WHERE o.shard = d.shard AND o.seq = d.seq AND o.status = 'PENDING' OFFSET 0) AS p
	), done AS (
		UPDATE outbox_events o SET attempts = o.attempts + 1, last_error = found.reason,
			status = CASE WHEN found.failed THEN 'FAILED' ELSE 'PENDING' END,
			next_attempt_at = CASE WHEN found.failed THEN NULL ELSE clock_timestamp() + make_interval(secs => found.delay) END
		FROM found WHERE o.ctid = found.row
	)
	SELECT shard, pg_current_xact_id()::text::bigint FROM fence`

// mark writes down what became of rows, fenced by the tokens of their shards.
func mark(ctx context.Context, pool *pgxpool.Pool, order markOrder) marked {
	result := marked{order: order, valid: make(map[int]bool)}
	if len(order.published) > 0 {
		f := fenceOf(order.published)
		seqs, shards := seqsOf(order.published)
		if result.err = result.exec(ctx, pool, publishedSQL, f.shards, f.names, f.tokens, seqs, shards); result.err != nil {
			return result
		}
	}
	if len(order.rejected) > 0 {
		rows := make([]*row, len(order.rejected))
		reasons, failed, delays := make([]string, len(rows)), make([]bool, len(rows)), make([]float64, len(rows))
		for i, r := range order.rejected {
			rows[i], reasons[i], failed[i], delays[i] = r.row, r.reason, r.failed, r.delay.Seconds()
		}
		f := fenceOf(rows)
		seqs, shards := seqsOf(rows)
		result.err = result.exec(ctx, pool, rejectedSQL, f.shards, f.names, f.tokens, seqs, shards, reasons, failed, delays)
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

func seqsOf(rows []*row) (seqs []int64, shards []int16) {
	seqs, shards = make([]int64, len(rows)), make([]int16, len(rows))
	for i, r := range rows {
		seqs[i], shards[i] = r.seq, int16(r.shard.number)
	}
	return seqs, shards
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
