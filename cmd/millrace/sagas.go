package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/client"
)

// sagaStatuses are those that lists show.
func sagaStatuses() []string {
	return []string{"RUNNING", "COMPENSATING", "NEEDS_ATTENTION", "COMPLETED", "COMPENSATED", "FAILED", "CANCELLED", "RESOLVED"}
}

func (c *cli) sagasCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "sagas",
		Aliases: []string{"saga"},
		Short:   "Start sagas, look at them, decide about those that need attention",
		Long: `Start sagas, look at them, and decide about those whose compensation could not be
brought about (NEEDS_ATTENTION). What is decided is kept with the saga: who, and why.`,
		Example: `  millrace sagas list --status NEEDS_ATTENTION
  millrace sagas timeline ID
  millrace sagas retry ID --reason 'the bank is back'`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(c.sagaListCommand(), c.sagaGetCommand(), c.sagaTimelineCommand(), c.sagaStartCommand())
	for _, d := range sagaDecisions() {
		cmd.AddCommand(c.sagaDecisionCommand(d))
	}
	return cmd
}

func (c *cli) sagaListCommand() *cobra.Command {
	var filter client.SagaFilter
	var limit int
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"},
		Short: "List sagas, newest first",
		Long: `List sagas, newest first. The list follows the events by some tens of milliseconds;
"sagas timeline" shows one as it is.`,
		Example: `  millrace sagas list --status NEEDS_ATTENTION
  millrace sagas list --name order --business-key order-17 -o json`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 0 {
				return usagef("--limit: want 0 or more, not %d", limit)
			}
			if err := checkJSON(filter.JSON); err != nil {
				return err
			}
			return c.withAPI(func(api *client.Client) error {
				return c.repeat(cmd.Context(), func(ctx context.Context, w io.Writer) error {
					found, err := firstOf(api.Sagas(ctx, filter, pageOf(limit)), limit)
					if err != nil {
						return err
					}
					return render(c, w, c.sagaListing(found, false))
				})
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&filter.Status, "status", "", "only sagas in this status")
	flags.StringVar(&filter.Name, "name", "", "only sagas of this name")
	flags.StringVar(&filter.BusinessKey, "business-key", "", "only sagas with this business key")
	flags.StringVar(&filter.JSON, "filter", "", "a further filter, as JSON: see docs/data-index-queries.md")
	flags.IntVar(&limit, "limit", 50, "how many to list at most; 0 lists all")
	_ = cmd.RegisterFlagCompletionFunc("status", fixed(sagaStatuses())) // the flag exists
	return cmd
}

func (c *cli) sagaListing(found []client.Saga, single bool) listing[client.Saga] {
	type row = client.Saga
	now := c.now()
	return listing[row]{
		items: found, single: single,
		name:  func(s row) string { return s.ID },
		empty: "no sagas match",
		columns: []column[row]{
			{title: "ID", cell: func(s row) string { return s.ID }},
			{title: "NAME", cell: func(s row) string { return dash(s.Name) }},
			{title: "STATUS", cell: func(s row) string { return dash(s.Status) }, paint: func(s row) int { return sagaColour(s.Status) }},
			{title: "STEP", cell: func(s row) string { return dash(sagaStep(s)) }},
			{title: "BUSINESS KEY", cell: func(s row) string { return dash(s.BusinessKey) }},
			{title: "STARTED", cell: func(s row) string { return started(now, s.Started) }},
			{title: "TOOK", cell: func(s row) string { return took(now, s.Started, s.Finished) }},
			{title: "MESSAGE", cell: func(s row) string { return dash(s.Message) }},
		},
	}
}

// sagaStep is where a saga is. Events of compensations name the step that they undo.
func sagaStep(s client.Saga) string {
	switch s.Status {
	case "COMPENSATING", "COMPENSATED", "NEEDS_ATTENTION", "RESOLVED":
		if _, undone := s.Steps["compensate:"+s.Step]; undone {
			return compensationOf(s.Step)
		}
	}
	return s.Step
}

// compensationOf names what undoes a step.
func compensationOf(step string) string { return "compensation of " + step }

func sagaColour(status string) int {
	switch status {
	case "COMPLETED":
		return green
	case "NEEDS_ATTENTION", "FAILED":
		return red
	case "RUNNING", "ACTIVE", "WAITING":
		return blue
	case "COMPENSATING", "COMPENSATED", "CANCELLED", "RESOLVED", "SUSPENDED":
		return yellow
	}
	return plain
}

func (c *cli) sagaGetCommand() *cobra.Command {
	return &cobra.Command{
		Use: "get ID", Aliases: []string{"show"},
		Short:   "Show a saga",
		Long:    `Show a saga as its events tell of it. "sagas timeline" tells what happened to it.`,
		Example: `  millrace sagas get 0198c0de-0000-7000-8000-000000000001 -o json`,
		Args:    args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.withAPI(func(api *client.Client) error {
				return c.repeat(cmd.Context(), func(ctx context.Context, w io.Writer) error {
					s, err := api.Saga(ctx, args[0])
					if err != nil {
						return err
					}
					return render(c, w, c.sagaListing([]client.Saga{s}, true))
				})
			})
		},
	}
}

