package rest

import (
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/millrace/millrace/internal/server/problem"
)

// noHooks knows no webhook.
type noHooks struct{}

func (noHooks) Serve(http.ResponseWriter, *http.Request) error {
	return problem.HookNotFound().With("there is none")
}

// echoing answers with what it was sent.
type echoing struct{}

func (echoing) Serve(w http.ResponseWriter, r *http.Request) error {
	w.WriteHeader(http.StatusAccepted)
	_, err := io.Copy(w, r.Body)
	return err
}

func TestAWebhookNeedsNoTokenOfTheAPI(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(d *Deps, _ *Config) { d.Guard, d.Hooks = tokens(), echoing{} })
	w := b.do("POST", "/hooks/orders", "not JSON\x00", "Authorization", "Bearer of-the-hook", "Content-Type", "text/plain")
	assert.Equal(t, http.StatusAccepted, w.Code)
	assert.Equal(t, "not JSON\x00", w.Body.String(), "the body is the webhook's to judge")
	requireProblem(t, b.do("GET", "/hooks/orders", ""), http.StatusMethodNotAllowed, "method_not_allowed")
}

func TestAWebhookThatIsNotThereIsAProblem(t *testing.T) {
	t.Parallel()
	requireProblem(t, newBench(t, nil).do("POST", "/hooks/orders", "{}"), http.StatusNotFound, "hook_not_found")
}
