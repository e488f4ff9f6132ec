package query

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// value checks a value for a field that is not a document, and returns it as a
// string, int64, time.Time or bool.
func (c *compiler) value(f Field, value any, at string) (any, error) {
	switch f.Kind {
	case Int:
		return intValue(value, at)
	case Bool:
		if yes, ok := value.(bool); ok {
			return yes, nil
		}
		return nil, wrongType(at, "true or false", value)
	case Time:
		return timeValue(value, at)
	default:
		text, ok := textOf(value)
		if !ok {
			return nil, wrongType(at, "a text", value)
		}
		return text, c.text(f, text, at)
	}
}

func (c *compiler) text(f Field, text, at string) error {
	switch {
	case len(text) > c.limits.TextBytes:
		return &LimitError{Limit: "text_bytes", Max: c.limits.TextBytes, Got: len(text)}
	case !storable(text):
		return invalid(at, "invalid", "is not UTF-8, or has a zero byte")
	case f.Kind == Enum && !slices.Contains(f.Values, text) && !strings.ContainsAny(text, "%_"):
		// With wildcards it is a pattern; a text with them is no value of any enum.
		return invalid(at, "invalid", "%q is none of %s", clip(text), strings.Join(f.Values, ", "))
	}
	return nil
}

// textOf takes strings and what is made from them.
func textOf(value any) (string, bool) {
	if s, ok := value.(string); ok {
		return s, true
	}
	v := reflect.ValueOf(value)
	if v.IsValid() && v.Kind() == reflect.String && v.Type() != reflect.TypeFor[json.Number]() {
		return v.String(), true
	}
	return "", false
}

func intValue(value any, at string) (any, error) {
	switch n := value.(type) {
	case int:
		return int64(n), nil
	case int32:
		return int64(n), nil
	case int64:
		return n, nil
	case json.Number:
		if i, err := strconv.ParseInt(n.String(), 10, 64); err == nil {
			return i, nil
		}
		return nil, invalid(at, "wrong_type", "must be a whole number of 64 bits")
	}
	return nil, wrongType(at, "a whole number", value)
}

func timeValue(value any, at string) (any, error) {
	t, ok := value.(time.Time)
	if !ok {
		return nil, wrongType(at, "a time", value)
	}
	if y := t.UTC().Year(); y < 1 || y > 9999 {
		return nil, invalid(at, "invalid", "is not between the years 1 and 9999")
	}
	return t.UTC(), nil
}

// documentValue checks a value for a JSON field and returns its JSON. Arrays and
// objects are refused unless they may be.
func (c *compiler) documentValue(value any, structured bool, at string) (string, error) {
	switch v := value.(type) {
	case nil, bool, string, int, int32, int64, json.Number:
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return "", invalid(at, "wrong_type", "is not a number of JSON")
		}
	case json.RawMessage, []any, map[string]any:
		if !structured {
			return "", wrongType(at, "a text, a number, true, false or null", value)
		}
	default:
		return "", wrongType(at, "a JSON value", value)
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return "", invalid(at, "wrong_type", "is not JSON: %s", err)
	}
	if len(raw) > c.limits.DocumentBytes {
		return "", &LimitError{Limit: "document_bytes", Max: c.limits.DocumentBytes, Got: len(raw)}
	}
	var decoded any
	decoder := json.NewDecoder(strings.NewReader(string(raw)))
	decoder.UseNumber()
	if err := decoder.Decode(&decoded); err != nil {
		return "", invalid(at, "wrong_type", "is not JSON: %s", err)
	}
	if err := jsonbTakes(decoded); err != nil {
		return "", invalid(at, "invalid", "%s", err)
	}
	return string(raw), nil
}

// jsonbTakes finds what JSON can say and jsonb cannot hold: zero bytes, and numbers of
// thousands of digits.
func jsonbTakes(value any) error {
	switch v := value.(type) {
	case string:
		if !storable(v) {
			return fmt.Errorf("has a text with a zero byte")
		}
	case json.Number:
		text := v.String()
		_, exponent, _ := strings.Cut(strings.ToLower(text), "e")
		if e, err := strconv.Atoi(exponent); len(text) > 400 || exponent != "" && (err != nil || e > 400 || e < -400) {
			return fmt.Errorf("has a number of too many digits")
		}
	case []any:
		for _, item := range v {
			if err := jsonbTakes(item); err != nil {
				return err
			}
		}
	case map[string]any:
		for name, item := range v {
			if !storable(name) {
				return fmt.Errorf("has a name with a zero byte")
			}
			if err := jsonbTakes(item); err != nil {
				return err
			}
		}
	}
	return nil
}
