package graphql

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/server/graphql/schema"
)

// TestDocumentation runs the examples of docs/graphql.md.
func TestDocumentation(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/graphql.md")
	require.NoError(t, err)
	w := newWorld(t, Config{})
	w.instances(3)
	blocks := regexp.MustCompile("(?s)\n```graphql\n(.*?)\n```\n").FindAllStringSubmatch(string(page), -1)
	assert.Len(t, blocks, 6)
	for _, block := range blocks {
		w.ask(block[1], nil)
	}
	// Each limit that can be set is in the table, with its default.
	for _, row := range []string{
		"`graphql.max_body_bytes` | 1 MiB |", "`graphql.max_tokens` | 2500 |", "`graphql.max_depth` | 10 |", "`graphql.max_cost` | 200000 |",
		"`graphql.max_root_fields` | 20 |", "`graphql.max_aliases` | 50 |", "`graphql.max_directives` | 50 |", "`graphql.max_list_length` | 1000 |",
		"`graphql.max_page_size` | 1000 |", "`graphql.max_concurrent` | 4 |", "`graphql.timeout` | 10s |",
	} {
		assert.Contains(t, string(page), row)
	}
	for _, code := range []string{
		codeMalformed, codeBadRequest, codeSyntax, codeValidation, codeVariables, codeArgument, codeCursor, codeLimit, codeIntrospection,
		codeForbidden, codeTimeout, codeCancelled, codeUnavailable, codeInternal,
	} {
		assert.Contains(t, string(page), "`"+code+"`")
	}
}

// TestGeneratedCodeIsOfTheSchema holds that what gqlgen has made is of the schema as
// it is now: it keeps a copy of its sources. `make graphql` makes it anew.
func TestGeneratedCodeIsOfTheSchema(t *testing.T) {
	t.Parallel()
	const folder = "../../../api/graphql/"
	files, err := os.ReadDir(folder)
	require.NoError(t, err)
	kept := map[string]string{}
	for _, definition := range schema.NewExecutableSchema(schema.Config{}).Schema().Types {
		if p := definition.Position; p != nil && p.Src != nil && !p.Src.BuiltIn {
			kept[p.Src.Name[strings.LastIndexByte(p.Src.Name, '/')+1:]] = p.Src.Input
		}
	}
	found := 0
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".graphqls") {
			continue
		}
		text, err := os.ReadFile(folder + f.Name())
		require.NoError(t, err)
		if f.Name() != "connections.graphqls" || kept[f.Name()] != "" {
			assert.Equal(t, string(text), kept[f.Name()], "%s has changed: run make graphql", f.Name())
		}
		found++
	}
	assert.Equal(t, 5, found)
	assert.Len(t, kept, 5)
}

// TestVocabulary holds that every field of a filter and an order is one that package
// query knows.
func TestVocabulary(t *testing.T) {
	t.Parallel()
	s := schema.NewExecutableSchema(schema.Config{}).Schema()
	for name, words := range map[string]vocabulary{
		"WorkflowInstance": workflowWords(), "TaskExecution": taskWords(), "Execution": executionWords(), "Pod": podWords(), "Saga": sagaWords(),
	} {
		for input, fields := range map[string][]named{name + "FilterInput": words.fields, name + "OrderByInput": words.orders} {
			known := map[string]bool{"and": true, "or": true, "not": true, "search": true, "error": true}
			for _, f := range fields {
				known[f.schema] = true
				assert.NotNil(t, s.Types[input].Fields.ForName(f.schema), "%s.%s is not in the schema", input, f.schema)
			}
			for _, f := range s.Types[input].Fields {
				assert.True(t, known[f.Name], "%s.%s is in the schema only", input, f.Name)
			}
		}
	}
}

// TestEveryFieldFilters uses every field of every filter, order and group once, on a
// real database.
func TestEveryFieldFilters(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	s := schema.NewExecutableSchema(schema.Config{}).Schema()
	for list, name := range map[string]string{
		"workflowInstances": "WorkflowInstance", "taskInstances": "TaskExecution", "executions": "Execution", "pods": "Pod", "sagas": "Saga",
	} {
		for _, f := range s.Types[name+"OrderByInput"].Fields {
			w.ask(`{ `+list+`(orderBy: {`+f.Name+`: DESC}) { nodes { id } } }`, nil)
		}
		for _, f := range s.Types[name+"FilterInput"].Fields {
			kind := s.Types[f.Type.Name()]
			if strings.HasSuffix(kind.Name, "FilterInput") && kind.Fields.ForName("isNull") != nil {
				w.ask(`{ `+list+`(filter: {`+f.Name+`: {isNull: false}}) { nodes { id } } }`, nil)
			}
		}
	}
	for field, groups := range map[string]string{
		"workflowInstanceStatistics": "WorkflowInstanceGroup", "taskInstanceStatistics": "TaskExecutionGroup", "executionStatistics": "ExecutionGroup",
	} {
		for _, g := range s.Types[groups].EnumValues {
			for _, by := range []string{"START", "END"} {
				w.ask(`{ `+field+`(groupBy: `+g.Name+`, bucket: {by: `+by+`, seconds: 60}) { groups { count duration { p95 } } } }`, nil)
			}
		}
	}
}
