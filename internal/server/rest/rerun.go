package rest

import (
	"fmt"
	"net/http"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/query"
	"github.com/millrace/millrace/internal/server/auth"
	"github.com/millrace/millrace/internal/server/problem"
)

const (
	rerunDefault = 1000
	rerunMax     = 10_000
	// rerunChunk is how many executions are rerun in one transaction.
	rerunChunk = 200
	// rerunPage is how many executions a filter selects in one statement.
	rerunPage = 1000
	// onceKey is the key of reruns by filter: whatever calls select an execution, it
	// is rerun once, unless they say "again".
	onceKey = "once"
)

// rerun handles POST /v1/executions/{id}/rerun.
func (a *API) rerun(w http.ResponseWriter, r *http.Request) {
	done, err := a.rerunOne(w, r)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	status := http.StatusAccepted
	w.Header().Set("Location", "/v1/executions/"+done.Execution.ID)
	if done.Replayed {
		status = http.StatusOK
		w.Header().Set(replayedHeader, "true")
	}
	if err := writeJSON(w, status, fromExecution(done.Execution)); err != nil {
		a.fail(w, r, err)
	}
}

func (a *API) rerunOne(w http.ResponseWriter, r *http.Request) (store.Submitted, error) {
	var in RerunOneRequest
	var none store.Submitted
	if err := a.rerunBody(w, r, true, &in); err != nil {
		return none, err
	}
	if err := checkReason(in.Reason); err != nil {
		return none, err
	}
	key, err := headerKey(r)
	if err != nil {
		return none, err
	}
	p := auth.From(r.Context())
	results, err := a.deps.Executions.Rerun(r.Context(), store.Rerun{
		IDs: []string{r.PathValue("id")}, Tenant: p.Tenant, By: p.Name, Reason: in.Reason, Key: key,
	})
	if err != nil {
		return none, err
	}
	return results[0], results[0].Err
}

func (a *API) rerunBody(w http.ResponseWriter, r *http.Request, optional bool, into any) error {
	if _, err := checkQuery(r); err != nil {
		return err
	}
	body, err := readBody(w, r, a.config.MaxBodyBytes)
	if err != nil || optional && len(body) == 0 {
		return err
	}
	return a.json.Decode(body, "", into)
}

// rerunMany handles POST /v1/executions:rerun.
func (a *API) rerunMany(w http.ResponseWriter, r *http.Request) {
	answer, err := a.rerunAll(w, r)
	if err == nil {
		err = writeJSON(w, http.StatusOK, answer)
	}
	if err != nil {
		a.fail(w, r, err)
	}
}

func (a *API) rerunAll(w http.ResponseWriter, r *http.Request) (*RerunResponse, error) {
	var in RerunRequest
	if err := a.rerunBody(w, r, false, &in); err != nil {
		return nil, err
	}
	key, err := headerKey(r)
	if err != nil {
		return nil, err
	}
	if err := in.check(key); err != nil {
		return nil, err
	}
	p := auth.From(r.Context())
	ids := in.IDs
	if in.Filter != nil {
		if ids, err = a.selected(r, in, p); err != nil {
			return nil, err
		}
		if key == "" && !in.Again {
			key = onceKey
		}
	}
	answer := &RerunResponse{DryRun: in.DryRun, Matched: len(ids), Results: []RerunResult{}}
	if in.DryRun {
		return answer, nil
	}
	for len(ids) > 0 {
		n := min(rerunChunk, len(ids))
		results, err := a.deps.Executions.Rerun(r.Context(), store.Rerun{
			IDs: ids[:n], Tenant: p.Tenant, By: p.Name, Reason: in.Reason, Key: key,
		})
		if err != nil {
			// What was submitted before stays; the same call goes on from there.
			return nil, err
		}
		for i, one := range results {
			answer.add(a.rerunResult(r, ids[i], one))
		}
		ids = ids[n:]
	}
	return answer, nil
}

