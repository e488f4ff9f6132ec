package secret_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/internal/secret"
)

const canary = "hunter2-canary"

type holder struct {
	Name     string
	Password secret.Secret
	Pointer  *secret.Secret
	Map      map[string]secret.Secret
}

func newHolder() holder {
	s := secret.New(canary)
	return holder{Name: "db", Password: s, Pointer: &s, Map: map[string]secret.Secret{"k": s}}
}

func TestNoWayOfPrintingGivesTheTextAway(t *testing.T) {
	t.Parallel()
	h := newHolder()
	asJSON, err := json.Marshal(h)
	require.NoError(t, err)
	asYAML, err := yaml.Marshal(h)
	require.NoError(t, err)
	var text, structured bytes.Buffer
	slog.New(slog.NewTextHandler(&text, nil)).Info("x", "holder", h, "password", h.Password)
	slog.New(slog.NewJSONHandler(&structured, nil)).Info("x", "holder", h, "password", h.Password)

	outputs := map[string]string{"json": string(asJSON), "yaml": string(asYAML), "log text": text.String(), "log json": structured.String()}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
		outputs[verb] = fmt.Sprintf(verb, h.Password) + fmt.Sprintf(verb, h)
	}
	for name, out := range outputs {
		assert.NotContains(t, out, canary, name)
		assert.NotContains(t, out, fmt.Sprintf("%x", canary), name)
	}
	assert.Contains(t, string(asJSON), secret.Redacted)
	assert.Contains(t, string(asYAML), secret.Redacted)
	assert.Equal(t, canary, h.Password.Reveal())
}

func TestAnUnsetSecretPrintsAsEmpty(t *testing.T) {
	t.Parallel()
	var s secret.Secret
	assert.True(t, s.IsZero())
	assert.Empty(t, s.String())
}

func TestUnmarshalTakesTheText(t *testing.T) {
	t.Parallel()
	var h struct{ Password secret.Secret }
	require.NoError(t, json.Unmarshal([]byte(`{"Password":"`+canary+`"}`), &h))
	assert.Equal(t, canary, h.Password.Reveal())
}
