package rest

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/millrace/millrace/internal/deadletter"
	"github.com/millrace/millrace/internal/parking"
	"github.com/millrace/millrace/internal/server/auth"
	"github.com/millrace/millrace/internal/server/problem"
	"github.com/millrace/millrace/middleware"
)

// DeadLetters is what consumers gave up on; *deadletter.Store implements it.
type DeadLetters interface {
	List(ctx context.Context, f deadletter.Filter, p deadletter.Page) (deadletter.List, error)
	Groups(ctx context.Context, f deadletter.Filter, limit int) ([]deadletter.Group, error)
	Get(ctx context.Context, id string) (deadletter.Letter, error)
	Redrive(ctx context.Context, r deadletter.Redrive) (deadletter.Result, error)
	Discard(ctx context.Context, id, actor, reason string) error
	Lanes(ctx context.Context, f parking.Filter) ([]parking.Lane, error)
}

// LetterFilter is the part of a query that selects letters. It is exported for
// huma, which sees no parameters in an embedded struct that is not.
type LetterFilter struct {
	Status       []string  `query:"status,explode" maxItems:"10" doc:"Any of these statuses; repeat it, or separate by commas"`
	Topic        string    `query:"topic" maxLength:"249" doc:"Where the record lay, by the name at the broker"`
	Consumer     string    `query:"consumer" maxLength:"100"`
	Type         string    `query:"type" maxLength:"256" doc:"CloudEvents type"`
	Class        string    `query:"class" maxLength:"16" doc:"message or handler"`
	Fingerprint  string    `query:"fingerprint" maxLength:"64"`
	Key          string    `query:"key" maxLength:"4096" doc:"The record's key"`
	Parking      bool      `query:"parking" doc:"Only those that later events of their key wait for"`
	FailedAfter  time.Time `query:"failed_after" doc:"RFC 3339, exclusive; of the last failure"`
	FailedBefore time.Time `query:"failed_before" doc:"RFC 3339, exclusive; of the last failure"`
}

type listLettersInput struct {
	LetterFilter
	PageSize  int    `query:"page_size" minimum:"1" maximum:"1000" default:"50"`
	PageToken string `query:"page_token" maxLength:"4096" doc:"The next_page_token of the page before, with the same filters"`
}

type groupLettersInput struct {
	LetterFilter
	Limit int `query:"limit" minimum:"1" maximum:"1000" default:"50" doc:"The largest so many groups"`
}

type letterInput struct {
	ID string `path:"id" maxLength:"64" doc:"The id of the dead letter" example:"01980000-0000-7000-8000-000000000000"`
}

type (
	letterOutput       struct{ Body *DeadLetter }
	listLettersOutput  struct{ Body DeadLetterList }
	groupLettersOutput struct{ Body DeadLetterGroups }
)

func (in *LetterFilter) filter() (deadletter.Filter, error) {
	f := deadletter.Filter{
		Topic: in.Topic, Consumer: in.Consumer, EventType: in.Type, Class: in.Class, Fingerprint: in.Fingerprint,
		FailedAfter: in.FailedAfter, FailedBefore: in.FailedBefore, Heads: in.Parking,
	}
	for name, value := range map[string]string{
		"topic": in.Topic, "consumer": in.Consumer, "type": in.Type, "fingerprint": in.Fingerprint, "key": in.Key,
	} {
		if err := checkText(name, value); err != nil {
			return f, err
		}
	}
	for _, list := range in.Status {
		for text := range strings.SplitSeq(list, ",") {
			s := deadletter.Status(strings.ToUpper(text))
			if !s.Valid() {
				return f, badParameter("status", "invalid", "%q is not a status: use OPEN, REDRIVEN, RESOLVED or DISCARDED", clip(text))
			}
			f.Statuses = append(f.Statuses, s)
		}
	}
	if !validClass(in.Class) {
		return f, badParameter("class", "invalid", "%q is not a class: use message or handler", clip(in.Class))
	}
	if in.Key != "" {
		f.Key = []byte(in.Key)
	}
	return f, nil
}

func validClass(class string) bool {
	return class == "" || class == middleware.MessageFault.String() || class == middleware.HandlerFault.String()
}

// seesLetters refuses principals that are confined to a tenant: a record that
// could not be decoded belongs to none.
func seesLetters(ctx context.Context) error {
	if auth.From(ctx).Tenant != "" {
		return problem.Forbidden().With("a token of a tenant does not see dead letters")
	}
	return nil
}

