package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace/millrace/internal/execution"
)

// Executions with one concurrency key run one at a time in the order of their
// submission: only the head of the key, its lowest that has not ended, may be
// admitted. The others wait behind a gate (execution.WaitingForKey), out of the index
// of what is admissible.
//
// A gate is shut by whoever queues the execution, or else by the admitter, holding a
// lock on the head's row that keeps the head from ending meanwhile. Whoever ends an execution leaves a release, and the
// admitter who finds it opens the gate of the one that is the head by then. So the
// end of the head always comes after the gates that were shut because of it, and
// its release is looked at after its end is visible: no gate stays shut with
// nobody to open it, whatever ends at the same time.

// openStates are those in which an execution has its key's place.
const openStates = `('REQUESTED', 'QUEUED', 'SCHEDULED', 'RUNNING')`

// releasesPerRound bounds how many releases one round looks at.
const releasesPerRound = 1000

// release leaves a release for each execution with a key that has ended.
func release(ctx context.Context, tx statements, executions []*execution.Execution) error {
	var tenants, keys []string
	for _, e := range executions {
		if e.State.Terminal() && e.Stored().State != e.State && e.Request.ConcurrencyKey != "" {
			tenants, keys = append(tenants, e.Request.Tenant), append(keys, e.Request.ConcurrencyKey)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, `INSERT INTO concurrency_releases (tenant, concurrency_key)
		SELECT * FROM unnest($1::text[], $2::text[])`, tenants, keys)
	return err
}

// openGates opens, as a part of a batch, the gates of the executions whose turn the
// releases made it. Whether there were any is known when the batch is closed.
func openGates(batch *pgx.Batch, opened *bool) {
	batch.Queue(`
		WITH released AS (
			DELETE FROM concurrency_releases
			WHERE ctid = ANY (ARRAY(SELECT ctid FROM concurrency_releases LIMIT $1 FOR UPDATE SKIP LOCKED))
			RETURNING tenant, concurrency_key),
		opened AS (
		UPDATE executions e SET waits = 0
		FROM (SELECT DISTINCT * FROM released) AS r, LATERAL (
			SELECT h.id FROM executions h
			WHERE h.tenant = r.tenant AND h.concurrency_key = r.concurrency_key AND h.state IN `+openStates+`
			ORDER BY h.concurrency_seq LIMIT 1) AS head
		WHERE e.id = head.id AND e.state = 'QUEUED' AND e.waits = 1
		RETURNING e.resource_class, e.flow, e.rank)
		INSERT INTO admission_feed (resource_class, flow, queued, running, slots, cpu_millis, memory_bytes, gpus, rank)
		SELECT resource_class, flow, 0, 0, 0, 0, 0, 0, min(rank) FROM opened GROUP BY 1, 2`, releasesPerRound).Exec(func(tag pgconn.CommandTag) error {
		*opened = tag.RowsAffected() > 0
		return nil
	})
}

// turns says which executions with a concurrency key are the heads of their keys.
type turns struct {
	// heads are those that are, each with a time at which it was one.
	heads map[string]time.Time
	// behind are those that come after a head that cannot end before the transaction
	// does. What is in neither comes after a head that somebody is changing, perhaps
	// ending: it has to be looked at again.
	behind map[string]bool
}

// takeTurns finds out whose turn it is among executions, whose rows are locked.
func takeTurns(ctx context.Context, tx pgx.Tx, queued []loaded) (turns, error) {
	t := turns{heads: map[string]time.Time{}, behind: map[string]bool{}}
	heads, err := readHeads(ctx, tx, queued)
	if err != nil {
		return t, err
	}
	var blockers []string
	for id, head := range heads {
		if id == head.id {
			t.heads[id] = head.at
			continue
		}
		blockers = append(blockers, head.id)
	}
	if len(blockers) == 0 {
		return t, nil
	}
	slices.Sort(blockers)
	rows, err := tx.Query(ctx, `SELECT id::text FROM executions
		WHERE id = ANY ($1::text[]::uuid[]) AND state IN `+openStates+` FOR SHARE SKIP LOCKED`, slices.Compact(blockers))
	if err != nil {
		return t, fmt.Errorf("hold heads of concurrency keys: %w", err)
	}
	held := map[string]bool{}
	var id string
	if _, err := pgx.ForEachRow(rows, []any{&id}, func() error {
		held[id] = true
		return nil
	}); err != nil {
		return t, fmt.Errorf("hold heads of concurrency keys: %w", err)
	}
	for id, head := range heads {
		if id != head.id && held[head.id] {
			t.behind[id] = true
		}
	}
	return t, nil
}

// shutGates takes executions out of what may be admitted until it is their turn.
func shutGates(ctx context.Context, tx statements, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, `UPDATE executions SET waits = 1 WHERE id = ANY ($1::text[]::uuid[])`, ids)
	return err
}

// head is the head of a key, and when it was seen to be: after the end of the one
// before it.
type head struct {
	id string
	at time.Time
}

// readHeads returns the head of the key of each execution that has one, by id. That
// an execution is the head stays true once it is: what comes before it is committed
// before it, and has ended for good.
func readHeads(ctx context.Context, tx pgx.Tx, queued []loaded) (map[string]head, error) {
	var ids []string
	for _, l := range queued {
		if l.Request.ConcurrencyKey != "" {
			ids = append(ids, l.ID)
		}
	}
	heads := make(map[string]head, len(ids))
	if len(ids) == 0 {
		return heads, nil
	}
	rows, err := tx.Query(ctx, `
		SELECT e.id::text, h.id::text, clock_timestamp()
		FROM executions e, LATERAL (
			SELECT h.id FROM executions h
			WHERE h.tenant = e.tenant AND h.concurrency_key = e.concurrency_key AND h.state IN `+openStates+`
			ORDER BY h.concurrency_seq LIMIT 1) AS h
		WHERE e.id = ANY ($1::text[]::uuid[])`, ids)
	if err != nil {
		return nil, fmt.Errorf("read heads of concurrency keys: %w", err)
	}
	var id string
	var h head
	_, err = pgx.ForEachRow(rows, []any{&id, &h.id, &h.at}, func() error {
		heads[id] = head{h.id, h.at.UTC()}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read heads of concurrency keys: %w", err)
	}
	return heads, nil
}
