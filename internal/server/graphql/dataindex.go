package graphql

import (
	"context"
	"errors"

	"github.com/millrace/millrace/internal/query"
	"github.com/millrace/millrace/internal/server/graphql/object"
	"github.com/millrace/millrace/internal/server/graphql/schema"
)

// GetWorkflowInstance implements schema.QueryResolver.
func (r *resolver) GetWorkflowInstance(ctx context.Context, id *string) (*object.WorkflowInstance, error) {
	if id == nil {
		return nil, invalid("id is required")
	}
	return one(ctx, r, r.store.WorkflowInstances(), r.instances, *id)
}

// GetWorkflowInstances implements schema.QueryResolver.
func (r *resolver) GetWorkflowInstances(
	ctx context.Context, filter *schema.WorkflowInstanceFilterInput, orderBy *schema.WorkflowInstanceOrderByInput, limit, offset *int,
) ([]*object.WorkflowInstance, error) {
	return listed(ctx, r, r.store.WorkflowInstances(), r.instances, workflowWords(), given(filter), given(orderBy), limit, offset)
}

// GetTaskExecution implements schema.QueryResolver. Engines give some tasks several
// ids, one after the other: the id of the row is the last one. A task without one has
// its key for an id.
func (r *resolver) GetTaskExecution(ctx context.Context, id *string) (*object.TaskExecution, error) {
	if id == nil {
		return nil, invalid("id is required")
	}
	l, err := read(ctx, r, func() (query.List[query.TaskInstance], error) {
		return r.store.TaskInstances().List(ctx, scopeOf(ctx), query.Request{
			Filter: query.Test{Field: "task_execution_id", Op: query.Eq, Value: *id}, Page: query.Page{First: 1},
		})
	})
	if err != nil {
		return nil, err
	}
	if len(l.Rows) > 0 {
		return r.tasks(l.Rows)[0], nil
	}
	if _, err := query.ParseTaskKey(*id); errors.Is(err, query.ErrNotFound) {
		return nil, nil
	}
	return one(ctx, r, r.store.TaskInstances(), r.tasks, *id)
}

// GetTaskExecutions implements schema.QueryResolver.
func (r *resolver) GetTaskExecutions(
	ctx context.Context, filter *schema.TaskExecutionFilterInput, orderBy *schema.TaskExecutionOrderByInput, limit, offset *int,
) ([]*object.TaskExecution, error) {
	return listed(ctx, r, r.store.TaskInstances(), r.tasks, taskWords(), given(filter), given(orderBy), limit, offset)
}

// GetTaskExecutionsByWorkflowInstance implements schema.QueryResolver.
func (r *resolver) GetTaskExecutionsByWorkflowInstance(ctx context.Context, id *string) ([]*object.TaskExecution, error) {
	if id == nil {
		return nil, invalid("workflowInstanceId is required")
	}
	found, err := r.tasksOf(ctx, []string{*id}, 0)
	if tasks := found[*id]; tasks != nil || err != nil {
		return tasks, err
	}
	return []*object.TaskExecution{}, nil
}

// WorkflowInstances implements schema.QueryResolver.
func (r *resolver) WorkflowInstances(
	ctx context.Context, first *int, after *string, last *int, before *string, filter *schema.WorkflowInstanceFilterInput, orderBy []*schema.WorkflowInstanceOrderByInput,
) (*object.WorkflowInstanceConnection, error) {
	return connect(ctx, r, r.store.WorkflowInstances(), r.instances, workflowWords(),
		pageArgs{first, last, after, before}, given(filter), orders(orderBy))
}

// TaskInstances implements schema.QueryResolver.
func (r *resolver) TaskInstances(
	ctx context.Context, first *int, after *string, last *int, before *string, filter *schema.TaskExecutionFilterInput, orderBy []*schema.TaskExecutionOrderByInput,
) (*object.TaskExecutionConnection, error) {
	return connect(ctx, r, r.store.TaskInstances(), r.tasks, taskWords(), pageArgs{first, last, after, before}, given(filter), orders(orderBy))
}

// instances makes objects of rows that were read together.
func (r *resolver) instances(rows []query.WorkflowInstance) []*object.WorkflowInstance {
	siblings := &object.Siblings[[]*object.TaskExecution]{Load: r.tasksOf}
	out := make([]*object.WorkflowInstance, len(rows))
	for i, row := range rows {
		siblings.Keys = append(siblings.Keys, row.ID)
		out[i] = &object.WorkflowInstance{WorkflowInstance: row, Tasks: siblings}
	}
	return out
}

// tasks makes objects of rows that were read together.
func (r *resolver) tasks(rows []query.TaskInstance) []*object.TaskExecution {
	siblings := &object.Siblings[*object.WorkflowInstance]{Load: r.instancesByID}
	seen := make(map[string]bool, len(rows))
	out := make([]*object.TaskExecution, len(rows))
	for i, row := range rows {
		if !seen[row.InstanceID] {
			seen[row.InstanceID] = true
			siblings.Keys = append(siblings.Keys, row.InstanceID)
		}
		out[i] = &object.TaskExecution{TaskInstance: row, Instances: siblings}
	}
	return out
}

// tasksOf loads the tasks of many instances.
func (r *resolver) tasksOf(ctx context.Context, ids []string, limit int) (map[string][]*object.TaskExecution, error) {
	found, err := offspring(ctx, r, ids, limit, r.store.TasksOf)
	if err != nil {
		return nil, err
	}
	return wrapChildren(found, ids, r.tasks), nil
}

// instancesByID loads instances by their ids.
func (r *resolver) instancesByID(ctx context.Context, ids []string, _ int) (map[string]*object.WorkflowInstance, error) {
	found, err := read(ctx, r, func() (map[string]query.WorkflowInstance, error) {
		return r.store.WorkflowInstances().Many(ctx, scopeOf(ctx), ids)
	})
	if err != nil {
		return nil, err
	}
	return byKey(found, ids, r.instances), nil
}
