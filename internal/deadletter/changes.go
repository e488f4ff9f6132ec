package deadletter

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/millrace/millrace/topics"
)

const (
	// maxChanges bounds how many differences are listed, and maxChangeBytes how much
	// of each side of one.
	maxChanges     = 100
	maxChangeBytes = 4096
)

// Change is one difference between two records.
type Change struct {
	// Where is "key", "value", "header " and a name, or "value" and the JSON pointer
	// of a part of it.
	Where string
	// Old and New are JSON where they are parts of a JSON value, and the bytes
	// themselves otherwise, at most 4096 of them. Nil stands for nothing.
	Old, New []byte
}

// Changes lists how a record became another one, at most 100 differences.
func Changes(before, after topics.Record) []Change {
	d := &differences{}
	if !sameBytes(before.Key, after.Key) {
		d.add("key", before.Key, after.Key)
	}
	d.headers(before.Headers, after.Headers)
	if !sameBytes(before.Value, after.Value) {
		d.values(before.Value, after.Value)
	}
	return d.list
}

type differences struct{ list []Change }

func (d *differences) add(where string, before, after []byte) {
	if len(d.list) < maxChanges {
		d.list = append(d.list, Change{where, clip(before), clip(after)})
	}
}

// clip shortens what is too long to be read, between characters if it has any.
func clip(b []byte) []byte {
	if len(b) <= maxChangeBytes {
		return b
	}
	cut := maxChangeBytes
	for cut > maxChangeBytes-utf8.UTFMax && !utf8.RuneStart(b[cut]) {
		cut--
	}
	return append(slices.Clone(b[:cut]), "..."...)
}

func (d *differences) headers(before, after []topics.Header) {
	group := func(headers []topics.Header) map[string][][]byte {
		values := make(map[string][][]byte)
		for _, h := range headers {
			values[h.Key] = append(values[h.Key], h.Value)
		}
		return values
	}
	olds, news := group(before), group(after)
	names := slices.Sorted(maps.Keys(olds))
	for name := range news {
		if _, ok := olds[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	listed := len(d.list)
	for _, name := range names {
		if !slices.EqualFunc(olds[name], news[name], sameBytes) {
			d.add("header "+name, joinValues(olds[name]), joinValues(news[name]))
		}
	}
	if len(d.list) == listed && !sameRecord(topics.Record{Headers: before}, topics.Record{Headers: after}) {
		d.add("order of headers", nil, nil)
	}
}

func joinValues(values [][]byte) []byte {
	if len(values) == 0 {
		return nil
	}
	return bytes.Join(values, []byte(", "))
}

func (d *differences) values(before, after []byte) {
	a, okA := parseJSON(before)
	b, okB := parseJSON(after)
	if !okA || !okB {
		d.add("value", before, after)
		return
	}
	listed := len(d.list)
	d.parts("value", a, b)
	if len(d.list) == listed { // white space, order of members, how a number is written
		d.add("value", before, after)
	}
}

func parseJSON(data []byte) (any, bool) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var v any
	if !utf8.Valid(data) || dec.Decode(&v) != nil || dec.More() {
		return nil, false
	}
	return v, true
}

// parts lists where two JSON values differ. Objects and arrays that are both there
// are gone into.
func (d *differences) parts(at string, a, b any) {
	switch x := a.(type) {
	case map[string]any:
		if y, ok := b.(map[string]any); ok {
			d.members(at, x, y)
			return
		}
	case []any:
		if y, ok := b.([]any); ok && len(x) == len(y) {
			for i := range x {
				d.parts(at+"/"+strconv.Itoa(i), x[i], y[i])
			}
			return
		}
	}
	if !reflect.DeepEqual(a, b) {
		d.add(at, jsonOf(a), jsonOf(b))
	}
}

func (d *differences) members(at string, a, b map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(a)) {
		where := at + "/" + pointerToken(name)
		if other, ok := b[name]; ok {
			d.parts(where, a[name], other)
		} else {
			d.add(where, jsonOf(a[name]), nil)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b)) {
		if _, ok := a[name]; !ok {
			d.add(at+"/"+pointerToken(name), nil, jsonOf(b[name]))
		}
	}
}

func pointerToken(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

func jsonOf(v any) []byte {
	text, _ := json.Marshal(v) // came from JSON
	return text
}
