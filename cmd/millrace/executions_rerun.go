package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/client"
)

func (c *cli) rerunCommand() *cobra.Command {
	var states, labels []string
	var order client.Reruns
	var after time.Duration
	var all bool
	cmd := &cobra.Command{
		Use:   "rerun [ID...]",
		Short: "Do executions that have ended once more",
		Long: `Do executions that have ended once more, each as a new execution with the same request:
those that are named, or those that the flags select, FAILED, TIMED_OUT and QUARANTINED
ones unless --state says otherwise.

Selected by flags, an execution is rerun once, however often this is called; --again
lifts that. So a call that was broken off is repeated. Exit code 1 says that some could
not be rerun.`,
		Example: `  millrace executions rerun 0198c0de-0000-7000-8000-000000000001
  millrace executions rerun --label team=data --after 2h --dry-run
  millrace executions rerun --state TIMED_OUT --max 100 --reason 'the disk is back'
  millrace executions rerun --all`,
		RunE: func(cmd *cobra.Command, ids []string) error {
			flags := cmd.Flags()
			selected := all
			for _, name := range []string{"state", "label", "user", "executor", "after"} {
				selected = selected || flags.Changed(name)
			}
			switch {
			case len(ids) > 0 && selected:
				return usagef("millrace executions rerun: name executions, or select them by flags, not both")
			case len(ids) > 0:
				return c.rerunNamed(cmd, ids, order.Reason)
			case !selected:
				return usagef("millrace executions rerun: name executions, select them by flags, or say --all")
			case order.Max < 0:
				return usagef("--max: want 1 or more, not %d", order.Max)
			case after < 0:
				return usagef("--after: want a positive duration, not %s", after)
			}
			var err error
			if order.Filter.States, err = parseStates(states); err != nil {
				return err
			}
			if order.Filter.Labels, err = pairs("--label", labels); err != nil {
				return err
			}
			if after > 0 {
				from := c.now().Add(-after)
				order.Filter.RequestedAfter = &from
			}
			return c.rerunSelected(cmd, order)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&states, "state", nil, "only executions that ended in this state (repeatable)")
	flags.StringArrayVar(&labels, "label", nil, "only executions with this label, name=value (repeatable)")
	flags.StringVar(&order.Filter.User, "user", "", "only executions of this user")
	flags.StringVar(&order.Filter.Executor, "executor", "", "only executions of this executor")
	flags.DurationVar(&after, "after", 0, "only executions that were requested within this time, as in 2h")
	flags.BoolVar(&all, "all", false, "all that did not succeed")
	flags.BoolVar(&order.DryRun, "dry-run", false, "say how many and change nothing")
	flags.BoolVar(&order.Again, "again", false, "also those that were rerun before")
	flags.IntVar(&order.Max, "max", 0, "rerun at most so many, the newest first (default 1000)")
	flags.StringVar(&order.Reason, "reason", "", "why, for the history")
	_ = cmd.RegisterFlagCompletionFunc("state", fixed(client.States())) // the flag exists
	return cmd
}

func (c *cli) rerunNamed(cmd *cobra.Command, ids []string, reason string) error {
	api, err := c.connect()
	if err != nil {
		return err
	}
	defer api.Close()
	var done []client.Execution
	var errs []error
	for _, id := range ids {
		e, err := api.Rerun(cmd.Context(), id, reason, "")
		if err != nil {
			errs = append(errs, err)
			continue
		}
		done = append(done, e)
	}
	if len(done) > 0 {
		errs = append(errs, render(c, c.out, c.executionListing(done, len(ids) == 1)))
	}
	return errors.Join(errs...)
}

func (c *cli) rerunSelected(cmd *cobra.Command, order client.Reruns) error {
	api, err := c.connect()
	if err != nil {
		return err
	}
	defer api.Close()
	report, err := api.RerunAll(cmd.Context(), order)
	if err != nil {
		return err
	}
	switch c.output {
	case "json", "yaml":
		err = c.document(c.out, report)
	case "name":
		for _, r := range report.Results {
			if r.ID != "" && err == nil {
				_, err = fmt.Fprintln(c.out, r.ID)
			}
		}
	default:
		err = c.printReruns(report)
	}
	if err == nil && report.Refused > 0 {
		return &exitError{code: exitFailure}
	}
	return err
}

func (c *cli) printReruns(report client.RerunReport) error {
	if report.DryRun {
		_, err := fmt.Fprintf(c.out, "%d would be rerun\n", report.Matched)
		return err
	}
	before := 0
	for _, r := range report.Results {
		var err error
		switch {
		case r.Problem != nil:
			_, err = fmt.Fprintf(c.out, "%s: %s\n", r.RerunOf, oneLine(r.Problem.Error()))
		case r.Replayed:
			before++
		default:
			_, err = fmt.Fprintf(c.out, "%s is rerun as %s\n", r.RerunOf, r.ID)
		}
		if err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(c.out, "%d matched, %d rerun, %d were rerun before, %d refused\n",
		report.Matched, report.Accepted-before, before, report.Refused)
	return err
}
