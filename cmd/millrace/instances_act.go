package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/client"
)

func (c *cli) instancesHistoryCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "history ID",
		Short: "List the steps that an instance has been through",
		Long: `List the steps that an instance has been through, in the order of their start, and those
that are open.`,
		Example: `  millrace instances history 0198c0de-0000-7000-8000-000000000001 --watch`,
		Args:    args(cobra.ExactArgs(1)),
		RunE: c.showing(func(ctx context.Context, api *client.Client, id string, w io.Writer) error {
			steps, err := api.History(ctx, id)
			if err != nil {
				return err
			}
			return render(c, w, c.stepListing(steps))
		}),
	}
}

func (c *cli) stepListing(steps []client.StepExecution) listing[client.StepExecution] {
	now, wide := c.now(), c.output == "wide"
	return listing[client.StepExecution]{
		items: steps,
		name:  func(s client.StepExecution) string { return s.ID },
		empty: "no steps",
		columns: []column[client.StepExecution]{
			{title: "STEP", cell: func(s client.StepExecution) string {
				if s.CompensatesStep != "" {
					return compensationOf(s.CompensatesStep)
				}
				return s.StepID
			}},
			{title: "TYPE", cell: func(s client.StepExecution) string { return s.StepType }},
			{title: "STATUS", cell: func(s client.StepExecution) string { return s.Status }, paint: func(s client.StepExecution) int {
				return map[string]int{"FAILED": red, "COMPLETED": green, "RUNNING": blue, "SKIPPED": plain}[s.Status]
			}},
			{title: "ATTEMPT", cell: func(s client.StepExecution) string { return fmt.Sprint(s.AttemptNumber) }},
			{title: "AGE", cell: func(s client.StepExecution) string { return age(now, s.StartedAt) }},
			{title: "TOOK", cell: func(s client.StepExecution) string {
				if s.EndedAt == nil {
					return "-"
				}
				return span(s.EndedAt.Sub(s.StartedAt))
			}},
			{title: "OUTPUT", cell: func(s client.StepExecution) string { return shorten(dash(string(s.Output)), wide) }},
			{title: "FAILURE", cell: func(s client.StepExecution) string { return shorten(dash(s.FailureReason), wide) }},
		},
	}
}

func (c *cli) instancesAuditCommand() *cobra.Command {
	var kinds []string
	var limit int
	cmd := &cobra.Command{
		Use:     "audit ID",
		Short:   "List what happened to an instance, and who did it",
		Long:    `List what happened to an instance and who did it, the oldest first.`,
		Example: `  millrace instances audit 0198c0de-0000-7000-8000-000000000001 --kind job-failed,job-retried`,
		Args:    args(cobra.ExactArgs(1)),
		RunE: c.showing(func(ctx context.Context, api *client.Client, id string, w io.Writer) error {
			lines, err := firstOf(api.Audit(ctx, id, kinds), limit)
			if err != nil {
				return err
			}
			return render(c, w, c.auditListing(lines))
		}),
	}
	cmd.Flags().StringSliceVar(&kinds, "kind", nil, "only lines of this kind (repeatable)")
	cmd.Flags().IntVar(&limit, "limit", 0, "how many to list at most; 0 lists all")
	return cmd
}

func (c *cli) auditListing(lines []client.AuditLine) listing[client.AuditLine] {
	wide := c.output == "wide"
	return listing[client.AuditLine]{
		items: lines,
		name:  func(l client.AuditLine) string { return l.Kind },
		empty: "nothing happened",
		columns: []column[client.AuditLine]{
			{title: "TIME", cell: func(l client.AuditLine) string { return l.At.UTC().Format("2006-01-02T15:04:05.000Z") }},
			{title: "KIND", cell: func(l client.AuditLine) string { return l.Kind }},
			{title: "STEP", cell: func(l client.AuditLine) string { return dash(auditDetail(l).step()) }},
			{title: "BY", cell: func(l client.AuditLine) string { return dash(l.Actor) }},
			{title: "VERSION", wide: true, cell: func(l client.AuditLine) string { return fmt.Sprint(l.Version) }},
			{title: "DETAIL", cell: func(l client.AuditLine) string { return shorten(dash(auditDetail(l).text()), wide) }},
		},
	}
}

