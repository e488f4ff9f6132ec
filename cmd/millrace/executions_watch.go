package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/client"
)

func (c *cli) watchCommand() *cobra.Command {
	var types []string
	cmd := &cobra.Command{
		Use:     "watch [ID]",
		Aliases: []string{"follow"},
		Short:   "Follow events as they happen",
		Long: `Follow the events of one execution from its beginning to its end, or those of all
executions from now on until interrupted. A lost connection is taken up again without
a gap. With -o json each event is one line.

What an execution says of its progress is no event: that of a single one is asked for
every 2 seconds (or as --watch says) and shown between its events in tables.`,
		Example: `  millrace executions watch
  millrace executions watch 0198c0de-0000-7000-8000-000000000001
  millrace executions watch --type millrace.execution.failed.v1 -o json`,
		Args: args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			api, err := c.connect()
			if err != nil {
				return err
			}
			defer api.Close()
			options := client.WatchOptions{OnReconnect: func(err error, wait time.Duration) {
				c.notef("%s; connecting again in %s", err, span(wait))
			}}
			for _, t := range types {
				options.Types = append(options.Types, longType(t))
			}
			if len(ids) == 1 {
				options.ExecutionID = ids[0]
			}
			return c.watchEvents(cmd.Context(), api, options)
		},
	}
	cmd.Flags().StringSliceVar(&types, "type", nil, "only events of this type, in full or short as in failed (repeatable)")
	return cmd
}

// longType completes the short name of an event type.
func longType(text string) string {
	for _, r := range text {
		if r == '.' {
			return text
		}
	}
	return "millrace.execution." + text + ".v1"
}

// watchEvents prints events, and between those of a single execution its progress.
func (c *cli) watchEvents(ctx context.Context, api *client.Client, options client.WatchOptions) error {
	if options.ExecutionID == "" || len(options.Types) > 0 || c.output != "table" && c.output != "wide" {
		return c.printEvents(ctx, api, options)
	}
	ctx, stop := context.WithCancel(ctx)
	plain := c.out
	c.out = &lockedWriter{w: plain}
	var polling sync.WaitGroup
	polling.Go(func() { c.followProgress(ctx, api, options.ExecutionID) })
	err := c.printEvents(ctx, api, options)
	stop()
	polling.Wait()
	c.out = plain
	return err
}

// followProgress prints a line whenever the progress has changed, until ctx ends or
// the execution has ended. Faults are for the stream of events to report.
func (c *cli) followProgress(ctx context.Context, api *client.Client, id string) {
	ticker := time.NewTicker(cmp.Or(c.watch, progressEvery))
	defer ticker.Stop()
	var last time.Time
	for {
		e, err := api.Get(ctx, id)
		if ctx.Err() != nil {
			return
		}
		if p := e.Progress; err == nil && p != nil && p.At.After(last) {
			last = p.At
			_, _ = fmt.Fprintf(c.out, "%s  %-36s  %-16s  %s\n", // what cannot be written ends printEvents
				p.At.Local().Format("15:04:05.000"), id, "(progress)", oneLine(howFar(*p)))
		}
		if err == nil && client.Final(e.State) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// progressEvery is how often the progress of a watched execution is asked for.
const progressEvery = 2 * time.Second

// lockedWriter lets two write whole lines to one place.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

// Write implements io.Writer.
func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// howFar says how far an execution has come.
func howFar(p client.Progress) string {
	number := func(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }
	var text string
	switch {
	case p.Total == 1:
		text = fmt.Sprintf("%.0f%%", 100*p.Done)
	case p.Total > 0:
		text = fmt.Sprintf("%s of %s (%.0f%%)", number(p.Done), number(p.Total), 100*p.Done/p.Total)
	case p.Done > 0 || p.Message == "":
		text = number(p.Done)
	}
	return strings.Trim(text+", "+p.Message, ", ")
}

// progressText is the progress of an execution and how old it is.
func (c *cli) progressText(e client.Execution) string {
	if e.Progress == nil {
		return ""
	}
	text := howFar(*e.Progress)
	if e.Progress.Attempt != e.Attempt {
		text += fmt.Sprintf(" (in attempt %d)", e.Progress.Attempt)
	}
	return text + " (" + age(c.now(), e.Progress.At) + " ago)"
}

func (c *cli) checkpointText(e client.Execution) string {
	if e.Checkpoint == nil || client.Final(e.State) {
		return ""
	}
	return fmt.Sprintf("%d bytes, from attempt %d (%s ago)", e.Checkpoint.Bytes, e.Checkpoint.Attempt, age(c.now(), e.Checkpoint.At))
}

func (c *cli) printEvents(ctx context.Context, api *client.Client, options client.WatchOptions) error {
	return c.watching(ctx, api, options, c.printEvent)
}

// watching calls do for each event until the watch ends or do fails, and tells where
// events are missing.
func (c *cli) watching(
	ctx context.Context, api *client.Client, options client.WatchOptions, do func(client.Event) error,
) error {
	for e, err := range api.Watch(ctx, options) {
		if err != nil {
			return err
		}
		if e.Type == client.Reset {
			fmt.Fprintln(c.err, "millrace: the server no longer has all events: some are missing here")
			continue
		}
		if err := do(e); err != nil {
			return err
		}
	}
	return nil
}

// printEvent writes one event as one line, or one YAML document.
func (c *cli) printEvent(e client.Event) error {
	var err error
	switch c.output {
	case "json":
		err = json.NewEncoder(c.out).Encode(e)
	case "yaml":
		if _, err = fmt.Fprintln(c.out, "---"); err == nil {
			err = c.document(c.out, e)
		}
	case "name":
		_, err = fmt.Fprintln(c.out, e.ID)
	default:
		at := e.Time.Local().Format("15:04:05.000")
		_, err = fmt.Fprintf(c.out, "%s  %-36s  %-16s  %s\n", at, oneLine(eventSubject(e)), shortType(e.Type), oneLine(eventDetail(e)))
	}
	return err
}
