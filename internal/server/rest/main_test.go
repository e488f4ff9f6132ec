package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/deadletter"
	"github.com/millrace/millrace/internal/eventlog"
	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/parking"
	"github.com/millrace/millrace/internal/query"
	"github.com/millrace/millrace/internal/server"
	"github.com/millrace/millrace/internal/server/auth"
	"github.com/millrace/millrace/internal/server/graphql"
	"github.com/millrace/millrace/internal/server/health"
	"github.com/millrace/millrace/internal/server/problem"
	"github.com/millrace/millrace/internal/server/sse"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/topics"
)

func TestMain(m *testing.M) { testenv.Run(m) }

// memory is the write model in memory, with the rules of the real one.
type memory struct {
	progress   map[string]*store.Progress
	mu         sync.Mutex
	executions map[string]*execution.Execution
	keys       map[string]string
	chunks     []store.OutputChunk
	chunkErr   error
	err        error
	requests   []topics.Request
}

func newMemory() *memory {
	return &memory{executions: map[string]*execution.Execution{}, keys: map[string]string{}}
}

func (m *memory) Submit(_ context.Context, reqs []topics.Request) ([]store.Submitted, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return nil, m.err
	}
	out := make([]store.Submitted, len(reqs))
	for i := range reqs {
		req := reqs[i]
		if err := execution.Normalize(&req, time.Now()); err != nil {
			out[i].Err = err
			continue
		}
		if id := m.keys[req.IdempotencyKey]; req.IdempotencyKey != "" && id != "" {
			if string(m.executions[id].Request.Spec) != string(req.Spec) {
				out[i].Err = store.ErrIdempotencyConflict
				continue
			}
			out[i].Execution, out[i].Replayed = m.executions[id], true
			continue
		}
		id := fmt.Sprintf("00000000-0000-7000-8000-%012d", len(m.executions)+1)
		e := execution.New(id, req, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
		m.executions[id], m.keys[req.IdempotencyKey] = e, id
		m.requests = append(m.requests, req)
		out[i].Execution = e
	}
	return out, nil
}

func (m *memory) Rerun(ctx context.Context, r store.Rerun) ([]store.Submitted, error) {
	out := make([]store.Submitted, len(r.IDs))
	for i, id := range r.IDs {
		e, err := m.Get(ctx, id)
		switch {
		case err != nil:
			out[i].Err = err
		case r.Tenant != "" && r.Tenant != e.Request.Tenant:
			out[i].Err = store.ErrNotFound
		case !e.State.Terminal():
			out[i].Err = store.ErrNotEnded
		default:
			req := e.Request
			req.Origin = topics.Origin{Kind: "rerun", RerunOf: id}
			if req.IdempotencyKey = ""; r.Key != "" {
				req.IdempotencyKey = r.Key + id
			}
			one, err := m.Submit(ctx, []topics.Request{req})
			if err != nil {
				return nil, err
			}
			out[i] = one[0]
		}
	}
	return out, nil
}

func (m *memory) Situation(ctx context.Context, id string, terms store.Terms) (execution.Situation, error) {
	e, err := m.Get(ctx, id)
	if err != nil {
		return execution.Situation{}, err
	}
	return execution.Situation{Execution: e, Now: e.RequestedAt.Add(time.Minute), Workers: 1, Servable: true, Cap: terms.Cap(e.Request.ResourceClass),
		Total: topics.Requirements{Slots: 4}, Largest: topics.Requirements{Slots: 4}, Executors: []string{"process"}}, nil
}

func (m *memory) Progress(_ context.Context, id string) (*store.Progress, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.progress[id], m.err
}

func (m *memory) Get(_ context.Context, id string) (*execution.Execution, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return nil, m.err
	}
	if e := m.executions[id]; e != nil {
		snapshot := *e
		return &snapshot, nil
	}
	return nil, fmt.Errorf("execution %s: %w", id, store.ErrNotFound)
}

func (m *memory) Cancel(_ context.Context, id, by, reason string) (*execution.Execution, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.executions[id]
	if e == nil {
		return nil, store.ErrNotFound
	}
	return e, e.RequestCancel(time.Now(), by, reason)
}

func (m *memory) Reprioritize(_ context.Context, id string, priority int, by, reason string) (*execution.Execution, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.executions[id]
	if e == nil {
		return nil, store.ErrNotFound
	}
	return e, e.Reprioritize(time.Now(), priority, by, reason, execution.DefaultPolicy())
}

func (m *memory) Output(_ context.Context, _ string, attempt int, stream executor.Stream) (store.Output, error) {
	return store.Output{Attempt: max(attempt, 1), Final: true, Chunks: func(yield func(store.OutputChunk, error) bool) {
		for _, c := range m.chunks {
			if (stream == "" || c.Stream == stream) && !yield(c, nil) {
				return
			}
		}
		if m.chunkErr != nil {
			yield(store.OutputChunk{}, m.chunkErr)
		}
	}}, nil
}

