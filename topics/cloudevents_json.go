package topics

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// DecodeJSON reads one event in structured mode. Every error is a *DecodeError.
// The envelope shares no memory with data.
func DecodeJSON(data []byte) (Envelope, error) {
	env, err := decodeStructured(data)
	if err != nil {
		return Envelope{}, err
	}
	env.Data = bytes.Clone(env.Data)
	return env, nil
}

// DecodeBatchJSON reads a JSON array of events. It reads all or nothing: the Field
// of a *DecodeError begins with the index of the event at fault, such as
// "/3/time". An empty array is no error.
func DecodeBatchJSON(data []byte) ([]Envelope, error) {
	if !utf8.Valid(data) {
		return nil, fault(CodeInvalidUTF8, "", "is not UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	if t, err := dec.Token(); err != nil || t != json.Delim('[') {
		return nil, fault(CodeMalformedJSON, "", "want an array of events")
	}
	envs := []Envelope{}
	for dec.More() {
		at := "/" + strconv.Itoa(len(envs))
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return nil, malformedJSON(at, err)
		}
		env, err := decodeStructured(raw)
		if err != nil {
			err.Field = strings.TrimSuffix(at+"/"+strings.TrimPrefix(err.Field, "/"), "/")
			return nil, err
		}
		envs = append(envs, env)
	}
	if _, err := dec.Token(); err != nil {
		return nil, malformedJSON("", err)
	}
	if err := atEnd(dec); err != nil {
		return nil, err
	}
	return envs, nil
}

// looksLikeObject reports whether data begins like a JSON object.
func looksLikeObject(data []byte) bool {
	trimmed := bytes.TrimLeft(data, " \t\r\n")
	return len(trimmed) > 0 && trimmed[0] == '{'
}

// structuredScan collects what the members of one JSON object say.
type structuredScan struct {
	env         Envelope
	specVersion string
	time        string
	data        json.RawMessage // nil: no data member
	base64      *string         // nil: no data_base64 member
}

// decodeStructured reads the object member by member rather than into a map, to
// tell a member that occurs twice: two readers might not agree which one counts. The
// envelope shares Data with data.
func decodeStructured(data []byte) (Envelope, *DecodeError) {
	if !utf8.Valid(data) {
		return Envelope{}, fault(CodeInvalidUTF8, "", "is not UTF-8")
	}
	if !looksLikeObject(data) || !json.Valid(data) {
		return decodeBroken(data)
	}
	var s structuredScan
	var seen names
	for name, raw := range Members(data) {
		if seen.has(name) {
			return Envelope{}, fault(CodeDuplicateAttribute, printable(name), "occurs more than once")
		}
		if err := s.member(name, raw); err != nil {
			return Envelope{}, err
		}
	}
	return s.finish()
}

// names is a set of the names of members. Events have about ten, for which a map would
// be slow, and hostile ones as many as fit, for which a list would be.
type names struct {
	few  [16]string
	n    int
	many map[string]struct{}
}

// has reports whether the name was there, and adds it.
func (s *names) has(name string) bool {
	if slices.Contains(s.few[:s.n], name) {
		return true
	}
	if s.n < len(s.few) {
		s.few[s.n] = name
		s.n++
		return false
	}
	if s.many == nil {
		s.many = make(map[string]struct{})
	}
	_, known := s.many[name]
	s.many[name] = struct{}{}
	return known
}

// decodeBroken is decodeStructured for what is no JSON object: it finds out where it
// stops being one, or which other fault comes before that.
func decodeBroken(data []byte) (Envelope, *DecodeError) {
	dec := json.NewDecoder(bytes.NewReader(data))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return Envelope{}, fault(CodeMalformedJSON, "", "want a JSON object")
	}
	var s structuredScan
	seen := make(map[string]struct{}, 12)
	for dec.More() {
		t, err := dec.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return Envelope{}, malformedJSON("", err)
		}
		if _, twice := seen[name]; twice {
			return Envelope{}, fault(CodeDuplicateAttribute, printable(name), "occurs more than once")
		}
		seen[name] = struct{}{}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return Envelope{}, malformedJSON(printable(name), err)
		}
		if err := s.member(name, raw); err != nil {
			return Envelope{}, err
		}
	}
	if _, err := dec.Token(); err != nil {
		return Envelope{}, malformedJSON("", err)
	}
	if err := atEnd(dec); err != nil {
		return Envelope{}, err
	}
	return s.finish()
}

func (s *structuredScan) member(name string, raw json.RawMessage) *DecodeError {
	if name == "data" {
		s.data = raw
		return nil
	}
	value, present, ok := scalar(raw)
	if !ok {
		return fault(CodeInvalidAttribute, printable(name), "is neither text nor a number nor a boolean")
	}
	if !present {
		return nil
	}
	var field *string
	switch name {
	case "id":
		field = &s.env.ID
	case "type":
		field = &s.env.Type
	case "source":
		field = &s.env.Source
	case "specversion":
		field = &s.specVersion
	case "time":
		field = &s.time
	case "subject":
		field = &s.env.Subject
	case "dataschema":
		field = &s.env.DataSchema
	case "datacontenttype":
		field = &s.env.DataContentType
	case "data_base64":
		s.base64 = new(string)
		field = s.base64
	case "":
		return fault(CodeInvalidAttribute, "", "an attribute without a name")
	default:
		return s.env.addExtension(name, value)
	}
	if raw[0] != '"' {
		return fault(CodeInvalidAttribute, name, "is not text")
	}
	*field = value
	return nil
}

