package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/client"
)

// The exit codes.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitTimeout     = 4
	exitInterrupted = 130 // as shells have it for SIGINT
)

// usageError is a wrong use of the command line.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// notFoundError says that what was named does not exist.
type notFoundError struct{ text string }

func (e *notFoundError) Error() string { return e.text }

// exitError carries an exit code. With an empty text nothing is printed: the
// output of the command has said it.
type exitError struct {
	code int
	text string
}

func (e *exitError) Error() string { return e.text }

// report prints an error and returns the exit code that belongs to it.
func (c *cli) report(ctx context.Context, err error) int {
	if err == nil {
		return exitOK
	}
	code := exitCode(ctx, err)
	if text := explain(err); text != "" {
		fmt.Fprintln(c.err, "millrace: "+text)
	}
	return code
}

func exitCode(ctx context.Context, err error) int {
	var exit *exitError
	var usage *usageError
	var missing *notFoundError
	var invalid *configs.InvalidError
	var problem *client.Problem
	switch {
	case errors.As(err, &exit):
		return exit.code
	case errors.As(err, &usage), errors.As(err, &invalid):
		return exitUsage
	case errors.As(err, &missing):
		return exitNotFound
	case errors.As(err, &problem) && problem.NotFound():
		return exitNotFound
	case errors.As(err, &problem) && problem.Status == http.StatusGatewayTimeout, errors.Is(err, context.DeadlineExceeded):
		return exitTimeout
	case ctx.Err() != nil:
		return exitInterrupted
	default:
		return exitFailure
	}
}

// explain says what went wrong and, where it is known, what to do.
func explain(err error) string {
	var unreachable *client.UnreachableError
	var problem *client.Problem
	switch {
	case errors.As(err, &unreachable):
		return explainUnreachable(unreachable)
	case errors.As(err, &problem) && problem.Status == http.StatusUnauthorized:
		return problem.Error() + ": set MILLRACE_TOKEN or --token; on the machine of the server, `millrace token` prints it"
	case errors.Is(err, context.Canceled):
		return "interrupted"
	default:
		return err.Error()
	}
}

func explainUnreachable(e *client.UnreachableError) string {
	switch {
	case errors.Is(e, syscall.ECONNREFUSED):
		return fmt.Sprintf("no Millrace answers at %s: start one with `millrace up` or set --url", e.URL)
	case errors.Is(e, context.DeadlineExceeded):
		return fmt.Sprintf("Millrace at %s did not answer in time", e.URL)
	case strings.Contains(e.Error(), "server gave HTTP response to HTTPS client"):
		return fmt.Sprintf("%s does not speak TLS: try http:// in place of https://", e.URL)
	default:
		return e.Error() + ": check --url"
	}
}

// flagNames returns the names of all flags that cmd takes.
func flagNames(cmd *cobra.Command) []string {
	var names []string
	add := func(f *pflag.Flag) { names = append(names, f.Name) }
	cmd.Flags().VisitAll(add)
	cmd.InheritedFlags().VisitAll(add)
	return names
}
