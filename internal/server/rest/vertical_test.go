package rest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/eventlog"
	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/outbox"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/query"
	"github.com/millrace/millrace/internal/secret"
	"github.com/millrace/millrace/internal/server"
	"github.com/millrace/millrace/internal/server/health"
	"github.com/millrace/millrace/internal/server/sse"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/topics"
)

// vertical is the API on the real write model, relay, broker and event log. Only
// the coordinator and the workers are missing: the test is them.
type vertical struct {
	t     testing.TB
	pool  *pgxpool.Pool
	store *store.Store
	url   string
}

func database(t testing.TB) *pgxpool.Pool {
	t.Helper()
	pool, err := postgres.Open(t.Context(), postgres.Config{DSN: secret.New(testenv.Database(t, postgres.MigrateDSN))})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// newVertical starts a server whose requests have to be read and answered within
// the timeout.
func newVertical(t testing.TB, timeout time.Duration) *vertical {
	t.Helper()
	pool := database(t)
	log := slog.New(slog.DiscardHandler)
	broker := kafka.Config{Brokers: testenv.Broker(t), FetchMaxWait: 20 * time.Millisecond, Logger: log}
	admin, err := kafka.NewAdmin(broker)
	require.NoError(t, err)
	t.Cleanup(admin.Close)
	_, err = admin.EnsureTopics(t.Context(), []kafka.TopicConfig{{Name: "execution_events", Partitions: 3, ReplicationFactor: 1}})
	require.NoError(t, err)
	publisher, err := kafka.NewPublisher(broker, kafka.PublisherConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, publisher.Close()) })
	signals := postgres.NewSignals(pool, log)
	relay, err := outbox.NewRelay(outbox.Deps{
		Pool: pool, Leases: lease.NewManager(pool, "test", 10*time.Second, log), Publisher: publisher,
		IsRejected: kafka.IsRejected, Log: log,
	}, outbox.Config{PollCeiling: 5 * time.Millisecond})
	require.NoError(t, err)
	recorded, err := kafka.NewTail(t.Context(), broker, kafka.TailConfig{Topics: []string{"execution_events"}, From: kafka.StartEarliest})
	require.NoError(t, err)
	t.Cleanup(recorded.Close)

	hub := sse.NewHub(topics.ExecutionEvents, sse.NewKafkaLog(broker, admin, "execution_events"), log, nil)
	streams := sse.NewStreams(eventlog.NewReader(pool), sse.Config{Ping: 20 * time.Millisecond}, hub)
	executions := store.New(pool, signals, execution.DefaultPolicy())
	api, err := New(Deps{
		Executions: executions, Lists: query.NewStore(pool, query.Limits{}).Executions(),
		History: eventlog.NewReader(pool), Topics: NewBrokerTopics(admin, nil, topics.Table()), Streams: streams,
		Health: health.New(), Logger: log,
	}, Config{})
	require.NoError(t, err)
	config := server.Config{
		Name: "api", Address: "127.0.0.1:0", ReadTimeout: timeout, WriteTimeout: timeout,
		OnShutdown: streams.Close,
	}
	s := server.New(config, server.Wrap(api, config, log, nil), log)
	require.NoError(t, s.Listen(t.Context()))

	ctx, cancel := context.WithCancel(t.Context())
	running := make(chan error, 4)
	go func() { running <- s.Serve() }()
	go func() { running <- hub.Run(ctx) }()
	go func() { running <- relay.Run(ctx) }()
	go func() {
		running <- recorded.Run(ctx, func(r topics.Record) error { return eventlog.Append(ctx, pool, []topics.Record{r}) })
	}()
	t.Cleanup(func() {
		stopping, stop := context.WithTimeout(context.Background(), 10*time.Second)
		defer stop()
		assert.NoError(t, s.Shutdown(stopping))
		cancel()
		for range 4 {
			if err := <-running; err != nil {
				assert.ErrorIs(t, err, context.Canceled)
			}
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return &vertical{t: t, pool: pool, store: executions, url: "http://" + s.Addr()}
}

// answered is an answer without its body.
type answered struct {
	StatusCode int
	Header     http.Header
}

func (v *vertical) do(method, path, body string, headers ...string) (answered, string) {
	v.t.Helper()
	req, err := http.NewRequestWithContext(v.t.Context(), method, v.url+path, strings.NewReader(body))
	require.NoError(v.t, err)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(v.t, err)
	text, err := io.ReadAll(resp.Body)
	require.NoError(v.t, err)
	require.NoError(v.t, resp.Body.Close())
	return answered{resp.StatusCode, resp.Header}, string(text)
}

func (v *vertical) count(table string) (n int) {
	v.t.Helper()
	require.NoError(v.t, v.pool.QueryRow(v.t.Context(), `SELECT count(*) FROM `+table).Scan(&n))
	return n
}

// explain logs where the events are, for when they do not arrive.
func (v *vertical) explain() {
	v.t.Helper()
	rows, err := v.pool.Query(context.WithoutCancel(v.t.Context()), `
		SELECT concat_ws(' ', 'outbox', event_type, status, attempts, last_error, published_at) FROM outbox_events
		UNION ALL SELECT concat_ws(' ', 'event_log', partition, "offset", type) FROM event_log
		UNION ALL SELECT concat_ws(' ', 'execution', state, version) FROM executions`)
	require.NoError(v.t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(v.t, err)
	v.t.Log(strings.Join(lines, "\n"))
}

func TestOnTheRealWriteModel(t *testing.T) {
	t.Parallel()
	v := newVertical(t, time.Minute)
	resp, body := v.do("POST", "/v1/executions", `{"executor":"warp"}`)
	require.Equal(t, 422, resp.StatusCode, body)
	assert.Zero(t, v.count("executions")+v.count("outbox_events")+v.count("idempotency_keys"), "nothing is stored")

	resp, body = v.do("POST", "/v1/executions", echo, "Idempotency-Key", "k1")
	require.Equal(t, 202, resp.StatusCode, body)
	path := resp.Header.Get("Location")
	resp, again := v.do("POST", "/v1/executions", echo, "Idempotency-Key", "k1")
	require.Equal(t, 200, resp.StatusCode)
	assert.JSONEq(t, body, again)
	resp, body = v.do("POST", "/v1/executions", strings.Replace(echo, "hi", "ho", 1), "Idempotency-Key", "k1")
	require.Equal(t, 409, resp.StatusCode, body)
	assert.Equal(t, 1, v.count("executions"))

	resp, body = v.do("POST", "/v1/executions:batch", `{"executions":[`+echo+`,{"executor":""},`+echo+`]}`)
	require.Equal(t, 200, resp.StatusCode, body)
	assert.Contains(t, body, `"accepted":2,"refused":1`)
	assert.Equal(t, 3, v.count("executions"))

	resp, body = v.do("GET", path+"/output", "")
	require.Equal(t, 200, resp.StatusCode)
	assert.Empty(t, body)
	resp, body = v.do("POST", path+"/cancel", `{"reason":"over"}`)
	require.Equal(t, 200, resp.StatusCode, body)
	resp, body = v.do("GET", "/v1/executions/ffffffff-ffff-7fff-bfff-ffffffffffff", "")
	require.Equal(t, 404, resp.StatusCode, body)
	resp, body = v.do("GET", "/v1/topics", "")
	require.Equal(t, 200, resp.StatusCode)
	assert.Contains(t, body, `"topic":"execution_events","name":"execution_events","partitions":3`)

	// The history is there once the relay and the recorder have done their work.
	require.Eventually(t, func() bool {
		return v.count("event_log WHERE subject = '"+strings.TrimPrefix(path, "/v1/executions/")+"'") == 2
	},
		20*time.Second, 5*time.Millisecond)
	var page EventList
	_, body = v.do("GET", path+"/events?page_size=1", "")
	require.NoError(t, json.Unmarshal([]byte(body), &page))
	require.Len(t, page.Events, 1)
	assert.Contains(t, string(page.Events[0]), "millrace.execution.requested.v1")
	_, body = v.do("GET", path+"/events?page_size=1&page_token="+page.NextPageToken, "")
	require.NoError(t, json.Unmarshal([]byte(body), &page))
	assert.Contains(t, string(page.Events[0]), "millrace.execution.cancelled.v1")
	resp, body = v.do("GET", "/v1/executions/"+"00000000-0000-7000-8000-000000000000"+"/events?page_token="+page.NextPageToken, "")
	require.Equal(t, 404, resp.StatusCode, body)
}

func TestAStreamOutlivesTheTimeoutsOfRequestsAndEndsWithItsExecution(t *testing.T) {
	t.Parallel()
	v := newVertical(t, 200*time.Millisecond)
	submitted, err := v.store.Submit(t.Context(), []topics.Request{{Executor: "process", Spec: []byte(`{"command":["true"]}`)}})
	require.NoError(t, err)
	id := submitted[0].Execution.ID
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, v.url+"/v1/executions/"+id+"/events", nil)
	require.NoError(t, err)
	req.Header.Set("Accept", "text/event-stream")
	stream, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { require.NoError(t, stream.Body.Close()) }()
	require.Equal(t, 200, stream.StatusCode)

	lines := bufio.NewScanner(stream.Body)
	var events []string
	pings := 0
	for lines.Scan() {
		line := lines.Text()
		if name, found := strings.CutPrefix(line, "event: "); found {
			events = append(events, name)
		}
		if line == ": ping" {
			if pings++; pings == 30 { // three times the timeouts of the server
				_, err := v.store.Cancel(ctx, id, "ada", "")
				require.NoError(t, err)
			}
		}
	}
	if lines.Err() != nil {
		v.explain()
	}
	require.NoError(t, lines.Err())
	assert.Equal(t, []string{"millrace.execution.requested.v1", "millrace.execution.cancelled.v1", "end"}, events)
}

// A stream shows what its filters say, of whose events those are as well; a tenant's
// token shows its tenant's.
func TestAStreamOfSomeUsers(t *testing.T) {
	t.Parallel()
	v := newVertical(t, time.Minute)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	open := func(query string) *bufio.Scanner {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, v.url+"/v1/events?"+query, nil)
		require.NoError(t, err)
		stream, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		t.Cleanup(func() { _ = stream.Body.Close() })
		require.Equal(t, 200, stream.StatusCode)
		return bufio.NewScanner(stream.Body)
	}
	streams := []*bufio.Scanner{
		open("user=ada,bob&type=millrace.execution.requested.v1"),
		open("user=eve&user=bob&type=millrace.execution.*"),
	}
	for _, user := range []string{"eve", "ada", "dan", "bob"} {
		_, err := v.store.Submit(ctx, []topics.Request{{Tenant: "acme", User: user, Executor: "process", Spec: []byte(`{"command":["true"]}`)}})
		require.NoError(t, err)
	}
	for i, want := range [][]string{{"ada", "bob"}, {"bob", "eve"}} {
		var users []string
		for len(users) < len(want) && streams[i].Scan() {
			if data, found := strings.CutPrefix(streams[i].Text(), "data: "); found {
				var event struct{ Tenant, User string }
				require.NoError(t, json.Unmarshal([]byte(data), &event))
				assert.Equal(t, "acme", event.Tenant)
				users = append(users, event.User)
			}
		}
		require.NoError(t, streams[i].Err())
		assert.ElementsMatch(t, want, users)
	}
}

func BenchmarkSubmitToPostgres(b *testing.B) {
	pool := database(b)
	log := slog.New(slog.DiscardHandler)
	bench := newBench(b, func(d *Deps, _ *Config) {
		d.Executions = store.New(pool, postgres.NewSignals(pool, log), execution.DefaultPolicy())
	})
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if w := bench.do("POST", "/v1/executions", echo); w.Code != 202 {
				b.Error(w.Body)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
}

func BenchmarkBatchToPostgres(b *testing.B) {
	pool := database(b)
	log := slog.New(slog.DiscardHandler)
	bench := newBench(b, func(d *Deps, _ *Config) {
		d.Executions = store.New(pool, postgres.NewSignals(pool, log), execution.DefaultPolicy())
	})
	body := fmt.Sprintf(`{"executions":[%s]}`, strings.TrimSuffix(strings.Repeat(echo+",", 500), ","))
	for b.Loop() {
		if w := bench.do("POST", "/v1/executions:batch", body); w.Code != 200 {
			b.Fatal(w.Body)
		}
	}
	b.ReportMetric(float64(b.N)*500/b.Elapsed().Seconds(), "executions/s")
}
