package app_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/app"
	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/internal/embedded"
	"github.com/millrace/millrace/internal/executor/function"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/internal/testenv/transcript"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/topics"
)

// What one command starts does the whole work, with what a user has added, and
// keeps it.
func TestUp(t *testing.T) {
	t.Parallel()
	dir := testenv.DataDir(t)
	seen := make(chan string, 100)
	extras := []app.Option{
		app.Function("double", func(_ context.Context, call function.Call) (any, error) {
			var n int
			err := json.Unmarshal(call.Args, &n)
			return 2 * n, err
		}),
		app.Consumer(func() pipeline.Consumer { return watcher("watcher", seen) }),
	}
	p := start(t, upConfig(t, dir), extras...)
	assert.Equal(t, dir, p.running.DataDir)
	api := p.api()

	program, err := api.Submit(t.Context(), client.Request{Executor: "process", Spec: json.RawMessage(`{"command":["sh","-c","echo done; exit 3"]}`)})
	require.NoError(t, err)
	doubled, err := api.Submit(t.Context(), client.Request{Executor: "function", Spec: json.RawMessage(`{"name":"double","args":21}`)})
	require.NoError(t, err)

	e := finished(t, api, program.ID)
	assert.Equal(t, client.Failed, e.State)
	assert.Equal(t, 3, *e.Result.ExitCode)
	e = finished(t, api, doubled.ID)
	assert.Equal(t, client.Completed, e.State)
	assert.JSONEq(t, "42", string(e.Result.Value))
	assert.Equal(t, doubled.ID, receive(t, seen), "the user's consumer sees what completed, and only that")
	require.NoError(t, p.stop())

	again := start(t, upConfig(t, dir), extras...)
	e, err = again.api().Get(t.Context(), program.ID)
	require.NoError(t, err)
	assert.Equal(t, client.Failed, e.State)
	require.NoError(t, again.stop())
	assert.Empty(t, seen, "what was seen is not seen again")
}

// watcher tells of executions that completed.
func watcher(name string, seen chan<- string) pipeline.Consumer {
	return pipeline.Consumer{
		Name: name, Topic: topics.ExecutionEvents,
		Handle: pipeline.On(func(_ context.Context, e topics.ExecutionCompleted) error {
			seen <- e.ExecutionID
			return nil
		}),
	}
}

func receive(t *testing.T, from <-chan string) string {
	t.Helper()
	select {
	case got := <-from:
		return got
	case <-time.After(patience):
		require.FailNow(t, "nothing came")
		return ""
	}
}

// Work in flight at the stop is handed back, and finished after the next start.
func TestAStopLosesNothing(t *testing.T) {
	t.Parallel()
	dir := testenv.DataDir(t)
	p := start(t, upConfig(t, dir, "worker.shutdown_grace", "1ms"))
	api := p.api()
	// Runs for ever at the first attempt, and is done at once at the second.
	program := json.RawMessage(`{"command":["sh","-c","[ $MILLRACE_ATTEMPT -gt 1 ] || exec sleep 600; echo attempt $MILLRACE_ATTEMPT"]}`)
	var ids []string
	for range 20 {
		e, err := api.Submit(t.Context(), client.Request{Executor: "process", Spec: program})
		require.NoError(t, err)
		ids = append(ids, e.ID)
	}
	slots := upConfig(t, dir).Worker.Slots
	require.Less(t, slots, len(ids), "some run, some wait")
	require.Eventually(t, func() bool {
		running := 0
		for _, id := range ids {
			e, err := api.Get(t.Context(), id)
			require.NoError(t, err)
			if e.State == client.Running {
				running++
			}
		}
		return running == slots
	}, patience, 20*time.Millisecond)
	require.NoError(t, p.stop())

	again := start(t, upConfig(t, dir, "worker.shutdown_grace", "1ms"))
	api = again.api()
	// Those that had only waited run for ever now: they are stopped once more.
	var waiting []string
	require.Eventually(t, func() bool {
		completed, running := 0, 0
		waiting = waiting[:0]
		for _, id := range ids {
			e, err := api.Get(t.Context(), id)
			require.NoError(t, err)
			switch {
			case e.State == client.Completed:
				assert.GreaterOrEqual(t, e.Attempt, 2)
				completed++
			case e.State == client.Running && e.Attempt == 1:
				running++
				waiting = append(waiting, id)
			}
		}
		return completed > 0 && completed+running == len(ids)
	}, patience, 20*time.Millisecond)
	require.NoError(t, again.stop())

	last := start(t, upConfig(t, dir))
	api = last.api()
	for _, id := range waiting {
		e := finished(t, api, id)
		assert.Equal(t, client.Completed, e.State)
		assert.Equal(t, 2, e.Attempt)
	}
	require.NoError(t, last.stop())
}

func TestASecondInstanceIsRefused(t *testing.T) {
	t.Parallel()
	dir := testenv.DataDir(t)
	p := start(t, upConfig(t, dir))
	second, _ := launch(t, upConfig(t, dir))
	err := second.wait()
	require.ErrorIs(t, err, embedded.ErrInUse)
	assert.ErrorContains(t, err, "pid "+strconv.Itoa(os.Getpid()))
	assert.ErrorContains(t, err, dir)
	require.NoError(t, p.stop())
}

