// Command crowd lets a crowd of users work an installation whose coordinators are
// killed in turn, and judges everything that was decided. See docs/chaos.md; `make
// crowd` builds and runs it.
//
// The last line that it prints is the verdict, which the exit code follows: 0 for
// PASS, 1 for FAIL, 2 when it could not run.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/millrace/millrace/e2e/internal/crowd"
	"github.com/millrace/millrace/internal/history"
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	o := crowd.Options{Log: os.Stdout}
	fs := flag.NewFlagSet("crowd", flag.ContinueOnError)
	fs.IntVar(&o.Executions, "executions", 10_000, "how many executions are asked for")
	fs.IntVar(&o.Users, "users", 50, "by how many users")
	fs.IntVar(&o.Coordinators, "coordinators", 2, "coordinator processes, killed and frozen in turn")
	fs.IntVar(&o.Hurts, "hurts", 0, "how often a coordinator is hurt at most; 0 is until the work is done")
	fs.Uint64Var(&o.Seed, "seed", 0, "what all choices follow from; 0 draws one, which is printed")
	fs.BoolVar(&o.Real, "real", false, "run on Apache Kafka instead of the embedded broker")
	fs.StringVar(&o.Millrace, "millrace", "bin/millrace", "the program")
	fs.StringVar(&o.Dir, "dir", "", "where data and logs go; a new directory by default")
	keep := fs.Bool("keep", false, "keep the directory also when all is well")
	if err := fs.Parse(args); err != nil {
		return 2
	}
	if err := prepare(&o); err != nil {
		fmt.Fprintln(os.Stderr, "crowd:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	fmt.Printf("crowd: seed=%d executions=%d users=%d directory %s\n", o.Seed, o.Executions, o.Users, o.Dir)
	report, err := crowd.Run(ctx, o)
	if err != nil {
		fmt.Printf("crowd: it could not be run to its end: %v\ncrowd: data and logs are in %s\ncrowd: BROKEN seed=%d\n", err, o.Dir, o.Seed)
		return 2
	}
	if len(report.Found) > 0 {
		fmt.Printf("crowd: found\n%scrowd: data and logs are in %s\n", history.Summary(report.Found, 10), o.Dir)
		fmt.Println(report.Line())
		return 1
	}
	if !*keep {
		_ = os.RemoveAll(o.Dir)
	}
	fmt.Println(report.Line())
	return 0
}

// prepare fills in what was left out.
func prepare(o *crowd.Options) (err error) {
	if o.Seed == 0 {
		o.Seed = uint64(time.Now().UnixNano()) % 1_000_000
	}
	if o.Millrace, err = filepath.Abs(o.Millrace); err != nil {
		return err
	}
	if _, err := os.Stat(o.Millrace); err != nil {
		return fmt.Errorf("the program: %w", err)
	}
	if o.Dir == "" {
		o.Dir, err = os.MkdirTemp("", "millrace-crowd-")
	} else if o.Dir, err = filepath.Abs(o.Dir); err == nil {
		err = os.MkdirAll(o.Dir, 0o755)
	}
	if err != nil {
		return err
	}
	// PostgreSQL does not run as root: another user has to get through.
	return os.Chmod(o.Dir, 0o755)
}
