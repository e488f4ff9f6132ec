// Package execution is the saga of an execution whose program runs somewhere else: it
// creates a workload, awaits its end, and cleans up. What runs workloads is injected; see
// Workloads.
//
// # Steps
//
//	name      chooses the name of the workload; undone by deleting what has that name
//	create    creates it
//	await     looks at it until it has ended, and keeps the result
//	clean-up  deletes it
//
// The compensation belongs to the step before create, and for a reason: what is done
// elsewhere is not part of the step's transaction, so when the answer is lost nobody knows
// whether there is a workload. The name is known in any case.
//
// A program that ends badly is a result and no failure of the saga. A workload that cannot
// be created, that disappears, or that is not done in time has the saga undone, after which
// nothing of it is left.
//
// # The reservation
//
// The coordinator has reserved the capacity before, and gives it back after the execution
// has ended. The saga only observes it: without it nothing is created, and what runs is
// given up. Sagas that are for no execution need none.
//
// # Crashes
//
// State has names and JSON only. A step whose process died comes again and finds the
// workload by its name. Create and Delete of one name exclude each other by a lock in
// PostgreSQL; what is still on its way when the lock is gone is kept out by ErrDeleted.
// await looks again after 0.2 seconds, then more and more seldom; each look is an attempt
// of that step, in the history and the journal.
package execution

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/sagas"
)

// Name is the name of the saga unless the Config has another.
const Name = "execution"

// The steps.
const (
	StepName    = "name"
	StepCreate  = "create"
	StepAwait   = "await"
	StepCleanUp = "clean-up"
)

// Codes of failures.
const (
	CodeReservationGone = "reservation_gone"
	CodeWorkloadGone    = "workload_gone"
	CodeDeleted         = "workload_deleted"
	// codeActive is of an attempt of await that has found the workload active.
	codeActive = "workload_active"
)

// Defaults of Config.
const (
	LimitDefault  = time.Hour
	CreateDefault = 5 * time.Minute
)

// looks is how often await looks at most, and firstLook how long it waits for the second.
const (
	looks     = 1000
	firstLook = 200 * time.Millisecond
)

// Config is what the saga works with. Workloads is required.
type Config struct {
	Workloads Workloads
	// Reservation tells whether the coordinator holds capacity for an execution at
	// present. Nil: Reserved.
	Reservation func(ctx context.Context, tx sagas.Tx, execution string) (bool, error)
	// Name is by what the saga is started, where there are several.
	Name string
	// Limit is how long a workload may take from its creation to its end.
	Limit time.Duration
	// CreateWithin is how long creating it may be tried.
	CreateWithin time.Duration
}

// State is what the saga keeps. Spec is given at the start, and Execution where it is for one.
type State struct {
	Execution string          `json:"execution_id,omitempty"`
	Spec      json.RawMessage `json:"spec"`
	// Workload is the name of the workload, Handle what creating it has returned.
	Workload string          `json:"workload,omitempty"`
	Handle   json.RawMessage `json:"handle,omitempty"`
	Deadline time.Time       `json:"deadline,omitzero"`
	// Result is how it ended.
	Result *Result `json:"result,omitempty"`
}

// New returns the saga.
func New(c Config) (sagas.Saga, error) {
	if c.Workloads == nil {
		return sagas.Saga{}, errors.New("the execution saga needs Workloads")
	}
	if c.Name == "" {
		c.Name = Name
	}
	if c.Limit <= 0 {
		c.Limit = LimitDefault
	}
	if c.CreateWithin <= 0 {
		c.CreateWithin = CreateDefault
	}
	if c.Reservation == nil {
		c.Reservation = Reserved
	}
	s := steps{c}
	look := sagas.RetryPolicy{
		Count: looks, Initial: firstLook, Multiplier: 1.5, Max: max(time.Second, c.Limit*2/looks),
		On: []string{codeActive, sagas.CodeFailed, sagas.CodeTimeout},
	}
	remove := sagas.RetryPolicy{Count: 10, Initial: time.Second, Max: time.Minute}
	return sagas.New[State](c.Name,
		sagas.Step(StepName, s.name, sagas.Compensate(s.remove, remove)),
		sagas.Step(StepCreate, s.create, sagas.Retry(5, time.Second), sagas.Timeout(c.CreateWithin)),
		sagas.Step(StepAwait, s.await, look, sagas.Timeout(c.Limit)),
		sagas.Step(StepCleanUp, s.remove, remove),
	).Described("Runs the program of an execution as a workload: creates it, awaits its end, and cleans up."), nil
}

