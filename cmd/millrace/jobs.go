package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/client"
)

func (c *cli) jobsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "jobs",
		Aliases: []string{"job"},
		Short:   "Look at the jobs of workflows",
		Long: `A job is a service task that is offered to workers. Workers claim jobs by the API; these
commands look at them and claim nothing.`,
		Example: `  millrace jobs list --status LOCKED --type credit-score
  millrace jobs list --instance 0198c0de-0000-7000-8000-000000000001 -o wide`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(c.jobsListCommand(), c.jobsGetCommand(), c.jobsDispatchCommand(), c.jobsLimitsCommand())
	return cmd
}

func (c *cli) jobsListCommand() *cobra.Command {
	var filter client.JobQuery
	var limit int
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List jobs, those of the youngest instances first",
		Long: `List jobs, those of the youngest instances first, in all statuses unless --status is
given.`,
		Example: `  millrace jobs list --status UNLOCKED,LOCKED
  millrace jobs list --worker worker-1 --watch`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := chosenOf("--status", filter.Statuses, client.JobStatuses()); err != nil {
				return err
			}
			if limit < 0 {
				return usagef("--limit: want 0 or more, not %d", limit)
			}
			filter.PageSize = pageOf(limit)
			return c.withAPI(func(api *client.Client) error {
				return c.repeat(cmd.Context(), func(ctx context.Context, w io.Writer) error {
					items, err := firstOf(api.Jobs(ctx, filter), limit)
					if err != nil {
						return err
					}
					return render(c, w, c.jobListing(items, false))
				})
			})
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&filter.Statuses, "status", nil, "only jobs with this status (repeatable)")
	flags.StringVar(&filter.JobType, "type", "", "only jobs of this type")
	flags.StringVar(&filter.InstanceID, "instance", "", "only jobs of this instance")
	flags.StringVar(&filter.WorkerID, "worker", "", "only jobs that this worker holds, or held last")
	flags.IntVar(&limit, "limit", 50, "how many to list at most; 0 lists all")
	_ = cmd.RegisterFlagCompletionFunc("status", fixed(client.JobStatuses())) // the flag exists
	return cmd
}

func (c *cli) jobListing(items []client.Job, single bool) listing[client.Job] {
	now := c.now()
	return listing[client.Job]{
		items: items, single: single,
		name:  func(j client.Job) string { return j.ID },
		empty: "no jobs",
		columns: []column[client.Job]{
			{title: "ID", cell: func(j client.Job) string { return j.ID }},
			{title: "STATUS", cell: jobStatusText, paint: jobColour},
			{title: "TYPE", cell: func(j client.Job) string { return j.JobType }},
			{title: "STEP", cell: func(j client.Job) string { return j.StepID }},
			{title: "ATTEMPT", cell: func(j client.Job) string { return fmt.Sprint(j.Attempt) }},
			{title: "RETRIES LEFT", cell: func(j client.Job) string { return fmt.Sprint(j.RetriesRemaining) }},
			{title: "WORKER", cell: func(j client.Job) string { return dash(j.WorkerID) }},
			{title: "LEASE", cell: func(j client.Job) string { return leaseText(now, j) }},
			{title: "AGE", cell: func(j client.Job) string { return age(now, j.CreatedAt) }},
			{title: "INSTANCE", wide: true, cell: func(j client.Job) string { return j.InstanceID }},
			{title: "PRIORITY", wide: true, cell: func(j client.Job) string { return fmt.Sprint(j.Priority) }},
			{title: "EXPIRED LEASES", wide: true, cell: func(j client.Job) string { return fmt.Sprint(j.ExpiredLeases) }},
		},
	}
}

func jobStatusText(j client.Job) string {
	if j.OnHold {
		return j.Status + " (on hold)"
	}
	return j.Status
}

func jobColour(j client.Job) int {
	switch j.Status {
	case "FAILED":
		return red
	case "COMPLETED":
		return green
	case "LOCKED":
		return blue
	default:
		return plain
	}
}

// leaseText says how long a job is still held, or when it may run.
func leaseText(now time.Time, j client.Job) string {
	switch {
	case j.Status == "LOCKED" && j.LockExpiresAt != nil && j.LockExpiresAt.After(now):
		return span(j.LockExpiresAt.Sub(now))
	case j.Status == "LOCKED" && j.LockExpiresAt != nil:
		return "over"
	case j.Status == "UNLOCKED" && j.RunAt != nil && j.RunAt.After(now):
		return "runs in " + span(j.RunAt.Sub(now))
	}
	return "-"
}

func (c *cli) jobsGetCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "get ID",
		Aliases: []string{"show"},
		Short:   "Show one job in full",
		Long:    `Show one job: where it is, who holds it, and what its worker gets.`,
		Example: `  millrace jobs get 0198c0de-0000-7000-8000-00000000000a`,
		Args:    args(cobra.ExactArgs(1)),
		RunE: c.showing(func(ctx context.Context, api *client.Client, id string, w io.Writer) error {
			j, err := api.Job(ctx, id)
			if err != nil {
				return err
			}
			if c.output == "table" || c.output == "wide" {
				return c.describeJob(w, j)
			}
			return render(c, w, c.jobListing([]client.Job{j}, true))
		}),
	}
}

func (c *cli) describeJob(w io.Writer, j client.Job) error {
	about := c.factsOf(w, "Status", jobColour(j))
	about.line("ID", j.ID)
	about.line("Status", jobStatusText(j))
	about.line("Type", j.JobType)
	about.line("Instance", j.InstanceID)
	about.line("Step", j.StepID)
	about.line("Attempt", fmt.Sprintf("%d, %d retries left", j.Attempt, j.RetriesRemaining))
	if j.ExpiredLeases > 0 {
		about.line("Expired leases", fmt.Sprint(j.ExpiredLeases))
	}
	about.line("Worker", j.WorkerID)
	if j.Token > 0 {
		about.line("Token", fmt.Sprint(j.Token))
	}
	about.line("Locked", c.timeText(j.LockedAt))
	if j.Status == "LOCKED" {
		about.line("Lease until", c.timeText(j.LockExpiresAt))
	}
	about.line("Variables", string(j.Variables))
	about.line("Created", c.timeText(&j.CreatedAt))
	if j.RunAt != nil && j.RunAt.After(c.now()) {
		about.line("Runs", c.timeText(j.RunAt))
	}
	about.line("Finished", c.timeText(j.FinishedAt))
	return about.end()
}
