package graphql

import (
	"context"
	"strings"
	"time"

	gql "github.com/99designs/gqlgen/graphql"

	"github.com/millrace/millrace/internal/query"
	"github.com/millrace/millrace/internal/server/graphql/object"
	"github.com/millrace/millrace/internal/server/graphql/schema"
)

// duration is what package query calls the time from start to end.
const duration = "duration"

// WorkflowInstanceStatistics implements schema.QueryResolver.
func (r *resolver) WorkflowInstanceStatistics(
	ctx context.Context, filter *schema.WorkflowInstanceFilterInput, groupBy []string, bucket *schema.TimeBucketInput, limit *int,
) (*object.Statistics, error) {
	return statistics(ctx, r, r.store.WorkflowInstances(), workflowWords(), given(filter), groupBy, given(bucket), limit)
}

// TaskInstanceStatistics implements schema.QueryResolver.
func (r *resolver) TaskInstanceStatistics(
	ctx context.Context, filter *schema.TaskExecutionFilterInput, groupBy []string, bucket *schema.TimeBucketInput, limit *int,
) (*object.Statistics, error) {
	return statistics(ctx, r, r.store.TaskInstances(), taskWords(), given(filter), groupBy, given(bucket), limit)
}

// ExecutionStatistics implements schema.QueryResolver.
func (r *resolver) ExecutionStatistics(
	ctx context.Context, filter *schema.ExecutionFilterInput, groupBy []string, bucket *schema.TimeBucketInput, limit *int,
) (*object.Statistics, error) {
	return statistics(ctx, r, r.store.Executions(), executionWords(), given(filter), groupBy, given(bucket), limit)
}

func statistics[R any](
	ctx context.Context, r *resolver, c query.Collection[R], words vocabulary,
	filter map[string]any, groupBy []string, bucket map[string]any, limit *int,
) (*object.Statistics, error) {
	f, err := words.filter(filter)
	if err != nil {
		return nil, err
	}
	a := query.Aggregate{Filter: f, Bucket: words.bucket(bucket)}
	for _, name := range groupBy {
		a.GroupBy = append(a.GroupBy, strings.ToLower(name))
	}
	if limit != nil {
		if a.Limit = *limit; a.Limit < 1 {
			return nil, invalid("limit must be at least 1")
		}
	}
	if selectsDuration(ctx) {
		a.Duration = duration
	}
	found, err := read(ctx, r, func() (query.Statistics, error) { return c.Aggregate(ctx, scopeOf(ctx), a) })
	if err != nil {
		return nil, err
	}
	return object.NewStatistics(found, groupBy), nil
}

// bucket reads how statistics are divided by time.
func (v vocabulary) bucket(in map[string]any) *query.Bucket {
	if in == nil {
		return nil
	}
	b := &query.Bucket{Field: v.start}
	if by, ok := in["by"].(*string); ok && by != nil && *by == "END" {
		b.Field = v.end
	}
	if seconds, ok := in["seconds"].(int); ok {
		b.Width = time.Duration(seconds) * time.Second
	}
	return b
}

// selectsDuration reports whether anybody wants to know how long things took, which
// costs more than to count them.
func selectsDuration(ctx context.Context) bool {
	op := gql.GetOperationContext(ctx)
	for _, f := range gql.CollectFields(op, gql.GetFieldContext(ctx).Field.Selections, nil) {
		if f.Name == "groups" && within(op, f.Selections, []string{duration}) {
			return true
		}
	}
	return false
}
