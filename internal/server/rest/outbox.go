package rest

import (
	"context"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/outbox"
	"github.com/millrace/millrace/internal/server/auth"
	"github.com/millrace/millrace/internal/server/problem"
	"github.com/millrace/millrace/topics"
)

// Outbox is what operators can do about the outbox; *outbox.Operator implements it.
type Outbox interface {
	List(ctx context.Context, f outbox.Filter) ([]outbox.Blocked, error)
	Backlog(ctx context.Context) (outbox.Backlog, error)
	Retry(ctx context.Context, seq int64, by outbox.Author) error
	RetryFailed(ctx context.Context, topic string, by outbox.Author) (int64, error)
	Skip(ctx context.Context, seq int64, by outbox.Author) error
	Republish(ctx context.Context, s outbox.Selection, dryRun bool, by outbox.Author) (outbox.Republished, error)
}

// outboxOnly refuses tokens of one tenant: the outbox holds events of all.
func outboxOnly(ctx context.Context) error {
	if auth.From(ctx).Tenant != "" {
		return problem.Forbidden().With("the token sees one tenant only, and the outbox is everybody's")
	}
	return nil
}

type outboxListInput struct {
	State       string `query:"state" enum:"FAILED,WAITING" doc:"FAILED: given up; WAITING: tried again at next_attempt_at"`
	Topic       string `query:"topic" maxLength:"249" doc:"Logical name"`
	AggregateID string `query:"aggregate_id" maxLength:"1024"`
	PageSize    int    `query:"page_size" minimum:"1" maximum:"1000" default:"100"`
	PageToken   string `query:"page_token" maxLength:"32" doc:"The next_page_token of the page before"`
}

type outboxListOutput struct{ Body OutboxList }

// outboxList handles GET /v1/outbox/events.
func (a *API) outboxList(ctx context.Context, in *outboxListInput) (*outboxListOutput, error) {
	if err := outboxOnly(ctx); err != nil {
		return nil, err
	}
	for name, value := range map[string]string{"topic": in.Topic, "aggregate_id": in.AggregateID} {
		if err := checkText(name, value); err != nil {
			return nil, err
		}
	}
	filter := outbox.Filter{State: outbox.State(in.State), Topic: in.Topic, AggregateID: in.AggregateID, Limit: in.PageSize}
	if in.PageToken != "" {
		after, err := strconv.ParseInt(in.PageToken, 10, 64)
		if err != nil || after < 0 {
			return nil, problem.InvalidPageToken().With("")
		}
		filter.After = after
	}
	list, err := a.deps.Outbox.List(ctx, filter)
	if err != nil {
		return nil, err
	}
	out := &outboxListOutput{Body: OutboxList{Events: make([]OutboxEvent, len(list))}}
	for i, b := range list {
		out.Body.Events[i] = fromBlocked(b)
	}
	if len(list) == in.PageSize {
		out.Body.NextPageToken = strconv.FormatInt(list[len(list)-1].Seq, 10)
	}
	return out, nil
}

type outboxBacklogOutput struct{ Body OutboxBacklog }

// outboxBacklog handles GET /v1/outbox/backlog.
func (a *API) outboxBacklog(ctx context.Context, _ *struct{}) (*outboxBacklogOutput, error) {
	if err := outboxOnly(ctx); err != nil {
		return nil, err
	}
	b, err := a.deps.Outbox.Backlog(ctx)
	if err != nil {
		return nil, err
	}
	out := &outboxBacklogOutput{Body: OutboxBacklog{
		Pending: b.Pending, Waiting: b.Waiting, Failed: b.Failed, OldestAge: wholeMillis(b.Oldest),
		Topics: make([]OutboxTopicBacklog, len(b.Topics)),
	}}
	for i, t := range b.Topics {
		out.Body.Topics[i] = OutboxTopicBacklog{
			Topic: t.Topic, Pending: t.Pending, Waiting: t.Waiting, Failed: t.Failed, OldestAge: wholeMillis(t.Oldest)}
	}
	return out, nil
}

func wholeMillis(d time.Duration) topics.Duration { return topics.Duration(d.Round(time.Millisecond)) }

// outboxAction makes the handler of an action whose body is a T.
func outboxAction[T any](a *API, act func(r *http.Request, in T) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		answer, err := func() (any, error) {
			if err := outboxOnly(r.Context()); err != nil {
				return nil, err
			}
			var in T
			if err := a.readRequest(w, r, &in); err != nil {
				return nil, err
			}
			return act(r, in)
		}()
		if err == nil {
			err = writeJSON(w, http.StatusOK, answer)
		}
		if err != nil {
			a.fail(w, r, err)
		}
	}
}

