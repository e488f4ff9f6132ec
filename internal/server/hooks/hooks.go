package hooks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/ingest"
	"github.com/millrace/millrace/internal/limits"
	"github.com/millrace/millrace/internal/secret"
	"github.com/millrace/millrace/internal/server/problem"
	"github.com/millrace/millrace/internal/trigger"
)

// Triggers knows the triggers of the installation, without a query.
type Triggers interface {
	// Lookup returns the trigger of that id, or nil where there is none that can be run.
	// ready is false until the triggers have been read for the first time.
	Lookup(id string) (t *trigger.Compiled, ready bool)
}

// Secrets reads what definitions refer to. Errors name the place, never the value.
type Secrets interface {
	Resolve(ref trigger.SecretRef) (secret.Secret, error)
}

// Buckets holds the rates of hooks over all processes; *store.Store of package
// internal/limits/store implements it.
type Buckets interface {
	Spend(ctx context.Context, d limits.Definition, key string, n int) (taken int, wait time.Duration, err error)
}

// Deps is what the hooks call.
type Deps struct {
	Triggers Triggers
	Secrets  Secrets
	Creator  ingest.Creator
	Buckets  Buckets
	Logger   *slog.Logger
	// Registerer takes the metrics. May be nil.
	Registerer prometheus.Registerer
}

// Config holds the settings.
type Config struct {
	// MaxInFlightBytes bounds the bodies of one hook that are in memory at a time. What has
	// arrived counts, not what was announced; one alone is always taken. Defaults to 64 MiB.
	MaxInFlightBytes int64
	// MaxWaiting is how many requests of one hook may wait for their transaction. Defaults
	// to 1000.
	MaxWaiting int
	// CreateTimeout bounds a transaction. Defaults to 25 s.
	CreateTimeout time.Duration
	// WithoutKafka has hooks refused that start executions, which nobody would run.
	WithoutKafka bool
	// Now is the clock for timestamps in requests. Defaults to time.Now.
	Now func() time.Time
}

