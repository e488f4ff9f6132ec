package workflow

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sort"
	"strings"
	"unicode/utf8"
)

// maxDepth is how deep values of a document may be nested.
const maxDepth = 100

// document is a JSON text as a tree that knows where everything stands.
type document struct {
	text  []byte
	root  *node
	lines []int // the offsets at which lines begin
}

// nodeKind is the kind of a JSON value.
type nodeKind string

const (
	objectNode  nodeKind = "an object"
	arrayNode   nodeKind = "a list"
	stringNode  nodeKind = "a string"
	numberNode  nodeKind = "a number"
	booleanNode nodeKind = "a boolean"
	nullNode    nodeKind = "null"
)

// node is a value; start and end are its offsets.
type node struct {
	kind       nodeKind
	start, end int
	// text is the value of a string.
	text    string
	members []member
	items   []*node
}

// member is one of an object; at is the offset of its name.
type member struct {
	name  string
	at    int
	value *node
}

// commentHint says where to put what one would write in a comment.
const commentHint = `use "description" or "metadata"`

// member returns the value of a member, or nil.
func (n *node) member(name string) *member {
	if n == nil {
		return nil
	}
	for i := range n.members {
		if n.members[i].name == name {
			return &n.members[i]
		}
	}
	return nil
}

// place returns the line and the column, in characters, of an offset.
func (d *document) place(offset int) (line, column int) {
	if d.lines == nil {
		d.lines = []int{0}
		for i, c := range d.text {
			if c == '\n' {
				d.lines = append(d.lines, i+1)
			}
		}
	}
	offset = min(offset, len(d.text))
	line = sort.SearchInts(d.lines, offset+1)
	return line, utf8.RuneCount(d.text[d.lines[line-1]:offset]) + 1
}

// syntaxError is what is wrong with a text that is no JSON.
type syntaxError struct {
	offset        int
	message, hint string
}

// Error implements error.
func (e *syntaxError) Error() string { return e.message }

// byteOrderMark begins texts of some editors. It means nothing.
var byteOrderMark = []byte("\xef\xbb\xbf")

// readDocument reads a text that holds one JSON value.
func readDocument(text []byte) (*document, *syntaxError) {
	d := &document{text: text}
	r := reader{text: text}
	if bytes.HasPrefix(text, byteOrderMark) {
		r.at = len(byteOrderMark)
	}
	if at := invalid(text); at >= 0 {
		return d, &syntaxError{offset: at, message: "the text is not UTF-8"}
	}
	defer func() { d.lines = nil }()
	r.space()
	if r.at < len(text) && text[r.at] == '<' {
		return d, &syntaxError{offset: r.at, message: "this looks like XML", hint: "definitions are JSON"}
	}
	root, err := r.value(0)
	if err != nil {
		return d, err
	}
	r.space()
	if r.at < len(text) {
		return d, r.fault("there is text after the end of the definition", "")
	}
	d.root = root
	return d, nil
}

// invalid returns the offset of the first byte that is no UTF-8; -1: there is none.
func invalid(text []byte) int {
	if utf8.Valid(text) {
		return -1
	}
	for at := 0; at < len(text); {
		c, width := utf8.DecodeRune(text[at:])
		if c == utf8.RuneError && width <= 1 {
			return at
		}
		at += width
	}
	return -1
}

// reader reads JSON.
type reader struct {
	text []byte
	at   int
}

func (r *reader) fault(message, hint string) *syntaxError {
	return &syntaxError{offset: r.at, message: message, hint: hint}
}

func (r *reader) space() {
	for r.at < len(r.text) && strings.IndexByte(" \t\r\n", r.text[r.at]) >= 0 {
		r.at++
	}
}

// found says what stands where the reader is.
func (r *reader) found() string {
	if r.at >= len(r.text) {
		return "the end of the text"
	}
	c, _ := utf8.DecodeRune(r.text[r.at:])
	return fmt.Sprintf("%q", c)
}

