package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/executor/spec"
)

// workdirs is one executor's directory below the root:
//
//	<root>/.lock                  held while executors come and while they sweep
//	<root>/worker-<random>/.lock  held for as long as the executor lives
//	<root>/worker-<random>/attempt-<random>
//	<root>/worker-<random>/report-<random>      the pipe for reports of that attempt
//	<root>/worker-<random>/checkpoint-<random>  what the attempt before it has left
//
// A worker directory whose lock can be taken belongs to a process that is gone,
// and is removed by the next executor that is opened.
type workdirs struct {
	dir  string
	lock *os.File
}

func openWorkdirs(root string) (*workdirs, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("find working directories: %w", err)
	}
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, fmt.Errorf("create root of working directories: %w", err)
	}
	if err := checkRoot(root); err != nil {
		return nil, err
	}
	// The lock of the root keeps a new worker directory, which is not locked yet,
	// from being taken for an abandoned one.
	rootLock, err := lockFile(filepath.Join(root, ".lock"), unix.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rootLock.Close() }()
	sweepWorkdirs(root)

	dir, err := os.MkdirTemp(root, "worker-")
	if err != nil {
		return nil, fmt.Errorf("create working directory: %w", err)
	}
	lock, err := lockFile(filepath.Join(dir, ".lock"), unix.LOCK_EX)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &workdirs{dir: dir, lock: lock}, nil
}

// checkRoot refuses a root that another user can write to or has prepared: its
// default lies in a directory that all users share.
func checkRoot(root string) error {
	info, err := os.Lstat(root)
	if err != nil {
		return fmt.Errorf("check root of working directories: %w", err)
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return fmt.Errorf("check root of working directories: %s is not a directory", root)
	case ok && int(owner.Uid) != os.Getuid():
		return fmt.Errorf("check root of working directories: %s belongs to user %d, not to %d", root, owner.Uid, os.Getuid())
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("check root of working directories: others may write to %s (mode %04o)", root, info.Mode().Perm())
	}
	return nil
}

// sweepWorkdirs removes the directories of executors that are gone. What cannot
// be removed is left for the next time; it harms nobody.
func sweepWorkdirs(root string) {
	dirs, _ := filepath.Glob(filepath.Join(root, "worker-*"))
	for _, dir := range dirs {
		lock, err := lockFile(filepath.Join(dir, ".lock"), unix.LOCK_EX|unix.LOCK_NB)
		if err != nil {
			continue
		}
		_ = removeTree(dir)
		_ = lock.Close()
	}
}

func lockFile(path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	for {
		err = unix.Flock(int(f.Fd()), how)
		if err != unix.EINTR { //nolint:errorlint // Flock returns the bare number
			break
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return f, nil
}

// create makes the working directory of one attempt.
func (w *workdirs) create() (string, error) {
	dir, err := os.MkdirTemp(w.dir, attemptPrefix)
	if err != nil {
		return "", fmt.Errorf("create working directory: %w", err)
	}
	return dir, nil
}

// writeCarried puts what the spec carries into the working directory, which nobody but
// the worker has seen yet.
func writeCarried(dir string, s spec.Process) error {
	for name, content := range s.Files {
		if err := writeReadOnly(filepath.Join(dir, name), content); err != nil {
			return err
		}
	}
	if s.Script == "" {
		return nil
	}
	return writeReadOnly(filepath.Join(dir, spec.ScriptName), []byte(s.Script))
}

func writeReadOnly(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("create directory for a file of the spec: %w", err)
	}
	if err := os.WriteFile(path, content, 0o400); err != nil {
		return fmt.Errorf("write file of the spec: %w", err)
	}
	return nil
}

const attemptPrefix = "attempt-"

// reportPath and checkpointPath are what belongs to an attempt beside its working
// directory, which is the program's own.
func reportPath(dir string) string     { return beside(dir, "report-") }
func checkpointPath(dir string) string { return beside(dir, "checkpoint-") }

func beside(dir, prefix string) string {
	parent, name := filepath.Split(dir)
	return parent + prefix + strings.TrimPrefix(name, attemptPrefix)
}

// removeAttempt removes everything of an attempt.
func removeAttempt(dir string) error {
	return errors.Join(removeTree(dir), removeTree(reportPath(dir)), removeTree(checkpointPath(dir)))
}

func (w *workdirs) close() error {
	err := removeTree(w.dir)
	return errors.Join(err, w.lock.Close())
}

// removeTree is os.RemoveAll that also removes directories in which the program
// forbade itself to write.
func removeTree(dir string) error {
	if os.RemoveAll(dir) == nil {
		return nil
	}
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(path, 0o700) //nolint:gosec // a directory that is about to be removed
		}
		return nil
	})
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove working directory: %w", err)
	}
	return nil
}
