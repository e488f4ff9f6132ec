package rest

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/jobs"
	"github.com/millrace/millrace/internal/server/auth"
	"github.com/millrace/millrace/internal/server/problem"
	"github.com/millrace/millrace/internal/server/strictjson"
	"github.com/millrace/millrace/internal/workflow"
)

// Workflows runs workflow instances; *engine.Engine implements it.
type Workflows interface {
	Start(ctx context.Context, r engine.StartRequest) (engine.Instance, error)
	StartMany(ctx context.Context, rs []engine.StartRequest) ([]engine.Instance, []error)
	Get(ctx context.Context, id uuid.UUID) (engine.Instance, error)
	List(ctx context.Context, f engine.Filter) (engine.Page, error)
	History(ctx context.Context, id uuid.UUID) ([]engine.StepExecution, error)
	Audit(ctx context.Context, f engine.AuditFilter) (engine.AuditPage, error)
	Wait(ctx context.Context, id uuid.UUID, timeout time.Duration) (engine.Instance, error)
	Cancel(ctx context.Context, id uuid.UUID, r engine.CancelRequest) (engine.Instance, error)
	Suspend(ctx context.Context, id uuid.UUID, actor, reason string) (engine.Instance, error)
	Resume(ctx context.Context, id uuid.UUID, actor, reason string) (engine.Instance, error)
	Retry(ctx context.Context, id uuid.UUID, r engine.RetryRequest) (engine.Instance, error)
	Compensate(ctx context.Context, id uuid.UUID, actor, reason string) (engine.Instance, error)
	Signal(ctx context.Context, id uuid.UUID, stepOrSignal string, variables json.RawMessage, actor string) error
	Correlate(ctx context.Context, r engine.CorrelateRequest) (engine.CorrelateResult, error)
	UserTasks(ctx context.Context, f engine.UserTaskFilter) (engine.UserTaskPage, error)
	ClaimUserTask(ctx context.Context, id uuid.UUID, stepID, user string) (engine.UserTask, error)
	UnclaimUserTask(ctx context.Context, id uuid.UUID, stepID, user string) (engine.UserTask, error)
	CompleteUserTask(ctx context.Context, r engine.CompleteUserTaskRequest) error
	CompleteJob(ctx context.Context, c jobs.Completion) error
	CompleteJobs(ctx context.Context, cs []jobs.Completion) []error
	FailJob(ctx context.Context, f jobs.Failure) error
	FailJobs(ctx context.Context, fs []jobs.Failure) []error
}

// tolerant decodes the bodies of the contract, whose readers pass over what they do not
// know.
type tolerant struct{ decoder strictjson.Decoder }

// readContract decodes the body of a request of the contract. A body that is missing, or
// null, leaves in as it is where the contract lets it be missing.
func (a *API) readContract(w http.ResponseWriter, r *http.Request, optional bool, factor int64, in any) error {
	body, err := a.contractBody(w, r, factor)
	if err != nil || optional && isNothing(body) {
		return err
	}
	return contractFault(a.contract.decoder.Decode(body, "", in))
}

func (a *API) contractBody(w http.ResponseWriter, r *http.Request, factor int64) ([]byte, error) {
	if _, err := checkQuery(r); err != nil {
		return nil, err
	}
	return readBody(w, r, factor*a.config.MaxBodyBytes)
}

// isNothing says whether a document says nothing: clients of the contract send null for
// variables that they do not have.
func isNothing(body []byte) bool {
	text := strings.TrimSpace(string(body[:min(len(body), 16)]))
	return len(body) <= 16 && (text == "" || text == "null")
}

// contractFault gives the faults of a body the status of the contract, 400.
func contractFault(err error) error {
	var faults *strictjson.FaultsError
	if errors.As(err, &faults) {
		return badRequest(faultsOf(faults.Faults, "")...)
	}
	return err
}

func badRequest(faults ...problem.Fault) *problem.Problem {
	p := invalidBody(faults)
	return problem.BadRequest().With(p.Detail, p.Errors...)
}

