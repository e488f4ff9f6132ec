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

// replayStates are the states of a replay.
func replayStates() []string {
	return []string{"PENDING", "RUNNING", "PAUSED", "STOPPED", "DONE", "CANCELLED"}
}

func (c *cli) replayCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "replay",
		Aliases: []string{"replays"},
		Short:   "Emit history again, to consumers that opt in",
		Long: `Emit history again: events of the event log, or of the topics themselves, are published
to a topic or to one consumer. Only consumers that opt in to replays act on them.

The servers carry a replay out, and go on where it was when they are restarted. To give
a consumer the records again that it gave up on, see millrace dlq redrive; to do an
execution once more, see millrace executions rerun.`,
		Example: `  millrace replay create --consumer audit --type 'millrace.execution.*' --after 24h --dry-run
  millrace replay create --consumer audit --after 24h --rate 500 --wait
  millrace replay status 0198c0de-0000-7000-8000-000000000001 --watch
  millrace replay pause 0198c0de-0000-7000-8000-000000000001`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(c.replayCreateCommand(), c.replayListCommand(), c.replayStatusCommand(), c.replayRateCommand(),
		c.replayControl("pause", "Let a replay wait, once what is being published is"),
		c.replayControl("resume", "Let a replay go on that was paused or has stopped"),
		c.replayControl("cancel", "End a replay; what is published stays so"))
	return cmd
}

func (c *cli) replayListCommand() *cobra.Command {
	return listCommand(c, sessionList[client.Replay]{
		noun: "replays", command: "millrace replay", states: replayStates(), example: "running,stopped",
		fetch: (*client.Client).Replays, listing: c.replayListing,
	})
}

func (c *cli) replayListing(items []client.Replay, single bool) listing[client.Replay] {
	now := c.now()
	return listing[client.Replay]{
		items: items, single: single,
		name:  func(r client.Replay) string { return r.ID },
		empty: "no replays",
		columns: []column[client.Replay]{
			{title: "ID", cell: func(r client.Replay) string { return r.ID }},
			{title: "STATE", cell: func(r client.Replay) string { return r.State }, paint: replayColour},
			{title: "TARGET", cell: replayTarget},
			{title: "DONE", cell: func(r client.Replay) string { return percent(r.Progress) }},
			{title: "PUBLISHED", cell: publishedText},
			{title: "SPEED", cell: func(r client.Replay) string { return perSecond(r.Speed) }},
			{title: "LEFT", cell: leftText},
			{title: "AGE", cell: func(r client.Replay) string { return age(now, r.CreatedAt) }},
			{title: "BY", cell: func(r client.Replay) string { return r.Actor }},
			{title: "SOURCE", wide: true, cell: func(r client.Replay) string { return r.Source }},
			{title: "EVENTS", wide: true, cell: func(r client.Replay) string { return replayFilterText(r.Filter) }},
			{title: "NOTE", cell: func(r client.Replay) string { return shorten(dash(r.Note), c.output == "wide") }},
		},
	}
}

func replayColour(r client.Replay) int {
	switch r.State {
	case "STOPPED":
		return red
	case "DONE":
		return green
	case "PAUSED":
		return yellow
	default:
		return plain
	}
}

func replayTarget(r client.Replay) string {
	if r.Target.Consumer != "" {
		return r.Target.Consumer
	}
	return r.Target.Topic
}

func percent(share float64) string { return fmt.Sprintf("%d%%", int(share*100)) }

func perSecond(speed float64) string {
	switch {
	case speed <= 0:
		return "-"
	case speed < 10:
		return fmt.Sprintf("%.1f/s", speed)
	}
	return fmt.Sprintf("%.0f/s", speed)
}

func leftText(r client.Replay) string {
	if r.LeftS <= 0 {
		return "-"
	}
	return "about " + span(time.Duration(r.LeftS*float64(time.Second)))
}

// publishedText says how many of how many are published.
func publishedText(r client.Replay) string {
	switch {
	case r.Total == nil:
		return fmt.Sprint(r.Published)
	case r.TotalMost && r.State != "DONE":
		return fmt.Sprintf("%d of at most %d", r.Published, *r.Total)
	case r.TotalMost:
		return fmt.Sprint(r.Published)
	}
	return fmt.Sprintf("%d of %d", r.Published, *r.Total)
}

