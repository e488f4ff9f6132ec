package graphql

import (
	"reflect"
	"strings"
)

// given returns what is set of an input that gqlgen has read: by the names of the
// schema, inputs within it as maps and lists of them as lists of maps. Of what the
// caller left out or gave as null there is nothing. It is how inputs that differ by
// the names of their fields only, as all filters do, are read by the same code.
func given(input any) map[string]any {
	v := reflect.ValueOf(input)
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return nil
		}
		v = v.Elem()
	}
	out := make(map[string]any, v.NumField())
	for i := range v.NumField() {
		field := v.Field(i)
		if (field.Kind() == reflect.Pointer || field.Kind() == reflect.Slice) && field.IsNil() {
			continue
		}
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		switch {
		case isInput(field.Type()):
			out[name] = given(field.Interface())
		case field.Kind() == reflect.Slice && isInput(field.Type().Elem()):
			out[name] = givenAll(field)
		default:
			out[name] = field.Interface()
		}
	}
	return out
}

func givenAll(list reflect.Value) []map[string]any {
	out := make([]map[string]any, list.Len())
	for i := range out {
		out[i] = given(list.Index(i).Interface())
	}
	return out
}

// isInput reports whether a type is an input of the schema: gqlgen makes structs of
// them, whose names end as theirs do.
func isInput(t reflect.Type) bool {
	return t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct && strings.HasSuffix(t.Elem().Name(), "Input")
}

// orders returns what is set of each of several orders.
func orders[T any](in []*T) []map[string]any {
	out := make([]map[string]any, len(in))
	for i, one := range in {
		out[i] = given(one)
	}
	return out
}
