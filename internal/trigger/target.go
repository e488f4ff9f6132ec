package trigger

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/executor/spec"
	"github.com/millrace/millrace/internal/rawjson"
	"github.com/millrace/millrace/internal/server/strictjson"
	"github.com/millrace/millrace/topics"
)

// targetTemplate makes a T: fixed has what is the same for every message, and dynamic
// fills in the rest.
type targetTemplate[T any] struct {
	fixed   T
	dynamic []field[T]
}

type (
	executionTemplate = targetTemplate[topics.Request]
	workflowTemplate  = targetTemplate[Start]
)

// field is one that depends on the message.
type field[T any] struct {
	template *template
	set      func(*T, value) error
}

// fill evaluates the field and sets it.
func (f field[T]) fill(ctx context.Context, s *scope, into *T) error {
	v, err := f.template.eval(ctx, s)
	if err != nil {
		return err
	}
	return f.template.at(f.set(into, v))
}

// targetBuilder makes a targetTemplate.
type targetBuilder[T any] struct {
	*checker
	at  string
	out *targetTemplate[T]
}

// field adds a field; absent fields are left as they are. What set returns is a
// *MappingError, whose faults are those of the definition where nothing depends on the
// message.
func (b *targetBuilder[T]) field(name string, raw json.RawMessage, asText func(string) bool, set func(*T, value) error) {
	if len(raw) == 0 || bytes.Equal(bytes.TrimSpace(raw), []byte("null")) {
		return
	}
	t := b.template(b.at+"/"+name, raw, asText)
	b.templates = append(b.templates, t)
	if !t.static() {
		b.out.dynamic = append(b.out.dynamic, field[T]{template: t, set: set})
		return
	}
	if fault, ok := errors.AsType[*shapeError](t.at(set(&b.out.fixed, value{written: t.written}))); ok {
		b.faults = append(b.faults, fault.faults...)
	}
}

// text adds a field whose value is a text.
func (b *targetBuilder[T]) text(name, value string, set func(*T, value) error) {
	if value != "" {
		b.field(name, rawjson.Quote(nil, value), anything, set)
	}
}

// anything says that no text is wanted, or that whoever sets the field makes one.
func anything(string) bool { return false }

// shapeError says that a value is not of the shape that its field has. Its faults tell all
// of it; Unwrap gives the first as a *MappingError.
type shapeError struct{ faults []Fault }

// Error implements error.
func (e *shapeError) Error() string { return e.Unwrap().Error() }

// Unwrap implements the interface of package errors.
func (e *shapeError) Unwrap() error {
	f := e.faults[0]
	message := f.Message
	if more := len(e.faults) - 1; more > 0 {
		message += fmt.Sprintf(" (and %d more)", more)
	}
	return &MappingError{Code: CodeMapping, Pointer: f.Pointer, Message: message}
}

func shapeFault(pointer, code, format string, args ...any) error {
	return &shapeError{faults: []Fault{{Pointer: pointer, Code: code, Message: fmt.Sprintf(format, args...)}}}
}

// textOf sets a text. Null leaves it as it is; objects and lists are no texts that name
// anything.
func textOf[T any](pointer string, set func(*T, string)) func(*T, value) error {
	return func(into *T, v value) error {
		switch kind := v.kind(); kind {
		case "nothing":
			return nil
		case "an object", "a list":
			return shapeFault(pointer, CodeWrongType, "must be a text, not %s", kind)
		}
		text, err := v.text()
		if err == nil {
			set(into, text)
		}
		return err
	}
}

// needed is set, but null is refused: why says what would go wrong without a value.
func needed[T any](pointer, why string, set func(*T, value) error) func(*T, value) error {
	return func(into *T, v value) error {
		if v.null() {
			return shapeFault(pointer, CodeRequired, "the expression gives nothing: %s", why)
		}
		return set(into, v)
	}
}

// decoded sets what is made of JSON of the shape D. Null leaves it as it is.
func decoded[T, D any](c *checker, pointer string, set func(*T, *D) []Fault) func(*T, value) error {
	return func(into *T, v value) error {
		if v.null() {
			return nil
		}
		raw, err := v.appendJSON(nil)
		if err != nil {
			return err
		}
		var d D
		if err := c.json.Decode(raw, pointer, &d); err != nil {
			return &shapeError{faults: faultsOf(err)}
		}
		if faults := set(into, &d); len(faults) > 0 {
			for i := range faults {
				faults[i].Pointer = pointer + faults[i].Pointer
			}
			return &shapeError{faults: faults}
		}
		return nil
	}
}

// faultsOf takes an error of the strict decoder apart.
func faultsOf(err error) []Fault {
	if syntax, ok := errors.AsType[*strictjson.SyntaxError](err); ok {
		return []Fault{{Line: syntax.Line, Column: syntax.Column, Code: CodeSyntax, Message: "is not JSON: " + syntax.Reason}}
	}
	all, ok := errors.AsType[*strictjson.FaultsError](err)
	if !ok {
		return []Fault{{Code: CodeInvalid, Message: err.Error()}}
	}
	faults := make([]Fault, len(all.Faults))
	for i, f := range all.Faults {
		faults[i] = Fault{Pointer: f.Pointer, Code: f.Code, Message: f.Message}
	}
	return faults
}