func badField(pointer, code, message string) *problem.Problem {
	return badRequest(problem.Fault{Pointer: pointer, Code: code, Message: message})
}

// object checks that a member is an object, or not there.
func object(pointer string, raw json.RawMessage) (json.RawMessage, error) {
	if isNothing(raw) {
		return nil, nil
	}
	if trimmed := strings.TrimLeft(string(raw[:min(len(raw), 64)]), " \t\r\n"); !strings.HasPrefix(trimmed, "{") {
		return nil, badField(pointer, strictjson.WrongType, "must be an object")
	}
	return raw, nil
}

// identified returns the id in the path of an instance or a job. What is no UUID names
// nothing that exists.
func identified(r *http.Request, missing problem.Kind) (uuid.UUID, error) {
	return parseID(r.PathValue("id"), missing)
}

func parseID(text string, missing problem.Kind) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil || len(text) != 36 {
		return uuid.Nil, missing.With("there is nothing with the id " + strconv.Quote(clip(text)))
	}
	return id, nil
}

func noInstance() problem.Kind { return problem.WorkflowNotFound() }

// given returns an id of the caller's making: that in the body, or one made from the
// header Idempotency-Key, which then stands for the same instance again.
func given(r *http.Request, p auth.Principal, text string) (uuid.UUID, error) {
	key, err := headerKey(r)
	switch {
	case err != nil:
		return uuid.Nil, err
	case text != "" && key != "":
		return uuid.Nil, badParameter(idempotencyHeader, "invalid", "is given beside an id: either makes the request repeatable")
	case key != "":
		return keyID(p.Tenant, key), nil
	case text == "":
		return uuid.Nil, nil
	}
	id, err := uuid.Parse(text)
	if err != nil || id == uuid.Nil || len(text) != 36 {
		return uuid.Nil, badField("/id", strictjson.InvalidValue, "must be a UUID such as 0198c0de-0000-7000-8000-000000000001")
	}
	return id, nil
}

// keyID makes the id of what is started under an idempotency key: a UUID of version 8.
func keyID(tenant, key string) uuid.UUID {
	sum := sha256.Sum256([]byte("millrace instance\x00" + tenant + "\x00" + key))
	id := uuid.UUID(sum[:16])
	id[6] = 0x80 | id[6]&0x0f
	id[8] = 0x80 | id[8]&0x3f
	return id
}

// seesInstance refuses to those who belong to a tenant what belongs to another one: it
// does not exist for them.
func (a *API) seesInstance(ctx context.Context, id uuid.UUID) error {
	p := auth.From(ctx)
	if p.Tenant == "" {
		return nil
	}
	i, err := a.deps.Workflows.Get(ctx, id)
	if err == nil && !p.Sees(i.Tenant) {
		err = noInstance().With("there is no instance " + id.String())
	}
	return err
}

// seesAll refuses to those who belong to a tenant what is not told apart by tenants.
func seesAll(ctx context.Context, what string) error {
	if auth.From(ctx).Tenant != "" {
		return problem.Forbidden().With(what + " are not told apart by tenants: a token of a tenant has no access")
	}
	return nil
}

// withState adds the status of the instance to a conflict.
func (a *API) withState(ctx context.Context, id uuid.UUID, err error) error {
	if !errors.Is(err, engine.ErrConflict) && !errors.Is(err, workflow.ErrStale) {
		return err
	}
	p := problem.WorkflowConflict().With(err.Error())
	if i, err := a.deps.Workflows.Get(context.WithoutCancel(ctx), id); err == nil {
		p.Contract = &problem.Contract{State: string(i.Status)}
	}
	return p
}

// deadline lets a request take longer than others: it is waited for.
func deadline(w http.ResponseWriter, more time.Duration) {
	control := http.NewResponseController(w)
	// Not every writer has deadlines, and then there is none to move.
	_ = control.SetReadDeadline(time.Time{})
	_ = control.SetWriteDeadline(time.Now().Add(more))
}
