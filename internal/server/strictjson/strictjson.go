// Package strictjson decodes JSON request bodies and says exactly what is wrong
// with those that it refuses.
//
// It is stricter than encoding/json: an unknown field, a field in another case,
// a field given twice, a number with a fraction where a whole one is wanted and
// anything after the document are faults. It reports all of them at once, each
// with its JSON pointer and a stable code, so that a person mends a request in
// one go. Null counts as absent.
//
// A tolerant decoder is as lenient about names as encoding/json, for contracts whose
// readers always were: unknown fields are ignored, and case does not matter.
//
// A document is checked against the Go type first and then decoded by
// encoding/json, so what a field means is decided in one place.
package strictjson

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
)

// Codes of faults.
const (
	UnknownField   = "unknown_field"
	DuplicateField = "duplicate_field"
	WrongType      = "wrong_type"
	OutOfRange     = "out_of_range"
	InvalidValue   = "invalid"
)

// maxFaults bounds how many faults are reported for one document.
const maxFaults = 50

// Fault is one thing that is wrong with a document.
type Fault struct {
	// Pointer is the JSON pointer of the value; empty for the document itself.
	Pointer string
	Code    string
	Message string
}

// SyntaxError says that a document is not JSON.
type SyntaxError struct {
	// Line and Column count from 1, the column in bytes.
	Line, Column int
	Reason       string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Reason)
}

// FaultsError lists what is wrong with a document that is JSON.
type FaultsError struct{ Faults []Fault }

func (e *FaultsError) Error() string {
	words := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		words[i] = f.Pointer + " " + f.Message
	}
	return strings.Join(words, "; ")
}

// Decoder decodes documents. The zero value is ready to use and safe for
// concurrent use; it remembers the fields of the types it has seen.
type Decoder struct {
	// Tolerant ignores unknown fields and the case of known ones.
	Tolerant bool
	fields   sync.Map
}

// Decode decodes data into dst, a pointer to a struct. The error is a
// *SyntaxError or a *FaultsError. prefix stands before each pointer: where data
// lies in a greater document.
func (d *Decoder) Decode(data []byte, prefix string, dst any) error {
	if !json.Valid(data) {
		return syntaxError(data)
	}
	c := checker{decoder: d, data: data}
	c.value(prefix, reflect.TypeOf(dst).Elem())
	if len(c.faults) > 0 {
		return &FaultsError{Faults: c.faults}
	}
	if err := json.Unmarshal(data, dst); err != nil {
		// Only a type whose own decoding is stricter than its kind gets here.
		return &FaultsError{Faults: []Fault{{Pointer: prefix, Code: InvalidValue, Message: err.Error()}}}
	}
	return nil
}

func syntaxError(data []byte) error {
	if len(bytes.TrimSpace(data)) == 0 {
		return &SyntaxError{Line: 1, Column: 1, Reason: "the body is empty"}
	}
	var ignored json.RawMessage
	err := json.Unmarshal(data, &ignored)
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) {
		return &SyntaxError{Line: 1, Column: 1, Reason: "not a JSON document"}
	}
	before := data[:max(min(int(syntax.Offset)-1, len(data)), 0)]
	return &SyntaxError{
		Line:   bytes.Count(before, []byte("\n")) + 1,
		Column: len(before) - bytes.LastIndexByte(before, '\n'),
		Reason: syntax.Error(),
	}
}

// checker walks a document that json.Valid has accepted beside a Go type. It may
// therefore trust the syntax.
type checker struct {
	decoder *Decoder
	data    []byte
	pos     int
	faults  []Fault
}

func (c *checker) fault(pointer, code, format string, args ...any) {
	if len(c.faults) < maxFaults {
		c.faults = append(c.faults, Fault{Pointer: pointer, Code: code, Message: fmt.Sprintf(format, args...)})
	}
}

// value checks the value at the current position and moves behind it.
func (c *checker) value(pointer string, t reflect.Type) {
	raw := c.peek()
	if raw == 'n' {
		c.skip()
		return
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == reflect.TypeFor[json.RawMessage](), t.Kind() == reflect.Interface:
		c.skip()
	case reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
		c.text(pointer, t)
	case t.Kind() == reflect.Struct:
		c.object(pointer, c.decoder.fieldsOf(t), nil)
	case t.Kind() == reflect.Map:
		c.object(pointer, nil, t.Elem())
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		c.array(pointer, t.Elem())
	default:
		c.scalar(pointer, t)
	}
}

// object checks an object: against fields, or, where they are nil, as a map
// whose values are of the type elem.
func (c *checker) object(pointer string, fields map[string]reflect.Type, elem reflect.Type) {
	if c.peek() != '{' {
		c.wrong(pointer, "an object")
		return
	}
	c.pos++ // {
	seen := make(map[string]struct{}, 8)
	for c.peek() != '}' {
		var name string
		_ = json.Unmarshal(c.skip(), &name)
		c.peek()
		c.pos++ // :
		at := pointer + "/" + Escape(name)
		if c.decoder.Tolerant && fields != nil {
			name = knownAs(name, fields)
		}
		if _, twice := seen[name]; twice {
			c.fault(at, DuplicateField, "is given more than once")
		}
		seen[name] = struct{}{}
		t, known := elem, fields == nil
		if fields != nil {
			t, known = fields[name]
		}
		switch {
		case known:
			c.value(at, t)
		case c.decoder.Tolerant:
			c.skip()
		default:
			c.skip()
			c.fault(at, UnknownField, "is not a known field%s", suggestion(name, fields))
		}
		if c.peek() == ',' {
			c.pos++
		}
	}
	c.pos++ // }
}

