package grpc

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/millrace/millrace/internal/server/problem"
)

// The messages of millrace.v1 are the bodies of the REST interface, field by field, under
// the same names. The exceptions:
//
//   - bytes x_json is the JSON value x as it is written; beside a Struct x it wins
//   - an enum is its name without the prefix, timestamps are RFC 3339, durations such as
//     "1m30s", bytes in base64
//   - a field that is not set is not there

// key is the name of a field in JSON.
func key(fd protoreflect.FieldDescriptor) string {
	name := string(fd.Name())
	if fd.JSONName() != camel(name) {
		return fd.JSONName() // written in the protobuf file
	}
	if of, raw := rawJSON(fd); raw {
		return of
	}
	return name
}

// camel is the JSON name that protoc gives to fields whose file says none.
func camel(name string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(name, "_") {
		if b.Len() > 0 && part != "" {
			part = strings.ToUpper(part[:1]) + part[1:]
		}
		b.WriteString(part)
	}
	return b.String()
}

// rawJSON reports whether a field holds JSON text, and under which name JSON has it.
func rawJSON(fd protoreflect.FieldDescriptor) (string, bool) {
	name, found := strings.CutSuffix(string(fd.Name()), "_json")
	if !found || fd.Kind() != protoreflect.BytesKind {
		return "", false
	}
	beside := fd.ContainingMessage().Fields().ByName(protoreflect.Name(name))
	if beside != nil && !isStruct(beside) {
		return string(fd.Name()), true // the name is somebody else's
	}
	return name, true
}

func isStruct(fd protoreflect.FieldDescriptor) bool {
	return fd.Message() != nil && fd.Message().FullName() == (&structpb.Struct{}).ProtoReflect().Descriptor().FullName()
}

// shadowed reports whether a Struct is passed over because its text is set.
func shadowed(m protoreflect.Message, fd protoreflect.FieldDescriptor) bool {
	if !isStruct(fd) {
		return false
	}
	text := m.Descriptor().Fields().ByName(fd.Name() + "_json")
	return text != nil && m.Has(text)
}

// encode is a message as JSON, without the fields that skip names.
func encode(m protoreflect.Message, skip ...string) ([]byte, error) {
	out := []byte{'{'}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if !m.Has(fd) || shadowed(m, fd) || contains(skip, fd) {
			continue
		}
		value, err := encodeField(fd, m.Get(fd))
		if err != nil {
			return nil, err
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, '"'), key(fd)...), '"', ':')
		out = append(out, value...)
	}
	return append(out, '}'), nil
}

func contains(names []string, fd protoreflect.FieldDescriptor) bool {
	for _, name := range names {
		if name == string(fd.Name()) {
			return true
		}
	}
	return false
}

func encodeField(fd protoreflect.FieldDescriptor, v protoreflect.Value) ([]byte, error) {
	switch {
	case fd.IsMap():
		texts := map[string]string{}
		v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
			texts[k.String()] = v.String()
			return true
		})
		return json.Marshal(texts)
	case fd.IsList():
		out := []byte{'['}
		for i := range v.List().Len() {
			item, err := encodeValue(fd, v.List().Get(i))
			if err != nil {
				return nil, err
			}
			if i > 0 {
				out = append(out, ',')
			}
			out = append(out, item...)
		}
		return append(out, ']'), nil
	}
	return encodeValue(fd, v)
}

func encodeValue(fd protoreflect.FieldDescriptor, v protoreflect.Value) ([]byte, error) {
	name := string(fd.Name())
	switch fd.Kind() {
	case protoreflect.EnumKind:
		text, ok := enumText(fd, v.Enum())
		if !ok {
			return nil, invalid(name, "invalid", "has a value that is not known")
		}
		return json.Marshal(text)
	case protoreflect.BytesKind:
		if _, raw := rawJSON(fd); !raw {
			return json.Marshal(base64.StdEncoding.EncodeToString(v.Bytes()))
		}
		if !utf8.Valid(v.Bytes()) || !json.Valid(v.Bytes()) {
			return nil, invalid(name, "invalid_json", "is not valid JSON")
		}
		return v.Bytes(), nil
	case protoreflect.MessageKind:
		return encodeMessage(name, v.Message())
	case protoreflect.DoubleKind:
		if f := v.Float(); math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, invalid(name, "out_of_range", "must be a finite number")
		}
		return json.Marshal(v.Float())
	default:
		return json.Marshal(v.Interface())
	}
}

func encodeMessage(name string, m protoreflect.Message) ([]byte, error) {
	switch m := m.Interface().(type) {
	case *timestamppb.Timestamp:
		if m.CheckValid() != nil {
			return nil, invalid(name, "out_of_range", "is no time between the years 1 and 9999")
		}
		return json.Marshal(m.AsTime())
	case *durationpb.Duration:
		if m.CheckValid() != nil || m.AsDuration().Seconds() > math.MaxInt64/1e9 {
			return nil, invalid(name, "out_of_range", "is too long a duration")
		}
		return json.Marshal(m.AsDuration().String())
	case *structpb.Struct:
		return structText(name, m)
	}
	return encode(m)
}

// enumText is a value of an enum as REST writes it.
func enumText(fd protoreflect.FieldDescriptor, n protoreflect.EnumNumber) (string, bool) {
	value := fd.Enum().Values().ByNumber(n)
	if value == nil || n == 0 {
		return "", false
	}
	return strings.TrimPrefix(string(value.Name()), enumPrefix(fd.Enum())), true
}

