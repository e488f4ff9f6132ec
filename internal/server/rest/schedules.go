package rest

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/schedule"
	"github.com/millrace/millrace/internal/server/auth"
	"github.com/millrace/millrace/internal/server/problem"
	"github.com/millrace/millrace/internal/trigger"
)

// Schedules has the firings of triggers by time; *schedule.Store implements it.
type Schedules interface {
	Firings(ctx context.Context, f schedule.FiringFilter) ([]schedule.Firing, error)
	Fire(ctx context.Context, uid, by string) (schedule.Firing, error)
}

// Firing is a time of a schedule that has come.
type Firing struct {
	ScheduledAt time.Time     `json:"scheduled_at" doc:"The time of the schedule"`
	DueAt       time.Time     `json:"due_at" doc:"When it was due: later by the jitter"`
	FiredAt     time.Time     `json:"fired_at" doc:"When it was noticed"`
	Status      string        `json:"status" enum:"due,started,refused,skipped,missed" doc:"What has become of it: due is not known yet, missed passed while nobody was there"`
	Late        bool          `json:"late,omitempty" doc:"It was noticed too late to be on time"`
	By          string        `json:"by,omitempty" doc:"Who fired it by hand"`
	Kind        string        `json:"kind,omitempty" enum:"execution,instance" doc:"What it has started"`
	TargetID    string        `json:"target_id,omitempty" doc:"The id of what it has started"`
	Attempts    int           `json:"attempts,omitempty" doc:"How often it was tried"`
	Cause       *TriggerCause `json:"cause,omitempty" doc:"Why it has started nothing, or nothing yet"`
	Since       *time.Time    `json:"since,omitempty" doc:"Since when it cannot be started"`
	NextTry     *time.Time    `json:"next_try,omitempty"`
	SettledAt   *time.Time    `json:"settled_at,omitempty" doc:"When it was known what becomes of it"`
	FirstAt     *time.Time    `json:"first_at,omitempty" doc:"The first of several times that were missed; scheduled_at is the last"`
	Count       int           `json:"count,omitempty" doc:"How many times were missed"`
	More        bool          `json:"more,omitempty" doc:"There were more than count"`
}

// FiringList is a page of firings, the latest time first.
type FiringList struct {
	Firings       []Firing `json:"firings"`
	NextPageToken string   `json:"next_page_token,omitempty" doc:"Asks for the next page, with the same filters; missing on the last"`
}

// ScheduledTime is a time to come.
type ScheduledTime struct {
	ScheduledAt time.Time `json:"scheduled_at"`
	DueAt       time.Time `json:"due_at" doc:"When it is due: later by the jitter"`
}

// ScheduledTimes are the next times of a schedule.
type ScheduledTimes struct {
	Times []ScheduledTime `json:"times" doc:"Fewer than were asked for where no more are left"`
	Zone  string          `json:"time_zone,omitempty" doc:"Whose clock the expression goes by"`
}

// findSchedule returns a trigger by time that the caller may see.
func (a *API) findSchedule(ctx context.Context, id string) (trigger.Stored, error) {
	t, err := a.findTrigger(ctx, id)
	if err == nil && (t.Type != trigger.TypeSchedule || t.Schedule == nil) {
		err = problem.TriggerNoSchedule().With(fmt.Sprintf("trigger %s is of type %s", t.ID, t.Type))
	}
	return t, err
}

type firingsInput struct {
	ID        string `path:"id" maxLength:"64" doc:"The id of the trigger" example:"nightly-report"`
	Status    string `query:"status" enum:"due,started,refused,skipped,missed" doc:"Those that have come to this"`
	PageSize  int    `query:"page_size" minimum:"1" maximum:"1000" default:"50"`
	PageToken string `query:"page_token" maxLength:"4096" doc:"The next_page_token of the page before, with the same filters"`
}

type firingsOutput struct{ Body FiringList }

