package topics

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// go test ./topics -run 'TestSchemas|TestGolden' -update writes the schemas and
// the golden files anew.
var update = flag.Bool("update", false, "write schemas and golden files anew")

// The schemas are made from the structs: types and optional fields from Go and
// the json tag, descriptions from the doc comments, further rules from the
// schema tag.
func TestSchemas(t *testing.T) {
	docs := structDocs(t)
	for _, typ := range Types() {
		want := generateSchema(t, typ, docs)
		path := filepath.Join("schemas", typ.Name+".json")
		if *update {
			require.NoError(t, os.WriteFile(path, want, 0o644))
		}
		got, err := os.ReadFile(path)
		require.NoError(t, err, "a new type needs its schema: run the tests with -update")
		assert.Equal(t, string(want), string(got), "%s differs from its struct: run the tests with -update", path)
	}

	files, err := filepath.Glob("schemas/*.json")
	require.NoError(t, err)
	for _, file := range files {
		_, ok := Lookup(strings.TrimSuffix(filepath.Base(file), ".json"))
		assert.True(t, ok, "%s belongs to no type", file)
	}
}

// TestCatalogueIsComplete finds structs that are events and are not registered.
func TestCatalogueIsComplete(t *testing.T) {
	t.Parallel()
	registered := make(map[string]bool)
	for _, typ := range Types() {
		registered[reflect.TypeOf(typ.Example).Name()] = true
	}
	for _, file := range parsePackage(t) {
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv == nil || f.Name.Name != "EventType" {
				continue
			}
			receiver, ok := f.Recv.List[0].Type.(*ast.Ident)
			require.True(t, ok, "EventType has a value receiver")
			assert.True(t, registered[receiver.Name], "%s is not in catalogue.go", receiver.Name)
		}
	}
}

func parsePackage(t *testing.T) []*ast.File {
	t.Helper()
	paths, err := filepath.Glob("*.go")
	require.NoError(t, err)
	var files []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		require.NoError(t, err)
		files = append(files, file)
	}
	return files
}

// structDocs returns the doc comments by "Struct" and "Struct.Field".
func structDocs(t *testing.T) map[string]string {
	t.Helper()
	docs := make(map[string]string)
	sameFields := make(map[string]string) // type A B: A has the fields of B
	flat := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	for _, file := range parsePackage(t) {
		ast.Inspect(file, func(n ast.Node) bool {
			decl, ok := n.(*ast.GenDecl)
			if !ok || decl.Tok != token.TYPE {
				return true
			}
			for _, spec := range decl.Specs {
				typ := spec.(*ast.TypeSpec)
				docs[typ.Name.Name] = flat(decl.Doc.Text())
				if base, ok := typ.Type.(*ast.Ident); ok {
					sameFields[typ.Name.Name] = base.Name
				}
				fields, ok := typ.Type.(*ast.StructType)
				if !ok {
					continue
				}
				for _, field := range fields.Fields.List {
					for _, name := range field.Names {
						docs[typ.Name.Name+"."+name.Name] = flat(field.Doc.Text())
					}
				}
			}
			return true
		})
	}
	for name, base := range sameFields {
		for key, doc := range maps.Clone(docs) {
			if field, ok := strings.CutPrefix(key, base+"."); ok {
				docs[name+"."+field] = doc
			}
		}
	}
	return docs
}

// schemaObject is a JSON object whose members keep their order.
type schemaObject []schemaMember

type schemaMember struct {
	name  string
	value any
}

func (o schemaObject) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%q:", m.name)
		var value bytes.Buffer
		enc := json.NewEncoder(&value)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(m.value); err != nil {
			return nil, err
		}
		b.Write(bytes.TrimSpace(value.Bytes()))
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

type generator struct {
	t    *testing.T
	docs map[string]string
	defs map[string]schemaObject
}