func (a *API) listLetters(ctx context.Context, in *listLettersInput) (*listLettersOutput, error) {
	if err := seesLetters(ctx); err != nil {
		return nil, err
	}
	f, err := in.filter()
	if err != nil {
		return nil, err
	}
	list, err := a.deps.DeadLetters.List(ctx, f, deadletter.Page{Size: in.PageSize, Token: in.PageToken})
	if err != nil {
		return nil, err
	}
	out := &listLettersOutput{Body: DeadLetterList{DeadLetters: make([]DeadLetter, len(list.Letters)), NextPageToken: list.NextToken}}
	for i, l := range list.Letters {
		out.Body.DeadLetters[i] = fromLetter(l)
	}
	return out, nil
}

func (a *API) groupLetters(ctx context.Context, in *groupLettersInput) (*groupLettersOutput, error) {
	if err := seesLetters(ctx); err != nil {
		return nil, err
	}
	f, err := in.filter()
	if err != nil {
		return nil, err
	}
	groups, err := a.deps.DeadLetters.Groups(ctx, f, in.Limit)
	if err != nil {
		return nil, err
	}
	out := &groupLettersOutput{Body: DeadLetterGroups{Groups: make([]DeadLetterGroup, len(groups))}}
	for i, g := range groups {
		g.FirstSeen, g.LastSeen = g.FirstSeen.UTC(), g.LastSeen.UTC()
		out.Body.Groups[i] = DeadLetterGroup(g)
	}
	return out, nil
}

