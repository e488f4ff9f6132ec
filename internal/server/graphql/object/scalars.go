package object

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/99designs/gqlgen/graphql"
)

// MarshalDateTime writes a moment in UTC.
func MarshalDateTime(t time.Time) graphql.Marshaler {
	return graphql.WriterFunc(func(w io.Writer) {
		_, _ = io.WriteString(w, strconv.Quote(t.UTC().Format(time.RFC3339Nano)))
	})
}

// UnmarshalDateTime reads a moment.
func UnmarshalDateTime(v any) (time.Time, error) {
	s, ok := v.(string)
	if !ok {
		return time.Time{}, fmt.Errorf("a DateTime is a text such as %q", "2026-05-25T22:40:10Z")
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}, fmt.Errorf("a DateTime is RFC 3339, such as %q", "2026-05-25T22:40:10Z")
	}
	return t.UTC(), nil
}

// MarshalJSON writes JSON as it is.
func MarshalJSON(document json.RawMessage) graphql.Marshaler {
	return graphql.WriterFunc(func(w io.Writer) {
		if document == nil {
			document = json.RawMessage("null")
		}
		_, _ = w.Write(document)
	})
}

// UnmarshalJSON reads any value.
func UnmarshalJSON(v any) (json.RawMessage, error) { return json.Marshal(v) }

// MarshalEnum writes a value of an enumeration.
func MarshalEnum(s string) graphql.Marshaler { return graphql.MarshalString(s) }

// UnmarshalEnum reads a value of an enumeration, which the validator has checked.
func UnmarshalEnum(v any) (string, error) { return graphql.UnmarshalString(v) }
