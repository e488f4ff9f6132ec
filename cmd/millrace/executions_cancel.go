package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/client"
)

func (c *cli) cancelCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "cancel ID...",
		Short: "Ask executions to stop",
		Long: `Ask executions to stop. One that has not started is cancelled at once and never runs;
one that runs is stopped by its worker within a heartbeat. Cancelling what has ended
is an error.`,
		Example: `  millrace executions cancel 0198c0de-0000-7000-8000-000000000001 --reason 'wrong input'
  millrace executions list --label team=data --state QUEUED -o name | xargs millrace executions cancel`,
		Args: args(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			api, err := c.connect()
			if err != nil {
				return err
			}
			defer api.Close()
			var done []client.Execution
			var errs []error
			for _, id := range ids {
				e, err := api.Cancel(cmd.Context(), id, reason)
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
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the history")
	return cmd
}
