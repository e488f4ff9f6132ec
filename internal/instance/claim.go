package instance

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// pidFile is the file of the claim: the process id, the time of the claim (RFC
// 3339) and the start time of the process as /proc has it, a line each.
const pidFile = "millrace.pid"

// patience is how long a note that does not fit its holder may take to become
// right: between taking the lock and writing the note lies a moment.
const patience = time.Second

// Holder is the process that has claimed a data directory.
type Holder struct {
	PID int
	// Since is when it claimed the directory.
	Since time.Time
	// ticks is the start time of the process in clock ticks since the boot; 0
	// where the kernel does not say.
	ticks uint64
}

// InUseError says that another process has claimed the data directory.
type InUseError struct {
	Dir string
	Holder
}

// Error implements error.
func (e *InUseError) Error() string {
	who := "another process"
	if e.PID != 0 {
		who = fmt.Sprintf("process %d, since %s", e.PID, e.Since.Local().Format("2006-01-02 15:04:05"))
	}
	return fmt.Sprintf("data directory %s is in use by %s", e.Dir, who)
}

// Claim is this process's claim on a data directory.
type Claim struct {
	file *os.File
	path string
}

// Take claims the directory, and makes it where it does not exist. The error is
// an *InUseError when another process, or this one, has claimed it already.
func Take(dir string) (*Claim, error) {
	if err := MakeDir(dir); err != nil {
		return nil, err
	}
	c, err := take(dir)
	var used *InUseError
	if err != nil && !errors.As(err, &used) {
		return nil, fmt.Errorf("claim data directory %s: %w", dir, err)
	}
	return c, err
}

// MakeDir makes the data directory, for its owner only. When root runs us,
// PostgreSQL runs as somebody else, who must be able to pass through to the
// cluster, though not to list what lies beside it.
func MakeDir(dir string) error {
	mode := os.FileMode(0o700)
	if os.Geteuid() == 0 {
		mode = 0o711
	}
	if err := os.MkdirAll(dir, mode); err != nil {
		return fmt.Errorf("make the data directory (setting data_dir, --data-dir): %w", err)
	}
	return nil
}

func take(dir string) (*Claim, error) {
	path := filepath.Join(dir, pidFile)
	for deadline := time.Now().Add(patience); ; pause() {
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		switch err := flock(file, unix.LOCK_EX); {
		case errors.Is(err, unix.EWOULDBLOCK):
			holder, known := read(file)
			_ = file.Close()
			// Find holds the lock for a moment, too.
			if !known && time.Now().Before(deadline) {
				continue
			}
			return nil, &InUseError{Dir: dir, Holder: holder}
		case err != nil:
			return nil, errors.Join(err, file.Close())
		case !isAt(file, path): // its last holder removed it
			_ = file.Close()
			continue
		}
		c := &Claim{file: file, path: path}
		if err := c.write(); err != nil {
			return nil, errors.Join(err, c.Release())
		}
		return c, nil
	}
}

func (c *Claim) write() error {
	ticks, _ := startTicks(os.Getpid())
	note := fmt.Sprintf("%d\n%s\n%d\n", os.Getpid(), time.Now().UTC().Format(time.RFC3339), ticks)
	if err := c.file.Truncate(0); err != nil {
		return err
	}
	_, err := c.file.WriteAt([]byte(note), 0)
	return err
}

// Release gives the directory back.
func (c *Claim) Release() error {
	// Removed while it is locked: whoever opened it meanwhile sees by isAt that the
	// file is no longer the one.
	err := os.Remove(c.path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, unlock(c.file), c.file.Close())
}

