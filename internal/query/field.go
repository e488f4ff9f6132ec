package query

import "slices"

// Kind is what a field holds, which says how it can be compared.
type Kind string

// The kinds.
const (
	Text Kind = "text"
	// Enum is text from a short list that a collection knows, such as a status.
	Enum Kind = "enum"
	// Int is compared as int64.
	Int  Kind = "int"
	Time Kind = "time"
	Bool Kind = "bool"
	// JSON is a document; it is compared at a path.
	JSON Kind = "json"
)

// Field is a declared field of a collection: the only things that filters, orders
// and aggregates can name. What a field is called here is what REST calls it.
type Field struct {
	Name string
	Kind Kind
	// Nullable fields may be without a value.
	Nullable bool
	// Values are those of an Enum.
	Values []string
	// Groupable fields may be grouped by, Orderable ones ordered by.
	Groupable, Orderable bool
	// Doc is one sentence for references, without a full stop.
	Doc string
}

// Schema describes a collection.
type Schema struct {
	// Name is that of the collection in messages, in the plural: "workflow instances".
	Name string
	// Fields are in the order of the documentation.
	Fields []Field
	// Key names the fields that make up the identity of a row.
	Key []string
	// Durations are the declared durations that Aggregate can compute.
	Durations []string
	// Searchable says whether Search works on it.
	Searchable bool

	table    string
	columns  map[string]string
	duration map[string]string
	search   string
	// visible is a condition that every listed row meets; empty for all.
	visible string
	// order is how lists come that ask for no order.
	order []Order
	scope scopeColumns
}

// Field finds a field by its name.
func (s *Schema) Field(name string) (Field, bool) {
	i := slices.IndexFunc(s.Fields, func(f Field) bool { return f.Name == name })
	if i < 0 {
		return Field{}, false
	}
	return s.Fields[i], true
}

// DefaultOrder returns how lists come that ask for no order.
func (s *Schema) DefaultOrder() []Order { return slices.Clone(s.order) }

// names lists the fields that pass.
func (s *Schema) names(pass func(Field) bool) []string {
	var names []string
	for _, f := range s.Fields {
		if pass(f) {
			names = append(names, f.Name)
		}
	}
	return names
}
