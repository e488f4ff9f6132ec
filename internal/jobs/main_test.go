package jobs_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/jobs"
	"github.com/millrace/millrace/internal/jobs/jobstest"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/secret"
	"github.com/millrace/millrace/internal/testenv"
)

// patience is how long tests wait for what has to happen.
const patience = 60 * time.Second

func TestMain(m *testing.M) { testenv.Run(m) }

func openPool(t *testing.T, dsn string) *pgxpool.Pool {
	t.Helper()
	pool, err := postgres.Open(t.Context(), postgres.Config{DSN: secret.New(dsn), MaxConns: 8})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// world is a database with a store and a shell.
type world struct {
	*jobstest.Shell
	t   *testing.T
	dsn string
}

func newWorld(t *testing.T, change ...func(*jobs.Config)) *world {
	t.Helper()
	return worldOn(t, testenv.Database(t, postgres.MigrateDSN), change...)
}

// worldOn is a further process on a database.
func worldOn(t *testing.T, dsn string, change ...func(*jobs.Config)) *world {
	t.Helper()
	pool := openPool(t, dsn)
	cfg := jobs.Config{Pool: pool, Signals: postgres.NewSignals(pool, nil)}
	for _, c := range change {
		c(&cfg)
	}
	store, err := jobs.NewStore(cfg)
	require.NoError(t, err)
	return &world{&jobstest.Shell{Pool: pool, Store: store, Signals: cfg.Signals}, t, dsn}
}

// run runs something until the test ends.
func run(t *testing.T, fn func(ctx context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		assert.NoError(t, fn(ctx))
	}()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

func (w *world) begin(specs ...jobstest.Spec) []uuid.UUID {
	w.t.Helper()
	ids, err := w.Begin(w.t.Context(), specs...)
	require.NoError(w.t, err)
	return ids
}

func (w *world) claim(worker string, max int, types ...string) []jobs.Job {
	w.t.Helper()
	list, err := w.Store.Claim(w.t.Context(), jobs.ClaimRequest{WorkerID: worker, Types: types, Max: max})
	require.NoError(w.t, err)
	return list
}

func (w *world) complete(by jobs.Holder) error {
	w.t.Helper()
	return w.Complete(w.t.Context(), jobs.Completion{Holder: by})[0]
}

// exec changes the database behind everybody's back.
func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	_, err := w.Pool.Exec(w.t.Context(), sql, args...)
	require.NoError(w.t, err)
}

// expire lets leases run out without waiting for it.
func (w *world) expire(ids ...uuid.UUID) {
	w.t.Helper()
	w.exec(`UPDATE jobs SET lock_expires_at = clock_timestamp() - interval '1 ms' WHERE id = ANY($1) AND status = 'LOCKED'`, ids)
}

func (w *world) status(id uuid.UUID) jobs.Status {
	w.t.Helper()
	var status jobs.Status
	require.NoError(w.t, w.Pool.QueryRow(w.t.Context(), `SELECT status FROM jobs WHERE id = $1`, id).Scan(&status))
	return status
}

func (w *world) sweep() {
	w.t.Helper()
	_, err := jobs.NewSweeper(w.Store, w.Shell).Sweep(w.t.Context())
	require.NoError(w.t, err)
}

func holder(j jobs.Job) jobs.Holder {
	return jobs.Holder{JobID: j.ID, WorkerID: j.WorkerID, Token: j.Token}
}

func idsOf(list []jobs.Job) []uuid.UUID {
	ids := make([]uuid.UUID, len(list))
	for i, j := range list {
		ids[i] = j.ID
	}
	return ids
}
