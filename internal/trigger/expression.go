package trigger

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/expr"
	"github.com/millrace/millrace/internal/rawjson"
)

// The variables of expressions; docs/trigger-format.md says what each is.
const (
	variableBody    = "body"
	variableRaw     = "raw"
	variableKey     = "key"
	variableHeaders = "headers"
	variableEvent   = "event"
	variableMeta    = "meta"
	variableTrigger = "trigger"
	variableTime    = "time"
)

// variableNames are all of them, as texts that name them do.
func variableNames() []string {
	return []string{variableBody, variableRaw, variableKey, variableHeaders, variableEvent, variableMeta, variableTrigger, variableTime}
}

// expression is a compiled expression. It holds no state.
type expression struct {
	program *expr.Program[any]
	// path is set when the expression names a variable, or a field: its value is then taken
	// as it is written, without being decoded.
	path  []string
	names []string
}

// compileExpression compiles the text between "${" and "}". The error is a Fault without
// pointer.
func compileExpression(source string) (*expression, *Fault) {
	program, err := expr.Compile[any](source, expr.AnyNames())
	if err != nil {
		return nil, &Fault{Code: CodeExpression, Message: fmt.Sprintf("has the expression ${%s}, which cannot be read: %s", source, err)}
	}
	names := program.Names()
	for _, name := range names {
		switch {
		case slices.Contains(variableNames(), name):
		case name == expr.NowVariable:
			return nil, &Fault{
				Code: CodeVariable, Message: "uses now(), which triggers do not have: a message gives the same whenever it is read",
				Hint: "use time, which is when the message came to be",
			}
		default:
			return nil, unknownVariable(source, name)
		}
	}
	return &expression{program: program, path: program.Path(), names: names}, nil
}

func unknownVariable(source, name string) *Fault {
	f := &Fault{
		Code: CodeVariable, Message: fmt.Sprintf("uses the variable %s, which there is not", name),
		Hint: "variables are " + strings.Join(variableNames(), ", "),
	}
	switch {
	case source == name && strings.ToUpper(name) == name:
		// As shells have them: ${HOME}.
		f.Hint += fmt.Sprintf("; the text ${%s} is written $${%s}", source, source)
	case name != "":
		f.Hint += "; fields of the message are fields of body, such as body." + name
	}
	return f
}

// String returns the source.
func (x *expression) String() string { return x.program.String() }

// value is what an expression gave: written is JSON as it was received, otherwise value is
// one that encoding/json knows.
type value struct {
	written json.RawMessage
	made    any
}

// kind says what it is, in words for faults.
func (v value) kind() string {
	if v.written != nil {
		switch rawjson.First(v.written) {
		case '{':
			return "an object"
		case '[':
			return "a list"
		case '"':
			return "a text"
		case 'n':
			return "nothing"
		case 't', 'f':
			return "a boolean"
		default:
			return "a number"
		}
	}
	switch v.made.(type) {
	case nil:
		return "nothing"
	case string:
		return "a text"
	case bool:
		return "a boolean"
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	default:
		return "a number"
	}
}

// null says whether it is nothing.
func (v value) null() bool { return v.kind() == "nothing" }

// appendJSON appends it as JSON without insignificant space.
func (v value) appendJSON(out []byte) ([]byte, error) {
	if v.written != nil {
		return rawjson.Compact(out, v.written), nil
	}
	if text, ok := v.made.(string); ok {
		return rawjson.Quote(out, text), nil
	}
	var encoded bytes.Buffer
	encoder := json.NewEncoder(&encoded)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v.made); err != nil {
		return nil, errors.New("gives something that JSON cannot hold")
	}
	return append(out, bytes.TrimSuffix(encoded.Bytes(), []byte("\n"))...), nil
}

// text returns it as a text: strings are themselves, all else is JSON.
func (v value) text() (string, error) {
	switch {
	case v.written != nil && rawjson.First(v.written) == '"':
		return rawjson.Unquote(bytes.TrimSpace(v.written)), nil
	case v.written == nil:
		if text, ok := v.made.(string); ok {
			return text, nil
		}
	}
	text, err := v.appendJSON(nil)
	return string(text), err
}

// eval evaluates the expression over the variables of a message. The error is a
// *MappingError without pointer, or says that the evaluation was ended from outside.
func (x *expression) eval(ctx context.Context, s *scope) (value, error) {
	if len(x.path) > 0 {
		if found, ok := s.lookup(x.path); ok {
			return found, nil
		}
	}
	vars := make(map[string]any, 4)
	for _, name := range x.names {
		vars[name] = s.decoded(name)
	}
	out, err := x.program.Eval(ctx, vars)
	switch {
	case err == nil:
	case ctx.Err() != nil, errors.Is(err, expr.ErrTimeLimit):
		return value{}, err
	default:
		return value{}, &MappingError{Code: CodeMapping, Message: plain(err)}
	}
	made, err := expr.Storable(out)
	if err != nil {
		return value{}, &MappingError{Code: CodeMapping, Message: fmt.Sprintf("evaluate %q: %s", x, err)}
	}
	return value{made: made}, nil
}

// plain is the text of an error of the expression language in words for whoever writes
// triggers.
func plain(err error) string {
	text := err.Error()
	if before, after, found := strings.Cut(text, "cannot fetch "); found {
		if field, _, nothing := strings.Cut(after, " from <nil>"); nothing {
			return before + "there is nothing that could have a field " + field + " (write a.b ?? null where it may be missing)"
		}
	}
	return text
}

// numbered puts numbers as expressions calculate with them in place of those in v.
func numbered(v any) any {
	switch v := v.(type) {
	case json.Number:
		return expr.Number(v)
	case []any:
		for i := range v {
			v[i] = numbered(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = numbered(v[key])
		}
	}
	return v
}