func (c *cli) sagaTimelineCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "timeline ID",
		Short: "Show what happened to a saga",
		Long: `Show what happened to a saga: its steps and compensations with their attempts, and what
people decided, as its journal has them.`,
		Example: `  millrace sagas timeline 0198c0de-0000-7000-8000-000000000001
  millrace sagas timeline 0198c0de-0000-7000-8000-000000000001 --watch`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.withAPI(func(api *client.Client) error {
				return c.repeat(cmd.Context(), func(ctx context.Context, w io.Writer) error {
					t, err := api.SagaTimeline(ctx, args[0])
					if err != nil {
						return err
					}
					return c.showTimeline(w, t)
				})
			})
		},
	}
}

func (c *cli) showTimeline(w io.Writer, t client.SagaTimeline) error {
	switch c.output {
	case "json", "yaml":
		return c.document(w, t)
	case "name":
		_, err := fmt.Fprintln(w, t.Saga.ID)
		return err
	}
	s := t.Saga
	about := fmt.Sprintf("%s (version %d)", s.Name, s.Version)
	if s.BusinessKey != "" {
		about += " " + s.BusinessKey
	}
	if _, err := fmt.Fprintf(w, "%s  %s  %s\n\n", s.ID, oneLine(about), painted(s.Status, c.colours(), sagaColour(s.Status))); err != nil {
		return err
	}
	type row = client.SagaMoment
	return render(c, w, listing[row]{
		items: t.Events,
		columns: []column[row]{
			{title: "TIME", cell: func(m row) string { return m.At.Local().Format("15:04:05.000") }},
			{title: "WHAT", cell: sagaWords},
			{title: "WHY, WHO", cell: func(m row) string { return dash(sagaDetail(m)) }},
			{title: "OUTPUT", wide: true, cell: func(m row) string { return dash(string(m.Output)) }},
			{title: "COMMAND", wide: true, cell: func(m row) string { return dash(m.CommandID) }},
		},
	})
}

// sagaWords says in a phrase what happened.
func sagaWords(m client.SagaMoment) string {
	step := m.Step
	if m.Compensation {
		step = compensationOf(step)
	}
	switch m.Event {
	case "step_started":
		if m.Attempt > 1 {
			return fmt.Sprintf("%s: attempt %d", step, m.Attempt)
		}
		return step + ": begun"
	case "step_completed":
		return step + ": done"
	case "step_failed":
		if m.Retryable {
			return fmt.Sprintf("%s: attempt %d failed", step, m.Attempt)
		}
		return step + ": failed"
	case "failed":
		return "needs attention: " + step
	case "resumed":
		return "goes on from " + step
	case "ended":
		return "ended: " + m.Status
	}
	return m.Event
}

func sagaDetail(m client.SagaMoment) string {
	var parts []string
	add := func(text string) {
		if text != "" {
			parts = append(parts, text)
		}
	}
	if m.Message != "" && m.Reason != "" {
		add(m.Reason + ": " + m.Message)
	} else {
		add(m.Reason + m.Message)
	}
	if m.InDoubt {
		add("(in doubt)")
	}
	if m.Actor != "" {
		add("by " + m.Actor)
	}
	return strings.Join(parts, " ")
}

