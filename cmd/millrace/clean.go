package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/embedded"
	"github.com/millrace/millrace/internal/instance"
)

const cleanLong = `Delete what "millrace up" keeps in the data directory: all executions, their output and
history, the broker's topics, the database, and the token of the API. It asks first,
unless --yes is given.

Only what Millrace has made is deleted; whatever else is in the directory stays, and so
does the directory. It refuses while an instance runs on it. A database that
postgres.dsn names is not touched.`

func (c *cli) cleanCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "clean",
		Short: "Delete what Millrace keeps in the data directory",
		Long:  cleanLong,
		Example: `  millrace clean
  millrace clean --data-dir ./data --yes`,
		Args: args(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error { return c.clean(yes) },
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

func (c *cli) clean(yes bool) error {
	dir, err := c.absoluteDataDir()
	if err != nil {
		return err
	}
	if holder, found, err := instance.Find(dir); err != nil {
		return err
	} else if found {
		return c.explainStillUsed(dir, &instance.InUseError{Dir: dir, Holder: holder})
	}
	entries, err := instance.Entries(dir)
	if err != nil {
		return err
	}
	if len(entries) > 0 {
		if err := c.confirm(dir, entries, yes); err != nil {
			return err
		}
		if err := instance.Remove(dir, entries); err != nil {
			return c.explainStillUsed(dir, err)
		}
	}
	return c.sayCleaned(dir, entries)
}

// explainStillUsed says what to do when somebody uses the directory.
func (c *cli) explainStillUsed(dir string, err error) error {
	var used *instance.InUseError
	switch {
	case errors.As(err, &used):
		return fmt.Errorf("%w: stop it first: `%s`", err, c.commandOn(dir, "stop"))
	case errors.Is(err, embedded.ErrInUse):
		return fmt.Errorf("%w: stop it, or wait for its end, and try again", err)
	}
	return fmt.Errorf("delete: %w", err)
}

// confirm asks whether to go on. Only a clear yes is one.
func (c *cli) confirm(dir string, entries []instance.Entry, yes bool) error {
	if yes {
		return nil
	}
	fmt.Fprintf(c.err, "This deletes from %s, for good:\n", dir)
	for _, e := range entries {
		fmt.Fprintf(c.err, "  %-14s %s\n", e.Name, byteCount(e.Bytes))
	}
	fmt.Fprint(c.err, "Go on? [y/N] ")
	line, err := bufio.NewReader(io.LimitReader(c.in, 64)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	if slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(line))) {
		return nil
	}
	if line == "" { // nobody there to answer, or Ctrl-D
		fmt.Fprintln(c.err)
	}
	return &exitError{exitFailure, "nothing was deleted: answer y, or give --yes"}
}

func (c *cli) sayCleaned(dir string, entries []instance.Entry) error {
	switch c.output {
	case "json", "yaml":
		if entries == nil {
			entries = []instance.Entry{}
		}
		return c.document(c.out, map[string]any{"data_dir": dir, "deleted": entries})
	}
	if len(entries) == 0 {
		_, err := fmt.Fprintf(c.out, "nothing to delete: %s holds nothing of Millrace's\n", dir)
		return err
	}
	var bytes int64
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name
		bytes += e.Bytes
	}
	_, err := fmt.Fprintf(c.out, "deleted from %s: %s (%s)\n", dir, strings.Join(names, ", "), byteCount(bytes))
	if err != nil {
		return err
	}
	if rest, err := os.ReadDir(dir); err == nil && len(rest) > 0 {
		c.notef("%d other entries were left alone", len(rest))
	}
	return nil
}

// byteCount writes a number of bytes in the largest unit that fits.
func byteCount(n int64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	value, unit := float64(n)/(1<<10), "KiB"
	for _, next := range []string{"MiB", "GiB", "TiB"} {
		if value < 1<<10 {
			break
		}
		value, unit = value/(1<<10), next
	}
	return fmt.Sprintf("%.1f %s", value, unit)
}
