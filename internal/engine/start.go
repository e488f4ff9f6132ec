package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/millrace/millrace/internal/workflow"
)

// Bounds of what is stored of a StartRequest.
const (
	maxKeyBytes  = 255
	priorityNone = 3
)

// Start makes an instance of a definition and leads it as far as it goes without
// waiting. An ID that exists, of the same definition, gives the instance as it is.
func (e *Engine) Start(ctx context.Context, r StartRequest) (Instance, error) {
	found, errs := e.StartMany(ctx, []StartRequest{r})
	return found[0], errs[0]
}

// StartMany is Start for several, with an outcome each in their order.
func (e *Engine) StartMany(ctx context.Context, rs []StartRequest) ([]Instance, []error) {
	return e.startAll(ctx, rs, false)
}

// StartInOrder is StartMany for requests of which none is to be started before those ahead
// of it: behind the first that cannot be started although nothing is wrong with it, such as
// one of a definition that is not there, none is tried, and all have its error. One that is
// itself at fault (ErrInvalid) holds up nobody.
func (e *Engine) StartInOrder(ctx context.Context, rs []StartRequest) ([]Instance, []error) {
	return e.startAll(ctx, rs, true)
}

func (e *Engine) startAll(ctx context.Context, rs []StartRequest, ordered bool) ([]Instance, []error) {
	found, errs := make([]Instance, len(rs)), make([]error, len(rs))
	requests, place := make([]*request, 0, len(rs)), make([]int, 0, len(rs))
	for i := range rs {
		s, err := e.seed(ctx, rs[i])
		if err != nil && ordered && !errors.Is(err, ErrInvalid) {
			for behind := i; behind < len(rs); behind++ {
				errs[behind] = err
			}
			break
		}
		if err != nil {
			errs[i] = err
			continue
		}
		requests = append(requests, startRequest(s, rs[i].ID != uuid.Nil, &found[i]))
		place = append(place, i)
	}
	if len(requests) == 0 {
		return found, errs
	}
	for i, err := range e.askAll(ctx, requests) {
		errs[place[i]] = err
		if err != nil {
			found[place[i]] = Instance{}
		}
	}
	return found, errs
}

// startRequest makes an instance. One whose id a client has chosen may exist.
func startRequest(s seed, chosen bool, out *Instance) *request {
	r := newRequest(needs{}, func(ctx context.Context, u *unit) error {
		if x := u.existing[s.id]; x != nil {
			return again(x, s, out)
		}
		if l := u.instances[s.id]; l != nil {
			return again(l.row, s, out)
		}
		l, err := u.plant(ctx, s, false)
		if err != nil {
			return err
		}
		*out = l.instance()
		return nil
	})
	r.starts, r.weight = s.id, len(s.state.Variables)
	if chosen {
		r.needs.exists = s.id
	}
	return r
}

// again gives the instance that there is under the id of a request.
func again(x *row, s seed, out *Instance) error {
	if x.definition != s.definition {
		return workflow.Refuse(ErrConflict, "instance %s exists and is one of %s, not of %s", s.id, x.definition, s.definition)
	}
	*out = x.instance()
	return nil
}

// seed checks a request and finds its plan.
func (e *Engine) seed(ctx context.Context, r StartRequest) (seed, error) {
	for _, text := range []struct{ name, value string }{
		{"business key", r.BusinessKey}, {"tenant", r.Tenant}, {"user", r.User}, {"correlation id", r.CorrelationID}, {"definition id", r.DefinitionID},
	} {
		if err := storable(text.name, text.value); err != nil {
			return seed{}, err
		}
	}
	switch {
	case r.DefinitionID == "":
		return seed{}, workflow.Refuse(ErrInvalid, "a definition id is required")
	case r.Version < 0:
		return seed{}, workflow.Refuse(ErrInvalid, "version %d of a definition cannot be; leave it out for the latest", r.Version)
	case r.Priority < 0 || r.Priority > 5:
		return seed{}, workflow.Refuse(ErrInvalid, "priority is %d, want 1 to 5 (the most urgent)", r.Priority)
	}
	plan, version, err := e.config.Plans.Plan(ctx, r.DefinitionID, r.Version)
	if err != nil {
		return seed{}, err
	}
	var origin json.RawMessage
	if r.Origin != nil {
		if origin, err = json.Marshal(r.Origin); err != nil {
			return seed{}, workflow.Refuse(ErrInvalid, "the origin cannot be written: %v", err)
		}
	}
	id := r.ID
	if id == uuid.Nil {
		id = newID()
	}
	return seed{plan: plan, row: row{
		id: id, kind: kindOf(plan), definition: r.DefinitionID, definitionVersion: version,
		businessKey: r.BusinessKey, tenant: r.Tenant, user: r.User, priority: cmp.Or(r.Priority, priorityNone),
		correlation: r.CorrelationID, execution: r.ExecutionID, origin: origin, state: workflow.State{Variables: object(r.Variables)},
	}}, nil
}

// storable refuses what PostgreSQL would refuse, and take a transaction down with it.
func storable(name, value string) error {
	if len(value) > maxKeyBytes {
		return workflow.Refuse(ErrInvalid, "the %s has %d bytes, %d are allowed", name, len(value), maxKeyBytes)
	}
	if !utf8.ValidString(value) || strings.ContainsRune(value, 0) {
		return workflow.Refuse(ErrInvalid, "the %s is not UTF-8 without zero bytes", name)
	}
	return nil
}
