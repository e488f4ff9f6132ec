package spec_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/executor/spec"
)

func number(n uint64) *uint64 { return &n }

func TestProcess(t *testing.T) {
	t.Parallel()
	s, err := spec.ParseProcess(json.RawMessage(`{
		"command": ["sh", "-c", "", "ünïcode"],
		"env": {"A": "", "_b2": "x=y"},
		"stdin_base64": "AP8K",
		"limits": {"cpu_seconds": 10, "memory_bytes": 1048576, "open_files": 3, "file_bytes": 0, "processes": 1}
	}`))
	require.NoError(t, err)
	assert.Equal(t, spec.Process{
		Command: []string{"sh", "-c", "", "ünïcode"},
		Env:     map[string]string{"A": "", "_b2": "x=y"},
		Stdin:   []byte{0, 255, '\n'},
		Limits: spec.Limits{CPUSeconds: number(10), MemoryBytes: number(1 << 20), OpenFiles: number(3),
			FileBytes: number(0), Processes: number(1)},
	}, s)

	s, err = spec.ParseProcess(json.RawMessage(`{"command":["cat"],"stdin":"hello"}`))
	require.NoError(t, err)
	assert.Equal(t, "hello", string(s.Stdin))
	assert.True(t, s.Limits.None())
}

func TestFunction(t *testing.T) {
	t.Parallel()
	s, err := spec.ParseFunction(json.RawMessage(`{"name":"sleep","args":{"duration":"1s"}}`))
	require.NoError(t, err)
	assert.Equal(t, "sleep", s.Name)
	assert.JSONEq(t, `{"duration":"1s"}`, string(s.Args))

	s, err = spec.ParseFunction(json.RawMessage(`{"name":"noop"}`))
	require.NoError(t, err)
	assert.Equal(t, "null", string(s.Args))
}

func TestWorkflow(t *testing.T) {
	t.Parallel()
	s, err := spec.ParseWorkflow(json.RawMessage(`{"definition_id":"LOS::loan","definition_version":3,"business_key":"l-7","variables":{"amount":1}}`))
	require.NoError(t, err)
	assert.Equal(t, spec.Workflow{DefinitionID: "LOS::loan", DefinitionVersion: 3, BusinessKey: "l-7", Variables: json.RawMessage(`{"amount":1}`)}, s)
	_, err = spec.ParseWorkflow(json.RawMessage(`{"definition_version":0,"variables":[],"business_key":7,"extra":1}`))
	assert.ErrorContains(t, err, "/definition_version: must be a whole number from 1")
	assert.ErrorContains(t, err, "/variables: must be an object")
	assert.ErrorContains(t, err, "/business_key: must be a string")
	assert.ErrorContains(t, err, "/extra: unknown field; known are business_key, definition_id, definition_version, variables")
	assert.ErrorContains(t, err, "/definition_id: is required")
}

