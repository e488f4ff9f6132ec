package query_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/query"
	"github.com/millrace/millrace/internal/secret"
	"github.com/millrace/millrace/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Run(m) }

func database(t testing.TB) *pgxpool.Pool {
	t.Helper()
	pool, err := postgres.Open(t.Context(), postgres.Config{DSN: secret.New(testenv.Database(t, postgres.MigrateDSN))})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// noon is when the instances of the tests begin.
func noon() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }

// world is a database with a store on it.
type world struct {
	t     testing.TB
	pool  *pgxpool.Pool
	store *query.Store
}

func newWorld(t testing.TB) *world {
	t.Helper()
	pool := database(t)
	return &world{t, pool, query.NewStore(pool, query.Limits{Timeout: 30 * time.Second})}
}

// insert puts a row into a table: columns by name. The status of an instance is
// derived, so it is given as the state that leads to it.
func (w *world) insert(table string, row map[string]any) {
	w.t.Helper()
	require.NoError(w.t, insert(w.t.Context(), w.pool, table, row))
}

func insert(ctx context.Context, pool *pgxpool.Pool, table string, row map[string]any) error {
	var columns, places string
	var args []any
	for name, value := range row {
		if name == "status" && table != "saga_views" {
			switch value {
			case nil:
				continue
			case "COMPLETED", "FAULTED", "CANCELLED":
				columns += `, "terminal_mark"`
				places += ", '00000000-0000-0000-0000-000000000001'::uuid"
				name = "terminal_status"
			default:
				name = "active_status"
			}
		}
		args = append(args, value)
		columns += fmt.Sprintf(", %q", name)
		places += fmt.Sprintf(", $%d", len(args))
	}
	_, err := pool.Exec(ctx, "INSERT INTO "+table+" ("+columns[2:]+") VALUES ("+places[2:]+")", args...)
	return err
}

// workflow is a row with an id and what is given.
func (w *world) workflow(id string, row map[string]any) {
	w.t.Helper()
	full := map[string]any{"id": id}
	for name, value := range row {
		full[name] = value
	}
	w.insert("workflow_instances", full)
}

func (w *world) task(instance, position string, row map[string]any) {
	w.t.Helper()
	full := map[string]any{"instance_id": instance, "task_position": position}
	for name, value := range row {
		full[name] = value
	}
	w.insert("task_instances", full)
}

// list returns the ids of what a request lists.
func ids[R any](t testing.TB, c query.Collection[R], req query.Request) []string {
	t.Helper()
	page, err := c.List(t.Context(), query.Scope{}, req)
	require.NoError(t, err)
	out := []string{}
	for _, r := range page.Rows {
		out = append(out, c.ID(r))
	}
	return out
}

// spy remembers the last statement that went through it.
type spy struct {
	query.DB
	sql  string
	args []any
}

func (s *spy) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	last := b.QueuedQueries[len(b.QueuedQueries)-1]
	s.sql, s.args = last.SQL, last.Arguments
	return s.DB.SendBatch(ctx, b)
}