// knownAs returns the name of the field that encoding/json would take a name for.
func knownAs(name string, fields map[string]reflect.Type) string {
	if _, exact := fields[name]; exact {
		return name
	}
	for field := range fields {
		if strings.EqualFold(field, name) {
			return field
		}
	}
	return name
}

func (c *checker) array(pointer string, elem reflect.Type) {
	if c.peek() != '[' {
		c.wrong(pointer, "an array")
		return
	}
	c.pos++ // [
	for i := 0; c.peek() != ']'; i++ {
		c.value(pointer+"/"+strconv.Itoa(i), elem)
		if c.peek() == ',' {
			c.pos++
		}
	}
	c.pos++ // ]
}

// text checks a value whose type decodes itself from a string.
func (c *checker) text(pointer string, t reflect.Type) {
	if c.peek() != '"' {
		c.wrong(pointer, "a string")
		return
	}
	var s string
	_ = json.Unmarshal(c.skip(), &s)
	into, _ := reflect.New(t).Interface().(encoding.TextUnmarshaler)
	if err := into.UnmarshalText([]byte(s)); err != nil {
		c.fault(pointer, InvalidValue, "%s", describe(t, err))
	}
}

func (c *checker) scalar(pointer string, t reflect.Type) {
	first := c.peek()
	number := first == '-' || (first >= '0' && first <= '9')
	switch t.Kind() {
	case reflect.String, reflect.Slice:
		if first != '"' {
			c.wrong(pointer, "a string")
			return
		}
		c.skip()
	case reflect.Bool:
		if first != 't' && first != 'f' {
			c.wrong(pointer, "true or false")
			return
		}
		c.skip()
	case reflect.Float32, reflect.Float64:
		if !number {
			c.wrong(pointer, "a number")
			return
		}
		if _, err := strconv.ParseFloat(string(c.skip()), 64); err != nil {
			c.fault(pointer, OutOfRange, "is too large a number")
		}
	default:
		if !number {
			c.wrong(pointer, "a whole number")
			return
		}
		if _, err := strconv.ParseInt(string(c.skip()), 10, t.Bits()); errors.Is(err, strconv.ErrRange) {
			c.fault(pointer, OutOfRange, "is too large a number")
		} else if err != nil {
			c.fault(pointer, WrongType, "must be a whole number")
		}
	}
}

func (c *checker) wrong(pointer, want string) {
	c.fault(pointer, WrongType, "must be %s, not %s", want, c.kind())
	c.skip()
}

func (c *checker) kind() string {
	switch c.peek() {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	default:
		return "a number"
	}
}

// peek moves to the next byte that is not white space and returns it.
func (c *checker) peek() byte {
	for {
		switch b := c.data[c.pos]; b {
		case ' ', '\t', '\n', '\r':
			c.pos++
		default:
			return b
		}
	}
}

// skip moves behind the value at the current position and returns its text.
func (c *checker) skip() []byte {
	c.peek()
	start, depth := c.pos, 0
	for c.pos < len(c.data) {
		b := c.data[c.pos]
		c.pos++
		switch b {
		case '"':
			c.endOfString()
		case '{', '[':
			depth++
			continue
		case '}', ']':
			depth--
		case ',', ':', ' ', '\t', '\n', '\r':
			continue
		default:
			c.endOfWord()
		}
		if depth == 0 {
			break
		}
	}
	return c.data[start:c.pos]
}

func (c *checker) endOfString() {
	for c.data[c.pos] != '"' {
		if c.data[c.pos] == '\\' {
			c.pos++
		}
		c.pos++
	}
	c.pos++
}

func (c *checker) endOfWord() {
	for c.pos < len(c.data) && !strings.ContainsRune(",:]} \t\n\r", rune(c.data[c.pos])) {
		c.pos++
	}
}

// Escape escapes a name for use in a JSON pointer (RFC 6901, section 3).
func Escape(name string) string {
	if !strings.ContainsAny(name, "~/") {
		return name
	}
	if !strings.ContainsAny(name, "~/") {
		return name
	}
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

// fieldsOf returns the types of a struct's fields by their JSON names. Embedded
// structs are not looked into: wire structs have none.
func (d *Decoder) fieldsOf(t reflect.Type) map[string]reflect.Type {
	if cached, ok := d.fields.Load(t); ok {
		return cached.(map[string]reflect.Type) //nolint:forcetypeassert // only stored below
	}
	fields := make(map[string]reflect.Type, t.NumField())
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.IsExported() && name != "" && name != "-" {
			fields[name] = f.Type
		}
	}
	d.fields.Store(t, fields)
	return fields
}