// Each spec has exactly the faults that are listed, as "pointer code".
func TestFaults(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", spec.MaxArgBytes+1)
	for _, c := range []struct {
		executor, raw string
		faults        []string
	}{
		{"process", ``, []string{" required"}},
		{"process", `null`, []string{" wrong_type"}},
		{"process", `[]`, []string{" wrong_type"}},
		{"process", `{"command":["true"]`, []string{" malformed"}},
		{"process", `{"command":["true"]} {}`, []string{" malformed"}},
		{"process", "{\"command\":[\"\xff\"]}", []string{" malformed"}},
		{"process", `{}`, []string{"/command required"}},
		{"process", `{"command":"true"}`, []string{"/command wrong_type"}},
		{"process", `{"command":[]}`, []string{"/command required"}},
		{"process", `{"command":null}`, []string{"/command required"}},
		{"process", `{"command":["",1,null,"a\u0000"]}`, []string{"/command/0 required", "/command/1 wrong_type", "/command/2 wrong_type", "/command/3 invalid"}},
		{"process", `{"command":["` + long + `"]}`, []string{"/command/0 too_long"}},
		{"process", `{"command":[` + strings.Repeat(`"",`, spec.MaxArgs) + `""]}`, []string{"/command out_of_range"}},
		{"process", `{"command":["true"` + strings.Repeat(`,"`+long[:100_000]+`"`, 11) + `]}`, []string{" too_long"}},
		{"process", `{"command":["true"],"command":["false"]}`, []string{"/command duplicate"}},
		{"process", `{"command":["true"],"cwd":"/","a/b~c":1}`, []string{"/cwd unknown_field", "/a~1b~0c unknown_field"}},
		{"process", `{"command":["true"],"env":{"":"","1A":"","A B":"","A=":"","É":"","A":1,"B":"\u0000"}}`,
			[]string{"/env/ invalid", "/env/1A invalid", "/env/A B invalid", "/env/A= invalid", "/env/É invalid", "/env/A wrong_type", "/env/B invalid"}},
		{"process", `{"command":["true"],"env":{"MILLRACE_ATTEMPT":"7","A":"1","A":"2"}}`, []string{"/env/MILLRACE_ATTEMPT reserved", "/env/A duplicate"}},
		{"process", `{"command":["true"],"env":["A"]}`, []string{"/env wrong_type"}},
		{"process", `{"command":["true"],"stdin":"a","stdin_base64":"YQ=="}`, []string{"/stdin_base64 conflict"}},
		{"process", `{"command":["true"],"stdin_base64":"Y"}`, []string{"/stdin_base64 invalid"}},
		{"process", `{"command":["true"],"stdin":7}`, []string{"/stdin wrong_type"}},
		{"process", `{"command":["true"],"stdin":"` + strings.Repeat("x", spec.MaxStdinBytes+1) + `"}`, []string{"/stdin too_long"}},
		{"process", `{"command":["true"],"limits":[]}`, []string{"/limits wrong_type"}},
		{"process", `{"command":["true"],"limits":{"cpu_seconds":0,"memory_bytes":1,"open_files":-1,"file_bytes":1.5,"processes":"1","cpus":1}}`,
			[]string{"/limits/cpu_seconds out_of_range", "/limits/memory_bytes out_of_range", "/limits/open_files out_of_range", "/limits/file_bytes out_of_range", "/limits/processes wrong_type", "/limits/cpus unknown_field"}},
		{"process", `{"command":["true"],"limits":{"cpu_seconds":null,"file_bytes":1e400}}`, []string{"/limits/cpu_seconds wrong_type", "/limits/file_bytes out_of_range"}},
		{"function", `{}`, []string{"/name required"}},
		{"function", `{"name":""}`, []string{"/name required"}},
		{"function", `{"name":null,"arg":1}`, []string{"/name wrong_type", "/arg unknown_field"}},
		{"function", `{"name":"a\u0007"}`, []string{"/name invalid"}},
		{"function", `{"name":"` + strings.Repeat("x", spec.MaxFunctionName+1) + `"}`, []string{"/name too_long"}},
	} {
		err := spec.Parse(c.executor, json.RawMessage(c.raw))
		var got []string
		for _, f := range spec.FieldErrors(fmt.Errorf("parse: %w", err)) {
			got = append(got, f.Pointer+" "+f.Code)
			assert.NotEmpty(t, f.Message)
		}
		assert.ElementsMatch(t, c.faults, got, "%.200s", c.raw)
	}
}

func TestUnknownExecutor(t *testing.T) {
	t.Parallel()
	err := spec.Parse("fortran", json.RawMessage(`{}`))
	var unknown spec.UnknownExecutorError
	require.ErrorAs(t, err, &unknown)
	assert.Equal(t, "fortran", unknown.Name)
	assert.Empty(t, spec.FieldErrors(err))
	assert.Empty(t, spec.FieldErrors(errors.New("other")))
}

// No input makes the parser panic, and each fault lies inside the text or is
// about what is missing from it.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{`{"command":["a"],"env":{"A":"b"},"stdin":"x","limits":{"cpu_seconds":1}}`, `{"script":"#! a\t b","files":{"a/b":{"base64":"AA=="}},"image":"a:b","working_dir":"/"}`, `{"name":"a","args":[1,{"b":null}]}`, `{"command":[`, `{"":{}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, executor := range spec.Executors() {
			err := spec.Parse(executor, raw)
			if (err == nil) != (len(spec.FieldErrors(err)) == 0) {
				t.Fatalf("an error without a field: %v", err)
			}
			if err == nil && !json.Valid(raw) {
				t.Fatalf("accepted what is not JSON: %q", raw)
			}
		}
	})
}
