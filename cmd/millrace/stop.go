package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/instance"
)

// stopPoll is how often stop looks whether the instance has gone.
const stopPoll = 50 * time.Millisecond

// stopNews is how long stop waits in silence, and then between two lines that say
// that it still waits.
const stopNews = 5 * time.Second

const stopLong = `Stop the instance that "millrace up" runs on the data directory, and wait until it has
gone. It stops in order, as with Ctrl-C: requests end, running executions may finish
for worker.shutdown_grace and are handed back otherwise, and the embedded servers stop
last. Nothing that was acknowledged is lost; "millrace up" continues with it.

It is no error when nothing runs. When the time is up the exit code is 4, and the
instance goes on stopping.`

func (c *cli) stopCommand() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "stop",
		Short: "Stop the instance that millrace up runs on the data directory",
		Long:  stopLong,
		Example: `  millrace stop
  millrace stop --data-dir ./data --timeout 30s`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if timeout <= 0 {
				return usagef("--timeout: want a positive duration")
			}
			return c.stop(cmd.Context(), timeout)
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 3*time.Minute, "how long to wait until it has gone")
	return cmd
}

// stopped is the result of stop.
type stopped struct {
	DataDir string `json:"data_dir"`
	// PID is the process that was stopped; 0 when none ran.
	PID    int   `json:"pid"`
	Millis int64 `json:"millis"`
}

func (c *cli) stop(ctx context.Context, timeout time.Duration) error {
	dir, err := c.absoluteDataDir()
	if err != nil {
		return err
	}
	began := time.Now()
	result := stopped{DataDir: dir}
	holder, found, err := instance.Find(dir)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: only the user who runs it, or root, may stop it", err)
	case err != nil:
		return err
	case !found:
		return c.sayStopped(result)
	}
	result.PID = holder.PID
	switch err := holder.Signal(syscall.SIGTERM); {
	case errors.Is(err, os.ErrProcessDone): // by itself, in this moment
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%w: only the user who runs it, or root, may stop it", err)
	case err != nil:
		return err
	}
	c.notef("stopping process %d ...", holder.PID)
	if err := c.awaitGone(ctx, dir, holder, timeout); err != nil {
		return err
	}
	result.Millis = time.Since(began).Milliseconds()
	return c.sayStopped(result)
}

// absoluteDataDir is resolveDataDir, as up has it.
func (c *cli) absoluteDataDir() (string, error) {
	dir, err := c.resolveDataDir()
	if err != nil {
		return "", err
	}
	return filepath.Abs(dir)
}

// awaitGone waits until the holder has given the directory back.
func (c *cli) awaitGone(ctx context.Context, dir string, holder instance.Holder, timeout time.Duration) error {
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	poll := time.NewTicker(stopPoll)
	defer poll.Stop()
	news := time.NewTicker(stopNews)
	defer news.Stop()
	for {
		now, found, err := instance.Find(dir)
		if err != nil {
			return err
		}
		if !found || now != holder { // another may have taken over already
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline.C:
			return &exitError{exitTimeout, fmt.Sprintf(
				"process %d has not stopped within %s: wait, or end it with `kill -9 %d`, which loses nothing that was acknowledged",
				holder.PID, timeout, holder.PID)}
		case <-news.C:
			c.notef("process %d is still stopping: running executions may finish", holder.PID)
		case <-poll.C:
		}
	}
}

func (c *cli) sayStopped(s stopped) error {
	switch c.output {
	case "json", "yaml":
		return c.document(c.out, s)
	}
	var err error
	if s.PID == 0 {
		_, err = fmt.Fprintf(c.out, "nothing to stop: no instance runs on %s\n", s.DataDir)
	} else {
		_, err = fmt.Fprintf(c.out, "stopped process %d of %s after %s\n", s.PID, s.DataDir, span(time.Duration(s.Millis)*time.Millisecond))
	}
	return err
}
