package hooks_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/ingest"
	limitstore "github.com/millrace/millrace/internal/limits/store"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/server/hooks"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/internal/trigger"
)

type noWaker struct{}

func (noWaker) Wake(string) {}

// process is a process that serves webhooks on a database.
func process(t testing.TB, dsn string, w trigger.Webhook) (*bench, *pgxpool.Pool) {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	b := newBench(t, nil)
	b.secrets["HOOK_KEY"] = "hunter2"
	b.Hooks = hooks.New(hooks.Deps{
		Triggers: b, Secrets: b, Buckets: limitstore.New(pool, func() {}), Logger: slog.New(slog.DiscardHandler),
		Creator: ingest.New(ingest.Config{Executions: store.New(pool, noWaker{}, execution.DefaultPolicy())}),
	}, hooks.Config{Now: now})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		assert.NoError(t, b.Close(ctx))
	})
	compiled, faults := trigger.Compile(trigger.Stored{UID: uuid.NewSHA1(uuid.Nil, []byte(dsn)).String(), Revision: 1, Definition: trigger.Definition{
		ID: "orders", Type: trigger.TypeWebhook, Tenant: "acme", User: "ann", Webhook: &w,
		Target: trigger.Target{Execution: &trigger.ExecutionTemplate{
			Executor: "function", Spec: []byte(`{"name": "f", "args": {"n": "${body.n}", "event": "${headers['x-event']}"}}`),
		}},
	}}, trigger.Defaults{Secrets: trigger.Secrets{EnvPrefix: "HOOK_"}})
	require.NoError(t, trigger.Refused(faults))
	b.known["orders"] = compiled
	return b, pool
}

func count(t *testing.T, pool *pgxpool.Pool, sql string) (n int) {
	t.Helper()
	require.NoError(t, pool.QueryRow(t.Context(), sql).Scan(&n))
	return n
}

// together sends n requests at once, spread over processes, and returns the answers.
func together(n int, over []*bench, request func(b *bench, i int) *http.Request) []*httptest.ResponseRecorder {
	answers := make([]*httptest.ResponseRecorder, n)
	var all sync.WaitGroup
	for i := range n {
		b := over[i%len(over)]
		all.Go(func() { answers[i] = b.serve(request(b, i)) })
	}
	all.Wait()
	return answers
}

func TestWhatIsAnsweredIsStoredWithItsOrigin(t *testing.T) {
	t.Parallel()
	b, pool := process(t, testenv.Database(t, postgres.MigrateDSN), open())
	a := accepted(t, b.post("orders", `{"n": 17}`, "X-Event", "placed", "Authorization", "Bearer hunter2"), http.StatusAccepted)
	assert.Equal(t, "execution", a.Kind)
	var n, event, kind, by, metadata string
	require.NoError(t, pool.QueryRow(t.Context(), `
		SELECT request #>> '{spec,args,n}', request #>> '{spec,args,event}', request #>> '{origin,kind}', request #>> '{origin,trigger}', request #>> '{origin,metadata}'
		FROM executions WHERE id = $1 AND tenant = 'acme'`, a.ID).Scan(&n, &event, &kind, &by, &metadata))
	assert.Equal(t, []string{"17", "placed", "webhook", "orders"}, []string{n, event, kind, by})
	assert.Contains(t, metadata, `"path": "/hooks/orders"`)
	assert.NotContains(t, metadata, "hunter2")
	refused(t, b.post("orders", `[1]`), http.StatusUnprocessableEntity, "message_refused")
	refused(t, b.post("orders", `{"n":`), http.StatusBadRequest, "malformed_json")
	assert.Equal(t, 1, count(t, pool, `SELECT count(*) FROM executions`))
}

