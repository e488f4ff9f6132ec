package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"
)

// supervisor is the shim: it lives for one attempt, in a process of its own.
type supervisor struct {
	orders  <-chan order
	reports *json.Encoder
	lease   *bootTimer

	start    startOrder
	deadline int64
	pid      int // the program's; also its process group
	tree     tree

	endedBy string
	grace   <-chan time.Time // runs between SIGTERM and SIGKILL
	orphan  bool             // the worker is gone
}

// runShim is the main function of the supervisor; it returns its exit code.
func runShim() int {
	// The program is sent SIGKILL when the *thread* that forked it ends, and
	// no_new_privs is inherited from that thread. So this goroutine keeps its
	// thread until the process exits.
	runtime.LockOSThread()
	// A shim lives for one attempt and allocates next to nothing.
	debug.SetGCPercent(-1)

	// What came as fds 3 and 4 came without close-on-exec, and whatever else the
	// worker's own environment may have leaked must not reach the program.
	if unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) != nil {
		unix.CloseOnExec(ordersFD)
		unix.CloseOnExec(reportsFD)
	}
	in := os.NewFile(ordersFD, "orders")
	out := os.NewFile(reportsFD, "reports")

	dec := json.NewDecoder(in)
	var first order
	if err := dec.Decode(&first); err != nil {
		return 2 // started by hand, or the worker died first
	}
	s := &supervisor{orders: readOrders(dec), reports: json.NewEncoder(out)}
	if err := s.prepare(); err != nil {
		_ = s.report(report{Kind: reportFault, Message: err.Error()})
		return 1
	}
	switch {
	case first.Probe:
		features := probe()
		if len(first.Try) > 0 {
			features = append(features, probeSandbox(first.Try))
		}
		_ = s.report(report{Kind: reportProbe, Features: features})
	case first.Start != nil:
		s.start = *first.Start
		s.run()
	}
	return 0
}

// readOrders hands on orders until the worker is gone.
func readOrders(dec *json.Decoder) <-chan order {
	orders := make(chan order)
	go func() {
		defer close(orders)
		for {
			var o order
			if dec.Decode(&o) != nil {
				return
			}
			orders <- o
		}
	}()
	return orders
}

// prepare sets what the program inherits and what the shim relies on. None of it
// may fail quietly.
func (s *supervisor) prepare() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the reaper of orphans: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("give up new privileges: %w", err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("turn core dumps off: %w", err)
	}
	var err error
	s.lease, err = newBootTimer()
	return err
}

// run starts the program, watches it to its end and reports.
func (s *supervisor) run() {
	s.deadline = s.start.Deadline
	if bootNow() >= s.deadline {
		_ = s.report(report{Kind: reportEnded, EndedBy: endedByDeadline, Signal: int(unix.SIGKILL)})
		return
	}
	// Whoever stops the shim by hand means the program.
	terminate := make(chan os.Signal, 1)
	signal.Notify(terminate, unix.SIGTERM, unix.SIGINT, unix.SIGHUP)

	pid, err := launch(s.start)
	if err != nil {
		s.reportStartError(err)
		return
	}
	s.pid = pid
	s.tree = tree{root: os.Getpid(), main: pid, sandboxed: s.start.Sandboxed}
	releaseStdio()
	_ = s.report(report{Kind: reportStarted, PID: pid})

	s.watch(s.tree.watchMain(), terminate)
	s.finish()
}

// watch returns when the program has ended by itself, or must be killed.
func (s *supervisor) watch(exited <-chan struct{}, terminate <-chan os.Signal) {
	for {
		if err := s.lease.set(s.deadline); err != nil {
			s.ended(endedByDeadline) // a lease that cannot be watched is no lease
			return
		}
		select {
		case <-exited:
			return
		case <-s.lease.fired:
			if bootNow() >= s.deadline {
				s.ended(endedByDeadline)
				return
			}
		case <-s.grace:
			return
		case <-terminate:
			s.stop(GraceDefault)
		case o, ok := <-s.orders:
			if !ok {
				s.orphan = true
				s.ended(endedByOrphan)
				return
			}
			if s.obey(o) {
				return
			}
		}
	}
}

// obey carries out an order and says whether the program must be killed now.
func (s *supervisor) obey(o order) bool {
	if o.Deadline != 0 {
		s.deadline = o.Deadline
	}
	if o.Stop != nil {
		s.stop(time.Duration(*o.Stop))
	}
	if o.Kill {
		s.ended(endedByStop)
	}
	return o.Kill
}

// stop asks the tree to end and starts the grace, once.
func (s *supervisor) stop(grace time.Duration) {
	if s.grace != nil {
		return
	}
	s.ended(endedByStop)
	s.grace = time.After(grace)
	s.tree.terminate()
}

// ended records why the program was ended; the first reason counts.
func (s *supervisor) ended(by string) {
	if s.endedBy == endedByItself {
		s.endedBy = by
	}
}

// finish kills what is left, reports, and cleans up for a worker that cannot.
func (s *supervisor) finish() {
	status, strays := s.tree.kill()
	r := report{Kind: reportEnded, EndedBy: s.endedBy, Strays: strays}
	if status.Exited() {
		code := status.ExitStatus()
		r.ExitCode = &code
	} else {
		r.Signal = int(status.Signal())
	}
	if s.report(r) != nil || s.orphan {
		_ = removeAttempt(s.start.Dir)
	}
}

func (s *supervisor) report(r report) error { return s.reports.Encode(r) }

func (s *supervisor) reportStartError(err error) {
	r := report{Kind: reportStartFailed, Message: err.Error()}
	var errno unix.Errno
	if errors.As(err, &errno) {
		r.Errno = int(errno)
	}
	_ = s.report(r)
}

// releaseStdio lets go of the program's standard streams: as long as the shim
// held them, their readers would not see the end.
func releaseStdio() {
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	for fd := range 3 {
		if err == nil {
			err = unix.Dup3(null, fd, 0)
		}
		if err != nil {
			_ = unix.Close(fd)
		}
	}
	if null > 2 {
		_ = unix.Close(null)
	}
}

// exitNow ends the process without the runtime's farewell: what it would wait
// for (the race detector sleeps for a second) is time that the worker waits too.
func exitNow(code int) {
	_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, uintptr(code), 0, 0)
}
