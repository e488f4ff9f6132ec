package main

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/client"
)

func (c *cli) jobsDispatchCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "dispatch",
		Short: "Show how jobs reach workers, and what is left after a switch",
		Long: `Show how jobs reach workers (jobs.dispatch_mode), how many are open, and how many are
still out in the other mode. A switch of the mode is a restart with the other setting;
it is over when this says that nothing is left.`,
		Example: `  millrace jobs dispatch
  millrace jobs dispatch --watch`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withAPI(func(api *client.Client) error {
				return c.repeat(cmd.Context(), func(ctx context.Context, w io.Writer) error {
					d, err := api.Dispatch(ctx)
					if err != nil {
						return err
					}
					if c.output == "table" || c.output == "wide" {
						return c.describeDispatch(w, d)
					}
					return render(c, w, listing[client.DispatchStatus]{
						items: []client.DispatchStatus{d}, single: true, name: func(d client.DispatchStatus) string { return d.Mode },
					})
				})
			})
		},
	}
}

func (c *cli) describeDispatch(w io.Writer, d client.DispatchStatus) error {
	colour := plain
	if d.Fault != "" {
		colour = red
	}
	about := c.factsOf(w, "Fault", colour)
	about.line("Mode", d.Mode)
	about.line("Claimable", fmt.Sprint(d.Claimable))
	about.line("Later", fmt.Sprint(d.Later))
	about.line("On hold", fmt.Sprint(d.OnHold))
	about.line("Locked", fmt.Sprint(d.Locked))
	about.line("Waiting workers", fmt.Sprint(d.Waiting))
	about.line("To be published", fmt.Sprint(d.Pending))
	if d.Rejected > 0 {
		about.line("Rejected", fmt.Sprintf("%d, see millrace outbox list", d.Rejected))
	}
	about.line("Left of the other mode", otherModeText(d))
	about.line("Fault", d.Fault)
	return about.end()
}

// otherModeText says what is still out in the mode before. Records that wait are a remnant
// only where jobs are polled.
func otherModeText(d client.DispatchStatus) string {
	switch {
	case d.Drained:
		return "nothing"
	case d.Mode == "polling":
		return fmt.Sprintf("%d jobs, %d records", d.OtherMode, d.Pending+d.Rejected)
	}
	return fmt.Sprintf("%d jobs", d.OtherMode)
}

func (c *cli) jobsLimitsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "limits",
		Short: "See and set how many jobs of a type run at once, or per second",
		Long: `See and set how many jobs of a type may be held at once, and how many may be claimed per
second, over all workers and processes. Types without limits pay nothing for them.`,
		Example: `  millrace jobs limits list
  millrace jobs limits set send-email --max-running 10 --rate 5
  millrace jobs limits unset send-email`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(c.jobsLimitsListCommand(), c.jobsLimitsSetCommand(), c.jobsLimitsUnsetCommand())
	return cmd
}

func (c *cli) jobsLimitsListCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the job types that have limits",
		Long:    `List the job types that have limits, by name. RUNNING is how many are held now.`,
		Example: `  millrace jobs limits list --watch`,
		Args:    args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withAPI(func(api *client.Client) error {
				return c.repeat(cmd.Context(), func(ctx context.Context, w io.Writer) error {
					items, err := api.JobTypes(ctx)
					if err != nil {
						return err
					}
					return render(c, w, c.jobTypeListing(items, false))
				})
			})
		},
	}
}

func (c *cli) jobTypeListing(items []client.JobTypeLimits, single bool) listing[client.JobTypeLimits] {
	type limits = client.JobTypeLimits
	now := c.now()
	return listing[limits]{
		items: items, single: single,
		name:  func(l limits) string { return l.JobType },
		empty: "no job type has limits: see millrace jobs limits set",
		columns: []column[limits]{
			{title: "TYPE", cell: func(l limits) string { return l.JobType }},
			{title: "RUNNING", cell: func(l limits) string { return fmt.Sprint(l.Running) }},
			{title: "MAX RUNNING", cell: func(l limits) string { return amountText(l.MaxRunning) }},
			{title: "RATE", cell: func(l limits) string { return perSecondText(l.Rate) }},
			{title: "BURST", cell: func(l limits) string { return amountText(l.Burst) }},
			{title: "AGE", cell: func(l limits) string {
				if l.UpdatedAt == nil {
					return "-"
				}
				return age(now, *l.UpdatedAt)
			}},
			{title: "SET BY", wide: true, cell: func(l limits) string { return dash(l.UpdatedBy) }},
		},
	}
}

func perSecondText(rate float64) string {
	if rate == 0 {
		return "-"
	}
	return strconv.FormatFloat(rate, 'g', -1, 64) + "/s"
}

func (c *cli) jobsLimitsSetCommand() *cobra.Command {
	var maxRunning, burst int
	var rate float64
	cmd := &cobra.Command{
		Use:   "set TYPE",
		Short: "Limit the jobs of a type",
		Long: `Limit the jobs of a type, in place of the limits that it has. Jobs that are held count at
once; if there are more than the new limit, none is taken away.`,
		Example: `  millrace jobs limits set send-email --max-running 10
  millrace jobs limits set send-email --rate 0.5 --burst 3`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, types []string) error {
			if maxRunning == 0 && rate == 0 {
				return usagef("say --max-running or --rate; to lift limits: millrace jobs limits unset %s", types[0])
			}
			return c.withAPI(func(api *client.Client) error {
				l, err := api.SetJobTypeLimits(cmd.Context(), types[0], maxRunning, rate, burst)
				if err != nil {
					return err
				}
				return render(c, c.out, c.jobTypeListing([]client.JobTypeLimits{l}, true))
			})
		},
	}
	cmd.Flags().IntVar(&maxRunning, "max-running", 0, "how many jobs may be held at once; 0 for any number")
	cmd.Flags().Float64Var(&rate, "rate", 0, "how many jobs may be claimed per second; 0 for any number")
	cmd.Flags().IntVar(&burst, "burst", 0, "how many of these at once after a pause; 0 for as many as the rate")
	return cmd
}

func (c *cli) jobsLimitsUnsetCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "unset TYPE",
		Aliases: []string{"rm"},
		Short:   "Lift the limits of a job type",
		Long:    `Lift the limits of a job type. One that has none is no error.`,
		Example: `  millrace jobs limits unset send-email`,
		Args:    args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, types []string) error {
			return c.withAPI(func(api *client.Client) error {
				if err := api.UnsetJobTypeLimits(cmd.Context(), types[0]); err != nil {
					return err
				}
				c.notef("jobs of type %s have no limits", types[0])
				return nil
			})
		},
	}
}