// Find returns the process that has claimed dir, and whether there is one. The
// error says that there may be one which cannot be seen from here: it belongs to
// another user, or lives in another container.
func Find(dir string) (Holder, bool, error) {
	for deadline := time.Now().Add(patience); ; pause() {
		holder, known, held, err := look(filepath.Join(dir, pidFile))
		switch {
		case err != nil:
			return Holder{}, false, fmt.Errorf("find the instance of %s: %w", dir, err)
		case !held:
			return Holder{}, false, nil
		case known:
			return holder, true, nil
		case time.Now().After(deadline):
			return Holder{}, false, fmt.Errorf("find the instance of %s: a process holds it that cannot be seen from here, as in another container", dir)
		}
	}
}

func look(path string) (holder Holder, known, held bool, err error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Holder{}, false, false, nil
	}
	if err != nil {
		return Holder{}, false, false, err
	}
	defer file.Close()
	switch err := flock(file, unix.LOCK_SH); {
	case err == nil:
		return Holder{}, false, false, unlock(file) // left behind
	case !errors.Is(err, unix.EWOULDBLOCK):
		return Holder{}, false, false, err
	}
	holder, known = read(file)
	return holder, known, true, nil
}

// read returns what the file says and whether the process that it names is the
// one that wrote it.
func read(file *os.File) (Holder, bool) {
	text, err := io.ReadAll(io.NewSectionReader(file, 0, 256))
	lines := strings.Split(string(text), "\n")
	if err != nil || len(lines) < 4 { // three lines, each with its end
		return Holder{}, false
	}
	var h Holder
	var errPID, errSince, errTicks error
	h.PID, errPID = strconv.Atoi(lines[0])
	h.Since, errSince = time.Parse(time.RFC3339, lines[1])
	h.ticks, errTicks = strconv.ParseUint(lines[2], 10, 64)
	if err := errors.Join(errPID, errSince, errTicks); err != nil || h.PID <= 0 {
		return Holder{}, false
	}
	return h, h.alive()
}

// alive says whether the process is there and is still the one of the claim.
func (h Holder) alive() bool {
	if h.ticks == 0 { // no /proc: the lock has to do
		return true
	}
	ticks, err := startTicks(h.PID)
	return err == nil && ticks == h.ticks
}

// Signal sends a signal to the holder, and never to another process that has its
// id by now. The error wraps os.ErrProcessDone when it has ended.
func (h Holder) Signal(signal os.Signal) error {
	// Taken before the check: where the kernel has handles of processes, this is
	// one, and nothing can come between the check and the signal.
	process, err := os.FindProcess(h.PID)
	if err != nil {
		return fmt.Errorf("signal process %d: %w", h.PID, err)
	}
	defer func() { _ = process.Release() }()
	if !h.alive() {
		return fmt.Errorf("signal process %d: %w", h.PID, os.ErrProcessDone)
	}
	if err := process.Signal(signal); err != nil {
		return fmt.Errorf("signal process %d: %w", h.PID, err)
	}
	return nil
}

func flock(file *os.File, how int) error {
	for {
		err := unix.Flock(int(file.Fd()), how|unix.LOCK_NB)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// unlock releases the lock at once. Closing the file does that as well, but not
// while another goroutine starts a program: between fork and exec the child has a
// handle of its own on the lock.
func unlock(file *os.File) error { return unix.Flock(int(file.Fd()), unix.LOCK_UN) }

// isAt says whether path still names the file.
func isAt(file *os.File, path string) bool {
	opened, errOpened := file.Stat()
	named, errNamed := os.Stat(path)
	return errOpened == nil && errNamed == nil && os.SameFile(opened, named)
}

// pause is between two looks at a note that another process is writing.
func pause() { <-time.After(10 * time.Millisecond) }

// startTicks returns when a process started, in clock ticks since the boot.
func startTicks(pid int) (uint64, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, err
	}
	// The name of the program, in brackets, may hold anything; behind it the start
	// time is the twentieth field.
	const startTime = 19
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) <= startTime {
		return 0, fmt.Errorf("read the start time of process %d: unknown format", pid)
	}
	return strconv.ParseUint(fields[startTime], 10, 64)
}
