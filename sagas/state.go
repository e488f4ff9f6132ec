package sagas

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// checkState says why values of type t cannot be kept as JSON and come back as they were.
// t is what the state, input or output of a step is declared as.
func checkState(t reflect.Type) error {
	if t.Kind() != reflect.Struct && t.Kind() != reflect.Map {
		return fmt.Errorf("%v is no struct: a state is a JSON object", t)
	}
	var errs []error
	checkType(t, t.String(), make(map[reflect.Type]bool), &errs)
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	zero := reflect.New(t)
	text, err := json.Marshal(zero.Interface())
	if err != nil {
		return fmt.Errorf("%v cannot be written as JSON: %w", t, err)
	}
	back := reflect.New(t)
	if err := json.Unmarshal(text, back.Interface()); err != nil {
		return fmt.Errorf("%v cannot be read back from its JSON %s: %w", t, text, err)
	}
	if again, err := json.Marshal(back.Interface()); err != nil || string(again) != string(text) {
		return fmt.Errorf("%v does not come back from JSON as it was: %s became %s", t, text, again)
	}
	return nil
}

// checkType adds to errs what of t would be lost. path names it for people.
func checkType(t reflect.Type, path string, seen map[reflect.Type]bool, errs *[]error) {
	fail := func(format string, args ...any) {
		*errs = append(*errs, fmt.Errorf("%s: "+format, append([]any{path}, args...)...))
	}
	if seen[t] {
		return
	}
	seen[t] = true
	if own, err := hasOwnForm(t); own || err != nil {
		if err != nil {
			fail("%w", err)
		}
		return
	}
	switch t.Kind() {
	case reflect.Chan, reflect.Func, reflect.UnsafePointer, reflect.Complex64, reflect.Complex128, reflect.Uintptr:
		fail("a %s cannot be kept: a saga goes on in other processes, so its state is data only; give what a step works with to the saga's constructor", t.Kind())
	case reflect.Interface:
		if t.NumMethod() > 0 {
			fail("a value of the interface %v cannot be read back: name a type that it is", t)
		}
	case reflect.Pointer, reflect.Slice, reflect.Array:
		checkType(t.Elem(), path, seen, errs)
	case reflect.Map:
		checkType(t.Key(), path+" (key)", seen, errs)
		checkType(t.Elem(), path, seen, errs)
	case reflect.Struct:
		for i := range t.NumField() {
			checkField(t.Field(i), path, seen, errs)
		}
	}
}

func checkField(f reflect.StructField, path string, seen map[reflect.Type]bool, errs *[]error) {
	path += "." + f.Name
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	switch {
	case name == "-" && f.Tag.Get("json") == "-":
		*errs = append(*errs, fmt.Errorf("%s: is left out of JSON, so the next step would not see it", path))
	case !f.IsExported() && !f.Anonymous:
		*errs = append(*errs, fmt.Errorf("%s: is not exported, so the next step would not see it", path))
	default:
		checkType(f.Type, path, seen, errs)
	}
}

// hasOwnForm says whether a type writes and reads itself; one that only writes is an error.
func hasOwnForm(t reflect.Type) (bool, error) {
	p := reflect.PointerTo(t)
	for _, form := range []struct {
		name          string
		write, read   reflect.Type
		writer, other string
	}{
		{"JSON", reflect.TypeFor[json.Marshaler](), reflect.TypeFor[json.Unmarshaler](), "MarshalJSON", "UnmarshalJSON"},
		{"text", reflect.TypeFor[encoding.TextMarshaler](), reflect.TypeFor[encoding.TextUnmarshaler](), "MarshalText", "UnmarshalText"},
	} {
		if t.Kind() == reflect.Interface || !t.Implements(form.write) && !p.Implements(form.write) {
			continue
		}
		if !p.Implements(form.read) {
			return true, fmt.Errorf("%v has %s and no %s, so it cannot be read back", t, form.writer, form.other)
		}
		return true, nil
	}
	return false, nil
}

// changed returns the members of after, a JSON object, that before does not have like
// that, and null for those that are gone.
func changed(before, after json.RawMessage) (json.RawMessage, error) {
	var was, is map[string]json.RawMessage
	if err := json.Unmarshal(before, &was); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(after, &is); err != nil {
		return nil, err
	}
	for name, value := range was {
		now, kept := is[name]
		switch {
		case !kept:
			is[name] = json.RawMessage("null")
		case string(now) == string(value):
			delete(is, name)
		}
	}
	return json.Marshal(is)
}

// overlaid returns base with the members of over, both JSON objects, over may be nil.
func overlaid(base, over json.RawMessage) (json.RawMessage, error) {
	if len(over) == 0 {
		return base, nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(base, &members); err != nil {
		return nil, err
	}
	if members == nil {
		members = make(map[string]json.RawMessage)
	}
	var more map[string]json.RawMessage
	if err := json.Unmarshal(over, &more); err != nil {
		return nil, err
	}
	for name, value := range more {
		members[name] = value
	}
	return json.Marshal(members)
}
