package topics

import (
	"math/big"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// A plan is a JSON Schema made ready for one pass over the bytes of a document.
// It may only err on one side: what it passes must be valid, given that the
// document is JSON. Where a document or a schema is unusual it says no, and the
// full validator decides. A fuzz test holds the two against each other.

type planKind uint8

const (
	planAny     planKind = iota // any value
	planNever                   // a schema that no plan covers
	planObject                  // an object
	planString                  // a string
	planInteger                 // an integer that fits in int64
	planNumber                  // a number
	planBoolean                 // true or false
	planArray                   // an array
)

type planNode struct {
	kind planKind

	// Objects.
	fields   []planField
	required uint64    // bits of the fields that must be there
	others   *planNode // what unknown members must be, nil for anything

	// Arrays.
	items *planNode // nil for anything

	// Strings.
	minLength, maxLength int // maxLength < 0: no bound
	enum                 []string
	dateTime             bool
	matches              func([]byte) bool

	// Numbers.
	minimum, maximum *float64
}

type planField struct {
	name string
	node *planNode
}

// The patterns that the schemas use.
const (
	patternCode     = `^[a-z][a-z0-9_]*$`
	patternDuration = `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`
)

// planOf makes the plan of a schema. A keyword that it does not know makes it a
// plan that passes nothing.
func planOf(s *jsonschema.Schema) *planNode {
	never := &planNode{kind: planNever}
	switch {
	case s == nil:
		return &planNode{kind: planAny}
	case s.Bool != nil && *s.Bool:
		return &planNode{kind: planAny}
	case s.Ref != nil:
		if s.Types != nil || hasAssertions(s) || hasOtherKeywords(s) {
			return never
		}
		return planOf(s.Ref)
	case hasOtherKeywords(s):
		return never
	case s.Types == nil:
		if hasAssertions(s) {
			return never
		}
		return &planNode{kind: planAny}
	}
	switch s.Types.String() {
	case "[object]":
		return planOfObject(s)
	case "[string]":
		return planOfString(s)
	case "[integer]":
		return planOfNumber(s, planInteger)
	case "[number]":
		return planOfNumber(s, planNumber)
	case "[boolean]":
		return &planNode{kind: planBoolean}
	case "[array]":
		return &planNode{kind: planArray, items: planOf(s.Items2020)}
	}
	return never
}

// hasOtherKeywords reports whether s asserts anything by a keyword that no plan
// looks at.
func hasOtherKeywords(s *jsonschema.Schema) bool {
	return s.Bool != nil || s.RecursiveRef != nil || s.DynamicRef != nil || s.Const != nil || s.Not != nil ||
		s.AllOf != nil || s.AnyOf != nil || s.OneOf != nil || s.If != nil ||
		s.MaxProperties != nil || s.MinProperties != nil || s.PropertyNames != nil || len(s.PatternProperties) > 0 ||
		len(s.Dependencies) > 0 || len(s.DependentRequired) > 0 || len(s.DependentSchemas) > 0 ||
		s.UnevaluatedProperties != nil || s.MinItems != nil || s.MaxItems != nil || s.UniqueItems ||
		s.Contains != nil || s.Items != nil || s.AdditionalItems != nil || len(s.PrefixItems) > 0 ||
		s.UnevaluatedItems != nil || s.ExclusiveMaximum != nil || s.ExclusiveMinimum != nil || s.MultipleOf != nil ||
		s.ContentEncoding != nil || s.ContentMediaType != nil || s.ContentSchema != nil || len(s.Extensions) > 0
}

func hasAssertions(s *jsonschema.Schema) bool {
	return s.Enum != nil || s.Format != nil || s.Required != nil || s.Properties != nil ||
		s.AdditionalProperties != nil || s.Items2020 != nil || s.MinLength != nil || s.MaxLength != nil ||
		s.Pattern != nil || s.Maximum != nil || s.Minimum != nil
}

func planOfObject(s *jsonschema.Schema) *planNode {
	n := &planNode{kind: planObject}
	for name, sub := range s.Properties {
		n.fields = append(n.fields, planField{name, planOf(sub)})
	}
	slices.SortFunc(n.fields, func(a, b planField) int { return strings.Compare(a.name, b.name) })
	switch others := s.AdditionalProperties.(type) {
	case nil:
	case *jsonschema.Schema:
		n.others = planOf(others)
	case bool:
		if !others {
			n.others = &planNode{kind: planNever}
		}
	}
	for _, name := range s.Required {
		i := slices.IndexFunc(n.fields, func(f planField) bool { return f.name == name })
		if i < 0 || i > 63 {
			return &planNode{kind: planNever}
		}
		n.required |= 1 << i
	}
	if len(n.fields) > 64 || s.Enum != nil {
		return &planNode{kind: planNever}
	}
	return n
}

func planOfString(s *jsonschema.Schema) *planNode {
	n := &planNode{kind: planString, maxLength: -1}
	if s.MinLength != nil {
		n.minLength = *s.MinLength
	}
	if s.MaxLength != nil {
		n.maxLength = *s.MaxLength
	}
	if s.Enum != nil {
		n.enum = []string{}
		for _, v := range s.Enum.Values {
			if text, ok := v.(string); ok {
				n.enum = append(n.enum, text)
			}
		}
	}
	if s.Format != nil {
		if s.Format.Name != "date-time" {
			return &planNode{kind: planNever}
		}
		n.dateTime = true
	}
	if s.Pattern != nil {
		switch s.Pattern.String() {
		case patternCode:
			n.matches = matchesCode
		case patternDuration:
			n.matches = matchesDuration
		default:
			return &planNode{kind: planNever}
		}
	}
	return n
}

func planOfNumber(s *jsonschema.Schema, kind planKind) *planNode {
	n := &planNode{kind: kind}
	bound := func(r *big.Rat) *float64 {
		if r == nil {
			return nil
		}
		f, _ := r.Float64()
		return &f
	}
	n.minimum, n.maximum = bound(s.Minimum), bound(s.Maximum)
	if s.Enum != nil {
		return &planNode{kind: planNever}
	}
	return n
}