// Reserved tells whether the coordinator has reserved capacity for an execution: from its
// admission to its end.
func Reserved(ctx context.Context, tx sagas.Tx, execution string) (held bool, err error) {
	err = tx.QueryRow(ctx, `SELECT state IN ('SCHEDULED', 'RUNNING') FROM executions WHERE id = $1::uuid`, execution).Scan(&held)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return held, err
}

type steps struct{ Config }

func (s steps) name(ctx context.Context, tx sagas.Tx, state *State) error {
	if err := s.reserved(ctx, tx, state); err != nil {
		return err
	}
	state.Workload = "millrace-" + tx.Command().SagaID
	state.Deadline = time.Now().Add(s.CreateWithin + s.Limit).UTC().Truncate(time.Millisecond)
	return nil
}

func (s steps) create(ctx context.Context, tx sagas.Tx, state *State) error {
	if err := alone(ctx, tx, state.Workload); err != nil {
		return err
	}
	if err := s.reserved(ctx, tx, state); err != nil {
		return err
	}
	handle, err := s.Workloads.Create(ctx, Workload{
		Name: state.Workload, Execution: state.Execution, Spec: state.Spec, Deadline: state.Deadline,
	})
	if errors.Is(err, ErrDeleted) {
		return sagas.Fail(CodeDeleted, "%v", err)
	}
	if err != nil {
		return fmt.Errorf("create workload %s: %w", state.Workload, err)
	}
	state.Handle = handle
	return nil
}

func (s steps) await(ctx context.Context, tx sagas.Tx, state *State) error {
	seen, err := s.Workloads.Observe(ctx, state.Workload, state.Handle)
	if err != nil {
		return fmt.Errorf("observe workload %s: %w", state.Workload, err)
	}
	switch seen.Phase {
	case Ended:
		state.Result = &seen.Result
		return nil
	case Active:
		if err := s.reserved(ctx, tx, state); err != nil {
			return err
		}
		return &sagas.Failure{Code: codeActive, Message: "the workload " + state.Workload + " has not ended", Retryable: true}
	case Gone:
		return sagas.Fail(CodeWorkloadGone, "the workload %s is not there any more", state.Workload)
	}
	return fmt.Errorf("observe workload %s: its phase %q is unknown", state.Workload, seen.Phase)
}

// remove cleans up, and undoes.
func (s steps) remove(ctx context.Context, tx sagas.Tx, state *State) error {
	if err := alone(ctx, tx, state.Workload); err != nil {
		return err
	}
	if err := s.Workloads.Delete(ctx, state.Workload); err != nil {
		return fmt.Errorf("delete workload %s: %w", state.Workload, err)
	}
	return nil
}

func (s steps) reserved(ctx context.Context, tx sagas.Tx, state *State) error {
	if state.Execution == "" {
		return nil
	}
	if _, err := uuid.Parse(state.Execution); err != nil {
		return sagas.Fail(sagas.CodeBadPayload, "execution_id: %v", err)
	}
	held, err := s.Reservation(ctx, tx, state.Execution)
	if err != nil {
		return fmt.Errorf("look at the reservation of execution %s: %w", state.Execution, err)
	}
	if !held {
		return sagas.Fail(CodeReservationGone, "the coordinator has no capacity reserved for execution %s", state.Execution)
	}
	return nil
}

// alone has the transaction be the only one that creates or deletes that workload. It
// ends with the transaction, also when its process is gone.
func alone(ctx context.Context, tx sagas.Tx, workload string) error {
	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended($1, 0))`, "workload "+workload); err != nil {
		return fmt.Errorf("lock workload %s: %w", workload, err)
	}
	return nil
}
