package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/app"
	"github.com/millrace/millrace/sagas"
)

// sagaProgram in the environment has the test binary be a program of a user's, with sagas
// of its own that it adds to the pipeline of MILLRACE_KAFKA_BROKERS and
// MILLRACE_POSTGRES_DSN, instead of running tests. Its value is the directory of a yard.
const sagaProgram = "E2E_SAGA_PROGRAM"

// sagasOfTheProgram are all that it defines.
func sagasOfTheProgram() []app.Option {
	return []app.Option{app.Saga(newTrip), app.Saga(newHurriedTrip), app.Saga(newWorkloads), app.Saga(newBriefWorkloads)}
}

func runSagaProgram() {
	app.Main(sagasOfTheProgram()...)
}

// Trip is the state of a saga of three steps, each of which leaves a row in trip_effects;
// so does what undoes it.
type Trip struct {
	// FailAt is the step that cannot be taken.
	FailAt string `json:"fail_at,omitempty"`
	// SlowAt is the step that takes its effect when the saga has given it up.
	SlowAt string   `json:"slow_at,omitempty"`
	Booked []string `json:"booked,omitempty"`
}

const (
	tripName    = "trip"
	hurriedName = "hurried-trip"
	// hurry is how long the hotel of a hurried trip may take.
	hurry = 1500 * time.Millisecond
)

func newTrip(pool *pgxpool.Pool) (sagas.Saga, error) { return tripOf(pool, tripName) }

func newHurriedTrip(pool *pgxpool.Pool) (sagas.Saga, error) {
	return tripOf(pool, hurriedName, sagas.Timeout(hurry))
}

func tripOf(pool *pgxpool.Pool, name string, hotel ...sagas.StepOption) (sagas.Saga, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startWithin)
	defer cancel()
	if _, err := pool.Exec(ctx, `CREATE TABLE IF NOT EXISTS trip_effects (n bigserial PRIMARY KEY, saga text NOT NULL, what text NOT NULL)`); err != nil {
		return sagas.Saga{}, fmt.Errorf("make the table of effects: %w", err)
	}
	a := agency{pool}
	step := func(step string, options ...sagas.StepOption) sagas.StepSpec {
		return sagas.Step(step, a.book(step), append(options, sagas.Compensate(a.cancel(step)))...)
	}
	return sagas.New[Trip](name, step("flight"), step("hotel", hotel...), step("car")), nil
}

// agency is what books.
type agency struct{ pool *pgxpool.Pool }

func (a agency) book(step string) func(context.Context, sagas.Tx, *Trip) error {
	return func(ctx context.Context, tx sagas.Tx, t *Trip) error {
		if t.SlowAt == step {
			// The saga's time is over, and so is that of ctx.
			ctx = context.WithoutCancel(ctx)
			if err := a.givenUp(ctx, tx.Command().SagaID); err != nil {
				return err
			}
		}
		if err := effect(ctx, tx, step); err != nil {
			return err
		}
		if t.FailAt == step {
			return sagas.Fail("no_room", "no room at %s", step)
		}
		t.Booked = append(t.Booked, step)
		return nil
	}
}

func (a agency) cancel(step string) func(context.Context, sagas.Tx, *Trip) error {
	return func(ctx context.Context, tx sagas.Tx, _ *Trip) error { return effect(ctx, tx, "undo "+step) }
}

func effect(ctx context.Context, tx sagas.Tx, what string) error {
	_, err := tx.Exec(ctx, `INSERT INTO trip_effects (saga, what) VALUES ($1, $2)`, tx.Command().SagaID, what)
	return err
}

// givenUp waits until the saga does not wait any more.
func (a agency) givenUp(ctx context.Context, saga string) error {
	ctx, cancel := context.WithTimeout(ctx, stuckAfter)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var waits bool
		if err := a.pool.QueryRow(ctx, `SELECT status = 'ACTIVE' FROM wf_instances WHERE id = $1::uuid`, saga).Scan(&waits); err != nil || !waits {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// sagas starts the test binary as the program with sagas, and waits until its definitions
// are stored.
func (in *installation) sagas(name string, env ...string) *process {
	t := in.t
	t.Helper()
	p := start(t, launch{
		name: name, home: in.dir, binary: self(t),
		env: append(in.launch(name).env, append(env, sagaProgram+"="+filepath.Join(in.dir, "yard"))...),
	})
	in.mu.Lock()
	in.processes = append(in.processes, p)
	in.mu.Unlock()
	await(t, startWithin, "the sagas are defined", func() bool {
		if !p.running() {
			require.Fail(t, p.name+" ended at the start", tail(p.log(), 40))
		}
		return in.count(`SELECT count(*) FROM wf_definitions WHERE kind = 'saga'`) >= len(sagasOfTheProgram())
	})
	return p
}

// sagaRests waits until a saga has ended, or needs a person, and returns its status.
func (in *installation) sagaRests(id string) (status string) {
	t := in.t
	t.Helper()
	await(t, stuckAfter, "saga "+id+" has ended", func() bool {
		err := in.db.QueryRow(t.Context(), `SELECT status FROM wf_instances WHERE id = $1::uuid`, id).Scan(&status)
		return err == nil && (status == "COMPLETED" || status == "FAILED" || status == "COMPENSATED" || status == "NEEDS_ATTENTION")
	})
	return status
}

func (in *installation) tripEffects(id string) (list []string) {
	in.t.Helper()
	require.NoError(in.t, in.db.QueryRow(in.t.Context(),
		`SELECT coalesce(array_agg(what ORDER BY n), '{}') FROM trip_effects WHERE saga = $1`, id).Scan(&list))
	return list
}
