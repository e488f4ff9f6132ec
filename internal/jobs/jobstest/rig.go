package jobstest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/jobs"
	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/outbox"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/secret"
	"github.com/millrace/millrace/internal/testenv"
)

// patience is how long the suite waits for what has to happen.
const patience = 60 * time.Second

// Actions are what the suite does. A test of a transport has its workers' calls go over
// that.
type Actions interface {
	// Begin begins jobs of one-step instances. Only JobType, Priority, Retries and
	// Variables of the specs are set.
	Begin(ctx context.Context, specs ...Spec) ([]uuid.UUID, error)
	// Claim is called where jobs are polled.
	Claim(ctx context.Context, r jobs.ClaimRequest) ([]jobs.Job, error)
	Heartbeat(ctx context.Context, beats []jobs.Beat) ([]jobs.BeatResult, error)
	// Complete and Fail report, with errors that wrap those of package jobs.
	Complete(ctx context.Context, list ...jobs.Completion) []error
	Fail(ctx context.Context, f jobs.Failure) error
	// Cancel, Suspend and Resume do that to the instance of a job.
	Cancel(ctx context.Context, job uuid.UUID) error
	Suspend(ctx context.Context, job uuid.UUID) error
	Resume(ctx context.Context, job uuid.UUID) error
	// JobsExpired takes expired leases.
	jobs.Reporter
}

// Rig is a database with jobs in one mode of dispatch, and all that runs beside it.
type Rig struct {
	DSN     string
	Pool    *pgxpool.Pool
	Signals *postgres.Signals
	Store   *jobs.Store
	// Broker is Kafka, where jobs go over that.
	Broker *Broker
	Actions
	// StopRelay stops the relay, where there is one; Stop everything that runs but the
	// database.
	StopRelay, Stop func()
	// JobType is that of the jobs of a scenario.
	JobType string

	t *testing.T
}

// NewRig returns a rig that runs until the test ends. Actions may be nil: those of the
// shell. It is called with everything else set.
func NewRig(t *testing.T, mode jobs.Mode, actions func(t *testing.T, r *Rig) Actions) *Rig {
	t.Helper()
	return NewRigOn(t, testenv.Database(t, postgres.MigrateDSN), NewBroker(), mode, actions)
}

// NewRigOn is NewRig on a database and a broker that are there.
func NewRigOn(t *testing.T, dsn string, broker *Broker, mode jobs.Mode, actions func(t *testing.T, r *Rig) Actions) *Rig {
	t.Helper()
	pool, err := postgres.Open(t.Context(), postgres.Config{DSN: secret.New(dsn), MaxConns: 10})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	r := &Rig{DSN: dsn, Pool: pool, Signals: postgres.NewSignals(pool, nil), Broker: broker, t: t}
	r.Store, err = jobs.NewStore(jobs.Config{Pool: pool, Mode: mode, Signals: r.Signals, Topics: broker})
	require.NoError(t, err)
	r.Actions = shellActions{&Shell{Pool: pool, Store: r.Store, Signals: r.Signals}}
	if actions != nil {
		r.Actions = actions(t, r)
	}
	stops := []func(){r.Run(r.Signals.Run), r.Run(r.Store.Run), r.Run(jobs.NewDispatches(r.Store).Run)}
	r.StopRelay = func() {}
	if mode == jobs.KafkaOutbox {
		r.StopRelay = r.Relay()
	}
	r.Stop = func() {
		r.StopRelay()
		for _, stop := range stops {
			stop()
		}
	}
	return r
}

// Relay runs a relay to the broker and returns what stops it.
func (r *Rig) Relay() (stop func()) {
	r.t.Helper()
	relay, err := outbox.NewRelay(outbox.Deps{
		Pool: r.Pool, Leases: lease.NewManager(r.Pool, uuid.NewString(), 2*time.Second, nil, lease.WithSignals(r.Signals)),
		Publisher: r.Broker, Signals: r.Signals, IsRejected: func(err error) bool { return errors.Is(err, ErrRejected) },
	}, outbox.Config{RetryBackoff: 5 * time.Millisecond, SweepEvery: 200 * time.Millisecond, PollCeiling: 20 * time.Millisecond})
	require.NoError(r.t, err)
	return r.Run(relay.Run)
}

// Run runs something until the test ends, or stop is called.
func (r *Rig) Run(fn func(ctx context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		assert.NoError(r.t, fn(ctx))
	}()
	stop = func() { cancel(); <-done }
	r.t.Cleanup(stop)
	return stop
}

// Take brings jobs to a worker: it polls for them, or reads them from Kafka.
func (r *Rig) Take(ctx context.Context, worker string, n int, types ...string) ([]jobs.Job, error) {
	request := jobs.ClaimRequest{WorkerID: worker, Types: types, Max: n, Wait: 50 * time.Millisecond}
	if r.Store.Mode() == jobs.KafkaOutbox {
		return r.Broker.Claim(ctx, request)
	}
	return r.Claim(ctx, request)
}

// One is the next job of a type, which has to come.
func (r *Rig) One(worker, jobType string) jobs.Job {
	r.t.Helper()
	return r.Some(worker, 1, jobType)[0]
}

// Some are the next n jobs of some types, which have to come.
func (r *Rig) Some(worker string, n int, types ...string) []jobs.Job {
	r.t.Helper()
	var got []jobs.Job
	require.Eventually(r.t, func() bool {
		list, err := r.Take(r.t.Context(), worker, n-len(got), types...)
		got = append(got, list...)
		return assert.NoError(r.t, err) && len(got) == n
	}, patience, time.Millisecond, "%d jobs of types %v", n, types)
	return got
}

// Status is where a job is.
func (r *Rig) Status(job uuid.UUID) jobs.Status {
	r.t.Helper()
	var status jobs.Status
	require.NoError(r.t, r.Pool.QueryRow(r.t.Context(), `SELECT status FROM jobs WHERE id = $1`, job).Scan(&status))
	return status
}

// Expire has the leases of jobs run out, and sweeps.
func (r *Rig) Expire(ids ...uuid.UUID) {
	r.t.Helper()
	_, err := r.Pool.Exec(r.t.Context(), `
		UPDATE jobs SET lock_expires_at = clock_timestamp() - interval '1 ms' WHERE id = ANY($1) AND status = 'LOCKED'`, ids)
	require.NoError(r.t, err)
	_, err = jobs.NewSweeper(r.Store, r.Actions).Sweep(r.t.Context())
	require.NoError(r.t, err)
}

// shellActions are the actions of the shell, without any transport.
type shellActions struct{ *Shell }

func (s shellActions) Claim(ctx context.Context, r jobs.ClaimRequest) ([]jobs.Job, error) {
	return s.Store.Claim(ctx, r)
}

func (s shellActions) Heartbeat(ctx context.Context, beats []jobs.Beat) ([]jobs.BeatResult, error) {
	return s.Store.Heartbeat(ctx, beats)
}

func (s shellActions) Cancel(ctx context.Context, job uuid.UUID) error {
	return s.Do(ctx, jobs.Writes{Cancel: []uuid.UUID{job}})
}

func (s shellActions) Suspend(ctx context.Context, job uuid.UUID) error {
	return s.Do(ctx, jobs.Writes{Hold: []uuid.UUID{job}})
}

func (s shellActions) Resume(ctx context.Context, job uuid.UUID) error {
	return s.Do(ctx, jobs.Writes{Release: []uuid.UUID{job}})
}