// execution compiles the template of an execution.
func (c *checker) execution(e *ExecutionTemplate) *executionTemplate {
	const at = "/target/execution"
	b := &targetBuilder[topics.Request]{checker: c, at: at, out: &executionTemplate{}}
	b.text("executor", e.Executor, needed(at+"/executor", "an execution needs an executor",
		textOf(at+"/executor", func(r *topics.Request, s string) { r.Executor = s })))
	b.field("spec", e.Spec, specTexts(e.Executor), func(r *topics.Request, v value) (err error) {
		r.Spec, err = v.appendJSON(nil)
		return err
	})
	b.field("priority", e.Priority, anything, decoded(c, at+"/priority", setPriority))
	b.text("resource_class", e.ResourceClass, textOf(at+"/resource_class", func(r *topics.Request, s string) { r.ResourceClass = s }))
	b.field("requirements", e.Requirements, anything, decoded(c, at+"/requirements", setRequirements))
	b.text("concurrency_key", e.ConcurrencyKey, needed(at+"/concurrency_key", "without a key the execution would run in any order",
		textOf(at+"/concurrency_key", func(r *topics.Request, s string) { r.ConcurrencyKey = s })))
	b.text("not_before", e.NotBefore, setNotBefore(at+"/not_before"))
	b.field("limits", e.Limits, anything, decoded(c, at+"/limits", setLimits))
	b.field("retry", e.Retry, anything, decoded(c, at+"/retry", setRetry))
	b.field("labels", e.Labels, anything, setLabels(at+"/labels"))
	c.request(at, b)
	return b.out
}

// specTexts says where in the spec of an executor a text is wanted, so that a number of the
// message, or a part of it, can be put there.
func specTexts(executor string) func(string) bool {
	if executor != spec.ExecutorProcess && executor != spec.ExecutorKubernetes {
		return anything
	}
	return func(pointer string) bool {
		for _, below := range []string{"/command/", "/env/", "/files/"} {
			if name, ok := strings.CutPrefix(pointer, below); ok && !strings.Contains(name, "/") {
				return true
			}
		}
		return pointer == "/stdin" || pointer == "/script" || pointer == "/image"
	}
}

// request checks what is known of the request before there is a message.
func (c *checker) request(at string, b *targetBuilder[topics.Request]) {
	r := b.out.fixed
	var open []string
	sample := func(t *template) json.RawMessage {
		t.expressions(func(pointer string, _ *expression) { open = append(open, strings.TrimPrefix(pointer, at)) })
		return t.sample()
	}
	for _, t := range b.templates {
		if t.static() {
			continue
		}
		switch strings.TrimPrefix(t.pointer, at) {
		case "/executor":
			open = append(open, "/executor", "/spec")
		case "/spec":
			r.Spec = sample(t)
		}
	}
	var now time.Time
	if r.NotBefore != nil {
		now = *r.NotBefore
	}
	invalid, ok := errors.AsType[*execution.InvalidError](execution.Normalize(&r, now))
	if !ok {
		return
	}
	for _, f := range invalid.Fields {
		within := slices.ContainsFunc(open, func(pointer string) bool {
			return f.Pointer == pointer || strings.HasPrefix(f.Pointer, pointer+"/")
		})
		told := slices.ContainsFunc(c.faults, func(before Fault) bool { return before.Pointer == at+f.Pointer })
		if !told && (!within || ofName(f.Code)) {
			c.add(at+f.Pointer, f.Code, "%s", f.Message)
		}
	}
}

// ofName says whether a fault is about the name of a field, whatever its value.
func ofName(code string) bool {
	return code == spec.CodeUnknown || code == spec.CodeReserved || code == spec.CodeDuplicate
}

// sample is the template with a text in place of each expression.
func (t *template) sample() json.RawMessage {
	switch {
	case t.written != nil:
		return t.written
	case t.object:
		out := []byte{'{'}
		for i, m := range t.members {
			if i > 0 {
				out = append(out, ',')
			}
			out = append(append(append(out, m.name...), ':'), m.value.sample()...)
		}
		return append(out, '}')
	case t.items != nil:
		out := []byte{'['}
		for i, item := range t.items {
			if i > 0 {
				out = append(out, ',')
			}
			out = append(out, item.sample()...)
		}
		return append(out, ']')
	}
	return json.RawMessage(`"x"`)
}

// workflow compiles the template of an instance.
func (c *checker) workflow(w *WorkflowTemplate) *workflowTemplate {
	const at = "/target/workflow"
	b := &targetBuilder[Start]{checker: c, at: at, out: &workflowTemplate{fixed: Start{Version: w.Version}}}
	if w.ID == "" {
		c.add(at+"/id", CodeRequired, "is required: the id of a workflow definition")
	}
	if w.Version < 0 {
		c.add(at+"/version", CodeRange, "must be a version of the definition, not %d; leave it out for the latest", w.Version)
	}
	b.text("id", w.ID, needed(at+"/id", "an instance needs a definition", textOf(at+"/id", func(s *Start, id string) { s.DefinitionID = id })))
	b.text("business_key", w.BusinessKey, textOf(at+"/business_key", func(s *Start, key string) { s.BusinessKey = key }))
	b.field("priority", w.Priority, anything, decoded(c, at+"/priority", func(s *Start, n *int) []Fault {
		s.Priority = *n
		return checkPriority(*n)
	}))
	input := w.Input
	if len(input) == 0 {
		input = json.RawMessage(`"${body}"`)
	}
	b.field("input", input, anything, func(s *Start, v value) (err error) {
		if kind := v.kind(); kind != "an object" {
			return shapeFault(at+"/input", CodeWrongType, "must be an object, the variables of the instance, not %s", kind)
		}
		s.Variables, err = v.appendJSON(nil)
		return err
	})
	return b.out
}