func (a *API) getLetter(ctx context.Context, in *letterInput) (*letterOutput, error) {
	if err := seesLetters(ctx); err != nil {
		return nil, err
	}
	l, err := a.deps.DeadLetters.Get(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	return &letterOutput{Body: fromWholeLetter(l)}, nil
}

// letterBody reads the body of a request about dead letters. An optional body may
// be missing.
func (a *API) letterBody(w http.ResponseWriter, r *http.Request, optional bool, into any) error {
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

// answerLetter answers with a letter as it stands now.
func (a *API) answerLetter(w http.ResponseWriter, r *http.Request, err error) {
	if err == nil {
		var l deadletter.Letter
		if l, err = a.deps.DeadLetters.Get(r.Context(), r.PathValue("id")); err == nil {
			err = writeJSON(w, http.StatusOK, fromWholeLetter(l))
		}
	}
	if err != nil {
		a.fail(w, r, err)
	}
}

// redriveLetter handles POST /v1/dead-letters/{id}/redrive.
func (a *API) redriveLetter(w http.ResponseWriter, r *http.Request) {
	a.answerLetter(w, r, a.redriveOne(w, r))
}

func (a *API) redriveOne(w http.ResponseWriter, r *http.Request) error {
	var in RedriveOneRequest
	if err := a.letterBody(w, r, true, &in); err != nil {
		return err
	}
	if err := checkReason(in.Reason); err != nil {
		return err
	}
	result, err := a.deps.DeadLetters.Redrive(r.Context(), deadletter.Redrive{
		IDs: []string{r.PathValue("id")}, Force: in.Force, Actor: auth.From(r.Context()).Name, Reason: in.Reason,
	})
	for _, o := range result.Outcomes {
		if err == nil {
			err = o.Err
		}
	}
	return err
}

// discardLetter handles POST /v1/dead-letters/{id}/discard.
func (a *API) discardLetter(w http.ResponseWriter, r *http.Request) {
	a.answerLetter(w, r, a.discardOne(w, r))
}

func (a *API) discardOne(w http.ResponseWriter, r *http.Request) error {
	var in DiscardRequest
	if err := a.letterBody(w, r, false, &in); err != nil {
		return err
	}
	if strings.TrimSpace(in.Reason) == "" {
		return invalidBody([]problem.Fault{{Pointer: "/reason", Code: "required", Message: "is required: say why the record is not needed"}})
	}
	if err := checkReason(in.Reason); err != nil {
		return err
	}
	return a.deps.DeadLetters.Discard(r.Context(), r.PathValue("id"), auth.From(r.Context()).Name, in.Reason)
}

func checkReason(reason string) error { return CancelRequest{Reason: reason}.check() }

// redriveLetters handles POST /v1/dead-letters:redrive.
func (a *API) redriveLetters(w http.ResponseWriter, r *http.Request) {
	in, order, err := a.redriveOrder(w, r)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	result, err := a.deps.DeadLetters.Redrive(r.Context(), order)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	out := RedriveResponse{
		DryRun: in.DryRun, Matched: result.Matched, Redriven: result.Redriven, Refused: result.Refused,
		Results: make([]RedriveResult, len(result.Outcomes)),
	}
	for i, o := range result.Outcomes {
		out.Results[i] = RedriveResult{ID: o.ID, Redriven: o.Err == nil}
		if o.Err != nil {
			out.Results[i].Problem = a.problem(r.Context(), o.Err)
		}
	}
	if err := writeJSON(w, http.StatusOK, out); err != nil {
		a.fail(w, r, err)
	}
}

func (a *API) redriveOrder(w http.ResponseWriter, r *http.Request) (in RedriveRequest, order deadletter.Redrive, err error) {
	if err := a.letterBody(w, r, false, &in); err != nil {
		return in, order, err
	}
	if err := checkReason(in.Reason); err != nil {
		return in, order, err
	}
	var faults []problem.Fault
	fault := func(pointer, code, format string, args ...any) {
		faults = append(faults, problem.Fault{Pointer: pointer, Code: code, Message: fmt.Sprintf(format, args...)})
	}
	if (in.Filter == nil) == (in.IDs == nil) {
		fault("", "invalid", "give either a filter or ids")
	}
	if len(in.IDs) > deadletter.MaxIDs {
		fault("/ids", "too_long", "has more than %d items", deadletter.MaxIDs)
	}
	if in.Max < 0 || in.Max > deadletter.MaxRedrive {
		fault("/max", "out_of_range", "must be between 1 and %d", deadletter.MaxRedrive)
	}
	order = deadletter.Redrive{
		IDs: in.IDs, DryRun: in.DryRun, Max: in.Max, Force: in.Force, Actor: auth.From(r.Context()).Name, Reason: in.Reason,
	}
	if in.Filter != nil {
		order.Filter = in.Filter.filter(fault)
	}
	if len(faults) > 0 {
		return in, order, invalidBody(faults)
	}
	return in, order, nil
}

func (in *RedriveFilterRequest) filter(fault func(pointer, code, format string, args ...any)) deadletter.Filter {
	f := deadletter.Filter{
		Topic: in.Topic, Consumer: in.Consumer, EventType: in.Type, Class: in.Class, Fingerprint: in.Fingerprint,
	}
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

func listLettersDoc() huma.Operation {
	return huma.Operation{
		OperationID: "list-dead-letters", Summary: "List dead letters, the last failure first", Tags: []string{tagDeadLetters},
		Description: "Without values, headers and actions. Paging is stable: letters that come meanwhile do not move those on later pages.",
		Errors:      []int{400, 503},
	}
}

func groupLettersDoc() huma.Operation {
	return huma.Operation{
		OperationID: "group-dead-letters", Summary: "Dead letters by what went wrong", Tags: []string{tagDeadLetters},
		Description: "Letters whose error is the same but for ids and numbers have one fingerprint. The largest group comes first.",
		Errors:      []int{400, 503},
	}
}

func getLetterDoc() huma.Operation {
	return huma.Operation{
		OperationID: "get-dead-letter", Summary: "Get a dead letter with its record", Tags: []string{tagDeadLetters},
		Errors: []int{400, 404, 503},
	}
}

func letterParam() *huma.Param { return param("path", "id", "string", "The id of the dead letter") }

func (a *API) redriveLetterDoc() huma.Operation {
	return huma.Operation{
		OperationID: "redrive-dead-letter", Summary: "Give a record to its consumer again", Tags: []string{tagDeadLetters},
		Description: "The record is published to its topic as it was, with a header by which only the consumer that failed acts on it. " +
			"If it fails again there is another letter; if it succeeds, the letter stays REDRIVEN. " +
			"A letter with a lane does not go through the topic: it is handled first in its lane, and if it fails again it is OPEN again.",
		Parameters:  []*huma.Param{letterParam()},
		RequestBody: jsonBody(schema[RedriveOneRequest](a), false),
		Responses:   map[string]*huma.Response{"200": answer("It will be published", "application/json", schema[DeadLetter](a), nil)},
		Errors:      []int{400, 404, 409, 413, 415, 422, 503},
	}
}

func (a *API) redriveDoc() huma.Operation {
	return huma.Operation{
		OperationID: "redrive-dead-letters", Summary: "Give many records to their consumers again", Tags: []string{tagDeadLetters},
		Description: "From the oldest to the newest, in chunks that are each done or not. A call that was broken off is repeated: " +
			"it goes on with what is still OPEN.",
		RequestBody: jsonBody(schema[RedriveRequest](a), true),
		Responses:   map[string]*huma.Response{"200": answer("What became of each", "application/json", schema[RedriveResponse](a), nil)},
		Errors:      []int{400, 413, 415, 422, 503},
	}
}

func (a *API) discardDoc() huma.Operation {
	return huma.Operation{
		OperationID: "discard-dead-letter", Summary: "Say that a record is not needed", Tags: []string{tagDeadLetters},
		Parameters:  []*huma.Param{letterParam()},
		RequestBody: jsonBody(schema[DiscardRequest](a), true),
		Responses:   map[string]*huma.Response{"200": answer("It is discarded", "application/json", schema[DeadLetter](a), nil)},
		Errors:      []int{400, 404, 409, 413, 415, 422, 503},
	}
}
