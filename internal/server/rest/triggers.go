package rest

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/server/auth"
	"github.com/millrace/millrace/internal/server/problem"
	"github.com/millrace/millrace/internal/trigger"
	triggerstore "github.com/millrace/millrace/internal/trigger/store"
)

// Triggers keeps triggers; *store.Store of internal/trigger/store implements it.
type Triggers interface {
	Apply(ctx context.Context, d trigger.Definition, c triggerstore.Change) (triggerstore.Applied, error)
	Check(raw []byte) (trigger.Definition, []trigger.Fault)
	Compile(t trigger.Stored) (*trigger.Compiled, error)
	Get(ctx context.Context, id string) (trigger.Stored, error)
	List(ctx context.Context, q triggerstore.Query) ([]trigger.Stored, error)
	SetEnabled(ctx context.Context, id string, enabled bool, c triggerstore.Change) (trigger.Stored, bool, error)
	Delete(ctx context.Context, id string, c triggerstore.Change) (trigger.Stored, error)
}

// TriggerReports tells how triggers are doing, in their order.
type TriggerReports interface {
	Of(ctx context.Context, triggers ...trigger.Stored) ([]trigger.Status, error)
}

// TriggerSnapshot is what this process serves webhooks from. It is refreshed before a
// change is answered, so that who has changed a trigger finds it changed.
type TriggerSnapshot interface {
	Refresh(ctx context.Context) error
}

// changeOf says who changes a trigger. A token of one tenant may not: a definition reaches
// brokers and secrets that are everybody's.
func changeOf(r *http.Request) (triggerstore.Change, error) {
	p := auth.From(r.Context())
	if p.Tenant != "" {
		return triggerstore.Change{}, problem.Forbidden().With("triggers may use any broker and any secret that triggers have: a token of one tenant cannot change them")
	}
	c := triggerstore.Change{By: p.Name, User: p.Name}
	q, err := checkQuery(r, "dry_run")
	if err != nil {
		return c, err
	}
	if c.DryRun, err = boolean(q.Get("dry_run")); err != nil {
		return c, err
	}
	c.Revision, err = revisionOf(r)
	return c, err
}

func boolean(text string) (bool, error) {
	switch text {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	}
	return false, badParameter("dry_run", "wrong_type", "must be true or false")
}

// revisionOf returns the revision that a request is about; 0: whichever there is.
func revisionOf(r *http.Request) (int64, error) {
	text := r.Header.Get("If-Match")
	if text == "" || text == "*" {
		return 0, nil
	}
	n, err := strconv.ParseInt(strings.Trim(text, `"`), 10, 64)
	if err != nil || n < 1 {
		return 0, badParameter("If-Match", "invalid", "must be the revision of the trigger, as in ETag")
	}
	return n, nil
}

// triggerBody reads a definition.
func (a *API) triggerBody(w http.ResponseWriter, r *http.Request) (trigger.Definition, []trigger.Fault, error) {
	body, err := readBody(w, r, trigger.MaxDocumentBytes)
	if err != nil {
		return trigger.Definition{}, nil, err
	}
	d, faults := a.deps.Triggers.Check(body)
	for _, f := range faults {
		if f.Code == trigger.CodeSyntax {
			return d, nil, problem.MalformedJSON().With(fmt.Sprintf("line %d, column %d: %s", f.Line, f.Column, f.Message))
		}
	}
	return d, faults, nil
}

// putTrigger handles PUT /v1/triggers/{id}.
func (a *API) putTrigger(w http.ResponseWriter, r *http.Request) {
	if err := a.applyTrigger(w, r); err != nil {
		a.fail(w, r, err)
	}
}

