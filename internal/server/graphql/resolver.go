package graphql

import (
	"context"
	"errors"

	gql "github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/millrace/millrace/internal/query"
	"github.com/millrace/millrace/internal/server/auth"
	"github.com/millrace/millrace/internal/server/graphql/object"
	"github.com/millrace/millrace/internal/server/graphql/schema"
)

// resolver answers the fields of the query. What belongs to rows is resolved by the
// objects themselves, see package object.
type resolver struct {
	store  *query.Store
	limits Limits
	// gate holds one token per statement that may run.
	gate chan struct{}
}

// Query implements schema.ResolverRoot.
func (r *resolver) Query() schema.QueryResolver { return r }

// internalError is an error whose text is not for the caller.
type internalError struct{ error }

func (e internalError) Unwrap() error { return e.error }

// read runs one statement when it is its turn.
func read[T any](ctx context.Context, r *resolver, statement func() (T, error)) (T, error) {
	var none T
	select {
	case r.gate <- struct{}{}:
		defer func() { <-r.gate }()
	case <-ctx.Done():
		return none, ctx.Err()
	}
	found, err := statement()
	if err != nil {
		return none, outward(err)
	}
	return found, nil
}

// outward marks what must not reach the caller as it is.
func outward(err error) error {
	var invalid *query.InvalidError
	var limit *query.LimitError
	for _, known := range []error{query.ErrNotFound, query.ErrCursor, query.ErrScope, query.ErrTimeout, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, known) {
			return err
		}
	}
	if errors.As(err, &invalid) || errors.As(err, &limit) {
		return err
	}
	return internalError{err}
}

// scopeOf bounds what the caller sees to its tenant.
func scopeOf(ctx context.Context) query.Scope { return query.Scope{Tenant: auth.From(ctx).Tenant} }

// pageArgs are the arguments of a connection.
type pageArgs struct {
	first, last   *int
	after, before *string
}

// page checks the arguments. empty says that no rows are wanted at all.
func (r *resolver) page(a pageArgs) (p query.Page, empty bool, err error) {
	for name, n := range map[string]*int{"first": a.first, "last": a.last} {
		if n == nil {
			continue
		}
		if *n < 0 {
			return p, false, invalid("%s must not be negative", name)
		}
		if *n > r.limits.PageSize {
			return p, false, beyond(limitPageSize, r.limits.PageSize, *n, "%s is %d", name, *n)
		}
	}
	switch {
	case a.first != nil && a.last != nil:
		return p, false, invalid("give first or last, not both")
	case a.first != nil:
		p.First, empty = *a.first, *a.first == 0
	case a.last != nil:
		p.Last, empty = *a.last, *a.last == 0
	default:
		p.First = min(pageDefault, r.limits.PageSize)
	}
	if a.after != nil {
		p.After = *a.after
	}
	if a.before != nil {
		p.Before = *a.before
	}
	return p, empty, nil
}

// offsetPage checks limit and offset, as the data index has them.
func (r *resolver) offsetPage(limit, offset *int) (p query.Page, empty bool, err error) {
	p.First = min(listDefault, r.limits.PageSize)
	if limit != nil {
		p.First = *limit
	}
	if offset != nil {
		p.Offset = *offset
	}
	switch {
	case p.First < 0:
		return p, false, invalid("limit must not be negative")
	case p.First > r.limits.PageSize:
		return p, false, beyond(limitPageSize, r.limits.PageSize, p.First, "limit is %d", p.First)
	case p.Offset < 0:
		return p, false, invalid("offset must not be negative")
	}
	return p, p.First == 0, nil
}

// connect reads one page of a collection.
func connect[R, T any](
	ctx context.Context, r *resolver, c query.Collection[R], wrap func([]R) []T, words vocabulary,
	args pageArgs, filter map[string]any, orderBy []map[string]any,
) (*object.Connection[T], error) {
	f, err := words.filter(filter)
	if err != nil {
		return nil, err
	}
	page, empty, err := r.page(args)
	if err != nil {
		return nil, err
	}
	return connection(ctx, r, c, wrap, query.Request{Filter: f, Order: words.order(orderBy...), Page: page}, empty)
}

func connection[R, T any](
	ctx context.Context, r *resolver, c query.Collection[R], wrap func([]R) []T, req query.Request, empty bool,
) (*object.Connection[T], error) {
	scope := scopeOf(ctx)
	total := func(ctx context.Context) (int64, error) {
		return read(ctx, r, func() (int64, error) { return c.Count(ctx, scope, req.Filter) })
	}
	var l query.List[R]
	if !empty && selects(ctx, "edges", "nodes", "pageInfo") {
		var err error
		if l, err = read(ctx, r, func() (query.List[R], error) { return c.List(ctx, scope, req) }); err != nil {
			return nil, err
		}
	}
	return object.NewConnection(l, wrap(l.Rows), total), nil
}

// listed reads rows by limit and offset.
func listed[R, T any](
	ctx context.Context, r *resolver, c query.Collection[R], wrap func([]R) []T, words vocabulary,
	filter, orderBy map[string]any, limit, offset *int,
) ([]T, error) {
	f, err := words.filter(filter)
	if err != nil {
		return nil, err
	}
	page, empty, err := r.offsetPage(limit, offset)
	if err != nil {
		return nil, err
	}
	if empty {
		return []T{}, nil
	}
	l, err := read(ctx, r, func() (query.List[R], error) {
		return c.List(ctx, scopeOf(ctx), query.Request{Filter: f, Order: words.order(orderBy), Page: page})
	})
	return wrap(l.Rows), err
}

// one reads the row with an id; nil when there is none.
func one[R, T any](ctx context.Context, r *resolver, c query.Collection[R], wrap func([]R) []T, id string) (T, error) {
	var none T
	row, err := read(ctx, r, func() (R, error) { return c.Get(ctx, scopeOf(ctx), id) })
	if errors.Is(err, query.ErrNotFound) {
		return none, nil
	}
	if err != nil {
		return none, err
	}
	return wrap([]R{row})[0], nil
}

// selects reports whether the field that is being resolved selects one of the
// names, whatever they are called in the answer.
func selects(ctx context.Context, names ...string) bool {
	return within(gql.GetOperationContext(ctx), gql.GetFieldContext(ctx).Field.Selections, names)
}

func within(op *gql.OperationContext, set ast.SelectionSet, names []string) bool {
	for _, f := range gql.CollectFields(op, set, nil) {
		for _, name := range names {
			if f.Name == name {
				return true
			}
		}
	}
	return false
}
