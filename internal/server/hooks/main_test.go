package hooks_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/ingest"
	"github.com/millrace/millrace/internal/limits"
	"github.com/millrace/millrace/internal/secret"
	"github.com/millrace/millrace/internal/server/hooks"
	"github.com/millrace/millrace/internal/server/problem"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/internal/trigger"
)

func TestMain(m *testing.M) { testenv.Run(m) }

// patience is how long a test waits for what has to come.
const patience = time.Minute

// now is the time on the clock of the hooks.
func now() time.Time { return time.Unix(1_700_000_000, 0) }

// bench is a listener with triggers, secrets and what is made, in memory.
type bench struct {
	*hooks.Hooks
	*creator
	t       testing.TB
	logs    *bytes.Buffer
	metrics *prometheus.Registry
	mu      sync.Mutex
	known   map[string]*trigger.Compiled
	unread  bool
	secrets map[string]string
	buckets *buckets
}

func newBench(t testing.TB, change func(*hooks.Config)) *bench {
	t.Helper()
	b := &bench{
		t: t, creator: &creator{made: map[string]ingest.Outcome{}}, logs: &bytes.Buffer{}, metrics: prometheus.NewRegistry(),
		known: map[string]*trigger.Compiled{}, secrets: map[string]string{"KEY": "hunter2", "OLD": "hunter1"}, buckets: &buckets{},
	}
	config := hooks.Config{Now: now}
	if change != nil {
		change(&config)
	}
	b.Hooks = hooks.New(hooks.Deps{
		Triggers: b, Secrets: b, Creator: b.creator, Buckets: b.buckets,
		Logger: slog.New(slog.NewTextHandler(&lockedWriter{w: b.logs}, nil)), Registerer: b.metrics,
	}, config)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		assert.NoError(t, b.Close(ctx))
		for _, s := range []string{"hunter1", "hunter2"} {
			assert.NotContains(t, b.logs.String(), s, "secrets do not reach logs")
		}
	})
	return b
}

type lockedWriter struct {
	mu sync.Mutex
	w  *bytes.Buffer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// hook adds a webhook.
func (b *bench) hook(id string, w trigger.Webhook) *trigger.Compiled {
	return b.put(trigger.Definition{
		ID: id, Type: trigger.TypeWebhook, Webhook: &w, Target: trigger.Target{Execution: &trigger.ExecutionTemplate{Executor: "process"}},
	})
}

func (b *bench) put(d trigger.Definition) *trigger.Compiled {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := &trigger.Compiled{Stored: trigger.Stored{Definition: d, UID: "uid-of-" + d.ID, Revision: 1}}
	if was := b.known[d.ID]; was != nil {
		t.Revision = was.Revision + 1
	}
	b.known[d.ID] = t
	return t
}

func (b *bench) Lookup(id string) (*trigger.Compiled, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.known[id], !b.unread
}

func (b *bench) Resolve(ref trigger.SecretRef) (secret.Secret, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if text := b.secrets[ref.Env]; text != "" {
		return secret.New(text), nil
	}
	return secret.Secret{}, missing{ref.Env}
}

// missing is the error of a secret that is not there.
type missing struct{ name string }

func (m missing) Error() string { return "the environment variable " + m.name + " is not set" }
func (m missing) Cause() trigger.Cause {
	return trigger.Cause{Code: "secret_missing", Message: m.Error(), Hint: "set it"}
}

// creator makes targets in memory, and does what bodies tell it.
type creator struct {
	mu    sync.Mutex
	calls [][]ingest.Message
	made  map[string]ingest.Outcome
	// gate, if set, is received from before anything is made; entered is sent to before that.
	gate, entered chan struct{}
	// only has the gate keep one trigger.
	only string
}

func (c *creator) Create(ctx context.Context, t *trigger.Compiled, messages []ingest.Message) ([]ingest.Outcome, error) {
	if c.gate != nil && (c.only == "" || c.only == t.ID) {
		c.entered <- struct{}{}
		select {
		case <-c.gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, messages)
	var outcomes []ingest.Outcome
	for i, m := range messages {
		o, err := c.create(m)
		if err != nil {
			var blocked *ingest.BlockedError
			if errors.As(err, &blocked) {
				blocked.Index = i
			}
			return outcomes, err
		}
		outcomes = append(outcomes, o)
	}
	return outcomes, nil
}

var errAway = errors.New("the database is away")

func (c *creator) create(m ingest.Message) (ingest.Outcome, error) {
	var body map[string]any
	if err := json.Unmarshal(m.Body, &body); err != nil {
		return ingest.Outcome{Status: ingest.Refused, Err: &ingest.Refusal{Code: "not_json", Message: "the message is no JSON"}}, nil
	}
	code, _ := body["refuse"].(string)
	switch {
	case code != "":
		return ingest.Outcome{Status: ingest.Refused, Err: &ingest.Refusal{Code: code, Message: "it does not fit"}}, nil
	case body["block"] != nil:
		return ingest.Outcome{}, &ingest.BlockedError{Cause: trigger.Cause{Code: "limit_reached", Message: "5 are open"}, Err: errAway}
	case body["away"] != nil:
		return ingest.Outcome{}, errAway
	case body["panic"] != nil:
		panic("a bug")
	}
	for _, key := range []string{m.Identity, m.Nonce} {
		if first, known := c.made[key]; known && key != "" {
			return ingest.Outcome{Status: ingest.Duplicate, Kind: first.Kind, ID: first.ID}, nil
		}
	}
	o := ingest.Outcome{Status: ingest.Created, Kind: "execution", ID: "execution-" + strconv.Itoa(len(c.made)+1)}
	c.made[fmt.Sprintf("#%d", len(c.made))] = o
	for _, key := range []string{m.Identity, m.Nonce} {
		if key != "" {
			c.made[key] = o
		}
	}
	return o, nil
}

// messages returns everything that was created, call by call.
func (c *creator) received() [][]ingest.Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls
}

// last returns the message of the last call, of which there has to be one.
func (b *bench) last() ingest.Message {
	b.t.Helper()
	calls := b.received()
	require.NotEmpty(b.t, calls)
	require.Len(b.t, calls[len(calls)-1], 1)
	return calls[len(calls)-1][0]
}

// buckets hands out tokens.
type buckets struct {
	mu     sync.Mutex
	tokens int
	wait   time.Duration
	asked  []limits.Definition
}

func (s *buckets) Spend(_ context.Context, d limits.Definition, key string, n int) (int, time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, d)
	if key == "" {
		return 0, 0, errors.New("no key")
	}
	taken := min(n, s.tokens)
	if s.tokens -= taken; taken < n {
		return taken, s.wait, nil
	}
	return taken, 0, nil
}