// firings handles GET /v1/triggers/{id}/firings.
func (a *API) firings(ctx context.Context, in *firingsInput) (*firingsOutput, error) {
	t, err := a.findSchedule(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	filter := []string{"firings", t.UID, in.Status}
	f := schedule.FiringFilter{UID: t.UID, Status: schedule.Status(in.Status), Limit: in.PageSize + 1}
	if in.PageToken != "" {
		place, err := postgres.ParseToken(in.PageToken, filter)
		if err != nil {
			return nil, err
		}
		f.Before = place.At
	}
	found, err := a.deps.Schedules.Firings(ctx, f)
	if err != nil {
		return nil, err
	}
	out := &firingsOutput{}
	if len(found) > in.PageSize {
		found = found[:in.PageSize]
		out.Body.NextPageToken = postgres.Place{At: found[in.PageSize-1].ScheduledAt, ID: t.UID}.Token(filter)
	}
	out.Body.Firings = make([]Firing, len(found))
	for i, x := range found {
		out.Body.Firings[i] = fromFiring(x)
	}
	return out, nil
}

type nextTimesInput struct {
	ID    string    `path:"id" maxLength:"64" doc:"The id of the trigger" example:"nightly-report"`
	Count int       `query:"count" minimum:"1" maximum:"1000" default:"10" doc:"How many times"`
	After time.Time `query:"after" doc:"Those after this moment; now without it"`
}

type nextTimesOutput struct{ Body ScheduledTimes }

// nextTimes handles GET /v1/triggers/{id}/next.
func (a *API) nextTimes(ctx context.Context, in *nextTimesInput) (*nextTimesOutput, error) {
	t, err := a.findSchedule(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	plan, err := schedule.NewPlan(*t.Schedule, t.UID)
	if err != nil {
		return nil, err
	}
	after := in.After
	if after.IsZero() {
		after = time.Now()
	}
	out := &nextTimesOutput{Body: ScheduledTimes{Times: []ScheduledTime{}, Zone: t.Schedule.TimeZone}}
	for _, at := range plan.Upcoming(after, in.Count) {
		out.Body.Times = append(out.Body.Times, ScheduledTime{ScheduledAt: at, DueAt: plan.Due(at)})
	}
	return out, nil
}

// fireTrigger handles POST /v1/triggers/{id}/fire.
func (a *API) fireTrigger(w http.ResponseWriter, r *http.Request) {
	fired, err := a.fireOne(r)
	if err == nil {
		err = writeJSON(w, http.StatusAccepted, fired)
	}
	if err != nil {
		a.fail(w, r, err)
	}
}

func (a *API) fireOne(r *http.Request) (Firing, error) {
	if _, err := checkQuery(r); err != nil {
		return Firing{}, err
	}
	t, err := a.findSchedule(r.Context(), r.PathValue("id"))
	if err != nil {
		return Firing{}, err
	}
	if !t.IsEnabled() {
		return Firing{}, problem.TriggerDisabled().With("enable it first: what is switched off starts nothing")
	}
	by := auth.From(r.Context()).Name
	fired, err := a.deps.Schedules.Fire(r.Context(), t.UID, by)
	if err != nil {
		return Firing{}, err
	}
	a.deps.Logger.InfoContext(r.Context(), "trigger was fired by hand", "trigger", t.ID, "by", by, "request_id", problem.RequestID(r.Context()))
	return fromFiring(fired), nil
}

func fromFiring(f schedule.Firing) Firing {
	return Firing{
		ScheduledAt: f.ScheduledAt.UTC(), DueAt: f.DueAt.UTC(), FiredAt: f.FiredAt.UTC(), Status: string(f.Status), Late: f.Late, By: f.By,
		Kind: f.Kind, TargetID: f.TargetID, Attempts: f.Attempts, Cause: fromCause(f.Cause), Since: momentOf(f.Since), NextTry: momentOf(f.NextTry),
		SettledAt: momentOf(f.SettledAt), FirstAt: momentOf(f.FirstAt), Count: f.Count, More: f.More,
	}
}

// momentOf is moment for what may be missing.
func momentOf(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	return moment(*t)
}

func firingsDoc() huma.Operation {
	return huma.Operation{
		OperationID: "list-trigger-firings", Summary: "List the times at which a trigger has fired", Tags: []string{tagTriggers},
		Description: "Of a trigger by time: the latest time first, with what each has started, or why it has not. They are kept for retention.firings.",
		Errors:      []int{400, 404, 409, 422, 503},
	}
}

func nextTimesDoc() huma.Operation {
	return huma.Operation{
		OperationID: "list-trigger-times", Summary: "Show when a trigger fires next", Tags: []string{tagTriggers},
		Description: "The times of a trigger by time, whether it is enabled or not.",
		Errors:      []int{400, 404, 409, 422, 503},
	}
}

func (a *API) fireTriggerDoc() huma.Operation {
	return huma.Operation{
		OperationID: "fire-trigger", Summary: "Fire a trigger now", Tags: []string{tagTriggers},
		Description: "Of a trigger by time: as if one of its times had come, under its rules (overlap, limits). Its times stay. The firings tell what it has started.",
		Parameters:  []*huma.Param{triggerParam()},
		Responses:   map[string]*huma.Response{"202": answer("Fired", "application/json", schema[Firing](a), nil)},
		Errors:      []int{400, 404, 409, 503},
	}
}
