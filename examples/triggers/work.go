package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/executor/function"
)

// failsEvery is which orders fail at their first attempt.
const failsEvery = 7

// job is what an execution was asked to do: the mapping made it of a message.
type job struct {
	Trigger     string    `json:"trigger"`
	Customer    string    `json:"customer"`
	Order       int       `json:"order"`
	Cents       int       `json:"cents"`
	Partition   int32     `json:"partition"`
	Offset      int64     `json:"offset"`
	ScheduledAt time.Time `json:"scheduled_at"`
	execution   string
}

// work notes what executions did, in the order in which they had done it.
type work struct {
	mu   sync.Mutex
	done []job
	// seen has the executions that are in done: an attempt that comes again is not counted
	// twice.
	seen map[string]bool
	// failed counts the attempts that came to nothing.
	failed int
}

func newWork() *work { return &work{seen: map[string]bool{}} }

// function is what all executions run. Some orders fail at first, when others of their
// customer wait behind them already.
func (w *work) function(_ context.Context, call function.Call) (any, error) {
	j := job{execution: call.ExecutionID}
	if err := json.Unmarshal(call.Args, &j); err != nil {
		return nil, fmt.Errorf("read args: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if j.Trigger == "orders" && j.Order%failsEvery == 0 && call.Attempt == 1 {
		w.failed++
		return nil, errors.New("the shelf is empty, somebody has to fetch more")
	}
	if !w.seen[j.execution] {
		w.seen[j.execution] = true
		w.done = append(w.done, j)
	}
	return nil, nil
}

// of returns what was done for a trigger.
func (w *work) of(trigger string) []job {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.done), func(j job) bool { return j.Trigger != trigger })
}

func (w *work) failures() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed
}
