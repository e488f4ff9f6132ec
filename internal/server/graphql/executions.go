package graphql

import (
	"context"

	"github.com/millrace/millrace/internal/query"
	"github.com/millrace/millrace/internal/server/graphql/object"
	"github.com/millrace/millrace/internal/server/graphql/schema"
)

// Executions implements schema.QueryResolver.
func (r *resolver) Executions(
	ctx context.Context, first *int, after *string, last *int, before *string, filter *schema.ExecutionFilterInput, orderBy []*schema.ExecutionOrderByInput,
) (*object.ExecutionConnection, error) {
	return connect(ctx, r, r.store.Executions(), r.executions, executionWords(), pageArgs{first, last, after, before}, given(filter), orders(orderBy))
}

// Execution implements schema.QueryResolver.
func (r *resolver) Execution(ctx context.Context, id string) (*object.Execution, error) {
	return one(ctx, r, r.store.Executions(), r.executions, id)
}

// Pods implements schema.QueryResolver.
func (r *resolver) Pods(
	ctx context.Context, first *int, after *string, last *int, before *string, filter *schema.PodFilterInput, orderBy []*schema.PodOrderByInput,
) (*object.PodConnection, error) {
	return connect(ctx, r, r.store.Pods(), r.pods, podWords(), pageArgs{first, last, after, before}, given(filter), orders(orderBy))
}

// Sagas implements schema.QueryResolver.
func (r *resolver) Sagas(
	ctx context.Context, first *int, after *string, last *int, before *string, filter *schema.SagaFilterInput, orderBy []*schema.SagaOrderByInput,
) (*object.SagaConnection, error) {
	return connect(ctx, r, r.store.Sagas(), sagas, sagaWords(), pageArgs{first, last, after, before}, given(filter), orders(orderBy))
}

// Saga implements schema.QueryResolver.
func (r *resolver) Saga(ctx context.Context, id string) (*object.Saga, error) {
	return one(ctx, r, r.store.Sagas(), sagas, id)
}

// executions makes objects of rows that were read together.
func (r *resolver) executions(rows []query.Execution) []*object.Execution {
	siblings := &object.Siblings[[]*object.Pod]{Load: r.podsOf}
	out := make([]*object.Execution, len(rows))
	for i, row := range rows {
		siblings.Keys = append(siblings.Keys, row.ID)
		out[i] = &object.Execution{Execution: row, PodsOf: siblings}
	}
	return out
}

// pods makes objects of rows that were read together.
func (r *resolver) pods(rows []query.Pod) []*object.Pod {
	siblings := &object.Siblings[*object.Execution]{Load: r.executionsByID}
	seen := make(map[string]bool, len(rows))
	out := make([]*object.Pod, len(rows))
	for i, row := range rows {
		if id := row.ExecutionID; id != nil && !seen[*id] {
			seen[*id] = true
			siblings.Keys = append(siblings.Keys, *id)
		}
		out[i] = &object.Pod{Pod: row, Executions: siblings}
	}
	return out
}

func sagas(rows []query.Saga) []*object.Saga {
	out := make([]*object.Saga, len(rows))
	for i, row := range rows {
		out[i] = &object.Saga{Saga: row}
	}
	return out
}

// podsOf loads the pods of many executions.
func (r *resolver) podsOf(ctx context.Context, ids []string, limit int) (map[string][]*object.Pod, error) {
	found, err := offspring(ctx, r, ids, limit, r.store.PodsOf)
	if err != nil {
		return nil, err
	}
	return wrapChildren(found, ids, r.pods), nil
}

// executionsByID loads executions by their ids.
func (r *resolver) executionsByID(ctx context.Context, ids []string, _ int) (map[string]*object.Execution, error) {
	found, err := read(ctx, r, func() (map[string]query.Execution, error) {
		return r.store.Executions().Many(ctx, scopeOf(ctx), ids)
	})
	if err != nil {
		return nil, err
	}
	return byKey(found, ids, r.executions), nil
}

// Search implements schema.QueryResolver.
func (r *resolver) Search(_ context.Context, text string) (*object.SearchResults, error) {
	request := func(first *int, after *string) (query.Request, bool, error) {
		page, empty, err := r.page(pageArgs{first: first, after: after})
		return query.Request{Filter: query.Search{Text: text}, Page: page}, empty, err
	}
	return &object.SearchResults{
		InWorkflowInstances: func(ctx context.Context, first *int, after *string) (*object.WorkflowInstanceConnection, error) {
			req, empty, err := request(first, after)
			if err != nil {
				return nil, err
			}
			return connection(ctx, r, r.store.WorkflowInstances(), r.instances, req, empty)
		},
		InTaskInstances: func(ctx context.Context, first *int, after *string) (*object.TaskExecutionConnection, error) {
			req, empty, err := request(first, after)
			if err != nil {
				return nil, err
			}
			return connection(ctx, r, r.store.TaskInstances(), r.tasks, req, empty)
		},
		InExecutions: func(ctx context.Context, first *int, after *string) (*object.ExecutionConnection, error) {
			req, empty, err := request(first, after)
			if err != nil {
				return nil, err
			}
			return connection(ctx, r, r.store.Executions(), r.executions, req, empty)
		},
	}, nil
}