func (c *cli) sagaStartCommand() *cobra.Command {
	var saga client.NewSaga
	var state string
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "start NAME",
		Short: "Start a saga",
		Long: `Start a saga that a program has defined, or a workflow. With --id the command can be
repeated: the same id starts it once.`,
		Example: `  millrace sagas start order --state '{"item":"nuts","count":3}' --business-key order-17
  millrace sagas start order --state '{"item":"nuts","count":3}' --wait 30s`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if saga.Name = args[0]; state != "" {
				if !json.Valid([]byte(state)) {
					return usagef("--state: is not JSON: want an object such as {\"item\":\"nuts\"}")
				}
				saga.State = json.RawMessage(state)
			}
			return c.withAPI(func(api *client.Client) error {
				started, err := api.StartSaga(cmd.Context(), saga)
				if err == nil && wait > 0 {
					started, err = c.awaitSaga(cmd.Context(), api, started, wait)
				}
				if err != nil {
					return err
				}
				return render(c, c.out, c.sagaNowListing(started))
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&state, "state", "", "what it begins with: a JSON object")
	flags.StringVar(&saga.BusinessKey, "business-key", "", "what it is about, in your words")
	flags.StringVar(&saga.ID, "id", "", "a UUID under which it is started once")
	flags.IntVar(&saga.Version, "version", 0, "the version of its definition; the latest without it")
	flags.IntVar(&saga.Priority, "priority", 0, "1 to 5, the most urgent (default 3)")
	flags.DurationVar(&wait, "wait", 0, "wait so long for its end")
	return cmd
}

// pollSaga is how often a saga is looked at that is waited for.
const pollSaga = 100 * time.Millisecond

// awaitSaga waits until a saga has ended or needs attention, or the time is over.
func (c *cli) awaitSaga(ctx context.Context, api *client.Client, s client.SagaNow, wait time.Duration) (client.SagaNow, error) {
	end := time.After(wait)
	for s.Finished == nil && s.Status != "NEEDS_ATTENTION" {
		select {
		case <-ctx.Done():
			return s, ctx.Err()
		case <-end:
			return s, nil // the status says that it goes on
		case <-time.After(pollSaga):
		}
		t, err := api.SagaTimeline(ctx, s.ID)
		if err != nil {
			return s, err
		}
		s = t.Saga
	}
	return s, nil
}

func (c *cli) sagaNowListing(s client.SagaNow) listing[client.SagaNow] {
	type row = client.SagaNow
	return listing[row]{
		items: []row{s}, single: true,
		name: func(s row) string { return s.ID },
		columns: []column[row]{
			{title: "ID", cell: func(s row) string { return s.ID }},
			{title: "NAME", cell: func(s row) string { return s.Name }},
			{title: "VERSION", cell: func(s row) string { return fmt.Sprint(s.Version) }},
			{title: "STATUS", cell: func(s row) string { return s.Status }, paint: func(s row) int { return sagaColour(s.Status) }},
			{title: "AT", cell: func(s row) string { return dash(strings.Join(s.Steps, ",")) }},
			{title: "MESSAGE", cell: func(s row) string { return dash(s.Message) }},
		},
	}
}

// sagaVerb is a decision about a saga.
type sagaVerb struct {
	verb, short, long, example string
	retry                      bool
}

func sagaDecisions() []sagaVerb {
	return []sagaVerb{
		{"resolve", "End a saga that needs attention as it is", "What is done and not undone stays: somebody has seen to it by hand.",
			"'the airline sent a voucher'", false},
		{"skip", "Take the compensation that failed for done", "The compensations of the steps before it go on.", "'refunded by hand'", false},
		{"retry", "Attempt the compensation again, or go on from a step",
			"Without --step the compensation that failed is attempted again, or the step of a saga that\nfailed with nothing to undo. With --step the saga takes up its steps from there.",
			"'the bank is back'", true},
		{"compensate", "Undo what a saga has done", "Whatever its status: one that runs is given up, one that has completed is undone.", "'sold twice'", false},
	}
}

func (c *cli) sagaDecisionCommand(v sagaVerb) *cobra.Command {
	var decision client.SagaDecision
	var state string
	cmd := &cobra.Command{
		Use:     v.verb + " ID --reason TEXT",
		Short:   v.short,
		Long:    v.short + ".\n" + v.long + "\nWho did it and why are kept with the saga.",
		Example: "  millrace sagas " + v.verb + " 0198c0de-0000-7000-8000-000000000001 --reason " + v.example,
		Args:    args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if decision.Reason == "" {
				return usagef("--reason: say why; it is kept with the saga")
			}
			if state != "" {
				if !json.Valid([]byte(state)) {
					return usagef("--state: is not JSON: want an object such as {\"count\":2}")
				}
				decision.State = json.RawMessage(state)
			}
			return c.withAPI(func(api *client.Client) error {
				s, err := api.DecideSaga(cmd.Context(), args[0], v.verb, decision)
				if err != nil {
					return err
				}
				return render(c, c.out, c.sagaNowListing(s))
			})
		},
	}
	cmd.Flags().StringVar(&decision.Reason, "reason", "", "why, for those who ask later (required)")
	if v.retry {
		cmd.Flags().StringVar(&decision.Step, "step", "", "the step to go on from")
		cmd.Flags().StringVar(&state, "state", "", "a JSON object that is merged into the state before")
	}
	return cmd
}
