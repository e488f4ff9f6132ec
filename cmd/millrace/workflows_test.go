package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/testenv/transcript"
)

const (
	goodWorkflow = `{
  "id": "SHOP::order", "name": "Order", "autoStartNextWorkflow": true, "nextWorkflowId": "SHOP::invoice",
  "steps": [
    {"id": "pay", "name": "Pay <now>", "type": "SERVICE_TASK", "nextStep": "end"},
    {"id": "end", "name": "End", "type": "END"}
  ]
}`
	nextWorkflow = `{"id": "SHOP::invoice", "name": "Invoice", "steps": [{"id": "end", "name": "End", "type": "END"}]}`
	badWorkflow  = `{
  "id": "SHOP::bad", "name": "Bad", "colour": "red",
  "steps": [
    {"id": "pay", "name": "Pay", "type": "SERVICE_TASK", "nextStep": "edn"},
    {"id": "end", "name": "End", "type": "END"}
  ]
}`
	orderDefinition = `{"id":"SHOP::order","version":2,"name":"Order","description":"takes\u001b[31m orders","uploadedAt":"2026-03-01T11:00:00Z","uploadedBy":"ada","kind":"workflow"}`
	oldDefinition   = `{"id":"SHOP::order","version":1,"name":"An old order","uploadedAt":"2026-02-01T11:00:00Z","kind":"workflow"}`
)

// write writes files into a folder of their own and changes into it.
func (c *console) write(files map[string]string) {
	c.t.Helper()
	folder := c.t.TempDir()
	for name, text := range files {
		path := filepath.Join(folder, filepath.FromSlash(name))
		require.NoError(c.t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(c.t, os.WriteFile(path, []byte(text), 0o600))
	}
	c.t.Chdir(folder)
}

func TestWorkflowsLint(t *testing.T) { // not parallel: it changes the folder
	c := newConsole(t)
	wd, err := os.Getwd()
	require.NoError(t, err)
	c.write(map[string]string{
		"good.json": goodWorkflow, "bad.json": badWorkflow, "all/one.json": goodWorkflow, "all/deep/two.json": strings.Replace(badWorkflow, "::bad", "::order", 1),
		"all/package.json": `{"name": "no definition"}`, "all/.git/x.json": "{", "all/read.me": "{", "empty/x.txt": "",
	})
	c.errTerminal = true
	outputs := map[string]string{}
	for name, test := range map[string]struct {
		line string
		code int
	}{
		"workflows_lint_good": {"good.json", exitOK}, "workflows_lint_bad": {"good.json bad.json", exitFailure}, "workflows_lint_folder": {"all", exitFailure},
		"workflows_lint_json": {"bad.json -o json", exitFailure}, "workflows_lint_yaml": {"good.json -o yaml", exitOK}, "workflows_lint_stdin": {"- --strict", exitFailure},
	} {
		c.in = strings.NewReader(strings.Replace(goodWorkflow, `"name"`, `"zeta": 1, "name"`, 1))
		require.Equal(t, test.code, c.run(append([]string{"workflows", "lint"}, strings.Fields(test.line)...)...), "%s: %s", test.line, c.err)
		outputs[name] = c.out.String()
		if test.line == "all" {
			assert.Contains(t, c.err.String(), "package.json: no definition, passed over")
			assert.Contains(t, c.err.String(), "2 definitions: 2 errors, 1 warning")
		}
	}
	for line, code := range map[string]int{"missing.json": exitNotFound, "empty": exitNotFound, "": exitUsage} {
		assert.Equal(t, code, c.run(append([]string{"workflows", "lint"}, strings.Fields(line)...)...), line)
	}
	t.Chdir(wd)
	for name, text := range outputs {
		c.out = &transcript.Text{}
		_, _ = c.out.Write([]byte(text))
		c.golden(name)
	}
}

func TestWorkflowsApply(t *testing.T) { // not parallel: it changes the folder
	c := newConsole(t)
	c.write(map[string]string{"defs/a-order.json": goodWorkflow, "defs/b-invoice.json": nextWorkflow, "bad.json": badWorkflow})
	c.api.mux.HandleFunc("POST /v1/definitions", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if _, body, _ := c.api.last(); strings.Contains(body, "invoice\", \"name\"") || strings.Contains(body, `"Invoice"`) {
			w.Header().Set("Definition-Unchanged", "true")
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write([]byte(`{"id":"SHOP::invoice","version":1,"name":"Invoice"}`))
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(`{"id":"SHOP::order","version":2,"name":"Order","warnings":[
			{"line":2,"column":90,"path":"nextWorkflowId","code":"unknown_definition","message":"there is no definition yet","hint":"upload it","warning":true}]}`))
	})
	require.Equal(t, exitOK, c.run("workflows", "apply", "defs"), c.err)
	assert.Equal(t, "ID              VERSION   STATUS      FILE\n"+
		"SHOP::invoice   1         unchanged   defs/b-invoice.json\n"+
		"SHOP::order     2         created     defs/a-order.json\n", c.out.String(), "what is started comes first")
	assert.Equal(t, "defs/a-order.json:2:90: warning: there is no definition yet [unknown_definition]\n    upload it\n", c.err.String())
	_, body, _ := c.api.last()
	assert.Equal(t, goodWorkflow, body, "the text is sent as it was written")

	require.Equal(t, exitOK, c.run("workflows", "apply", "defs", "-o", "json"))
	assert.Contains(t, c.out.String(), `"status": "unchanged"`)

	before := len(c.api.requests)
	require.Equal(t, exitFailure, c.run("workflows", "apply", "defs", "bad.json"))
	assert.Contains(t, c.err.String(), `bad.json:4:70: error: there is no step "edn" [unknown_step]`)
	assert.Contains(t, c.err.String(), "nothing was uploaded: the definitions have 1 error")
	assert.Len(t, c.api.requests, before)

	c.in = strings.NewReader(nextWorkflow)
	require.Equal(t, exitOK, c.run("workflows", "apply", "-"), c.err)
}

