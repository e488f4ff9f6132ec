// Package compat tells whether a changed JSON Schema breaks anybody who holds to
// the released one. Two kinds of reader count, because a topic keeps events for
// months and processes are upgraded one by one:
//
//   - a new reader meets old events: it must still accept everything that the
//     released schema accepts;
//   - an old reader meets new events: it must still accept them, and find what it
//     looks for.
//
// What is left is adding optional fields and rewording descriptions. Anything
// else is a new event type. The package judges the part of JSON Schema that the
// schemas of Millrace use; a change of any other keyword counts as breaking,
// because it cannot be judged. It holds no state and does no I/O.
package compat

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Break is one change that breaks somebody.
type Break struct {
	// Path is where in the data: a JSON pointer, empty for the whole. An asterisk
	// stands for every member of a map or every item of an array.
	Path string
	// Change says what was changed.
	Change string
	// Breaks says whom that breaks, and how.
	Breaks string
}

// String returns the break as one sentence.
func (b Break) String() string {
	path := b.Path
	if path == "" {
		path = "the whole"
	}
	return path + ": " + b.Change + ": " + b.Breaks
}

const (
	oldReaders = "readers of the released schema refuse new events"
	newReaders = "readers of the new schema refuse events that are already in the topic"
)

// Check compares the current schema with the released one and returns every break,
// ordered by path; none means compatible. It fails when one of them is not a JSON
// Schema, or refers to something outside its own $defs.
func Check(released, current []byte) ([]Break, error) {
	before, err := parse(released)
	if err != nil {
		return nil, fmt.Errorf("parse the released schema: %w", err)
	}
	after, err := parse(current)
	if err != nil {
		return nil, fmt.Errorf("parse the current schema: %w", err)
	}
	c := checker{before: before, after: after, open: make(map[[2]string]bool)}
	if err := c.compare("", before, after); err != nil {
		return nil, err
	}
	slices.SortStableFunc(c.breaks, func(a, b Break) int { return strings.Compare(a.Path, b.Path) })
	return c.breaks, nil
}

type schema = map[string]any

func parse(data []byte) (schema, error) {
	var s schema
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, err
	}
	return s, nil
}

type checker struct {
	before, after schema // the documents, for their $defs
	breaks        []Break
	// open holds the pairs of definitions that are being compared, so that a
	// definition that contains itself comes to an end.
	open map[[2]string]bool
}

func (c *checker) add(path, change, breaks string) {
	c.breaks = append(c.breaks, Break{Path: path, Change: change, Breaks: breaks})
}

func (c *checker) compare(path string, before, after schema) error {
	before, refBefore, err := resolve(c.before, before)
	if err != nil {
		return fmt.Errorf("released schema at %s: %w", path, err)
	}
	after, refAfter, err := resolve(c.after, after)
	if err != nil {
		return fmt.Errorf("current schema at %s: %w", path, err)
	}
	if pair := [2]string{refBefore, refAfter}; refBefore != "" || refAfter != "" {
		if c.open[pair] {
			return nil
		}
		c.open[pair] = true
		defer delete(c.open, pair)
	}
	if !reflect.DeepEqual(before["type"], after["type"]) {
		c.add(path, fmt.Sprintf("the type was %s and is %s", show(before["type"]), show(after["type"])),
			oldReaders+", and "+newReaders)
		return nil // the rest follows from it
	}
	c.enum(path, before, after)
	for _, b := range bounds() {
		c.bound(path, b, before[b.keyword], after[b.keyword])
	}
	c.required(path, before, after)
	c.otherKeywords(path, before, after)
	if err := c.properties(path, before, after); err != nil {
		return err
	}
	for _, keyword := range []string{"additionalProperties", "items"} {
		if err := c.rest(path, keyword, before[keyword], after[keyword]); err != nil {
			return err
		}
	}
	return nil
}

// resolve follows $ref into the $defs of its document, and returns the last one.
// Beside a $ref only annotations may stand.
func resolve(document, s schema) (target schema, ref string, err error) {
	seen := make(map[string]bool)
	for {
		next, ok := s["$ref"].(string)
		if !ok {
			return s, ref, nil
		}
		if seen[next] {
			return nil, "", fmt.Errorf("%s leads to itself", next)
		}
		seen[next], ref = true, next
		for keyword := range s {
			if keyword != "$ref" && keyword != "$defs" && !annotation(keyword) {
				return nil, "", fmt.Errorf("%s beside $ref is not supported", keyword)
			}
		}
		name, ok := strings.CutPrefix(next, "#/$defs/")
		found, there := object(document["$defs"])[name].(schema)
		if !ok || !there {
			return nil, "", fmt.Errorf("%s leads nowhere", next)
		}
		s = found
	}
}

