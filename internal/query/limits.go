package query

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// Limits bound what one query may ask for. A query beyond one of them is refused
// with a *LimitError that names it.
type Limits struct {
	// PageSizeDefault and PageSize are how many rows a page has: 50 and 1000.
	PageSizeDefault, PageSize int
	// Offset is 100 000.
	Offset int
	// Conditions is how many tests a filter may have, 64; Depth how deep they may be
	// nested, 12.
	Conditions, Depth int
	// InValues is how many values one In may have, 1000.
	InValues int
	// TextBytes bounds one text to compare with, 4096 bytes, and PatternBytes a
	// pattern, 256, which may have Wildcards %, 8.
	TextBytes, PatternBytes, Wildcards int
	// PathDepth is how long a JSON path may be, 16 parts.
	PathDepth int
	// DocumentBytes bounds a JSON value to compare with, 16 KiB.
	DocumentBytes int
	// SearchBytes bounds the text of a search, 512 bytes, and SearchWords its words, 16.
	SearchBytes, SearchWords int
	// Orders is how many fields a list is ordered by, 3, and GroupBy how many
	// aggregates group by, 2.
	Orders, GroupBy int
	// Groups is how many groups an aggregate may return, 1000.
	Groups int
	// Keys is how many keys one batch may have, 1000, and ChildRows how many rows it
	// may return in all, 20 000.
	Keys, ChildRows int
	// Timeout ends a statement, 10 s.
	Timeout time.Duration
}

// LimitsDefault returns the limits that their documentation names.
func LimitsDefault() Limits {
	return Limits{
		PageSizeDefault: 50, PageSize: 1000, Offset: 100_000,
		Conditions: 64, Depth: 12, InValues: 1000,
		TextBytes: 4096, PatternBytes: 256, Wildcards: 8,
		PathDepth: 16, DocumentBytes: 16 << 10,
		SearchBytes: 512, SearchWords: 16,
		Orders: 3, GroupBy: 2, Groups: 1000,
		Keys: 1000, ChildRows: 20_000,
		Timeout: 10 * time.Second,
	}
}

// Errors of queries. Match them with errors.Is; *InvalidError and *LimitError with
// errors.As.
var (
	// ErrNotFound: there is no row with this key.
	ErrNotFound = errors.New("not found")
	// ErrCursor: the cursor is not one that this list gave out, or it belongs to
	// another filter, order or scope.
	ErrCursor = errors.New("cursor is not valid for this list")
	// ErrTimeout: the statement took longer than Limits.Timeout.
	ErrTimeout = errors.New("the query took too long")
	// ErrScope: the scope is narrower than the collection can be divided.
	ErrScope = errors.New("not visible to a caller who is bound to a tenant or a user")
)

// InvalidError says what is wrong with a query. Its text is for the caller.
type InvalidError struct {
	// Pointer is a JSON pointer into the filter, "" for the filter as a whole or what
	// is not of the filter.
	Pointer string
	// Code is stable: unknown_field, unknown_operator, wrong_type, invalid.
	Code    string
	Message string
}

func (e *InvalidError) Error() string {
	if e.Pointer == "" {
		return e.Message
	}
	return e.Pointer + " " + e.Message
}

// LimitError says which limit a query broke.
type LimitError struct {
	// Limit is its name: page_size, conditions, depth, in_values, ...
	Limit string
	// Max is the limit, Got what was asked for.
	Max, Got int
	// Hint says what to do instead; may be empty.
	Hint string
}

func (e *LimitError) Error() string {
	text := fmt.Sprintf("limit %s exceeded: at most %d, got %d", e.Limit, e.Max, e.Got)
	if e.Hint != "" {
		text += "; " + e.Hint
	}
	return text
}

// withDefaults replaces zeros.
func (l Limits) withDefaults() Limits {
	d := LimitsDefault()
	l.PageSizeDefault, l.PageSize = cmp.Or(l.PageSizeDefault, d.PageSizeDefault), cmp.Or(l.PageSize, d.PageSize)
	l.Offset = cmp.Or(l.Offset, d.Offset)
	l.Conditions, l.Depth = cmp.Or(l.Conditions, d.Conditions), cmp.Or(l.Depth, d.Depth)
	l.InValues = cmp.Or(l.InValues, d.InValues)
	l.TextBytes, l.PatternBytes, l.Wildcards = cmp.Or(l.TextBytes, d.TextBytes), cmp.Or(l.PatternBytes, d.PatternBytes), cmp.Or(l.Wildcards, d.Wildcards)
	l.PathDepth, l.DocumentBytes = cmp.Or(l.PathDepth, d.PathDepth), cmp.Or(l.DocumentBytes, d.DocumentBytes)
	l.SearchBytes, l.SearchWords = cmp.Or(l.SearchBytes, d.SearchBytes), cmp.Or(l.SearchWords, d.SearchWords)
	l.Orders, l.GroupBy, l.Groups = cmp.Or(l.Orders, d.Orders), cmp.Or(l.GroupBy, d.GroupBy), cmp.Or(l.Groups, d.Groups)
	l.Keys, l.ChildRows = cmp.Or(l.Keys, d.Keys), cmp.Or(l.ChildRows, d.ChildRows)
	l.Timeout = cmp.Or(l.Timeout, d.Timeout)
	return l
}
