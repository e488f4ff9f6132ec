package kubernetes_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/millrace/millrace/internal/executor/kubernetes"
)

func TestImagesThatMayBeNamed(t *testing.T) {
	t.Parallel()
	digest := "@sha256:" + strings.Repeat("a", 64)
	for pattern, c := range map[string]struct{ allowed, refused []string }{
		"python": {
			[]string{"python", "python:3.13", "docker.io/library/python:3", "index.docker.io/library/python", "python" + digest, "python:3" + digest},
			[]string{"python2", "acme/python", "evil.example/python", "docker.io/acme/python"}},
		"python:3.*": {
			[]string{"python:3.13", "python:3.13-slim"},
			[]string{"python", "python:2.7", "python" + digest, "python:3.13" + digest /* nobody looks at the tag */}},
		"python:latest":    {[]string{"python", "python:latest"}, []string{"python:3"}},
		"python" + digest:  {[]string{"python" + digest, "python:3" + digest}, []string{"python", "python@sha256:" + strings.Repeat("b", 64)}},
		"python@sha256:*":  {[]string{"python" + digest}, []string{"python:3"}},
		"acme/*":           {[]string{"acme/a", "docker.io/acme/b:1"}, []string{"acme/a/b", "ghcr.io/acme/a", "acmex/a"}},
		"ghcr.io/acme/**":  {[]string{"ghcr.io/acme/a", "ghcr.io/acme/a/b/c:1"}, []string{"ghcr.io/acme", "ghcr.io/acmex/a", "evil.example/ghcr.io/acme/a"}},
		"*.acme.dev/run":   {[]string{"eu.acme.dev/run"}, []string{"evil.example/x.acme.dev/run", "acme.dev/run", "euxacme.dev/run"}},
		"localhost:5000/*": {[]string{"localhost:5000/a:1"}, []string{"localhost:5001/a", "localhost/a"}},
		"localhost/a":      {[]string{"localhost/a"}, []string{"a"}},
		"**":               {[]string{"a", "ghcr.io/a/b/c:1", "a" + digest}, nil},
		"**:1":             {[]string{"a:1", "ghcr.io/a/b/c:1"}, []string{"a:2", "a"}},
	} {
		b := newBuilder(t, func(s *kubernetes.Settings) { s.Images = []string{"never/matches", pattern} })
		for _, image := range c.allowed {
			_, work := build(t, b, task(`{"command":["true"],"image":"`+image+`"}`))
			assert.Equal(t, image, work.Image)
		}
		for _, image := range c.refused {
			result := refused(t, b, task(`{"command":["true"],"image":"`+image+`"}`))
			assert.Equal(t, kubernetes.ReasonImageNotAllowed, result.Reason, "%s must not allow %s", pattern, image)
			assert.Contains(t, result.Message, "add a pattern for it to kubernetes.images")
		}
	}
}

func TestTheDefaultImage(t *testing.T) {
	t.Parallel()
	b := newBuilder(t, func(s *kubernetes.Settings) { s.Images = nil })
	for _, spec := range []string{`{"command":["true"]}`, `{"command":["true"],"image":"debian:13-slim"}`} {
		_, work := build(t, b, task(spec))
		assert.Equal(t, "debian:13-slim", work.Image)
	}
	assert.Equal(t, kubernetes.ReasonImageNotAllowed, refused(t, b, task(`{"command":["true"],"image":"debian:12"}`)).Reason)

	b = newBuilder(t, func(s *kubernetes.Settings) { s.DefaultImage = "" })
	result := refused(t, b, task(`{"command":["true"]}`))
	assert.Equal(t, kubernetes.ReasonNoImage, result.Reason)
	assert.Contains(t, result.Message, "kubernetes.default_image")
}
