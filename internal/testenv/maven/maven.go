// Package maven has Maven bring program archives of Java for tests and measurements,
// once per user: afterwards neither Maven nor the network is needed.
package maven

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/embedded/child"
)

// Set is a set of archives: what a project needs to run.
type Set struct {
	// Name is the folder of the set below the user's cache. Two sets that differ have
	// different names: a folder that is complete is never looked at again. Required.
	Name string
	// What is fetched, for the line of progress, such as "Apache Kafka 4.2.0 (40 MB)".
	What string
	// POM is the project whose runtime dependencies are the set.
	POM []byte
}

// Ensure returns the directory of the archives, which it has Maven copy there unless
// somebody has before. Progress, which may be nil, gets a line when something is
// fetched.
//
// Several processes may call it at once: one fetches, the others wait.
func (s Set) Ensure(ctx context.Context, progress io.Writer) (dir string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	home := filepath.Join(cache, "millrace", s.Name)
	libs := filepath.Join(home, "libs")
	// The archives appear under this name by a rename when they are complete.
	if _, err := os.Stat(libs); err == nil {
		return libs, nil
	}
	if err := os.MkdirAll(home, 0o755); err != nil {
		return "", err
	}
	unlock, err := lockFile(ctx, filepath.Join(home, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(libs); err == nil {
		return libs, nil // fetched by another process while we waited
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if progress != nil {
		fmt.Fprintf(progress, "fetching %s with Maven, once\n", s.What)
	}
	return libs, s.fetch(ctx, home, libs)
}

// fetch has Maven copy the archives. Only a failure shows its output.
func (s Set) fetch(ctx context.Context, home, libs string) error {
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		return fmt.Errorf("find Maven, which is needed (Debian: apt-get install maven): %w", err)
	}
	part := libs + ".part"
	if err := os.RemoveAll(part); err != nil {
		return err
	}
	pom := filepath.Join(home, "pom.xml")
	if err := os.WriteFile(pom, s.POM, 0o600); err != nil {
		return err
	}
	cmd := exec.Command(mvn, "--batch-mode", "--quiet", "--strict-checksums", "--file", pom,
		"dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory="+part)
	if out, err := Run(ctx, cmd); err != nil {
		return fmt.Errorf("mvn: %w\n%s", err, bytes.TrimSpace(out))
	}
	return os.Rename(part, libs)
}

// Run runs a program to its end and returns what it printed on both outputs. It is
// killed when the context ends or this process does.
func Run(ctx context.Context, cmd *exec.Cmd) (output []byte, err error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	p, err := child.Start(cmd, syscall.SIGKILL)
	if err != nil {
		return nil, err
	}
	select {
	case <-p.Done():
		return out.Bytes(), p.Err()
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), p.Kill())
	}
}

// lockFile waits for an exclusive lock, which the kernel releases when the
// process ends.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	locked := make(chan error, 1)
	go func() {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX)
		for errors.Is(err, unix.EINTR) {
			err = unix.Flock(int(file.Fd()), unix.LOCK_EX)
		}
		locked <- err
	}()
	select {
	case err = <-locked:
	case <-ctx.Done():
		go func() { // the lock is given back when it comes at last
			err := <-locked
			_ = errors.Join(err, file.Close())
		}()
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() { file.Close() }, nil
}
