package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/topics"
)

func (c *cli) eventsGroup() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Follow what happens, and search what has happened",
		Long: `Follow the events of executions and workflows as they happen, or search those that are
recorded: the event log keeps them for retention.events. The history of one execution is
shown by "millrace executions events"; records of any topic, as they lie at the broker,
by "millrace topics tail".`,
		Example: `  millrace events tail --user ada
  millrace events search --type failed --from 24h`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(c.eventsTailCommand(), c.eventsSearchCommand())
	return cmd
}

func (c *cli) eventsTailCommand() *cobra.Command {
	var options client.WatchOptions
	var types []string
	var limit int
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Print events as they happen",
		Long: `Print the events of executions, or those of workflows, from now on until interrupted.
The server sends only what the filters select; each may be repeated, and any of its
values will do. A lost connection is taken up again without a gap, also by another
server. With -o json each event is one line.

When it is interrupted it says with which --after the next one goes on.`,
		Example: `  millrace events tail
  millrace events tail --user ada --type failed --type timed_out
  millrace events tail --topic flow-lifecycle-out --type 'io.serverlessworkflow.workflow.*' -o json
  millrace events tail --instance 01JAB --limit 10`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 0 {
				return usagef("--limit: want 0 or more, not %d", limit)
			}
			for _, t := range types {
				options.Types = append(options.Types, longType(t))
			}
			return c.tailEvents(cmd.Context(), options, limit)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&options.Topic, "topic", "", "execution_events (the default) or flow-lifecycle-out (the default with --instance)")
	flags.StringSliceVar(&options.Executions, "execution", nil, "only events of this execution (repeatable)")
	flags.StringSliceVar(&options.Instances, "instance", nil, "only events of this workflow instance (repeatable)")
	flags.StringSliceVar(&options.Users, "user", nil, "only events of executions of this user (repeatable)")
	flags.StringSliceVar(&types, "type", nil, "only events of this type: in full, short as in failed, or with a * at its end (repeatable)")
	flags.StringVar(&options.LastEventID, "after", "", "go on behind the event with this cursor")
	flags.IntVar(&limit, "limit", 0, "stop after this many events; 0 never stops")
	_ = cmd.RegisterFlagCompletionFunc("topic", fixed([]string{string(topics.ExecutionEvents), string(topics.FlowLifecycle)})) // the flag exists
	return cmd
}

// tailEvents prints events until it is interrupted or has printed limit of them.
func (c *cli) tailEvents(ctx context.Context, options client.WatchOptions, limit int) error {
	api, err := c.connect()
	if err != nil {
		return err
	}
	defer api.Close()
	options.OnReconnect = func(err error, wait time.Duration) {
		c.notef("%s; connecting again in %s", err, span(wait))
	}
	printed, last := 0, ""
	err = c.watching(ctx, api, options, func(e client.Event) error {
		if err := c.printEvent(e); err != nil {
			return err
		}
		last = e.Cursor
		if printed++; printed == limit {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	if last != "" && err == nil {
		fmt.Fprintf(c.err, "millrace: go on with --after %s\n", last)
	}
	return err
}
