package spec

import (
	"encoding/json"
	"math"
	"strings"
	"unicode"
)

// MaxWorkflowName is the longest id of a definition and the longest business key, in bytes.
const MaxWorkflowName = 256

// Workflow is the spec of the executor "workflow": an instance of a definition, whose end
// is that of the attempt.
//
//	{"definition_id": "loan", "variables": {"amount": 100}, "business_key": "l-7"}
type Workflow struct {
	// DefinitionID selects the definition; required. DefinitionVersion is its version;
	// 0: the latest.
	DefinitionID      string
	DefinitionVersion int
	// Variables are those that the instance begins with: an object, or nil.
	Variables json.RawMessage
	// BusinessKey is what the instance is about.
	BusinessKey string
}

// ParseWorkflow reads the spec of the executor "workflow". The error holds every fault as
// a FieldError.
func ParseWorkflow(raw json.RawMessage) (Workflow, error) {
	p, fields, ok := open(raw)
	if !ok {
		return Workflow{}, p.err()
	}
	var s Workflow
	named := false
	for _, m := range fields {
		switch m.name {
		case "definition_id":
			named = true
			if s.DefinitionID = p.workflowName(m); s.DefinitionID == "" && len(p.all) == 0 {
				p.add(m.pointer, CodeRequired, "must name a definition")
			}
		case "definition_version":
			if n := p.count(m.pointer, m.value, 1); n != nil && *n > math.MaxInt32 {
				p.add(m.pointer, CodeOutOfRange, "must be a version of the definition")
			} else if n != nil {
				s.DefinitionVersion = int(*n)
			}
		case "variables":
			if !strings.HasPrefix(strings.TrimLeft(string(m.value), " \t\r\n"), "{") {
				p.add(m.pointer, CodeWrongType, "must be an object")
			}
			s.Variables = m.value
		case "business_key":
			s.BusinessKey = p.workflowName(m)
		default:
			p.unknown(m, "definition_id", "definition_version", "variables", "business_key")
		}
	}
	if !named {
		p.add("/definition_id", CodeRequired, "is required: the id of a definition")
	}
	if err := p.err(); err != nil {
		return Workflow{}, err
	}
	return s, nil
}

func (p *problems) workflowName(m member) string {
	name, ok := p.text(m.pointer, m.value)
	switch {
	case !ok:
	case len(name) > MaxWorkflowName:
		p.add(m.pointer, CodeTooLong, "has %d bytes, %d are allowed", len(name), MaxWorkflowName)
	case strings.ContainsFunc(name, unicode.IsControl):
		p.add(m.pointer, CodeInvalid, "contains a control character")
	}
	return name
}
