package rest

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/server/auth"
)

// signalInstance handles POST /v1/instances/{id}/signals/{step}. Its body is the
// variables themselves.
func (a *API) signalInstance(w http.ResponseWriter, r *http.Request) {
	if err := a.signalOne(w, r); err != nil {
		a.fail(w, r, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (a *API) signalOne(w http.ResponseWriter, r *http.Request) error {
	body, err := a.contractBody(w, r, 1)
	if err != nil {
		return err
	}
	var variables json.RawMessage
	if !isNothing(body) {
		if variables, err = a.wholeObject(body); err != nil {
			return err
		}
	}
	id, err := a.visible(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	err = a.deps.Workflows.Signal(r.Context(), id, r.PathValue("step"), variables, auth.From(r.Context()).Name)
	return a.withState(r.Context(), id, err)
}

// wholeObject returns a document that has to be an object.
func (a *API) wholeObject(body []byte) (json.RawMessage, error) {
	// Decoding says what is wrong with what is no JSON.
	var ignored map[string]json.RawMessage
	if err := contractFault(a.contract.decoder.Decode(body, "", &ignored)); err != nil {
		return nil, err
	}
	return body, nil
}

// correlate handles POST /v1/signals.
func (a *API) correlate(w http.ResponseWriter, r *http.Request) {
	answer, err := a.correlateOne(w, r)
	if err == nil {
		err = writeJSON(w, http.StatusOK, answer)
	}
	if err != nil {
		a.fail(w, r, err)
	}
}

func (a *API) correlateOne(w http.ResponseWriter, r *http.Request) (*CorrelateSignalResponse, error) {
	var in CorrelateSignalRequest
	if err := a.readContract(w, r, false, 1, &in); err != nil {
		return nil, err
	}
	if err := seesAll(r.Context(), "signals by correlation key"); err != nil {
		return nil, err
	}
	for _, text := range [][2]string{{"/signal", in.Signal}, {"/correlationKey", in.CorrelationKey}} {
		switch {
		case text[1] == "":
			return nil, badField(text[0], "required", "is required")
		case len(text[1]) > maxNameBytes || checkText(text[0], text[1]) != nil:
			return nil, badField(text[0], "invalid", "has more than 256 bytes, or control characters")
		}
	}
	p := auth.From(r.Context())
	id, err := given(r, p, in.ID)
	if err != nil {
		return nil, err
	}
	variables, err := object("/variables", in.Variables)
	if err != nil {
		return nil, err
	}
	req := engine.CorrelateRequest{ID: id, Signal: in.Signal, Key: in.CorrelationKey, Variables: variables, Actor: p.Name}
	if in.TTLSeconds != nil {
		const most = 30 * 24 * time.Hour
		if *in.TTLSeconds < 0 || *in.TTLSeconds > most.Seconds() {
			return nil, badField("/ttlSeconds", "out_of_range", "must be between 0 and 2592000, which are 30 days")
		}
		if req.TTL = time.Duration(*in.TTLSeconds * float64(time.Second)); req.TTL == 0 {
			req.TTL = -1 // not at all
		}
	}
	done, err := a.deps.Workflows.Correlate(r.Context(), req)
	if err != nil {
		return nil, err
	}
	answer := &CorrelateSignalResponse{ID: done.ID.String(), InstanceIDs: []string{}, Kept: done.Kept}
	for _, id := range done.Instances {
		answer.InstanceIDs = append(answer.InstanceIDs, id.String())
	}
	return answer, nil
}

type userTasksInput struct {
	InstanceID   string   `query:"instanceId" doc:"Tasks of this instance"`
	DefinitionID string   `query:"definitionId" doc:"Tasks of instances of this definition"`
	Assignee     string   `query:"assignee" doc:"Tasks of this person"`
	Group        string   `query:"group" doc:"Tasks for members of this group"`
	Status       []string `query:"status" doc:"Tasks with this status (OPEN, CLAIMED, COMPLETED, CANCELLED), or several separated by commas; OPEN and CLAIMED without it"`
	Overdue      bool     `query:"overdue" doc:"Only tasks that should have been done by now"`
	Unassigned   bool     `query:"unassigned" doc:"Only tasks that nobody has"`
	PageSize     int      `query:"pageSize" minimum:"1" maximum:"1000" default:"50"`
	PageToken    string   `query:"pageToken" doc:"The nextPageToken of the page before"`
}

type userTasksOutput struct{ Body UserTaskListResponse }

// userTasks handles GET /v1/user-tasks.
func (a *API) userTasks(ctx context.Context, in *userTasksInput) (*userTasksOutput, error) {
	filter := engine.UserTaskFilter{
		DefinitionID: in.DefinitionID, Assignee: in.Assignee, Group: in.Group, Overdue: in.Overdue, UnassignedOnly: in.Unassigned,
		PageSize: in.PageSize, PageToken: in.PageToken,
	}
	for _, text := range splitAll(in.Status) {
		status := strings.ToUpper(text)
		if !slices.Contains([]string{"OPEN", "CLAIMED", "COMPLETED", "CANCELLED"}, status) {
			return nil, badParameter("status", "invalid", "%q is no status of a user task", clip(text))
		}
		filter.Statuses = append(filter.Statuses, status)
	}
	if in.InstanceID != "" {
		id, err := a.visible(ctx, in.InstanceID)
		if err != nil {
			return nil, err
		}
		filter.InstanceID = id
	} else if err := seesAll(ctx, "lists of user tasks"); err != nil {
		return nil, err
	}
	page, err := a.deps.Workflows.UserTasks(ctx, filter)
	if err != nil {
		return nil, err
	}
	body := UserTaskListResponse{Items: []UserTaskSummary{}, NextPageToken: page.NextPageToken}
	for _, t := range page.Items {
		body.Items = append(body.Items, fromUserTask(t))
	}
	return &userTasksOutput{Body: body}, nil
}

// userTaskClaim makes the handlers that take a task and give it back.
func (a *API) userTaskClaim(
	do func(ctx context.Context, id uuid.UUID, stepID, user string) (engine.UserTask, error),
) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		t, err := a.claimOne(w, r, do)
		if err == nil {
			err = writeJSON(w, http.StatusOK, fromUserTask(t))
		}
		if err != nil {
			a.fail(w, r, err)
		}
	}
}

func (a *API) claimOne(
	w http.ResponseWriter, r *http.Request,
	do func(ctx context.Context, id uuid.UUID, stepID, user string) (engine.UserTask, error),
) (engine.UserTask, error) {
	var in UserTaskClaimRequest
	if err := a.readContract(w, r, true, 1, &in); err != nil {
		return engine.UserTask{}, err
	}
	if in.User == "" {
		in.User = auth.From(r.Context()).Name
	}
	if len(in.User) > maxNameBytes || checkText("user", in.User) != nil {
		return engine.UserTask{}, badField("/user", "invalid", "has more than 256 bytes, or control characters")
	}
	id, err := a.visible(r.Context(), r.PathValue("id"))
	if err != nil {
		return engine.UserTask{}, err
	}
	t, err := do(r.Context(), id, r.PathValue("step"), in.User)
	return t, a.withState(r.Context(), id, err)
}

func (a *API) claimUserTask(ctx context.Context, id uuid.UUID, stepID, user string) (engine.UserTask, error) {
	if user == "" {
		return engine.UserTask{}, badField("/user", "required", "is required: the token names nobody")
	}
	return a.deps.Workflows.ClaimUserTask(ctx, id, stepID, user)
}

func (a *API) unclaimUserTask(ctx context.Context, id uuid.UUID, stepID, user string) (engine.UserTask, error) {
	return a.deps.Workflows.UnclaimUserTask(ctx, id, stepID, user)
}

// completeUserTask handles POST /v1/instances/{id}/user-tasks/{step}/complete.
func (a *API) completeUserTask(w http.ResponseWriter, r *http.Request) {
	a.completeTask(w, r, r.PathValue("id"), r.PathValue("step"))
}

// completeUserTaskByID handles POST /v1/user-tasks/{id}/complete, where the id is that
// of the instance, a point, and that of the step.
func (a *API) completeUserTaskByID(w http.ResponseWriter, r *http.Request) {
	instance, step, _ := strings.Cut(r.PathValue("id"), ".")
	a.completeTask(w, r, instance, step)
}

func (a *API) completeTask(w http.ResponseWriter, r *http.Request, instance, step string) {
	var in UserTaskCompletionRequest
	err := a.readContract(w, r, true, 1, &in)
	if err == nil {
		err = a.taskDone(r, instance, step, in)
	}
	if err != nil {
		a.fail(w, r, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (a *API) taskDone(r *http.Request, instance, step string, in UserTaskCompletionRequest) error {
	variables, err := spelling("/variables", in.Variables, "/result", in.Result)
	if err != nil {
		return err
	}
	who := in.CompletedBy
	switch {
	case who == "":
		who = in.WorkerID
	case in.WorkerID != "" && in.WorkerID != who:
		return badField("/workerId", "invalid", "differs from completedBy, which is another spelling of it")
	}
	if len(who) > maxNameBytes || checkText("completedBy", who) != nil {
		return badField("/completedBy", "invalid", "has more than 256 bytes, or control characters")
	}
	// Nobody is named rather than the owner of the token: a claimed task is completed by
	// whoever has claimed it, and servers complete tasks for people.
	id, err := a.visible(r.Context(), instance)
	if err != nil {
		return err
	}
	err = a.deps.Workflows.CompleteUserTask(r.Context(), engine.CompleteUserTaskRequest{
		InstanceID: id, StepID: step, Actor: who, Variables: variables,
	})
	return a.withState(r.Context(), id, err)
}

// spelling takes variables that have two spellings.
func spelling(pointer string, value json.RawMessage, other string, alias json.RawMessage) (json.RawMessage, error) {
	variables, err := object(pointer, value)
	if err != nil {
		return nil, err
	}
	again, err := object(other, alias)
	switch {
	case err != nil:
		return nil, err
	case again == nil:
		return variables, nil
	case variables != nil:
		return nil, badField(other, "invalid", "is another spelling of "+strings.TrimPrefix(pointer, "/")+": give one of them")
	}
	return again, nil
}