// ServeHTTP answers as the API does.
func (b *bench) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	err := b.Serve(w, r)
	var p *problem.Problem
	var tooLarge *http.MaxBytesError
	switch {
	case err == nil:
	case errors.As(err, &p):
		problem.Write(w, r, p)
	case errors.As(err, &tooLarge):
		problem.Write(w, r, problem.BodyTooLarge().With(err.Error()))
	default:
		problem.Write(w, r, problem.Internal().With(err.Error()))
	}
}

// request makes a request; headers are given as name, value.
func (b *bench) request(id, body string, headers ...string) *http.Request {
	r := httptest.NewRequestWithContext(b.t.Context(), http.MethodPost, "/hooks/"+id, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		if r.Header.Del(headers[i]); headers[i+1] != "" {
			r.Header.Set(headers[i], headers[i+1])
		}
	}
	return r
}

func (b *bench) serve(r *http.Request) *httptest.ResponseRecorder {
	mux := http.NewServeMux()
	mux.Handle("POST /hooks/{id}", b)
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	return w
}

func (b *bench) post(id, body string, headers ...string) *httptest.ResponseRecorder {
	b.t.Helper()
	return b.serve(b.request(id, body, headers...))
}

// accepted requires an answer of that status and returns it.
func accepted(t *testing.T, w *httptest.ResponseRecorder, status int) hooks.HookAnswer {
	t.Helper()
	require.Equal(t, status, w.Code, w.Body.String())
	var a hooks.HookAnswer
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &a))
	return a
}

// refused requires a problem and returns it.
func refused(t *testing.T, w *httptest.ResponseRecorder, status int, code string) problem.Problem {
	t.Helper()
	var p problem.Problem
	require.Equal(t, status, w.Code, w.Body.String())
	require.Equal(t, problem.ContentType, w.Header().Get("Content-Type"))
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p))
	require.Equal(t, code, p.Code)
	return p
}

// open lets everybody in.
func open() trigger.Webhook { return trigger.Webhook{Auth: trigger.WebhookAuth{None: true}} }

// signed asks for a signature of a style with the secrets KEY and OLD.
func signed(h trigger.HMAC) trigger.Webhook {
	if len(h.Secrets) == 0 {
		h.Secrets = []trigger.SecretRef{{Env: "KEY"}, {Env: "OLD"}}
	}
	return trigger.Webhook{Auth: trigger.WebhookAuth{HMAC: &h}}
}

// sign returns the signature of a text in hex.
func sign(key, text string) string {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(text))
	return hex.EncodeToString(mac.Sum(nil))
}

// stamp is a timestamp that many seconds from now.
func stamp(seconds int) string { return strconv.FormatInt(now().Unix()+int64(seconds), 10) }

// sign64 returns the signature of a text in base64.
func sign64(key, text string) string {
	raw, _ := hex.DecodeString(sign(key, text))
	return base64.StdEncoding.EncodeToString(raw)
}