func generateSchema(t *testing.T, typ Type, docs map[string]string) []byte {
	t.Helper()
	g := &generator{t: t, docs: docs, defs: make(map[string]schemaObject)}
	root := reflect.TypeOf(typ.Example)
	schema := schemaObject{
		{"$schema", "https://json-schema.org/draft/2020-12/schema"},
		{"$id", SchemaURI(typ.Name)},
		{"title", root.Name()},
		{"description", docs[root.Name()]},
	}
	schema = append(schema, g.object(root)...)
	if len(g.defs) > 0 {
		var defs schemaObject
		for _, name := range slices.Sorted(mapKeys(g.defs)) {
			defs = append(defs, schemaMember{name, g.defs[name]})
		}
		schema = append(schema, schemaMember{"$defs", defs})
	}
	compact, err := schema.MarshalJSON()
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, json.Indent(&out, compact, "", "  "))
	return append(out.Bytes(), '\n')
}

func mapKeys(m map[string]schemaObject) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func (g *generator) object(typ reflect.Type) schemaObject {
	properties, required := g.members(typ)
	object := schemaObject{{"type", "object"}}
	if len(required) > 0 {
		object = append(object, schemaMember{"required", required})
	}
	return append(object, schemaMember{"properties", properties})
}

// members returns the properties of a struct, those of embedded structs in their
// place, and the names of those that are required.
func (g *generator) members(typ reflect.Type) (properties schemaObject, required []string) {
	for i := range typ.NumField() {
		field := typ.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous && name == "" {
			more, needed := g.members(field.Type)
			properties, required = append(properties, more...), append(required, needed...)
			continue
		}
		require.NotEmpty(g.t, name, "%s.%s has a json name", typ.Name(), field.Name)
		if !strings.Contains(options, "omit") {
			required = append(required, name)
		}
		schema := g.value(field.Type)
		if doc := g.docs[typ.Name()+"."+field.Name]; doc != "" {
			schema = append(schema, schemaMember{"description", doc})
		}
		properties = append(properties, schemaMember{name, append(schema, g.rules(field)...)})
	}
	return properties, required
}

func (g *generator) value(typ reflect.Type) schemaObject {
	switch typ {
	case reflect.TypeFor[time.Time]():
		return schemaObject{{"type", "string"}, {"format", "date-time"}}
	case reflect.TypeFor[Duration]():
		return schemaObject{{"type", "string"}, {"pattern", patternDuration}}
	case reflect.TypeFor[json.RawMessage]():
		return schemaObject{}
	case reflect.TypeFor[[]byte]():
		return schemaObject{{"type", "string"}, {"contentEncoding", "base64"}}
	}
	switch typ.Kind() {
	case reflect.Pointer:
		return g.value(typ.Elem())
	case reflect.String:
		return schemaObject{{"type", "string"}}
	case reflect.Bool:
		return schemaObject{{"type", "boolean"}}
	case reflect.Int, reflect.Int32, reflect.Int64:
		return schemaObject{{"type", "integer"}}
	case reflect.Float64:
		return schemaObject{{"type", "number"}}
	case reflect.Map:
		return schemaObject{{"type", "object"}, {"additionalProperties", g.value(typ.Elem())}}
	case reflect.Slice:
		return schemaObject{{"type", "array"}, {"items", g.value(typ.Elem())}}
	case reflect.Struct:
		if _, done := g.defs[typ.Name()]; !done {
			g.defs[typ.Name()] = nil
			def := schemaObject{{"description", g.docs[typ.Name()]}}
			g.defs[typ.Name()] = append(def, g.object(typ)...)
		}
		return schemaObject{{"$ref", "#/$defs/" + typ.Name()}}
	}
	require.Fail(g.t, "no schema for "+typ.String())
	return nil
}

func (g *generator) rules(field reflect.StructField) schemaObject {
	var rules schemaObject
	tag := field.Tag.Get("schema")
	if tag == "" {
		return nil
	}
	for rule := range strings.SplitSeq(tag, ",") {
		key, value, _ := strings.Cut(rule, "=")
		switch key {
		case "minimum", "maximum", "minLength", "maxLength":
			n, err := strconv.Atoi(value)
			require.NoError(g.t, err)
			rules = append(rules, schemaMember{key, n})
		case "enum":
			rules = append(rules, schemaMember{"enum", strings.Split(value, "|")})
		case "code":
			rules = append(rules, schemaMember{"pattern", patternCode})
		case "known":
			rules = append(rules, schemaMember{"examples", strings.Split(value, "|")})
		default:
			require.Fail(g.t, "unknown rule "+key)
		}
	}
	return rules
}