func (a *API) applyTrigger(w http.ResponseWriter, r *http.Request) error {
	c, err := changeOf(r)
	if err != nil {
		return err
	}
	d, faults, err := a.triggerBody(w, r)
	if err != nil {
		return err
	}
	switch id := r.PathValue("id"); {
	case d.ID == "":
		d.ID = id
		faults = slices.DeleteFunc(faults, func(f trigger.Fault) bool { return f.Pointer == "/id" && f.Code == trigger.CodeRequired })
	case d.ID != id:
		faults = append(faults, trigger.Fault{Pointer: "/id", Code: trigger.CodeConflict, Message: "is not the id of the path, " + strconv.Quote(clip(id))})
	}
	if err := trigger.Refused(faults); err != nil {
		return err
	}
	applied, err := a.deps.Triggers.Apply(r.Context(), d, c)
	if err != nil {
		return err
	}
	shown, err := a.changed(r, applied.Stored, string(applied.Status), c.DryRun)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if applied.Status == triggerstore.Created && !c.DryRun {
		status = http.StatusCreated
		w.Header().Set("Location", "/v1/triggers/"+applied.ID)
	}
	setRevision(w, applied.Revision)
	return writeJSON(w, status, AppliedTrigger{
		Trigger: shown, Status: string(applied.Status), DryRun: c.DryRun, Warnings: fromTriggerFaults(applied.Warnings, true),
	})
}

// changed tells this process of a change, and the log who did it. It returns the trigger.
func (a *API) changed(r *http.Request, t trigger.Stored, what string, dryRun bool) (Trigger, error) {
	ctx := r.Context()
	if !dryRun && what != string(triggerstore.Unchanged) {
		a.deps.Logger.InfoContext(ctx, "trigger was changed",
			"trigger", t.ID, "what", what, "revision", t.Revision, "by", auth.From(ctx).Name, "request_id", problem.RequestID(ctx))
		if a.deps.TriggerSnapshot != nil {
			if err := a.deps.TriggerSnapshot.Refresh(ctx); err != nil {
				a.deps.Logger.WarnContext(ctx, "triggers cannot be read anew; they will be soon", "error", err)
			}
		}
	}
	return fromTrigger(t)
}

func setRevision(w http.ResponseWriter, revision int64) {
	w.Header().Set("ETag", `"`+strconv.FormatInt(revision, 10)+`"`)
}

// validateTrigger handles POST /v1/triggers/validate.
func (a *API) validateTrigger(w http.ResponseWriter, r *http.Request) {
	_, err := checkQuery(r)
	if err == nil {
		var faults []trigger.Fault
		if _, faults, err = a.triggerBody(w, r); err == nil {
			err = writeJSON(w, http.StatusOK, TriggerReport{Valid: trigger.Refused(faults) == nil, Faults: fromTriggerFaults(faults, false)})
		}
	}
	if err != nil {
		a.fail(w, r, err)
	}
}

type listTriggersInput struct {
	Type      string `query:"type" enum:"kafka,webhook,schedule" doc:"Those of this type"`
	Enabled   string `query:"enabled" enum:"true,false" doc:"Those that are switched on, or off"`
	PageSize  int    `query:"page_size" minimum:"1" maximum:"1000" default:"50"`
	PageToken string `query:"page_token" maxLength:"4096" doc:"The next_page_token of the page before, with the same filters"`
}

type listTriggersOutput struct{ Body TriggerList }

// listTriggers handles GET /v1/triggers.
func (a *API) listTriggers(ctx context.Context, in *listTriggersInput) (*listTriggersOutput, error) {
	filter := []string{"triggers", in.Type, in.Enabled}
	after, err := afterToken(in.PageToken, filter)
	if err != nil {
		return nil, err
	}
	q := triggerstore.Query{Type: trigger.Type(in.Type), Tenant: auth.From(ctx).Tenant, After: after, Limit: in.PageSize + 1}
	if in.Enabled != "" {
		q.Enabled = new(in.Enabled == "true")
	}
	found, err := a.deps.Triggers.List(ctx, q)
	if err != nil {
		return nil, err
	}
	out := &listTriggersOutput{}
	if len(found) > in.PageSize {
		found = found[:in.PageSize]
		out.Body.NextPageToken = postgres.Place{ID: found[in.PageSize-1].ID}.Token(filter)
	}
	out.Body.Triggers, err = a.withStates(ctx, found)
	return out, err
}

