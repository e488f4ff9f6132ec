package query

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// statement gathers the arguments of a statement. Everything that comes from a
// caller becomes an argument; the text of a statement comes from declarations alone.
type statement struct{ args []any }

// arg adds an argument and returns its placeholder.
func (s *statement) arg(value any) string {
	s.args = append(s.args, value)
	return fmt.Sprintf("$%d", len(s.args))
}

// typed adds an argument of a kind and returns its placeholder with its type, so that
// what it is does not depend on what it meets: an integer that is too large for a
// column is then just larger than all of its values.
func (s *statement) typed(k Kind, value any) string { return s.arg(value) + "::" + sqlType(k) }

// array is typed for several values.
func (s *statement) array(k Kind, values []any) string {
	switch k {
	case Int:
		return s.arg(convert[int64](values)) + "::int8[]"
	case Time:
		return s.arg(convert[time.Time](values)) + "::timestamptz[]"
	case Bool:
		return s.arg(convert[bool](values)) + "::bool[]"
	case JSON:
		return s.arg(convert[string](values)) + "::text[]::jsonb[]"
	default:
		return s.arg(convert[string](values)) + "::text[]"
	}
}

// convert makes a slice of one type, which all values have, or int for int64.
func convert[T any](values []any) []T {
	out := make([]T, len(values))
	for i, v := range values {
		if n, ok := v.(int); ok {
			v = int64(n)
		}
		out[i], _ = v.(T)
	}
	return out
}

func sqlType(k Kind) string {
	switch k {
	case Int:
		return "int8"
	case Time:
		return "timestamptz"
	case Bool:
		return "bool"
	case JSON:
		return "jsonb"
	default:
		return "text"
	}
}

// storable reports whether PostgreSQL takes a text: UTF-8 without zero bytes.
func storable(text string) bool { return utf8.ValidString(text) && strings.IndexByte(text, 0) < 0 }

// clip shortens a text of a caller for a message.
func clip(text string) string {
	const most = 80
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
