package pipeline

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/topics"
)

// Handler is what a consumer does with its records. Make one with On, OnBatch, OnTx,
// OnBatchTx or Mux. A mistake in making it, such as a type that is no event, is
// reported by Consumer.Validate.
type Handler struct {
	kind   kind
	routes []route
	err    error
}

type kind uint8

const (
	none kind = iota
	each
	eachTx
	batchTx
	batch
)

func (k kind) String() string {
	switch k {
	case each:
		return "On"
	case eachTx:
		return "OnTx"
	case batchTx:
		return "OnBatchTx"
	case batch:
		return "OnBatch"
	default:
		return "none"
	}
}

// transactional reports whether the position in PostgreSQL is the truth.
func (k kind) transactional() bool { return k == eachTx || k == batchTx }

// inBatches reports whether a handler takes several records in one call.
func (k kind) inBatches() bool { return k == batchTx || k == batch }

// route is the way of one parameter type through a handler.
type route struct {
	// eventType selects the events; empty for the catch-alls.
	eventType string
	// envelope and record mark the catch-alls.
	envelope, record bool
	decode           func(*middleware.Item) (any, error)
	call             func(ctx context.Context, tx Tx, values []any) error
}

// On makes a handler for effects that may happen twice. The record is acked
// after fn returns nil. E is an event type, topics.Envelope or topics.Record.
func On[E any](fn func(ctx context.Context, e E) error) Handler {
	return newHandler[E](each, fn == nil, func(ctx context.Context, _ Tx, values []any) error {
		return fn(ctx, values[0].(E))
	})
}

// OnTx makes a handler for effects in PostgreSQL: what fn does and publishes
// through tx, and the position in the topic, are one transaction. fn must not
// keep tx. E is an event type, topics.Envelope or topics.Record.
func OnTx[E any](fn func(ctx context.Context, tx Tx, e E) error) Handler {
	return newHandler[E](eachTx, fn == nil, func(ctx context.Context, tx Tx, values []any) error {
		return fn(ctx, tx, values[0].(E))
	})
}

// OnBatchTx makes a handler like OnTx for up to Consumer.BatchSize records of
// one partition in one transaction. The slice is in offset order and never
// empty; with Mux, a batch is cut where the type changes, so that order holds
// across types. When fn fails because of one record, it is called again with
// fewer of them, each time in a new transaction, until the bad record is alone.
func OnBatchTx[E any](fn func(ctx context.Context, tx Tx, batch []E) error) Handler {
	return newHandler[E](batchTx, fn == nil, func(ctx context.Context, tx Tx, values []any) error {
		return fn(ctx, tx, sliceOf[E](values))
	})
}

func sliceOf[E any](values []any) []E {
	events := make([]E, len(values))
	for i, v := range values {
		events[i] = v.(E)
	}
	return events
}

// OnBatch makes a handler like On for up to Consumer.BatchSize records of one
// partition in one call. The slice is in offset order and never empty; with Mux, a
// batch is cut where the type changes. The records are acked after fn returns nil.
// When it fails, all of them may be handed to it again, with fewer in each call, so
// that one which is to blame ends up alone.
func OnBatch[E any](fn func(ctx context.Context, batch []E) error) Handler {
	return newHandler[E](batch, fn == nil, func(ctx context.Context, _ Tx, values []any) error {
		return fn(ctx, sliceOf[E](values))
	})
}

// Mux joins handlers of several types into one. All must be of one kind. An
// event goes to the handler of its type, else to one of topics.Envelope, else to
// one of topics.Record. Two handlers of one type are an error.
func Mux(handlers ...Handler) Handler {
	if len(handlers) == 0 {
		return Handler{err: errors.New("mux: no handlers")}
	}
	m := Handler{kind: handlers[0].kind}
	var errs []error
	seen := make(map[string]bool)
	for _, h := range handlers {
		if h.err != nil {
			errs = append(errs, h.err)
			continue
		}
		if h.kind != m.kind {
			errs = append(errs, fmt.Errorf("mux: joins %s with %s", m.kind, h.kind))
		}
		for _, r := range h.routes {
			if seen[r.name()] {
				errs = append(errs, fmt.Errorf("mux: two handlers for %s", r.name()))
			}
			seen[r.name()] = true
			m.routes = append(m.routes, r)
		}
	}
	m.err = errors.Join(errs...)
	return m
}

func (r route) name() string {
	switch {
	case r.envelope:
		return "topics.Envelope"
	case r.record:
		return "topics.Record"
	default:
		return r.eventType
	}
}

func (h Handler) problem() error {
	if h.err != nil {
		return h.err
	}
	if h.kind == none {
		return errors.New("handle is empty: want On, OnBatch, OnTx, OnBatchTx or Mux")
	}
	return nil
}

func newHandler[E any](k kind, missing bool, call func(context.Context, Tx, []any) error) Handler {
	if missing {
		return Handler{kind: k, err: fmt.Errorf("%s: the function is nil", k)}
	}
	var zero E
	r := route{call: call}
	switch e := any(zero).(type) {
	case topics.Record:
		r.record = true
		r.decode = func(i *middleware.Item) (any, error) { return i.Record, nil }
	case topics.Envelope:
		r.envelope = true
		r.decode = func(i *middleware.Item) (any, error) { return i.Envelope() }
	case topics.Event:
		t := reflect.TypeFor[E]()
		if t.Kind() == reflect.Pointer {
			return Handler{kind: k, err: fmt.Errorf("%s: %v: take the event as a value, not as a pointer", k, t)}
		}
		r.eventType = e.EventType()
		r.decode = decodeEvent[E]
	default:
		return Handler{kind: k, err: fmt.Errorf("%s: %v is neither an event (topics.Event) nor topics.Envelope nor topics.Record",
			k, reflect.TypeFor[E]())}
	}
	return Handler{kind: k, routes: []route{r}}
}

// table finds the route of a record.
type table struct {
	byType           map[string]*route
	envelope, record *route
}

func (h Handler) table() table {
	t := table{byType: make(map[string]*route, len(h.routes))}
	for i := range h.routes {
		r := &h.routes[i]
		switch {
		case r.envelope:
			t.envelope = r
		case r.record:
			t.record = r
		default:
			t.byType[r.eventType] = r
		}
	}
	return t
}

// route returns the route of the item, or nil when no handler wants its type.
// The error is a message fault.
func (t table) route(item *middleware.Item) (*route, error) {
	if len(t.byType) == 0 && t.envelope == nil {
		return t.record, nil
	}
	env, err := item.Envelope()
	switch {
	case err != nil && t.record != nil:
		return t.record, nil
	case err != nil:
		return nil, err
	}
	if r := t.byType[env.Type]; r != nil {
		return r, nil
	}
	if t.envelope != nil {
		return t.envelope, nil
	}
	return t.record, nil
}
