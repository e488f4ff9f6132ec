package execution

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/topics"
)

// Reasons of failures that the policy of retries knows beside those of executors.
const (
	// ReasonRunLimit: the attempt was stopped at its run limit. It is retried only
	// where retry_on says so.
	ReasonRunLimit = "run_limit"
	// ReasonLeaseExpired: the worker was lost. It is retried unless never_on says
	// otherwise, and costs no attempt.
	ReasonLeaseExpired = "lease_expired"
	// ReasonMaxAge: a retry could not start within max_age.
	ReasonMaxAge = "max_age"
)

// retryDeadline returns until when a retry may start at the latest, or the zero
// time. An attempt that follows no failure is no retry.
func (e *Execution) retryDeadline() time.Time {
	if e.Failures == 0 {
		return time.Time{}
	}
	return deadline(e.RequestedAt, e.Request.Retry.MaxAge)
}

// retries reports whether an attempt that failed, and is counted already, is
// followed by another one.
func (e *Execution) retries(now time.Time, f topics.Failure) bool {
	if !f.Retryable || e.Cancel != nil || !e.attemptsLeft(now) || !allowsRetry(e.Request.Retry, f) {
		return false
	}
	last := e.retryDeadline()
	return last.IsZero() || now.Add(e.backoff()).Before(last)
}

// allowsRetry reports whether the policy has another attempt follow this failure:
// one that retry_on names, or any but a run limit where it names none, and that
// never_on does not name.
func allowsRetry(r topics.Retry, f topics.Failure) bool {
	if anyClass(r.NeverOn, f) {
		return false
	}
	if len(r.RetryOn) == 0 {
		return f.Reason != ReasonRunLimit
	}
	return anyClass(r.RetryOn, f)
}

// forbidsRepeat reports whether the policy keeps an execution from being run again
// although the loss of the attempt was not its own doing.
func forbidsRepeat(r topics.Retry, reason string) bool {
	if reason == reasonLeaseLost { // the same, as the worker sees it
		reason = ReasonLeaseExpired
	}
	return anyClass(r.NeverOn, topics.Failure{Reason: reason})
}

func anyClass(classes []string, f topics.Failure) bool {
	return slices.ContainsFunc(classes, func(text string) bool {
		c, err := parseFailureClass(text)
		return err == nil && c.matches(f)
	})
}

// failureClass is a set of failures: those of a reason, or of a reason with one of
// some exit codes, or with a signal. It is written
//
//	function_error    exit_code    exit_code:2    exit_code:64-78    signal:SIGSEGV
type failureClass struct {
	reason    string
	codes     bool
	low, high int
	signal    string
}

// The reasons that can be divided further.
const (
	reasonExitCode = "exit_code"
	reasonSignal   = "signal"
	maxExitCode    = 255
)

// reasonLeaseLost is the executors' word for ReasonLeaseExpired.
const reasonLeaseLost = "lease_lost"

var (
	reasonForm = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)
	signalForm = regexp.MustCompile(`^SIG[A-Z0-9+]{1,16}$`)
)

// undecided are reasons of ends that no policy decides about.
func undecided() []string {
	return []string{"cancelled", "queue_limit", "total_limit", "start_limit", reasonLeaseLost, ReasonMaxAge, "quarantined"}
}

func parseFailureClass(text string) (failureClass, error) {
	reason, detail, divided := strings.Cut(text, ":")
	c := failureClass{reason: reason}
	switch {
	case !reasonForm.MatchString(reason):
		return c, errors.New("want a reason such as exit_code, exit_code:64-78, signal:SIGSEGV or function_error")
	case slices.Contains(undecided(), reason):
		return c, fmt.Errorf("%s is no failure that is retried or not", reason)
	case !divided:
		return c, nil
	case reason == reasonExitCode:
		c.codes = true
		return c, c.parseCodes(detail)
	case reason == reasonSignal:
		c.signal = detail
		if !signalForm.MatchString(detail) {
			return c, errors.New("want the name of a signal behind the colon, as in signal:SIGSEGV")
		}
		return c, nil
	}
	return c, fmt.Errorf("%s has no parts: only exit_code and signal take a colon", reason)
}

func (c *failureClass) parseCodes(text string) error {
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	var errLow, errHigh error
	c.low, errLow = strconv.Atoi(first)
	c.high, errHigh = strconv.Atoi(last)
	if errLow != nil || errHigh != nil || c.low < 1 || c.high > maxExitCode || c.low > c.high {
		return errors.New("want exit codes from 1 to 255 behind the colon, as in exit_code:2 or exit_code:64-78")
	}
	return nil
}

func (c failureClass) matches(f topics.Failure) bool {
	switch {
	case c.reason != f.Reason:
		return false
	case c.codes:
		return f.ExitCode != nil && c.low <= *f.ExitCode && *f.ExitCode <= c.high
	case c.signal != "":
		return c.signal == f.Signal
	}
	return true
}
