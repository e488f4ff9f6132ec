package secret_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/millrace/millrace/internal/secret"
)

func TestRedact(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"dial postgres://app:hunter2@db:5432/x: refused":       "dial postgres://app:***@db:5432/x: refused",
		"host=db password=hunter2 dbname=x":                    "host=db password=*** dbname=x",
		`{"api_key": "abc def", "n": 1}`:                       `{"api_key": ***, "n": 1}`,
		"GET /: 401 (Authorization: Bearer abcdefghijkl)":      "GET /: 401 (Authorization: Bearer ***)",
		"call https://x.example/?token=abc&page=2":             "call https://x.example/?token=***&page=2",
		"AWS_SECRET_ACCESS_KEY=abc":                            "AWS_SECRET_ACCESS_KEY=***",
		"invalid character '}' in token at offset 12":          "invalid character '}' in token at offset 12",
		"reach kafka at broker-1:9092: connection refused":     "reach kafka at broker-1:9092: connection refused",
		"duplicate key value violates unique constraint \"x\"": "duplicate key value violates unique constraint \"x\"",
	} {
		assert.Equal(t, want, secret.Redact(in))
	}
}