type lists func(query.Scope, query.Request) (query.List[query.Execution], error)

func (l lists) List(_ context.Context, scope query.Scope, req query.Request) (query.List[query.Execution], error) {
	return l(scope, req)
}

// noDatabase is a database that cannot be reached.
type noDatabase struct{ pgx.BatchResults }

func (d noDatabase) SendBatch(context.Context, *pgx.Batch) pgx.BatchResults { return d }

func (noDatabase) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, io.ErrUnexpectedEOF }

func (noDatabase) Close() error { return nil }

type noHistory struct{}

func (noHistory) Events(context.Context, string, eventlog.Cursor, int) ([]eventlog.Entry, eventlog.Cursor, error) {
	return nil, eventlog.Cursor{}, nil
}

func (noHistory) Search(context.Context, eventlog.Filter, eventlog.Moment, int) ([]eventlog.Entry, eventlog.Moment, error) {
	return nil, eventlog.Moment{}, nil
}

type someTopics struct{}

func (someTopics) List(context.Context) ([]Topic, error) {
	return []Topic{{Topic: "execution_events", Name: "prod.execution_events", Partitions: 12, Retention: topics.Duration(time.Hour)}}, nil
}

// letters are dead letters in memory. They answer with what a test has put into them.
type letters struct {
	list    deadletter.List
	groups  []deadletter.Group
	one     deadletter.Letter
	result  deadletter.Result
	err     error
	filter  deadletter.Filter
	page    deadletter.Page
	order   deadletter.Redrive
	many    deadletter.Order
	job     deadletter.Job
	items   deadletter.JobItems
	edit    deadletter.Edit
	sel     deadletter.Selection
	changed deadletter.Changed
	did     []string // what was done, to what, by whom and why

	lanes      []parking.Lane
	laneFilter parking.Filter
}

func (l *letters) List(_ context.Context, f deadletter.Filter, p deadletter.Page) (deadletter.List, error) {
	l.filter, l.page = f, p
	return l.list, l.err
}

func (l *letters) Groups(_ context.Context, f deadletter.Filter, _ int) ([]deadletter.Group, error) {
	l.filter = f
	return l.groups, l.err
}

func (l *letters) Get(_ context.Context, id string) (deadletter.Letter, error) {
	if l.one.ID.String() != id {
		return deadletter.Letter{}, fmt.Errorf("dead letter %s: %w", id, deadletter.ErrNotFound)
	}
	return l.one, l.err
}

func (l *letters) Lanes(_ context.Context, f parking.Filter) ([]parking.Lane, error) {
	l.laneFilter = f
	return l.lanes, l.err
}

func (l *letters) Redrive(_ context.Context, r deadletter.Redrive) (deadletter.Result, error) {
	l.order = r
	return l.result, l.err
}

func (l *letters) do(what, id, actor, reason string) error {
	l.did = []string{what, id, actor, reason}
	return l.err
}

func (l *letters) Discard(_ context.Context, id, actor, reason string) error {
	return l.do("discard", id, actor, reason)
}

func (l *letters) Edit(_ context.Context, e deadletter.Edit) error {
	l.edit = e
	return l.err
}

func (l *letters) Archive(_ context.Context, sel deadletter.Selection, actor, reason string) (deadletter.Changed, error) {
	l.sel = sel
	return l.changed, l.do("archive", "", actor, reason)
}

func (l *letters) Restore(_ context.Context, sel deadletter.Selection, actor, reason string) (deadletter.Changed, error) {
	l.sel = sel
	return l.changed, l.do("restore", "", actor, reason)
}

func (l *letters) Delete(_ context.Context, ids []string, actor, reason string) (deadletter.Changed, error) {
	return l.changed, l.do("delete", strings.Join(ids, " "), actor, reason)
}

func (l *letters) Estimate(_ context.Context, o deadletter.Order) (deadletter.Result, error) {
	l.many = o
	return l.result, l.err
}

func (l *letters) Start(_ context.Context, o deadletter.Order) (deadletter.Job, error) {
	l.many = o
	return l.job, l.err
}

func (l *letters) Job(_ context.Context, id string) (deadletter.Job, error) {
	if l.job.ID.String() != id {
		return deadletter.Job{}, fmt.Errorf("redrive %s: %w", id, deadletter.ErrJobNotFound)
	}
	return l.job, nil
}

func (l *letters) Jobs(_ context.Context, states []deadletter.JobState, p deadletter.Page) (deadletter.JobList, error) {
	l.page = p
	l.did = nil
	for _, s := range states {
		l.did = append(l.did, string(s))
	}
	return deadletter.JobList{Jobs: []deadletter.Job{l.job}, NextToken: "more"}, l.err
}

