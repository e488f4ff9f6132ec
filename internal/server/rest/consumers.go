package rest

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/consumers"
	"github.com/millrace/millrace/internal/server/auth"
	"github.com/millrace/millrace/internal/server/problem"
)

// Consumers is what operators can see and do about consumers; *consumers.Operator
// implements it.
type Consumers interface {
	List(ctx context.Context) ([]consumers.Status, error)
	Get(ctx context.Context, name string) (consumers.Status, error)
	Pause(ctx context.Context, name string, by consumers.Author) (consumers.Result, error)
	Resume(ctx context.Context, name string, by consumers.Author) (consumers.Result, error)
	Retry(ctx context.Context, name string, partition int32, by consumers.Author) (consumers.Result, error)
	DeadLetter(ctx context.Context, name string, partition int32, offset int64, by consumers.Author) (consumers.Result, error)
	Seek(ctx context.Context, k consumers.Seek, by consumers.Author) (consumers.Sought, error)
}

// consumersOnly refuses tokens of one tenant: consumers work for all.
func consumersOnly(ctx context.Context) error {
	if auth.From(ctx).Tenant != "" {
		return problem.Forbidden().With("the token sees one tenant only, and consumers are everybody's")
	}
	return nil
}

type consumerListOutput struct{ Body ConsumerList }

// consumerList handles GET /v1/consumers.
func (a *API) consumerList(ctx context.Context, _ *struct{}) (*consumerListOutput, error) {
	if err := consumersOnly(ctx); err != nil {
		return nil, err
	}
	list, err := a.deps.Consumers.List(ctx)
	if err != nil {
		return nil, err
	}
	out := &consumerListOutput{Body: ConsumerList{Consumers: make([]Consumer, len(list))}}
	for i, s := range list {
		out.Body.Consumers[i] = fromStatus(s)
	}
	return out, nil
}

type consumerInput struct {
	Name string `path:"name" maxLength:"100"`
}

type consumerOutput struct{ Body Consumer }

// consumerGet handles GET /v1/consumers/{name}.
func (a *API) consumerGet(ctx context.Context, in *consumerInput) (*consumerOutput, error) {
	if err := consumersOnly(ctx); err != nil {
		return nil, err
	}
	if err := checkText("name", in.Name); err != nil {
		return nil, err
	}
	s, err := a.deps.Consumers.Get(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	return &consumerOutput{Body: fromStatus(s)}, nil
}

// consumerAction makes the handler of an action whose body is a T.
func consumerAction[T any](a *API, act func(r *http.Request, name string, in T) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		result, err := func() (any, error) {
			if err := consumersOnly(r.Context()); err != nil {
				return nil, err
			}
			name := r.PathValue("name")
			if err := checkText("name", name); err != nil {
				return nil, err
			}
			var in T
			if err := a.readRequest(w, r, &in); err != nil {
				return nil, err
			}
			return act(r, name, in)
		}()
		if err == nil {
			status := http.StatusOK
			if action, ok := result.(ConsumerAction); ok && action.Outcome == string(consumers.Pending) {
				status = http.StatusAccepted
			}
			err = writeJSON(w, status, result)
		}
		if err != nil {
			a.fail(w, r, err)
		}
	}
}

// consumerAuthor says who sent a request and why.
func consumerAuthor(r *http.Request, reason string, required bool) (consumers.Author, error) {
	if required && strings.TrimSpace(reason) == "" {
		return consumers.Author{}, invalidBody([]problem.Fault{
			{Pointer: "/reason", Code: "required", Message: "is required: it is kept for those who ask later"}})
	}
	by, err := author(r, reason)
	return consumers.Author{Name: by.Name, Reason: by.Reason}, err
}

// partitionOf reads the partition from the path.
func partitionOf(r *http.Request) (int32, error) {
	n, err := strconv.ParseInt(r.PathValue("partition"), 10, 32)
	if err != nil || n < 0 {
		return 0, badParameter("partition", "wrong_type", "must be a whole number, 0 or more")
	}
	return int32(n), nil
}

// concluded turns the result of an action into the answer. What the owner of a
// partition has refused is a conflict.
func concluded(r consumers.Result, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	switch r.Outcome {
	case consumers.Refused:
		return nil, problem.ConsumerActionRefused().With(r.Detail)
	case consumers.Expired:
		return nil, problem.ConsumerActionRefused().With("the owner of the partition did not confirm it in time: look at the status, and try again")
	case consumers.Pending, consumers.Done:
	}
	return fromResult(r), nil
}

func (a *API) consumerPause(r *http.Request, name string, in ConsumerReason) (any, error) {
	by, err := consumerAuthor(r, in.Reason, false)
	if err != nil {
		return nil, err
	}
	return concluded(a.deps.Consumers.Pause(r.Context(), name, by))
}

func (a *API) consumerResume(r *http.Request, name string, in ConsumerReason) (any, error) {
	by, err := consumerAuthor(r, in.Reason, false)
	if err != nil {
		return nil, err
	}
	return concluded(a.deps.Consumers.Resume(r.Context(), name, by))
}

func (a *API) consumerRetry(r *http.Request, name string, in ConsumerReason) (any, error) {
	partition, err := partitionOf(r)
	if err != nil {
		return nil, err
	}
	by, err := consumerAuthor(r, in.Reason, false)
	if err != nil {
		return nil, err
	}
	return concluded(a.deps.Consumers.Retry(r.Context(), name, partition, by))
}

