package topics

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"unicode/utf8"
)

// Decode returns the typed event in env. The data is held against the JSON Schema
// of its type first; a type that is not in the catalogue (a user's own) has no
// schema and is decoded as it is. An event of another type than E is refused with
// CodeUnexpectedType. Every error is a *DecodeError.
//
// E is the struct, not a pointer to it: Decode[topics.ExecutionCompleted](env).
func Decode[E Event](env Envelope) (E, error) {
	var e E
	err := Unmarshal(env, &e)
	return e, err
}

// Unmarshal is Decode into an event that the caller has. On error into is in no
// defined state.
func Unmarshal[E Event](env Envelope, into *E) error {
	// The method of a pointer type is called through a pointer that is not nil.
	if t := reflect.TypeFor[E](); t.Kind() == reflect.Pointer && reflect.ValueOf(*into).IsNil() {
		*into = reflect.New(t.Elem()).Interface().(E)
	}
	if want := (*into).EventType(); env.Type != want {
		return fault(CodeUnexpectedType, "type", "is not "+want)
	}
	if err := checkData(env); err != nil {
		return err
	}
	if err := json.Unmarshal(env.Data, into); err != nil {
		return dataFault(err)
	}
	return nil
}

// DecodeEvent returns the typed event in env, whichever type of the catalogue it
// is, as a struct value. A type that is not in the catalogue is refused with
// CodeUnexpectedType. Every error is a *DecodeError.
func DecodeEvent(env Envelope) (Event, error) {
	t, ok := Lookup(env.Type)
	if !ok {
		return nil, fault(CodeUnexpectedType, "type", "is not in the catalogue")
	}
	if err := checkData(env); err != nil {
		return nil, err
	}
	e := t.New()
	if err := json.Unmarshal(env.Data, e); err != nil {
		return nil, dataFault(err)
	}
	return reflect.ValueOf(e).Elem().Interface().(Event), nil
}

// ValidateData holds the data of env against the JSON Schema of its type. Data of
// a type that is not in the catalogue only has to be JSON. Every error is a
// *DecodeError.
func ValidateData(env Envelope) error {
	if err := checkData(env); err != nil {
		return err
	}
	if !json.Valid(env.Data) {
		return fault(CodeMalformedJSON, "", "the data is not JSON")
	}
	return nil
}

// CheckJSON says whether the data of env claims to be JSON and could be: it looks at
// the content type and the characters, and at neither the syntax nor a schema. Every
// error is a *DecodeError.
func CheckJSON(env Envelope) error {
	switch {
	case !jsonMediaType(env.DataContentType):
		return fault(CodeUnsupportedContentType, "datacontenttype", "is not JSON")
	case len(env.Data) == 0:
		return fault(CodeMalformedJSON, "", "the data is empty")
	case !utf8.Valid(env.Data):
		return fault(CodeInvalidUTF8, "", "the data is not UTF-8")
	}
	return nil
}

// checkData does everything but the JSON syntax, which decoding checks anyway.
func checkData(env Envelope) error {
	if err := CheckJSON(env); err != nil {
		return err
	}
	t, ok := Lookup(env.Type)
	if !ok {
		return nil
	}
	schema, err := t.schema()
	if err != nil {
		// The schemas are part of the program, and tests compile each of them.
		return fault(CodeSchemaViolation, "", "the schema of "+t.Name+" does not compile")
	}
	if err := schema.check(env.Data); err != nil {
		return err
	}
	return nil
}

// dataFault words an error of json.Unmarshal without repeating the input.
func dataFault(err error) *DecodeError {
	var syntax *json.SyntaxError
	var wrongType *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return malformedJSON("", err)
	case errors.As(err, &wrongType):
		return fault(CodeInvalidData, pointerOf(wrongType.Field), "does not fit "+wrongType.Type.String())
	}
	return fault(CodeInvalidData, "", "does not fit its Go type")
}

// pointerOf turns the dotted path of encoding/json into a JSON pointer.
func pointerOf(path string) string {
	if path == "" {
		return ""
	}
	return "/" + strings.ReplaceAll(path, ".", "/")
}
