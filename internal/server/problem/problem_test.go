package problem_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/server/problem"
)

func TestKindsAreDistinct(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, k := range problem.Kinds() {
		assert.False(t, seen[k.Code], "code %s is used twice", k.Code)
		seen[k.Code] = true
		assert.Regexp(t, regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`), k.Code)
		assert.GreaterOrEqual(t, k.Status, 400)
		assert.NotEmpty(t, k.Title)
	}
}

func TestAProblemOnTheWire(t *testing.T) {
	t.Parallel()
	p := problem.ValidationFailed().With("1 field is not valid", problem.Fault{Pointer: "/priority", Code: "out_of_range", Message: "must be <= 5"})
	p.RetryAfter = 1500 * time.Millisecond
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r = r.WithContext(problem.WithRequestID(r.Context(), "req-1"))
	w := httptest.NewRecorder()
	problem.Write(w, r, p)
	assert.Equal(t, 422, w.Code)
	assert.Equal(t, "2", w.Header().Get("Retry-After"), "seconds are rounded up")
	assert.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
	var got map[string]any
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got))
	assert.Equal(t, map[string]any{
		"type": "urn:millrace:problem:validation_failed", "title": "The request is not valid", "status": 422.0,
		"detail": "1 field is not valid", "code": "validation_failed", "instance": "urn:millrace:request:req-1",
		"errors": []any{map[string]any{"pointer": "/priority", "code": "out_of_range", "message": "must be <= 5"}},
	}, got)
	assert.Contains(t, w.Body.String(), "<=", "texts are readable as they are")
	assert.Empty(t, p.Instance, "the problem itself may be shared")
}

func TestAProblemSpeaksTheContractWhereItIsAskedTo(t *testing.T) {
	t.Parallel()
	p := problem.JobConflict().With("job 7 is COMPLETED")
	assert.Nil(t, p.Speak(t.Context()).Contract)
	p.Contract = &problem.Contract{State: "COMPLETED"}
	p.Speak(problem.WithContract(t.Context()))
	assert.Equal(t, &problem.Contract{Word: "conflict", Message: "job 7 is COMPLETED", Reason: "job 7 is COMPLETED", State: "COMPLETED"}, p.Contract)

	p = problem.BadRequest().With("1 field is not valid", problem.Fault{Pointer: "/jobTypes", Code: "required", Message: "must not be empty"})
	assert.Equal(t, "1 field is not valid; jobTypes must not be empty", p.Speak(problem.WithContract(t.Context())).Message)
}
