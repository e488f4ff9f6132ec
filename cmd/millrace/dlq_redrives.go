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

// redriveStates are the states of a redrive of many.
func redriveStates() []string { return []string{"RUNNING", "PAUSED", "STOPPED", "DONE", "CANCELLED"} }

func (c *cli) dlqRedrivesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "redrives",
		Short: "Follow, pause, resume and cancel redrives of many dead letters",
		Long: `A redrive of the dead letters that flags select is carried out by the servers. It goes
on where it was when they are restarted. It STOPS by itself when more goes wrong than
--stop-on-errors allows; resume it once the cause is mended.`,
		Example: `  millrace dlq redrives list
  millrace dlq redrives get 0198c0de-0000-7000-8000-000000000001 --watch
  millrace dlq redrives letters 0198c0de-0000-7000-8000-000000000001 --bad`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(c.redrivesListCommand(), c.redrivesGetCommand(), c.redrivesLettersCommand(),
		c.redriveControl("pause", "Let a redrive wait"),
		c.redriveControl("resume", "Let a redrive go on that was paused or has stopped"),
		c.redriveControl("cancel", "End a redrive; what is redriven stays so"))
	return cmd
}

func (c *cli) redrivesListCommand() *cobra.Command {
	return listCommand(c, sessionList[client.RedriveJob]{
		noun: "redrives", command: "millrace dlq redrives", states: redriveStates(), example: "running,stopped",
		fetch: (*client.Client).RedriveJobs, listing: c.redriveListing,
	})
}

func (c *cli) redriveListing(jobs []client.RedriveJob, single bool) listing[client.RedriveJob] {
	now := c.now()
	return listing[client.RedriveJob]{
		items: jobs, single: single,
		name:  func(j client.RedriveJob) string { return j.ID },
		empty: "no redrives",
		columns: []column[client.RedriveJob]{
			{title: "ID", cell: func(j client.RedriveJob) string { return j.ID }},
			{title: "STATE", cell: func(j client.RedriveJob) string { return j.State }, paint: redriveColour},
			{title: "MATCHED", cell: func(j client.RedriveJob) string { return fmt.Sprint(j.Matched) }},
			{title: "REDRIVEN", cell: func(j client.RedriveJob) string { return fmt.Sprint(j.Redriven) }},
			{title: "REFUSED", cell: func(j client.RedriveJob) string { return fmt.Sprint(j.Refused) }},
			{title: "FAILED AGAIN", cell: func(j client.RedriveJob) string { return fmt.Sprint(j.FailedAgain) }},
			{title: "AGE", cell: func(j client.RedriveJob) string { return age(now, j.CreatedAt) }},
			{title: "BY", cell: func(j client.RedriveJob) string { return j.Actor }},
			{title: "LETTERS", cell: func(j client.RedriveJob) string { return shorten(filterText(j.Filter), c.output == "wide") }},
			{title: "NOTE", wide: true, cell: func(j client.RedriveJob) string { return dash(j.Note) }},
		},
	}
}

func redriveColour(j client.RedriveJob) int {
	switch j.State {
	case "STOPPED":
		return red
	case "DONE":
		return green
	default:
		return plain
	}
}

// filterText says which letters a redrive is about.
func filterText(f client.DeadLetterFilter) string {
	var parts []string
	for _, p := range [][2]string{
		{"topic", f.Topic}, {"consumer", f.Consumer}, {"type", f.Type}, {"class", f.Class}, {"fingerprint", f.Fingerprint}, {"key", f.Key},
		{"after", rfc3339(f.FailedAfter)}, {"before", rfc3339(f.FailedBefore)},
	} {
		if p[1] != "" {
			parts = append(parts, p[0]+"="+p[1])
		}
	}
	if len(parts) == 0 {
		return "all"
	}
	return strings.Join(parts, " ")
}

func rfc3339(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

func (c *cli) redrivesGetCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "get ID",
		Aliases: []string{"show"},
		Short:   "Show how far a redrive is",
		Long:    `Show how far a redrive is, what was asked for, and who did what about it.`,
		Example: `  millrace dlq redrives get 0198c0de-0000-7000-8000-000000000001 --watch`,
		Args:    args(cobra.ExactArgs(1)),
		RunE: c.showing(func(ctx context.Context, api *client.Client, id string, w io.Writer) error {
			j, err := api.RedriveJob(ctx, id)
			if err != nil {
				return err
			}
			if c.output == "table" || c.output == "wide" {
				return c.describeRedrive(w, j)
			}
			return render(c, w, c.redriveListing([]client.RedriveJob{j}, true))
		}),
	}
}

