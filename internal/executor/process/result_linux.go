package process

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/executor"
)

// conclude makes the Result of the shim's last word. A shim without one was
// killed: by the worker, when it was overdue, else by somebody else, which is
// a fault of the executor.
func (a *attempt) conclude() (executor.Result, error) {
	switch a.last.Kind {
	case reportEnded:
		return a.concludeEnded(a.last), nil
	case reportStartFailed:
		return startFailed(a.startError(a.last)), nil
	case reportFault:
		return executor.Result{}, fmt.Errorf("set up the attempt: %s", a.last.Message)
	}
	switch {
	case a.cause != nil:
		return executor.Stopped(a.cause), nil
	case a.overdue:
		return executor.Stopped(executor.ErrLeaseLost), nil
	default:
		return executor.Result{}, fmt.Errorf("watch the attempt: its shim was ended from outside (%v)", a.status)
	}
}

// concludeEnded says how a program ended. A program that was stopped has the
// outcome of the cause, whatever its exit code: exiting with 0 on SIGTERM means
// that it obeyed, not that its work is done.
func (a *attempt) concludeEnded(r report) executor.Result {
	var result executor.Result
	switch {
	case r.EndedBy == endedByDeadline || r.EndedBy == endedByOrphan:
		result = executor.Stopped(executor.ErrLeaseLost)
	case r.EndedBy == endedByStop && a.cause != nil:
		result = executor.Stopped(a.cause)
	case r.EndedBy == endedByStop:
		result = failed("signal", "somebody stopped the attempt by a signal to its shim", true)
	case r.ExitCode != nil && *r.ExitCode == 0:
		result = executor.Result{Outcome: executor.Completed}
	case r.ExitCode != nil:
		result = failed("exit_code", fmt.Sprintf("the program exited with code %d", *r.ExitCode), true)
		if name := unix.SignalName(unix.Signal(*r.ExitCode - signalBase)); a.start.Sandboxed && name != "" {
			result.Message += ", which in the sandbox also stands for an end by " + signalText(*r.ExitCode-signalBase)
		}
	default:
		result = failed("signal", "the program was ended by "+signalText(r.Signal), true)
	}
	if r.EndedBy == endedByItself && r.Strays > 0 {
		if result.Message != "" {
			result.Message += "; "
		}
		result.Message += fmt.Sprintf("%d processes that it had left running were killed", r.Strays)
	}
	result.ExitCode = r.ExitCode
	result.Signal = unix.SignalName(unix.Signal(r.Signal))
	return result
}

// signalBase is what bubblewrap adds to the number of the signal that ended the
// program, as shells do.
const signalBase = 128

// signalText names a signal, with what it means where a limit sends it.
func signalText(number int) string {
	signal := unix.Signal(number)
	name := unix.SignalName(signal)
	switch signal {
	case unix.SIGXCPU:
		return name + ": its limit of cpu_seconds was reached"
	case unix.SIGXFSZ:
		return name + ": its limit of file_bytes was reached"
	}
	if name == "" {
		return fmt.Sprintf("signal %d", number)
	}
	return name
}

// startError says why the shim could not start a file that lookup had found.
func (a *attempt) startError(r report) error {
	err := &startError{program: a.start.Argv[0], errno: unix.Errno(r.Errno)}
	switch err.errno {
	case 0:
		err.detail = r.Message
	case unix.ENOENT:
		err.detail = "the interpreter that it names does not exist"
	}
	return err
}

func startFailed(err error) executor.Result {
	var start *startError
	retryable := !errors.As(err, &start) || start.retryable()
	return failed("start_failed", err.Error(), retryable)
}

func failed(reason, message string, retryable bool) executor.Result {
	return executor.Result{Outcome: executor.Failed, Reason: reason, Message: message, Retryable: retryable}
}
