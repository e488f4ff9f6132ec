package graphql

import (
	"context"
	"slices"

	"github.com/millrace/millrace/internal/query"
)

// offspring reads what belongs to many rows, in one statement. Without a limit of
// the caller's it asks for as many rows of each as fit into one answer, and then, in
// a second statement, for those of the few that have more. What has more than that
// can be had as a list of its own, and the error says so.
func offspring[R any](
	ctx context.Context, r *resolver, ids []string, limit int,
	load func(context.Context, query.Scope, []string, query.Children) (map[string]query.Offspring[R], error),
) (map[string]query.Offspring[R], error) {
	limits := r.store.Limits()
	batch := func(ids []string, limit int) (map[string]query.Offspring[R], error) {
		return read(ctx, r, func() (map[string]query.Offspring[R], error) {
			return load(ctx, scopeOf(ctx), ids, query.Children{Limit: limit})
		})
	}
	if limit > 0 {
		return batch(ids, limit)
	}
	fit := func(parents int) int { return max(1, min(limits.PageSize, limits.ChildRows/max(1, parents))) }
	first := fit(len(ids))
	found, err := batch(ids, first)
	if err != nil || first == limits.PageSize {
		return found, err
	}
	var larger []string
	for id, of := range found {
		if of.More {
			larger = append(larger, id)
		}
	}
	if len(larger) == 0 {
		return found, nil
	}
	slices.Sort(larger)
	second := fit(len(larger))
	all, err := batch(larger, second)
	if err != nil {
		return nil, err
	}
	for id, of := range all {
		if of.More && second < limits.PageSize {
			return nil, &query.LimitError{Limit: "child_rows", Max: limits.ChildRows, Got: limits.ChildRows + 1,
				Hint: "say with limit how many of each you want, or ask for a shorter list"}
		}
		found[id] = of
	}
	return found, nil
}

// wrapChildren makes objects of all rows at once, so that all are siblings, and
// gives each parent its own.
func wrapChildren[R, T any](found map[string]query.Offspring[R], ids []string, wrap func([]R) []T) map[string][]T {
	var rows []R
	for _, id := range ids {
		rows = append(rows, found[id].Rows...)
	}
	objects := wrap(rows)
	out := make(map[string][]T, len(found))
	for _, id := range ids {
		n := len(found[id].Rows)
		out[id], objects = objects[:n:n], objects[n:]
	}
	return out
}

// byKey makes objects of all rows at once and returns them by their keys.
func byKey[R, T any](found map[string]R, ids []string, wrap func([]R) []T) map[string]T {
	rows, keys := make([]R, 0, len(found)), make([]string, 0, len(found))
	for _, id := range ids {
		if row, ok := found[id]; ok {
			rows, keys = append(rows, row), append(keys, id)
		}
	}
	out := make(map[string]T, len(rows))
	for i, o := range wrap(rows) {
		out[keys[i]] = o
	}
	return out
}
