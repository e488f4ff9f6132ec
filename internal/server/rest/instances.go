package rest

import (
	"context"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/query"
)

// RowsInput is what lists of all read models take.
type RowsInput struct {
	Filter    string `query:"filter" maxLength:"65536" doc:"A filter as JSON, beside the other parameters: fields with values or operators, and, or, not, search. See docs/data-index-queries.md" example:"{\"or\":[{\"name\":{\"like\":\"order%\"}},{\"end\":{\"is_null\":true}}]}"`
	Order     string `query:"order" maxLength:"256" doc:"Fields to order by, separated by commas; a minus before one turns it round. Newest first by default" example:"-end,name"`
	PageSize  int    `query:"page_size" minimum:"1" maximum:"1000" default:"50"`
	PageToken string `query:"page_token" maxLength:"16384" doc:"The next_page_token of the page before, with the same filters and order"`
	Total     bool   `query:"total" doc:"Count the rows on all pages too, which reads them all"`
}

// SearchInput is what lists take that can be searched.
type SearchInput struct {
	Search string `query:"search" maxLength:"512" doc:"Words of names, errors and documents: all must be there; \"in this order\", -not, or" example:"card refused"`
}

func (in SearchInput) tests(and query.And) query.And {
	if in.Search != "" {
		return append(and, query.Search{Text: in.Search})
	}
	return and
}

// WorkflowFilterInput are the common filters of workflow instances.
type WorkflowFilterInput struct {
	SearchInput
	Status        []string  `query:"status,explode" maxItems:"50" doc:"Any of these; repeat it, or separate by commas"`
	Namespace     string    `query:"namespace" maxLength:"1024"`
	Name          string    `query:"name" maxLength:"1024" doc:"The name of the definition"`
	NamePrefix    string    `query:"name_prefix" maxLength:"1024" doc:"What the name begins with"`
	Version       string    `query:"version" maxLength:"1024"`
	StartedAfter  time.Time `query:"started_after" doc:"RFC 3339, exclusive"`
	StartedBefore time.Time `query:"started_before" doc:"RFC 3339, exclusive"`
	ErrorType     string    `query:"error_type" maxLength:"1024"`
	Placeholder   string    `query:"placeholder" enum:"true,false" doc:"Whether only events of its tasks have come"`
}

func (in WorkflowFilterInput) tests() query.And {
	and := in.SearchInput.tests(nil)
	and = oneOf(and, "status", in.Status)
	and = equal(and, "namespace", in.Namespace)
	and = equal(and, "name", in.Name)
	and = prefix(and, "name", in.NamePrefix)
	and = equal(and, "version", in.Version)
	and = within(and, "start", in.StartedAfter, in.StartedBefore)
	and = equal(and, "error_type", in.ErrorType)
	if in.Placeholder != "" {
		and = append(and, query.Test{Field: "placeholder", Op: query.Eq, Value: in.Placeholder == "true"})
	}
	return and
}

// TaskFilterInput are the common filters of task instances.
type TaskFilterInput struct {
	SearchInput
	Status        []string  `query:"status,explode" maxItems:"50" doc:"Any of these; repeat it, or separate by commas"`
	TaskName      string    `query:"task_name" maxLength:"1024"`
	Position      string    `query:"task_position" maxLength:"1024"`
	ExecutionID   string    `query:"task_execution_id" maxLength:"1024"`
	StartedAfter  time.Time `query:"started_after" doc:"RFC 3339, exclusive"`
	StartedBefore time.Time `query:"started_before" doc:"RFC 3339, exclusive"`
	ErrorType     string    `query:"error_type" maxLength:"1024"`
}

func (in TaskFilterInput) tests() query.And {
	and := in.SearchInput.tests(nil)
	and = oneOf(and, "status", in.Status)
	and = equal(and, "task_name", in.TaskName)
	and = equal(and, "task_position", in.Position)
	and = equal(and, "task_execution_id", in.ExecutionID)
	and = within(and, "start", in.StartedAfter, in.StartedBefore)
	return equal(and, "error_type", in.ErrorType)
}

