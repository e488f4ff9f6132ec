package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/client"
)

func (c *cli) projectionsRebuildCommand() *cobra.Command {
	var order client.NewRebuild
	var noWait bool
	cmd := &cobra.Command{
		Use:   "rebuild PROJECTION",
		Short: "Build the tables of a projection from its history anew",
		Long: `Build the tables of a projection from its history anew, beside the old ones; compare
them, list the differences, and swap them in one transaction. Consumers and readers go
on meanwhile, and nothing that happens meanwhile is lost. Rows that are older than the
event log are carried over.

The servers do it, and go on where it was when they are restarted: interrupting this
command only stops watching. To end it, see millrace projections cancel.`,
		Example: `  millrace projections rebuild data-index
  millrace projections rebuild data-index --dry-run
  millrace projections rebuild executions-view --from kafka --keep-old 24h`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, names []string) error {
			order.Mode = "rebuild"
			return c.startRebuild(cmd.Context(), names[0], order, !noWait)
		},
	}
	rebuildFlags(cmd, &order, &noWait)
	cmd.Flags().StringVar(&order.KeepOld, "keep-old", "", "keep the replaced tables for so long, under names that end in __replaced")
	cmd.Flags().BoolVar(&order.Force, "force", false, "also when the disk may be too small, or more than a tenth of the rows would be gone")
	return cmd
}

func (c *cli) projectionsVerifyCommand() *cobra.Command {
	var order client.NewRebuild
	var noWait bool
	cmd := &cobra.Command{
		Use:   "verify PROJECTION",
		Short: "Compare the tables of a projection with its history",
		Long: `Compare the tables of a projection with what its history makes of them, at one place in
the history, and change nothing. The exit code is 1 when they differ.`,
		Example: `  millrace projections verify data-index && echo all is well`,
		Args:    args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, names []string) error {
			order.Mode = "verify"
			return c.startRebuild(cmd.Context(), names[0], order, !noWait)
		},
	}
	rebuildFlags(cmd, &order, &noWait)
	cmd.Flags().BoolVar(&order.Force, "force", false, "also when the disk may be too small")
	return cmd
}

func rebuildFlags(cmd *cobra.Command, order *client.NewRebuild, noWait *bool) {
	cmd.Flags().StringVar(&order.From, "from", "event_log", "the history that is read: event_log or kafka")
	cmd.Flags().BoolVar(&order.DryRun, "dry-run", false, "say what it would need and change nothing")
	cmd.Flags().BoolVar(noWait, "no-wait", false, "do not wait until it has ended")
	cmd.Flags().StringVar(&order.Reason, "reason", "", "why, for the audit")
	_ = cmd.RegisterFlagCompletionFunc("from", fixed([]string{"event_log", "kafka"})) // the flag exists
}

// startRebuild begins a rebuild or a comparison, says before what it will need, and
// follows it unless told not to.
func (c *cli) startRebuild(ctx context.Context, projection string, order client.NewRebuild, wait bool) error {
	if order.From != "event_log" && order.From != "kafka" {
		return usagef("--from: %q is neither event_log nor kafka", order.From)
	}
	if _, err := time.ParseDuration(order.KeepOld); order.KeepOld != "" && err != nil {
		return usagef("--keep-old: %q is no duration such as 24h", order.KeepOld)
	}
	return c.withAPI(func(api *client.Client) error {
		estimate, err := api.EstimateRebuild(ctx, projection, order)
		if err != nil {
			return err
		}
		if order.DryRun {
			return c.showEstimate(estimate)
		}
		c.notef("%s", estimateText(estimate))
		r, err := api.StartRebuild(ctx, projection, order)
		if err != nil {
			return err
		}
		if !wait {
			c.notef("follow it with: millrace projections status %s %s --watch", projection, r.ID)
			return render(c, c.out, c.rebuildListing([]client.Rebuild{r}, true))
		}
		if r, err = c.followRebuild(ctx, api, r); err != nil {
			return err
		}
		if err := render(c, c.out, c.rebuildListing([]client.Rebuild{r}, true)); err != nil {
			return err
		}
		return c.judgeRebuild(r)
	})
}

// judgeRebuild turns what came of it into an exit code.
func (c *cli) judgeRebuild(r client.Rebuild) error {
	if r.Differences() > 0 {
		c.notef("see them with: millrace projections differences %s %s", r.Projection, r.ID)
	}
	if r.State != "DONE" || r.Mode == "verify" && r.Differences() > 0 {
		return &exitError{code: exitFailure}
	}
	return nil
}

func (c *cli) showEstimate(e client.RebuildEstimate) error {
	if c.output == "json" || c.output == "yaml" {
		return c.document(c.out, e)
	}
	_, err := fmt.Fprintln(c.out, estimateText(e))
	return err
}

