package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/definitions"
	"github.com/millrace/millrace/internal/server/problem"
	"github.com/millrace/millrace/internal/workflow"
)

// someDefinitions are definitions in memory, all versions of one id.
type someDefinitions struct {
	texts []string
	asked string
	err   error
}

func (s *someDefinitions) Put(_ context.Context, text []byte, kind, by string) (definitions.Summary, bool, error) {
	created := len(s.texts) == 0 || s.texts[len(s.texts)-1] != string(text)
	if created {
		s.texts = append(s.texts, string(text))
	}
	s.asked = fmt.Sprintf("put %s by %s", kind, by)
	return s.summary(len(s.texts)), created, s.err
}

func (s *someDefinitions) summary(version int) definitions.Summary {
	d, _ := workflow.Lint([]byte(s.texts[version-1]))
	return definitions.Summary{ID: d.ID, Version: version, Kind: "workflow", Name: d.Name, Description: d.Description, UploadedBy: "ada",
		UploadedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
}

func (s *someDefinitions) Check(_ context.Context, text []byte) ([]workflow.Fault, error) {
	_, faults := workflow.Lint(text)
	return faults, s.err
}

func (s *someDefinitions) Get(_ context.Context, id string, version int) (definitions.Stored, error) {
	s.asked = fmt.Sprintf("get %s %d", id, version)
	if s.err != nil || version > len(s.texts) || len(s.texts) == 0 {
		return definitions.Stored{}, fmt.Errorf("definition %q: %w", id, definitions.ErrNotFound)
	}
	if version == 0 {
		version = len(s.texts)
	}
	return definitions.Stored{Summary: s.summary(version), Text: []byte(s.texts[version-1])}, nil
}

func (s *someDefinitions) List(_ context.Context, keyword string, page, size int) (definitions.Page, error) {
	s.asked = fmt.Sprintf("list %q %d %d", keyword, page, size)
	return definitions.Page{Items: []definitions.Summary{s.summary(len(s.texts))}, Total: 7}, s.err
}

func (s *someDefinitions) Versions(_ context.Context, id string, page, size int) (definitions.Page, error) {
	s.asked = fmt.Sprintf("versions %q %d %d", id, page, size)
	return definitions.Page{Items: []definitions.Summary{s.summary(2), s.summary(1)}, Total: 2}, s.err
}

const (
	helloDefinition = `{
  "id": "GREET::hello", "name": "Hello", "version": 9, "zeta": 1.0,
  "steps": [
    {"id": "greet", "name": "Greet", "type": "SERVICE_TASK", "nextStep": "end"},
    {"id": "end", "name": "End", "type": "END"}
  ]
}`
	faultyDefinition = `{
  "id": "GREET hello",
  "name": "Hello", "zeta": 1,
  "steps": [
    {"id": "greet", "name": "Greet", "type": "SERVICE_TASK", "nextStep": "edn"},
    {"id": "end", "name": "End", "type": "END"}
  ]
}`
)

func TestADefinitionIsUploaded(t *testing.T) {
	t.Parallel()
	known := &someDefinitions{}
	b := newBench(t, func(d *Deps, _ *Config) { d.Definitions = known })
	w := b.do(http.MethodPost, "/v1/definitions", helloDefinition)
	require.Equal(t, http.StatusCreated, w.Code, w.Body)
	assert.Empty(t, w.Header().Get("Definition-Unchanged"))
	got := decode[UploadedDefinition](t, w)
	assert.Equal(t, "GREET::hello 1 Hello", fmt.Sprint(got.ID, " ", got.Version, " ", got.Name))
	require.Len(t, got.Warnings, 1)
	assert.Equal(t, DefinitionFault{Line: 2, Column: 56, Path: "zeta", Pointer: "/zeta", Code: "unknown_field", Message: `the field "zeta" is not known and means nothing`, Warning: true}, got.Warnings[0])

	w = b.do(http.MethodPost, "/v1/definitions", helloDefinition)
	require.Equal(t, http.StatusCreated, w.Code, "as the contract has it")
	assert.Equal(t, "true", w.Header().Get("Definition-Unchanged"))
	assert.Equal(t, 1, decode[UploadedDefinition](t, w).Version)
}

func TestFaultsOfADefinitionAreToldAtOnce(t *testing.T) {
	t.Parallel()
	known := &someDefinitions{}
	b := newBench(t, func(d *Deps, _ *Config) { d.Definitions = known })
	w := b.do(http.MethodPost, "/v1/definitions", faultyDefinition)
	p := requireProblem(t, w, http.StatusBadRequest, "definition_invalid")
	assert.Equal(t, "the definition has 2 faults", p.Detail)
	assert.Equal(t, []problem.Fault{
		{Pointer: "/id", Code: "bad_id", Message: `"GREET hello" is not an id of a definition`, Line: 2, Column: 9, Hint: "ids are of letters, digits, '_', ':' and '-', as in LOANS::check-credit"},
		{Pointer: "/steps/0/nextStep", Code: "unknown_step", Message: `there is no step "edn"`, Line: 5, Column: 74, Hint: `did you mean "end"?`},
	}, p.Errors)
	said := decode[map[string]any](t, w)
	assert.Equal(t, "bad-request", said["error"], "the words of the contract")
	assert.Contains(t, said["message"], `5:74: error: there is no step "edn"`)
	assert.Empty(t, known.texts)

	w = b.do(http.MethodPost, "/v1/definitions/validate", faultyDefinition)
	require.Equal(t, http.StatusOK, w.Code)
	report := decode[DefinitionReport](t, w)
	assert.False(t, report.Valid)
	assert.Len(t, report.Faults, 3, "with the warning")
	w = b.do(http.MethodPost, "/v1/definitions/validate", `{"id"`)
	assert.Equal(t, "syntax", decode[DefinitionReport](t, w).Faults[0].Code)
	assert.True(t, decode[DefinitionReport](t, b.do(http.MethodPost, "/v1/definitions/validate", helloDefinition)).Valid)
	assert.Empty(t, known.texts, "nothing was stored")
}

func TestOnlyJSONIsADefinition(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	for _, path := range []string{"/v1/definitions", "/v1/definitions/validate"} {
		w := b.do(http.MethodPost, path, `<a/>`, "Content-Type", "application/xml")
		requireProblem(t, w, http.StatusUnsupportedMediaType, "unsupported_media_type")
		assert.Equal(t, "unsupported-format", decode[map[string]any](t, w)["error"])
		requireProblem(t, b.do(http.MethodPost, path, strings.Repeat(" ", workflow.MaxText+1)), http.StatusRequestEntityTooLarge, "body_too_large")
		requireProblem(t, b.do(http.MethodPost, path+"?dry=1", "{}"), http.StatusBadRequest, "invalid_parameter")
	}
}

func TestDefinitionsAreReadAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	known := &someDefinitions{texts: []string{helloDefinition, strings.Replace(helloDefinition, "Hello", "Good day", 1)}}
	b := newBench(t, func(d *Deps, _ *Config) { d.Definitions = known })
	for target, want := range map[string]string{
		"/v1/definitions/GREET::hello": "get GREET::hello 0", "/v1/definitions/GREET%3A%3Ahello": "get GREET::hello 0",
		"/v1/definitions/GREET%3A%3Ahello/versions/1": "get GREET::hello 1",
	} {
		w := b.do(http.MethodGet, target, "")
		require.Equal(t, http.StatusOK, w.Code, w.Body)
		assert.Equal(t, "application/json", w.Header().Get("Content-Type"))
		assert.Equal(t, want, known.asked)
		version := 2
		if strings.Contains(target, "versions") {
			version = 1
		}
		assert.True(t, strings.HasPrefix(w.Body.String(), fmt.Sprintf(`{"id":"GREET::hello","version":%d,"name":`, version)), w.Body)
		assert.Contains(t, w.Body.String(), `"zeta":1.0`)
		assert.True(t, json.Valid(w.Body.Bytes()))
	}
	w := b.do(http.MethodGet, "/v1/definitions?keyword=GREET&page=2&pageSize=3", "")
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	page := decode[PageOfDefinitions](t, w)
	assert.Equal(t, []int{2, 3, 7, 1}, []int{page.Page, page.PageSize, page.Total, len(page.Items)})
	assert.Equal(t, `list "GREET" 2 3`, known.asked)
	b.do(http.MethodGet, "/v1/definitions", "")
	assert.Equal(t, `list "" 0 20`, known.asked)
	w = b.do(http.MethodGet, "/v1/definitions/GREET::hello/versions", "")
	assert.Equal(t, 2, decode[PageOfDefinitions](t, w).Items[0].Version)

	w = b.do(http.MethodGet, "/v1/definitions/GREET::hello/graph?version=1", "")
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	assert.Equal(t, "get GREET::hello 1", known.asked)
	assert.Contains(t, w.Body.String(), "flowchart TD\n")
}