func (c Config) withDefaults() Config {
	if c.MaxInFlightBytes <= 0 {
		c.MaxInFlightBytes = 64 << 20
	}
	if c.MaxWaiting <= 0 {
		c.MaxWaiting = 1000
	}
	if c.CreateTimeout <= 0 {
		c.CreateTimeout = 25 * time.Second
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Hooks receives webhooks. It is safe for concurrent use.
type Hooks struct {
	deps    Deps
	config  Config
	metrics *metrics
	// base is the context of transactions, which outlive the requests in them.
	base   context.Context
	cancel context.CancelFunc

	mu sync.Mutex
	// hooks are those that have received something, by id.
	hooks  map[string]*hook
	closed bool
	drains sync.WaitGroup
}

// New returns hooks that receive until Close.
func New(deps Deps, config Config) *Hooks {
	h := &Hooks{deps: deps, config: config.withDefaults(), metrics: newMetrics(deps.Registerer), hooks: map[string]*hook{}}
	h.base, h.cancel = context.WithCancel(context.Background())
	return h
}

// Close waits for what is under way, until ctx ends, and takes nothing any more.
func (h *Hooks) Close(ctx context.Context) error {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	done := make(chan struct{})
	go func() { h.drains.Wait(); close(done) }()
	defer h.cancel()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	h.cancel()
	<-done
	return fmt.Errorf("close webhooks: %w", ctx.Err())
}

// Serve answers a request to the pattern "POST /hooks/{id}", unless it returns an error: then
// it has written nothing. The error is a *problem.Problem, or what a service has returned.
func (h *Hooks) Serve(w http.ResponseWriter, r *http.Request) error {
	t, result, err := h.serve(w, r)
	name := ""
	if t != nil { // others are not told from each other, nor do they make up labels
		name = t.ID
	}
	h.metrics.requests.WithLabelValues(name, result).Inc()
	return err
}

func (h *Hooks) serve(w http.ResponseWriter, r *http.Request) (t *trigger.Compiled, result string, err error) {
	t, ready := h.deps.Triggers.Lookup(r.PathValue("id"))
	if !ready {
		p := problem.HookUnavailable().With("the triggers have not been read yet")
		p.RetryAfter = time.Second
		return nil, resultError, p
	}
	if t == nil || t.Type != trigger.TypeWebhook || t.Webhook == nil || t.Enabled != nil && !*t.Enabled {
		return nil, resultUnknown, problem.HookNotFound().With("there is no webhook of that name, or it is disabled")
	}
	hook := h.of(t)
	p := hook.plan(t)
	keys, err := hook.keys(p)
	if err != nil {
		return t, resultError, h.misconfigured(r.Context(), hook, t, err)
	}
	if refusal := p.checkHeader(r, keys); refusal != nil {
		return t, resultUnauthorized, refusal
	}
	meter := &meter{hook: hook, from: r.Body}
	defer meter.release()
	body, err := readBody(w, r, meter, p.MaxBodyBytes)
	switch {
	case errors.Is(err, errTooMuch):
		return t, resultOverloaded, overloaded()
	case err != nil:
		return t, resultInvalid, err
	}
	nonce, refusal := p.checkSignature(r, body, keys, h.config.Now())
	if refusal != nil {
		return t, resultUnauthorized, refusal
	}
	result, err = h.take(w, r, hook, p, body, nonce)
	return t, result, err
}

// take makes the targets of a request that has proved who sends it, and answers it.
func (h *Hooks) take(w http.ResponseWriter, r *http.Request, hook *hook, p *plan, body []byte, nonce string) (string, error) {
	if challenge, ok := p.challenge(body); ok {
		writeText(w, challenge)
		return resultChallenge, nil
	}
	if h.config.WithoutKafka && p.trigger.Target.Execution != nil {
		return resultError, problem.KafkaOff().With("the server was started without kafka.brokers, with which it only runs workflows")
	}
	in, err := p.decode(r, body, nonce, h.config.Now())
	if err != nil {
		return resultInvalid, err
	}
	if len(in.messages) == 0 { // a batch without events
		return answer(w, p, in, nil)
	}
	s := hook.submit(r.Context(), p.trigger, in.messages)
	switch {
	case s.wait > 0:
		refusal := problem.RateLimited().With("the webhook takes no more requests at the moment")
		refusal.RetryAfter = s.wait
		return resultRateLimited, refusal
	case s.err != nil:
		return blocked(in, s)
	}
	return answer(w, p, in, s.outcomes)
}

// of returns what is kept of a hook from one request to the next.
func (h *Hooks) of(t *trigger.Compiled) *hook {
	h.mu.Lock()
	defer h.mu.Unlock()
	known := h.hooks[t.ID]
	if known == nil || known.uid != t.UID {
		h.forget()
		known = &hook{all: h, uid: t.UID}
		h.hooks[t.ID] = known
	}
	return known
}

// forget drops what is kept of hooks that are not there any more. It is called when one is
// added, which is rare.
func (h *Hooks) forget() {
	for id, known := range h.hooks {
		if t, ready := h.deps.Triggers.Lookup(id); ready && (t == nil || t.UID != known.uid) {
			delete(h.hooks, id)
		}
	}
}

// Report says how a hook is doing in this process: running, or in error where a secret of it
// cannot be read.
func (h *Hooks) Report(t trigger.Stored) trigger.MemberReport {
	report := trigger.MemberReport{State: trigger.StateRunning}
	if t.Webhook == nil {
		return report
	}
	k, err := readKeys(h.deps.Secrets, t.Webhook.WithDefaults().Auth)
	if err != nil {
		report.State, report.Cause = trigger.StateError, new(causeOf(err))
		return report
	}
	for _, missing := range k.missing {
		report.Notes = append(report.Notes, causeOf(missing))
	}
	return report
}

func causeOf(err error) trigger.Cause {
	if known, ok := errors.AsType[causer](err); ok {
		return known.Cause()
	}
	return trigger.Cause{Code: "secret_missing", Message: err.Error(), Hint: "see to it on every server that serves the API"}
}

// causer is an error that has the words of a status.
type causer interface {
	error
	Cause() trigger.Cause
}

// misconfigured tells the log why a hook cannot check requests, once a minute at most, and
// the caller that it cannot.
func (h *Hooks) misconfigured(ctx context.Context, hook *hook, t *trigger.Compiled, err error) error {
	if hook.complain() {
		h.deps.Logger.ErrorContext(ctx, "webhook cannot check requests", "trigger", t.ID, "error", err)
	}
	p := problem.HookUnavailable().With("the webhook is not set up completely; its operator finds the cause in its status and in the server's log")
	p.RetryAfter = time.Minute
	return p
}

func overloaded() *problem.Problem {
	p := problem.Overloaded().With("too many requests to this webhook are being worked on")
	p.RetryAfter = time.Second
	return p
}

// readBody returns the body of a request, which may be empty.
func readBody(w http.ResponseWriter, r *http.Request, from io.ReadCloser, limit int64) ([]byte, error) {
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return nil, problem.UnsupportedMediaType().With("send the body without Content-Encoding")
	}
	if r.ContentLength > limit {
		return nil, &http.MaxBytesError{Limit: limit}
	}
	var buf bytes.Buffer
	if r.ContentLength > 0 { // which is a claim: who sends nothing is to cost nothing
		buf.Grow(int(min(r.ContentLength, 64<<10)) + bytes.MinRead)
	}
	_, err := buf.ReadFrom(http.MaxBytesReader(w, from, limit))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge), errors.Is(err, errTooMuch):
		return nil, err
	case err != nil: // the caller broke off, or was too slow
		return nil, problem.MalformedJSON().With("the body ended before it was complete")
	}
	return buf.Bytes(), nil
}
