// Package graphql answers GraphQL queries over the read models: the data index
// (workflow instances and their tasks), executions, pods and sagas. The schema is in
// api/graphql. There are no mutations.
//
// # A request
//
// is decoded strictly, parsed under a limit of tokens, measured (depth, aliases,
// directives, lists, and how often fragments are spread) before the validator sees
// it, validated, and its cost estimated from the sizes of its lists, which multiply.
// Only then is anything read. A request that breaks a limit is refused with an error
// that names the limit, how much is allowed and how much was asked for.
//
// Reading goes through package query: no SQL is made here. Statements of all
// requests together pass a gate, so that GraphQL cannot take the pool of connections
// for itself, and all of a request ends with its time-out. Rows that were read
// together load what belongs to them together, see package object.
//
// # Errors
//
// carry a stable code in their extensions. Texts of the database, of Go and of
// panics stay in the log, under the request id.
//
// Answers follow the read models: they are as far as the projections are, some tens
// of milliseconds behind the events. Two fields of one query are read by two
// statements and may see different moments.
package graphql
