// Package verdict is the frame of programs that play something through and judge it: how
// they are told what to do, how they are interrupted, and what their exit code says.
package verdict

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// The exit codes.
const (
	exitRight = iota
	// exitWrong: the program has played it through, and its verdict says what is wrong.
	exitWrong
	// exitFailed: it could not; standard error says why.
	exitFailed
)

// Main runs a program and ends the process, with 0 if the verdict is good, 1 if run returns
// an error that wraps wrong, and 2 if there is none. parse reads the arguments, and
// explains them on the writer that it is given; run prints to standard output, and its
// context ends with SIGINT or SIGTERM.
func Main[O any](
	name string, wrong error, parse func(arguments []string, out io.Writer) (O, error), run func(ctx context.Context, o O, out io.Writer) error,
) {
	o, err := parse(os.Args[1:], os.Stderr)
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		err = run(ctx, o, os.Stdout)
		stop()
	}
	os.Exit(end(name, wrong, err, os.Stderr))
}

// end returns the exit code for an error, and tells of it what the verdict has not.
func end(name string, wrong, err error, out io.Writer) int {
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return exitRight
	case errors.Is(err, wrong):
		return exitWrong
	default:
		_, _ = fmt.Fprintf(out, "%s: %v\n", name, err)
		return exitFailed
	}
}
