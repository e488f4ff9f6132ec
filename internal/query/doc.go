// Package query reads the read models: lists, rows by their ids, rows of many
// parents at once, counts and aggregates. REST and GraphQL are thin over it.
//
// A Store has one Collection per read model. What can be asked of it is declared,
// field by field (Schema); a Filter is a tree of tests of declared fields. Every
// statement is made of text from the declarations, and what callers say goes into
// arguments, so that there is nothing to inject.
//
//	store := query.NewStore(pool, query.Limits{})
//	page, err := store.WorkflowInstances().List(ctx, query.Scope{}, query.Request{
//		Filter: query.And{
//			query.Test{Field: "status", Op: query.Eq, Value: "FAULTED"},
//			query.Test{Field: "input", Path: []string{"customer", "id"}, Op: query.Eq, Value: "c-1"},
//		},
//		Page: query.Page{First: 20},
//	})
//
// # Order and paging
//
// Orders are total, and cursors hold the place in the order rather than a number of
// rows, so a list can be paged through while rows are written: see Collection.List
// for what is promised. A cursor is good for its collection, filter, order and scope
// only; with others the error is ErrCursor.
//
// # Bounds
//
// Limits bound what a query may ask for, and statements end after Limits.Timeout
// with ErrTimeout. A query is refused with the limit that it breaks, before it
// reaches the database.
//
// # Consistency
//
// Each call is one statement, hence one snapshot. Read models follow the events by
// some tens of milliseconds; two calls may see different states. Nothing is written,
// so nothing is to be repaired after a crash.
package query