func (c *cli) describeRedrive(w io.Writer, j client.RedriveJob) error {
	about := c.factsOf(w, "State", redriveColour(j))
	number := func(name string, n float64) {
		if n != 0 {
			about.line(name, fmt.Sprint(n))
		}
	}
	about.line("ID", j.ID)
	about.line("State", j.State)
	about.line("Note", j.Note)
	about.line("Letters", filterText(j.Filter))
	about.line("Progress", progressText(j))
	number("Maximum", float64(j.Max))
	number("Rate", j.Rate)
	number("Stops above", j.StopOnErrors)
	if j.NewID {
		about.line("Event ids", "new ones")
	}
	about.line("Created", c.timeText(&j.CreatedAt))
	about.line("Finished", c.timeText(j.FinishedAt))
	for _, a := range j.Actions {
		a.RedriveID = ""
		about.line("Action", c.actionText(a))
	}
	return about.end()
}

func progressText(j client.RedriveJob) string {
	return fmt.Sprintf("%d of %d redriven, %d refused, %d failed again", j.Redriven, j.Matched, j.Refused, j.FailedAgain)
}

func (c *cli) redrivesLettersCommand() *cobra.Command {
	var bad bool
	var limit int
	cmd := &cobra.Command{
		Use:     "letters ID",
		Short:   "List what became of the letters of a redrive",
		Long:    `List what became of the letters of a redrive, from the oldest letter on.`,
		Example: `  millrace dlq redrives letters 0198c0de-0000-7000-8000-000000000001 --bad`,
		Args:    args(cobra.ExactArgs(1)),
		RunE: c.showing(func(ctx context.Context, api *client.Client, id string, w io.Writer) error {
			items, err := firstOf(api.RedriveLetters(ctx, id, bad, pageOf(limit)), limit)
			if err != nil {
				return err
			}
			return render(c, w, c.redriveLetterListing(items))
		}),
	}
	cmd.Flags().BoolVar(&bad, "bad", false, "only letters that were refused or failed again")
	cmd.Flags().IntVar(&limit, "limit", 50, "how many to list at most; 0 lists all")
	return cmd
}

func (c *cli) redriveLetterListing(items []client.RedriveLetter) listing[client.RedriveLetter] {
	now := c.now()
	return listing[client.RedriveLetter]{
		items: items,
		name:  func(l client.RedriveLetter) string { return l.ID },
		empty: "no letters",
		columns: []column[client.RedriveLetter]{
			{title: "ID", cell: func(l client.RedriveLetter) string { return l.ID }},
			{title: "OUTCOME", cell: func(l client.RedriveLetter) string {
				switch {
				case !l.Redriven:
					return "refused"
				case l.FailedAgain:
					return "failed again"
				default:
					return "redriven"
				}
			}},
			{title: "AGE", cell: func(l client.RedriveLetter) string { return age(now, l.At) }},
			{title: "FAILED AS", cell: func(l client.RedriveLetter) string { return dash(l.FailedAs) }},
			{title: "PROBLEM", cell: func(l client.RedriveLetter) string { return shorten(dash(l.Problem), c.output == "wide") }},
		},
	}
}

// redriveControl is one of the commands that change the state of a redrive.
func (c *cli) redriveControl(verb, short string) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:     verb + " ID",
		Short:   short,
		Long:    short + ".",
		Example: "  millrace dlq redrives " + verb + " 0198c0de-0000-7000-8000-000000000001",
		Args:    args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return c.withAPI(func(api *client.Client) error {
				j, err := api.ControlRedrive(cmd.Context(), ids[0], verb, reason)
				if err != nil {
					return err
				}
				return render(c, c.out, c.redriveListing([]client.RedriveJob{j}, true))
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the audit")
	return cmd
}

// startRedrive begins a redrive, and follows it if asked to.
func (c *cli) startRedrive(ctx context.Context, api *client.Client, order client.Redrive, wait bool) error {
	j, err := api.StartRedrive(ctx, order)
	if err != nil {
		return err
	}
	if wait {
		if j, err = c.followRedrive(ctx, api, j); err != nil {
			return err
		}
	} else if c.output == "table" || c.output == "wide" {
		c.notef("redriving %d letters; follow it with: millrace dlq redrives get %s --watch", j.Matched, j.ID)
	}
	if err := render(c, c.out, c.redriveListing([]client.RedriveJob{j}, true)); err != nil {
		return err
	}
	if wait && (j.State != "DONE" || j.Refused+j.FailedAgain > 0) {
		return &exitError{code: exitFailure}
	}
	return nil
}

// followRedrive notes the progress of a redrive until it goes on no further.
func (c *cli) followRedrive(ctx context.Context, api *client.Client, j client.RedriveJob) (client.RedriveJob, error) {
	c.notef("redrive %s of %d letters", j.ID, j.Matched)
	return follow(ctx, c, j, following[client.RedriveJob]{
		noun: "redrive", id: j.ID, status: "millrace dlq redrives get " + j.ID,
		fetch:  func(ctx context.Context) (client.RedriveJob, error) { return api.RedriveJob(ctx, j.ID) },
		goesOn: client.RedriveJob.Running, progress: progressText, shown: progressText(j),
	})
}
