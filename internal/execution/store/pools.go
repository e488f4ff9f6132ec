package store

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/millrace/millrace/internal/admission"
	"github.com/millrace/millrace/internal/executor"
)

// Pool is room that a worker's executor has elsewhere, in a cluster for example. Workers
// with the same pool share it, and it counts once.
type Pool struct {
	// Executor is whose attempts run there, and Name tells the pool from others.
	Executor, Name string
	// Room is all the room by resource class, used or not. A class that is not in it is
	// one of which nothing is known yet.
	Room map[string]executor.Capacity
}

// poolRow is what the table has of a pool for one class. An amount that is nil has no
// bound.
type poolRow struct {
	Executor    string `json:"executor"`
	Name        string `json:"name"`
	Known       bool   `json:"known"`
	Slots       *int64 `json:"slots,omitempty"`
	CPUMillis   *int64 `json:"cpu_millis,omitempty"`
	MemoryBytes *int64 `json:"memory_bytes,omitempty"`
	GPUs        *int64 `json:"gpus,omitempty"`
}

// bound is an amount, nil if it has no bound.
func bound[N int | int64](n N) *int64 {
	if n < 0 {
		return nil
	}
	return new(int64(n))
}

// poolsOf writes the pools of a worker for one class as JSON.
func (w Worker) poolsOf(class string) (string, error) {
	rows := make([]poolRow, len(w.Pools))
	for i, p := range w.Pools {
		rows[i] = poolRow{Executor: p.Executor, Name: p.Name}
		if room, known := p.Room[class]; known {
			rows[i].Known, rows[i].Slots, rows[i].CPUMillis = true, bound(room.Slots), bound(room.CPUMillis)
			rows[i].MemoryBytes, rows[i].GPUs = bound(room.MemoryBytes), bound(room.GPUs)
		}
	}
	text, err := json.Marshal(rows)
	return string(text), err
}

// anyGPUs is as many graphics processors as nobody has.
const anyGPUs = 1 << 20

// gpusOf is how many graphics processors a worker offers to a class: its own, or where it
// has none those of the pools that everything it offers runs in.
func (w Worker) gpusOf(class string) int {
	if w.GPUs > 0 || !w.pooled() {
		return w.GPUs
	}
	most := 0
	for _, p := range w.Pools {
		if room, known := p.Room[class]; known && room.GPUs < 0 {
			return anyGPUs
		} else if known {
			most = max(most, room.GPUs)
		}
	}
	return most
}

// pooled reports whether all that the worker offers runs elsewhere.
func (w Worker) pooled() bool { return len(w.Executors) > 0 && len(w.Pools) == len(w.Executors) }

// surveyed reports whether it is known what the worker can take of a class: what is larger
// than that is refused for good.
func (w Worker) surveyed(class string) bool {
	return !w.pooled() || slices.ContainsFunc(w.Pools, func(p Pool) bool {
		_, known := p.Room[class]
		return known
	})
}

// pool turns what the table has into what admission knows.
func (r poolRow) pool() admission.Pool {
	amount := func(n *int64) int64 {
		if n == nil {
			return admission.Unlimited
		}
		return min(*n, admission.Unlimited)
	}
	p := admission.Pool{Executor: r.Executor, Name: r.Name, Known: r.Known}
	if r.Known {
		p.Resources = admission.Resources{
			admission.Slots: amount(r.Slots), admission.CPUMillis: amount(r.CPUMillis),
			admission.MemoryBytes: amount(r.MemoryBytes), admission.GPUs: amount(r.GPUs),
		}
	}
	return p
}

// readPools reads the pools of a row of workers.
func readPools(text []byte) ([]admission.Pool, error) {
	if len(text) <= len("[]") {
		return nil, nil
	}
	var rows []poolRow
	if err := json.Unmarshal(text, &rows); err != nil {
		return nil, fmt.Errorf("read pools of a worker: %w", err)
	}
	pools := make([]admission.Pool, len(rows))
	for i, r := range rows {
		pools[i] = r.pool()
	}
	return pools, nil
}