func (r *reader) value(depth int) (*node, *syntaxError) {
	if depth > maxDepth {
		return nil, r.fault(fmt.Sprintf("values are nested deeper than %d", maxDepth), "")
	}
	if r.at >= len(r.text) {
		return nil, r.fault("the text ends where a value is expected", "")
	}
	switch c := r.text[r.at]; {
	case c == '{':
		return r.object(depth)
	case c == '[':
		return r.array(depth)
	case c == '"':
		return r.string()
	case c == '-' || c >= '0' && c <= '9':
		return r.number()
	case c == '\'':
		return nil, r.fault("strings have double quotes", `write "..."`)
	case c == '/':
		return nil, r.fault("JSON has no comments", commentHint)
	}
	for word, kind := range map[string]nodeKind{"true": booleanNode, "false": booleanNode, "null": nullNode} {
		if bytes.HasPrefix(r.text[r.at:], []byte(word)) {
			r.at += len(word)
			return &node{kind: kind, start: r.at - len(word), end: r.at}, nil
		}
	}
	return nil, r.fault("a value is expected, not "+r.found(), "")
}

func (r *reader) object(depth int) (*node, *syntaxError) {
	n := &node{kind: objectNode, start: r.at}
	err := r.list('}', n, func() *syntaxError {
		if r.at >= len(r.text) || r.text[r.at] != '"' {
			return r.fault("a field in double quotes is expected, not "+r.found(), "")
		}
		name, err := r.string()
		if err != nil {
			return err
		}
		r.space()
		if r.at >= len(r.text) || r.text[r.at] != ':' {
			return r.fault(fmt.Sprintf("a colon is expected after %q, not %s", name.text, r.found()), "")
		}
		r.at++
		r.space()
		value, err := r.value(depth + 1)
		n.members = append(n.members, member{name: name.text, at: name.start, value: value})
		return err
	})
	return n, err
}

func (r *reader) array(depth int) (*node, *syntaxError) {
	n := &node{kind: arrayNode, start: r.at}
	err := r.list(']', n, func() *syntaxError {
		value, err := r.value(depth + 1)
		n.items = append(n.items, value)
		return err
	})
	return n, err
}

// list reads elements with commas between them up to a bracket.
func (r *reader) list(end byte, n *node, element func() *syntaxError) *syntaxError {
	r.at++
	for first := true; ; first = false {
		r.space()
		switch {
		case r.at < len(r.text) && r.text[r.at] == end && first:
			r.at++
			n.end = r.at
			return nil
		case r.at < len(r.text) && r.text[r.at] == end:
			return r.fault("there is a comma before "+r.found(), "take the last comma away")
		}
		if err := element(); err != nil {
			return err
		}
		r.space()
		switch {
		case r.at < len(r.text) && r.text[r.at] == ',':
			r.at++
		case r.at < len(r.text) && r.text[r.at] == end:
			r.at++
			n.end = r.at
			return nil
		case r.at < len(r.text) && r.text[r.at] == '/':
			return r.fault("JSON has no comments", commentHint)
		default:
			return r.fault(fmt.Sprintf("a comma or %q is expected, not %s", end, r.found()), "")
		}
	}
}

func (r *reader) string() (*node, *syntaxError) {
	n := &node{kind: stringNode, start: r.at}
	for i := r.at + 1; i < len(r.text); i++ {
		switch c := r.text[i]; {
		case c == '\\':
			i++
		case c == '"':
			n.end = i + 1
			if err := json.Unmarshal(r.text[n.start:n.end], &n.text); err != nil {
				return nil, r.fault("the string has an escape that JSON does not know", "")
			}
			r.at = n.end
			return n, nil
		case c < ' ':
			r.at = i
			return nil, r.fault("a string may not go over a line, or have control characters", `write \n for a new line`)
		}
	}
	return nil, r.fault("the string does not end: its closing quote is missing", "")
}

func (r *reader) number() (*node, *syntaxError) {
	end := r.at
	for end < len(r.text) && strings.IndexByte("+-.eE0123456789", r.text[end]) >= 0 {
		end++
	}
	if !json.Valid(r.text[r.at:end]) {
		return nil, r.fault(fmt.Sprintf("%s is not a number of JSON", r.text[r.at:end]), "")
	}
	n := &node{kind: numberNode, start: r.at, end: end}
	r.at = end
	return n, nil
}