// withStates returns triggers with how they are doing.
func (a *API) withStates(ctx context.Context, found []trigger.Stored) ([]Trigger, error) {
	out := make([]Trigger, len(found))
	states, err := a.deps.TriggerReports.Of(ctx, found...)
	if err != nil {
		return nil, err
	}
	for i, t := range found {
		if out[i], err = fromTrigger(t); err != nil {
			return nil, err
		}
		if i < len(states) {
			out[i].State, out[i].Cause, out[i].Since = string(states[i].State), fromCause(states[i].Cause), moment(states[i].Since)
		}
	}
	return out, nil
}

type triggerInput struct {
	ID string `path:"id" maxLength:"64" doc:"The id of the trigger" example:"orders"`
}

type triggerOutput struct {
	ETag string `header:"ETag"`
	Body Trigger
}

// getTrigger handles GET /v1/triggers/{id}.
func (a *API) getTrigger(ctx context.Context, in *triggerInput) (*triggerOutput, error) {
	t, err := a.findTrigger(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	shown, err := a.withStates(ctx, []trigger.Stored{t})
	if err != nil {
		return nil, err
	}
	return &triggerOutput{ETag: fmt.Sprintf("%q", strconv.FormatInt(t.Revision, 10)), Body: shown[0]}, nil
}

// findTrigger returns a trigger that the caller may see.
func (a *API) findTrigger(ctx context.Context, id string) (trigger.Stored, error) {
	if err := checkText("id", id); err != nil {
		return trigger.Stored{}, err
	}
	t, err := a.deps.Triggers.Get(ctx, id)
	if err == nil && !auth.From(ctx).Sees(t.Tenant) {
		err = fmt.Errorf("trigger %s: %w", id, triggerstore.ErrNotFound)
	}
	return t, err
}

type triggerStatusOutput struct{ Body TriggerStatus }

// triggerStatus handles GET /v1/triggers/{id}/status.
func (a *API) triggerStatus(ctx context.Context, in *triggerInput) (*triggerStatusOutput, error) {
	t, err := a.findTrigger(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	states, err := a.deps.TriggerReports.Of(ctx, t)
	if err != nil {
		return nil, err
	}
	status := trigger.Status{ID: t.ID, UID: t.UID, Type: t.Type, Revision: t.Revision}
	if len(states) > 0 {
		status = states[0]
	}
	if compiled, err := a.deps.Triggers.Compile(t); err == nil && len(status.Effective) == 0 {
		status.Effective = compiled.Settings()
	}
	return &triggerStatusOutput{Body: fromTriggerStatus(status)}, nil
}

// switchTrigger handles POST /v1/triggers/{id}/enable and /disable.
func (a *API) switchTrigger(on bool) http.HandlerFunc {
	what := map[bool]string{true: "enabled", false: "disabled"}[on]
	return a.changeTrigger(func(r *http.Request, id string, c triggerstore.Change) (Trigger, error) {
		t, changed, err := a.deps.Triggers.SetEnabled(r.Context(), id, on, c)
		if err != nil {
			return Trigger{}, err
		}
		if !changed {
			return fromTrigger(t)
		}
		return a.changed(r, t, what, c.DryRun)
	})
}

// deleteTrigger handles DELETE /v1/triggers/{id}.
func (a *API) deleteTrigger() http.HandlerFunc {
	return a.changeTrigger(func(r *http.Request, id string, c triggerstore.Change) (Trigger, error) {
		t, err := a.deps.Triggers.Delete(r.Context(), id, c)
		if err != nil {
			return Trigger{}, err
		}
		return a.changed(r, t, "deleted", c.DryRun)
	})
}

// changeTrigger makes a handler of a change that has no body.
func (a *API) changeTrigger(do func(r *http.Request, id string, c triggerstore.Change) (Trigger, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c, err := changeOf(r)
		if err == nil {
			err = checkText("id", r.PathValue("id"))
		}
		var shown Trigger
		if err == nil {
			shown, err = do(r, r.PathValue("id"), c)
		}
		if err == nil {
			setRevision(w, shown.Revision)
			err = writeJSON(w, http.StatusOK, shown)
		}
		if err != nil {
			a.fail(w, r, err)
		}
	}
}