// enumPrefix is what the names of an enum's values begin with: that of its first, which is
// ..._UNSPECIFIED.
func enumPrefix(e protoreflect.EnumDescriptor) string {
	return strings.TrimSuffix(string(e.Values().Get(0).Name()), "UNSPECIFIED")
}

// query is a message as the parameters of a request.
func query(m protoreflect.Message, skip ...string) (url.Values, error) {
	q := url.Values{}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if !m.Has(fd) || contains(skip, fd) {
			continue
		}
		values := []protoreflect.Value{m.Get(fd)}
		if fd.IsList() {
			values = values[:0]
			for i := range m.Get(fd).List().Len() {
				values = append(values, m.Get(fd).List().Get(i))
			}
		}
		for _, v := range values {
			text, err := encodeValue(fd, v)
			if err != nil {
				return nil, err
			}
			var unquoted string
			if json.Unmarshal(text, &unquoted) != nil {
				unquoted = string(text) // a number or a boolean
			}
			q.Add(key(fd), unquoted)
		}
	}
	return q, nil
}

// decode fills a message from JSON. What the message does not have is passed over.
func decode(text []byte, m protoreflect.Message) error {
	members := map[string]json.RawMessage{}
	if err := json.Unmarshal(text, &members); err != nil {
		return err
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		raw, found := members[key(fd)]
		if !found || bytes.Equal(raw, []byte("null")) {
			continue
		}
		if err := decodeField(fd, raw, m); err != nil {
			return fmt.Errorf("%s: %w", fd.FullName(), err)
		}
	}
	return nil
}

func decodeField(fd protoreflect.FieldDescriptor, raw json.RawMessage, m protoreflect.Message) error {
	switch {
	case fd.IsMap():
		texts := map[string]string{}
		if err := json.Unmarshal(raw, &texts); err != nil {
			return err
		}
		for k, v := range texts {
			m.Mutable(fd).Map().Set(protoreflect.ValueOfString(k).MapKey(), protoreflect.ValueOfString(v))
		}
		return nil
	case fd.IsList():
		var items []json.RawMessage
		if err := json.Unmarshal(raw, &items); err != nil {
			return err
		}
		list := m.Mutable(fd).List()
		for _, item := range items {
			v, err := decodeValue(fd, item, list.NewElement)
			if err != nil {
				return err
			}
			list.Append(v)
		}
		return nil
	}
	v, err := decodeValue(fd, raw, func() protoreflect.Value { return m.NewField(fd) })
	if err == nil && v.IsValid() {
		m.Set(fd, v)
	}
	return err
}

func decodeValue(fd protoreflect.FieldDescriptor, raw json.RawMessage, fresh func() protoreflect.Value) (protoreflect.Value, error) {
	switch fd.Kind() {
	case protoreflect.BoolKind:
		v, err := strconv.ParseBool(string(raw))
		return protoreflect.ValueOfBool(v), err
	case protoreflect.Int32Kind:
		v, err := strconv.ParseInt(string(raw), 10, 32)
		return protoreflect.ValueOfInt32(int32(v)), err
	case protoreflect.Int64Kind:
		v, err := strconv.ParseInt(string(raw), 10, 64)
		return protoreflect.ValueOfInt64(v), err
	case protoreflect.DoubleKind:
		v, err := strconv.ParseFloat(string(raw), 64)
		return protoreflect.ValueOfFloat64(v), err
	case protoreflect.BytesKind:
		if _, isJSON := rawJSON(fd); isJSON {
			return protoreflect.ValueOfBytes(raw), nil
		}
		var data []byte
		err := json.Unmarshal(raw, &data)
		return protoreflect.ValueOfBytes(data), err
	case protoreflect.MessageKind:
		v := fresh()
		return v, decodeMessage(raw, v.Message())
	default:
		return decodeText(fd, raw)
	}
}

// decodeText is a string, or an enum.
func decodeText(fd protoreflect.FieldDescriptor, raw json.RawMessage) (protoreflect.Value, error) {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return protoreflect.Value{}, err
	}
	if fd.Kind() == protoreflect.EnumKind {
		value := fd.Enum().Values().ByName(protoreflect.Name(enumPrefix(fd.Enum()) + text))
		if value == nil {
			return protoreflect.ValueOfEnum(0), nil // a state that this message does not know yet
		}
		return protoreflect.ValueOfEnum(value.Number()), nil
	}
	return protoreflect.ValueOfString(text), nil
}

func decodeMessage(raw json.RawMessage, m protoreflect.Message) error {
	switch m := m.Interface().(type) {
	case *timestamppb.Timestamp:
		var at time.Time
		if err := json.Unmarshal(raw, &at); err != nil {
			return err
		}
		proto.Merge(m, timestamppb.New(at))
		return nil
	case *durationpb.Duration:
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return err
		}
		d, err := time.ParseDuration(text)
		proto.Merge(m, durationpb.New(d))
		return err
	case *structpb.Struct:
		if s := structOf(raw); s != nil {
			proto.Merge(m, s)
		}
		return nil
	}
	return decode(raw, m)
}

// fromProblem reads a problem that REST answered with.
func fromProblem(text []byte, status int) *problem.Problem {
	p := &problem.Problem{}
	if err := json.Unmarshal(text, p); err != nil || p.Code == "" {
		return problem.Internal().With(fmt.Sprintf("an answer with status %d has no problem in it", status))
	}
	return p
}