func TestRepetitionsAtOneTimeInManyProcessesMakeOne(t *testing.T) {
	t.Parallel()
	dsn := testenv.Database(t, postgres.MigrateDSN)
	w := signed(trigger.HMAC{TimestampHeader: "X-Timestamp", Secrets: []trigger.SecretRef{{Env: "HOOK_KEY"}}})
	one, pool := process(t, dsn, w)
	two, _ := process(t, dsn, w)
	body := `{"n": 1}`
	answers := together(40, []*bench{one, two}, func(b *bench, i int) *http.Request {
		return b.request("orders", body, "X-Timestamp", stamp(0), "X-Signature-256", sign("hunter2", stamp(0)+"."+body),
			"Idempotency-Key", fmt.Sprintf("forged-%d", i)) // the key is not signed
	})
	ids, codes := map[string]int{}, map[int]int{}
	for _, w := range answers {
		codes[w.Code]++
		ids[accepted(t, w, w.Code).ID]++
	}
	assert.Equal(t, map[int]int{http.StatusAccepted: 1, http.StatusOK: 39}, codes)
	assert.Len(t, ids, 1, "all are told the id of the first")
	assert.Equal(t, 1, count(t, pool, `SELECT count(*) FROM executions`))
}

func TestAFailedSignatureStoresNothing(t *testing.T) {
	t.Parallel()
	b, pool := process(t, testenv.Database(t, postgres.MigrateDSN), signed(trigger.HMAC{Secrets: []trigger.SecretRef{{Env: "HOOK_KEY"}}}))
	tables := `SELECT (SELECT count(*) FROM executions) + (SELECT count(*) FROM processed_events) + (SELECT count(*) FROM outbox_events)
		+ (SELECT count(*) FROM limit_buckets) + (SELECT count(*) FROM dead_letters)`
	for range 3 {
		refused(t, b.post("orders", `{}`, "X-Signature-256", sign("hunter3", `{}`)), http.StatusUnauthorized, "hook_unauthorized")
	}
	assert.Zero(t, count(t, pool, tables))
}

func TestTheRateHoldsOverAllProcesses(t *testing.T) {
	t.Parallel()
	dsn := testenv.Database(t, postgres.MigrateDSN)
	w := open()
	w.RateLimitPerSecond, w.Burst = trigger.MinRatePerSecond, 10
	one, pool := process(t, dsn, w)
	two, _ := process(t, dsn, w)
	codes := map[int]int{}
	for _, w := range together(40, []*bench{one, two}, func(b *bench, i int) *http.Request { return b.request("orders", fmt.Sprintf(`{"n":%d}`, i)) }) {
		codes[w.Code]++
		if w.Code != http.StatusAccepted {
			assert.NotEmpty(t, w.Header().Get("Retry-After"))
		}
	}
	assert.Equal(t, map[int]int{http.StatusAccepted: 10, http.StatusTooManyRequests: 30}, codes)
	assert.Equal(t, 10, count(t, pool, `SELECT count(*) FROM executions`))
}

func TestABatchIsOneTransactionOfItsEvents(t *testing.T) {
	t.Parallel()
	b, pool := process(t, testenv.Database(t, postgres.MigrateDSN), open())
	data := make([]string, 120)
	for i := range data {
		data[i] = fmt.Sprintf(`{"n":%d}`, i)
	}
	require.Equal(t, http.StatusAccepted, b.post("orders", batch(data...), "Content-Type", batchType, "X-Event", "e").Code)
	require.Equal(t, http.StatusOK, b.post("orders", batch(data...), "Content-Type", batchType, "X-Event", "e").Code)
	assert.Equal(t, 120, count(t, pool, `SELECT count(*) FROM executions`))
	w := b.post("orders", strings.ReplaceAll(batch(`{"n":1}`, `[2]`), "/shop", "/another"), "Content-Type", batchType, "X-Event", "e")
	p := refused(t, w, http.StatusUnprocessableEntity, "message_refused")
	require.Len(t, p.Errors, 1)
	assert.Equal(t, "/1", p.Errors[0].Pointer)
}
