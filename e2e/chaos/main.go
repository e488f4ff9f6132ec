// Command chaos torments a whole installation of Millrace, on real Apache Kafka and
// real PostgreSQL, and then proves that nothing was lost, nothing happened twice and
// order held. See docs/chaos.md; `make chaos` builds and runs it.
//
// The last line that it prints is the verdict, which the exit code follows: 0 for
// PASS, 1 for FAIL, 2 when it could not run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/millrace/millrace/e2e/chaos/internal/check"
	"github.com/millrace/millrace/e2e/chaos/internal/nemesis"
	"github.com/millrace/millrace/e2e/chaos/internal/workload"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "consumer" {
		if err := workload.RunConsumer(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(run(os.Args[1:]))
}

// options are the command line.
type options struct {
	time     time.Duration
	seed     uint64
	brokers  int
	cases    string
	millrace string
	dir      string
	keep     bool
	rate     int
	requests int
	plant    string
}

func parse(args []string) (options, error) {
	var o options
	fs := flag.NewFlagSet("chaos", flag.ContinueOnError)
	fs.DurationVar(&o.time, "time", 2*time.Minute, "how long the faults go on")
	fs.Uint64Var(&o.seed, "seed", 0, "what all choices follow from; 0 draws one, which is printed")
	fs.IntVar(&o.brokers, "brokers", 1, "brokers: 1 or 3")
	fs.StringVar(&o.cases, "cases", "mix", "ids of cases, comma-separated; mix, all or L1")
	fs.StringVar(&o.millrace, "millrace", "bin/millrace", "the program that is tormented")
	fs.StringVar(&o.dir, "dir", "", "where data, logs and dumps go; a new directory by default")
	fs.BoolVar(&o.keep, "keep", false, "keep the directory also when all is well")
	fs.IntVar(&o.rate, "rate", 60, "business transactions per second")
	fs.IntVar(&o.requests, "requests", 4, "requests for executions per second")
	fs.StringVar(&o.plant, "plant", "", "a defect to plant in the consumers, to see it found: "+strings.Join(workload.Plants(), ", "))
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if o.seed == 0 {
		o.seed = uint64(time.Now().UnixNano()) % 1_000_000
	}
	var err error
	if o.millrace, err = filepath.Abs(o.millrace); err != nil {
		return o, err
	}
	if _, err := os.Stat(o.millrace); err != nil {
		return o, fmt.Errorf("the program to torment: %w", err)
	}
	if o.dir == "" {
		if o.dir, err = os.MkdirTemp("", "millrace-chaos-"); err != nil {
			return o, err
		}
	} else if o.dir, err = filepath.Abs(o.dir); err != nil {
		return o, err
	}
	// PostgreSQL does not run as root: another user has to get through.
	return o, errors.Join(os.MkdirAll(o.dir, 0o755), os.Chmod(o.dir, 0o755))
}

func run(args []string) int {
	o, err := parse(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		return 2
	}
	cases, err := nemesis.Select(strings.Split(o.cases, ","))
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	fmt.Printf("chaos: seed=%d time=%s brokers=%d cases=%s directory %s\n", o.seed, o.time, o.brokers, o.cases, o.dir)
	v := verdict{options: o}
	v.runAll(ctx, cases)
	if v.fine() && !o.keep {
		_ = os.RemoveAll(o.dir)
	} else {
		fmt.Println("chaos: data, logs and dumps are in", o.dir)
	}
	fmt.Println(v.line())
	switch {
	case v.broken:
		return 2
	case v.fine():
		return 0
	default:
		return 1
	}
}

// verdict sums up the sessions of a run.
type verdict struct {
	options
	findings check.Findings
	totals   totals
	skipped  int
	// broken says that the run could not take place as it was meant to.
	broken bool
}

// totals are what went on.
type totals struct {
	kills, faults, facts, events, executions, effects, letters, republished, repeated, inDoubt int64
}

func (t *totals) add(o totals) {
	t.kills += o.kills
	t.faults += o.faults
	t.facts += o.facts
	t.events += o.events
	t.executions += o.executions
	t.effects += o.effects
	t.letters += o.letters
	t.republished += o.republished
	t.repeated += o.repeated
	t.inDoubt += o.inDoubt
}

// runAll gives the cases that can be mixed one world together, and each of the
// others one of its own.
func (v *verdict) runAll(ctx context.Context, cases []nemesis.Case) {
	var mix, alone []nemesis.Case
	for _, c := range cases {
		switch {
		case c.Skip != "":
			v.skip(c, c.Skip)
		case c.Brokers > v.brokers:
			v.skip(c, fmt.Sprintf("it needs %d brokers (CHAOS_BROKERS=%d)", c.Brokers, c.Brokers))
		case c.Lane == nemesis.Alone:
			alone = append(alone, c)
		default:
			mix = append(mix, c)
		}
	}
	if len(mix) > 0 {
		v.session(ctx, "mix", mix)
	}
	for _, c := range alone {
		if ctx.Err() == nil {
			v.session(ctx, c.ID, []nemesis.Case{c})
		}
	}
	if ctx.Err() != nil {
		fmt.Println("chaos: interrupted")
		v.broken = true
	}
}

func (v *verdict) skip(c nemesis.Case, why string) {
	v.skipped++
	fmt.Printf("chaos: case %s (%s) is skipped: %s\n", c.ID, c.Title, why)
}

func (v *verdict) session(ctx context.Context, name string, cases []nemesis.Case) {
	s := &session{options: v.options, name: name, cases: cases, findings: &v.findings}
	before := len(v.findings.All())
	if err := s.run(ctx); err != nil {
		fmt.Printf("chaos: %s could not be run to its end: %v\n", name, err)
		v.broken = true
	}
	v.totals.add(s.totals)
	if found := v.findings.All()[before:]; len(found) > 0 {
		fmt.Printf("chaos: %s found\n%s", name, check.Summary(found, 10))
	}
}

func (v *verdict) fine() bool { return !v.broken && len(v.findings.All()) == 0 }

// line is the verdict as one line.
func (v *verdict) line() string {
	word := "PASS"
	switch {
	case len(v.findings.All()) > 0:
		word = "FAIL"
	case v.broken:
		word = "BROKEN"
	}
	t := v.totals
	line := fmt.Sprintf("chaos: %s seed=%d time=%s brokers=%d cases=%s kills=%d faults=%d facts=%d events=%d effects=%d executions=%d letters=%d republished=%d repeated=%d in_doubt=%d",
		word, v.seed, v.time, v.brokers, v.options.cases, t.kills, t.faults, t.facts, t.events, t.effects, t.executions, t.letters, t.republished, t.repeated, t.inDoubt)
	for _, k := range check.Kinds() {
		line += fmt.Sprintf(" %s=%d", k, v.findings.Count(k))
	}
	return line + fmt.Sprintf(" skipped=%d", v.skipped)
}
