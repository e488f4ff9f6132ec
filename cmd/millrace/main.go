// Command millrace is the one binary of Millrace: the servers, and the command
// line that talks to them.
//
// One file per subcommand. Data goes to stdout, everything else to stderr, so
// that output can be piped. The exit code is 0 for success, 1 for a failure, 2
// for a wrong use, 3 when something does not exist, 4 when time ran out.
package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/millrace/millrace/app"
	"github.com/millrace/millrace/internal/executor/process"
)

func main() {
	process.MaybeRunShim() // never returns in a process that supervises an attempt
	os.Exit(start())
}

// start runs the command line with the process's own surroundings. It is apart
// from main so that its deferred calls run before the exit.
func start() int {
	// The second signal ends the program at once: the first one's handler is gone.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	app.LogClients(slog.New(slog.DiscardHandler)) // until there is a log
	width, _, err := term.GetSize(int(os.Stdout.Fd()))
	if err != nil {
		width = 0 // no terminal
	}
	return run(ctx, os.Args[1:], surroundings{
		program: os.Args[0], width: width,
		in: os.Stdin, out: os.Stdout, err: os.Stderr, environ: os.Environ(), now: time.Now,
		logClients:  app.LogClients,
		outTerminal: term.IsTerminal(int(os.Stdout.Fd())), errTerminal: term.IsTerminal(int(os.Stderr.Fd())),
	})
}
