package main

import (
	"github.com/spf13/cobra"
)

func (c *cli) queueCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "queue",
		Short: "Look at what waits for admission, hold it, resume it",
		Long:  `Look at what waits for admission; put it on hold and resume it.`,
		Example: `  millrace queue holds
  millrace queue hold --class gpu --reason 'driver update until noon'
  millrace queue resume --class gpu`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(c.holdCommand(), c.resumeCommand(), c.holdsCommand())
	return cmd
}
