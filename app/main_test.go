package app_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/millrace/millrace/app"
	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/internal/executor/process"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/internal/testenv/transcript"
)

func TestMain(m *testing.M) {
	process.MaybeRunShim()
	// The metrics of sarama have one clock for all, which nobody can stop.
	testenv.Run(m, goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
}

// patience is how long a test waits for what must happen.
const patience = time.Minute

// upConfig is the configuration of `millrace up` on a directory and free ports.
func upConfig(t *testing.T, dir string, settings ...string) configs.Config {
	t.Helper()
	sources := configs.Sources{Embedded: true, Overrides: overrides(append([]string{"data_dir", dir}, settings...)...)}
	cfg, err := sources.Load()
	require.NoError(t, err)
	return cfg
}

// sharedConfig is the configuration of a process on servers that the test has.
func sharedConfig(t *testing.T, settings ...string) configs.Config {
	t.Helper()
	dsn := testenv.Database(t, postgres.MigrateDSN)
	brokers := testenv.Broker(t)
	sources := configs.Sources{Overrides: overrides(append([]string{
		"data_dir", testenv.DataDir(t), "kafka.brokers", brokers[0], "postgres.dsn", dsn,
	}, settings...)...)}
	cfg, err := sources.Load()
	require.NoError(t, err)
	return cfg
}

func overrides(settings ...string) []configs.Override {
	list := []configs.Override{
		{Path: "api.listen", Value: "127.0.0.1:0"}, {Path: "admin.listen", Value: "127.0.0.1:0"}, {Path: "grpc.listen", Value: "127.0.0.1:0"},
		{Path: "embedded.broker.listen", Value: "127.0.0.1:0"},
	}
	for i := 0; i < len(settings); i += 2 {
		list = append(list, configs.Override{Path: settings[i], Value: settings[i+1], Origin: "test"})
	}
	return list
}

// program is an app.Run in the background.
type program struct {
	t       *testing.T
	cfg     configs.Config
	running app.Running
	cancel  context.CancelFunc
	ended   chan struct{}
	err     error // once ended is closed
	log     *transcript.Text
}

// launch starts a program and returns at once.
func launch(t *testing.T, cfg configs.Config, opts ...app.Option) (p *program, ready <-chan struct{}) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	p = &program{t: t, cfg: cfg, cancel: cancel, ended: make(chan struct{}), log: &transcript.Text{}}
	isReady := make(chan struct{})
	options := append([]app.Option{
		app.Log(newLog(p.log)), app.Migrate(),
		app.OnReady(func(r app.Running) { p.running = r; close(isReady) }),
	}, opts...)
	go func() {
		defer close(p.ended)
		p.err = app.Run(ctx, cfg, options...)
	}()
	t.Cleanup(func() {
		cancel()
		<-p.ended
		if t.Failed() {
			t.Logf("log of the program:\n%s", p.log)
		}
	})
	return p, isReady
}

// start is launch for a program that must become ready.
func start(t *testing.T, cfg configs.Config, opts ...app.Option) *program {
	t.Helper()
	p, ready := launch(t, cfg, opts...)
	select {
	case <-ready:
	case <-p.ended:
		require.FailNow(t, "the program ended before it was ready", "%v\n%s", p.err, p.log)
	case <-time.After(patience):
		require.FailNow(t, "the program is not ready", "%s", p.log)
	}
	return p
}

// stop ends the program as a signal would and returns its error.
func (p *program) stop() error {
	p.cancel()
	return p.wait()
}

// wait returns the error that the program ends with.
func (p *program) wait() error {
	p.t.Helper()
	select {
	case <-p.ended:
		return p.err
	case <-time.After(patience):
		require.FailNow(p.t, "the program does not end", "%s", p.log)
		return errors.New("not reached")
	}
}

// api returns a client of the program's API.
func (p *program) api() *client.Client {
	p.t.Helper()
	token, err := configs.ReadToken(p.cfg.API.Auth.TokenFile)
	require.NoError(p.t, err)
	api, err := client.New(client.Options{URL: p.running.URL, Token: token})
	require.NoError(p.t, err)
	p.t.Cleanup(api.Close)
	return api
}

// finished waits for the end of an execution.
func finished(t *testing.T, api *client.Client, id string) client.Execution {
	t.Helper()
	var e client.Execution
	require.Eventually(t, func() bool {
		var err error
		e, err = api.Get(t.Context(), id)
		require.NoError(t, err)
		return client.Final(e.State)
	}, patience, 20*time.Millisecond)
	return e
}

func newLog(b *transcript.Text) *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }
