package holds

import (
	"bytes"
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/secret"
	"github.com/millrace/millrace/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Run(m) }

func database(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool, err := postgres.Open(t.Context(), postgres.Config{DSN: secret.New(testenv.Database(t, postgres.MigrateDSN))})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func ada() Target { return Target{Scope: User, Tenant: "acme", User: "ada"} }
func gpu() Target { return Target{Scope: Class, ResourceClass: "gpu"} }

func TestPlaceAndLift(t *testing.T) {
	t.Parallel()
	var woken atomic.Int32
	var log bytes.Buffer
	s := New(database(t), func() { woken.Add(1) }, slog.New(slog.NewTextHandler(&log, nil)))
	found, err := s.List(t.Context())
	require.NoError(t, err)
	require.Empty(t, found)

	for _, target := range []Target{ada(), gpu(), {Scope: All}} {
		h, placed, err := s.Place(t.Context(), target, "ann", "maintenance")
		require.NoError(t, err)
		assert.True(t, placed)
		assert.Equal(t, Hold{Target: target, By: "ann", Reason: "maintenance", Since: h.Since}, h)
		assert.WithinDuration(t, time.Now(), h.Since, time.Minute)
	}
	assert.EqualValues(t, 3, woken.Load())
	assert.Contains(t, log.String(), "by=ann")
	assert.Contains(t, log.String(), "reason=maintenance")

	again, placed, err := s.Place(t.Context(), gpu(), "bob", "me too")
	require.NoError(t, err)
	assert.False(t, placed)
	assert.Equal(t, "ann", again.By, "the first one stays")
	found, err = s.List(t.Context())
	require.NoError(t, err)
	require.Len(t, found, 3)
	assert.Equal(t, []Target{{Scope: All}, gpu(), ada()}, []Target{found[0].Target, found[1].Target, found[2].Target})

	h, lifted, err := s.Lift(t.Context(), gpu(), "bob", "done")
	require.NoError(t, err)
	assert.True(t, lifted)
	assert.Equal(t, again, h)
	_, lifted, err = s.Lift(t.Context(), gpu(), "bob", "done")
	require.NoError(t, err)
	assert.False(t, lifted, "it can be said twice")
	assert.EqualValues(t, 4, woken.Load(), "what changes nothing wakes nobody")
	assert.NotContains(t, log.String(), "me too")
	assert.Contains(t, log.String(), "admission is resumed")
}

func TestTargets(t *testing.T) {
	t.Parallel()
	s := New(nil, nil, nil)
	for _, wrong := range []Target{
		{}, {Scope: "queue"}, {Scope: Class}, {Scope: User}, {Scope: All, ResourceClass: "gpu"}, {Scope: All, User: "ada"},
		{Scope: Class, ResourceClass: "gpu", Tenant: "acme"}, {Scope: User, User: "ada"}, {Scope: User, Tenant: "acme"},
		{Scope: User, Tenant: "acme", User: "ada", ResourceClass: "gpu"},
	} {
		_, _, err := s.Place(t.Context(), wrong, "", "")
		require.ErrorIs(t, err, ErrTarget, "%+v", wrong)
		_, _, err = s.Lift(t.Context(), wrong, "", "")
		require.ErrorIs(t, err, ErrTarget, "%+v", wrong)
	}
	assert.True(t, Target{Scope: All}.Covers("gpu", "acme", "ada"))
	assert.True(t, gpu().Covers("gpu", "acme", "ada"))
	assert.False(t, gpu().Covers("default", "acme", "ada"))
	assert.True(t, ada().Covers("gpu", "acme", "ada"))
	assert.False(t, ada().Covers("gpu", "other", "ada"), "the same name in another tenant is somebody else")
	assert.False(t, ada().Covers("gpu", "acme", "bob"))
}

// A round of admission that has read the holds ends before the hold is placed, so
// whatever it admits comes before the hold.
func TestPlaceWaitsForRoundsThatAreUnderWay(t *testing.T) {
	t.Parallel()
	pool := database(t)
	s := New(pool, func() {}, slog.New(slog.DiscardHandler))
	s.patience = time.Minute
	round, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = round.Rollback(context.Background()) }()
	found, err := Read(t.Context(), round)
	require.NoError(t, err)
	require.Empty(t, found)
	other, err := pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = Read(t.Context(), other)
	require.NoError(t, err, "rounds do not wait for each other")
	require.NoError(t, other.Rollback(t.Context()))

	placed := make(chan error, 1)
	go func() { _, _, err := s.Place(t.Context(), gpu(), "ann", ""); placed <- err }()
	require.Eventually(t, func() bool {
		var waiting bool
		err := pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks
			WHERE relation = 'admission_holds'::regclass AND mode = 'ExclusiveLock' AND NOT granted
			  AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`).Scan(&waiting)
		return err == nil && waiting
	}, 30*time.Second, time.Millisecond)
	select {
	case err := <-placed:
		require.Fail(t, "the hold did not wait", "%v", err)
	default:
	}
	listed, err := s.List(t.Context())
	require.NoError(t, err, "who only looks does not wait")
	require.Empty(t, listed)
	require.NoError(t, round.Commit(t.Context()))
	require.NoError(t, <-placed)

	next, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = next.Rollback(context.Background()) }()
	found, err = Read(t.Context(), next)
	require.NoError(t, err)
	require.Len(t, found, 1)
	assert.Equal(t, gpu(), found[0].Target)
}

func TestARoundThatIsStuckDoesNotKeepPeopleFromHolding(t *testing.T) {
	t.Parallel()
	pool := database(t)
	s := New(pool, func() {}, slog.New(slog.DiscardHandler))
	s.patience = 10 * time.Millisecond
	stuck, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = stuck.Rollback(context.Background()) }()
	_, err = Read(t.Context(), stuck)
	require.NoError(t, err)
	_, placed, err := s.Place(t.Context(), gpu(), "ann", "")
	require.NoError(t, err)
	assert.True(t, placed)
}