// replayFilterText says which events a replay is about.
func replayFilterText(f client.ReplayFilter) string {
	var parts []string
	add := func(name string, values []string) {
		if len(values) > 0 {
			parts = append(parts, name+"="+strings.Join(values, ","))
		}
	}
	add("topic", f.Topics)
	add("type", f.Types)
	add("source", f.Sources)
	add("subject", f.Subjects)
	add("key", f.Keys)
	for _, s := range f.Offsets {
		parts = append(parts, stretchText(s))
	}
	if n := len(f.KeysBase64); n > 0 {
		parts = append(parts, fmt.Sprintf("%d binary keys", n))
	}
	if f.After != nil {
		parts = append(parts, "after="+rfc3339(f.After))
	}
	if f.Before != nil {
		parts = append(parts, "before="+rfc3339(f.Before))
	}
	return strings.Join(parts, " ")
}

func stretchText(s client.ReplayStretch) string {
	to := ""
	if s.To > 0 {
		to = fmt.Sprint(s.To)
	}
	return fmt.Sprintf("%s/%d=%d..%s", s.Topic, s.Partition, s.From, to)
}

func (c *cli) replayStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "status ID",
		Aliases: []string{"get", "show"},
		Short:   "Show how far a replay is",
		Long:    `Show how far a replay is, who acts on it, what was asked for, and who did what about it.`,
		Example: `  millrace replay status 0198c0de-0000-7000-8000-000000000001 --watch`,
		Args:    args(cobra.ExactArgs(1)),
		RunE: c.showing(func(ctx context.Context, api *client.Client, id string, w io.Writer) error {
			r, err := api.Replay(ctx, id)
			if err != nil {
				return err
			}
			if c.output == "table" || c.output == "wide" {
				return c.describeReplay(w, r)
			}
			return render(c, w, c.replayListing([]client.Replay{r}, true))
		}),
	}
}

func (c *cli) describeReplay(w io.Writer, r client.Replay) error {
	about := c.factsOf(w, "State", replayColour(r))
	about.line("ID", r.ID)
	about.line("State", r.State)
	about.line("Note", r.Note)
	about.line("Progress", replayProgress(r))
	about.line("Source", r.Source)
	about.line("Events", replayFilterText(r.Filter))
	about.line("Target", targetText(r.Target))
	if r.Rate > 0 {
		about.line("Rate", fmt.Sprintf("%g per second", r.Rate))
	}
	if r.Max > 0 {
		about.line("Maximum", fmt.Sprint(r.Max))
	}
	for _, x := range r.Consumers {
		about.line("Consumer", consumerText(x))
	}
	for _, x := range r.Refusals {
		about.line("Refused", fmt.Sprintf("%s/%d@%d: %s", x.Topic, x.Partition, x.Offset, x.Problem))
	}
	about.line("Created", c.timeText(&r.CreatedAt))
	about.line("Started", c.timeText(r.StartedAt))
	about.line("Finished", c.timeText(r.FinishedAt))
	for _, a := range r.Actions {
		text := fmt.Sprintf("%s %s by %s", a.At.UTC().Format(time.RFC3339), a.Action, a.Actor)
		for _, more := range []string{a.Detail, a.Reason} {
			if more != "" {
				text += ": " + more
			}
		}
		about.line("Action", text)
	}
	if c.output == "wide" {
		for _, p := range r.Partitions {
			about.line("Partition", fmt.Sprintf("%s/%d: %d of %d..%d", p.Topic, p.Partition, p.Next, p.From, p.To))
		}
	}
	return about.end()
}

// barWidth is how many characters a bar of progress has.
const barWidth = 30

// bar is a bar of progress.
func bar(share float64) string {
	full := int(share * barWidth)
	return "[" + strings.Repeat("#", full) + strings.Repeat(".", barWidth-full) + "]"
}

func replayProgress(r client.Replay) string {
	text := fmt.Sprintf("%s %s, %s published", bar(r.Progress), percent(r.Progress), publishedText(r))
	if r.Skipped > 0 {
		text += fmt.Sprintf(", %d not chosen", r.Skipped)
	}
	if r.Refused > 0 {
		text += fmt.Sprintf(", %d refused", r.Refused)
	}
	if r.Speed > 0 {
		text += ", " + perSecond(r.Speed)
	}
	if r.LeftS > 0 {
		text += ", " + leftText(r) + " left"
	}
	return text
}

func targetText(t client.ReplayTarget) string {
	switch {
	case t.Topic == "":
		return "consumer " + t.Consumer
	case t.Consumer != "":
		return fmt.Sprintf("consumer %s, on topic %s", t.Consumer, t.Topic)
	}
	return "topic " + t.Topic
}

func consumerText(x client.ReplayConsumer) string {
	if x.Acts {
		return x.Name + " acts"
	}
	return x.Name + " drops it: " + x.Why
}
