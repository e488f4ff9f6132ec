package client_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/millrace/millrace/internal/client"
)

func TestAProblemSaysThingsOnce(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]client.Problem{
		`execution "x": execution not found`: {Status: 404, Title: "There is no such execution", Detail: `execution "x": execution not found`},
		"it is COMPLETED":                    {Status: 409, Title: "The execution has ended", Detail: "it is COMPLETED"},
		"The execution has ended":            {Status: 409, Title: "The execution has ended"},
		"The request is not valid: 1 field is not valid\n  /priority: must be at least 1": {
			Status: 422, Title: "The request is not valid", Detail: "1 field is not valid",
			Errors: []client.Fault{{Pointer: "/priority", Message: "must be at least 1"}},
		},
		"Too Many Requests": {Status: 429, Title: "Too Many Requests", Detail: "Too Many Requests"},
	} {
		assert.Equal(t, want, p.Error())
	}
}
