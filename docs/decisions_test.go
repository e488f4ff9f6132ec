package docs_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/topics"
)

// TestDecisionsAreDocumented compares the codes that the schemas of the events know
// with the page that says what they mean.
func TestDecisionsAreDocumented(t *testing.T) {
	t.Parallel()
	documented := map[string][]string{} // by event and field
	row := regexp.MustCompile("(?m)^\\|(?: `([a-z_]+)`)? \\|(?: `([a-z_]+)`)? \\| `([a-z_]+)` \\|")
	var event, field string
	for _, m := range row.FindAllStringSubmatch(read(t, "docs/decisions.md"), -1) {
		if m[1] != "" {
			event, field = m[1], m[2]
		}
		documented[event+"."+field] = append(documented[event+"."+field], m[3])
	}
	known := map[string][]string{}
	for _, typ := range topics.Types() {
		var schema struct {
			Properties map[string]struct{ Examples, Enum []string }
		}
		require.NoError(t, json.Unmarshal(typ.Schema, &schema))
		name := strings.TrimSuffix(strings.TrimPrefix(typ.Name, "millrace.execution."), ".v1")
		for field, property := range schema.Properties {
			if slices.Contains([]string{"reason", "cause", "limit"}, field) {
				if codes := slices.Concat(property.Examples, property.Enum); len(codes) > 0 {
					known[name+"."+field] = codes
				}
			}
		}
	}
	require.Contains(t, known, "scheduled.reason")
	assert.Equal(t, known, documented)
}
