package main

import (
	"context"
	"encoding/json"
	"fmt"
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
a gap. With -o json each event is one line.`,
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
			return c.printEvents(cmd.Context(), api, options)
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

func (c *cli) printEvents(ctx context.Context, api *client.Client, options client.WatchOptions) error {
	for e, err := range api.Watch(ctx, options) {
		if err != nil {
			return err
		}
		if e.Type == client.Reset {
			fmt.Fprintln(c.err, "millrace: the server no longer has all events: some are missing here")
			continue
		}
		if err := c.printEvent(e); err != nil {
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
		_, err = fmt.Fprintf(c.out, "%s  %-36s  %-16s  %s\n", at, oneLine(e.Subject), shortType(e.Type), oneLine(eventDetail(e)))
	}
	return err
}
