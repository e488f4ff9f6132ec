package query

// Filter selects rows. It is a tree of And, Or and Not over Test and Search; nil
// selects everything. Filters are values: they can be built in code, or read from
// JSON by ParseFilter.
//
// Every test is true or false of a row, never unknown: a field without a value
// equals nothing, is like nothing, and is neither above nor below anything, so that
// these tests are false of it and their Not is true of it. Ne is the Not of Eq.
type Filter interface{ filter() }

// And holds when all of its parts hold; empty, it always does.
type And []Filter

// Or holds when one of its parts holds; empty, it never does.
type Or []Filter

// Not holds when its part does not.
type Not struct{ Filter Filter }

// Test compares a field.
type Test struct {
	Field string
	// Path leads into a field of kind JSON: names of members, and indexes of arrays as
	// decimal numbers. Empty, it is the document itself. Nil for other kinds.
	Path []string
	Op   Op
	// Value is what the field is compared with:
	//
	//	Text, Enum  string (or a type made from it)
	//	Int         int, int32 or int64
	//	Time        time.Time
	//	Bool        bool
	//	JSON        string, bool, int, int64, float64, json.Number, nil, and for Eq and
	//	            Ne also json.RawMessage, an array or object of any depth
	//
	// For In it is a []any of these. For IsNull and Exists it is a bool: false asks for
	// the opposite.
	Value any
}

// Search is full text search over names, errors and documents. The text is what
// people type into search boxes: words must all be there, "a phrase" in quotes in
// this order, -word not; or stands between alternatives. Words are compared without
// case and whole.
type Search struct{ Text string }

func (And) filter()    {}
func (Or) filter()     {}
func (Not) filter()    {}
func (Test) filter()   {}
func (Search) filter() {}

// Op is how a Test compares.
type Op string

// The operators. JSON fields take all of them: Like and ILike are true of texts
// only, ranges of values of the same type as the given one.
const (
	Eq Op = "eq"
	Ne Op = "ne"
	In Op = "in"
	// Like compares with a pattern: % stands for any text, _ for one character, \
	// takes the meaning from the next character. ILike does not tell the case of
	// letters apart (those of ASCII). For Text and Enum.
	Like  Op = "like"
	ILike Op = "ilike"
	// Prefix: begins with the text, in which nothing has a special meaning.
	Prefix Op = "prefix"
	// The ranges. For Text they compare bytes, for Enum they are refused.
	Gt  Op = "gt"
	Gte Op = "gte"
	Lt  Op = "lt"
	Lte Op = "lte"
	// IsNull: has no value. At a path: there is nothing, or null.
	IsNull Op = "is_null"
	// Exists: the path leads to something, which may be null. JSON only.
	Exists Op = "exists"
	// Contains: the document at the path contains the value: each member of an object
	// and each item of an array of the value is in it, at any depth. JSON only.
	Contains Op = "contains"
)

// Ops returns the operators that fields of a kind take.
func Ops(k Kind) []Op {
	switch k {
	case Text:
		return []Op{Eq, Ne, In, Like, ILike, Prefix, Gt, Gte, Lt, Lte, IsNull}
	case Enum:
		return []Op{Eq, Ne, In, Like, ILike, Prefix, IsNull}
	case Int, Time:
		return []Op{Eq, Ne, In, Gt, Gte, Lt, Lte, IsNull}
	case Bool:
		return []Op{Eq, Ne, IsNull}
	case JSON:
		return []Op{Eq, Ne, In, Like, ILike, Prefix, Gt, Gte, Lt, Lte, IsNull, Exists, Contains}
	}
	return nil
}
