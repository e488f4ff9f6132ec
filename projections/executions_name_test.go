package projections

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/millrace/millrace/topics"
)

func TestWhatExecutionsAreCalled(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		`{"command":["/usr/bin/wc","-w"]}`:                "wc",
		`{"name":"sleep","args":{}}`:                      "sleep",
		`{"script":"echo"}`:                               "script",
		`{"script":"print(1)","command":["python3"]}`:     "python3",
		`{"image":"hello-world"}`:                         "hello-world",
		`{"image":"python:3","command":["python3","-V"]}`: "python3",
		`{"definition_id":"loan"}`:                        "",
		`[]`:                                              "",
	} {
		assert.Equal(t, want, nameOf(topics.Request{Spec: json.RawMessage(spec)}), spec)
		assert.Equal(t, "nightly", nameOf(topics.Request{Spec: json.RawMessage(spec), Labels: map[string]string{"name": "nightly"}}))
	}
}
