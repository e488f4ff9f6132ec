package postgres

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/testenv"
)

// runSignals runs signals until the test ends, and returns once they listen.
func runSignals(t *testing.T, pool *pgxpool.Pool) *Signals {
	t.Helper()
	s := NewSignals(pool, nil)
	ready, stop := s.Subscribe("ready")
	defer stop()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		assert.NoError(t, s.Run(ctx))
	}()
	t.Cleanup(func() { cancel(); <-done })
	receive(t, ready) // everybody is woken when the connection stands
	return s
}

func receive(t *testing.T, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(20 * time.Second):
		require.Fail(t, "no wake-up came")
	}
}

func empty(c <-chan struct{}) bool {
	select {
	case <-c:
		return false
	default:
		return true
	}
}

func TestSignalsInsideTheProcess(t *testing.T) {
	t.Parallel()
	s := NewSignals(nil, nil)
	a, stopA := s.Subscribe("a")
	a2, stopA2 := s.Subscribe("a")
	b, stopB := s.Subscribe("b")
	defer stopB()
	for range 3 {
		s.Wake("a")
	}
	assert.False(t, empty(a))
	assert.True(t, empty(a), "wake-ups are merged")
	assert.False(t, empty(a2))
	assert.True(t, empty(b))
	stopA()
	stopA()
	s.Wake("a")
	assert.True(t, empty(a))
	assert.False(t, empty(a2))
	stopA2()
	assert.Empty(t, s.due, "nothing piles up while nobody sends")
	assert.Error(t, s.Run(t.Context()))
}

func TestSignalsReachOtherProcesses(t *testing.T) {
	t.Parallel()
	dsn := testenv.Database(t, nil)
	one, two := runSignals(t, openDSN(t, dsn)), runSignals(t, openDSN(t, dsn))
	at1, stop1 := one.Subscribe("outbox")
	defer stop1()
	at2, stop2 := two.Subscribe("outbox")
	defer stop2()
	other, stopOther := two.Subscribe("other")
	defer stopOther()
	for range 3 {
		one.Wake("outbox")
		assert.False(t, empty(at1), "local subscribers are woken before Wake returns")
		receive(t, at2)
		two.Wake("outbox")
		assert.False(t, empty(at2))
		receive(t, at1)
	}
	assert.True(t, empty(other))
}

func TestSignalsAreCoalesced(t *testing.T) {
	t.Parallel()
	pool := openPool(t, nil)
	sender := runSignals(t, pool)
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	_, err = conn.Exec(t.Context(), "LISTEN "+signalChannel)
	require.NoError(t, err)

	const wakes = 20_000
	for range wakes {
		sender.Wake("busy")
	}
	sender.Wake("last")
	received := 0
	// What is due together goes out in any order.
	for last := false; !last || received == 0; {
		n, err := conn.Conn().WaitForNotification(t.Context())
		require.NoError(t, err)
		if n.Payload == "last" {
			last = true
		} else {
			received++
		}
	}
	assert.Less(t, received, wakes/10)
	_, err = conn.Exec(t.Context(), "UNLISTEN *")
	require.NoError(t, err)
}

func TestSignalsWakeEverybodyAfterAReconnect(t *testing.T) {
	t.Parallel()
	dsn := testenv.Database(t, nil)
	pool := openDSN(t, dsn)
	one, two := runSignals(t, pool), runSignals(t, openDSN(t, dsn))
	a, stopA := one.Subscribe("a")
	defer stopA()
	b, stopB := one.Subscribe("b")
	defer stopB()
	tag, err := pool.Exec(t.Context(), `SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
		WHERE datname = current_database() AND query LIKE 'LISTEN %'`)
	require.NoError(t, err)
	require.EqualValues(t, 2, tag.RowsAffected())
	receive(t, a)
	receive(t, b)
	// Both sides send again, once they are back.
	require.Eventually(t, func() bool {
		two.Wake("a")
		return !empty(a)
	}, 20*time.Second, 5*time.Millisecond)
}

func TestSignalsSurviveOddNames(t *testing.T) {
	t.Parallel()
	pool := openPool(t, nil)
	one := runSignals(t, pool)
	two := runSignals(t, pool)
	long := fmt.Sprintf("%09000d", 1)
	at, stop := two.Subscribe("ok'; --")
	defer stop()
	one.Wake("")
	one.Wake(long) // local only
	one.Wake("ok'; --")
	receive(t, at)
}

func TestListenersHearOtherProcesses(t *testing.T) {
	t.Parallel()
	dsn := testenv.Database(t, nil)
	one, two := runSignals(t, openDSN(t, dsn)), runSignals(t, openDSN(t, dsn))
	heard := make(chan string, 16)
	stop := two.Listen("jobs/", func(name string) { heard <- name })
	defer stop()
	two.Wake("jobs/own")
	one.Wake("other")
	one.Wake("jobs/a")
	assert.Equal(t, "jobs/a", <-heard, "what this process wakes itself is not heard, nor other names")
	stop()
	stop()

	// After a connection was lost, some may have been missed.
	stop = two.Listen("jobs/", func(name string) { heard <- name })
	defer stop()
	killer := openDSN(t, dsn)
	_, err := killer.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database()`)
	require.NoError(t, err)
	assert.Equal(t, "jobs/", <-heard)
}
