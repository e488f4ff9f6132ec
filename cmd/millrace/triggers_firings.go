package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/internal/schedule"
	"github.com/millrace/millrace/internal/trigger"
)

// firingStatuses are what becomes of firings.
func firingStatuses() []string { return []string{"due", "started", "refused", "skipped", "missed"} }

func (c *cli) triggersFiringsCommand() *cobra.Command {
	var limit int
	var status string
	cmd := &cobra.Command{
		Use:   "firings ID",
		Short: "List when a trigger by time has fired, and what that started",
		Long: `List when a trigger by time has fired, the latest first, and what that started. LATE is
how long after it was due a time was noticed. Of those with status due it is not known
yet what becomes of them, and CAUSE says what they wait for.`,
		Example: `  millrace triggers firings nightly-report
  millrace triggers firings nightly-report --status skipped -o wide`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return c.listing(cmd.Context(), limit, func(ctx context.Context, api *client.Client, w io.Writer) error {
				items, err := firstOf(api.Firings(ctx, ids[0], status, pageOf(limit)), limit)
				if err != nil {
					return err
				}
				return render(c, w, c.firingListing(items))
			})
		},
	}
	cmd.Flags().StringVar(&status, "status", "", "those of this status: due, started, refused, skipped or missed")
	_ = cmd.RegisterFlagCompletionFunc("status", fixed(firingStatuses())) // the flag exists
	addLimit(cmd, &limit)
	return cmd
}

func (c *cli) firingListing(items []client.Firing) listing[client.Firing] {
	type firing = client.Firing
	now, wide := c.now(), c.output == "wide"
	return listing[firing]{
		items: items,
		name:  func(f firing) string { return dash(f.TargetID) },
		empty: "it has not fired yet: millrace triggers next tells when it will",
		columns: []column[firing]{
			{title: "SCHEDULED", cell: scheduledText},
			{title: "STATUS", cell: func(f firing) string { return f.Status }, paint: firingColour},
			{title: "LATE", cell: func(f firing) string { return span(max(f.FiredAt.Sub(f.DueAt), 0)) }},
			{title: "STARTED", cell: startedText},
			{title: "TRIES", cell: func(f firing) string { return fmt.Sprint(f.Attempts) }},
			{title: "NEXT", cell: func(f firing) string { return nextText(now, f.NextTry) }},
			{title: "CAUSE", cell: func(f firing) string { return triggerCause(f.Cause, wide) }},
			{title: "BY", wide: true, cell: func(f firing) string { return dash(f.By) }},
			{title: "FIRED", wide: true, cell: func(f firing) string { return f.FiredAt.UTC().Format(time.RFC3339) }},
		},
	}
}

// scheduledText is the time of a firing; of several that were missed, the first and how many
// there were.
func scheduledText(f client.Firing) string {
	at := f.ScheduledAt.UTC().Format(time.RFC3339)
	if f.FirstAt == nil || f.Count < 2 {
		return at
	}
	more := ""
	if f.More {
		more = "+"
	}
	return fmt.Sprintf("%s (%d%s from %s)", at, f.Count, more, f.FirstAt.UTC().Format(time.RFC3339))
}

func startedText(f client.Firing) string {
	if f.TargetID == "" {
		return "-"
	}
	return f.Kind + " " + f.TargetID
}

func firingColour(f client.Firing) int {
	switch {
	case f.Status == "refused":
		return red
	case f.Status == "skipped", f.Status == "missed", f.Status == "due" && f.Cause != nil:
		return yellow
	case f.Status == "started":
		return green
	default:
		return plain
	}
}

func (c *cli) triggersNextCommand() *cobra.Command {
	var count int
	var after, file string
	cmd := &cobra.Command{
		Use:   "next ID",
		Short: "Show when a trigger by time fires next",
		Long: `Show the next times of a trigger by time, whether it is enabled or not. DUE is later by
the part of the jitter that the trigger has. With --file those of a definition that was
not applied are shown, which needs no server; all of a file where no ID is given.`,
		Example: `  millrace triggers next nightly-report
  millrace triggers next nightly-report --count 3 --after 2026-12-24T00:00:00Z
  millrace triggers next --file nightly-report.yaml`,
		Args: args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			from, err := c.momentFlag("--after", after)
			switch {
			case err != nil:
				return err
			case count < 1 || count > maxTimes:
				return usagef("--count: want 1 to %d, not %d", maxTimes, count)
			case file != "":
				return c.nextOfFile(file, ids, count, from)
			case len(ids) == 0:
				return usagef("name a trigger, or a file with --file")
			}
			return c.withAPI(func(api *client.Client) error {
				times, err := api.NextTimes(cmd.Context(), ids[0], count, from)
				if err != nil {
					return err
				}
				return render(c, c.out, c.timesListing(timesOf(ids[0], times), false))
			})
		},
	}
	cmd.Flags().IntVar(&count, "count", 10, "how many times")
	cmd.Flags().StringVar(&after, "after", "", "show those after this time, such as 2026-12-24T00:00:00Z; now without it")
	cmd.Flags().StringVarP(&file, "file", "f", "", "show those of the triggers in this file; - is standard input")
	return cmd
}

