package purge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/deadletter"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/eventlog"
	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/secret"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/topics"
)

func TestMain(m *testing.M) { testenv.Run(m) }

// testBundle is a migrated database with a store of purges.
type testBundle struct {
	t         *testing.T
	pool      *pgxpool.Pool
	store     *Store
	leases    *lease.Manager
	cancelled []string
	offset    int64
}

func setup(t *testing.T, retention Retention) *testBundle {
	t.Helper()
	pool, err := postgres.Open(t.Context(), postgres.Config{DSN: secret.New(testenv.Database(t, postgres.MigrateDSN))})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	b := &testBundle{t: t, pool: pool, leases: lease.NewManager(pool, "test", time.Minute, slog.New(slog.DiscardHandler))}
	b.store = b.another(retention)
	return b
}

// another is the store of another process.
func (b *testBundle) another(retention Retention) *Store {
	return New(Config{
		Pool: b.pool, Retention: retention, Registerer: prometheus.NewRegistry(),
		Letters:   deadletter.New(deadletter.Config{Pool: b.pool, TopicNames: func(context.Context) ([]string, error) { return nil, nil }}),
		Workflows: Engine{Erase: engine.Erase, Cancel: engine.AskCancel},
		Cancel: func(_ context.Context, id, _, _ string) error {
			b.cancelled = append(b.cancelled, id)
			return nil
		},
	})
}

func (b *testBundle) exec(sql string, args ...any) {
	b.t.Helper()
	_, err := b.pool.Exec(b.t.Context(), sql, args...)
	require.NoError(b.t, err)
}

func (b *testBundle) count(table string) (n int) {
	b.t.Helper()
	require.NoError(b.t, b.pool.QueryRow(b.t.Context(), `SELECT count(*) FROM `+table).Scan(&n))
	return n
}

// held runs fn under the lease of the keeper.
func (b *testBundle) held(fn func(ctx context.Context, h *lease.Held)) {
	b.t.Helper()
	h, err := b.leases.Acquire(b.t.Context(), LeaseName)
	require.NoError(b.t, err)
	fn(b.t.Context(), h)
	require.NoError(b.t, h.Release(b.t.Context()))
}

// execution is one that ended so long ago, or not yet when ended is negative, with all
// that belongs to it.
func (b *testBundle) execution(user, tenant string, ended time.Duration) string {
	b.t.Helper()
	id, err := uuid.NewV7()
	require.NoError(b.t, err)
	key := "key-" + id.String()
	request, err := json.Marshal(topics.Request{Tenant: tenant, User: user, IdempotencyKey: key})
	require.NoError(b.t, err)
	state, finished := "RUNNING", any(nil)
	if ended >= 0 {
		state, finished = "COMPLETED", time.Now().Add(-ended)
	}
	b.exec(`INSERT INTO executions (id, tenant, user_name, executor, resource_class, slots, request, state, version, requested_at, finished_at, result)
		VALUES ($1, $2, $3, 'process', 'default', 1, $4, $5, 2, now() - $6::interval - interval '1 minute', $7::timestamptz, CASE WHEN $7 IS NULL THEN NULL ELSE '{}'::jsonb END)`,
		id, tenant, user, request, state, max(ended, 0), finished)
	b.exec(`INSERT INTO idempotency_keys (tenant, key, request_hash, execution_id) VALUES ($1, $2, '\x00', $3)`, tenant, key, id)
	b.exec(`INSERT INTO execution_outputs (execution_id, attempt, stream, index, start_offset, data) VALUES ($1, 1, 'stdout', 0, 0, 'x')`, id)
	b.exec(`INSERT INTO execution_progress (execution_id, attempt) VALUES ($1, 1)`, id)
	b.exec(`INSERT INTO execution_pods (execution_id, uid, first_attempt, namespace, name, phase, phase_at, created_at, standing)
		VALUES ($1, 'u', 1, 'work', 'p', 'running', now(), now(), true)`, id)
	b.exec(`WITH r AS (INSERT INTO execution_results (id, execution_id, attempt, bytes, sha256, kept_in) VALUES (gen_random_uuid(), $1, 1, 1, '', 'postgres') RETURNING id)
		INSERT INTO execution_result_chunks SELECT id, 0, 'x' FROM r`, id)
	b.exec(`INSERT INTO outbox_events (id, shard, aggregate_type, aggregate_id, event_type, topic, headers, status, published_at)
		VALUES (gen_random_uuid(), 0, 'execution', $1, 'millrace.execution.queued.v1', 'execution_events', '\x', 'PUBLISHED', now())`, id.String())
	b.arrive(id.String(), user, tenant, finished)
	return id.String()
}

