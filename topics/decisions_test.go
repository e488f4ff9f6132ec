package topics

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// facts are the types of executions that tell of no decision. Whoever adds a type has
// to say here, or in ReasonsOf, which kind it is. No other aggregate has decisions.
func facts() []Event {
	return []Event{
		ExecutionRequested{}, ExecutionReprioritized{}, ExecutionTask{}, ExecutionStarted{}, ExecutionOutput{}, ExecutionCancelRequested{},
		ExecutionLeaseExpired{}, ExecutionCompleted{}, ExecutionFailed{},
	}
}

func TestEveryDecisionHasAReason(t *testing.T) {
	t.Parallel()
	plain := map[string]bool{}
	for _, ev := range facts() {
		plain[ev.EventType()] = true
	}
	for _, typ := range Types() {
		field, codes := ReasonsOf(typ.Name)
		if plain[typ.Name] || !strings.HasPrefix(typ.Name, decisionPrefix) {
			assert.Empty(t, field, "%s is a fact", typ.Name)
			_, decides := DecisionIn(typ.Name, []byte(`{"reason":"x"}`))
			assert.False(t, decides)
			continue
		}
		require.NotEmpty(t, field, "%s is neither a fact nor a decision", typ.Name)
		require.NotEmpty(t, codes)

		var schema struct {
			Properties map[string]struct{ Examples, Enum []string }
		}
		require.NoError(t, json.Unmarshal(typ.Schema, &schema))
		property := schema.Properties[field]
		assert.Equal(t, codes, slices.Concat(property.Examples, property.Enum), "the schema of %s has the codes too", typ.Name)

		data, err := json.Marshal(typ.Example)
		require.NoError(t, err)
		d, decides := DecisionIn(typ.Name, data)
		assert.True(t, decides)
		assert.True(t, d.Known(), "the example of %s has the reason %q", typ.Name, d.Reason)
		assert.Contains(t, typ.Name, "."+d.Name+".")
		assert.False(t, Decision{Name: d.Name, Reason: "whim"}.Known())
		env, err := NewEnvelope(typ.Example)
		require.NoError(t, err)
		same, decides := DecisionOf(env.Record("execution_events", nil))
		assert.True(t, decides)
		assert.Equal(t, d, same)
		_, decides = DecisionOf(Record{Value: data})
		assert.False(t, decides, "a record without a type is nobody's decision")
		_, decides = DecisionIn(typ.Name, []byte("{"))
		assert.False(t, decides, "what cannot be read tells nothing")
	}
}

// A constant that no list has would be a reason that no page explains.
func TestEveryReasonIsListed(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "decisions.go", nil, 0)
	require.NoError(t, err)
	declared := map[string][]string{}
	for _, decl := range file.Decls {
		constants, ok := decl.(*ast.GenDecl)
		if !ok || constants.Tok != token.CONST {
			continue
		}
		for _, spec := range constants.Specs {
			value := spec.(*ast.ValueSpec)
			if !ast.IsExported(value.Names[0].Name) {
				continue
			}
			code, err := strconv.Unquote(value.Values[0].(*ast.BasicLit).Value)
			require.NoError(t, err)
			for _, typ := range Types() {
				name := strings.TrimSuffix(strings.TrimPrefix(typ.Name, decisionPrefix), decisionSuffix)
				if strings.HasPrefix(strings.ToLower(value.Names[0].Name), strings.ReplaceAll(name, "_", "")) {
					declared[typ.Name] = append(declared[typ.Name], code)
				}
			}
		}
	}
	require.NotEmpty(t, declared)
	for _, typ := range Types() {
		_, codes := ReasonsOf(typ.Name)
		assert.Equal(t, declared[typ.Name], codes, typ.Name)
	}
}
