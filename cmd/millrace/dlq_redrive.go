package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/client"
)

func (c *cli) dlqRedriveCommand() *cobra.Command {
	var chosen letterFlags
	var order client.Redrive
	var all, wait bool
	cmd := &cobra.Command{
		Use:   "redrive [ID...]",
		Short: "Give records to their consumers again",
		Long: `Give records to their consumers again: those that are named, or all OPEN ones that the
flags select, from the oldest on. Each goes back to its topic as it was, or as it was
edited, and only the consumer that failed acts on it. If it fails again there is
another dead letter; once it is processed the letter is RESOLVED. Where later events of
its key wait for it (millrace dlq lanes), it is handled before them and not sent through
the topic; if it fails again, it is OPEN again.

Letters that are named are redriven at once. Those that flags select are redriven by
the servers, by and by: the command prints the redrive and ends, or follows it with
--wait. See millrace dlq redrives for what can be done about it. Exit code 1 says that
some letters were refused or failed again, or that the redrive did not get done.`,
		Example: `  millrace dlq redrive 0198c0de-0000-7000-8000-000000000001
  millrace dlq redrive --consumer billing --after 2h --dry-run
  millrace dlq redrive --fingerprint 5be2c3d1a09f7e64 --max 10 --wait --reason 'prices are back'
  millrace dlq redrive --all --rate 50 --stop-on-errors 0.1 --wait`,
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
			order.IDs = ids
			if err := checkRedrive(order); err != nil {
				return err
			}
			return c.withAPI(func(api *client.Client) error {
				if order.Filter != nil && !order.DryRun {
					return c.startRedrive(cmd.Context(), api, order, wait)
				}
				result, err := api.Redrive(cmd.Context(), order)
				if err != nil {
					return err
				}
				return c.printRedrive(result)
			})
		},
	}
	chosen.addTo(cmd, false)
	flags := cmd.Flags()
	flags.BoolVar(&all, "all", false, "all letters that are OPEN")
	flags.BoolVar(&order.DryRun, "dry-run", false, "say how many and change nothing")
	flags.Int64Var(&order.Max, "max", 0, "redrive at most so many that the flags select (default all)")
	flags.Float64Var(&order.Rate, "rate", 0, "redrive at most so many per second (default as fast as it goes)")
	flags.Float64Var(&order.StopOnErrors, "stop-on-errors", 0, "stop when more than this share (0.1 is a tenth) is refused or fails again; needs --rate")
	flags.BoolVar(&wait, "wait", false, "follow the redrive until it is done, stopped, paused or cancelled")
	flags.BoolVar(&order.NewID, "new-id", false, "give the events new ids, so that a consumer that has processed the old ones processes them again; needs --force")
	flags.BoolVar(&order.Force, "force", false, "beyond 5 redrives of an event; letters that are named also when they are not OPEN")
	flags.StringVar(&order.Reason, "reason", "", "why, for the audit")
	return cmd
}

// checkRedrive refuses what the server would refuse too, in the words of flags.
func checkRedrive(r client.Redrive) error {
	switch {
	case r.Max < 0:
		return usagef("--max: want 1 or more, not %d", r.Max)
	case r.Rate < 0:
		return usagef("--rate: want letters per second, not %g", r.Rate)
	case r.StopOnErrors < 0 || r.StopOnErrors >= 1:
		return usagef("--stop-on-errors: want a share such as 0.1, not %g", r.StopOnErrors)
	case r.StopOnErrors > 0 && r.Rate == 0:
		return usagef("--stop-on-errors: needs --rate, or all is redriven before anything fails")
	case r.NewID && !r.Force:
		return usagef("--new-id: needs --force: consumers will take what they have processed for something new")
	case r.Filter == nil && (r.Rate != 0 || r.Max != 0):
		return usagef("--max and --rate are for letters that flags select")
	}
	return nil
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
			if o.Done && err == nil {
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
