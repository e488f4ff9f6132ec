package query

// Order is one part of an order: by a field, smallest first unless Descending.
// Fields without a value are smaller than all values, so they come last in a
// descending list. Rows that are equal in all parts follow their key, in the
// direction of the last part, so every order is total.
type Order struct {
	Field      string
	Descending bool
}

// Page says which part of a list is wanted: First rows from the beginning or after
// a cursor, or Last rows up to the end or before a cursor. Cursors may be combined,
// which selects what lies between the two.
type Page struct {
	// First and Last are 1 to Limits.PageSize; at most one is set. When neither is,
	// First is Limits.PageSizeDefault.
	First, Last int
	// After and Before are cursors of rows of the same list: the same filter, order
	// and scope. They are exclusive.
	After, Before string
	// Offset skips so many rows, at most Limits.Offset. It excludes cursors and Last.
	// Skipped rows are read, so that cursors are faster far into a list, and unlike
	// cursors it shifts when rows come and go.
	Offset int
}

// Request asks for a part of a list.
type Request struct {
	// Filter is nil for everything.
	Filter Filter
	// Order is empty for Schema.DefaultOrder.
	Order []Order
	Page  Page
}

// List is the answer to a Request.
type List[R any] struct {
	Rows []R
	// HasNext and HasPrevious tell whether there are rows after the last and before
	// the first of this page. The side that the page was not read towards is told from
	// the request: there is something before a page that came After a cursor.
	HasNext, HasPrevious bool

	cursor func(*R) string
}

// NewList makes a list of rows from elsewhere, with a function that makes their
// cursors: for tests of what shows lists.
func NewList[R any](rows []R, hasNext bool, cursor func(*R) string) List[R] {
	return List[R]{Rows: rows, HasNext: hasNext, cursor: cursor}
}

// Cursor returns the cursor of row i. It is opaque; it holds the values of the order
// and the key of the row, so it stays good when that row changes or goes.
func (l List[R]) Cursor(i int) string { return l.cursor(&l.Rows[i]) }

// Next returns the cursor to pass as After for the next page, or "" at the end.
func (l List[R]) Next() string {
	if !l.HasNext || len(l.Rows) == 0 {
		return ""
	}
	return l.Cursor(len(l.Rows) - 1)
}

// Previous returns the cursor to pass as Before for the page before, or "" at the
// beginning.
func (l List[R]) Previous() string {
	if !l.HasPrevious || len(l.Rows) == 0 {
		return ""
	}
	return l.Cursor(0)
}
