// Package frame is what the benchmark programs have in common as programs: the
// servers that they start, the flags about those and about the output, a processor
// profile, and the report: the environment, then one part after the other, as
// tables or as JSON.
package frame

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/pprof"
	"syscall"

	"github.com/millrace/millrace/bench/internal/measure"
	"github.com/millrace/millrace/bench/internal/servers"
)

// Program is one benchmark program.
type Program struct {
	// Name is that of the command.
	Name string
	// Servers are the defaults of the servers that it needs.
	Servers servers.Options
	// Flags registers the program's own flags.
	Flags func(fs *flag.FlagSet)
	// Check says what is wrong with them. Nil: nothing can be.
	Check func() error
	// Run measures and reports what it found. What was reported is printed even when
	// it fails.
	Run func(ctx context.Context, r *Run) error
}

// Run is one run of a program.
type Run struct {
	*servers.Servers
	// Log discards everything unless -v is given.
	Log *slog.Logger

	parts []part
}

// Part is what one part of a run found. In JSON it is marshalled as it is.
type Part interface {
	// Print prints it for people, after an empty line.
	Print(w io.Writer)
}

type part struct {
	name string
	Part
}

// Report adds a part to the report, by its name in JSON.
func (r *Run) Report(name string, p Part) { r.parts = append(r.parts, part{name, p}) }

// Main runs the program with the arguments of the process, and ends the process
// with 1 if it fails.
func Main(p Program) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := p.main(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", p.Name, err)
		os.Exit(1)
	}
}

// options are the flags that all programs have.
type options struct {
	cpuProfile, output string
	verbose            bool
}

func (p Program) main(ctx context.Context, args []string, out io.Writer) error {
	var o options
	fs := flag.NewFlagSet(p.Name, flag.ContinueOnError)
	p.Servers.Flags(fs)
	p.Flags(fs)
	fs.StringVar(&o.cpuProfile, "cpuprofile", "", "write a processor profile of the whole run to this file")
	fs.StringVar(&o.output, "o", "table", "table or json")
	fs.BoolVar(&o.verbose, "v", false, "show the log")
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return err
	case o.output != "table" && o.output != "json":
		return fmt.Errorf("-o %s: want table or json", o.output)
	case fs.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if p.Check != nil {
		if err := p.Check(); err != nil {
			return err
		}
	}
	return p.measured(ctx, o, out)
}

// measured runs the program on its servers and writes the report.
func (p Program) measured(ctx context.Context, o options, out io.Writer) (err error) {
	s, err := servers.Start(ctx, p.Servers)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	if o.cpuProfile != "" {
		f, err := os.Create(o.cpuProfile)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	r := &Run{Servers: s, Log: slog.New(slog.DiscardHandler)}
	if o.verbose {
		r.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	failed := p.Run(ctx, r)
	s.Environment.LoadAfter = measure.Load()
	return errors.Join(failed, r.write(out, o.output))
}

func (r *Run) write(out io.Writer, format string) error {
	if format == "json" {
		report := map[string]any{"environment": r.Environment}
		for _, p := range r.parts {
			report[p.name] = p.Part
		}
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		return enc.Encode(report)
	}
	fmt.Fprint(out, r.Environment)
	for _, p := range r.parts {
		fmt.Fprintln(out)
		p.Print(out)
	}
	return nil
}