func TestDefinitionsThatAreNotThere(t *testing.T) {
	t.Parallel()
	known := &someDefinitions{texts: []string{helloDefinition}}
	b := newBench(t, func(d *Deps, _ *Config) { d.Definitions = known })
	for _, target := range []string{"/v1/definitions/a%20b", "/v1/definitions/a%00b", "/v1/definitions/GREET::hello/versions/2", "/v1/definitions/GREET::hello/graph?version=2",
		"/v1/definitions/a%2Fb/versions", "/v1/definitions/" + strings.Repeat("x", 257)} {
		w := b.do(http.MethodGet, target, "")
		requireProblem(t, w, http.StatusNotFound, "workflow_not_found")
		assert.Equal(t, "not-found", decode[map[string]any](t, w)["error"])
	}
	for _, target := range []string{"/v1/definitions/GREET::hello/versions/x", "/v1/definitions/GREET::hello/versions/0", "/v1/definitions/GREET::hello/graph?version=-1",
		"/v1/definitions/GREET::hello?x=1", "/v1/definitions?pageSize=0", "/v1/definitions?page=-1"} {
		requireProblem(t, b.do(http.MethodGet, target, ""), http.StatusBadRequest, "invalid_parameter")
	}
}

func TestDefinitionsAreEverybodys(t *testing.T) {
	t.Parallel()
	known := &someDefinitions{texts: []string{helloDefinition}}
	b := newBench(t, func(d *Deps, _ *Config) { d.Definitions, d.Guard = known, tokens() })
	requireProblem(t, b.do(http.MethodPost, "/v1/definitions", helloDefinition, "Authorization", "Bearer acme"), http.StatusForbidden, "forbidden")
	assert.Empty(t, known.asked)
	w := b.do(http.MethodGet, "/v1/definitions", "", "Authorization", "Bearer acme")
	assert.Equal(t, http.StatusOK, w.Code, w.Body)
}