func equal(and query.And, field, value string) query.And {
	if value == "" {
		return and
	}
	return append(and, query.Test{Field: field, Op: query.Eq, Value: value})
}

func prefix(and query.And, field, value string) query.And {
	if value == "" {
		return and
	}
	return append(and, query.Test{Field: field, Op: query.Prefix, Value: value})
}

func within(and query.And, field string, after, before time.Time) query.And {
	if !after.IsZero() {
		and = append(and, query.Test{Field: field, Op: query.Gt, Value: after})
	}
	if !before.IsZero() {
		and = append(and, query.Test{Field: field, Op: query.Lt, Value: before})
	}
	return and
}

// oneOf takes lists that are repeated or separated by commas, in any case.
func oneOf(and query.And, field string, lists []string) query.And {
	var values []any
	for _, list := range lists {
		for text := range strings.SplitSeq(list, ",") {
			values = append(values, strings.ToUpper(strings.TrimSpace(text)))
		}
	}
	if len(values) == 0 {
		return and
	}
	return append(and, query.Test{Field: field, Op: query.In, Value: values})
}

// filterOf joins the filters of single parameters with the one in JSON.
func filterOf(s *query.Schema, limits query.Limits, and query.And, text string) (query.Filter, error) {
	if text != "" {
		f, err := s.ParseFilter([]byte(text), limits)
		if err != nil {
			return nil, err
		}
		if f != nil {
			and = append(and, f)
		}
	}
	if len(and) == 0 {
		return nil, nil
	}
	return and, nil
}

// listRows reads one page of a read model.
func listRows[R, W any](
	ctx context.Context, a *API, c query.Collection[R], in RowsInput, and query.And, order []query.Order, show func(R) W,
) ([]W, RowPage, error) {
	filter, err := filterOf(c.Schema(), a.deps.Queries.Limits(), and, in.Filter)
	if err != nil {
		return nil, RowPage{}, err
	}
	if in.Order != "" {
		if order, err = query.ParseOrder(in.Order); err != nil {
			return nil, RowPage{}, err
		}
	}
	list, err := c.List(ctx, scopeOf(ctx), query.Request{Filter: filter, Order: order, Page: query.Page{First: in.PageSize, After: in.PageToken}})
	if err != nil {
		return nil, RowPage{}, err
	}
	page := RowPage{NextPageToken: list.Next()}
	if in.Total {
		total, err := c.Count(ctx, scopeOf(ctx), filter)
		if err != nil {
			return nil, RowPage{}, err
		}
		page.Total = &total
	}
	rows := make([]W, len(list.Rows))
	for i, r := range list.Rows {
		rows[i] = show(r)
	}
	return rows, page, nil
}

type workflowsInput struct {
	WorkflowFilterInput
	RowsInput
}

type workflowsOutput struct{ Body WorkflowInstanceList }

// listWorkflows handles GET /v1/workflow-instances.
func (a *API) listWorkflows(ctx context.Context, in *workflowsInput) (*workflowsOutput, error) {
	rows, page, err := listRows(ctx, a, a.deps.Queries.WorkflowInstances(), in.RowsInput, in.tests(), nil, fromWorkflow)
	return &workflowsOutput{WorkflowInstanceList{rows, page}}, err
}

// RowInput names one row. (Inputs that are embedded have to be exported, for huma
// to see their fields.)
type RowInput struct {
	ID string `path:"id" maxLength:"4096" doc:"The id"`
}

type workflowOutput struct{ Body WorkflowInstance }

// getWorkflow handles GET /v1/workflow-instances/{id}.
func (a *API) getWorkflow(ctx context.Context, in *RowInput) (*workflowOutput, error) {
	w, err := a.deps.Queries.WorkflowInstances().Get(ctx, scopeOf(ctx), in.ID)
	return &workflowOutput{fromWorkflow(w)}, err
}