func (l *letters) JobItems(_ context.Context, id string, bad bool, p deadletter.Page) (deadletter.JobItems, error) {
	l.page, l.did = p, []string{id, fmt.Sprint(bad)}
	return l.items, l.err
}

func (l *letters) Pause(_ context.Context, id, actor, reason string) error {
	return l.do("pause", id, actor, reason)
}

func (l *letters) Resume(_ context.Context, id, actor, reason string) error {
	return l.do("resume", id, actor, reason)
}

func (l *letters) Cancel(_ context.Context, id, actor, reason string) error {
	return l.do("cancel", id, actor, reason)
}

// bench is an API with the rest of the world in memory.
type bench struct {
	t      testing.TB
	store  *memory
	api    *API
	handle http.Handler
	logs   *bytes.Buffer
}

func newBench(t testing.TB, change func(*Deps, *Config)) *bench {
	t.Helper()
	b := &bench{t: t, store: newMemory(), logs: &bytes.Buffer{}}
	logger := slog.New(slog.NewTextHandler(b.logs, nil))
	deps := Deps{
		Executions:  b.store,
		History:     noHistory{},
		Topics:      someTopics{},
		DeadLetters: &letters{},
		Outbox:      &someOutbox{},
		Consumers:   &someConsumers{},
		Replays:     &someReplays{},
		Rebuilds:    &someRebuilds{},
		Purges:      &somePurges{},
		Holds:       &someHolds{},
		Queue:       &someQueue{},
		Limits:      &someLimits{},
		Definitions: &someDefinitions{},
		Workflows:   &someWorkflows{},
		Sagas:       &someWorkflows{},
		Jobs:        &someJobs{},
		JobRecords:  &someJobs{},
		Dispatch:    &someDispatch{},
		Hooks:       noHooks{},
		Health:      health.New(),
		Logger:      logger,
		Queries:     query.NewStore(noDatabase{}, query.Limits{}),
		Lists: lists(func(query.Scope, query.Request) (query.List[query.Execution], error) {
			return query.List[query.Execution]{}, nil
		}),
		Streams: sse.NewStreams(noHistory{}, sse.Config{}, sse.NewHub(topics.ExecutionEvents, nil, logger, nil)),
		GraphQL: graphql.New(graphql.Deps{Logger: logger}, graphql.Config{}),
	}
	config := Config{Version: "test"}
	if change != nil {
		change(&deps, &config)
	}
	api, err := New(deps, config)
	require.NoError(t, err)
	b.api = api
	b.handle = server.Wrap(api, server.Config{Address: "127.0.0.1:8080"}, logger, nil)
	return b
}

// do sends a request; headers are given as name, value.
func (b *bench) do(method, target, body string, headers ...string) *httptest.ResponseRecorder {
	b.t.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	r := httptest.NewRequest(method, target, reader)
	r.Host = "localhost:8080"
	r.Header.Set("X-Request-Id", "req-1")
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	b.handle.ServeHTTP(w, r)
	return w
}

func decode[T any](t testing.TB, w *httptest.ResponseRecorder) T {
	t.Helper()
	var v T
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &v), w.Body.String())
	return v
}

// requireProblem checks everything that holds for each problem, and returns it.
func requireProblem(t testing.TB, w *httptest.ResponseRecorder, status int, code string) problem.Problem {
	t.Helper()
	require.Equal(t, status, w.Code, w.Body.String())
	require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
	p := decode[problem.Problem](t, w)
	require.Equal(t, code, p.Code)
	require.Equal(t, status, p.Status)
	require.Equal(t, "urn:millrace:problem:"+code, p.Type)
	require.NotEmpty(t, p.Title)
	require.Equal(t, "urn:millrace:request:req-1", p.Instance)
	require.Equal(t, "req-1", w.Header().Get("X-Request-Id"))
	return p
}

// tokens is a guard with one token per scope set and one of a tenant.
func tokens() auth.Guard {
	token := func(text string, p auth.Principal) auth.Token {
		return auth.Token{Hash: auth.HashToken(text), Principal: p}
	}
	return auth.Guard{Tokens: auth.Static{
		token("viewer", auth.Principal{Name: "vera", Scopes: []auth.Scope{auth.Read}}),
		token("writer", auth.Principal{Name: "walt", Scopes: []auth.Scope{auth.Write}}),
		token("admin", auth.Principal{Name: "ada", Scopes: []auth.Scope{auth.Admin}}),
		token("acmeadmin", auth.Principal{Name: "abe", Tenant: "acme", Scopes: []auth.Scope{auth.Admin}}),
		token("acme", auth.Principal{Name: "amy", Tenant: "acme", Scopes: []auth.Scope{auth.Read, auth.Write}}),
	}}
}
