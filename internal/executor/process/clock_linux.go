package process

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// bootNow reads CLOCK_BOOTTIME: monotonic, the same for all processes of the
// machine, and counting while it sleeps.
func bootNow() int64 {
	var ts unix.Timespec
	// It cannot fail for a clock that exists, and this one does since Linux 2.6.39.
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
	return ts.Nano()
}

// bootAt translates a moment with a monotonic reading to CLOCK_BOOTTIME. The
// clock is read before the time that is left is taken: a pause between both
// makes the result earlier, never later.
func bootAt(t time.Time) int64 {
	now := bootNow()
	return now + int64(time.Until(t))
}

// bootTimer fires at a reading of CLOCK_BOOTTIME. Go's own timers stand still
// while the machine sleeps.
type bootTimer struct {
	file  *os.File
	fired chan struct{}
}

func newBootTimer() (*bootTimer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("create timer: %w", err)
	}
	t := &bootTimer{file: os.NewFile(uintptr(fd), "timer"), fired: make(chan struct{}, 1)}
	go func() {
		var expirations [8]byte
		for {
			if _, err := t.file.Read(expirations[:]); err != nil {
				return
			}
			select {
			case t.fired <- struct{}{}:
			default:
			}
		}
	}()
	return t, nil
}

// set moves the timer; a moment that has passed fires at once.
func (t *bootTimer) set(at int64) error {
	value := unix.ItimerSpec{Value: unix.NsecToTimespec(max(at, 1))}
	raw, err := t.file.SyscallConn()
	if err != nil {
		return fmt.Errorf("set timer: %w", err)
	}
	var setErr error
	err = raw.Control(func(fd uintptr) {
		setErr = unix.TimerfdSettime(int(fd), unix.TFD_TIMER_ABSTIME, &value, nil)
	})
	if err := errors.Join(err, setErr); err != nil {
		return fmt.Errorf("set timer: %w", err)
	}
	return nil
}
