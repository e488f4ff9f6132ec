// Package object holds the Go side of the GraphQL schema in api/graphql: the
// objects that answers are made of, and the scalars. Inputs are plain maps.
//
// An object is a row of package query and knows the rows that were read with it,
// its siblings: the first of them that is asked for what belongs to it, its tasks
// say, asks for all, in one statement. So a query takes one statement per level
// and field, however many rows there are, and none for what it does not select.
package object
