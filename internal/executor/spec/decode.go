package spec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// problems collects the faults of one spec in the order in which they are found.
type problems struct{ all []error }

func (p *problems) add(pointer, code, format string, args ...any) {
	p.all = append(p.all, FieldError{Pointer: pointer, Code: code, Message: fmt.Sprintf(format, args...)})
}

func (p *problems) err() error { return errors.Join(p.all...) }

// open checks the text of a spec and returns the members of its object.
func open(raw json.RawMessage) (*problems, []member, bool) {
	p := new(problems)
	if !p.check(raw) {
		return p, nil, false
	}
	fields, ok := p.members("", raw)
	return p, fields, ok
}

// check reports text that no JSON reader would take. What passes it can be
// decoded member by member without further syntax errors.
func (p *problems) check(raw json.RawMessage) bool {
	switch {
	case len(bytes.TrimSpace(raw)) == 0:
		p.add("", CodeRequired, "the spec is missing")
	case !utf8.Valid(raw):
		// encoding/json would put U+FFFD in place of such bytes without a word.
		p.add("", CodeMalformed, "the spec is not valid UTF-8")
	case !json.Valid(raw):
		p.add("", CodeMalformed, "the spec is not valid JSON")
	default:
		return true
	}
	return false
}

// member is one member of an object, with its own pointer.
type member struct {
	name, pointer string
	value         json.RawMessage
}

// members returns the members of an object in the order of the text, without
// those that repeat an earlier name. It answers false when raw is no object.
func (p *problems) members(pointer string, raw json.RawMessage) ([]member, bool) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		p.add(pointer, CodeWrongType, "must be an object")
		return nil, false
	}
	var list []member
	seen := make(map[string]bool)
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			p.add(pointer, CodeMalformed, "read member: %v", err)
			return nil, false
		}
		m := member{name: fmt.Sprint(key)}
		m.pointer = pointer + "/" + escape(m.name)
		if err := dec.Decode(&m.value); err != nil && !errors.Is(err, io.EOF) {
			p.add(m.pointer, CodeMalformed, "read value: %v", err)
			return nil, false
		}
		if seen[m.name] {
			p.add(m.pointer, CodeDuplicate, "appears more than once")
			continue
		}
		seen[m.name] = true
		list = append(list, m)
	}
	return list, true
}

// unknown reports a member that does not exist and names those that do.
func (p *problems) unknown(m member, known ...string) {
	slices.Sort(known)
	p.add(m.pointer, CodeUnknown, "unknown field; known are %s", strings.Join(known, ", "))
}

// text decodes a string that can be handed to the operating system.
func (p *problems) text(pointer string, raw json.RawMessage) (string, bool) {
	var s *string
	if err := json.Unmarshal(raw, &s); err != nil || s == nil {
		p.add(pointer, CodeWrongType, "must be a string")
		return "", false
	}
	return *s, true
}

// count decodes a whole number between low and MaxLimit.
func (p *problems) count(pointer string, raw json.RawMessage, low uint64) *uint64 {
	var n *json.Number
	if err := json.Unmarshal(raw, &n); err != nil || n == nil || raw[0] == '"' {
		p.add(pointer, CodeWrongType, "must be a whole number")
		return nil
	}
	var v uint64
	if err := json.Unmarshal(raw, &v); err != nil || v < low || v > MaxLimit {
		p.add(pointer, CodeOutOfRange, "must be a whole number from %d to %d", low, uint64(MaxLimit))
		return nil
	}
	return &v
}

// escape writes a member name as a part of a JSON pointer.
func escape(name string) string {
	if !strings.ContainsAny(name, "~/") {
		return name
	}
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}
