package graphql

import (
	"fmt"
	"time"
)

// Limits bound what one request may ask for. A limit that is broken refuses the
// request before anything is read from the database, and the error names it as it
// is named in the configuration.
type Limits struct {
	// BodyBytes bounds the body of a request. Defaults to 1 MiB.
	BodyBytes int64
	// Tokens bounds the words and signs of a document. Defaults to 2500.
	Tokens int
	// Depth bounds how deep fields lie within each other, and objects of arguments
	// and variables likewise. Introspection has its own. Defaults to 10.
	Depth int
	// Cost bounds the fields that an answer may have, by estimate: the sizes of
	// lists within each other multiply. Defaults to 200 000.
	Cost int
	// RootFields bounds the fields of the query itself. Defaults to 20.
	RootFields int
	// Aliases bounds the fields that are given another name. Defaults to 50.
	Aliases int
	// Directives bounds the directives of a document. Defaults to 50.
	Directives int
	// ListLength bounds each list in arguments and variables. Defaults to 1000.
	ListLength int
	// PageSize bounds how many rows a list may ask for at once. Defaults to 1000.
	PageSize int
	// Concurrency bounds the statements that all requests of this process run at
	// once. Defaults to 4.
	Concurrency int
	// Timeout bounds the work for one request. Defaults to 10 s.
	Timeout time.Duration
}

// Names of limits: those of the settings.
const (
	limitBodyBytes  = "graphql.max_body_bytes"
	limitTokens     = "graphql.max_tokens" //nolint:gosec // the name of a setting, no credential
	limitDepth      = "graphql.max_depth"
	limitCost       = "graphql.max_cost"
	limitRootFields = "graphql.max_root_fields"
	limitAliases    = "graphql.max_aliases"
	limitDirectives = "graphql.max_directives"
	limitListLength = "graphql.max_list_length"
	limitPageSize   = "graphql.max_page_size"
	limitTimeout    = "graphql.timeout"
	limitBatch      = "batch"
	limitFragments  = "fragment_cycle"
	limitName       = "name_bytes"
	limitRepeated   = "repeated_fields"
)

func (l Limits) withDefaults() Limits {
	set := func(n *int, value int) {
		if *n <= 0 {
			*n = value
		}
	}
	if l.BodyBytes <= 0 {
		l.BodyBytes = 1 << 20
	}
	if l.Timeout <= 0 {
		l.Timeout = 10 * time.Second
	}
	set(&l.Tokens, 2500)
	set(&l.Depth, 10)
	set(&l.Cost, 200_000)
	set(&l.RootFields, 20)
	set(&l.Aliases, 50)
	set(&l.Directives, 50)
	set(&l.ListLength, 1000)
	set(&l.PageSize, 1000)
	set(&l.Concurrency, 4)
	return l
}

// LimitError says which limit a request breaks.
type LimitError struct {
	// Limit is the name of the setting, or of what cannot be set.
	Limit string
	// Allowed is the limit, and Found what the request asks for, at least; 0 where
	// there is no number.
	Allowed, Found int64
	// Message says it in words.
	Message string
}

func (e *LimitError) Error() string { return e.Message }

func beyond(limit string, allowed, found int, format string, args ...any) *LimitError {
	return &LimitError{
		Limit: limit, Allowed: int64(allowed), Found: int64(found),
		Message: fmt.Sprintf(format, args...) + fmt.Sprintf(": at most %d may be (%s)", allowed, limit),
	}
}
