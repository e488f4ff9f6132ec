package rest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/jobs"
)

// someDispatch answers with what a test has put into it, and remembers what it is told.
type someDispatch struct {
	status jobs.DispatchStatus
	limits []jobs.Limits
	set    jobs.Limits
	unset  string
	err    error
}

func (s *someDispatch) DispatchStatus(context.Context) (jobs.DispatchStatus, error) {
	return s.status, s.err
}

func (s *someDispatch) AllLimits(context.Context) ([]jobs.Limits, error) { return s.limits, s.err }

func (s *someDispatch) Limits(_ context.Context, jobType string) (jobs.Limits, error) {
	for _, l := range s.limits {
		if l.JobType == jobType {
			return l, nil
		}
	}
	return jobs.Limits{}, fmt.Errorf("job type %q has no limits: %w", jobType, jobs.ErrNoLimits)
}

func (s *someDispatch) SetLimits(_ context.Context, l jobs.Limits) (jobs.Limits, error) {
	s.set = l
	return l, s.err
}

func (s *someDispatch) UnsetLimits(_ context.Context, jobType string) (bool, error) {
	s.unset = jobType
	return true, s.err
}

func dispatchBench(t *testing.T) (*bench, *someDispatch) {
	t.Helper()
	d := &someDispatch{}
	return newBench(t, func(deps *Deps, _ *Config) {
		deps.Dispatch = d
		deps.Guard = tokens()
	}), d
}

func TestTheStatusOfDispatches(t *testing.T) {
	t.Parallel()
	b, d := dispatchBench(t)
	d.status = jobs.DispatchStatus{Mode: jobs.Polling, Pending: 2, Claimable: 3, Locked: 4, OtherMode: 1, Fault: "no topic"}
	w := b.do("GET", "/v1/dispatch", "", as("viewer")...)
	require.Equal(t, 200, w.Code, w.Body.String())
	assert.JSONEq(t, `{"mode":"polling","pending_dispatches":2,"rejected_dispatches":0,"claimable":3,"later":0,"on_hold":0,"locked":4,
		"locked_in_other_mode":1,"waiting_claims":0,"drained":false,"fault":"no topic"}`, w.Body.String())
}

func TestLimitsOfJobTypes(t *testing.T) {
	t.Parallel()
	b, d := dispatchBench(t)
	d.limits = []jobs.Limits{{JobType: "mail", MaxRunning: 3, Running: 1, UpdatedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), UpdatedBy: "ann"}}
	w := b.do("GET", "/v1/job-types", "", as("viewer")...)
	assert.JSONEq(t, `{"job_types":[{"job_type":"mail","max_running":3,"running":1,"updated_at":"2026-01-02T03:04:05Z","updated_by":"ann"}]}`, w.Body.String())
	w = b.do("GET", "/v1/job-types/mail/limits", "", as("viewer")...)
	require.Equal(t, 200, w.Code)
	requireProblem(t, b.do("GET", "/v1/job-types/fax/limits", "", as("viewer")...), 404, "job_type_limits_not_found")

	w = b.do("PUT", "/v1/job-types/fax%2Fb/limits", `{"max_running":2,"rate":0.5,"burst":3}`, as("admin")...)
	require.Equal(t, 200, w.Code, w.Body.String())
	assert.Equal(t, jobs.Limits{JobType: "fax/b", MaxRunning: 2, Rate: 0.5, Burst: 3, UpdatedBy: "ada"}, d.set)
	requireProblem(t, b.do("PUT", "/v1/job-types/fax/limits", `{"max_running":2}`, as("writer")...), 403, "forbidden")
	d.err = fmt.Errorf("set limits: %w: burst without rate says nothing", jobs.ErrInvalid)
	p := requireProblem(t, b.do("PUT", "/v1/job-types/fax/limits", `{"burst":2}`, as("admin")...), 400, "bad_request")
	assert.Contains(t, p.Detail, "burst without rate")

	d.err = nil
	assert.Equal(t, 204, b.do("DELETE", "/v1/job-types/fax/limits", "", as("admin")...).Code)
	assert.Equal(t, "fax", d.unset)
}