// arrive is what consumers make of the events of an execution.
func (b *testBundle) arrive(id, user, tenant string, finished any) {
	b.t.Helper()
	var records []topics.Record
	for range 2 {
		env, err := topics.NewEnvelope(topics.ExecutionQueued{ExecutionID: id, Attempt: 1, ResourceClass: "default", Priority: 3})
		require.NoError(b.t, err)
		r := env.Record("execution_events", []byte(id))
		r.TopicID, r.Offset, r.Timestamp = [16]byte{1}, b.offset, time.Now()
		b.offset++
		records = append(records, r)
	}
	require.NoError(b.t, eventlog.Append(b.t.Context(), b.pool, records))
	b.exec(`INSERT INTO execution_views (id, tenant, user_name, requested_at, finished_at, state, attempt, version, state_version, queued_version, scheduled_version,
			started_version, worker_version, result_version, cancel_requested_version)
		VALUES ($1, $2, $3, now() - interval '1 minute', $4::timestamptz, 'COMPLETED', 1, 2, 2, 0, 0, 0, 0, 0, 0)`, id, tenant, user, finished)
	b.exec(`INSERT INTO pod_views (id, execution_id) VALUES ($1, $2)`, "pod-"+id, id)
}

// left counts what is left of an execution, by table.
func (b *testBundle) left(id string) map[string]int {
	b.t.Helper()
	left := map[string]int{}
	for table, column := range map[string]string{
		"executions": "id::text", "idempotency_keys": "execution_id::text", "execution_outputs": "execution_id::text",
		"execution_progress": "execution_id::text", "execution_pods": "execution_id::text", "execution_results": "execution_id::text", "event_log": "subject",
		"execution_views": "id", "pod_views": "execution_id", "outbox_events": "aggregate_id",
		"dead_letters": "convert_from(key, 'UTF8')",
	} {
		var n int
		require.NoError(b.t, b.pool.QueryRow(b.t.Context(), fmt.Sprintf(`SELECT count(*) FROM %s WHERE %s = $1`, table, column), id).Scan(&n))
		if n > 0 {
			left[table] = n
		}
	}
	return left
}

// work does what the keeper does for purges until the one named has come to an end
// or waits.
func (b *testBundle) work(s *Store, id uuid.UUID) Purge {
	b.t.Helper()
	for {
		b.exec(`UPDATE purges SET next_at = clock_timestamp() WHERE id = $1 AND state = 'RUNNING'`, id)
		var more bool
		var err error
		b.held(func(ctx context.Context, h *lease.Held) { more, err = s.Advance(ctx, h) })
		if err != nil {
			require.ErrorIs(b.t, err, errKilled)
			return Purge{}
		}
		if !more {
			p, err := s.Get(b.t.Context(), id.String())
			require.NoError(b.t, err)
			return p
		}
	}
}

// errKilled is what a process ends with that is killed between two chunks.
var errKilled = errors.New("killed")

func (b *testBundle) create(r Request) Purge {
	b.t.Helper()
	r.Actor, r.Reason = "ann", "asked for it"
	p, fresh, err := b.store.Create(b.t.Context(), r)
	require.NoError(b.t, err)
	require.True(b.t, fresh)
	return p
}

// letter files a dead letter with a key; head says that a lane waits for it.
func (b *testBundle) letter(key string, head bool) string {
	b.t.Helper()
	id := uuid.NewString()
	b.exec(`INSERT INTO dead_letters (id, consumer, consumer_group, topic, topic_id, partition, "offset", key, value, header_keys, header_values,
			class, reason, error, error_type, cause_type, attempts, first_failed_at, last_failed_at)
		VALUES ($1::text::uuid, 'c', 'g', 't', gen_random_uuid(), 0, 0, convert_to($2, 'UTF8'), 'secret', '{}', '{}', 'handler', '', '', '', '', 5, now(), now())`, id, key)
	if head {
		b.exec(`INSERT INTO parked_lanes (consumer, consumer_group, topic_id, topic, partition, key, key_hash, reached, head)
			SELECT consumer, consumer_group, topic_id, topic, partition, key, sha256(key), "offset", id FROM dead_letters WHERE id = $1::text::uuid`, id)
	}
	return id
}
