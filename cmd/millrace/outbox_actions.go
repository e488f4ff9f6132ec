package main

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/client"
)

// outboxResult is what an action on the outbox comes to.
type outboxResult struct {
	Action     string `json:"action"`
	Seq        int64  `json:"seq,omitempty"`
	Events     int64  `json:"events"`
	Aggregates int64  `json:"aggregates,omitempty"`
	DryRun     bool   `json:"dry_run,omitempty"`
}

func (c *cli) printOutboxResults(results []outboxResult, single bool) error {
	return render(c, c.out, listing[outboxResult]{
		items: results, single: single,
		name: func(r outboxResult) string { return strconv.FormatInt(r.Seq, 10) },
		columns: []column[outboxResult]{
			{title: "ACTION", cell: func(r outboxResult) string {
				if r.DryRun {
					return r.Action + " (dry run)"
				}
				return r.Action
			}},
			{title: "SEQ", cell: func(r outboxResult) string {
				if r.Seq == 0 {
					return "-"
				}
				return strconv.FormatInt(r.Seq, 10)
			}},
			{title: "EVENTS", cell: func(r outboxResult) string { return strconv.FormatInt(r.Events, 10) }},
		},
	})
}

// eachEvent does something to each event that is named by its seq, and prints
// what was done. An event that cannot be resolved does not keep the others from it.
func (c *cli) eachEvent(action string, seqs []string, do func(api *client.Client, seq int64) error) error {
	numbers := make([]int64, len(seqs))
	for i, text := range seqs {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 1 {
			return usagef("%q is not the SEQ of an event: see millrace outbox list", text)
		}
		numbers[i] = n
	}
	return c.withAPI(func(api *client.Client) error {
		var done []outboxResult
		var errs []error
		for _, seq := range numbers {
			if err := do(api, seq); err != nil {
				errs = append(errs, fmt.Errorf("event %d: %w", seq, err))
				continue
			}
			done = append(done, outboxResult{Action: action, Seq: seq, Events: 1})
		}
		if len(done) > 0 {
			errs = append(errs, c.printOutboxResults(done, len(seqs) == 1))
		}
		return errors.Join(errs...)
	})
}

func (c *cli) outboxRetryCommand() *cobra.Command {
	var all bool
	var topic, reason string
	cmd := &cobra.Command{
		Use:   "retry [SEQ...]",
		Short: "Try events again that the broker rejected",
		Long: `Try events again that the broker rejected, with all their attempts before them: those
named, or with --all every one that is FAILED, or with --topic those for one topic.`,
		Example: `  millrace outbox retry 4711
  millrace outbox retry --topic execution_events --reason 'raised max.message.bytes'`,
		Args: args(cobra.ArbitraryArgs),
		RunE: func(cmd *cobra.Command, seqs []string) error {
			many := all || topic != ""
			if many == (len(seqs) > 0) {
				return usagef("name events, or give --all or --topic, and not both: see %s --help", cmd.CommandPath())
			}
			if !many {
				return c.eachEvent("retry", seqs, func(api *client.Client, seq int64) error {
					return api.RetryOutboxEvent(cmd.Context(), seq, reason)
				})
			}
			return c.withAPI(func(api *client.Client) error {
				n, err := api.RetryFailedOutboxEvents(cmd.Context(), topic, reason)
				if err != nil {
					return err
				}
				return c.printOutboxResults([]outboxResult{{Action: "retry", Events: n}}, true)
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&all, "all", false, "all events that are FAILED")
	flags.StringVar(&topic, "topic", "", "all events that are FAILED for this topic (logical name)")
	flags.StringVar(&reason, "reason", "", "why, for the audit")
	return cmd
}

func (c *cli) outboxSkipCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "skip SEQ...",
		Short: "Give events up that the broker rejected",
		Long: `Give events up that the broker rejected: they are never published, and their
aggregates go on behind them. Consumers will miss them, so a reason is required; it
is kept in the table outbox_actions.`,
		Example: `  millrace outbox skip 4711 --reason 'larger than the broker takes; the owner knows'`,
		Args:    args(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, seqs []string) error {
			if reason == "" {
				return usagef("--reason is required: it is kept for those who ask later")
			}
			return c.eachEvent("skip", seqs, func(api *client.Client, seq int64) error {
				return api.SkipOutboxEvent(cmd.Context(), seq, reason)
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the audit")
	return cmd
}

func (c *cli) outboxRepublishCommand() *cobra.Command {
	var s client.OutboxSelection
	var from, before string
	cmd := &cobra.Command{
		Use:   "republish",
		Short: "Publish events again that were published",
		Long: `Publish events again that were published, as they were and with the same ids, in
order per aggregate. Consumers that applied them see duplicates; those that lost them
apply them now. Name an aggregate or bound the time; --dry-run counts only.`,
		Example: `  millrace outbox republish --aggregate 0198c0de-0000-7000-8000-000000000001
  millrace outbox republish --from 2026-03-01T11:00:00Z --before 2026-03-01T12:00:00Z --dry-run`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if s.CreatedFrom, err = parseMoment("--from", from); err != nil {
				return err
			}
			if s.CreatedBefore, err = parseMoment("--before", before); err != nil {
				return err
			}
			if s.AggregateID == "" && s.CreatedFrom == nil && s.CreatedBefore == nil {
				return usagef("give --aggregate, --from or --before: everything is too much")
			}
			return c.withAPI(func(api *client.Client) error {
				answer, err := api.RepublishOutbox(cmd.Context(), s)
				if err != nil {
					return err
				}
				if s.DryRun {
					c.notef("nothing was published: this was a dry run")
				}
				return c.printOutboxResults([]outboxResult{{
					Action: "republish", Events: answer.Events, Aggregates: answer.Aggregates, DryRun: answer.DryRun}}, true)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&s.AggregateID, "aggregate", "", "events of the aggregate with this id")
	flags.StringVar(&s.AggregateType, "aggregate-type", "", "events of aggregates of this type")
	flags.StringVar(&s.Topic, "topic", "", "events for this topic (logical name)")
	flags.StringVar(&from, "from", "", "events written at this time or later (RFC 3339)")
	flags.StringVar(&before, "before", "", "events written before this time (RFC 3339)")
	flags.BoolVar(&s.DryRun, "dry-run", false, "count only")
	flags.StringVar(&s.Reason, "reason", "", "why, for the audit")
	return cmd
}

// parseMoment reads a time that may be missing.
func parseMoment(flag, text string) (*time.Time, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // no time is a valid answer
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return nil, usagef("%s: want a time such as 2026-03-01T12:00:00Z, not %q", flag, text)
	}
	return &t, nil
}
