package trigger

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/millrace/millrace/internal/rawjson"
	"github.com/millrace/millrace/internal/server/strictjson"
)

// Decode reads a definition that is written as JSON, and says all that does not fit. It
// checks shapes only: see Compile for the rest.
func Decode(raw []byte) (Definition, []Fault) {
	var d Definition
	if len(raw) > MaxDocumentBytes {
		return d, []Fault{{Code: CodeTooLarge, Message: fmt.Sprintf("the definition has %d bytes, %d are allowed", len(raw), MaxDocumentBytes)}}
	}
	err := new(strictjson.Decoder).Decode(raw, "", &d)
	if err == nil {
		if rawjson.First(raw) != '{' {
			return d, []Fault{{Code: CodeWrongType, Message: "must be an object"}}
		}
		return d, nil
	}
	faults := faultsOf(err)
	for i := range faults {
		faults[i].advise()
	}
	return d, faults
}

// advise says what to do about faults of shape that people often make.
func (f *Fault) advise() {
	switch {
	case f.Code == CodeWrongType && isSecret(f.Pointer) && strings.HasSuffix(f.Message, "not a string"):
		f.Message = "must say where the secret is, not what it is"
		f.Hint = `write {"env": "NAME"} for an environment variable of the servers, or {"file": "NAME"} for a file in their folder of secrets`
	case f.Code == CodeWrongType && strings.HasPrefix(f.Pointer, "/kafka/") && strings.HasSuffix(f.Message, "must be an array, not a string"):
		f.Hint = "write a list, also of one"
	case f.Code == CodeUnknown && f.Pointer == "/name":
		f.Hint = "the name of a trigger is its id"
	case f.Code == CodeUnknown && strings.HasSuffix(f.Pointer, "/idempotency_key"):
		f.Hint = "the message has the key: its place in a topic, the id of an event, the header of a request"
	}
}

// isSecret says whether a field is a SecretRef.
func isSecret(pointer string) bool {
	switch pointer {
	case "/kafka/sasl/password", "/kafka/sasl/token", "/kafka/tls/ca", "/kafka/tls/cert", "/kafka/tls/key",
		"/webhook/auth/bearer", "/webhook/auth/basic/password":
		return true
	}
	return strings.HasPrefix(pointer, "/webhook/auth/hmac/secrets/")
}

// Document is a definition in a text.
type Document struct {
	Definition Definition
	// JSON is the definition as it was written, as JSON; nil where it cannot be read.
	JSON json.RawMessage
	// Faults are those of its shape.
	Faults []Fault
	// Line is where it begins.
	Line   int
	places places
}

// Locate sets the lines of faults of the document that have none.
func (d *Document) Locate(faults []Fault) {
	for i := range faults {
		if faults[i].Line == 0 {
			faults[i].Line, faults[i].Column = d.places.of(faults[i].Pointer, d.Line)
		}
	}
}

// places are lines and columns, from 1, by JSON pointer.
type places map[string][2]int

// of returns where a field is, or where what it would be in is.
func (p places) of(pointer string, otherwise int) (line, column int) {
	for {
		if at, known := p[pointer]; known {
			return at[0], at[1]
		}
		up := strings.LastIndexByte(pointer, '/')
		if up < 0 {
			return otherwise, 1
		}
		pointer = pointer[:up]
	}
}

// byteOrderMark begins texts of some editors. It means nothing.
var byteOrderMark = []byte("\xef\xbb\xbf")

// ReadDocuments reads a text with definitions: YAML, of which each document is one, or
// JSON. Either way a document may also be {"triggers": [...]}, or a list. The faults are
// those of the text, with their lines; those of a definition are the document's.
func ReadDocuments(text []byte) ([]Document, []Fault) {
	text = bytes.TrimPrefix(text, byteOrderMark)
	var roots []Document
	var faults []Fault
	if c := rawjson.First(text); (c == '{' || c == '[') && json.Valid(text) {
		p := places{}
		p.walk(text, rawjson.Space(text, 0), "", &lineCounter{text: text, line: 1})
		roots = []Document{{JSON: text, Line: 1, places: p}}
	} else {
		roots, faults = readYAML(text)
		if c == '{' && len(faults) > 0 && len(roots) == 0 {
			// It was meant as JSON, which has better words for what is wrong.
			_, faults = Decode(text)
		}
	}
	var documents []Document
	for _, root := range roots {
		documents = append(documents, root.split()...)
	}
	if len(documents) == 0 && len(faults) == 0 {
		faults = []Fault{{Line: 1, Column: 1, Code: CodeRequired, Message: "has no trigger in it"}}
	}
	for i := range documents {
		d := &documents[i]
		d.Definition, d.Faults = Decode(d.JSON)
		d.Locate(d.Faults)
	}
	return documents, faults
}

// split returns the definitions that a document holds.
func (d Document) split() []Document {
	list, at := d.JSON, ""
	if rawjson.First(list) == '{' {
		if inner := rawjson.Member(list, "triggers"); rawjson.First(inner) == '[' {
			list, at = inner, "/triggers"
		}
	}
	if rawjson.First(list) != '[' {
		return []Document{d}
	}
	var all []Document
	i := 0
	for raw := range rawjson.Items(list) {
		all = append(all, d.below(item(at, i), raw))
		i++
	}
	return all
}

// below returns a part of a document as one.
func (d Document) below(pointer string, raw json.RawMessage) Document {
	part := Document{JSON: raw, places: places{}}
	for name, at := range d.places {
		if rest, within := strings.CutPrefix(name, pointer); within && (rest == "" || rest[0] == '/') {
			part.places[rest] = at
		}
	}
	part.Line, _ = part.places.of("", d.Line)
	return part
}

// lineCounter counts lines up to an offset, which does not go back.
type lineCounter struct {
	text            []byte
	at, line, begin int
}

func (l *lineCounter) place(offset int) [2]int {
	for ; l.at < offset; l.at++ {
		if l.text[l.at] == '\n' {
			l.line, l.begin = l.line+1, l.at+1
		}
	}
	return [2]int{l.line, offset - l.begin + 1}
}

// walk notes where the values are in JSON that is known to be valid, members by their names,
// and returns where the one at i ends.
func (p places) walk(text []byte, i int, pointer string, lines *lineCounter) int {
	if _, known := p[pointer]; !known {
		p[pointer] = lines.place(i)
	}
	switch text[i] {
	case '{':
		for i = rawjson.Space(text, i+1); text[i] != '}'; {
			end := rawjson.EndOfText(text, i)
			name := pointer + "/" + strictjson.Escape(rawjson.Unquote(text[i:end]))
			p[name] = lines.place(i)
			i = p.walk(text, rawjson.Space(text, rawjson.Space(text, end)+1), name, lines)
			if i = rawjson.Space(text, i); text[i] == ',' {
				i = rawjson.Space(text, i+1)
			}
		}
		return i + 1
	case '[':
		n := 0
		for i = rawjson.Space(text, i+1); text[i] != ']'; n++ {
			i = p.walk(text, i, item(pointer, n), lines)
			if i = rawjson.Space(text, i); text[i] == ',' {
				i = rawjson.Space(text, i+1)
			}
		}
		return i + 1
	default:
		return rawjson.EndOfValue(text, i)
	}
}
