package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// ResourceClass is what is known of a resource class.
type ResourceClass struct {
	Name      string
	FirstSeen time.Time
	// Announced is true when a worker of the class has ever announced itself. What
	// follows is then the most of each that one worker has had.
	Announced bool
	Slots     int
	GPUs      int
	// CPUMillis and MemoryBytes are nil when some worker did not count them.
	CPUMillis   *int64
	MemoryBytes *int64
}

// recordClassesSQL writes only where a worker has more than any before it, so that
// renewing an announcement is a look-up.
const recordClassesSQL = `
	INSERT INTO resource_classes AS c (name, slots, cpu_millis, memory_bytes, gpus)
	SELECT n.class, $2, nullif($3::bigint, 0), nullif($4::bigint, 0), n.gpus
	FROM unnest($1::text[], $5::integer[]) AS n(class, gpus)
	WHERE NOT EXISTS (
		SELECT FROM resource_classes k WHERE k.name = n.class AND k.slots >= $2 AND k.gpus >= n.gpus
		  AND (k.cpu_millis IS NULL OR k.cpu_millis >= nullif($3::bigint, 0))
		  AND (k.memory_bytes IS NULL OR k.memory_bytes >= nullif($4::bigint, 0)))
	ORDER BY n.class
	ON CONFLICT (name) DO UPDATE SET
		slots = greatest(c.slots, excluded.slots), gpus = greatest(c.gpus, excluded.gpus),
		cpu_millis = CASE WHEN c.slots IS NULL THEN excluded.cpu_millis
			WHEN c.cpu_millis IS NULL OR excluded.cpu_millis IS NULL THEN NULL
			ELSE greatest(c.cpu_millis, excluded.cpu_millis) END,
		memory_bytes = CASE WHEN c.slots IS NULL THEN excluded.memory_bytes
			WHEN c.memory_bytes IS NULL OR excluded.memory_bytes IS NULL THEN NULL
			ELSE greatest(c.memory_bytes, excluded.memory_bytes) END`

// recordClasses makes the classes of a worker known, and how large it is, as far as it
// knows that itself: gpus are in the order of the classes.
func (s *Store) recordClasses(ctx context.Context, w Worker, gpus []int) error {
	var sized, others []string
	var counts []int
	for i, class := range w.Classes {
		if w.surveyed(class) {
			sized, counts = append(sized, class), append(counts, gpus[i])
		} else {
			others = append(others, class)
		}
	}
	if len(others) > 0 {
		if err := s.KnowClasses(ctx, others); err != nil {
			return err
		}
	}
	_, err := s.pool.Exec(ctx, recordClassesSQL, sized, w.Slots, w.CPUMillis, w.MemoryBytes, counts)
	if err != nil {
		return fmt.Errorf("record resource classes: %w", err)
	}
	return nil
}

// KnowClasses makes classes known that are configured and that no worker may have
// announced yet.
func (s *Store) KnowClasses(ctx context.Context, names []string) error {
	_, err := s.pool.Exec(ctx, `
		INSERT INTO resource_classes (name) SELECT name FROM unnest($1::text[]) AS name
		WHERE NOT EXISTS (SELECT FROM resource_classes k WHERE k.name = name.name)
		ORDER BY name ON CONFLICT DO NOTHING`, names)
	if err != nil {
		return fmt.Errorf("record configured resource classes: %w", err)
	}
	return nil
}

// ResourceClasses returns the resource classes that are known, by name, as the
// transaction sees them.
func (s *Store) ResourceClasses(ctx context.Context, tx pgx.Tx) ([]ResourceClass, error) {
	rows, err := tx.Query(ctx, `
		SELECT name, first_seen, slots IS NOT NULL, coalesce(slots, 0), coalesce(gpus, 0), cpu_millis, memory_bytes
		FROM resource_classes ORDER BY name COLLATE "C"`)
	if err != nil {
		return nil, fmt.Errorf("read resource classes: %w", err)
	}
	classes, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (ResourceClass, error) {
		var c ResourceClass
		err := row.Scan(&c.Name, &c.FirstSeen, &c.Announced, &c.Slots, &c.GPUs, &c.CPUMillis, &c.MemoryBytes)
		c.FirstSeen = c.FirstSeen.UTC()
		return c, err
	})
	if err != nil {
		return nil, fmt.Errorf("read resource classes: %w", err)
	}
	return classes, nil
}