// readRequest decodes a body that may be missing.
func (a *API) readRequest(w http.ResponseWriter, r *http.Request, in any) error {
	if _, err := checkQuery(r); err != nil {
		return err
	}
	body, err := readBody(w, r, a.config.MaxBodyBytes)
	if err != nil || len(body) == 0 {
		return err
	}
	return a.json.Decode(body, "", in)
}

// author says who sent a request and why.
func author(r *http.Request, reason string) (outbox.Author, error) {
	if err := (CancelRequest{Reason: reason}).check(); err != nil {
		return outbox.Author{}, err
	}
	return outbox.Author{Name: auth.From(r.Context()).Name, Reason: reason}, nil
}

func seqOf(r *http.Request) (int64, error) {
	seq, err := strconv.ParseInt(r.PathValue("seq"), 10, 64)
	if err != nil || seq < 1 {
		return 0, badParameter("seq", "wrong_type", "must be a whole number between 1 and %d", int64(math.MaxInt64))
	}
	return seq, nil
}

func (a *API) outboxRetry(r *http.Request, in OutboxRetryRequest) (any, error) {
	seq, err := seqOf(r)
	if err != nil {
		return nil, err
	}
	by, err := author(r, in.Reason)
	if err != nil {
		return nil, err
	}
	return OutboxChange{Events: 1}, a.deps.Outbox.Retry(r.Context(), seq, by)
}

func (a *API) outboxRetryFailed(r *http.Request, in OutboxRetryFailedRequest) (any, error) {
	by, err := author(r, in.Reason)
	if err != nil {
		return nil, err
	}
	if err := checkField("/topic", in.Topic); err != nil {
		return nil, err
	}
	events, err := a.deps.Outbox.RetryFailed(r.Context(), in.Topic, by)
	return OutboxChange{Events: events}, err
}

func (a *API) outboxSkip(r *http.Request, in OutboxSkipRequest) (any, error) {
	seq, err := seqOf(r)
	if err != nil {
		return nil, err
	}
	if strings.TrimSpace(in.Reason) == "" {
		return nil, invalidBody([]problem.Fault{{Pointer: "/reason", Code: "required", Message: "is required: it is kept for those who ask later"}})
	}
	by, err := author(r, in.Reason)
	if err != nil {
		return nil, err
	}
	return OutboxChange{Events: 1}, a.deps.Outbox.Skip(r.Context(), seq, by)
}

func (a *API) outboxRepublish(r *http.Request, in OutboxRepublishRequest) (any, error) {
	by, err := author(r, in.Reason)
	if err != nil {
		return nil, err
	}
	s := outbox.Selection{AggregateType: in.AggregateType, AggregateID: in.AggregateID, Topic: in.Topic}
	for pointer, value := range map[string]string{"/aggregate_type": in.AggregateType, "/aggregate_id": in.AggregateID, "/topic": in.Topic} {
		if err := checkField(pointer, value); err != nil {
			return nil, err
		}
	}
	if in.CreatedFrom != nil {
		s.From = *in.CreatedFrom
	}
	if in.CreatedBefore != nil {
		s.Before = *in.CreatedBefore
	}
	found, err := a.deps.Outbox.Republish(r.Context(), s, in.DryRun, by)
	return OutboxRepublished{Events: found.Events, Aggregates: found.Aggregates, DryRun: in.DryRun}, err
}

// checkField refuses a text that PostgreSQL cannot compare with.
func checkField(pointer, value string) error {
	if checkText("", value) == nil {
		return nil
	}
	return invalidBody([]problem.Fault{{Pointer: pointer, Code: "invalid", Message: "contains control characters"}})
}

func fromBlocked(b outbox.Blocked) OutboxEvent {
	return OutboxEvent{
		Seq: b.Seq, EventID: b.ID, State: string(b.State), AggregateType: b.AggregateType, AggregateID: b.AggregateID,
		EventType: b.EventType, Topic: b.Topic, Attempts: b.Attempts, LastError: b.LastError, Behind: b.Behind,
		CreatedAt: b.CreatedAt.UTC(), NextAttemptAt: moment(b.NextAttemptAt),
	}
}
