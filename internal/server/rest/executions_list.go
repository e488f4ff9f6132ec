package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/query"
	"github.com/millrace/millrace/internal/server/auth"
	"github.com/millrace/millrace/topics"
)

// scopeOf is what the caller may see.
func scopeOf(ctx context.Context) query.Scope { return query.Scope{Tenant: auth.From(ctx).Tenant} }

// executionFilter selects executions. A zero field selects nothing away; set fields
// must all hold.
type executionFilter struct {
	// States selects executions in any of these.
	States []execution.State
	// The texts are compared as they are.
	Tenant, User, Executor, ResourceClass, Origin string
	// Labels must all be there with these values.
	Labels map[string]string
	// Both are exclusive.
	RequestedAfter, RequestedBefore time.Time
	// NamePrefix is what the name begins with.
	NamePrefix string
}

// tree returns the filter as the query layer takes it. The same filter gives the same
// tree, whatever the order of the states, since page tokens belong to it.
func (f executionFilter) tree() query.Filter {
	all := query.And{}
	add := func(field string, op query.Op, value any) {
		all = append(all, query.Test{Field: field, Op: op, Value: value})
	}
	if len(f.States) > 0 {
		var states []any
		for _, s := range slices.Compact(slices.Sorted(slices.Values(f.States))) {
			states = append(states, s)
		}
		add("state", query.In, states)
	}
	for _, text := range []struct{ field, value string }{
		{"tenant", f.Tenant}, {"user", f.User}, {"executor", f.Executor}, {"resource_class", f.ResourceClass}, {"origin", f.Origin},
	} {
		if text.value != "" {
			add(text.field, query.Eq, text.value)
		}
	}
	if len(f.Labels) > 0 {
		labels := make(map[string]any, len(f.Labels))
		for name, value := range f.Labels {
			labels[name] = value
		}
		add("labels", query.Contains, labels)
	}
	if !f.RequestedAfter.IsZero() {
		add("requested_at", query.Gt, f.RequestedAfter)
	}
	if !f.RequestedBefore.IsZero() {
		add("requested_at", query.Lt, f.RequestedBefore)
	}
	if f.NamePrefix != "" {
		add("name", query.Prefix, f.NamePrefix)
	}
	return all
}

// fromView shows a row of the read model.
func fromView(v query.Execution) (Execution, error) {
	out := Execution{
		ID: v.ID, State: value(v.State), Version: v.Version, Attempt: v.Attempt, Tenant: value(v.Tenant), User: value(v.User),
		Name: value(v.Name), Executor: value(v.Executor), Priority: value(v.Priority), ResourceClass: value(v.ResourceClass),
		ConcurrencyKey: value(v.ConcurrencyKey), NotBefore: v.NotBefore,
		Origin: topics.Origin{Kind: value(v.OriginKind), RerunOf: value(v.RerunOf)},
		Worker: value(v.Worker), RequestedAt: value(v.RequestedAt), QueuedAt: v.QueuedAt, ReadyAt: v.ReadyAt,
		ScheduledAt: v.ScheduledAt, StartedAt: v.StartedAt, FinishedAt: v.FinishedAt,
	}
	if v.Labels != nil {
		if err := json.Unmarshal(v.Labels, &out.Labels); err != nil {
			return out, fmt.Errorf("labels of %s: %w", v.ID, err)
		}
	}
	if v.CancelRequestedAt != nil {
		out.Cancel = &Cancel{At: *v.CancelRequestedAt}
	}
	result := &Result{
		Reason: value(v.Reason), Message: value(v.Message), ExitCode: v.ExitCode, Signal: value(v.Signal), DurationMillis: v.DurationMillis,
	}
	switch {
	case out.State.Terminal():
		out.Result = result
	case v.Reason != nil:
		out.LastFailure = result
	}
	return out, nil
}

// value is what a pointer points to, or the zero value.
func value[T any](at *T) T {
	if at == nil {
		var zero T
		return zero
	}
	return *at
}