func (a *API) rerunResult(r *http.Request, of string, one store.Submitted) RerunResult {
	result := RerunResult{RerunOf: of, Status: http.StatusAccepted, Replayed: one.Replayed}
	switch {
	case one.Err != nil:
		result.Problem = a.problem(r.Context(), one.Err)
		result.Problem.Instance, result.Status = "", result.Problem.Status
		return result
	case one.Replayed:
		result.Status = http.StatusOK
	}
	result.ID = one.Execution.ID
	return result
}

func (r *RerunResponse) add(one RerunResult) {
	if one.Problem == nil {
		r.Accepted++
	} else {
		r.Refused++
	}
	r.Results = append(r.Results, one)
}

// selected reads the ids of what the filter selects, the newest first.
func (a *API) selected(r *http.Request, in RerunRequest, p auth.Principal) ([]string, error) {
	filter, err := in.Filter.filter()
	if err != nil {
		return nil, err
	}
	most := in.Max
	if most == 0 {
		most = rerunDefault
	}
	var ids []string
	for req := (query.Request{Filter: filter.tree()}); len(ids) < most; {
		req.Page.First = min(rerunPage, most-len(ids))
		list, err := a.deps.Lists.List(r.Context(), query.Scope{Tenant: p.Tenant}, req)
		if err != nil {
			return nil, err
		}
		for _, v := range list.Rows {
			ids = append(ids, v.ID)
		}
		if req.Page.After = list.Next(); req.Page.After == "" {
			break
		}
	}
	return ids, nil
}

func (in *RerunRequest) check(key string) error {
	var faults []problem.Fault
	fault := func(pointer, code, format string, args ...any) {
		faults = append(faults, problem.Fault{Pointer: pointer, Code: code, Message: fmt.Sprintf(format, args...)})
	}
	switch {
	case (in.Filter == nil) == (in.IDs == nil):
		fault("", "invalid", "give either a filter or ids")
	case len(in.IDs) > maxBatch:
		fault("/ids", "too_long", "has more than %d items", maxBatch)
	}
	if in.Max < 0 || in.Max > rerunMax {
		fault("/max", "out_of_range", "must be between 1 and %d", rerunMax)
	}
	if in.Again && key != "" {
		fault("/again", "invalid", "and the header %s exclude each other", idempotencyHeader)
	}
	if in.Filter != nil {
		for i, s := range in.Filter.States {
			if !s.Valid() || !s.Terminal() {
				fault(fmt.Sprintf("/filter/states/%d", i), "invalid", "is not a state in which an execution has ended")
			}
		}
	}
	if len(faults) > 0 {
		return invalidBody(faults)
	}
	return checkReason(in.Reason)
}

// filter selects what did not succeed, unless the states say otherwise.
func (in *RerunFilter) filter() (executionFilter, error) {
	f := executionFilter{
		States: in.States, User: in.User, Executor: in.Executor, ResourceClass: in.ResourceClass,
		Labels: in.Labels, NamePrefix: in.NamePrefix,
	}
	if len(f.States) == 0 {
		f.States = []execution.State{execution.Failed, execution.TimedOut, execution.Quarantined}
	}
	if in.RequestedAfter != nil {
		f.RequestedAfter = *in.RequestedAfter
	}
	if in.RequestedBefore != nil {
		f.RequestedBefore = *in.RequestedBefore
	}
	for name, value := range map[string]string{
		"user": in.User, "executor": in.Executor, "resource_class": in.ResourceClass, "name_prefix": in.NamePrefix,
	} {
		if err := checkText(name, value); err != nil {
			return f, invalidBody([]problem.Fault{{Pointer: "/filter/" + name, Code: "invalid", Message: "contains control characters"}})
		}
	}
	for name, value := range in.Labels {
		if checkText(name, name+value) != nil {
			return f, invalidBody([]problem.Fault{{Pointer: "/filter/labels", Code: "invalid", Message: "contains control characters"}})
		}
	}
	return f, nil
}
