package embedded

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrInUse is wrapped by the errors of StartBroker and StartPostgres when
// another process holds the data directory.
var ErrInUse = errors.New("data directory is in use")

// dirLock is an exclusive lock on a directory. The kernel releases it when the
// process ends, however it ends, so it never has to be cleaned up.
type dirLock struct{ file *os.File }

// lockDir takes the lock on dir, which must exist, and notes the id of this
// process in it for whoever comes second.
func lockDir(dir string) (*dirLock, error) {
	// The file stays when the lock is released: removing it would let two
	// processes hold locks on two files of the same name.
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	if err := flock(file); err != nil {
		defer file.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: %s is held by %s: stop it, or choose another directory",
				ErrInUse, dir, lockHolder(file))
		}
		return nil, fmt.Errorf("lock data directory %s: %w", dir, err)
	}
	if err := writeHolder(file); err != nil {
		file.Close()
		return nil, fmt.Errorf("lock data directory %s: %w", dir, err)
	}
	return &dirLock{file: file}, nil
}

// CheckFree returns an error that wraps ErrInUse while a process holds the data
// directory of a server, or a server that outlived its process works on it, and
// nil for a directory that does not exist.
func CheckFree(dir string) error {
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("check data directory: %w", err)
	}
	defer file.Close()
	switch err := flock(file); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return fmt.Errorf("%w: %s is held by %s", ErrInUse, dir, lockHolder(file))
	case err != nil:
		return fmt.Errorf("check data directory %s: %w", dir, err)
	}
	defer func() { _ = unlock(file) }() // see release
	if pids := workersOf(layout(dir)); len(pids) > 0 {
		return fmt.Errorf("%w: the PostgreSQL of an earlier run, process %d, still works on %s", ErrInUse, pids[0], dir)
	}
	return nil
}

func flock(file *os.File) error {
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func writeHolder(file *os.File) error {
	if err := file.Truncate(0); err != nil {
		return err
	}
	_, err := file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// lockHolder describes the holder for people. The note may be missing for the
// moment between taking the lock and writing it.
func lockHolder(file *os.File) string {
	note, err := io.ReadAll(io.NewSectionReader(file, 0, 32))
	pid, convErr := strconv.Atoi(strings.TrimSpace(string(note)))
	switch {
	case err != nil || convErr != nil:
		return "another process"
	case pid == os.Getpid():
		return fmt.Sprintf("this process (pid %d)", pid)
	}
	return fmt.Sprintf("process %d", pid)
}

// release gives the lock back. Closing the file would do that too, but for a
// moment later when another goroutine is starting a program: between fork and exec
// the child has a handle of its own on the lock.
func (l *dirLock) release() error {
	return errors.Join(unlock(l.file), l.file.Close())
}

func unlock(file *os.File) error { return unix.Flock(int(file.Fd()), unix.LOCK_UN) }