func TestThePostgresIsKilled(t *testing.T) {
	t.Parallel()
	dir := testenv.DataDir(t)
	p := start(t, upConfig(t, dir))
	text, err := os.ReadFile(dir + "/postgres/cluster/postmaster.pid")
	require.NoError(t, err)
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(first)
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	err = p.wait()
	assert.ErrorContains(t, err, "postgres ended by itself")
	assert.ErrorContains(t, err, "killed")
	assert.ErrorContains(t, err, "postgres.log")

	again := start(t, upConfig(t, dir))
	require.NoError(t, again.stop(), "the next start recovers")
}

// A stop that is asked for during the start is obeyed at every step of it, and
// leaves nothing behind: the last start works.
func TestAStopDuringTheStart(t *testing.T) {
	t.Parallel()
	dir := testenv.DataDir(t)
	for _, moment := range []string{"embedded broker started", "embedded postgres started", "schema migrated", "worker started"} {
		cfg := upConfig(t, dir)
		ctx, cancel := context.WithCancel(t.Context())
		log := &transcript.Text{OnWrite: func(line string) {
			if strings.Contains(line, moment) {
				cancel()
			}
		}}
		err := app.Run(ctx, cfg, app.Log(newLog(log)), app.Migrate())
		if err != nil {
			assert.ErrorIs(t, err, context.Canceled, moment)
		}
		assert.Error(t, ctx.Err(), "%s was never logged:\n%s", moment, log)
		cancel()
	}
	require.NoError(t, start(t, upConfig(t, dir)).stop())
}

func TestAPortThatIsTaken(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = taken.Close() })
	for _, setting := range []string{"api.listen", "admin.listen", "grpc.listen"} {
		p, _ := launch(t, sharedConfig(t, setting, taken.Addr().String()))
		err := p.wait()
		require.Error(t, err, setting)
		assert.ErrorContains(t, err, taken.Addr().String())
		assert.ErrorContains(t, err, setting)
	}
	p, _ := launch(t, upConfig(t, testenv.DataDir(t), "embedded.broker.listen", taken.Addr().String()))
	err = p.wait()
	require.Error(t, err)
	assert.ErrorContains(t, err, taken.Addr().String())
	assert.ErrorContains(t, err, "embedded.broker.listen (--kafka-listen)")
}

func TestWhatAConstructorSaysIsReportedPlainly(t *testing.T) {
	t.Parallel()
	broken := func() (pipeline.Consumer, error) {
		return pipeline.Consumer{}, errors.New("no mail server is configured")
	}
	p, _ := launch(t, sharedConfig(t), app.Consumer(broken))
	assert.EqualError(t, p.wait(), "assemble: no mail server is configured")

	seen := make(chan string)
	same := func() pipeline.Consumer { return watcher("twice", seen) }
	p, _ = launch(t, sharedConfig(t), app.Consumer(same), app.Consumer(same))
	assert.ErrorContains(t, p.wait(), "twice")
}

// The order in which consumers are given, which is random, does not matter.
func TestConsumersInAnyOrder(t *testing.T) {
	t.Parallel()
	cfg := sharedConfig(t)
	names := []string{"a", "b", "c"}
	for round := range len(names) {
		seen := make(map[string]chan string)
		var extras []app.Option
		for i := range names {
			name := names[(i+round)%len(names)] + strconv.Itoa(round)
			seen[name] = make(chan string, 100)
			extras = append(extras, app.Consumer(func() pipeline.Consumer { return watcher(name, seen[name]) }))
		}
		p := start(t, cfg, extras...)
		e, err := p.api().Submit(t.Context(), client.Request{Executor: "function", Spec: json.RawMessage(`{"name":"noop"}`)})
		require.NoError(t, err)
		for name, events := range seen {
			for receive(t, events) != e.ID { // those of earlier rounds come first
				continue
			}
			assert.NotEmpty(t, name)
		}
		require.NoError(t, p.stop())
	}
}

func TestNoServerAnswers(t *testing.T) {
	t.Parallel()
	for setting, value := range map[string]string{
		"kafka.brokers": "127.0.0.1:1", "postgres.dsn": "postgres://somebody:canary@127.0.0.1:1/nothing",
	} {
		p, _ := launch(t, sharedConfig(t, setting, value, "start_deadline", "1s"))
		err := p.wait()
		require.Error(t, err, setting)
		assert.ErrorContains(t, err, "127.0.0.1:1", setting)
		assert.ErrorContains(t, err, "connection refused", setting)
		assert.NotContains(t, err.Error()+p.log.String(), "canary")
	}
}

func TestASchemaThatIsNotCurrent(t *testing.T) {
	t.Parallel()
	cfg := sharedConfig(t)
	conn, err := pgx.Connect(t.Context(), cfg.Postgres.DSN.Reveal())
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "DROP SCHEMA public CASCADE; CREATE SCHEMA public")
	require.NoError(t, errors.Join(err, conn.Close(t.Context())))
	log := &transcript.Text{}
	err = app.Run(t.Context(), cfg, app.Log(newLog(log)))
	assert.ErrorContains(t, err, "millrace migrate up")
}
