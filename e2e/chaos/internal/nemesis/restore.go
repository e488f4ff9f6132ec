package nemesis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

func restoreCases() []Case {
	dump := Case{ID: "D1", Title: "a dump of the live database is restored to a new server", Lane: Alone, act: restoreDump}
	if _, err := tool("pg_dump"); err != nil {
		dump.Skip = "pg_dump is not installed"
	}
	return []Case{
		dump,
		{ID: "D2", Title: "the database goes back to an earlier point, Kafka is ahead", Lane: Alone, act: restoreSnapshot},
	}
}

// tool finds a program of PostgreSQL, where distributions put it or on the PATH.
func tool(name string) (string, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if len(found) > 0 {
		return slices.Max(found), nil
	}
	return exec.LookPath(name)
}

func (l *lane) runTool(ctx context.Context, name string, args ...string) error {
	path, err := tool(name)
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, path, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}

// swap stops everything, has the database replaced, and starts everything on it.
func (l *lane) swap(ctx context.Context, replace func() error) error {
	resume := l.Pause()
	defer resume()
	l.fault("everything stops, the database is put back")
	if err := l.World.StopAll(ctx); err != nil {
		l.complain("%v", err)
	}
	if err := l.World.Postgres.Stop(ctx); err != nil {
		return err
	}
	l.Rewind()
	if err := replace(); err != nil {
		return err
	}
	l.Phantoms.Store(true)
	l.note("everything starts on the restored database")
	return errors.Join(l.World.StartAll(ctx), l.Restored(ctx))
}

func restoreDump(ctx context.Context, l *lane) error {
	wait(ctx, 10*time.Second)
	ctx, cancel := healing(ctx)
	defer cancel()
	dump := filepath.Join(l.World.Dir, "dump")
	l.fault("dump the live database")
	if err := l.runTool(ctx, "pg_dump", "--format=custom", "--file="+dump, l.World.Postgres.DSN()); err != nil {
		return err
	}
	l.hold(ctx, 3*time.Second, 6*time.Second)
	err := l.swap(ctx, func() error {
		return l.World.Replace(ctx, filepath.Join(l.World.Dir, "postgres", "restored"), func(dsn string) error {
			return l.runTool(ctx, "pg_restore", "--no-owner", "--exit-on-error", "--dbname="+dsn, dump)
		})
	})
	if err == nil {
		wait(ctx, 10*time.Second)
	}
	return err
}

// restoreSnapshot copies the data of a server that was killed, as a snapshot of its
// volume would be, and puts the copy back later.
func restoreSnapshot(ctx context.Context, l *lane) error {
	wait(ctx, 10*time.Second)
	ctx, cancel := healing(ctx)
	defer cancel()
	dir := l.World.Postgres.DataDir()
	copied := dir + "-snapshot"
	l.fault("take a snapshot of the database")
	if err := l.World.Postgres.Kill(); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "cp", "-a", dir, copied).CombinedOutput(); err != nil {
		return fmt.Errorf("copy: %w: %s", err, out)
	}
	if err := l.World.Postgres.Start(ctx); err != nil {
		return err
	}
	l.hold(ctx, 8*time.Second, 12*time.Second)
	err := l.swap(ctx, func() error {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
		if err := os.Rename(copied, dir); err != nil {
			return err
		}
		return l.World.Replace(ctx, dir, nil)
	})
	if err == nil {
		wait(ctx, 10*time.Second)
	}
	return err
}