// scalar returns the text of a JSON value that an attribute may have. A null is
// the same as no attribute.
func scalar(raw json.RawMessage) (value string, present, ok bool) {
	switch raw[0] {
	case 'n':
		return "", false, true
	case '"':
		return unquoted(raw), true, true
	case '{', '[':
		return "", false, false
	}
	return string(raw), true, true
}

func (s *structuredScan) finish() (Envelope, *DecodeError) {
	if s.data != nil && s.base64 != nil {
		return Envelope{}, fault(CodeDataConflict, "data_base64", "stands beside data")
	}
	if err := s.env.finish(s.specVersion, s.time); err != nil {
		return Envelope{}, err
	}
	switch {
	case s.base64 != nil:
		data, err := base64.StdEncoding.DecodeString(*s.base64)
		if err != nil {
			return Envelope{}, fault(CodeInvalidBase64, "data_base64", "is not base64")
		}
		s.env.Data = data
	case s.data == nil:
	case jsonMediaType(s.env.DataContentType) || s.data[0] != '"':
		s.env.Data = s.data
	default:
		// Text under a content type that is not JSON is that text.
		var text string
		if err := json.Unmarshal(s.data, &text); err != nil {
			return Envelope{}, malformedJSON("data", err)
		}
		s.env.Data = []byte(text)
	}
	return s.env, nil
}

// malformedJSON words an error of the JSON decoder without repeating the input.
func malformedJSON(field string, err error) *DecodeError {
	var syntax *json.SyntaxError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fault(CodeMalformedJSON, field, "ends too early")
	case errors.As(err, &syntax):
		return fault(CodeMalformedJSON, field, "syntax error at byte "+strconv.FormatInt(syntax.Offset, 10))
	}
	return fault(CodeMalformedJSON, field, "is not JSON")
}

func atEnd(dec *json.Decoder) *DecodeError {
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return fault(CodeMalformedJSON, "", "more follows after the end")
	}
	return nil
}

// EncodeJSON writes the event in structured mode. Data that is JSON, by its
// content type and in fact, becomes the data member byte by byte (but for white
// space around it); text becomes a JSON string; anything else becomes
// data_base64. It succeeds for every envelope that was read or passes Validate;
// otherwise the error is a *DecodeError.
func EncodeJSON(e Envelope) ([]byte, error) {
	if err := e.checkWritable(); err != nil {
		return nil, err
	}
	return e.appendJSON(make([]byte, 0, 512+len(e.Data))), nil
}

// EncodeBatchJSON writes events as a JSON array. It fails when EncodeJSON fails for
// one of them.
func EncodeBatchJSON(envs []Envelope) ([]byte, error) {
	b := []byte{'['}
	for i, e := range envs {
		if err := e.checkWritable(); err != nil {
			return nil, err
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = e.appendJSON(b)
	}
	return append(b, ']'), nil
}

func (e Envelope) appendJSON(b []byte) []byte {
	b = append(b, `{"specversion":"`+SpecVersion+`"`...)
	add := func(name, value string) {
		if value != "" {
			b = appendMember(b, name, value)
		}
	}
	add("id", e.ID)
	add("source", e.Source)
	add("type", e.Type)
	add("subject", e.Subject)
	if !e.Time.IsZero() {
		add("time", e.Time.UTC().Format(time.RFC3339Nano))
	}
	add("datacontenttype", e.DataContentType)
	add("dataschema", e.DataSchema)
	if e.Sequence > 0 {
		add("sequence", strconv.FormatInt(e.Sequence, 10))
	}
	add("traceparent", e.TraceParent)
	add("tracestate", e.TraceState)
	add("correlationid", e.CorrelationID)
	add("causationid", e.CausationID)
	for _, name := range e.extensionNames() {
		if e.ownsExtension(name) {
			b = appendMember(b, name, e.Extensions[name])
		}
	}
	return append(e.appendData(b), '}')
}

func (e Envelope) appendData(b []byte) []byte {
	isJSON := jsonMediaType(e.DataContentType)
	switch {
	case e.Data == nil:
		return b
	case isJSON && utf8.Valid(e.Data) && json.Valid(e.Data):
		return append(append(b, `,"data":`...), e.Data...)
	case !isJSON && strings.HasPrefix(baseMediaType(e.DataContentType), "text/") && utf8.Valid(e.Data):
		return appendMember(b, "data", string(e.Data))
	}
	b = append(b, `,"data_base64":"`...)
	return append(base64.StdEncoding.AppendEncode(b, e.Data), '"')
}

// appendMember appends a member with a text. Marshalling a string cannot fail.
func appendMember(b []byte, name, value string) []byte {
	b = append(b, ',')
	b = appendText(b, name)
	b = append(b, ':')
	return appendText(b, value)
}

func appendText(b []byte, s string) []byte {
	text, _ := json.Marshal(s)
	return append(b, text...)
}
