package topics

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/topics/compat"
)

func exampleEnvelope(t testing.TB, typ Type) Envelope {
	t.Helper()
	env, err := NewEnvelope(typ.Example,
		WithID("01936f2a-7c11-7b3e-9a52-5f0c8d1e2a35"),
		WithTime(exampleTime()),
		WithSequence(7),
		WithTrace("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "vendor=1"),
		WithCorrelation("request-1", "01936f2a-7c11-7b3e-9a52-5f0c8d1e2a33"),
	)
	require.NoError(t, err)
	return env
}

// A golden file is what another language must be able to read, and what this
// package must go on reading.
func TestGolden(t *testing.T) {
	for _, typ := range Types() {
		t.Run(typ.Name, func(t *testing.T) {
			env := exampleEnvelope(t, typ)
			compact, err := EncodeJSON(env)
			require.NoError(t, err)
			var indented bytes.Buffer
			require.NoError(t, json.Indent(&indented, compact, "", "  "))
			indented.WriteByte('\n')

			path := filepath.Join("testdata", "golden", typ.Name+".json")
			if *update {
				require.NoError(t, os.WriteFile(path, indented.Bytes(), 0o644))
			}
			golden, err := os.ReadFile(path)
			require.NoError(t, err, "a new type needs its golden file: run the tests with -update")
			assert.Equal(t, string(golden), indented.String())

			// Structured mode, as the file stands.
			structured, err := DecodeJSON(golden)
			require.NoError(t, err)
			event, err := DecodeEvent(structured)
			require.NoError(t, err)
			assertSameJSON(t, typ.Example, event)

			// Binary mode, there and back.
			binary, err := DecodeRecord(env.Record("execution_events", []byte(env.Subject)))
			require.NoError(t, err)
			assert.Equal(t, env, binary)
			event, err = DecodeEvent(binary)
			require.NoError(t, err)
			assertSameJSON(t, typ.Example, event)
		})
	}
	files, err := filepath.Glob("testdata/golden/*.json")
	require.NoError(t, err)
	assert.Len(t, files, len(Types()), "every golden file belongs to a type")
}

func assertSameJSON(t *testing.T, want, got Event) {
	t.Helper()
	assert.IsType(t, want, got)
	wantJSON, err := json.Marshal(want)
	require.NoError(t, err)
	gotJSON, err := json.Marshal(got)
	require.NoError(t, err)
	assert.JSONEq(t, string(wantJSON), string(gotJSON))
}

// TestReleasedSchemas keeps the promise to those who hold to what was released.
func TestReleasedSchemas(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("schemas/released/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		released, err := os.ReadFile(file)
		require.NoError(t, err)
		typ, ok := Lookup(name)
		if !assert.True(t, ok, "%s was released and is gone: its readers starve, and what is in the topic has no reader", name) {
			continue
		}
		breaks, err := compat.Check(released, typ.Schema)
		require.NoError(t, err)
		for _, b := range breaks {
			t.Errorf("%s%s\nKeep the field as it was, or make a new type of the next version.", name, b)
		}
	}
}
