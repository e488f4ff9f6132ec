// Package schema is what gqlgen makes of api/graphql: it reads arguments, calls the
// resolvers and writes answers. `make graphql` makes it anew.
package schema
