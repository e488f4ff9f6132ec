package main

import (
	"context"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/client"
)

// pageSize is how many executions are asked for at once.
const pageSize = 100

func (c *cli) listCommand() *cobra.Command {
	var states, labels []string
	var filter client.Filter
	var limit int
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List executions, newest first",
		Long: `List executions, newest first. Several states select executions in any of them,
several labels those that carry all of them.`,
		Example: `  millrace executions list --state FAILED,TIMED_OUT --limit 20
  millrace executions list --label team=data -o json
  millrace executions list --state RUNNING --watch=5s`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if filter.States, err = parseStates(states); err != nil {
				return err
			}
			if filter.Labels, err = pairs("--label", labels); err != nil {
				return err
			}
			if limit < 0 {
				return usagef("--limit: want 0 or more, not %d", limit)
			}
			api, err := c.connect()
			if err != nil {
				return err
			}
			defer api.Close()
			return c.repeat(cmd.Context(), func(ctx context.Context, w io.Writer) error {
				return c.list(ctx, w, api, filter, limit)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&states, "state", nil, "only executions in this state (repeatable)")
	flags.StringArrayVar(&labels, "label", nil, "only executions with this label, name=value (repeatable)")
	flags.StringVar(&filter.User, "user", "", "only executions of this user")
	flags.StringVar(&filter.Executor, "executor", "", "only executions of this executor")
	flags.IntVar(&limit, "limit", 50, "how many to list at most; 0 lists all")
	_ = cmd.RegisterFlagCompletionFunc("state", fixed(client.States())) // the flag exists
	return cmd
}

func (c *cli) list(ctx context.Context, w io.Writer, api *client.Client, filter client.Filter, limit int) error {
	filter.PageSize = pageSize
	if limit > 0 {
		filter.PageSize = min(limit, pageSize)
	}
	var items []client.Execution
	for e, err := range api.List(ctx, filter) {
		if err != nil {
			return err
		}
		items = append(items, e)
		if len(items) == limit {
			break
		}
	}
	return render(c, w, c.executionListing(items, false))
}

// parseStates accepts states in any case.
func parseStates(texts []string) ([]string, error) {
	var states []string
	for _, text := range texts {
		state := strings.ToUpper(strings.TrimSpace(text))
		if !slices.Contains(client.States(), state) {
			hint := ""
			if s := configs.Suggest(state, client.States()); s != "" {
				hint = "; did you mean " + s + "?"
			}
			return nil, usagef("--state: %q is none of %s%s", text, strings.Join(client.States(), ", "), hint)
		}
		states = append(states, state)
	}
	return states, nil
}
