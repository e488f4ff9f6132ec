package query

import "slices"

// schema is a Schema with the ways to read a row.
type schema[R any] struct {
	Schema
	// at returns where each selected column is scanned to, by field. Fields that are
	// not in it are for filters only.
	at map[string]func(*R) any
	// selected are the fields of at, in the order of the statement.
	selected []string
	// parseKey reads the id of a row, as clients write it, into the values of Key.
	parseKey func(id string) ([]any, error)
	// id is the opposite.
	id func(*R) string
}

// field is a declaration: what clients see, the SQL behind it, and where the value
// goes in a row, which is nil for fields that only filters can name.
type field[R any] struct {
	Field
	column string
	at     func(*R) any
}

// declare makes the part of a schema that follows from its fields.
func declare[R any](s Schema, fields []field[R]) *schema[R] {
	out := &schema[R]{Schema: s, at: make(map[string]func(*R) any, len(fields))}
	out.columns = make(map[string]string, len(fields))
	for _, f := range fields {
		out.Fields = append(out.Fields, f.Field)
		out.columns[f.Name] = f.column
		if f.at != nil {
			out.at[f.Name] = f.at
			out.selected = append(out.selected, f.Name)
		}
	}
	return out
}

// dests returns where a row of the selected fields is scanned to.
func (s *schema[R]) dests(r *R) []any {
	dests := make([]any, len(s.selected))
	for i, name := range s.selected {
		dests[i] = s.at[name](r)
	}
	return dests
}

// singleKey makes a schema whose key is one text field.
func singleKey[R any](s *schema[R], id func(*R) string) *schema[R] {
	s.id = id
	s.parseKey = func(id string) ([]any, error) {
		if !storable(id) {
			return nil, notFound(&s.Schema, id)
		}
		return []any{id}, nil
	}
	return s
}

// The small words of declarations.

func required(f Field) Field { f.Nullable = false; return f }

func textField(name, doc string) Field {
	return Field{Name: name, Kind: Text, Nullable: true, Doc: doc}
}

func orderable(f Field) Field { f.Orderable = true; return f }

func groupable(f Field) Field { f.Groupable = true; return f }

func timeField(name, doc string) Field {
	return Field{Name: name, Kind: Time, Nullable: true, Orderable: true, Doc: doc}
}

func intField(name, doc string) Field { return Field{Name: name, Kind: Int, Nullable: true, Doc: doc} }

func jsonField(name, doc string) Field {
	return Field{Name: name, Kind: JSON, Nullable: true, Doc: doc}
}

func enumField(name, doc string, values ...string) Field {
	return Field{Name: name, Kind: Enum, Nullable: true, Groupable: true, Orderable: true, Values: slices.Clone(values), Doc: doc}
}

// statuses are those of workflow and task instances.
func statuses() []string {
	return []string{"CREATED", "RUNNING", "SUSPENDED", "WAITING", "COMPLETED", "FAULTED", "CANCELLED"}
}
