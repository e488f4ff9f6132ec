package rest

import (
	"context"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/millrace/millrace/internal/query"
	"github.com/millrace/millrace/internal/server/auth"
)

// StatisticsInput is what statistics of all read models take.
type StatisticsInput struct {
	Filter      string `query:"filter" maxLength:"65536" doc:"A filter as JSON, beside the other parameters, as for the list"`
	GroupBy     string `query:"group_by" maxLength:"256" doc:"One or two fields, separated by commas; by the status by default, and all in one group when it is \"none\"" example:"name,status"`
	Bucket      string `query:"bucket" maxLength:"32" doc:"Divide by time too, into buckets as wide as this duration; from 1s to 8784h" example:"1h"`
	BucketField string `query:"bucket_field" maxLength:"64" doc:"The time to divide by; that of the list's order by default" example:"end"`
	Duration    string `query:"duration" maxLength:"64" doc:"Also how long they took: duration, or for executions also waited, for pods also scheduling" example:"duration"`
	Limit       int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"How many groups at most"`
}

// groupsOfAll is what GroupBy says to get one group of all rows.
const groupsOfAll = "none"

type statisticsOutput struct{ Body Statistics }

func statisticsOf[R any](
	ctx context.Context, a *API, c query.Collection[R], in StatisticsInput, and query.And, groupBy string,
) (*statisticsOutput, error) {
	filter, err := filterOf(c.Schema(), a.deps.Queries.Limits(), and, in.Filter)
	if err != nil {
		return nil, err
	}
	ask := query.Aggregate{Filter: filter, Duration: in.Duration, Limit: in.Limit}
	if in.GroupBy != "" {
		groupBy = in.GroupBy
	}
	if groupBy != groupsOfAll {
		for name := range strings.SplitSeq(groupBy, ",") {
			ask.GroupBy = append(ask.GroupBy, strings.TrimSpace(name))
		}
	}
	if in.Bucket != "" {
		width, err := time.ParseDuration(in.Bucket)
		if err != nil {
			return nil, badParameter("bucket", "invalid", "%q is not a duration such as 15m or 24h", clip(in.Bucket))
		}
		ask.Bucket = &query.Bucket{Field: in.BucketField, Width: width}
		if in.BucketField == "" {
			ask.Bucket.Field = c.Schema().DefaultOrder()[0].Field
		}
	} else if in.BucketField != "" {
		return nil, badParameter("bucket_field", "invalid", "says nothing without bucket")
	}
	s, err := c.Aggregate(ctx, scopeOf(ctx), ask)
	if err != nil {
		return nil, err
	}
	return &statisticsOutput{fromStatistics(s, ask.GroupBy)}, nil
}

type executionStatisticsInput struct {
	StatisticsInput
	State           []string  `query:"state,explode" maxItems:"50" doc:"Any of these states; repeat it, or separate by commas"`
	User            string    `query:"user" maxLength:"128"`
	Tenant          string    `query:"tenant" maxLength:"128"`
	Executor        string    `query:"executor" maxLength:"128"`
	ResourceClass   string    `query:"resource_class" maxLength:"128"`
	Label           []string  `query:"label,explode" maxItems:"64" doc:"name=value; repeat it for several, all must hold"`
	RequestedAfter  time.Time `query:"requested_after" doc:"RFC 3339, exclusive"`
	RequestedBefore time.Time `query:"requested_before" doc:"RFC 3339, exclusive"`
	Origin          string    `query:"origin" maxLength:"128" doc:"The front door" example:"rest"`
	NamePrefix      string    `query:"name_prefix" maxLength:"256" doc:"What the name begins with"`
}

// executionStatistics handles GET /v1/executions/statistics.
func (a *API) executionStatistics(ctx context.Context, in *executionStatisticsInput) (*statisticsOutput, error) {
	list := listInput{
		State: in.State, User: in.User, Tenant: in.Tenant, Executor: in.Executor, ResourceClass: in.ResourceClass, Label: in.Label,
		RequestedAfter: in.RequestedAfter, RequestedBefore: in.RequestedBefore, Origin: in.Origin, NamePrefix: in.NamePrefix,
	}
	filter, err := list.filter(auth.From(ctx))
	if err != nil {
		return nil, err
	}
	and, _ := filter.tree().(query.And) // it is one
	return statisticsOf(ctx, a, a.deps.Queries.Executions(), in.StatisticsInput, and, "state")
}

type workflowStatisticsInput struct {
	StatisticsInput
	WorkflowFilterInput
}

// workflowStatistics handles GET /v1/workflow-instances/statistics.
func (a *API) workflowStatistics(ctx context.Context, in *workflowStatisticsInput) (*statisticsOutput, error) {
	return statisticsOf(ctx, a, a.deps.Queries.WorkflowInstances(), in.StatisticsInput, in.tests(), "status")
}

type taskStatisticsInput struct {
	StatisticsInput
	TaskFilterInput
}

// taskStatistics handles GET /v1/task-instances/statistics.
func (a *API) taskStatistics(ctx context.Context, in *taskStatisticsInput) (*statisticsOutput, error) {
	return statisticsOf(ctx, a, a.deps.Queries.TaskInstances(), in.StatisticsInput, in.tests(), "status")
}

func rowsDoc(id, summary string) huma.Operation {
	return huma.Operation{
		OperationID: id, Summary: summary, Tags: []string{tagDataIndex},
		Description: "The list follows the events by some tens of milliseconds. Paging is stable: rows that come or go meanwhile " +
			"do not move those on later pages. A query beyond a limit is refused with the code query_limit and the name of the limit.",
		Errors: []int{400, 503, 504},
	}
}

func rowDoc(id, summary string) huma.Operation {
	return huma.Operation{OperationID: id, Summary: summary, Tags: []string{tagDataIndex}, Errors: []int{400, 404, 503, 504}}
}

func statisticsDoc(id, summary, tag string) huma.Operation {
	return huma.Operation{
		OperationID: id, Summary: summary, Tags: []string{tag},
		Description: "Counts by one or two fields, also by time, and how long they took. Computed from all rows that the filters select.",
		Errors:      []int{400, 503, 504},
	}
}