func estimateText(e client.RebuildEstimate) string {
	text := fmt.Sprintf("about %d records are read, and about %s more of disk are needed meanwhile", e.Records, megabytes(e.Bytes))
	if e.FreeBytes != nil {
		text += fmt.Sprintf(", of %s that are free", megabytes(*e.FreeBytes))
	}
	return text
}

// followRebuild shows the progress of a rebuild until it has ended.
func (c *cli) followRebuild(ctx context.Context, api *client.Client, r client.Rebuild) (client.Rebuild, error) {
	// What has ended is printed by the caller.
	progress := func(r client.Rebuild) string {
		if r.Ended() {
			return ""
		}
		return rebuildProgress(r)
	}
	shown := progress(r)
	if shown != "" {
		c.notef("%s", shown)
	}
	return follow(ctx, c, r, following[client.Rebuild]{
		noun: r.Mode, id: r.ID, status: "millrace projections status " + r.Projection + " " + r.ID,
		fetch:  func(ctx context.Context) (client.Rebuild, error) { return api.Rebuild(ctx, r.Projection, r.ID) },
		goesOn: func(r client.Rebuild) bool { return !r.Ended() }, progress: progress, shown: shown,
	})
}

// rebuildProgress is a line that says how far a rebuild is:
// "loading      [#######.....................] 25%  250000/1000000  31000/s  about 24s".
func rebuildProgress(r client.Rebuild) string {
	share := 1.0
	if r.Total > 0 {
		share = min(1, float64(r.Done)/float64(r.Total))
	}
	text := fmt.Sprintf("%-12s %s %s  %d/%d", strings.ReplaceAll(r.Phase, "_", " "), bar(share), percent(share), r.Done, r.Total)
	if r.PerSecond > 0 {
		text += "  " + perSecond(r.PerSecond)
	}
	if r.Remaining > 0 {
		text += "  about " + span(time.Duration(r.Remaining*float64(time.Second)))
	}
	if r.Note != "" {
		text += "  " + r.Note
	}
	return text
}

func (c *cli) rebuildListing(items []client.Rebuild, single bool) listing[client.Rebuild] {
	now := c.now()
	return listing[client.Rebuild]{
		items: items, single: single,
		name:  func(r client.Rebuild) string { return r.ID },
		empty: "no rebuilds",
		columns: []column[client.Rebuild]{
			{title: "ID", cell: func(r client.Rebuild) string { return r.ID }},
			{title: "MODE", cell: func(r client.Rebuild) string { return r.Mode }},
			{title: "STATE", cell: func(r client.Rebuild) string { return r.State }, paint: rebuildColour},
			{title: "PHASE", cell: func(r client.Rebuild) string { return r.Phase }},
			{title: "RECORDS", cell: func(r client.Rebuild) string { return fmt.Sprintf("%d/%d", r.Done, r.Total) }},
			{title: "DIFFERENCES", cell: differencesText},
			{title: "AGE", cell: func(r client.Rebuild) string { return age(now, r.CreatedAt) }},
			{title: "BY", cell: func(r client.Rebuild) string { return r.Actor }},
			{title: "FROM", wide: true, cell: func(r client.Rebuild) string { return r.From }},
			{title: "NOTE", cell: func(r client.Rebuild) string { return shorten(dash(r.Note), c.output == "wide") }},
		},
	}
}

func rebuildColour(r client.Rebuild) int {
	switch r.State {
	case "FAILED":
		return red
	case "DONE":
		return green
	case "PAUSED":
		return yellow
	default:
		return plain
	}
}

// differencesText says what a comparison found.
func differencesText(r client.Rebuild) string {
	switch {
	case !r.Compared():
		return "-"
	case r.Differences() == 0:
		return "none"
	}
	return fmt.Sprintf("%d missing, %d surplus, %d different", *r.Missing, *r.Surplus, *r.Different)
}

func (c *cli) describeRebuild(w io.Writer, r client.Rebuild) error {
	about := c.factsOf(w, "State", rebuildColour(r))
	about.line("ID", r.ID)
	about.line("Projection", r.Projection)
	about.line("Mode", r.Mode+" from "+r.From)
	about.line("State", r.State)
	about.line("Progress", rebuildProgress(r))
	about.line("Differences", differencesText(r))
	if r.Rows != nil && r.RowsBuilt != nil {
		about.line("Rows", fmt.Sprintf("%d in the tables, %d by the history", *r.Rows, *r.RowsBuilt))
	}
	if r.Carried != nil && r.Horizon != nil {
		about.line("Carried over", fmt.Sprintf("%d rows that are older than %s", *r.Carried, c.timeText(r.Horizon)))
	}
	if r.Skipped > 0 {
		about.line("Skipped", fmt.Sprintf("%d records, first %s", r.Skipped, r.SkippedFirst))
	}
	about.line("By", r.Actor)
	about.line("Reason", r.Reason)
	about.line("Created", c.timeText(&r.CreatedAt))
	about.line("Finished", c.timeText(r.FinishedAt))
	about.line("Old until", c.timeText(r.OldUntil))
	return about.end()
}
