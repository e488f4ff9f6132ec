package object

import (
	"context"
	"time"

	"github.com/millrace/millrace/internal/query"
)

// PageInfo says where a page lies in its list.
type PageInfo struct {
	HasNextPage, HasPreviousPage bool
	// StartCursor and EndCursor are nil for an empty page.
	StartCursor, EndCursor *string
}

// Edge is a row of a page, with its cursor.
type Edge[T any] struct {
	Cursor string
	Node   T
}

// Connection is a page of a list.
type Connection[T any] struct {
	Edges    []Edge[T]
	PageInfo PageInfo
	// Total counts the rows of all pages.
	Total func(ctx context.Context) (int64, error)
}

// Nodes returns the rows without their cursors.
func (c *Connection[T]) Nodes() []T {
	nodes := make([]T, len(c.Edges))
	for i, e := range c.Edges {
		nodes[i] = e.Node
	}
	return nodes
}

// TotalCount counts the rows of all pages.
func (c *Connection[T]) TotalCount(ctx context.Context) (int64, error) { return c.Total(ctx) }

// NewConnection makes a connection of a page of rows and the objects made of them.
func NewConnection[R, T any](l query.List[R], nodes []T, total func(context.Context) (int64, error)) *Connection[T] {
	c := &Connection[T]{
		Edges:    make([]Edge[T], len(l.Rows)),
		PageInfo: PageInfo{HasNextPage: l.HasNext, HasPreviousPage: l.HasPrevious},
		Total:    total,
	}
	for i, node := range nodes {
		c.Edges[i] = Edge[T]{l.Cursor(i), node}
	}
	if n := len(c.Edges); n > 0 {
		c.PageInfo.StartCursor, c.PageInfo.EndCursor = &c.Edges[0].Cursor, &c.Edges[n-1].Cursor
	}
	return c
}

// The connections and edges of the schema.
type (
	WorkflowInstanceConnection = Connection[*WorkflowInstance]
	WorkflowInstanceEdge       = Edge[*WorkflowInstance]
	TaskExecutionConnection    = Connection[*TaskExecution]
	TaskExecutionEdge          = Edge[*TaskExecution]
	ExecutionConnection        = Connection[*Execution]
	ExecutionEdge              = Edge[*Execution]
	PodConnection              = Connection[*Pod]
	PodEdge                    = Edge[*Pod]
	SagaConnection             = Connection[*Saga]
	SagaEdge                   = Edge[*Saga]
)

// SearchResults finds a text in one list each.
type SearchResults struct {
	InWorkflowInstances func(ctx context.Context, first *int, after *string) (*WorkflowInstanceConnection, error)
	InTaskInstances     func(ctx context.Context, first *int, after *string) (*TaskExecutionConnection, error)
	InExecutions        func(ctx context.Context, first *int, after *string) (*ExecutionConnection, error)
}

// WorkflowInstances returns the workflow instances that contain the text.
func (s *SearchResults) WorkflowInstances(ctx context.Context, first *int, after *string) (*WorkflowInstanceConnection, error) {
	return s.InWorkflowInstances(ctx, first, after)
}

// TaskInstances returns the tasks that contain the text.
func (s *SearchResults) TaskInstances(ctx context.Context, first *int, after *string) (*TaskExecutionConnection, error) {
	return s.InTaskInstances(ctx, first, after)
}

// Executions returns the executions that contain the text.
func (s *SearchResults) Executions(ctx context.Context, first *int, after *string) (*ExecutionConnection, error) {
	return s.InExecutions(ctx, first, after)
}

// Statistics are numbers about rows, in groups.
type Statistics struct {
	Groups    []StatisticsGroup
	Truncated bool
}

// StatisticsGroup is one of the groups.
type StatisticsGroup struct {
	Keys     []GroupKey
	Bucket   *time.Time
	Count    int64
	Duration *DurationStatistics
}

// GroupKey is what the rows of a group have in common.
type GroupKey struct {
	Field string
	Value *string
}

// DurationStatistics are in milliseconds.
type DurationStatistics struct {
	Count                       int64
	Min, Max, Average, P50, P95 float64
}

// NewStatistics makes statistics of those of package query. fields are the values
// of groupBy, as the schema calls them.
func NewStatistics(s query.Statistics, fields []string) *Statistics {
	out := &Statistics{Truncated: s.Truncated, Groups: make([]StatisticsGroup, len(s.Groups))}
	for i, g := range s.Groups {
		group := StatisticsGroup{Bucket: g.Bucket, Count: g.Count, Keys: make([]GroupKey, len(g.Keys))}
		for k, value := range g.Keys {
			group.Keys[k] = GroupKey{fields[k], value}
		}
		if d := g.Durations; d != nil {
			group.Duration = &DurationStatistics{
				Count: d.Count, Min: millis(d.Min), Max: millis(d.Max), Average: millis(d.Avg), P50: millis(d.P50), P95: millis(d.P95),
			}
		}
		out.Groups[i] = group
	}
	return out
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
