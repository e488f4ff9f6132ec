package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/millrace/millrace/app"
	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/executor/function"
)

// functionName is the function that all executions call.
const functionName = "example.work"

// starts notes when the executions of each user started.
type starts struct {
	mu sync.Mutex
	// first is by execution: an attempt that comes again is not counted twice.
	first map[string]start
}

type start struct {
	user string
	at   time.Time
}

// function returns what executions run: it notes that it was called, and takes its
// time.
func (s *starts) function(work time.Duration) function.Func {
	return func(ctx context.Context, call function.Call) (any, error) {
		var user string
		if err := json.Unmarshal(call.Args, &user); err != nil {
			return nil, fmt.Errorf("read args: %w", err)
		}
		s.note(call.ExecutionID, user, time.Now())
		timer := time.NewTimer(work)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (s *starts) note(id, user string, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, again := s.first[id]; !again {
		s.first[id] = start{user: user, at: at}
	}
}

// of returns when an execution started.
func (s *starts) of(id string) (at time.Time, started bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, started := s.first[id]
	return found.at, started
}

// between counts the executions of a user that started after one moment and before
// another.
func (s *starts) between(user string, after, before time.Time) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, started := range s.first {
		if started.user == user && started.at.After(after) && started.at.Before(before) {
			n++
		}
	}
	return n
}

// all returns how many executions of a user have started.
func (s *starts) all(user string) int {
	return s.between(user, time.Time{}, time.Now().Add(time.Hour))
}

// installation is a Millrace with everything in this process.
type installation struct {
	url    string
	dir    string
	cancel context.CancelFunc
	ended  chan error
}

// install starts it in a directory of its own and returns when it is ready.
func install(ctx context.Context, o options, s *starts) (*installation, error) {
	dir, err := os.MkdirTemp("", "noisy-neighbour-")
	if err != nil {
		return nil, err
	}
	// PostgreSQL does not run as root: as root it runs as somebody else, who has to be
	// able to pass through.
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	i := &installation{dir: dir, ended: make(chan error, 1)}
	cfg, err := settings(o, dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	if o.verbose {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	// It is stopped by stop, in order, rather than together with its users.
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	i.cancel = cancel
	ready := make(chan app.Running, 1)
	go func() {
		i.ended <- app.Run(running, cfg, app.Log(log), app.Migrate(),
			app.Function(functionName, s.function(o.work)), app.OnReady(func(r app.Running) { ready <- r }))
	}()
	select {
	case r := <-ready:
		i.url = r.URL
		return i, nil
	case err := <-i.ended:
		cancel()
		return nil, errors.Join(errors.New("it ended before it was ready"), err, os.RemoveAll(dir))
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), i.stop())
	}
}

func settings(o options, dir string) (configs.Config, error) {
	set := func(path, value string) configs.Override {
		return configs.Override{Path: path, Value: value, Origin: "noisy-neighbour"}
	}
	sources := configs.Sources{Embedded: true, Overrides: []configs.Override{
		set("data_dir", dir), set("api.listen", "127.0.0.1:0"), set("admin.listen", "127.0.0.1:0"), set("grpc.listen", "127.0.0.1:0"),
		set("embedded.broker.listen", "127.0.0.1:0"), set("api.auth.mode", configs.AuthOff),
		set("worker.executors", "function"), set("worker.slots", strconv.Itoa(o.slots)),
		set("coordinator.ageing_step", o.ageing.String()),
	}}
	if o.dsn != "" {
		sources.Overrides = append(sources.Overrides, set("postgres.dsn", o.dsn))
	}
	return sources.Load()
}

// stop ends it and removes what it kept.
func (i *installation) stop() error {
	i.cancel()
	return errors.Join(<-i.ended, os.RemoveAll(i.dir))
}
