package rest

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/millrace/millrace/internal/deadletter"
	"github.com/millrace/millrace/internal/server/auth"
	"github.com/millrace/millrace/internal/server/problem"
	"github.com/millrace/millrace/topics"
)

// reporter notes what is wrong with a field.
type reporter func(pointer, code, format string, args ...any)

// readLetters reads the body of a request about dead letters. An optional body may
// be missing.
func (a *API) readLetters(w http.ResponseWriter, r *http.Request, optional bool, into any) error {
	if _, err := checkQuery(r); err != nil {
		return err
	}
	if err := seesLetters(r.Context()); err != nil {
		return err
	}
	body, err := readBody(w, r, a.config.MaxBodyBytes)
	if err != nil || optional && len(body) == 0 {
		return err
	}
	return a.json.Decode(body, "", into)
}

// letterBody is the body of something done about dead letters. check says what is
// wrong with it.
type letterBody interface{ check(fault reporter) }

// letterAction makes the handler of something done about dead letters, whose body
// is a T. The body may be missing if optional is set.
func letterAction[T letterBody](a *API, optional bool, act func(r *http.Request, in T) (status int, answer any, err error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in T
		err := a.readLetters(w, r, optional, &in)
		if err == nil {
			var faults []problem.Fault
			in.check(func(pointer, code, format string, args ...any) {
				faults = append(faults, problem.Fault{Pointer: pointer, Code: code, Message: fmt.Sprintf(format, args...)})
			})
			if len(faults) > 0 {
				err = invalidBody(faults)
			}
		}
		status, answer := http.StatusOK, any(nil)
		if err == nil {
			status, answer, err = act(r, in)
		}
		if job, ok := answer.(DeadLetterRedrive); ok && err == nil && status == http.StatusAccepted {
			w.Header().Set("Location", "/v1/dead-letter-redrives/"+job.ID)
		}
		if err == nil {
			err = writeJSON(w, status, answer)
		}
		if err != nil {
			a.fail(w, r, err)
		}
	}
}

// letterNow answers with the letter of the request as it stands.
func (a *API) letterNow(r *http.Request, err error) (int, any, error) {
	if err != nil {
		return 0, nil, err
	}
	l, err := a.deps.DeadLetters.Get(r.Context(), r.PathValue("id"))
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, fromWholeLetter(l), nil
}

func actor(r *http.Request) string { return auth.From(r.Context()).Name }

// redriveLetter handles POST /v1/dead-letters/{id}/redrive.
func (a *API) redriveLetter(r *http.Request, in RedriveOneRequest) (int, any, error) {
	result, err := a.deps.DeadLetters.Redrive(r.Context(), deadletter.Redrive{
		IDs:   []string{r.PathValue("id")},
		Terms: deadletter.Terms{Force: in.Force, NewID: in.NewID, Actor: actor(r), Reason: in.Reason},
	})
	for _, o := range result.Outcomes {
		if err == nil {
			err = o.Err
		}
	}
	return a.letterNow(r, err)
}

// discardLetter handles POST /v1/dead-letters/{id}/discard.
func (a *API) discardLetter(r *http.Request, in DiscardRequest) (int, any, error) {
	return a.letterNow(r, a.deps.DeadLetters.Discard(r.Context(), r.PathValue("id"), actor(r), in.Reason))
}

// editLetter handles POST /v1/dead-letters/{id}/edit.
func (a *API) editLetter(r *http.Request, in EditRequest) (int, any, error) {
	e := deadletter.Edit{ID: r.PathValue("id"), After: -1, ForceSchema: in.ForceSchema, Actor: actor(r), Reason: in.Reason}
	if in.AfterEdits != nil {
		e.After = *in.AfterEdits
	}
	switch {
	case in.ValueJSON != nil:
		value := []byte(in.ValueJSON)
		e.Value = &value
	case in.Value != nil:
		value := in.Value.bytes()
		e.Value = &value
	}
	if in.Key != nil {
		key := in.Key.bytes()
		e.Key = &key
	}
	if in.Headers != nil {
		headers := make([]topics.Header, len(in.Headers))
		for i, h := range in.Headers {
			headers[i].Key = h.Name
			if h.Value != nil {
				headers[i].Value = h.Value.bytes()
			}
		}
		e.Headers = &headers
	}
	return a.letterNow(r, a.deps.DeadLetters.Edit(r.Context(), e))
}