func (c *checker) properties(path string, before, after schema) error {
	was, is := object(before["properties"]), object(after["properties"])
	for _, name := range slices.Sorted(maps.Keys(was)) {
		at := path + "/" + escape(name)
		changed, still := is[name]
		if !still {
			c.add(at, "the property was removed", "readers of the released schema look for it and find nothing")
			continue
		}
		if err := c.compare(at, asSchema(was[name]), asSchema(changed)); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(is)) {
		if _, known := was[name]; known {
			continue
		}
		switch others := before["additionalProperties"].(type) {
		case bool:
			if !others {
				c.add(path+"/"+escape(name), "a property was added to a closed object", oldReaders+" that have it")
			}
		case schema:
			// So far the name was one of many in a map.
			if err := c.compare(path+"/"+escape(name), others, asSchema(is[name])); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *checker) required(path string, before, after schema) {
	was, is := texts(before["required"]), texts(after["required"])
	properties := object(after["properties"])
	for _, name := range is {
		if !slices.Contains(was, name) {
			c.add(path+"/"+escape(name), "the property is newly required", newReaders+" without it")
		}
	}
	for _, name := range was {
		if _, there := properties[name]; there && !slices.Contains(is, name) {
			c.add(path+"/"+escape(name), "the property is no longer required", oldReaders+" without it")
		}
	}
}

func (c *checker) enum(path string, before, after schema) {
	was, closedBefore := before["enum"].([]any)
	is, closedAfter := after["enum"].([]any)
	switch {
	case closedBefore && !closedAfter:
		c.add(path, "the enumeration was removed", oldReaders+" with other values")
	case !closedBefore && closedAfter:
		c.add(path, "an enumeration was added", newReaders+" with other values")
	}
	if !closedBefore || !closedAfter {
		return
	}
	if gone := missing(was, is); len(gone) > 0 {
		c.add(path, "the enumeration lost "+strings.Join(gone, ", "), newReaders+" with that value")
	}
	if added := missing(is, was); len(added) > 0 {
		c.add(path, "the enumeration got "+strings.Join(added, ", "), oldReaders+" with that value")
	}
}

// missing returns the values of from that are not in in, as JSON.
func missing(from, in []any) []string {
	var gone []string
	for _, v := range from {
		if !slices.ContainsFunc(in, func(w any) bool { return reflect.DeepEqual(v, w) }) {
			gone = append(gone, show(v))
		}
	}
	return gone
}

// boundKeyword is a keyword with a number; lower bounds narrow as they grow.
type boundKeyword struct {
	keyword string
	lower   bool
}

func bounds() []boundKeyword {
	return []boundKeyword{
		{"minimum", true}, {"exclusiveMinimum", true}, {"minLength", true}, {"minItems", true}, {"minProperties", true},
		{"maximum", false}, {"exclusiveMaximum", false}, {"maxLength", false}, {"maxItems", false}, {"maxProperties", false},
	}
}

func (c *checker) bound(path string, b boundKeyword, before, after any) {
	was, boundBefore := before.(float64)
	is, boundAfter := after.(float64)
	var narrower bool
	switch {
	case !boundBefore && !boundAfter, boundBefore && boundAfter && was == is:
		return
	case boundBefore && boundAfter:
		narrower = (is > was) == b.lower
	default:
		narrower = boundAfter
	}
	change := fmt.Sprintf("%s was %s and is %s", b.keyword, show(before), show(after))
	if narrower {
		c.add(path, change, newReaders+" beyond the new bound")
		return
	}
	c.add(path, change, oldReaders+" beyond the old bound")
}

// rest compares what holds for members or items without a name of their own. No
// keyword is the same as true: anything goes.
func (c *checker) rest(path, keyword string, before, after any) error {
	was, is := object(before), object(after)
	if was != nil && is != nil {
		return c.compare(path+"/*", was, is)
	}
	open := func(v any) bool { return v == nil || v == true }
	switch {
	case reflect.DeepEqual(before, after), open(before) && open(after):
	case open(after):
		c.add(path, keyword+" was loosened", oldReaders+" that make use of it")
	case open(before):
		c.add(path, keyword+" was restricted", newReaders+" that made use of it")
	default:
		c.add(path, keyword+" was changed", oldReaders+", or "+newReaders)
	}
	return nil
}

// annotation reports whether a keyword asserts nothing.
func annotation(keyword string) bool {
	switch keyword {
	case "$schema", "$comment", "title", "description", "examples", "default", "deprecated",
		"readOnly", "writeOnly":
		return true
	}
	return false
}

// judged reports whether another function compares a keyword.
func judged(keyword string) bool {
	switch keyword {
	case "$defs", "$ref", "type", "properties", "required", "enum", "additionalProperties", "items":
		return true
	}
	return slices.ContainsFunc(bounds(), func(b boundKeyword) bool { return b.keyword == keyword })
}

// otherKeywords reports every further keyword that differs: pattern, format and
// whatever else asserts something.
func (c *checker) otherKeywords(path string, before, after schema) {
	keywords := make(map[string]bool, len(before)+len(after))
	for k := range before {
		keywords[k] = true
	}
	for k := range after {
		keywords[k] = true
	}
	for _, k := range slices.Sorted(maps.Keys(keywords)) {
		if annotation(k) || judged(k) || reflect.DeepEqual(before[k], after[k]) {
			continue
		}
		change := fmt.Sprintf("%s was %s and is %s", k, show(before[k]), show(after[k]))
		switch {
		case after[k] == nil:
			c.add(path, change, oldReaders+" that make use of it")
		case before[k] == nil:
			c.add(path, change, newReaders+" that do not comply")
		default:
			c.add(path, change, oldReaders+", or "+newReaders)
		}
	}
}

func object(v any) schema {
	s, _ := v.(schema)
	return s
}

// asSchema returns a subschema as an object; true, which allows anything, is the
// empty one.
func asSchema(v any) schema {
	if s, ok := v.(schema); ok {
		return s
	}
	if v == false {
		return schema{"not": schema{}}
	}
	return schema{}
}

func texts(v any) []string {
	list, _ := v.([]any)
	out := make([]string, 0, len(list))
	for _, e := range list {
		if s, ok := e.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

func show(v any) string {
	if v == nil {
		return "none"
	}
	text, err := json.Marshal(v)
	if err != nil {
		return "?"
	}
	return string(text)
}

func escape(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}
