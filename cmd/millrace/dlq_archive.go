package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/client"
)

func (c *cli) dlqArchiveCommand() *cobra.Command {
	return c.refileCommand("archive", &cobra.Command{
		Use:   "archive [ID...]",
		Short: "Put dead letters out of sight",
		Long: `Put dead letters out of sight: those that are named, or those that the flags select.
They keep their status and do not show without --archived; nothing is done with them
until they are restored. What is settled is archived by itself after a time
(retention.dead_letters). Letters that are OPEN and that later events of their key wait
for (millrace dlq lanes) are refused; those that flags select are left as they are.`,
		Example: `  millrace dlq archive 0198c0de-0000-7000-8000-000000000001 --reason 'seen to'
  millrace dlq archive --status resolved,discarded --before 24h --reason 'tidying up'`,
	}, true)
}

func (c *cli) dlqRestoreCommand() *cobra.Command {
	return c.refileCommand("restore", &cobra.Command{
		Use:   "restore [ID...]",
		Short: "Bring archived dead letters back",
		Long: `Bring dead letters back that were archived: those that are named, or those that the
flags select.`,
		Example: `  millrace dlq restore 0198c0de-0000-7000-8000-000000000001
  millrace dlq restore --consumer billing --status open`,
	}, false)
}

// refileCommand is a command that puts letters away or gets them back.
func (c *cli) refileCommand(verb string, cmd *cobra.Command, needsReason bool) *cobra.Command {
	var chosen letterFlags
	var all bool
	var s client.LetterSelection
	cmd.RunE = func(cmd *cobra.Command, ids []string) error {
		if !cmd.Flags().Changed("status") {
			chosen.statuses = []string{"any"}
		}
		if err := chosen.finish(c.now()); err != nil {
			return err
		}
		switch selected := chosen.given() || len(chosen.filter.Statuses) > 0 || all; {
		case needsReason && s.Reason == "":
			return usagef("--reason: say why")
		case len(ids) > 0 && selected:
			return usagef("name letters, or select them by flags, not both")
		case len(ids) == 0 && !selected:
			return usagef("name letters, select them by flags, or say --all")
		case len(ids) == 0:
			s.Filter, s.Statuses = &chosen.filter, chosen.filter.Statuses
		}
		s.IDs = ids
		return c.withAPI(func(api *client.Client) error {
			changed, err := api.RefileLetters(cmd.Context(), verb, s)
			if err != nil {
				return err
			}
			return c.printChanged(verb, changed)
		})
	}
	chosen.addTo(cmd, true)
	cmd.Flags().Lookup("status").DefValue = ""
	_ = cmd.Flags().MarkHidden("archived") // says nothing here
	cmd.Flags().BoolVar(&all, "all", false, "all letters")
	cmd.Flags().StringVar(&s.Reason, "reason", "", "why, for the audit")
	return cmd
}

func (c *cli) dlqDeleteCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "delete ID...",
		Short: "Destroy the records of dead letters",
		Long: `Destroy the records of dead letters, with their edits and the texts of errors. What
remains, archived, says that there was a letter, where its record lay, and who deleted
it and why. It cannot be undone. A letter that is OPEN and that later events of its key
wait for (millrace dlq lanes) must be discarded first.`,
		Example: `  millrace dlq delete 0198c0de-0000-7000-8000-000000000001 --reason 'erasure request 4711'`,
		Args:    args(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			if reason == "" {
				return usagef("--reason: say why the records are destroyed")
			}
			return c.withAPI(func(api *client.Client) error {
				changed, err := api.RefileLetters(cmd.Context(), "delete", client.LetterSelection{IDs: ids, Reason: reason})
				if err != nil {
					return err
				}
				return c.printChanged("delete", changed)
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the audit (required)")
	return cmd
}

// printChanged prints what became of letters, and returns an error if some were
// refused.
func (c *cli) printChanged(verb string, changed client.LettersChanged) error {
	refused, missing := 0, 0
	for _, o := range changed.Results {
		if o.Problem == nil {
			continue
		}
		if refused++; o.Problem.NotFound() {
			missing++
		}
	}
	if err := c.writeChanged(verb, changed); err != nil {
		return err
	}
	switch {
	case refused == 0:
		return nil
	case refused == 1 && missing == 1 && len(changed.Results) == 1:
		return &exitError{code: exitNotFound}
	default:
		return &exitError{code: exitFailure}
	}
}

func (c *cli) writeChanged(verb string, changed client.LettersChanged) error {
	switch c.output {
	case "json", "yaml":
		return c.document(c.out, changed)
	case "name":
		for _, o := range changed.Results {
			if o.Done {
				if _, err := fmt.Fprintln(c.out, o.ID); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for _, o := range changed.Results {
		if o.Problem != nil {
			if _, err := fmt.Fprintf(c.out, "%s: %s\n", o.ID, oneLine(o.Problem.Error())); err != nil {
				return err
			}
		}
	}
	done := map[string]string{"archive": "archived", "restore": "restored", "delete": "deleted"}[verb]
	_, err := fmt.Fprintf(c.out, "%d %s\n", changed.Changed, done)
	return err
}
