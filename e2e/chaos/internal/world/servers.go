package world

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"github.com/millrace/millrace/internal/embedded"
)

// Database is the PostgreSQL of a world: a child process on a fixed port, fsync on.
type Database struct {
	mu  sync.Mutex
	cfg embedded.PostgresConfig
	pg  *embedded.Postgres
}

// startDatabase starts a server on a free port over a data directory.
func startDatabase(ctx context.Context, dir string) (*Database, error) {
	address, err := FreeAddress()
	if err != nil {
		return nil, err
	}
	u := url.URL{Host: address}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		return nil, err
	}
	d := &Database{cfg: embedded.PostgresConfig{DataDir: dir, Port: port, Settings: map[string]string{
		"max_connections": "200", "deadlock_timeout": "200ms", "log_lock_waits": "on",
	}}}
	return d, d.Start(ctx)
}

// Start starts the server again after Kill, Quit or Stop.
func (d *Database) Start(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	pg, err := embedded.StartPostgres(ctx, d.cfg)
	if err != nil {
		return err
	}
	d.pg = pg
	return nil
}

// Kill ends the server and all of its backends with SIGKILL.
func (d *Database) Kill() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pg.Kill()
}

// Quit ends the server at once (pg_ctl stop -m immediate): the next start recovers.
func (d *Database) Quit(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := syscall.Kill(d.pg.PID(), syscall.SIGQUIT); err != nil {
		return err
	}
	return d.pg.Stop(ctx)
}

// Stop shuts the server down in order.
func (d *Database) Stop(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pg == nil {
		return nil
	}
	return d.pg.Stop(ctx)
}

// DataDir is where its files are.
func (d *Database) DataDir() string { return d.cfg.DataDir }

// DSN is its address beside the links.
func (d *Database) DSN() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pg.TCPDSN()
}

// address is host and port of the server.
func (d *Database) address() string { return "127.0.0.1:" + strconv.Itoa(d.cfg.Port) }

// through is the DSN over a proxy.
func (d *Database) through(address string) (string, error) {
	u, err := url.Parse(d.DSN())
	if err != nil {
		return "", errors.New("the DSN of the database is no URL")
	}
	u.Host = address
	return u.String(), nil
}

// smallDisk mounts a memory disk of so many MiB, which can be full. It fails where
// that is not allowed.
func smallDisk(dir string, megabytes int) (unmount func() error, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=0755", megabytes)); err != nil {
		return nil, fmt.Errorf("mount a small disk: %w", err)
	}
	return func() error { return syscall.Unmount(dir, 0) }, nil
}

// Fill takes the space that is left on the disk of the directory, but for a rest,
// and returns what gives it back.
func Fill(dir string, rest int64) (free func() error, err error) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "ballast")
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size := int64(fs.Bavail)*fs.Bsize - rest
	if size > 0 {
		if err := syscall.Fallocate(int(f.Fd()), 0, 0, size); err != nil {
			return nil, errors.Join(err, os.Remove(path))
		}
	}
	return func() error { return os.Remove(path) }, nil
}
