package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/limits"
)

// sweepPerRound bounds how many flows and buckets one round removes.
const sweepPerRound = 5000

// sweep removes flows that have been empty for an hour and buckets that are full, so
// that the tables do not grow with the users and keys there have ever been. Both are
// as good as rows that never were: a flow is made again by whoever queues into it, and
// a bucket that is not there is a full one.
func (r *admissionRound) sweep(ctx context.Context) error {
	var alone bool
	// Nobody queues into a flow between the look at it and its end. Where somebody is
	// about to, sweeping can wait.
	if err := r.tx.QueryRow(ctx, `SELECT pg_try_advisory_xact_lock($1)`, int64(flowsLock)).Scan(&alone); err != nil {
		return fmt.Errorf("sweep flows: %w", err)
	}
	if !alone {
		return nil
	}
	if _, err := r.tx.Exec(ctx, `
		WITH gone AS (
			DELETE FROM admission_ledger WHERE flow IN (
				SELECT flow FROM admission_ledger g
				WHERE resource_class = $1 AND queued = 0 AND running = 0 AND updated_at < clock_timestamp() - interval '1 hour'
					AND NOT EXISTS (SELECT FROM admission_feed f WHERE f.resource_class = $1 AND f.flow = g.flow)
				LIMIT $2)
			RETURNING flow)
		DELETE FROM admission_flows WHERE id IN (SELECT flow FROM gone)`, r.Class, sweepPerRound); err != nil {
		return fmt.Errorf("sweep flows: %w", err)
	}
	if _, err := r.tx.Exec(ctx, `
		DELETE FROM limit_buckets WHERE ctid = ANY (ARRAY(
			SELECT ctid FROM limit_buckets
			WHERE in_use = 0 AND tat_nanos < $1 AND updated_at < clock_timestamp() - interval '1 hour'
			LIMIT $2 FOR UPDATE SKIP LOCKED))`, r.now.UnixNano(), sweepPerRound); err != nil {
		return fmt.Errorf("sweep buckets: %w", err)
	}
	return nil
}

// inUseSQL selects the keys of the limits $1 of which the buckets say something else
// than the ledgers of all classes, with how many are in use by the latter.
const inUseSQL = `
	SELECT coalesce(b.limit_name, n.name), coalesce(b.key, n.value), coalesce(n.running, 0)::bigint
	FROM (SELECT * FROM limit_buckets WHERE limit_name = ANY ($1) AND in_use <> 0) AS b FULL JOIN (
		SELECT k."limit" COLLATE "C" AS name, k.value COLLATE "C" AS value, sum(g.running) AS running
		FROM admission_ledger g JOIN admission_flows l ON l.id = g.flow,
			jsonb_to_recordset(l.keys) AS k("limit" text, value text)
		WHERE g.running <> 0 AND k."limit" = ANY ($1) GROUP BY 1, 2) AS n
	ON n.name = b.limit_name AND n.value = b.key
	WHERE coalesce(b.in_use, 0) <> coalesce(n.running, 0)`

// recount makes what the buckets say is in use what the ledgers say. They differ when
// a limit of concurrency has come into force while executions were running: while it
// was not, nobody counted them.
func (r *admissionRound) recount(ctx context.Context) error {
	var names []string
	for _, d := range r.Config.Limits.All() {
		if d.Concurrency > 0 {
			names = append(names, d.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	differ, err := r.differing(ctx, names)
	if err != nil || len(differ) == 0 {
		return err
	}
	keys := make([]limits.Key, 0, len(differ))
	for key := range differ {
		keys = append(keys, key)
	}
	// Whoever changes what is in use holds the bucket's row until its ledger is
	// visible: only now do the two belong together.
	locked, err := lockBuckets(ctx, r.tx, keys)
	if err != nil {
		return err
	}
	if differ, err = r.differing(ctx, names); err != nil {
		return err
	}
	for key, n := range differ {
		if b, ok := locked.all[key]; ok {
			b.InUse = n
		}
	}
	return locked.save(ctx, r.tx)
}

// differing returns the keys of which the buckets do not say what the ledgers say,
// with the latter.
func (r *admissionRound) differing(ctx context.Context, names []string) (map[limits.Key]int64, error) {
	rows, err := r.tx.Query(ctx, inUseSQL, names)
	if err != nil {
		return nil, fmt.Errorf("count what is in use: %w", err)
	}
	found := map[limits.Key]int64{}
	var key limits.Key
	var n int64
	if _, err := pgx.ForEachRow(rows, []any{&key.Limit, &key.Value, &n}, func() error {
		found[key] = n
		return nil
	}); err != nil {
		return nil, fmt.Errorf("count what is in use: %w", err)
	}
	return found, nil
}