type tasksInput struct {
	TaskFilterInput
	RowsInput
	InstanceID string `query:"instance_id" maxLength:"4096" doc:"The workflow instance"`
}

type tasksOutput struct{ Body TaskInstanceList }

// listTasks handles GET /v1/task-instances.
func (a *API) listTasks(ctx context.Context, in *tasksInput) (*tasksOutput, error) {
	and := equal(in.tests(), "instance_id", in.InstanceID)
	rows, page, err := listRows(ctx, a, a.deps.Queries.TaskInstances(), in.RowsInput, and, nil, fromTask)
	return &tasksOutput{TaskInstanceList{rows, page}}, err
}

type tasksOfInput struct {
	RowInput
	TaskFilterInput
	RowsInput
}

// listTasksOf handles GET /v1/workflow-instances/{id}/tasks.
func (a *API) listTasksOf(ctx context.Context, in *tasksOfInput) (*tasksOutput, error) {
	// Events of tasks make a placeholder of their instance, so every task has one.
	if _, err := a.deps.Queries.WorkflowInstances().Get(ctx, scopeOf(ctx), in.ID); err != nil {
		return nil, err
	}
	rows, page, err := listRows(ctx, a, a.deps.Queries.TaskInstances(), in.RowsInput,
		equal(in.tests(), "instance_id", in.ID), []query.Order{{Field: "start"}}, fromTask)
	return &tasksOutput{TaskInstanceList{rows, page}}, err
}

type taskOutput struct{ Body TaskInstance }

// getTask handles GET /v1/task-instances/{id}.
func (a *API) getTask(ctx context.Context, in *RowInput) (*taskOutput, error) {
	t, err := a.deps.Queries.TaskInstances().Get(ctx, scopeOf(ctx), in.ID)
	return &taskOutput{fromTask(t)}, err
}

type podsInput struct {
	RowsInput
	ExecutionID string `query:"execution_id" maxLength:"128"`
	Phase       string `query:"phase" maxLength:"128"`
	Node        string `query:"node" maxLength:"1024"`
}

type podsOutput struct{ Body PodList }

// listPods handles GET /v1/pods.
func (a *API) listPods(ctx context.Context, in *podsInput) (*podsOutput, error) {
	and := equal(equal(equal(nil, "execution_id", in.ExecutionID), "phase", in.Phase), "node", in.Node)
	rows, page, err := listRows(ctx, a, a.deps.Queries.Pods(), in.RowsInput, and, nil, fromPod)
	return &podsOutput{PodList{rows, page}}, err
}

type podOutput struct{ Body Pod }

// getPod handles GET /v1/pods/{id}.
func (a *API) getPod(ctx context.Context, in *RowInput) (*podOutput, error) {
	p, err := a.deps.Queries.Pods().Get(ctx, scopeOf(ctx), in.ID)
	return &podOutput{fromPod(p)}, err
}

type sagasInput struct {
	RowsInput
	Status      string `query:"status" maxLength:"128"`
	Name        string `query:"name" maxLength:"1024"`
	BusinessKey string `query:"business_key" maxLength:"1024"`
}

type sagasOutput struct{ Body SagaList }

// listSagas handles GET /v1/sagas.
func (a *API) listSagas(ctx context.Context, in *sagasInput) (*sagasOutput, error) {
	and := equal(equal(equal(nil, "status", in.Status), "name", in.Name), "business_key", in.BusinessKey)
	rows, page, err := listRows(ctx, a, a.deps.Queries.Sagas(), in.RowsInput, and, nil, fromSaga)
	return &sagasOutput{SagaList{rows, page}}, err
}

type sagaOutput struct{ Body Saga }

// getSaga handles GET /v1/sagas/{id}.
func (a *API) getSaga(ctx context.Context, in *RowInput) (*sagaOutput, error) {
	s, err := a.deps.Queries.Sagas().Get(ctx, scopeOf(ctx), in.ID)
	return &sagaOutput{fromSaga(s)}, err
}