// maxTimes is how many times are shown at once.
const maxTimes = 1000

func (c *cli) momentFlag(flag, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, usagef("%s: want a time such as 2026-12-24T00:00:00Z, not %q", flag, text)
	}
	return at, nil
}

// nextOfFile shows the times of definitions. What their jitter makes of them is not known
// before they are applied.
func (c *cli) nextOfFile(name string, ids []string, count int, after time.Time) error {
	f, err := c.readTriggerFile(name)
	if err != nil {
		return err
	}
	if trigger.Refused(f.faults) != nil {
		if err := printRemarks(c.err, []*triggerFile{f}); err != nil {
			return err
		}
		return &exitError{code: exitFailure}
	}
	if after.IsZero() {
		after = c.now()
	}
	var items []timedTrigger
	shown := 0
	for _, d := range f.documents {
		if d.Definition.Schedule == nil || len(ids) > 0 && d.Definition.ID != ids[0] {
			continue
		}
		plan, err := schedule.NewPlan(*d.Definition.Schedule, "")
		if err != nil {
			return err
		}
		times := client.ScheduledTimes{Zone: d.Definition.Schedule.TimeZone}
		for _, at := range plan.Upcoming(after, count) {
			times.Times = append(times.Times, client.ScheduledTime{ScheduledAt: at, DueAt: at})
		}
		items = append(items, timesOf(d.Definition.ID, times)...)
		shown++
	}
	if shown == 0 {
		return &notFoundError{name + ": there is no such trigger that goes by time"}
	}
	return render(c, c.out, c.timesListing(items, shown > 1))
}

// timedTrigger is a time with whose it is.
type timedTrigger struct {
	Trigger string `json:"trigger"`
	client.ScheduledTime
	// Local is the time as the clock of the schedule's zone shows it.
	Local string `json:"local"`
}

func timesOf(id string, times client.ScheduledTimes) []timedTrigger {
	zone, err := time.LoadLocation(times.Zone)
	if err != nil { // a zone that only the server knows
		zone = time.UTC
	}
	items := make([]timedTrigger, len(times.Times))
	for i, t := range times.Times {
		items[i] = timedTrigger{id, t, t.ScheduledAt.In(zone).Format("Mon 2006-01-02 15:04:05 MST")}
	}
	return items
}

func (c *cli) timesListing(items []timedTrigger, several bool) listing[timedTrigger] {
	now := c.now()
	l := listing[timedTrigger]{
		items: items,
		name:  func(t timedTrigger) string { return t.ScheduledAt.UTC().Format(time.RFC3339) },
		empty: "no time is left",
		columns: []column[timedTrigger]{
			{title: "TRIGGER", wide: true, cell: func(t timedTrigger) string { return t.Trigger }},
			{title: "SCHEDULED", cell: func(t timedTrigger) string { return t.ScheduledAt.UTC().Format(time.RFC3339) }},
			{title: "LOCAL", cell: func(t timedTrigger) string { return t.Local }},
			{title: "IN", cell: func(t timedTrigger) string { return nextText(now, &t.DueAt) }},
			{title: "DUE", wide: true, cell: func(t timedTrigger) string { return t.DueAt.UTC().Format(time.RFC3339Nano) }},
		},
	}
	l.columns[0].wide = !several
	return l
}

func (c *cli) triggersFireCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "fire ID",
		Short: "Fire a trigger by time now",
		Long: `Fire a trigger by time now, as if one of its times had come, under its rules for overlap
and limits. Its times stay. What it has started is shown by millrace triggers firings.`,
		Example: `  millrace triggers fire nightly-report`,
		Args:    args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return c.withAPI(func(api *client.Client) error {
				f, err := api.FireTrigger(cmd.Context(), ids[0])
				if err != nil {
					return err
				}
				l := c.firingListing([]client.Firing{f})
				l.single = true
				return render(c, c.out, l)
			})
		},
	}
}
