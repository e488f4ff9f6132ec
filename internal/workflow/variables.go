package workflow

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/rawjson"
)

// Variables are merged at the top level only, key by key, as they are written: their
// values are not decoded unless an expression reads them. So numbers keep all their
// digits, and a merge costs no more than the bytes that it copies.

// maxNesting is how deep JSON may be nested: what reads it later recurses.
const maxNesting = 512

var emptyObject = json.RawMessage("{}")

// object returns JSON that comes from outside as an object without insignificant space;
// none, and null, are the empty one.
func (r *run) object(raw json.RawMessage) (json.RawMessage, error) {
	value, err := r.value(raw)
	switch {
	case err != nil:
		return nil, err
	case value == nil || isNull(value):
		return emptyObject, nil
	case !isObject(value):
		return nil, Refuse(ErrBadInput, "variables have to be a JSON object")
	}
	return value, nil
}

func isObject(value json.RawMessage) bool { return len(value) > 0 && value[0] == '{' }
func isNull(value json.RawMessage) bool   { return bytes.Equal(value, []byte("null")) }

// value returns JSON that comes from outside without insignificant space; nil when there
// is none.
func (r *run) value(raw json.RawMessage) (json.RawMessage, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	if len(raw) > 2*r.limits.Variables {
		return nil, r.tooLarge(len(raw))
	}
	compact := bytes.NewBuffer(make([]byte, 0, len(raw)))
	if err := json.Compact(compact, raw); err != nil {
		return nil, Refuse(ErrBadInput, "the result is no JSON: %v", err)
	}
	if !utf8.Valid(compact.Bytes()) {
		return nil, Refuse(ErrBadInput, "the result is no JSON: it is not UTF-8")
	}
	if depth(compact.Bytes()) > maxNesting {
		return nil, Refuse(ErrBadInput, "the result is nested more than %d deep", maxNesting)
	}
	return compact.Bytes(), nil
}

// depth returns how deep valid JSON is nested.
func depth(raw []byte) int {
	deepest, now := 0, 0
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			i = rawjson.EndOfText(raw, i) - 1
		case '{', '[':
			now++
			deepest = max(deepest, now)
		case '}', ']':
			now--
		}
	}
	return deepest
}

func (r *run) tooLarge(size int) error {
	return Refuse(errors.Join(ErrBadInput, ErrTooLarge), "the variables would have %d bytes, the limit is %d", size, r.limits.Variables)
}

// merged returns the variables with those that come from outside; nil when there are none.
func (r *run) merged(raw json.RawMessage) (json.RawMessage, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	patch, err := r.object(raw)
	if err != nil {
		return nil, err
	}
	return r.fitting(patch)
}

// fitting returns the variables with those of patch; nil when there are none. The error
// says that they would be too large.
func (r *run) fitting(patch json.RawMessage) (json.RawMessage, error) {
	if len(patch) <= len(emptyObject) {
		return nil, nil
	}
	merged := merge(r.state.Variables, patch)
	if len(merged) > r.limits.Variables {
		return nil, r.tooLarge(len(merged))
	}
	return merged, nil
}

// setVariables makes merged the variables; nil leaves them as they are.
func (r *run) setVariables(merged json.RawMessage) {
	if merged != nil {
		r.state.Variables, r.vars = merged, nil
	}
}

// variables returns what expressions see: each variable as it is written.
func (r *run) variables() map[string]any {
	if r.vars == nil {
		r.vars = make(map[string]any)
		for m := range variablesIn(r.state.Variables) {
			r.vars[m.name()] = m.value
		}
	}
	return r.vars
}

// eval evaluates an expression with the variables and those in more.
func (r *run) eval(x *Expression, more map[string]any) (any, error) {
	vars := r.variables()
	if len(more) > 0 {
		seen := make(map[string]any, len(vars)+len(more))
		for name, value := range vars {
			seen[name] = value
		}
		for name, value := range more {
			seen[name] = value
		}
		vars = seen
	}
	value, err := x.EvalAt(r.ctx, vars, r.at)
	if cause := r.ctx.Err(); err != nil && cause != nil {
		// The caller ran out of time: that says nothing about the workflow.
		r.broken = fmt.Errorf("advance: %w", context.Cause(r.ctx))
	}
	return value, err
}

// evalJSON evaluates an expression to JSON.
func (r *run) evalJSON(x *Expression, more map[string]any) (json.RawMessage, error) {
	value, err := r.eval(x, more)
	if err != nil {
		return nil, err
	}
	if raw, ok := value.(json.RawMessage); ok {
		return raw, nil
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, fmt.Errorf("the result of %q is no JSON: %w", x, err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// assign makes an object of assignments, each of which sees those before it, and what is
// in more.
func (r *run) assign(list []assignment, more map[string]any) (json.RawMessage, error) {
	seen := make(map[string]any, len(more)+len(list))
	for name, value := range more {
		seen[name] = value
	}
	made := objectWriter{}
	for _, a := range list {
		value := a.literal
		if a.Expression != nil {
			var err error
			if value, err = r.evalJSON(a.Expression, seen); err != nil {
				return nil, fmt.Errorf("variable %q: %w", a.variable, err)
			}
		}
		seen[a.variable] = value
		made.add(rawjson.Quote(nil, a.variable), value)
	}
	return made.end(), nil
}

// expressionFailed is the failure of a step whose expression gives no value.
func expressionFailed(step *planStep, err error) *Failure {
	code := CodeExpressionFailed
	if errors.Is(err, ErrTooLarge) {
		code = CodeVariablesTooLarge
	}
	return &Failure{Code: code, Message: clean(err.Error()), StepID: step.ID}
}

// decoded is a value of valid JSON as encoding/json has it.
func decoded(raw json.RawMessage) any {
	var value any
	_ = json.Unmarshal(raw, &value)
	return value
}

// mustJSON encodes what can be encoded.
func mustJSON(value any) json.RawMessage {
	raw, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("workflow: encode %T: %v", value, err))
	}
	return raw
}

// asText is a value as a text: a string as it is, anything else as JSON; nothing is "".
func asText(value any) string {
	if raw, ok := value.(json.RawMessage); ok {
		value = decoded(raw)
		if _, ok := value.(string); !ok && value != nil {
			return string(raw)
		}
	}
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return clean(v)
	}
	return string(mustJSON(value))
}

// timeOf is a value as a time: RFC 3339, or seconds since 1970.
func timeOf(value any) (time.Time, error) {
	text := asText(value)
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		var seconds float64
		if seconds, err = strconv.ParseFloat(text, 64); err == nil {
			whole, fraction := math.Modf(max(-1e12, min(seconds, 1e12)))
			at = time.Unix(int64(whole), int64(fraction*1e9))
		}
	}
	at = moment(at)
	// Further than that neither JSON nor RFC 3339 has times.
	if err != nil || at.Year() < 1 || at.Year() > 9999 {
		return time.Time{}, fmt.Errorf("%q is no time: RFC 3339 or seconds since 1970 are", clean(text))
	}
	return at, nil
}
