package query

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"time"
)

const (
	cursorVersion  = 1
	cursorMaxBytes = 16 << 10
)

// cursor is a place in a list. Its text is base64url of its JSON; to clients it is
// opaque.
type cursor struct {
	Version int `json:"v"`
	// List is a digest of what the list is: collection, order, scope and filter.
	List []byte `json:"l"`
	// Place are the values of the order: texts, booleans, null; integers and times (in
	// microseconds since 1970) as decimal texts, which keep all of 64 bits.
	Place []json.RawMessage `json:"p"`
}

// identity digests what a list is.
func identity(table, order string, where []string, args []any) []byte {
	raw, err := json.Marshal([]any{table, order, where, args})
	if err != nil { // cannot happen: texts, numbers and times that were checked
		return nil
	}
	sum := sha256.Sum256(raw)
	return sum[:9]
}

func formatCursor(identity []byte, place []any) string {
	c := cursor{Version: cursorVersion, List: identity, Place: make([]json.RawMessage, len(place))}
	for i, v := range place {
		switch x := v.(type) {
		case time.Time:
			v = strconv.FormatInt(x.UnixMicro(), 10)
		case int64:
			v = strconv.FormatInt(x, 10)
		}
		c.Place[i], _ = json.Marshal(v) // cannot fail: text, bool or nil
	}
	raw, _ := json.Marshal(c) // cannot fail either
	return base64.RawURLEncoding.EncodeToString(raw)
}

// parseCursor reads a cursor of a list with the identity and returns the values of its
// order. Whatever the text, it returns them or an error that wraps ErrCursor.
func parseCursor(text string, identity []byte, columns []orderColumn) ([]any, error) {
	if len(text) > cursorMaxBytes {
		return nil, fmt.Errorf("%w: too long", ErrCursor)
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("%w: not base64url", ErrCursor)
	}
	var c cursor
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&c); err != nil || decoder.More() {
		return nil, fmt.Errorf("%w: malformed", ErrCursor)
	}
	switch {
	case c.Version != cursorVersion:
		return nil, fmt.Errorf("%w: of another version", ErrCursor)
	case !bytes.Equal(c.List, identity):
		return nil, fmt.Errorf("%w: it belongs to another filter or order", ErrCursor)
	case len(c.Place) != len(columns):
		return nil, fmt.Errorf("%w: malformed", ErrCursor)
	}
	place := make([]any, len(columns))
	for i, column := range columns {
		if place[i], err = parsePlace(c.Place[i], column.Field); err != nil {
			return nil, err
		}
	}
	return place, nil
}

func parsePlace(raw json.RawMessage, f Field) (any, error) {
	malformed := fmt.Errorf("%w: malformed", ErrCursor)
	if string(raw) == "null" {
		if !f.Nullable {
			return nil, malformed
		}
		return nil, nil
	}
	if f.Kind == Bool {
		var yes bool
		if json.Unmarshal(raw, &yes) != nil {
			return nil, malformed
		}
		return yes, nil
	}
	var text string
	if json.Unmarshal(raw, &text) != nil || !storable(text) {
		return nil, malformed
	}
	if f.Kind != Int && f.Kind != Time {
		return text, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, malformed
	}
	if f.Kind == Int {
		return n, nil
	}
	at := time.UnixMicro(n).UTC()
	if y := at.Year(); y < -4712 || y > 9999 {
		return nil, malformed
	}
	return at, nil
}

// plain takes the pointers off a value of a row: nil, string, int64, bool or time.Time.
func plain(at any) any {
	v := reflect.ValueOf(at)
	for v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return nil
		}
		v = v.Elem()
	}
	if t, ok := v.Interface().(time.Time); ok {
		return t
	}
	switch v.Kind() {
	case reflect.String:
		return v.String()
	case reflect.Int, reflect.Int32, reflect.Int64:
		return v.Int()
	case reflect.Bool:
		return v.Bool()
	}
	return nil
}
