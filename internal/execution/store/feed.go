package store

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/admission"
	"github.com/millrace/millrace/internal/execution"
)

// feedPerRound bounds how many rows of the feed one round folds.
const feedPerRound = 20_000

// open reports whether an execution in that state waits, and whether it holds
// resources.
func open(s execution.State) (queued, running int64) {
	switch s {
	case execution.Queued:
		return 1, 0
	case execution.Scheduled, execution.Running:
		return 0, 1
	default:
		return 0, 0
	}
}

// classFlow names a flow together with its class, by which the feed is read.
type classFlow struct {
	class string
	flow  admission.FlowID
}

// deltas returns what has changed about the executions since they were stored, by
// flow.
func deltas(executions []*execution.Execution) (map[classFlow]admission.Delta, error) {
	all := map[classFlow]admission.Delta{}
	for _, e := range executions {
		was := e.Stored()
		queuedBefore, runningBefore := open(was.State)
		queued, running := open(e.State)
		need := admission.Need(e.Request.Requirements)
		if was.Flow != e.Flow && queuedBefore+runningBefore > 0 {
			// It has left one flow for another.
			left := admission.Delta{Queued: -queuedBefore, Running: -runningBefore, Used: need.Times(-runningBefore)}
			if err := addDelta(all, e, was.Flow, left); err != nil {
				return nil, err
			}
			queuedBefore, runningBefore = 0, 0
		}
		d := admission.Delta{Queued: queued - queuedBefore, Running: running - runningBefore}
		d.Used = need.Times(d.Running)
		if queued == 1 && e.Waiting == execution.WaitingForTurn &&
			(queuedBefore == 0 || was.Waiting != e.Waiting || !was.Rank.Equal(e.Rank)) {
			d.Rank = e.Rank
		}
		if d.Queued == 0 && d.Running == 0 && d.Rank.IsZero() {
			continue
		}
		if err := addDelta(all, e, e.Flow, d); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func addDelta(all map[classFlow]admission.Delta, e *execution.Execution, name string, d admission.Delta) error {
	flow, err := uuid.Parse(name)
	if err != nil {
		return fmt.Errorf("execution %s is in no flow: %w", e.ID, err)
	}
	at := classFlow{e.Request.ResourceClass, flow}
	sum := all[at]
	all[at] = admission.Delta{
		Flow: flow, Queued: sum.Queued + d.Queued, Running: sum.Running + d.Running,
		Used: sum.Used.Plus(d.Used), Rank: earlier(sum.Rank, d.Rank),
	}
	return nil
}

// earlier returns the earlier of two times, of which one may be zero.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// feed tells the admitters of what has changed about the executions.
func feed(ctx context.Context, tx statements, executions []*execution.Execution) error {
	all, err := deltas(executions)
	if err != nil || len(all) == 0 {
		return err
	}
	var c deltaColumns
	classes := make([]string, 0, len(all))
	for at, d := range all {
		classes = append(classes, at.class)
		c.add(d)
	}
	_, err = tx.Exec(ctx, `
		INSERT INTO admission_feed (resource_class, flow, queued, running, slots, cpu_millis, memory_bytes, gpus, rank)
		SELECT * FROM unnest($1::text[], $2::text[]::uuid[], $3::integer[], $4::integer[], $5::bigint[], $6::bigint[],
			$7::bigint[], $8::bigint[], $9::timestamptz[])`,
		append([]any{classes}, append(c.args(), c.ranks)...)...)
	return err
}

// deltaColumns are deltas as arrays for unnest.
type deltaColumns struct {
	flows                     []string
	queued, running           []int64
	slots, cpus, memory, gpus []int64
	ranks                     []*time.Time
}

func (c *deltaColumns) add(d admission.Delta) {
	c.flows = append(c.flows, d.Flow.String())
	c.queued, c.running = append(c.queued, d.Queued), append(c.running, d.Running)
	c.slots = append(c.slots, d.Used[admission.Slots])
	c.cpus = append(c.cpus, d.Used[admission.CPUMillis])
	c.memory = append(c.memory, d.Used[admission.MemoryBytes])
	c.gpus = append(c.gpus, d.Used[admission.GPUs])
	c.ranks = append(c.ranks, nullable(d.Rank))
}

// args are the columns but the rank, in the order of the tables.
func (c *deltaColumns) args() []any {
	return []any{c.flows, c.queued, c.running, c.slots, c.cpus, c.memory, c.gpus}
}

// foldSQL takes what the feed of the class $1 has from transactions that are not
// older than $2. Its first columns tell how many rows there were and from which
// transaction on the feed has to be read next time: all older ones have ended, so
// what they wrote was visible here.
const foldSQL = `
	WITH gone AS (
		DELETE FROM admission_feed WHERE ctid = ANY (ARRAY(
			SELECT ctid FROM admission_feed WHERE resource_class = $1 AND tx >= $2::text::xid8 ORDER BY tx LIMIT $3))
		RETURNING flow, queued, running, slots, cpu_millis, memory_bytes, gpus, rank),
	sums AS (
		SELECT flow, sum(queued) AS queued, sum(running) AS running, sum(slots)::bigint AS slots,
			sum(cpu_millis)::bigint AS cpu_millis, sum(memory_bytes)::bigint AS memory_bytes, sum(gpus)::bigint AS gpus,
			min(rank) AS rank
		FROM gone GROUP BY flow)
	SELECT (SELECT count(*) FROM gone), pg_snapshot_xmin(pg_current_snapshot())::text,
		sums.flow::text, queued, running, slots, cpu_millis, memory_bytes, gpus, rank
	FROM (VALUES (1)) AS always LEFT JOIN sums ON true`

// folded is what a round has read of the feed.
type folded struct {
	deltas []admission.Delta
	// from is the transaction to read from next time.
	from string
	// more says that there was more than was read.
	more bool
}

func collectFeed(rows pgx.Rows, from string) (folded, error) {
	var f folded
	var n int
	var flow *string
	var queued, running, slots, cpu, memory, gpus *int64
	var rank *time.Time
	_, err := pgx.ForEachRow(rows, []any{&n, &f.from, &flow, &queued, &running, &slots, &cpu, &memory, &gpus, &rank}, func() error {
		if flow == nil {
			return nil
		}
		id, err := uuid.Parse(*flow)
		f.deltas = append(f.deltas, admission.Delta{
			Flow: id, Queued: *queued, Running: *running, Rank: moment(rank),
			Used: admission.Resources{*slots, *cpu, *memory, *gpus},
		})
		return err
	})
	if f.more = n == feedPerRound; f.more {
		f.from = from
	}
	return f, err
}

// saveLedger adds deltas to the ledger. Only the admitter of the class does that.
func saveLedger(ctx context.Context, tx statements, class string, all map[admission.FlowID]admission.Delta) error {
	if len(all) == 0 {
		return nil
	}
	flows := make([]admission.FlowID, 0, len(all))
	for flow := range all {
		flows = append(flows, flow)
	}
	slices.SortFunc(flows, func(a, b admission.FlowID) int { return bytes.Compare(a[:], b[:]) })
	var c deltaColumns
	for _, flow := range flows {
		c.add(all[flow])
	}
	_, err := tx.Exec(ctx, `
		INSERT INTO admission_ledger AS l (resource_class, flow, queued, running, slots, cpu_millis, memory_bytes, gpus)
		SELECT $1, * FROM unnest($2::text[]::uuid[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[])
		ON CONFLICT (flow) DO UPDATE SET
			queued = l.queued + excluded.queued, running = l.running + excluded.running,
			slots = l.slots + excluded.slots, cpu_millis = l.cpu_millis + excluded.cpu_millis,
			memory_bytes = l.memory_bytes + excluded.memory_bytes, gpus = l.gpus + excluded.gpus,
			updated_at = clock_timestamp()`,
		append([]any{class}, c.args()...)...)
	return err
}
