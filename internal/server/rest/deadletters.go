package rest

import (
	"context"
	"strings"
	"time"

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
	Edit(ctx context.Context, e deadletter.Edit) error
	Archive(ctx context.Context, sel deadletter.Selection, actor, reason string) (deadletter.Changed, error)
	Restore(ctx context.Context, sel deadletter.Selection, actor, reason string) (deadletter.Changed, error)
	Delete(ctx context.Context, ids []string, actor, reason string) (deadletter.Changed, error)

	Estimate(ctx context.Context, o deadletter.Order) (deadletter.Result, error)
	Start(ctx context.Context, o deadletter.Order) (deadletter.Job, error)
	Job(ctx context.Context, id string) (deadletter.Job, error)
	Jobs(ctx context.Context, states []deadletter.JobState, p deadletter.Page) (deadletter.JobList, error)
	JobItems(ctx context.Context, id string, bad bool, p deadletter.Page) (deadletter.JobItems, error)
	Pause(ctx context.Context, id, actor, reason string) error
	Resume(ctx context.Context, id, actor, reason string) error
	Cancel(ctx context.Context, id, actor, reason string) error
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
	Archived     string    `query:"archived" enum:"only,any" doc:"only: those that are archived; any: these too; without it, those that are not"`
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
		FailedAfter: in.FailedAfter, FailedBefore: in.FailedBefore, Heads: in.Parking, Archived: deadletter.Archived(in.Archived),
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
				return f, badParameter("status", "invalid", "%q is not a status: use OPEN, REDRIVEN, RESOLVED, DISCARDED or DELETED", clip(text))
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
