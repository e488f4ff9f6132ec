package compat_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/topics/compat"
)

const released = `{
  "title": "Parcel",
  "type": "object",
  "required": ["id", "size"],
  "properties": {
    "id": {"type": "string", "minLength": 1, "maxLength": 64},
    "size": {"type": "string", "enum": ["small", "large"]},
    "weight": {"type": "integer", "minimum": 0, "maximum": 100},
    "code": {"type": "string", "pattern": "^[a-z]+$"},
    "sent": {"type": "string", "format": "date-time"},
    "tags": {"type": "array", "items": {"type": "string"}},
    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
    "sender": {"$ref": "#/$defs/Person", "description": "who sends it"},
    "sealed": {"type": "object", "additionalProperties": false, "properties": {"by": {"type": "string"}}}
  },
  "$defs": {"Person": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "a/b": {"type": "string"}}}}
}`

func TestCheck(t *testing.T) {
	t.Parallel()
	const whole = ""
	tests := []struct {
		name         string
		before, edit string // replace before by edit in the released schema
		path         string // of the one break; "-" for none
		says         []string
	}{
		{"nothing", "Parcel", "Parcel", "-", nil},
		{"reworded", `"description": "who sends it"`, `"description": "the sender"`, "-", nil},
		{"retitled", "Parcel", "Package", "-", nil},
		{"optional property added", `"weight":`, `"height": {"type": "integer", "minimum": 3}, "weight":`, "-", nil},
		{"optional property added in a definition", `"name": {"type": "string"}`, `"name": {"type": "string"}, "age": {"type": "integer"}`, "-", nil},
		{"definition inlined", `{"$ref": "#/$defs/Person", "description": "who sends it"}`,
			`{"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "a/b": {"type": "string"}}}`, "-", nil},
		{"explicitly open", `"title": "Parcel"`, `"additionalProperties": true, "title": "Parcel"`, "-", nil},

		{"property removed", `"weight": {"type": "integer", "minimum": 0, "maximum": 100},`, ``, "/weight",
			[]string{"removed", "readers of the released schema look for it"}},
		{"property removed in a definition", `, "a/b": {"type": "string"}`, ``, "/sender/a~1b", []string{"removed"}},
		{"type changed", `"weight": {"type": "integer"`, `"weight": {"type": "string"`, "/weight", []string{`"integer"`, `"string"`}},
		{"type widened", `"weight": {"type": "integer"`, `"weight": {"type": "number"`, "/weight", []string{"released schema refuse new events"}},
		{"item type changed", `"items": {"type": "string"}`, `"items": {"type": "integer"}`, "/tags/*", []string{`"integer"`}},
		{"map type changed", `"additionalProperties": {"type": "string"}`, `"additionalProperties": {"type": "integer"}`, "/labels/*", []string{`"integer"`}},
		{"property newly required", `["id", "size"]`, `["id", "size", "weight"]`, "/weight",
			[]string{"newly required", "already in the topic"}},
		{"required in a definition", `["name"]`, `["name", "a/b"]`, "/sender/a~1b", []string{"newly required"}},
		{"no longer required", `["id", "size"]`, `["id"]`, "/size", []string{"no longer required", "readers of the released schema"}},
		{"enumeration narrowed", `["small", "large"]`, `["small"]`, "/size", []string{`lost "large"`, "already in the topic"}},
		{"enumeration widened", `["small", "large"]`, `["small", "large", "huge"]`, "/size", []string{`got "huge"`, "readers of the released schema"}},
		{"enumeration removed", `, "enum": ["small", "large"]`, ``, "/size", []string{"removed"}},
		{"enumeration added", `"code": {"type": "string"`, `"code": {"type": "string", "enum": ["a"]`, "/code", []string{"an enumeration was added"}},
		{"maximum lowered", `"maximum": 100`, `"maximum": 99`, "/weight", []string{"was 100 and is 99", "already in the topic"}},
		{"maximum raised", `"maximum": 100`, `"maximum": 101`, "/weight", []string{"readers of the released schema"}},
		{"minimum raised", `"minimum": 0`, `"minimum": 1`, "/weight", []string{"already in the topic"}},
		{"minimum lowered", `"minimum": 0`, `"minimum": -1`, "/weight", []string{"readers of the released schema"}},
		{"bound removed", `, "maxLength": 64`, ``, "/id", []string{"was 64 and is none", "readers of the released schema"}},
		{"bound added", `"minimum": 0`, `"minimum": 0, "exclusiveMaximum": 50`, "/weight", []string{"was none and is 50", "already in the topic"}},
		{"pattern changed", `^[a-z]+$`, `^[A-Z]+$`, "/code", []string{"pattern"}},
		{"pattern removed", `, "pattern": "^[a-z]+$"`, ``, "/code", []string{"pattern", "readers of the released schema"}},
		{"format added", `"code": {"type": "string"`, `"code": {"type": "string", "format": "uuid"`, "/code", []string{"format", "already in the topic"}},
		{"object closed", `"title": "Parcel"`, `"additionalProperties": false, "title": "Parcel"`, whole, []string{"restricted"}},
		{"map opened", `, "additionalProperties": {"type": "string"}`, ``, "/labels", []string{"loosened"}},
		{"sealed object opened", `"additionalProperties": false, `, ``, "/sealed", []string{"loosened"}},
		{"property added to a closed object", `"by": {"type": "string"}`, `"by": {"type": "string"}, "at": {"type": "string"}`, "/sealed/at", []string{"closed object"}},
		{"map gets a property of another type", `"additionalProperties": {"type": "string"}`,
			`"additionalProperties": {"type": "string"}, "properties": {"n": {"type": "integer"}}`, "/labels/n", []string{`"integer"`}},
		{"unknown keyword", `"weight": {"type": "integer"`, `"weight": {"type": "integer", "multipleOf": 5`, "/weight", []string{"multipleOf"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			current := replaceOnce(t, released, tt.before, tt.edit)
			breaks, err := compat.Check([]byte(released), []byte(current))
			require.NoError(t, err)
			if tt.path == "-" {
				assert.Empty(t, breaks)
				return
			}
			require.Len(t, breaks, 1)
			assert.Equal(t, tt.path, breaks[0].Path)
			for _, words := range tt.says {
				assert.Contains(t, breaks[0].String(), words)
			}
		})
	}
}

