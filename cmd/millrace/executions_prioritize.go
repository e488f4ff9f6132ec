package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/client"
)

func (c *cli) prioritizeCommand() *cobra.Command {
	var priority int
	var reason string
	cmd := &cobra.Command{
		Use:   "prioritize ID... --priority N",
		Short: "Change the priority of executions that wait",
		Long: `Change the priority of executions that have not been admitted. What they have waited
still counts: each is placed as if it had been submitted with this priority.
One that has been admitted, or has ended, is an error.`,
		Example: `  millrace executions prioritize 0198c0de-0000-7000-8000-000000000001 --priority 5
  millrace executions list --label team=data --state QUEUED -o name | xargs millrace executions prioritize --priority 1`,
		Args: args(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			if priority < 1 || priority > 5 {
				return usagef("--priority: want 1 to 5, where 5 is the most urgent")
			}
			return c.withAPI(func(api *client.Client) error {
				var done []client.Execution
				var errs []error
				for _, id := range ids {
					e, err := api.Reprioritize(cmd.Context(), id, priority, reason)
					if err != nil {
						errs = append(errs, err)
						continue
					}
					done = append(done, e)
				}
				if len(done) > 0 {
					errs = append(errs, render(c, c.out, c.executionListing(done, len(ids) == 1)))
				}
				return errors.Join(errs...)
			})
		},
	}
	cmd.Flags().IntVar(&priority, "priority", 0, "the new priority, 1 to 5; 5 is the most urgent")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the history")
	return cmd
}
