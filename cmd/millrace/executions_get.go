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

func (c *cli) getCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "get ID",
		Short: "Show one execution in full",
		Long: `Show one execution as it stands: its request, its times, and its result once it has
ended. Of one that is QUEUED it also tells its place in the queue and what it waits for,
as far as a line of it; "millrace explain" tells the whole.`,
		Example: `  millrace executions get 0198c0de-0000-7000-8000-000000000001
  millrace executions get 0198c0de-0000-7000-8000-000000000001 -o yaml --watch`,
		Args: args(cobra.ExactArgs(1)),
		RunE: c.showing(func(ctx context.Context, api *client.Client, id string, w io.Writer) error {
			e, err := api.Get(ctx, id)
			if err != nil {
				return err
			}
			if c.output == "table" || c.output == "wide" {
				var why client.Explanation
				if e.State == "QUEUED" {
					// Without it the execution is worth showing too.
					why, _ = api.Explain(ctx, id)
				}
				return c.describe(w, e, why)
			}
			return render(c, w, c.executionListing([]client.Execution{e}, true))
		}),
	}
}

// describe writes an execution as lines of name and value, and why it waits if that is
// known.
func (c *cli) describe(w io.Writer, e client.Execution, why client.Explanation) error {
	about := c.factsOf(w, "State", stateColour(e))
	line := about.known
	state := e.State
	if e.Cancel != nil && !client.Final(e.State) {
		state += " (cancel asked for by " + e.Cancel.By + ")"
	}
	line("ID", e.ID)
	line("State", state)
	if e.State == client.Rejected && e.Result != nil {
		line("Reason", e.Result.Reason)
	}
	if len(why.Waits) > 0 {
		line("Waits because", why.Waits[0].Message)
		line("Place in queue", c.placeText(why))
	}
	line("Result", resultText(e.Result))
	if wait, ok := retryAfter(e); ok && e.FinishedAt != nil {
		line("Try again", c.timeText(new(e.FinishedAt.Add(wait))))
	}
	line("Runs", what(e))
	line("Executor", e.Executor)
	line("Attempt", attemptText(e))
	line("Progress", c.progressText(e))
	line("Checkpoint", c.checkpointText(e))
	line("Worker", e.Worker)
	line("User", e.User)
	line("Priority", fmt.Sprint(e.Priority))
	line("Class", e.ResourceClass)
	line("Concurrency key", e.ConcurrencyKey)
	line("Labels", labelText(e.Labels))
	line("Limits", limitsText(e.Limits))
	line("Retries", retriesText(e.Retry))
	if e.Origin != nil {
		line("Rerun of", e.Origin.RerunOf)
		line("Trigger", e.Origin.Trigger)
		if e.Origin.Trigger != "" {
			line("Message", string(e.Origin.Metadata))
		}
	}
	for _, t := range []struct {
		name string
		at   *time.Time
	}{
		{"Not before", e.NotBefore}, {"Requested", &e.RequestedAt}, {"Queued", e.QueuedAt},
		{"Scheduled", e.ScheduledAt}, {"Started", e.StartedAt}, {"Finished", e.FinishedAt},
	} {
		line(t.name, c.timeText(t.at))
	}
	line("Ran", ran(c.now())(e))
	if e.Result != nil {
		line("Value", string(e.Result.Value))
		if ref := e.Result.ValueRef; ref != nil {
			line("Value", fmt.Sprintf("%d bytes: millrace executions result %s", ref.Bytes, e.ID))
		}
		line("Stdout", streamText(e.Result.Stdout))
		line("Stderr", streamText(e.Result.Stderr))
	}
	return about.end()
}

// placeText is about where in the queue an execution is, and when it will be admitted.
func (c *cli) placeText(why client.Explanation) string {
	const most = 10_000
	var parts []string
	switch {
	case why.Position > most:
		parts = append(parts, fmt.Sprintf("behind %d or more", most))
	case why.Position == 1:
		parts = append(parts, "first")
	case why.Position > 1:
		parts = append(parts, fmt.Sprintf("about %d", why.Position))
	}
	if why.StartsAt != nil {
		parts = append(parts, "starts at about "+c.timeText(why.StartsAt))
	}
	return strings.Join(parts, ", ")
}

// timeText is a time and how long ago it was.
func (c *cli) timeText(at *time.Time) string {
	if at == nil || at.IsZero() {
		return ""
	}
	text := at.UTC().Format(time.RFC3339)
	if now := c.now(); at.After(now) {
		return text + " (in " + span(at.Sub(now)) + ")"
	}
	return text + " (" + age(c.now(), *at) + " ago)"
}

func attemptText(e client.Execution) string {
	if e.Retry == nil || e.Retry.MaxAttempts <= 1 || e.Attempt > e.Retry.MaxAttempts {
		return fmt.Sprint(e.Attempt)
	}
	return fmt.Sprintf("%d of %d", e.Attempt, e.Retry.MaxAttempts)
}

// retriesText says which failures are retried, where that is not the default.
func retriesText(r *client.Retry) string {
	if r == nil {
		return ""
	}
	var parts []string
	if len(r.RetryOn) > 0 {
		parts = append(parts, "on "+strings.Join(r.RetryOn, ", "))
	}
	if len(r.NeverOn) > 0 {
		parts = append(parts, "never on "+strings.Join(r.NeverOn, ", "))
	}
	if r.MaxAge != "" {
		parts = append(parts, "for "+r.MaxAge)
	}
	return strings.Join(parts, "; ")
}

func limitsText(l *client.Limits) string {
	if l == nil {
		return ""
	}
	var parts []string
	for _, p := range [][2]string{{"queue", l.Queue}, {"start", l.Start}, {"run", l.Run}, {"total", l.Total}} {
		if p[1] != "" {
			parts = append(parts, p[0]+" "+p[1])
		}
	}
	return strings.Join(parts, ", ")
}

func streamText(s *client.Stream) string {
	if s == nil {
		return ""
	}
	if s.Truncated {
		return fmt.Sprintf("%d bytes, of which %d were kept", s.Bytes, s.KeptBytes)
	}
	return fmt.Sprintf("%d bytes", s.Bytes)
}
