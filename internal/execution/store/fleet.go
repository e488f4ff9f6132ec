package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/topics"
)

// workerMemory is how long the entry of a worker stays that has not been heard of.
const workerMemory = 24 * time.Hour

// WorkerStatus is what is known of a worker.
type WorkerStatus struct {
	ID        string
	Classes   []string
	Executors []string
	// Total is what it has, 0 where it does not count it; Used is what it runs, and
	// Running how many executions that are.
	Total, Used topics.Requirements
	Running     int
	// Pools are those in whose room some of its executors run things, by class.
	Pools []PoolStatus
	// Since is when it announced itself first, AnnouncedAt when it did last.
	Since, AnnouncedAt time.Time
	// Alive is false when it has not been heard of for so long that nothing more is
	// admitted for it.
	Alive bool
}

// PoolStatus is what a worker knows of the room that one of its executors has elsewhere
// for a class. Other workers may share it.
type PoolStatus struct {
	Executor, Name, Class string
	// Known is false as long as the worker has not found out how much there is.
	Known bool
	// Total is all of it, used or not. What has no bound is 0; of slots, Unbounded says so.
	Total     topics.Requirements
	Unbounded bool
}

// fleetSQL selects the workers, the live ones first.
const fleetSQL = `
	WITH fleet AS (
		SELECT id, array_agg(resource_class ORDER BY resource_class) AS classes, max(slots) AS slots,
			max(cpu_millis) AS cpu_millis, max(memory_bytes) AS memory_bytes, max(gpus) AS gpus,
			min(since) AS since, max(announced_at) AS announced_at, bool_or(expires_at > clock_timestamp()) AS alive
		FROM workers GROUP BY id),
	pooled AS (
		SELECT id, jsonb_agg(jsonb_build_object('class', resource_class, 'pools', pools) ORDER BY resource_class) AS pools
		FROM workers WHERE pools <> '[]' GROUP BY id),
	named AS (SELECT id, array_agg(DISTINCT name ORDER BY name) AS executors FROM workers, unnest(executors) AS name GROUP BY id)
	SELECT f.id, f.classes, coalesce(n.executors, '{}'),
		f.slots, coalesce(f.cpu_millis, 0), coalesce(f.memory_bytes, 0), f.gpus,
		u.running, u.slots, u.cpu_millis, u.memory_bytes, u.gpus, f.since, f.announced_at, f.alive, p.pools
	FROM fleet f LEFT JOIN named n USING (id) LEFT JOIN pooled p USING (id), LATERAL (
		SELECT count(*) AS running, coalesce(sum(e.slots), 0)::integer AS slots,
			coalesce(sum(e.cpu_millis), 0)::bigint AS cpu_millis, coalesce(sum(e.memory_bytes), 0)::bigint AS memory_bytes,
			coalesce(sum(e.gpus), 0)::integer AS gpus
		FROM executions e WHERE e.state = 'RUNNING' AND e.worker = f.id) AS u
	WHERE $1 = '' OR $1 = ANY (f.classes)
	ORDER BY f.alive DESC, f.id`

// Workers returns the workers that are alive, and those that were lost within the last
// day; those that stopped in order have withdrawn. A class, if given, selects those
// that serve it.
func (s *Store) Workers(ctx context.Context, class string) ([]WorkerStatus, error) {
	rows, err := s.pool.Query(ctx, fleetSQL, class)
	if err != nil {
		return nil, fmt.Errorf("list workers: %w", err)
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (WorkerStatus, error) {
		var w WorkerStatus
		t, u := &w.Total, &w.Used
		var pools []byte
		err := row.Scan(&w.ID, &w.Classes, &w.Executors, &t.Slots, &t.CPUMillis, &t.MemoryBytes, &t.GPUs,
			&w.Running, &u.Slots, &u.CPUMillis, &u.MemoryBytes, &u.GPUs, &w.Since, &w.AnnouncedAt, &w.Alive, &pools)
		w.Since, w.AnnouncedAt = w.Since.UTC(), w.AnnouncedAt.UTC()
		if err != nil || pools == nil {
			return w, err
		}
		w.Pools, err = poolStatus(pools)
		return w, err
	})
	if err != nil {
		return nil, fmt.Errorf("list workers: %w", err)
	}
	return found, nil
}

// poolStatus reads the pools of a worker by class.
func poolStatus(text []byte) ([]PoolStatus, error) {
	var classes []struct {
		Class string    `json:"class"`
		Pools []poolRow `json:"pools"`
	}
	if err := json.Unmarshal(text, &classes); err != nil {
		return nil, fmt.Errorf("read pools: %w", err)
	}
	var all []PoolStatus
	for _, c := range classes {
		for _, r := range c.Pools {
			all = append(all, PoolStatus{
				Executor: r.Executor, Name: r.Name, Class: c.Class, Known: r.Known,
				Total: amounts(r.pool().Resources), Unbounded: r.Known && r.Slots == nil,
			})
		}
	}
	return all, nil
}

// ForgetWorkers removes the entries of workers that have been gone for a day: names of
// workers may come from machines that never come back.
func (s *Store) ForgetWorkers(ctx context.Context) error {
	if _, err := s.pool.Exec(ctx, `DELETE FROM workers WHERE expires_at < clock_timestamp() - $1::interval`, workerMemory); err != nil {
		return fmt.Errorf("forget workers: %w", err)
	}
	return nil
}