// entry is what lines of the audit log have in common.
type entry struct {
	StepID string `json:"step_id"`
	// Compensates is the number of the step that is undone, which has the same id.
	Compensates int             `json:"compensates"`
	Attempt     int             `json:"attempt"`
	Name        string          `json:"name"`
	Reason      string          `json:"reason"`
	Output      json.RawMessage `json:"output"`
	Failure     *struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"failure"`
}

// auditDetail reads what is known of a detail; what is not is left out.
func auditDetail(l client.AuditLine) entry {
	var e entry
	_ = json.Unmarshal(l.Detail, &e)
	return e
}

// step is the step that a line is about.
func (e entry) step() string {
	if e.Compensates > 0 {
		return compensationOf(e.StepID)
	}
	return e.StepID
}

func (e entry) text() string {
	switch {
	case e.Failure != nil && e.Failure.Message != "":
		return e.Failure.Code + ": " + e.Failure.Message
	case e.Failure != nil:
		return e.Failure.Code
	case e.Reason != "":
		return e.Reason
	case e.Name != "":
		return e.Name
	case e.Attempt > 1:
		return fmt.Sprintf("attempt %d", e.Attempt)
	}
	return string(e.Output)
}

func (c *cli) instancesWatchCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "watch ID",
		Short: "Print what happens to an instance until it ends",
		Long: `Print what has happened to an instance, and what happens, line by line until it ends. The
exit code is 1 unless it is COMPLETED.`,
		Example: `  millrace instances watch 0198c0de-0000-7000-8000-000000000001`,
		Args:    args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return c.withAPI(func(api *client.Client) error { return c.watchInstance(cmd.Context(), api, ids[0]) })
		},
	}
}

func (c *cli) watchInstance(ctx context.Context, api *client.Client, id string) error {
	ticker := time.NewTicker(followEvery)
	defer ticker.Stop()
	for shown := int64(0); ; {
		// The instance first: what the log holds beyond it is printed all the same.
		i, err := api.Instance(ctx, id, 0)
		if err == nil && i.Version > shown {
			shown, err = c.printNews(ctx, api, id, shown)
		}
		switch {
		case ctx.Err() != nil:
			return &exitError{code: exitInterrupted}
		case err != nil:
			return err
		case i.Status == "COMPLETED":
			return nil
		case i.Ended():
			return &exitError{code: exitFailure}
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// printNews prints the lines of the audit log behind a version, and returns the last one.
func (c *cli) printNews(ctx context.Context, api *client.Client, id string, shown int64) (int64, error) {
	last := shown
	for l, err := range api.Audit(ctx, id, nil) {
		if err != nil {
			return last, err
		}
		if l.Version <= shown {
			continue
		}
		last = max(last, l.Version)
		if err := c.printAudit(l); err != nil {
			return last, err
		}
	}
	return last, nil
}

func (c *cli) printAudit(l client.AuditLine) error {
	if c.output == "json" || c.output == "yaml" {
		return c.document(c.out, l)
	}
	detail := auditDetail(l)
	line := fmt.Sprintf("%s  %-24s %s", l.At.UTC().Format("15:04:05.000"), l.Kind, detail.step())
	if text := detail.text(); text != "" {
		line += "  " + shorten(text, c.output == "wide")
	}
	_, err := fmt.Fprintln(c.out, oneLine(line))
	return err
}

// instanceAction is one of the commands that do something to instances.
func (c *cli) instanceAction(verb, short, long string) *cobra.Command {
	var action client.InstanceAction
	var variables variableFlags
	cmd := &cobra.Command{
		Use:     verb + " ID...",
		Short:   short,
		Long:    long,
		Example: "  millrace instances " + verb + " 0198c0de-0000-7000-8000-000000000001",
		Args:    args(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			var err error
			if action.Variables, err = variables.object(c); err != nil {
				return err
			}
			return c.withAPI(func(api *client.Client) error {
				var changed []client.Instance
				var errs []error
				for _, id := range ids {
					i, err := api.ActOnInstance(cmd.Context(), id, verb, action)
					if err != nil {
						errs = append(errs, err)
						continue
					}
					changed = append(changed, i)
				}
				if len(changed) > 0 {
					errs = append(errs, render(c, c.out, c.startedListing(changed, len(ids) == 1)))
				}
				return errors.Join(errs...)
			})
		},
	}
	switch verb {
	case "cancel":
		cmd.Flags().BoolVar(&action.Compensate, "compensate", false, "first undo what the instance has done")
		reasonFlag(cmd, &action.Reason)
	case "retry":
		cmd.Flags().StringVar(&action.StepID, "step", "", "the step to go on from (default the one that failed)")
		variables.addTo(cmd)
	default:
		reasonFlag(cmd, &action.Reason)
	}
	return cmd
}

func (c *cli) instancesSignalCommand() *cobra.Command {
	var variables variableFlags
	cmd := &cobra.Command{
		Use:   "signal ID STEP",
		Short: "Signal a WAIT of an instance",
		Long: `Signal a WAIT of an instance, by the id of its step or the name of its signal. The
variables are merged into those of the instance. A signal that comes before the WAIT is
reached is kept for it. To signal whichever instances wait for something, see
millrace signals send.`,
		Example: `  millrace instances signal 0198c0de-0000-7000-8000-000000000001 await-settlement --var settled=true`,
		Args:    args(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, names []string) error {
			given, err := variables.object(c)
			if err != nil {
				return err
			}
			return c.withAPI(func(api *client.Client) error {
				if err := api.SignalInstance(cmd.Context(), names[0], names[1], given); err != nil {
					return err
				}
				c.notef("signalled")
				return nil
			})
		},
	}
	variables.addTo(cmd)
	return cmd
}

func (c *cli) signalsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "signals",
		Aliases: []string{"signal"},
		Short:   "Signal whichever instances wait for it",
		Long:    `Signal whichever instances wait for a signal under a correlation key.`,
		Example: `  millrace signals send payment-received ORDER-17 --var amount=1250.5`,
		Args:    cobra.ArbitraryArgs,
		RunE:    group,
	}
	cmd.AddCommand(c.signalsSendCommand())
	return cmd
}

func (c *cli) signalsSendCommand() *cobra.Command {
	var signal client.CorrelatedSignal
	var variables variableFlags
	var ttl time.Duration
	cmd := &cobra.Command{
		Use:   "send SIGNAL KEY",
		Short: "Send a signal by its name and correlation key",
		Long: `Send a signal to the instances whose WAIT asks for it under that key. When nobody waits
yet it is kept for --ttl, and the first that asks for it gets it.`,
		Example: `  millrace signals send payment-received ORDER-17 --var amount=1250.5 --ttl 24h`,
		Args:    args(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, names []string) error {
			var err error
			if signal.Variables, err = variables.object(c); err != nil {
				return err
			}
			signal.Signal, signal.CorrelationKey = names[0], names[1]
			if cmd.Flags().Changed("ttl") {
				signal.TTLSeconds = new(ttl.Seconds())
			}
			return c.withAPI(func(api *client.Client) error {
				done, err := api.Correlate(cmd.Context(), signal)
				if err != nil {
					return err
				}
				return c.printCorrelated(c.out, done)
			})
		},
	}
	variables.addTo(cmd)
	cmd.Flags().DurationVar(&ttl, "ttl", time.Hour, "how long it is kept when nobody waits yet; 0: not at all")
	cmd.Flags().StringVar(&signal.ID, "id", "", "id of your making (UUID): the same signal again is delivered once")
	return cmd
}

func (c *cli) printCorrelated(w io.Writer, done client.Correlated) error {
	switch c.output {
	case "json", "yaml":
		return c.document(w, done)
	case "name":
		for _, id := range done.InstanceIDs {
			if _, err := fmt.Fprintln(w, id); err != nil {
				return err
			}
		}
		return nil
	}
	text := fmt.Sprintf("taken by %d instances", len(done.InstanceIDs))
	switch {
	case done.Kept:
		text = "nobody waits for it yet: it is kept"
	case len(done.InstanceIDs) == 0:
		text = "nobody waits for it"
	}
	_, err := fmt.Fprintln(w, text)
	return err
}