// redriveLetters handles POST /v1/dead-letters:redrive. Letters that are named are
// redriven at once, those of a filter by and by.
func (a *API) redriveLetters(r *http.Request, in RedriveRequest) (int, any, error) {
	terms := deadletter.Terms{Force: in.Force, NewID: in.NewID, Actor: actor(r), Reason: in.Reason}
	if in.Filter == nil {
		result, err := a.deps.DeadLetters.Redrive(r.Context(), deadletter.Redrive{IDs: in.IDs, DryRun: in.DryRun, Terms: terms})
		return http.StatusOK, a.redriveResponse(r.Context(), in.DryRun, result), err
	}
	order := deadletter.Order{
		Filter: in.Filter.filter(), Max: in.Max, Rate: in.Rate, StopAbove: in.StopOnErrors, Terms: terms,
	}
	if in.DryRun {
		result, err := a.deps.DeadLetters.Estimate(r.Context(), order)
		return http.StatusOK, a.redriveResponse(r.Context(), true, result), err
	}
	job, err := a.deps.DeadLetters.Start(r.Context(), order)
	return http.StatusAccepted, fromJob(job), err
}

func (a *API) redriveResponse(ctx context.Context, dryRun bool, result deadletter.Result) RedriveResponse {
	return RedriveResponse{
		DryRun: dryRun, Matched: result.Matched, Redriven: result.Redriven, Refused: result.Refused,
		Results: a.outcomes(ctx, result.Outcomes),
	}
}

func (a *API) outcomes(ctx context.Context, outcomes []deadletter.Outcome) []LetterOutcome {
	out := make([]LetterOutcome, len(outcomes))
	for i, o := range outcomes {
		out[i] = LetterOutcome{ID: o.ID, Done: o.Err == nil}
		if o.Err != nil {
			out[i].Problem = a.problem(ctx, o.Err)
		}
	}
	return out
}

// archiveLetters handles POST /v1/dead-letters:archive.
func (a *API) archiveLetters(r *http.Request, in ArchiveRequest) (int, any, error) {
	changed, err := a.deps.DeadLetters.Archive(r.Context(), in.selection(), actor(r), in.Reason)
	return http.StatusOK, LettersChanged{Changed: changed.Changed, Results: a.outcomes(r.Context(), changed.Outcomes)}, err
}

// restoreLetters handles POST /v1/dead-letters:restore.
func (a *API) restoreLetters(r *http.Request, in RestoreRequest) (int, any, error) {
	changed, err := a.deps.DeadLetters.Restore(r.Context(), in.selection(), actor(r), in.Reason)
	return http.StatusOK, LettersChanged{Changed: changed.Changed, Results: a.outcomes(r.Context(), changed.Outcomes)}, err
}

// deleteLetters handles POST /v1/dead-letters:delete.
func (a *API) deleteLetters(r *http.Request, in DeleteRequest) (int, any, error) {
	changed, err := a.deps.DeadLetters.Delete(r.Context(), in.IDs, actor(r), in.Reason)
	return http.StatusOK, LettersChanged{Changed: changed.Changed, Results: a.outcomes(r.Context(), changed.Outcomes)}, err
}

// check implements letterBody.
func (in RedriveOneRequest) check(fault reporter) {
	checkTerms(fault, in.Force, in.NewID, in.Reason)
}

// check implements letterBody.
func (in DiscardRequest) check(fault reporter) { checkWhy(fault, in.Reason) }

// check implements letterBody.
func (in EditRequest) check(fault reporter) {
	checkWhy(fault, in.Reason)
	if in.Value != nil && in.ValueJSON != nil {
		fault("/value_json", "invalid", "give either value or value_json")
	}
	if in.AfterEdits != nil && *in.AfterEdits < 0 {
		fault("/after_edits", "out_of_range", "must not be negative")
	}
	for pointer, b := range map[string]*DeadLetterBytes{"/value": in.Value, "/key": in.Key} {
		b.check(pointer, fault)
	}
	for i, h := range in.Headers {
		h.Value.check(fmt.Sprintf("/headers/%d/value", i), fault)
	}
}

