package graphql

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/query"
	"github.com/millrace/millrace/internal/secret"
	"github.com/millrace/millrace/internal/server"
	"github.com/millrace/millrace/internal/server/auth"
	"github.com/millrace/millrace/internal/server/problem"
	"github.com/millrace/millrace/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Run(m) }

// counting counts the statements that pass through.
type counting struct {
	query.DB
	statements atomic.Int64
}

func (c *counting) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	c.statements.Add(1)
	return c.DB.SendBatch(ctx, b)
}

// noDB is for requests that must not read anything.
type noDB struct{ t testing.TB }

func (n noDB) SendBatch(context.Context, *pgx.Batch) pgx.BatchResults {
	n.t.Error("a statement was run")
	panic("a statement was run")
}

// world is a server, over HTTP, and the database behind it.
type world struct {
	t       testing.TB
	pool    *pgxpool.Pool
	db      *counting
	server  *Server
	handler http.Handler
	log     *strings.Builder
}

// newWorld makes a server on a database of its own.
func newWorld(t testing.TB, config Config) *world {
	t.Helper()
	pool, err := postgres.Open(t.Context(), postgres.Config{DSN: secret.New(testenv.Database(t, postgres.MigrateDSN))})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	if config.Limits.Timeout == 0 {
		config.Limits.Timeout = time.Minute // the machine may be busy
	}
	w := newServer(t, &counting{DB: pool}, auth.Guard{}, config)
	w.pool = pool
	return w
}

// newServer makes a server without a database of its own.
func newServer(t testing.TB, db query.DB, guard auth.Guard, config Config) *world {
	t.Helper()
	log := &strings.Builder{}
	counted, ok := db.(*counting)
	if !ok {
		counted = &counting{DB: db}
	}
	s := New(Deps{DB: counted, Logger: slog.New(slog.NewTextHandler(log, nil)), Registerer: prometheus.NewRegistry()}, config)
	mux := http.NewServeMux()
	fail := func(w http.ResponseWriter, r *http.Request, err error) {
		problem.Write(w, r, problem.Internal().With(err.Error()))
	}
	get := guard.Require(auth.Read, fail, http.HandlerFunc(s.Get))
	mux.HandleFunc("GET /graphql", func(w http.ResponseWriter, r *http.Request) {
		if WantsPage(r) {
			s.Page(w, r)
			return
		}
		get.ServeHTTP(w, r)
	})
	mux.Handle("POST /graphql", guard.Require(auth.Read, fail, http.HandlerFunc(s.Post)))
	handler := server.Wrap(mux, server.Config{Address: "127.0.0.1:0"}, slog.New(slog.DiscardHandler), nil)
	return &world{t: t, db: counted, server: s, handler: handler, log: log}
}

// insert puts a row into a table: columns by name. The status of an instance is
// derived, so it is given as the state that leads to it.
func (w *world) insert(table string, row map[string]any) {
	w.t.Helper()
	var columns, places []string
	var args []any
	for name, value := range row {
		if name == "status" && table != "saga_views" {
			switch value {
			case "COMPLETED", "FAULTED", "CANCELLED":
				columns, places = append(columns, "terminal_mark"), append(places, "'00000000-0000-0000-0000-000000000001'::uuid")
				name = "terminal_status"
			default:
				name = "active_status"
			}
		}
		args = append(args, value)
		columns, places = append(columns, fmt.Sprintf("%q", name)), append(places, fmt.Sprintf("$%d", len(args)))
	}
	_, err := w.pool.Exec(w.t.Context(),
		"INSERT INTO "+table+" ("+strings.Join(columns, ", ")+") VALUES ("+strings.Join(places, ", ")+")", args...)
	require.NoError(w.t, err)
}

// noon is when the instances of the tests begin.
func noon() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }

func at(minutes int) time.Time { return noon().Add(time.Duration(minutes) * time.Minute) }

// instances puts n instances, wf-0 to wf-(n-1), each with two tasks.
func (w *world) instances(n int) {
	w.t.Helper()
	for i := range n {
		id := fmt.Sprintf("wf-%d", i)
		w.insert("workflow_instances", map[string]any{
			"id": id, "namespace": "org.acme", "name": []string{"order-processing", "billing"}[i%2], "version": "1.0.0",
			"status": []string{"COMPLETED", "FAULTED", "RUNNING"}[i%3], "start": at(i), "end": at(i + 5),
			"input": fmt.Sprintf(`{"customerId": "c-%d", "amount": %d, "lines": [{"sku": "a"}]}`, i%3, i*10),
		})
		for k := range 2 {
			w.insert("task_instances", map[string]any{
				"instance_id": id, "task_position": fmt.Sprintf("/do/%d", k), "task_name": []string{"greet", "pay"}[k],
				"task_execution_id": fmt.Sprintf("te-%d-%d", i, k), "status": "COMPLETED", "start": at(i + k), "end": at(i + k + 1),
			})
		}
	}
}

// sent is the answer to a request.
type sent struct {
	Code   int
	Header http.Header
	Text   string
	Errors []struct {
		Message    string
		Path       []any
		Extensions struct {
			Code    string
			Limit   string
			Allowed int64
			Found   int64
		}
	}
	Data json.RawMessage
}

// codes are those of the errors.
func (s sent) codes() []string {
	var codes []string
	for _, e := range s.Errors {
		codes = append(codes, e.Extensions.Code)
	}
	return codes
}

// do sends a request as it is.
func (w *world) do(r *http.Request) sent {
	w.t.Helper()
	if r.Host == "example.com" {
		r.Host = "127.0.0.1"
	}
	rec := httptest.NewRecorder()
	w.handler.ServeHTTP(rec, r)
	body, err := io.ReadAll(rec.Body)
	require.NoError(w.t, err)
	out := sent{Code: rec.Code, Header: rec.Header(), Text: string(body)}
	if strings.Contains(rec.Header().Get("Content-Type"), "json") && !strings.Contains(rec.Header().Get("Content-Type"), "problem") {
		require.NoError(w.t, json.Unmarshal(body, &out), out.Text)
	}
	return out
}

// post sends a query with variables.
func (w *world) post(query string, variables map[string]any) sent {
	w.t.Helper()
	body, err := json.Marshal(map[string]any{"query": query, "variables": variables})
	require.NoError(w.t, err)
	r := httptest.NewRequest(http.MethodPost, "/graphql", strings.NewReader(string(body)))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", mediaResponse)
	return w.do(r)
}

// ask sends a query that must succeed and returns its data.
func (w *world) ask(query string, variables map[string]any) string {
	w.t.Helper()
	answer := w.post(query, variables)
	require.Empty(w.t, answer.Errors, answer.Text+w.log.String())
	require.Equal(w.t, http.StatusOK, answer.Code, answer.Text)
	return string(answer.Data)
}
