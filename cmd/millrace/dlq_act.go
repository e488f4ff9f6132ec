package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/client"
)

func (c *cli) dlqShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "show ID",
		Aliases: []string{"get"},
		Short:   "Show a dead letter with its record",
		Long: `Show a dead letter: what failed, when and why, what was done with it, and the record
with its headers. Bytes that are no text are shown in base64.`,
		Example: `  millrace dlq show 0198c0de-0000-7000-8000-000000000001
  millrace dlq show 0198c0de-0000-7000-8000-000000000001 -o json`,
		Args: args(cobra.ExactArgs(1)),
		RunE: c.showing(func(ctx context.Context, api *client.Client, id string, w io.Writer) error {
			l, err := api.DeadLetter(ctx, id)
			if err != nil {
				return err
			}
			if c.output == "table" || c.output == "wide" {
				return c.describeLetter(w, l)
			}
			return render(c, w, c.letterListing([]client.DeadLetter{l}, true))
		}),
	}
}

// describeLetter writes a dead letter as lines of name and value.
func (c *cli) describeLetter(w io.Writer, l client.DeadLetter) error {
	about := c.factsOf(w, "Status", letterColour(l))
	line := about.known
	line("ID", l.ID)
	line("Status", l.Status)
	line("Consumer", l.Consumer)
	line("Record", recordText(l))
	line("Key", bytesText(l.Key))
	line("Event", l.EventType)
	line("Event ID", l.EventID)
	line("Class", l.Class)
	line("Reason", l.Reason)
	if l.Error != l.Reason {
		line("Error", l.Error)
	}
	line("Error type", l.ErrorType)
	line("Fingerprint", l.Fingerprint)
	line("Attempts", fmt.Sprint(l.Attempts))
	line("First failure", c.timeText(&l.FirstFailedAt))
	line("Last failure", c.timeText(&l.LastFailedAt))
	for _, f := range l.History {
		with := ""
		if f.Records > 1 {
			with = fmt.Sprintf(", with %d records", f.Records)
		}
		line(fmt.Sprintf("Attempt %d", f.Attempt), f.At.UTC().Format(time.RFC3339Nano)+with+": "+f.Error)
	}
	line("Written by", l.Origin)
	line("Redrives", fmt.Sprint(l.ReplayCount))
	line("Redrive of", l.RedriveOf)
	line("Lane", c.laneText(l))
	if n := l.NextRetry; n != nil {
		text := c.timeText(&n.At) + " by policy " + n.Policy
		if n.Held {
			text += ", held while the group is so large"
		}
		line("Next try", text)
	}
	line("Archived", c.timeText(l.ArchivedAt))
	for _, a := range l.Actions {
		line("Action", c.actionText(a))
	}
	for _, h := range l.Headers {
		line("Header "+h.Name, bytesText(h.Value))
	}
	line("Value", bytesText(l.Value))
	c.describeEdits(line, l)
	if err := about.end(); err != nil || l.Stack == "" {
		return err
	}
	if _, err := fmt.Fprintln(w, "Stack:"); err != nil {
		return err
	}
	for text := range strings.Lines(l.Stack) {
		if _, err := fmt.Fprintln(w, "  "+oneLine(strings.ReplaceAll(strings.TrimRight(text, "\n"), "\t", "  "))); err != nil {
			return err
		}
	}
	return nil
}

// actionText says what was done, by whom and why.
func (c *cli) actionText(a client.DeadLetterAction) string {
	text := a.Action + " by " + a.Actor + " at " + c.timeText(&a.At)
	if a.Forced {
		text += ", forced"
	}
	if a.RedriveID != "" {
		text += ", redrive " + a.RedriveID
	}
	if a.Detail != "" {
		text += ", " + a.Detail
	}
	if a.Reason != "" {
		text += ": " + a.Reason
	}
	return text
}

// describeEdits says that a redrive sends something else than came, and how it
// became that.
func (c *cli) describeEdits(line func(name, value string), l client.DeadLetter) {
	for i, e := range l.EditLog {
		line(fmt.Sprintf("Edit %d", i+1), c.actionText(client.DeadLetterAction{Action: "made", Actor: e.Actor, At: e.At, Reason: e.Reason, Forced: e.Forced}))
		for _, change := range e.Changes {
			line("  "+change.Where, bytesText(change.Old)+" -> "+bytesText(change.New))
		}
	}
	if e := l.Edited; e != nil {
		line("Edited key", bytesText(e.Key))
		line("Edited value", bytesText(e.Value))
	}
}

func (c *cli) dlqDiscardCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "discard ID...",
		Short: "Say that records are not needed",
		Long: `Say that records are not needed, and why. They stay in the list with the status
DISCARDED, and can be redriven by name with --force.`,
		Example: `  millrace dlq discard 0198c0de-0000-7000-8000-000000000001 --reason 'test data'
  millrace dlq list --class message -o name | xargs millrace dlq discard --reason 'not ours'`,
		Args: args(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			if reason == "" {
				return usagef("--reason: say why the records are not needed")
			}
			return c.eachLetter(ids, func(api *client.Client, id string) (client.DeadLetter, error) {
				return api.Discard(cmd.Context(), id, reason)
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the audit (required)")
	return cmd
}

// eachLetter does something with every letter that is named, and prints them as
// they stand afterwards. One that is refused does not keep the others from it.
func (c *cli) eachLetter(ids []string, do func(api *client.Client, id string) (client.DeadLetter, error)) error {
	return c.withAPI(func(api *client.Client) error {
		var done []client.DeadLetter
		var errs []error
		for _, id := range ids {
			l, err := do(api, id)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			done = append(done, l)
		}
		if len(done) > 0 {
			errs = append(errs, render(c, c.out, c.letterListing(done, len(ids) == 1)))
		}
		return errors.Join(errs...)
	})
}