func (a *API) consumerDeadLetter(r *http.Request, name string, in ConsumerDeadLetterRequest) (any, error) {
	partition, err := partitionOf(r)
	if err != nil {
		return nil, err
	}
	by, err := consumerAuthor(r, in.Reason, true)
	if err != nil {
		return nil, err
	}
	if in.Offset == nil || *in.Offset < 0 {
		return nil, invalidBody([]problem.Fault{
			{Pointer: "/offset", Code: "required", Message: "is required: the offset at which the partition is stalled"}})
	}
	return concluded(a.deps.Consumers.DeadLetter(r.Context(), name, partition, *in.Offset, by))
}

func (a *API) consumerSeek(r *http.Request, name string, in ConsumerSeekRequest) (any, error) {
	by, err := consumerAuthor(r, in.Reason, !in.DryRun)
	if err != nil {
		return nil, err
	}
	k := consumers.Seek{Consumer: name, Partition: consumers.AllPartitions, DryRun: in.DryRun,
		To: consumers.Target{Beginning: in.To == "beginning", End: in.To == "end", Offset: in.Offset, Time: in.Time}}
	if faults := in.faults(); len(faults) > 0 {
		return nil, invalidBody(faults)
	}
	if in.Partition != nil {
		k.Partition = *in.Partition
	}
	found, err := a.deps.Consumers.Seek(r.Context(), k, by)
	if err != nil {
		return nil, err
	}
	return fromSought(found), nil
}

// faults says what is wrong with a seek.
func (in ConsumerSeekRequest) faults() []problem.Fault {
	var faults []problem.Fault
	add := func(pointer, code, message string) {
		faults = append(faults, problem.Fault{Pointer: pointer, Code: code, Message: message})
	}
	targets := 0
	for _, set := range []bool{in.To != "", in.Offset != nil, in.Time != nil} {
		if set {
			targets++
		}
	}
	if targets != 1 {
		add("/to", "required", "exactly one of to, offset and time is required")
	}
	if in.To != "" && in.To != "beginning" && in.To != "end" {
		add("/to", "invalid", "must be beginning or end")
	}
	if in.Offset != nil && *in.Offset < 0 {
		add("/offset", "out_of_range", "must be 0 or more")
	}
	if in.Partition != nil == in.AllPartitions {
		add("/partition", "required", "name one partition, or set all_partitions, and not both")
	}
	if in.Partition != nil && *in.Partition < 0 {
		add("/partition", "out_of_range", "must be 0 or more")
	}
	if in.AllPartitions && in.Offset != nil {
		add("/offset", "invalid", "an offset means something in one partition only")
	}
	return faults
}

func fromStatus(s consumers.Status) Consumer {
	c := Consumer{
		Name: s.Name, Group: s.Group, Topic: s.Topic, Kind: s.Kind, State: string(s.State), Lag: known(s.Lag),
		KafkaError: s.BrokerError, Partitions: make([]ConsumerPartition, len(s.Partitions)),
	}
	if s.Paused != nil {
		c.Paused = &ConsumerPause{At: s.Paused.At, By: s.Paused.By, Reason: s.Paused.Reason}
	}
	for i, p := range s.Partitions {
		c.Partitions[i] = fromPartition(p)
	}
	return c
}

func fromPartition(p consumers.PartitionStatus) ConsumerPartition {
	out := ConsumerPartition{
		Partition: p.Partition, State: string(p.State), Epoch: p.Epoch, Position: known(p.Position), Committed: known(p.Committed),
		End: known(p.End), Lag: known(p.Lag), StalledSince: p.StalledSince, Tries: p.Tries, NextTryAt: p.NextTry, Notice: p.Notice,
	}
	if p.Owner != nil {
		out.Owner = &ConsumerOwner{Instance: p.Owner.Instance, SeenAt: p.Owner.SeenAt, Stale: p.Owner.Stale}
	}
	if p.Cause != nil {
		out.Cause = &ConsumerCause{Class: p.Cause.Class, Code: p.Cause.Code, Error: p.Cause.Error}
	}
	if p.Blocked != nil {
		out.Blocked = &ConsumerBlocked{Offset: p.Blocked.Offset}
		switch key := p.Blocked.Key; {
		case key == nil:
		case utf8.Valid(key):
			text := string(key)
			out.Blocked.Key = &text
		default:
			out.Blocked.KeyBytes = key
		}
	}
	return out
}

// known leaves out what cannot be told.
func known(n int64) *int64 {
	if n == consumers.Unknown {
		return nil
	}
	return &n
}

func fromResult(r consumers.Result) ConsumerAction {
	out := ConsumerAction{ID: r.ID, Action: string(r.Action), Consumer: r.Consumer, Topic: r.Topic,
		Offset: known(r.From), Outcome: string(r.Outcome), Detail: r.Detail}
	if r.Partition != consumers.AllPartitions {
		out.Partition = &r.Partition
	}
	return out
}

func fromSought(s consumers.Sought) ConsumerSought {
	out := ConsumerSought{Consumer: s.Consumer, Topic: s.Topic, Repeats: s.Repeats, Skips: s.Skips, Warnings: s.Warnings,
		DryRun: s.DryRun, Moves: make([]ConsumerMove, len(s.Moves))}
	for i, m := range s.Moves {
		out.Moves[i] = ConsumerMove{Partition: m.Partition, From: known(m.From), To: m.To, Outcome: string(m.Outcome), Detail: m.Detail}
	}
	return out
}
