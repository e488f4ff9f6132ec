package spec

import (
	"encoding/json"
	"strings"
	"unicode"
)

// MaxFunctionName is the longest name of a function, in bytes.
const MaxFunctionName = 200

// Function is the spec of the executor "function": a Go function that is
// registered in the worker.
//
//	{"name": "sleep", "args": {"duration": "1s"}}
type Function struct {
	// Name selects the function; required. Whether it exists is known only to
	// the worker that runs it.
	Name string
	// Args is handed to the function as it is; "null" when the spec has none.
	Args json.RawMessage
}

// ParseFunction reads the spec of the executor "function". The error holds every
// fault as a FieldError.
func ParseFunction(raw json.RawMessage) (Function, error) {
	p, fields, ok := open(raw)
	if !ok {
		return Function{}, p.err()
	}
	s := Function{Args: json.RawMessage("null")}
	named := false
	for _, m := range fields {
		switch m.name {
		case "name":
			named = true
			s.Name = p.functionName(m)
		case "args":
			s.Args = m.value
		default:
			p.unknown(m, "name", "args")
		}
	}
	if !named {
		p.add("/name", CodeRequired, "is required: the name of a registered function")
	}
	if err := p.err(); err != nil {
		return Function{}, err
	}
	return s, nil
}

func (p *problems) functionName(m member) string {
	name, ok := p.text(m.pointer, m.value)
	switch {
	case !ok:
	case name == "":
		p.add(m.pointer, CodeRequired, "must name a function")
	case len(name) > MaxFunctionName:
		p.add(m.pointer, CodeTooLong, "has %d bytes, %d are allowed", len(name), MaxFunctionName)
	case strings.ContainsFunc(name, unicode.IsControl):
		p.add(m.pointer, CodeInvalid, "contains a control character")
	}
	return name
}