func TestCheckReportsEveryBreakInOrder(t *testing.T) {
	t.Parallel()
	current := replaceOnce(t, released, `["small", "large"]`, `["large"]`)
	current = replaceOnce(t, current, `"maximum": 100`, `"maximum": 7`)
	current = replaceOnce(t, current, `"code": {"type": "string", "pattern": "^[a-z]+$"},`, ``)
	breaks, err := compat.Check([]byte(released), []byte(current))
	require.NoError(t, err)
	var paths []string
	for _, b := range breaks {
		paths = append(paths, b.Path)
	}
	assert.Equal(t, []string{"/code", "/size", "/weight"}, paths)
}

func TestCheckRefusesWhatItCannotRead(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string]string{
		"not JSON":        `{`,
		"not an object":   `[]`,
		"dangling":        `{"$ref": "#/$defs/Nobody"}`,
		"outside":         `{"$ref": "other.json"}`,
		"circle":          `{"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}`,
		"rule beside ref": `{"properties": {"a": {"$ref": "#/$defs/A", "minimum": 1}}, "$defs": {"A": {}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := compat.Check([]byte(bad), []byte(bad))
			require.Error(t, err)
		})
	}
}

// A schema that contains itself has no end; the check has.
func TestCheckOfRecursiveSchemaEnds(t *testing.T) {
	t.Parallel()
	const tree = `{"$ref": "#/$defs/T", "$defs": {"T": {"type": "object", "properties": {"left": {"$ref": "#/$defs/T"}, "right": {"$ref": "#/$defs/T"}}}}}`
	breaks, err := compat.Check([]byte(tree), []byte(tree))
	require.NoError(t, err)
	assert.Empty(t, breaks)
}

func replaceOnce(t *testing.T, s, before, after string) string {
	t.Helper()
	require.Equal(t, 1, strings.Count(s, before), "%q stands in the schema once", before)
	return strings.Replace(s, before, after, 1)
}
