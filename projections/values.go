package projections

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"
)

// normal returns a value of the type as a row holds it: string, int64, bool,
// time.Time, or nil for null.
func (t Type) normal(value any) any {
	if value == nil {
		return nil
	}
	switch t {
	case Text, LongText:
		return normalText(t, value)
	case Int:
		return normalInt(value)
	case Bool:
		return value.(bool)
	case Time:
		at, ok := value.(time.Time)
		if !ok {
			p := value.(*time.Time)
			if p == nil {
				return nil
			}
			at = *p
		}
		if at.IsZero() {
			return nil
		}
		// PostgreSQL holds microseconds: what is cut here is cut alike whether a value is
		// compared in a batch or in the table.
		return clampYear(at.UTC().Truncate(time.Microsecond))
	case JSON:
		doc := jsonDocument(reflect.ValueOf(value).Bytes())
		if doc == nil {
			return nil
		}
		return string(doc)
	}
	panic(fmt.Sprintf("projections: the type %q is unknown", t))
}

// maxText is how many bytes of a Text are kept: an index cannot hold much more.
const maxText = 1024

func normalText(t Type, value any) any {
	s, ok := value.(string)
	if !ok {
		s = reflect.ValueOf(value).String() // a type of its own, such as a state
	}
	if s == "" {
		return nil
	}
	s = storable(s)
	if t == Text && len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText], "")
	}
	return s
}

func normalInt(value any) any {
	switch v := value.(type) { // what events mostly have
	case int64:
		return v
	case int:
		return int64(v)
	}
	v := reflect.ValueOf(value)
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return nil
		}
		v = v.Elem()
	}
	return v.Int()
}

// storable returns s without what PostgreSQL's text cannot hold: a NUL, which JSON may
// carry, and invalid UTF-8. The names in events must not decide whether a row can be
// stored.
func storable(s string) string {
	if strings.IndexByte(s, 0) >= 0 {
		s = strings.ReplaceAll(s, "\x00", "\uFFFD")
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// clampYear moves a time that PostgreSQL or JSON cannot write to the nearest year that
// they can.
func clampYear(t time.Time) time.Time {
	switch y := t.Year(); {
	case y < 1:
		return time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)
	case y > 9999:
		return time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	}
	return t
}

// jsonDocument returns the document without the escape \u0000, which jsonb cannot
// hold, or nil for none.
func jsonDocument(doc []byte) []byte {
	if len(doc) == 0 {
		return nil
	}
	if !bytes.Contains(doc, []byte(`\u0000`)) {
		return doc
	}
	out := make([]byte, 0, len(doc))
	for i := 0; i < len(doc); i++ {
		switch {
		case doc[i] == '\\' && i+1 < len(doc) && doc[i+1] == '\\':
			out = append(out, '\\', '\\')
			i++
		case bytes.HasPrefix(doc[i:], []byte(`\u0000`)):
			out = append(out, `\ufffd`...)
			i += len(`\u0000`) - 1
		default:
			out = append(out, doc[i])
		}
	}
	return out
}

// entries is the value of a column declared with Merge.
type entries map[string]entry

// entry is one of them, with the version of the event that it comes from.
type entry struct {
	At    int64           `json:"at"`
	Value json.RawMessage `json:"value"`
}

// before says whether other takes the place of e. Two entries of one version are
// told apart by what they say, so that it does not matter which comes first.
func (e entry) before(other entry) bool {
	if e.At != other.At {
		return e.At < other.At
	}
	return bytes.Compare(e.Value, other.Value) < 0
}
