package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/admission"
	"github.com/millrace/millrace/internal/limits"
)

// buckets are the states of keys whose rows the transaction holds locked.
type buckets struct {
	all map[limits.Key]*admission.Bucket
	// now is the database's time after the last lock was taken: no other transaction
	// has decided on any of the keys at a later time.
	now time.Time
}

func compareKeys(a, b limits.Key) int {
	return cmp.Or(cmp.Compare(a.Limit, b.Limit), cmp.Compare(a.Value, b.Value))
}

// splitKeys sorts keys and returns them without repetition, as columns.
func splitKeys(keys []limits.Key) (names, values []string) {
	slices.SortFunc(keys, compareKeys)
	for _, k := range slices.Compact(keys) {
		names, values = append(names, k.Limit), append(values, k.Value)
	}
	return names, values
}

// lockBuckets locks the rows of the keys, which are made where they are missing.
func lockBuckets(ctx context.Context, tx pgx.Tx, keys []limits.Key) (buckets, error) {
	found := buckets{all: make(map[limits.Key]*admission.Bucket, len(keys))}
	names, values := splitKeys(keys)
	if err := found.lock(ctx, tx, names, values); err != nil {
		return buckets{}, err
	}
	if len(found.all) == len(names) {
		return found, nil
	}
	if _, err := tx.Exec(ctx, `INSERT INTO limit_buckets (limit_name, key)
		SELECT name, value FROM unnest($1::text[], $2::text[]) AS k(name, value)
		ORDER BY name COLLATE "C", value COLLATE "C" ON CONFLICT DO NOTHING`, names, values); err != nil {
		return buckets{}, fmt.Errorf("make buckets: %w", err)
	}
	if err := found.lock(ctx, tx, names, values); err != nil {
		return buckets{}, err
	}
	if len(found.all) != len(names) {
		return buckets{}, fmt.Errorf("lock buckets: %d of %d rows are there", len(found.all), len(names))
	}
	return found, nil
}

func (b *buckets) lock(ctx context.Context, tx pgx.Tx, names, values []string) error {
	var batch pgx.Batch
	batch.Queue(`
		SELECT b.limit_name, b.key, b.tat_nanos, b.in_use
		FROM limit_buckets b JOIN unnest($1::text[], $2::text[]) AS k(name, value) ON b.limit_name = k.name AND b.key = k.value
		ORDER BY b.limit_name, b.key FOR UPDATE OF b`, names, values)
	batch.Queue(`SELECT clock_timestamp()`)
	results := tx.SendBatch(ctx, &batch)
	rows, err := results.Query()
	if err == nil {
		var list []admission.Bucket
		list, err = pgx.CollectRows(rows, scanBucket)
		for _, bucket := range list {
			b.all[bucket.Key] = &bucket
		}
	}
	if err == nil {
		err = results.QueryRow().Scan(&b.now)
		b.now = b.now.UTC()
	}
	if closed := results.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("lock buckets: %w", err)
	}
	return nil
}

func scanBucket(row pgx.CollectableRow) (admission.Bucket, error) {
	var b admission.Bucket
	return b, row.Scan(&b.Limit, &b.Value, &b.Tat, &b.InUse)
}

// readBuckets returns the states of keys as they are, also of those that have no row
// yet.
func readBuckets(ctx context.Context, tx pgx.Tx, keys []limits.Key) ([]admission.Bucket, error) {
	names, values := splitKeys(keys)
	rows, err := tx.Query(ctx, `
		SELECT k.name, k.value, coalesce(b.tat_nanos, 0), coalesce(b.in_use, 0)
		FROM unnest($1::text[], $2::text[]) AS k(name, value)
		LEFT JOIN limit_buckets b ON b.limit_name = k.name AND b.key = k.value`, names, values)
	if err != nil {
		return nil, fmt.Errorf("read buckets: %w", err)
	}
	return pgx.CollectRows(rows, scanBucket)
}

// save writes the states back.
func (b *buckets) save(ctx context.Context, tx statements) error {
	if len(b.all) == 0 {
		return nil
	}
	var names, values []string
	var tats, inUse []int64
	for key, bucket := range b.all {
		names, values = append(names, key.Limit), append(values, key.Value)
		tats, inUse = append(tats, bucket.Tat), append(inUse, bucket.InUse)
	}
	_, err := tx.Exec(ctx, `
		UPDATE limit_buckets b SET tat_nanos = n.tat, in_use = n.in_use, updated_at = clock_timestamp()
		FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) AS n(name, value, tat, in_use)
		WHERE b.limit_name = n.name AND b.key = n.value AND (b.tat_nanos, b.in_use) <> (n.tat, n.in_use)`,
		names, values, tats, inUse)
	return err
}

// list returns the states.
func (b *buckets) list() []admission.Bucket {
	list := make([]admission.Bucket, 0, len(b.all))
	for _, bucket := range b.all {
		list = append(list, *bucket)
	}
	return list
}
