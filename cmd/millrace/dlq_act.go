package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

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
	tabs := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	line := func(name, value string) {
		if value = oneLine(value); name == "Status" {
			value = painted(value, c.colours(), letterColour(l))
		}
		if value != "" && value != "-" {
			_, _ = fmt.Fprintf(tabs, "%s:\t%s\n", oneLine(name), value) // Flush reports errors
		}
	}
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
	line("Redrives", fmt.Sprint(l.ReplayCount))
	line("Redrive of", l.RedriveOf)
	for _, a := range l.Actions {
		text := a.Action + " by " + a.Actor + " at " + c.timeText(&a.At)
		if a.Forced {
			text += ", forced"
		}
		if a.Reason != "" {
			text += ": " + a.Reason
		}
		line("Action", text)
	}
	for _, h := range l.Headers {
		line("Header "+h.Name, bytesText(h.Value))
	}
	line("Value", bytesText(l.Value))
	return tabs.Flush()
}

func (c *cli) dlqRedriveCommand() *cobra.Command {
	var chosen letterFlags
	var order client.Redrive
	var all bool
	cmd := &cobra.Command{
		Use:   "redrive [ID...]",
		Short: "Give records to their consumers again",
		Long: `Give records to their consumers again: those that are named, or all OPEN ones that the
flags select, from the oldest on. Each goes back to its topic as it was, and only the
consumer that failed acts on it. If it fails again there is another dead letter.

A call that was broken off is repeated: it goes on with what is still OPEN. Exit code 1
says that some were refused.`,
		Example: `  millrace dlq redrive 0198c0de-0000-7000-8000-000000000001
  millrace dlq redrive --consumer billing --after 2h --dry-run
  millrace dlq redrive --fingerprint 5be2c3d1a09f7e64 --max 10 --reason 'prices are back'
  millrace dlq redrive --all`,
		RunE: func(cmd *cobra.Command, ids []string) error {
			if err := chosen.finish(c.now()); err != nil {
				return err
			}
			switch selected := chosen.given() || all; {
			case len(ids) > 0 && selected:
				return usagef("millrace dlq redrive: name letters, or select them by flags, not both")
			case len(ids) == 0 && !selected:
				return usagef("millrace dlq redrive: name letters, select them by flags, or say --all")
			case len(ids) == 0:
				order.Filter = &chosen.filter
			}
			if order.Max < 0 {
				return usagef("--max: want 1 or more, not %d", order.Max)
			}
			order.IDs = ids
			api, err := c.connect()
			if err != nil {
				return err
			}
			defer api.Close()
			result, err := api.Redrive(cmd.Context(), order)
			if err != nil {
				return err
			}
			return c.printRedrive(result)
		},
	}
	chosen.addTo(cmd, false)
	flags := cmd.Flags()
	flags.BoolVar(&all, "all", false, "all letters that are OPEN")
	flags.BoolVar(&order.DryRun, "dry-run", false, "say how many and change nothing")
	flags.IntVar(&order.Max, "max", 0, "redrive at most so many that the flags select (default 1000)")
	flags.BoolVar(&order.Force, "force", false, "beyond 5 redrives of an event; letters that are named also when they are not OPEN")
	flags.StringVar(&order.Reason, "reason", "", "why, for the audit")
	return cmd
}

// printRedrive prints what became of the letters, and returns an error if some
// were refused.
func (c *cli) printRedrive(r client.RedriveResult) error {
	verb := "redriven"
	if r.DryRun {
		verb = "would be redriven"
	}
	var err error
	switch c.output {
	case "json", "yaml":
		err = c.document(c.out, r)
	case "name":
		for _, o := range r.Results {
			if o.Redriven && err == nil {
				_, err = fmt.Fprintln(c.out, o.ID)
			}
		}
	default:
		for _, o := range r.Results {
			if o.Problem != nil && err == nil {
				_, err = fmt.Fprintf(c.out, "%s: %s\n", o.ID, oneLine(o.Problem.Error()))
			}
		}
		if err == nil {
			_, err = fmt.Fprintf(c.out, "%d of %d %s, %d refused\n", r.Redriven, r.Matched, verb, r.Refused)
		}
	}
	switch {
	case err != nil:
		return err
	case r.Refused == 0:
		return nil
	case len(r.Results) == 1 && r.Results[0].Problem != nil && r.Results[0].Problem.NotFound():
		return &exitError{code: exitNotFound}
	default:
		return &exitError{code: exitFailure}
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
