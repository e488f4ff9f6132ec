package topics

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// compiledSchema checks data in two ways that agree. The plan is one pass over
// the bytes without allocation: what it passes is valid. What it does not pass, or
// cannot judge, goes to the full validator, which decides and words the error. So
// the hot path, which is valid data, is fast, and the full validator has the last
// word on every refusal.
type compiledSchema struct {
	full *jsonschema.Schema
	plan *planNode
}

// noLoader refuses to load anything: schemas refer to nothing outside themselves.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("load %s: schemas stand for themselves", url)
}

func compileSchema(uri string, schema []byte) (*compiledSchema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return nil, fmt.Errorf("parse schema %s: %w", uri, err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	c.UseLoader(noLoader{})
	if err := c.AddResource(uri, doc); err != nil {
		return nil, fmt.Errorf("add schema %s: %w", uri, err)
	}
	full, err := c.Compile(uri)
	if err != nil {
		return nil, fmt.Errorf("compile schema %s: %w", uri, err)
	}
	return &compiledSchema{full: full, plan: planOf(full)}, nil
}

// check returns nil or a *DecodeError. Data that is not JSON at all may pass: the
// caller parses it anyway.
func (s *compiledSchema) check(data []byte) error {
	w := planWalk{data: data}
	if w.value(s.plan) && w.end() {
		return nil
	}
	return s.checkFully(data)
}

func (s *compiledSchema) checkFully(data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	value, ambiguous := readValue(dec, s.plan, "")
	if ambiguous != nil {
		return ambiguous
	}
	if err := atEnd(dec); err != nil {
		return err
	}
	err := s.full.Validate(value)
	if err == nil {
		return nil
	}
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		return fault(CodeSchemaViolation, "", "cannot be validated")
	}
	for len(invalid.Causes) > 0 {
		invalid = invalid.Causes[0]
	}
	pointer, message := violation(invalid)
	return fault(CodeSchemaViolation, pointer, message)
}

// readValue reads the next value as the full validator wants it. An object that
// has a known field twice, or under a name that differs in upper and lower case
// only, is refused: encoding/json would merge or mistake the two, and so decode
// something else than was validated.
func readValue(dec *json.Decoder, n *planNode, at string) (any, *DecodeError) {
	if n == nil || n.kind != planObject && n.kind != planArray {
		var value any
		if err := dec.Decode(&value); err != nil {
			return nil, malformedJSON(at, err)
		}
		return value, nil
	}
	t, err := dec.Token()
	if err != nil {
		return nil, malformedJSON(at, err)
	}
	switch t {
	case json.Delim('{'):
		return readObject(dec, n, at)
	case json.Delim('['):
		return readArray(dec, n, at)
	}
	return t, nil
}

func readArray(dec *json.Decoder, n *planNode, at string) (any, *DecodeError) {
	array := []any{}
	for dec.More() {
		value, err := readValue(dec, n.items, at+jsonPointer(strconv.Itoa(len(array))))
		if err != nil {
			return nil, err
		}
		array = append(array, value)
	}
	if _, err := dec.Token(); err != nil {
		return nil, malformedJSON(at, err)
	}
	return array, nil
}

func readObject(dec *json.Decoder, n *planNode, at string) (any, *DecodeError) {
	object := make(map[string]any)
	for dec.More() {
		t, err := dec.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return nil, malformedJSON(at, err)
		}
		i := n.field([]byte(name))
		_, twice := object[name]
		if like := n.fieldLike([]byte(name)); like != "" && (i < 0 || twice) {
			return nil, fault(CodeAmbiguousField, at+jsonPointer(like), "occurs twice or in other letters")
		}
		sub := n.others
		if i >= 0 {
			sub = n.fields[i].node
		}
		value, fault := readValue(dec, sub, at+jsonPointer(printable(name)))
		if fault != nil {
			return nil, fault
		}
		object[name] = value
	}
	if _, err := dec.Token(); err != nil {
		return nil, malformedJSON(at, err)
	}
	return object, nil
}

// violation words the first violation. It names what the schema wants and never
// what the data holds, since the data may be anybody's secret.
func violation(e *jsonschema.ValidationError) (pointer, message string) {
	at := jsonPointer(e.InstanceLocation...)
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		return at + jsonPointer(k.Missing[0]), "is missing"
	case *kind.Type:
		return at, "is " + k.Got + ", want " + strings.Join(k.Want, " or ")
	case *kind.Enum:
		return at, fmt.Sprintf("is none of %v", k.Want)
	case *kind.Const:
		return at, fmt.Sprintf("is not %v", k.Want)
	case *kind.Minimum:
		return at, "is less than " + k.Want.RatString()
	case *kind.Maximum:
		return at, "is more than " + k.Want.RatString()
	case *kind.MinLength:
		return at, "is shorter than " + strconv.Itoa(k.Want)
	case *kind.MaxLength:
		return at, "is longer than " + strconv.Itoa(k.Want)
	case *kind.Pattern:
		return at, "does not match " + k.Want
	case *kind.Format:
		return at, "is no " + k.Want
	}
	return at, "violates " + strings.Join(e.ErrorKind.KeywordPath(), "/")
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

func jsonPointer(path ...string) string {
	var b strings.Builder
	for _, p := range path {
		b.WriteByte('/')
		b.WriteString(pointerEscapes.Replace(p))
	}
	return b.String()
}
