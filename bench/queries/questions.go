package main

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace/millrace/internal/query"
)

func eq(field string, value any) query.Filter {
	return query.Test{Field: field, Op: query.Eq, Value: value}
}

// customer is a test of the customer in the input.
func customer(member, value string) query.Filter {
	return query.Test{Field: "input", Path: []string{"customer", member}, Op: query.Eq, Value: value}
}

// result is a test of the output that one instance meets.
func result(n int) query.Filter {
	return query.Test{Field: "output", Path: []string{"result"}, Op: query.Eq, Value: fmt.Sprintf("R-%d", n*100+1)}
}

// workflows asks for a page of instances.
func (m *measurement) workflows(name string, rare bool, request func(round int) query.Request) question {
	return question{name, rare, func(ctx context.Context, round int) (int64, error) {
		list, err := m.store.WorkflowInstances().List(ctx, query.Scope{}, request(round))
		return int64(len(list.Rows)), err
	}}
}

func (m *measurement) filtered(name string, rare bool, filter func(round int) query.Filter) question {
	return m.workflows(name, rare, func(round int) query.Request { return query.Request{Filter: filter(round)} })
}

func (m *measurement) aggregate(name string, a query.Aggregate) question {
	return question{name, true, func(ctx context.Context, _ int) (int64, error) {
		s, err := m.store.WorkflowInstances().Aggregate(ctx, query.Scope{}, a)
		return int64(len(s.Groups)), err
	}}
}

func (m *measurement) count(name string, filter query.Filter) question {
	return question{name, true, func(ctx context.Context, _ int) (int64, error) {
		return m.store.WorkflowInstances().Count(ctx, query.Scope{}, filter)
	}}
}

// unindexed are the queries that need no optional index, and some that would be faster
// with one.
func (m *measurement) unindexed() []question {
	statuses := []string{"COMPLETED", "FAULTED", "RUNNING", "CANCELLED"}
	return append([]question{
		m.workflows("list, newest first", false, func(int) query.Request { return query.Request{} }),
		m.filtered("list by status", false, func(n int) query.Filter { return eq("status", statuses[n%4]) }),
		m.filtered("list by name", false, func(n int) query.Filter { return eq("name", fmt.Sprintf("workflow-%d", n%50)) }),
		m.filtered("list by name and status", false, func(n int) query.Filter {
			return query.And{eq("name", fmt.Sprintf("workflow-%d", n%50)), eq("status", statuses[n%4])}
		}),
		m.filtered("list of an hour", false, func(n int) query.Filter {
			from := time.Date(2026, 11, 1, n%200, 0, 0, 0, time.UTC)
			return query.And{
				query.Test{Field: "start", Op: query.Gte, Value: from},
				query.Test{Field: "start", Op: query.Lt, Value: from.Add(time.Hour)},
			}
		}),
		m.workflows("list, latest end first", true, func(int) query.Request {
			return query.Request{Order: []query.Order{{Field: "end", Descending: true}}}
		}),
		m.deep("page far in, by cursor"),
		m.workflows("page far in, by offset", true, func(int) query.Request {
			return query.Request{Page: query.Page{Offset: min(m.instances/2, 100_000)}}
		}),
		m.tasks("50 instances' tasks in one"),
		{"task by execution id", false, func(ctx context.Context, n int) (int64, error) {
			list, err := m.store.TaskInstances().List(ctx, query.Scope{}, query.Request{Filter: eq("task_execution_id", fmt.Sprintf("t-%d-1", n+1))})
			return int64(len(list.Rows)), err
		}},
		{"faulted tasks", false, func(ctx context.Context, _ int) (int64, error) {
			list, err := m.store.TaskInstances().List(ctx, query.Scope{}, query.Request{Filter: eq("status", "FAULTED")})
			return int64(len(list.Rows)), err
		}},
		m.filtered("JSON of input, common", false, func(int) query.Filter { return customer("country", "FR") }),
		m.filtered("JSON of input, rare", false, func(n int) query.Filter { return customer("id", fmt.Sprintf("c-%d", n)) }),
		m.filtered("JSON of input, two conditions", false, func(n int) query.Filter {
			return query.And{customer("id", fmt.Sprintf("c-%d", n)), eq("status", "COMPLETED")}
		}),
		m.filtered("JSON of output, without index", true, result),
	}, m.aggregates()...)
}

func (m *measurement) aggregates() []question {
	return []question{
		m.count("count all", nil),
		m.count("count by status", eq("status", "COMPLETED")),
		m.aggregate("aggregate by status", query.Aggregate{GroupBy: []string{"status"}}),
		m.aggregate("aggregate by name and status", query.Aggregate{GroupBy: []string{"name", "status"}, Limit: 1000}),
		m.aggregate("durations by name", query.Aggregate{GroupBy: []string{"name"}, Duration: "duration"}),
		m.aggregate("starts per day", query.Aggregate{Bucket: &query.Bucket{Field: "start", Width: 24 * time.Hour}}),
		m.aggregate("durations of one name", query.Aggregate{Filter: eq("name", "workflow-7"), Duration: "duration"}),
	}
}

// indexed are the queries that have their optional indexes.
func (m *measurement) indexed() []question {
	return []question{
		m.filtered("JSON of output, with index", false, result),
		m.filtered("text, rare word", false, func(n int) query.Filter { return query.Search{Text: fmt.Sprintf("R-%d", n*100+1001)} }),
		m.filtered("text, word of 2 %", true, func(int) query.Filter { return query.Search{Text: "payment timed"} }),
	}
}

// deep pages on from the middle, each time one page further.
func (m *measurement) deep(name string) question {
	var after string
	return m.workflows(name, false, func(round int) query.Request { return query.Request{Page: query.Page{First: 50, After: after}} }).
		prepared(func(ctx context.Context) error {
			list, err := m.store.WorkflowInstances().List(ctx, query.Scope{}, query.Request{Page: query.Page{First: 1, Offset: min(m.instances/2, 100_000)}})
			if err == nil {
				after = list.Cursor(0)
			}
			return err
		})
}

// prepared runs something before the first call.
func (q question) prepared(prepare func(context.Context) error) question {
	ask, done := q.ask, false
	q.ask = func(ctx context.Context, round int) (int64, error) {
		if !done {
			if err := prepare(ctx); err != nil {
				return 0, err
			}
			done = true
		}
		return ask(ctx, round)
	}
	return q
}

func (m *measurement) tasks(name string) question {
	return question{name, false, func(ctx context.Context, round int) (int64, error) {
		ids := make([]string, 50)
		for i := range ids {
			ids[i] = instanceID(1 + (round*50+i)*7%m.instances)
		}
		found, err := m.store.TasksOf(ctx, query.Scope{}, ids, query.Children{})
		var rows int64
		for _, of := range found {
			rows += int64(len(of.Rows))
		}
		return rows, err
	}}
}
