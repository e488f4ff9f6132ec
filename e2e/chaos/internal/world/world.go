package world

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/internal/testenv/program"
	"github.com/millrace/millrace/internal/testenv/realkafka"
)

// Options say what world to make.
type Options struct {
	// Dir holds everything: data, logs, dumps. It must exist and let others pass.
	Dir string
	// Millrace and Chaos are the programs.
	Millrace, Chaos string
	// Brokers is 1 or 3.
	Brokers int
	// SmallDisk puts the database on a memory disk of so many MiB. 0: on the disk of
	// Dir, with fsync.
	SmallDisk int
	// Consumers is how many consumer processes run from the start; as many again can
	// join.
	Consumers int
	// WrongClock is a program whose clock can be wrong (package clock): the first
	// process of every part then is five minutes ahead, the clock of the second one is
	// set back by five minutes soon after its start. Empty: all clocks are right.
	WrongClock string
	// Environ is added to the environment of consumers.
	Environ []string
	// Log gets a line per thing that happens.
	Log io.Writer
	// Ended is told when a process ended by itself after it had become ready.
	Ended func(member, log string)
}

// World is a running installation.
type World struct {
	Options
	Kafka    *realkafka.Cluster
	Postgres *Database
	Links    *Links
	// DB and Admin go beside the links.
	DB    *pgxpool.Pool
	Admin *kafka.Admin
	// Token is what the API asks for.
	Token   string
	Members []*Member
	// Kills counts processes that were killed, servers among them.
	Kills atomic.Int64

	began      time.Time
	logMu      sync.Mutex
	background sync.WaitGroup
	closing    chan struct{}
	closes     []func() error
}

// New starts the servers and migrates the database; members are prepared and not
// started. When it fails, nothing is left but the directory.
func New(ctx context.Context, o Options) (*World, error) {
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails
	w := &World{Options: o, Links: newLinks(), Token: hex.EncodeToString(random[:]), began: time.Now(), closing: make(chan struct{})}
	w.onClose(func() error { w.Links.close(); return nil })
	if err := w.start(ctx); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

func (w *World) onClose(fn func() error) { w.closes = append(w.closes, fn) }

func (w *World) start(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Join(w.Dir, "logs"), 0o755); err != nil {
		return err
	}
	cluster, err := realkafka.Start(ctx, realkafka.Config{
		Brokers: w.Brokers, DataDir: filepath.Join(w.Dir, "kafka"), Progress: w.Log,
		Links: []string{LinkA, LinkB},
		Advertise: func(link string, broker int, addr string) (string, error) {
			return w.Links.connect(end{link, Kafka, broker}, addr)
		},
		Settings: map[string]string{
			"group.min.session.timeout.ms": "3000", "offsets.retention.check.interval.ms": "2000",
			"log.retention.check.interval.ms": "1000",
		},
	})
	if err != nil {
		return err
	}
	w.Kafka = cluster
	w.onClose(cluster.Close)
	if err := w.startPostgres(ctx); err != nil {
		return err
	}
	if w.Admin, err = kafka.NewAdmin(kafka.Config{Brokers: cluster.Addrs()}); err != nil {
		return err
	}
	w.onClose(func() error { w.Admin.Close(); return nil })
	return w.recruit()
}

func (w *World) startPostgres(ctx context.Context) error {
	dir := filepath.Join(w.Dir, "postgres")
	if w.SmallDisk > 0 {
		unmount, err := smallDisk(dir, w.SmallDisk)
		if err != nil {
			return err
		}
		w.onClose(unmount)
	}
	pg, err := startDatabase(ctx, filepath.Join(dir, "data"))
	if err != nil {
		return err
	}
	w.Postgres = pg
	w.onClose(func() error { return w.Postgres.Stop(context.Background()) })
	for _, link := range []string{LinkA, LinkB} {
		if _, err := w.Links.connect(end{link, Postgres, 0}, pg.address()); err != nil {
			return err
		}
	}
	if err := w.connect(ctx); err != nil {
		return err
	}
	w.onClose(func() error { w.DB.Close(); return nil })
	return w.migrate(ctx)
}

// connect opens the harness's own pool.
func (w *World) connect(ctx context.Context) error {
	config, err := pgxpool.ParseConfig(w.Postgres.DSN())
	if err != nil {
		return err
	}
	config.MaxConns = 12
	config.ConnConfig.RuntimeParams["application_name"] = "chaos"
	// What a case sets for the database is not for the harness.
	for _, timeout := range []string{"statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"} {
		config.ConnConfig.RuntimeParams[timeout] = "0"
	}
	config.ConnConfig.ConnectTimeout = 5 * time.Second
	w.DB, err = pgxpool.NewWithConfig(ctx, config)
	return err
}

