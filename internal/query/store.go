package query

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// DB is the part of a pool that the store needs.
type DB interface {
	SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults
}

// Scope bounds what a caller sees. A zero field bounds nothing. It is applied to
// every statement, beside the filter. Collections that do not know whose their rows
// are refuse a scope that is not zero with ErrScope.
type Scope struct {
	Tenant string
	User   string
}

// Store answers queries. It is safe for concurrent use.
type Store struct {
	db     DB
	limits Limits

	workflows  *schema[WorkflowInstance]
	tasks      *schema[TaskInstance]
	executions *schema[Execution]
	pods       *schema[Pod]
	sagas      *schema[Saga]
}

// NewStore returns a store on the pool. Limits that are zero have their defaults.
func NewStore(db DB, limits Limits) *Store {
	return &Store{
		db: db, limits: limits.withDefaults(),
		workflows: workflowInstances(), tasks: taskInstances(), executions: executions(), pods: pods(), sagas: sagas(),
	}
}

// Limits returns the limits in force.
func (s *Store) Limits() Limits { return s.limits }

// WorkflowInstances is the collection of workflow instances, newest first.
func (s *Store) WorkflowInstances() Collection[WorkflowInstance] {
	return Collection[WorkflowInstance]{s, s.workflows}
}

// TaskInstances is the collection of all task instances, newest first.
func (s *Store) TaskInstances() Collection[TaskInstance] {
	return Collection[TaskInstance]{s, s.tasks}
}

// Executions is the collection of executions, newest first. An execution of which
// later events have overtaken the first is not listed for that moment.
func (s *Store) Executions() Collection[Execution] {
	return Collection[Execution]{s, s.executions}
}

// Pods is the collection of pods, newest first.
func (s *Store) Pods() Collection[Pod] { return Collection[Pod]{s, s.pods} }

// Sagas is the collection of sagas, newest first.
func (s *Store) Sagas() Collection[Saga] { return Collection[Saga]{s, s.sagas} }

// Children asks for the rows that belong to many others, in one statement.
type Children struct {
	// Filter is nil for everything, Order empty for the order of start.
	Filter Filter
	Order  []Order
	// Limit is how many rows each parent gets at most, 1 to Limits.PageSize; 0 is 100.
	Limit int
}

// Offspring are the rows of one parent.
type Offspring[R any] struct {
	Rows []R
	// More: there are more than Children.Limit.
	More bool
}

// TasksOf returns the tasks of many workflow instances by their ids, in one
// statement: the batch loader of nested lists. Ids without tasks are not in the map.
func (s *Store) TasksOf(ctx context.Context, scope Scope, ids []string, c Children) (map[string]Offspring[TaskInstance], error) {
	return children(ctx, s.TaskInstances(), scope, "instance_id", ids, c, func(t TaskInstance) string { return t.InstanceID })
}

// PodsOf returns the pods of many executions by the executions' ids, in one
// statement.
func (s *Store) PodsOf(ctx context.Context, scope Scope, ids []string, c Children) (map[string]Offspring[Pod], error) {
	return children(ctx, s.Pods(), scope, "execution_id", ids, c, func(p Pod) string { return *p.ExecutionID })
}
