package rest

import (
	"context"
	"fmt"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/server/auth"
)

// Explanation says why an execution stands where it stands.
type Explanation struct {
	ExecutionID string          `json:"execution_id" format:"uuid"`
	State       execution.State `json:"state"`
	Since       time.Time       `json:"since" doc:"When it came to this state"`
	Summary     string          `json:"summary" doc:"One sentence, for people" example:"It has been QUEUED for 1m30s: no worker serves the resource class \"gpu\"."`
	Waits       []Wait          `json:"waits" doc:"Why it does not go on, the decisive reason first; empty when it runs or has ended"`
	Ahead       int             `json:"ahead,omitempty" doc:"About how many executions of its class are to be admitted first; 10000 stands for that many or more"`
	Position    int             `json:"position,omitempty" doc:"About the how manieth it is to be admitted, from 1; missing while something of its own is in its way"`
	StartsAt    *time.Time      `json:"starts_at,omitempty" doc:"About when it will be admitted, where that can be told"`
	Outlook     string          `json:"outlook,omitempty" doc:"The same in words, for people" example:"At the rate of the last minutes it starts in about 3m20s."`
}

// Wait is one reason.
type Wait struct {
	Code    execution.WaitCode `json:"code" doc:"coordinator, hold, not_before, backoff, no_room, no_workers, no_executor, too_large, no_admitter, concurrency_key, limit, capacity, reserved, fair_share, behind, admission, worker, pod or cancel" example:"no_workers"`
	Message string             `json:"message"`
	Release string             `json:"release" doc:"What would end it"`
	Until   *time.Time         `json:"until,omitempty" doc:"When it ends by itself, if that is known"`
}

type explainOutput struct{ Body *Explanation }

// explain handles GET /v1/executions/{id}/explain.
func (a *API) explain(ctx context.Context, in *idInput) (*explainOutput, error) {
	s, err := a.deps.Executions.Situation(ctx, in.ID, a.config.Terms)
	if err != nil {
		return nil, err
	}
	if !auth.From(ctx).Sees(s.Execution.Request.Tenant) {
		return nil, fmt.Errorf("execution %s: %w", in.ID, store.ErrNotFound)
	}
	x := s.Explain()
	out := &Explanation{
		ExecutionID: s.Execution.ID, State: s.Execution.State, Since: x.Since, Summary: x.Summary, Waits: make([]Wait, len(x.Waits)),
		Ahead: s.Ahead.Count(), Position: x.Position, StartsAt: moment(x.StartsAt), Outlook: x.Outlook,
	}
	for i, w := range x.Waits {
		out.Waits[i] = Wait{Code: w.Code, Message: w.Message, Release: w.Release, Until: moment(w.Until)}
	}
	return &explainOutput{Body: out}, nil
}

func explainDoc() huma.Operation {
	return huma.Operation{
		OperationID: "explain-execution", Summary: "Why does it wait?", Tags: []string{tagExecutions},
		Description: "What the execution waits for, since when, what is ahead of it, and what would release it.",
		Errors:      []int{400, 404, 503},
	}
}
