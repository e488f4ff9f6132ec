package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/millrace/millrace/app"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == sagaProgram {
		os.Args = os.Args[1:]
		app.Main(app.Saga(newTrip))
		return
	}
	os.Exit(run(os.Args[1:]))
}

// options are the command line.
type options struct {
	older, newer, ref string
	time              time.Duration
	rate              int
	dir               string
	keep, embedded    bool
}

func parse(args []string) (o options, err error) {
	fs := flag.NewFlagSet("mixed", flag.ContinueOnError)
	fs.StringVar(&o.older, "older", "", "the program of the older version")
	fs.StringVar(&o.newer, "newer", "bin/millrace", "the program of the newer version")
	fs.StringVar(&o.ref, "ref", "", "what the older version is called, for the verdict")
	fs.DurationVar(&o.time, "time", time.Minute, "how long the stages take together; starts and stops come on top")
	fs.IntVar(&o.rate, "rate", 12, "executions that are asked for per second")
	fs.StringVar(&o.dir, "dir", "", "where data and logs go; a new directory by default")
	fs.BoolVar(&o.keep, "keep", false, "keep the directory also when all is well")
	fs.BoolVar(&o.embedded, "embedded", false, "run on the embedded broker instead of Apache Kafka")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	for _, path := range []*string{&o.older, &o.newer} {
		if *path, err = filepath.Abs(*path); err != nil {
			return o, err
		}
		if info, err := os.Stat(*path); err != nil || info.IsDir() {
			return o, fmt.Errorf("%s is no program: give -older and -newer", *path)
		}
	}
	if o.dir == "" {
		o.dir, err = os.MkdirTemp("", "millrace-mixed-")
	} else if o.dir, err = filepath.Abs(o.dir); err == nil {
		err = os.MkdirAll(o.dir, 0o755)
	}
	if err != nil {
		return o, err
	}
	// PostgreSQL does not run as root: another user has to get through.
	return o, errors.Join(os.Chmod(o.dir, 0o755), os.MkdirAll(filepath.Join(o.dir, "logs"), 0o755))
}

func run(args []string) int {
	o, err := parse(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mixed:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	fmt.Printf("mixed: older=%s time=%s rate=%d directory %s\n", o.ref, o.time, o.rate, o.dir)
	d := &drill{options: o, began: time.Now()}
	word, code := "PASS", 0
	if err := d.run(ctx); err != nil {
		fmt.Println("mixed: it could not be run to its end:", err)
		word, code = "BROKEN", 2
	}
	if len(d.found) > 0 {
		word, code = "FAIL", 1
		for _, f := range d.found {
			fmt.Println("mixed: FOUND", f)
		}
	}
	if code == 0 && !o.keep {
		_ = os.RemoveAll(o.dir)
	} else {
		fmt.Println("mixed: data and logs are in", o.dir)
	}
	fmt.Println(d.line(word))
	return code
}
