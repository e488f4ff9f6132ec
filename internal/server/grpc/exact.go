package grpc

import (
	"bytes"
	"encoding/json"
	"math"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/structpb"
)

// structOf is a JSON object as a Struct, whose numbers are doubles. Nil: the text is none,
// or has a number that no double is near.
func structOf(text []byte) *structpb.Struct {
	if len(text) == 0 {
		return nil
	}
	var members map[string]any
	if err := json.Unmarshal(text, &members); err != nil {
		return nil
	}
	s, err := structpb.NewStruct(members)
	if err != nil {
		return nil
	}
	return s
}

// structText is a Struct as JSON, members by name, whole numbers without a point. The
// error names the field.
func structText(name string, s *structpb.Struct) ([]byte, error) {
	members := make(map[string]any, len(s.GetFields()))
	for k, v := range s.GetFields() {
		value, ok := plain(v)
		if !ok {
			return nil, invalid(name, "out_of_range", "has a number that JSON cannot write")
		}
		members[k] = value
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(members); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(out.Bytes()), nil
}

// maxWhole is up to where every whole number is a double.
const maxWhole = 1 << 53

// plain is a Value as encoding/json writes it; ok is false for NaN and infinities.
func plain(v *structpb.Value) (value any, ok bool) {
	switch k := v.GetKind().(type) {
	case *structpb.Value_NumberValue:
		f := k.NumberValue
		if f == math.Trunc(f) && math.Abs(f) <= maxWhole {
			return int64(f), true
		}
		return f, !math.IsNaN(f) && !math.IsInf(f, 0)
	case *structpb.Value_StringValue:
		return k.StringValue, true
	case *structpb.Value_BoolValue:
		return k.BoolValue, true
	case *structpb.Value_StructValue:
		members := make(map[string]any, len(k.StructValue.GetFields()))
		for name, v := range k.StructValue.GetFields() {
			if members[name], ok = plain(v); !ok {
				return nil, false
			}
		}
		return members, true
	case *structpb.Value_ListValue:
		items := make([]any, len(k.ListValue.GetValues()))
		for i, v := range k.ListValue.GetValues() {
			if items[i], ok = plain(v); !ok {
				return nil, false
			}
		}
		return items, true
	}
	return nil, true // null, and a Value that says nothing
}

// variables are those of a request: the text, which must be a JSON object, or else the
// Struct; nil when neither is set.
func variables(name string, s *structpb.Struct, text []byte) (json.RawMessage, error) {
	switch {
	case len(text) > 0:
		return object(name+"_json", text)
	case s != nil:
		return structText(name, s)
	}
	return nil, nil
}

// object checks that a text is a JSON object.
func object(name string, text []byte) (json.RawMessage, error) {
	if len(text) == 0 {
		return nil, nil
	}
	if !utf8.Valid(text) || !json.Valid(text) {
		return nil, invalid(name, "invalid_json", "is not valid JSON")
	}
	if bytes.TrimLeft(text, " \t\r\n")[0] != '{' {
		return nil, invalid(name, "wrong_type", "must be a JSON object")
	}
	return text, nil
}