// Replace puts another database, over the data directory, in the place of the one
// that was, which has been stopped. fill, which may be nil, is called with its DSN
// first. The members must not run; they are new ones afterwards.
func (w *World) Replace(ctx context.Context, dir string, fill func(dsn string) error) error {
	pg, err := startDatabase(ctx, dir)
	if err != nil {
		return err
	}
	if fill != nil {
		if err := fill(pg.DSN()); err != nil {
			return errors.Join(err, pg.Stop(ctx))
		}
	}
	w.DB.Close()
	w.Postgres = pg
	for _, link := range []string{LinkA, LinkB} {
		w.Links.repoint(end{link, Postgres, 0}, pg.address())
	}
	if err := w.connect(ctx); err != nil {
		return err
	}
	return w.recruit()
}

// Environ is what a process on a link needs to find the servers.
func (w *World) environ(link string) ([]string, error) {
	var brokers []string
	for i := range w.Brokers {
		brokers = append(brokers, w.Links.address(end{link, Kafka, i}))
	}
	dsn, err := w.DSN(link)
	return []string{
		"MILLRACE_KAFKA_BROKERS=" + strings.Join(brokers, ","), "MILLRACE_POSTGRES_DSN=" + dsn,
		"MILLRACE_API_AUTH_TOKEN=" + w.Token,
	}, err
}

// DSN is the database as it is reached over a link.
func (w *World) DSN(link string) (string, error) {
	return w.Postgres.through(w.Links.address(end{link, Postgres, 0}))
}

func (w *World) migrate(ctx context.Context) error {
	env, err := w.environ(LinkA)
	if err != nil {
		return err
	}
	output := filepath.Join(w.Dir, "logs", "migrate")
	p, err := program.Start(program.Launch{Binary: w.Millrace, Args: []string{"migrate", "up"}, Env: env, Home: w.Dir, Output: output})
	if err != nil {
		return err
	}
	code, err := p.Wait(ctx)
	if err != nil {
		return errors.Join(err, p.Kill())
	}
	if code != 0 {
		log, _ := p.Log()
		return fmt.Errorf("migrate up: exit code %d: %s", code, log)
	}
	return nil
}

// Part returns the members that play a part; all of them for "".
func (w *World) Part(part string) []*Member {
	var found []*Member
	for _, m := range w.Members {
		if part == "" || m.Part == part {
			found = append(found, m)
		}
	}
	return found
}

// StartAll starts the fixed members and waits until they are ready.
func (w *World) StartAll(ctx context.Context) error {
	for _, m := range w.Members {
		if m.Fixed {
			if err := m.Start(); err != nil {
				return err
			}
		}
	}
	for _, m := range w.Members {
		if m.Fixed {
			if err := m.AwaitReady(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// StopAll stops all members in order, at once.
func (w *World) StopAll(ctx context.Context) error {
	errs := make([]error, len(w.Members))
	var all sync.WaitGroup
	for i, m := range w.Members {
		all.Go(func() { errs[i] = m.Stop(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// ended is called when a process ended although it was wanted.
func (w *World) ended(m *Member, p *program.Process) {
	log, _ := p.Log()
	if p.Address("admin") == "" {
		w.note("%s ended at its start, it is started again: %s", m.Name, program.Tail(log, 1))
		return
	}
	w.note("%s ended by itself: %s", m.Name, program.Tail(log, 3))
	if w.Ended != nil {
		w.Ended(m.Name, p.LogFile())
	}
}

// Note writes a line about the run.
func (w *World) Note(format string, args ...any) { w.note(format, args...) }

func (w *World) note(format string, args ...any) {
	w.logMu.Lock()
	defer w.logMu.Unlock()
	fmt.Fprintf(w.Log, "%7.1fs  %s\n", time.Since(w.began).Seconds(), fmt.Sprintf(format, args...))
}

// Close ends everything, the last first. Members are killed.
func (w *World) Close() error {
	close(w.closing)
	var errs []error
	for _, m := range w.Members {
		if p := m.give(); p != nil {
			errs = append(errs, p.Kill())
		}
	}
	w.background.Wait()
	for i := len(w.closes) - 1; i >= 0; i-- {
		errs = append(errs, w.closes[i]())
	}
	return errors.Join(errs...)
}