// check implements letterBody.
func (in RedriveRequest) check(fault reporter) {
	checkTerms(fault, in.Force, in.NewID, in.Reason)
	checkSelection(fault, in.Filter, in.IDs)
	if in.Max < 0 {
		fault("/max", "out_of_range", "must be at least 1")
	}
	switch {
	case in.Rate != 0 && (in.Rate < deadletter.MinRate || in.Rate > deadletter.MaxRate):
		fault("/rate", "out_of_range", "must be between %g and %g", deadletter.MinRate, deadletter.MaxRate)
	case in.StopOnErrors < 0 || in.StopOnErrors >= 1:
		fault("/stop_on_errors", "out_of_range", "must be at least 0 and less than 1")
	case in.StopOnErrors > 0 && in.Rate == 0:
		fault("/stop_on_errors", "invalid", "needs a rate: without one all is redriven before anything fails")
	case in.Filter == nil && (in.Rate != 0 || in.StopOnErrors != 0 || in.Max != 0):
		fault("/ids", "invalid", "max, rate and stop_on_errors go with a filter")
	}
}

// check implements letterBody.
func (in ArchiveRequest) check(fault reporter) {
	checkWhy(fault, in.Reason)
	checkSelection(fault, in.Filter, in.IDs)
	checkStatuses(fault, in.Statuses, in.Filter)
}

// check implements letterBody.
func (in RestoreRequest) check(fault reporter) {
	checkReasonText(fault, in.Reason)
	checkSelection(fault, in.Filter, in.IDs)
	checkStatuses(fault, in.Statuses, in.Filter)
}

// check implements letterBody.
func (in DeleteRequest) check(fault reporter) {
	checkWhy(fault, in.Reason)
	checkSelection(fault, nil, in.IDs)
}

func checkTerms(fault reporter, force, newID bool, reason string) {
	checkReasonText(fault, reason)
	if newID && !force {
		fault("/new_id", "invalid", "needs force: consumers will take what they have processed for something new")
	}
}

// checkWhy is for what needs a reason.
func checkWhy(fault reporter, reason string) {
	if strings.TrimSpace(reason) == "" {
		fault("/reason", "required", "is required: it is kept for those who ask later")
	}
	checkReasonText(fault, reason)
}

func checkReasonText(fault reporter, reason string) {
	if err := (CancelRequest{Reason: reason}).check(); err != nil {
		fault("/reason", "invalid", "has more than 1000 bytes, or control characters")
	}
}

func checkSelection(fault reporter, filter *RedriveFilterRequest, ids []string) {
	if (filter == nil) == (len(ids) == 0) {
		fault("", "invalid", "give either a filter or ids")
	}
	if len(ids) > deadletter.MaxIDs {
		fault("/ids", "too_long", "has more than %d items", deadletter.MaxIDs)
	}
	if filter != nil {
		filter.check(fault)
	}
}

func checkStatuses(fault reporter, statuses []string, filter *RedriveFilterRequest) {
	for i, s := range statuses {
		if !deadletter.Status(s).Valid() {
			fault(fmt.Sprintf("/statuses/%d", i), "invalid", "%q is not a status", clip(s))
		}
	}
	if len(statuses) > 0 && filter == nil {
		fault("/statuses", "invalid", "goes with a filter")
	}
}

func (in *RedriveFilterRequest) check(fault reporter) {
	for name, value := range map[string]string{
		"topic": in.Topic, "consumer": in.Consumer, "type": in.Type, "fingerprint": in.Fingerprint, "key": in.Key,
	} {
		if checkText(name, value) != nil {
			fault("/filter/"+name, "invalid", "contains control characters")
		}
	}
	if !validClass(in.Class) {
		fault("/filter/class", "invalid", "%q is not a class: use message or handler", clip(in.Class))
	}
}

func (in *RedriveFilterRequest) filter() deadletter.Filter {
	f := deadletter.Filter{
		Topic: in.Topic, Consumer: in.Consumer, EventType: in.Type, Class: in.Class, Fingerprint: in.Fingerprint,
	}
	if in.Key != "" {
		f.Key = []byte(in.Key)
	}
	if in.FailedAfter != nil {
		f.FailedAfter = *in.FailedAfter
	}
	if in.FailedBefore != nil {
		f.FailedBefore = *in.FailedBefore
	}
	return f
}

// selection is what is meant by a filter with statuses, or by ids.
func (in ArchiveRequest) selection() deadletter.Selection {
	if in.Filter == nil {
		return deadletter.Selection{IDs: in.IDs}
	}
	f := in.Filter.filter()
	for _, s := range in.Statuses {
		f.Statuses = append(f.Statuses, deadletter.Status(s))
	}
	return deadletter.Selection{Filter: &f}
}

func (in RestoreRequest) selection() deadletter.Selection { return ArchiveRequest(in).selection() }
