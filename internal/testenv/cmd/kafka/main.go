// Command kafka runs a real Apache Kafka in the foreground, for development and
// measurements:
//
//	kafka [flags] [run]    run until a signal; print the address on one line
//	kafka fetch            bring the programs only
//
// The address goes to stdout, everything else to stderr. Data is kept in -data;
// without it, in a temporary directory that goes away at the end.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/millrace/millrace/internal/testenv/realkafka"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "kafka:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	cfg := realkafka.Config{Progress: os.Stderr}
	flag.IntVar(&cfg.Port, "port", 0, "port of the (first) broker on 127.0.0.1; 0 takes a free one")
	flag.IntVar(&cfg.Brokers, "brokers", 1, "number of brokers, 1 or 3")
	flag.IntVar(&cfg.HeapMB, "heap", 512, "Java heap of each broker in MiB")
	flag.StringVar(&cfg.DataDir, "data", "", "directory to keep data in; temporary when empty")
	flag.StringVar(&cfg.Version, "version", "", "version of Apache Kafka (default "+realkafka.VersionDefault+")")
	flag.Parse()
	switch flag.Arg(0) {
	case "fetch":
		_, err := realkafka.Ensure(ctx, cfg.Version, os.Stderr)
		return err
	case "", "run":
	default:
		return fmt.Errorf("unknown command %q: run or fetch", flag.Arg(0))
	}
	if cfg.DataDir == "" {
		dir, err := os.MkdirTemp("", "millrace-kafka-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		cfg.DataDir = dir
	}
	cluster, err := realkafka.Start(ctx, cfg)
	if err != nil {
		return err
	}
	fmt.Println(strings.Join(cluster.Addrs(), ","))
	select {
	case <-ctx.Done():
		return cluster.Close()
	case <-cluster.Exited(0):
		return errors.Join(errors.New("the broker ended by itself"), cluster.Close())
	}
}
