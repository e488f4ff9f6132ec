package trigger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/rawjson"
	"github.com/millrace/millrace/internal/server/strictjson"
	"github.com/millrace/millrace/topics"
)

// Stored is a trigger as the installation has it.
type Stored struct {
	Definition
	// UID tells a trigger from one of the same name before it: it is new when a trigger is
	// deleted and applied again.
	UID string `json:"uid"`
	// Revision counts the changes, from 1.
	Revision int64 `json:"revision"`
	// CreatedAt and UpdatedAt are when it was applied first, and changed last; CreatedBy and
	// UpdatedBy who did.
	CreatedAt time.Time `json:"created_at,omitzero"`
	UpdatedAt time.Time `json:"updated_at,omitzero"`
	CreatedBy string    `json:"created_by,omitempty"`
	UpdatedBy string    `json:"updated_by,omitempty"`
}

// Compiled is a trigger that can be run: defaults filled in (Definition has them),
// expressions compiled. It is safe for concurrent use, and nothing of it may be changed.
type Compiled struct {
	Stored
	settings  []Setting
	execution *executionTemplate
	workflow  *workflowTemplate
}

// Compile makes what can be run of a definition. It reports all faults at once; where there
// are none it may warn of what is probably not what was meant. With a fault that is no
// warning there is no Compiled.
func Compile(s Stored, d Defaults) (*Compiled, []Fault) {
	c := newChecker()
	out := &Compiled{Stored: s}
	out.Definition, out.settings = s.Definition.withDefaults(d)
	c.definition(&s.Definition, &out.Definition, d)
	if e := out.Target.Execution; e != nil {
		out.execution = c.execution(e)
	}
	if w := out.Target.Workflow; w != nil {
		out.workflow = c.workflow(w)
	}
	if Refused(c.faults) != nil {
		return nil, c.sorted()
	}
	c.lint(out, &s.Definition, d)
	return out, c.sorted()
}

// Kind says what a message becomes: KindExecution or KindInstance.
func (t *Compiled) Kind() string {
	if t.workflow != nil {
		return KindInstance
	}
	return KindExecution
}

// The kinds of targets.
const (
	KindExecution = "execution"
	KindInstance  = "instance"
)

// Consumer is under which name the inbox knows what the trigger has made. It is of the uid:
// a trigger that was deleted and made anew has made nothing yet.
func (t *Compiled) Consumer() string { return "trigger:" + t.UID }

// DeadLetterConsumer is under which name its dead letters are filed: that of the id, which
// people know.
func (t *Compiled) DeadLetterConsumer() string { return "trigger." + t.ID }

// StartsWorkflow returns the definition of the workflow that every message starts, and
// where that is said; an empty id where there is none, or it depends on the message.
func (t *Compiled) StartsWorkflow() (id string, version int, pointer string) {
	if t.workflow == nil {
		return "", 0, ""
	}
	return t.workflow.fixed.DefinitionID, t.workflow.fixed.Version, "/target/workflow/id"
}

// Settings are the values in use that have a default, by name, with where each comes from.
func (t *Compiled) Settings() []Setting { return t.settings }

// The codes of a MappingError.
const (
	CodeNotJSON   = "not_json"
	CodeNotObject = "not_an_object"
	CodeMapping   = "mapping"
)

// MappingError says why no target can be made of a message. It is the message's fault, or
// the definition's, and no further try will change it.
type MappingError struct {
	// Code is CodeNotJSON, CodeNotObject or CodeMapping.
	Code string
	// Pointer is the field of the definition that could not be filled; empty where the
	// message itself is of no use.
	Pointer string
	// Message says it in words.
	Message string
}

// Error implements error.
func (e *MappingError) Error() string {
	if e.Pointer == "" {
		return e.Message
	}
	return e.Pointer + ": " + e.Message
}

// scope checks the variables and returns where expressions find them.
func (t *Compiled) scope(v *Variables) (*scope, error) {
	checked := *v
	if len(v.Body) == 0 && v.Event != nil {
		checked.Body = []byte("{}")
	}
	switch {
	case len(checked.Body) == 0:
		return nil, &MappingError{Code: CodeNotJSON, Message: "the message is empty: a JSON object is wanted"}
	case !json.Valid(checked.Body):
		return nil, &MappingError{Code: CodeNotJSON, Message: "the message is not JSON: " + syntax(checked.Body)}
	case !utf8.Valid(checked.Body):
		return nil, &MappingError{Code: CodeNotJSON, Message: "the message is not JSON: it is not UTF-8"}
	case rawjson.First(checked.Body) != '{':
		return nil, &MappingError{Code: CodeNotObject, Message: "the message is " + value{written: checked.Body}.kind() + ": a JSON object is wanted"}
	}
	return &scope{Variables: &checked, trigger: t}, nil
}

// syntax says what is wrong with a text that is no JSON.
func syntax(text []byte) string {
	var ignored struct{}
	err := new(strictjson.Decoder).Decode(text, "", &ignored)
	if fault, ok := errors.AsType[*strictjson.SyntaxError](err); ok {
		return fault.Error()
	}
	return "it cannot be read"
}

// Execution maps a message to a request for an execution, whose origin has everything but
// the metadata. Defaults are not filled in, and it is not checked: execution.Normalize
// does both. The error is a *MappingError, or says that ctx has ended, or that the
// evaluation took too long for reasons that may pass.
func (t *Compiled) Execution(ctx context.Context, v *Variables) (topics.Request, error) {
	if t.execution == nil {
		return topics.Request{}, fmt.Errorf("map a message of trigger %s: its target is no execution", t.ID)
	}
	s, err := t.scope(v)
	if err != nil {
		return topics.Request{}, err
	}
	r := t.execution.fixed
	r.Tenant, r.User = t.Tenant, t.User
	r.Origin = topics.Origin{Kind: string(t.Type), Trigger: t.ID}
	r.Labels = maps.Clone(r.Labels)
	for _, f := range t.execution.dynamic {
		if err := f.fill(ctx, s, &r); err != nil {
			return topics.Request{}, err
		}
	}
	return r, nil
}

// Start is an instance of a workflow that a message asks for.
type Start struct {
	DefinitionID string
	// Version 0 is the latest.
	Version     int
	BusinessKey string
	// Priority 0 is the default.
	Priority     int
	Tenant, User string
	// Variables are a JSON object.
	Variables json.RawMessage
}

// Workflow maps a message to an instance of a workflow; errors are those of Execution.
func (t *Compiled) Workflow(ctx context.Context, v *Variables) (Start, error) {
	if t.workflow == nil {
		return Start{}, fmt.Errorf("map a message of trigger %s: its target is no workflow", t.ID)
	}
	s, err := t.scope(v)
	if err != nil {
		return Start{}, err
	}
	start := t.workflow.fixed
	start.Tenant, start.User = t.Tenant, t.User
	for _, f := range t.workflow.dynamic {
		if err := f.fill(ctx, s, &start); err != nil {
			return Start{}, err
		}
	}
	return start, nil
}