func TestWorkflowsApplyTellsWhatWasDoneWhenItFails(t *testing.T) { // not parallel: it changes the folder
	c := newConsole(t)
	c.write(map[string]string{"a.json": nextWorkflow, "b.json": goodWorkflow})
	c.api.mux.HandleFunc("POST /v1/definitions", func(w http.ResponseWriter, _ *http.Request) {
		if _, body, _ := c.api.last(); strings.Contains(body, `"Invoice"`) {
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write([]byte(`{"id":"SHOP::invoice","version":1,"name":"Invoice"}`))
			return
		}
		problem(w, 403, "forbidden", "The token does not allow this")
	})
	require.Equal(t, exitFailure, c.run("workflows", "apply", "a.json", "b.json"))
	assert.Contains(t, c.out.String(), "SHOP::invoice")
	assert.Contains(t, c.err.String(), "b.json: ")
}

func TestWorkflowsOutputs(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("GET /v1/definitions", 200, `{"items":[`+orderDefinition+`],"page":0,"pageSize":50,"total":1}`)
	c.api.answers("GET /v1/definitions/{id}/versions", 200, `{"items":[`+orderDefinition+`,`+oldDefinition+`],"page":0,"pageSize":50,"total":2}`)
	c.api.answers("GET /v1/definitions/{id}", 200, `{"id":"SHOP::order","version":2,"name":"Order","zeta":1.0,"alpha":9007199254740993,"steps":[{"id":"end","name":"End","type":"END"}]}`)
	c.api.answers("GET /v1/definitions/{id}/versions/{version}", 200, `{"id":"SHOP::order","version":1,"name":"Old","steps":[{"id":"end","name":"End","type":"END"}]}`)
	for name, line := range map[string]string{
		"workflows_list_table": "workflows list", "workflows_list_wide": "wf ls -o wide", "workflows_list_json": "workflows list -o json", "workflows_list_name": "workflows list -o name",
		"workflows_versions_table": "workflows versions SHOP::order", "workflows_get": "workflows get SHOP::order", "workflows_get_yaml": "workflows get SHOP::order --version 1 -o yaml",
		"workflows_graph": "workflows graph SHOP::order", "workflows_graph_json": "workflows graph SHOP::order --version 1 -o json",
	} {
		require.Equal(t, exitOK, c.run(strings.Fields(line)...), c.err.String())
		c.golden(name)
		assert.NotContains(t, c.out.String(), "\x1b", "no control characters off a terminal, nor from others")
	}
}

func TestWorkflowsAskForWhatTheyWereAsked(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("GET /v1/definitions", 200, `{"items":[`+orderDefinition+`],"total":3}`)
	c.api.answers("GET /v1/definitions/{id}/versions/{version}", 200, `{}`)
	for line, want := range map[string]string{
		"workflows list --keyword ord --limit 2":  "GET /v1/definitions?keyword=ord&page=1&pageSize=2",
		"workflows list --limit 0":                "GET /v1/definitions?page=2&pageSize=100",
		"workflows get SHOP::order --version 3":   "GET /v1/definitions/SHOP::order/versions/3",
		"workflows graph SHOP::order --version 3": "GET /v1/definitions/SHOP::order/versions/3",
	} {
		require.Equal(t, exitOK, c.run(strings.Fields(line)...), line+": "+c.err.String())
		request, _, _ := c.api.last()
		assert.Equal(t, want, request, line)
	}
}

func TestWorkflowsWrongUse(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.mux.HandleFunc("GET /v1/definitions/{id}", func(w http.ResponseWriter, _ *http.Request) {
		problem(w, 404, "workflow_not_found", "There is no such definition")
	})
	for _, line := range []string{"workflows lnt", "workflows get", "workflows get a --version -1", "workflows graph", "workflows graph no/such.file", "workflows graph a --version -1",
		"workflows apply", "workflows list x", "workflows list --limit -1", "workflows versions"} {
		assert.Equal(t, exitUsage, c.run(strings.Fields(line)...), line)
	}
	assert.Equal(t, exitNotFound, c.run("workflows", "get", "nobody"))
	assert.Equal(t, exitNotFound, c.run("workflows", "graph", "nobody"))
}
