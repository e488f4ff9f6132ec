package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/client"
)

func (c *cli) dataIndexCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "data-index",
		Short: "Look into the index of workflow instances and their tasks",
		Long: `Look into the index of workflow instances and their tasks, which the role projections
builds from the lifecycle events of Millrace's engine and of others, and look after it.`,
		Example: `  millrace data-index list --status FAULTED
  millrace data-index tasks 01KSGKY66DMS0KPPMFMMR3BJZX
  millrace data-index stats --by name,status --durations`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(
		c.instanceListCommand(), c.instanceGetCommand(), c.instanceTasksCommand(), c.statsCommand(), c.searchCommand(),
		c.placeholdersCommand(),
	)
	return cmd
}

func (c *cli) placeholdersCommand() *cobra.Command {
	var olderThan time.Duration
	var limit int
	cmd := &cobra.Command{
		Use:   "placeholders",
		Short: "List workflow instances of which only tasks are known",
		Long: `List workflow instances of which only tasks are known, the oldest first. An event of a
task that comes before any of its workflow makes a placeholder for the instance. One
that stays says that events of the workflow were lost or never sent: look for them in
the dead-letter topic (millrace dlq list --consumer data-index), or ask the engine.`,
		Example: `  millrace data-index placeholders
  millrace data-index placeholders --older-than 10m -o json`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 0 {
				return usagef("--limit: want 0 or more, not %d", limit)
			}
			if olderThan < 0 {
				return usagef("--older-than: want 0 or more, not %s", olderThan)
			}
			asked := &olderThan
			if !cmd.Flags().Changed("older-than") {
				asked = nil
			}
			api, err := c.connect()
			if err != nil {
				return err
			}
			defer api.Close()
			return c.repeat(cmd.Context(), func(ctx context.Context, w io.Writer) error {
				size := pageSize
				if limit > 0 {
					size = min(limit, pageSize)
				}
				var found []client.Placeholder
				for p, err := range api.Placeholders(ctx, asked, size) {
					if err != nil {
						return err
					}
					if found = append(found, p); len(found) == limit {
						break
					}
				}
				return render(c, w, c.placeholderListing(found))
			})
		},
	}
	cmd.Flags().DurationVar(&olderThan, "older-than", 0, "only those that have been there for so long; data_index.placeholder_after of the server unless set")
	cmd.Flags().IntVar(&limit, "limit", 50, "how many to list at most; 0 lists all")
	return cmd
}

func (c *cli) placeholderListing(found []client.Placeholder) listing[client.Placeholder] {
	now := c.now()
	return listing[client.Placeholder]{
		items: found,
		name:  func(p client.Placeholder) string { return p.InstanceID },
		empty: "no placeholders: every instance is known by events of its own",
		columns: []column[client.Placeholder]{
			{title: "INSTANCE", cell: func(p client.Placeholder) string { return p.InstanceID }},
			{title: "SINCE", cell: func(p client.Placeholder) string { return age(now, p.Since) }},
			{title: "FIRST EVENT", cell: func(p client.Placeholder) string { return age(now, p.HistoryFrom) }},
			{title: "TASKS", cell: func(p client.Placeholder) string { return fmt.Sprint(p.Tasks) }},
		},
	}
}
